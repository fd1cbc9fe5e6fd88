#!/bin/bash
# chaos_campaign: many seeds of tests/sim/test_chaos.c, spread over the cores.
#   tests/bench/chaos_campaign.sh [SEEDS [FIRST]]     2000 from 1
#   BUILD=build/release  where sim_chaos is built;  JOBS=2  processes side by side
# A failing seed prints the command that replays it. Exit 1 if there was one.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

seeds=${1:-2000}
first=${2:-1}
jobs=${JOBS:-$(nproc)}
program=${BUILD:-build/release}/tests/sim_chaos
batch=25

if [ ! -x "$program" ]; then
    echo "chaos_campaign.sh: $program is not built; BUILD=DIR says where to look" >&2
    exit 2
fi
started=$SECONDS
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

run_batch() { # run_batch FIRST COUNT
    FIRST=$1 SEEDS=$2 "$program" >"$logs/$1" 2>&1 && return
    grep -E '^(at |mean |seed |SEED=|to see )|internal error|ERROR: ' "$logs/$1" ||
        echo "seeds $1 to $(($1 + $2 - 1)): ended without a word"
    touch "$logs/failed-$1"
}
export -f run_batch
export program logs

# A batch ends at its first failing seed.
for ((at = first; at < first + seeds; at += batch)); do
    left=$((first + seeds - at))
    echo "$at $((left < batch ? left : batch))"
done | xargs -P "$jobs" -L 1 bash -c 'run_batch "$@"' _
failed=$(find "$logs" -name 'failed-*' | wc -l)
events=$(sed -n 's/.* from [0-9]*, \([0-9]*\) events$/\1/p' "$logs"/[0-9]* | awk '{sum += $1} END {printf "%d", sum}')
echo "$seeds seeds in $((SECONDS - started)) s, $events events, $failed batches of $batch with a failure"
[ "$failed" -eq 0 ]
