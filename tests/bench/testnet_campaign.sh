#!/bin/bash
# testnet_campaign: short testnets of real processes, one after the other on a busy machine; each must
# end well. Methods take turns; every fifth run has --time, kills and freezes.
#   tests/bench/testnet_campaign.sh [RUNS]     200
#   LOAD=8   busy processes beside it
#   BUILD=build/release   where grapevine is built
# Prints what failed, and at the end how many passed and how long the runs with --time took beyond it.
# Exit 1 if one failed.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

runs=${1:-200}
load=${LOAD:-8}
program=${BUILD:-build/release}/grapevine
methods=(local-sgd ad-psgd one-shot push-sum diloco dpsgd none easgd slowmo)
time_s=8

if [ ! -x "$program" ]; then
    echo "testnet_campaign.sh: $program is not built; BUILD=DIR says where to look" >&2
    exit 2
fi
work=$(mktemp -d)
busy=()
finish() {
    [ ${#busy[@]} -eq 0 ] || kill "${busy[@]}" 2>/dev/null
    rm -rf "$work"
}
trap finish EXIT
cp "$program" "$work/grapevine" # it may be built anew meanwhile
for ((i = 0; i < load; i++)); do
    (while :; do :; done) &
    busy+=("$!")
done

passed=0
most_ms=0
for ((run = 1; run <= runs; run++)); do
    method=${methods[run % ${#methods[@]}]}
    flags=(--epochs 3)
    if ((run % 5 == 0)); then
        flags=(--time "${time_s}s" --step-time 5ms --chaos 'kill:mtbf=2s,restart=1s;freeze:mtbf=4s,for=1s')
    fi
    begun=$(date +%s%3N)
    timeout -k 5 300 "$work/grapevine" testnet --peers 4 --data digits --model mlp --averaging "$method" --seed "$run" \
        "${flags[@]}" --out "$work/run" --fresh --json >"$work/json" 2>"$work/err"
    code=$?
    took=$(($(date +%s%3N) - begun))
    if ((run % 5 == 0 && took - 1000 * time_s > most_ms)); then most_ms=$((took - 1000 * time_s)); fi
    if [ $code -eq 0 ] && grep -q '"finished":4,' "$work/json"; then
        passed=$((passed + 1))
    else
        echo "run $run, $method ${flags[*]}: exit code $code"
        grep -E 'failed|broken|error' "$work/err" | sed 's/^/    /'
    fi
done
echo "$passed of $runs passed at load $load; those with --time ended at most $most_ms ms after it"
[ "$passed" -eq "$runs" ]
