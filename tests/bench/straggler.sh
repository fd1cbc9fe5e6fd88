#!/usr/bin/env bash
# One 10x slower peer of eight, real processes: time to target beside that of eight equal peers. Each
# peer is paced to a declared step time, long enough that the machine is never busy, so that the
# figure is the method's and not the machine's; the share of the cores that was busy is printed.
# Nobody stops at the target, or the slow one would go on alone: the figure is when the mean accuracy
# of all peers' latest reports first is that high, after the last of them has started.
#   tests/bench/straggler.sh build/release/grapevine [STEP_TIME [TARGET [SEEDS]]]
# TIME (45 s) is for how long each trains.
set -euo pipefail
[ -x "${1:-}" ] || { echo "straggler.sh: no executable '${1:-}': straggler.sh GRAPEVINE [STEP_TIME [TARGET [SEEDS]]]" >&2; exit 2; }
grapevine=$(realpath "$1")
step=${2:-60ms} target=${3:-0.9} seeds=${4:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

busy() { # jiffies busy and in all, of all cores
    awk '/^cpu / { print $2 + $3 + $4 + $7 + $8 + $9, $2 + $3 + $4 + $5 + $6 + $7 + $8 + $9; exit }' /proc/stat
}

# run HETERO SEED METHOD FLAGS...: seconds to the target, nothing if it was not reached.
run() {
    local hetero=$1 seed=$2 out=$work/out
    shift 2
    "$grapevine" testnet --peers 8 --data digits --model mlp --batch 32 --threads 1 --lr 0.01 --seed "$seed" --shard all --step-time "$step" \
        --hetero "$hetero" --averaging "$@" --time "${TIME:-45s}" --report-every 500ms --start-with 8 \
        --out "$out" --fresh --quiet >"$work/log" 2>&1 || { tail -n 3 "$work/log" >&2; return 1; }
    /usr/bin/python3 - "$out/events.jsonl" "$target" <<'PY'
import json, sys

begun, latest = 0, [0] * 8
for event in map(json.loads, open(sys.argv[1])):
    if event["event"] == "started":
        begun = event["t"]
    if event["event"] == "report" and event["accuracy"] is not None:
        latest[event["peer"]] = event["accuracy"]
        if sum(latest) / 8 >= float(sys.argv[2]):
            print("%.2f" % (event["t"] - begun))
            break
PY
}

measure() {
    local before after equal slow
    for ((seed = 1; seed <= seeds; seed++)); do
        before=$(busy)
        equal=$(run uniform "$seed" "$@")
        slow=$(run list:1,1,1,1,1,1,1,0.1 "$seed" "$@")
        after=$(busy)
        if [ -z "$equal" ] || [ -z "$slow" ]; then
            echo "$* seed $seed: the target was not reached (equal peers: ${equal:-no}, with a straggler: ${slow:-no})"
            continue
        fi
        awk -v name="$*" -v seed="$seed" -v a="$equal" -v b="$slow" -v t0="$before" -v t1="$after" 'BEGIN {
            split(t0, x, " "); split(t1, y, " ")
            printf "%-36s seed %d: %6.1f s with equal peers, %6.1f s with a straggler: %.3f (cores %.0f %% busy)\n",
                name, seed, a, b, b / a, 100 * (y[1] - x[1]) / (y[2] - x[2]) }'
    done
}

measure ad-psgd:H=4
measure local-sgd --pace time=500ms
