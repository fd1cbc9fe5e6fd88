#!/usr/bin/env bash
# Samples per second and peak memory of `mlp` and `cnn`, ours against PyTorch from Debian, in one
# sitting: the two take turns, so that a busy machine slows both. Prints one table.
#   tests/bench/compare_pytorch.sh [GRAPEVINE]     (default build/release/grapevine)
# RUNS (5), SECONDS_EACH (4), BATCH (64) and THREADS (1) may be set in the environment.
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=${1:-build/release/grapevine}
runs=${RUNS:-5} seconds=${SECONDS_EACH:-4} batch=${BATCH:-64} threads=${THREADS:-1}
python=/usr/bin/python3

[ -x "$grapevine" ] || { echo "no $grapevine: build first (cmake --preset release && ninja -C build/release)" >&2; exit 1; }
if ! $python -c 'import torch' 2>/dev/null; then
    echo "installing python3-torch ..." >&2
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get install -y --no-install-recommends python3-torch >&2
fi

rows=$(mktemp)
trap 'rm -f "$rows"' EXIT
# Both get passive waiting; PyTorch also an allocator that keeps what it freed, its faster setting.
export OMP_WAIT_POLICY=PASSIVE
for model in mlp cnn; do
    for run in $(seq "$runs"); do
        echo "$model $run of $runs" >&2
        ours=$("$grapevine" bench train --model "$model" --batch "$batch" --threads "$threads" --seconds "$seconds" --json)
        theirs=$(MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=4294967296 OMP_NUM_THREADS=$threads \
            $python tests/bench/compare_pytorch.py "$model" "$batch" "$threads" "$seconds")
        printf '%s\t%s\t%s\n' "$model" "$ours" "$theirs" >>"$rows"
    done
done

$python - "$rows" "$batch" "$threads" "$runs" <<'PY'
import json
import statistics
import sys

rows = {}
for line in open(sys.argv[1]):
    model, ours, theirs = line.rstrip("\n").split("\t")
    rows.setdefault(model, []).append((json.loads(ours), json.loads(theirs)))
version = next(iter(rows.values()))[0][1]["version"]
print(f"batch {sys.argv[2]}, {sys.argv[3]} thread(s), f32, median of {sys.argv[4]} runs (least to most), PyTorch {version}\n")
print("| model | grapevine, samples/s | PyTorch, samples/s | ratio | peak RSS, MiB | PyTorch's |")
print("|---|---|---|---|---|---|")


def spread(values):
    return f"{statistics.median(values):,.0f} ({min(values):,.0f} to {max(values):,.0f})"


for model, pairs in rows.items():
    ours = [a["per_s"] for a, _ in pairs]
    theirs = [b["per_s"] for _, b in pairs]
    ratios = [x / y for x, y in zip(ours, theirs)]
    ours_rss = max(a["rss_bytes"] for a, _ in pairs) / 2**20
    theirs_rss = max(b["rss_bytes"] for _, b in pairs) / 2**20
    print(f"| {model} | {spread(ours)} | {spread(theirs)} | {statistics.median(ratios):.2f} "
          f"({min(ratios):.2f} to {max(ratios):.2f}) | {ours_rss:.0f} | {theirs_rss:.0f} |")
PY
