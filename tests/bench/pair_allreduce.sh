#!/bin/bash
# pair_allreduce: seconds of one averaging of two peers over loopback, beside gloo's all_reduce of the
# same plane, in turn and in the same run. Needs python3-torch (Debian's); without it only ours is shown.
#   tests/bench/pair_allreduce.sh [GRAPEVINE]
#   VALUES=10000000  float32 numbers of the plane;  ROUNDS=20  of each run;  TIMES=3  runs of each
# The figures are medians, without the first two of each run: of gloo the call alone, from a tensor to
# the sum in its place; of ours the round, from the beginning of its snapshot until the result is
# applied, with encoding, both ways over the wire, norms and commit. What comes between rounds (the
# offer, a good copy put aside) is in the second column: from the end of one round to the next's.
set -euo pipefail
cd "$(dirname "$0")/../.."

grapevine=${1:-build/release/grapevine}
values=${VALUES:-10000000}
rounds=${ROUNDS:-20}
times=${TIMES:-3}
[ -x "$grapevine" ] || { echo "pair_allreduce.sh: no executable $grapevine: build it, or name it" >&2; exit 2; }
results=$(mktemp)
trap 'rm -f "$results"' EXIT

ours() { # ours NAME WORDS...: a line "NAME SECONDS"
    local name=$1
    shift
    timeout -s KILL 300 "$grapevine" bench averaging --peers 2 --exchange pair --values "$values" \
        --rounds "$rounds" --json "$@" |
        sed -n "s/.*\"p50_s\":\([0-9.e-]*\),.*\"round_p50_s\":\([0-9.e-]*\).*/$name \2 \1/p" >>"$results"
}

gloo() {
    /usr/bin/python3 -c 'import torch.distributed' 2>/dev/null || return 0
    timeout -s KILL 300 /usr/bin/python3 tests/bench/gloo_allreduce.py "$values" "$rounds" 2>/dev/null |
        sed -n 's/^\([0-9.]*\) .*/gloo \1/p' >>"$results"
}

echo "averaging $values float32 between two processes over loopback, $(nproc) cores, load $(cut -d' ' -f1 /proc/loadavg)"
for ((i = 0; i < times; i++)); do
    gloo
    ours sealed --codec f32
    ours sealed-f16 --codec f16
    ours clear --codec f32 --insecure-loopback
done
sort -k1,1 -k2,2g "$results" | awk '
    { seconds[$1, ++count[$1]] = $2; whole[$1, count[$1]] = $3 }
    function median(name) { return seconds[name, int((count[name] + 1) / 2)] }
    function row(name, text) {
        if (!count[name]) return
        printf "%-34s %8.1f ms", text, 1000 * median(name)
        if (count["gloo"]) printf "  %5.2f x gloo", median(name) / median("gloo")
        printf "  (%.1f to %.1f)", 1000 * seconds[name, 1], 1000 * seconds[name, count[name]]
        if (name != "gloo") printf "  cycle %.1f ms", 1000 * whole[name, int((count[name] + 1) / 2)]
        printf "\n"
    }
    END {
        row("gloo", "gloo all_reduce")
        row("clear", "grapevine, in the clear")
        row("sealed", "grapevine, encrypted")
        row("sealed-f16", "grapevine, encrypted, --codec f16")
        printf "encryption: %.0f %% of the encrypted round\n", \
            100 * (1 - median("clear") / median("sealed"))
    }'
