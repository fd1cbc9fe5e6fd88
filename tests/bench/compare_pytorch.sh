#!/usr/bin/env bash
# Training speed, ours against PyTorch from Debian, as a table of ratios: one thread and two in f32,
# and bf16 on one thread against PyTorch's f32 and its bf16 autocast. In each run the two take turns,
# so that a busy machine slows both; a ratio is of neighbours, and the table has their median and
# spread. Models that our program does not know yet are shown as such.
#   tests/bench/compare_pytorch.sh [GRAPEVINE|none]   (build/release/grapevine; none: PyTorch alone)
# GRAPEVINE_CPU (kernels/README.md) limits the instruction set of both sides; what each used is printed.
# FORWARD=1: forward passes alone, in evaluation mode, PyTorch's under inference_mode.
# From the environment: MODELS, PRECISIONS ("f32 bf16"), THREADS_LIST ("1 2"), RUNS (5),
# SECONDS_EACH (4). Batches: 64, for gpt-nano and lstm 32 (of 128 and 64 symbols).
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=${1:-build/release/grapevine}
models=${MODELS:-mlp cnn resnet14 gpt-nano lstm}
precisions=${PRECISIONS:-f32 bf16} threads_list=${THREADS_LIST:-1 2}
runs=${RUNS:-5} seconds=${SECONDS_EACH:-4}
python=/usr/bin/python3
forward=() what=training
[ -z "${FORWARD:-}" ] || forward=(--forward) what="forward alone"

[ "$grapevine" = none ] || [ -x "$grapevine" ] ||
    { echo "no $grapevine: build first (cmake --preset release && ninja -C build/release)" >&2; exit 1; }
[ "$grapevine" = none ] || "$grapevine" --version >&2 # and says what is wrong with GRAPEVINE_CPU
if ! $python -c 'import torch' 2>/dev/null; then
    echo "installing python3-torch ..." >&2
    sudo=$([ "$(id -u)" = 0 ] || echo sudo)
    $sudo apt-get install -y --no-install-recommends python3-torch >&2
fi

rows=$(mktemp) error=$(mktemp)
trap 'rm -f "$rows" "$error"' EXIT
# PyTorch sets its own environment (see compare_pytorch.py); ours needs no more than this.
export OMP_WAIT_POLICY=PASSIVE

# measure RUN MODEL BATCH THREADS PRECISION: one row a side.
measure() {
    local result
    result=$($python tests/bench/compare_pytorch.py "$2" "$3" "$4" "$seconds" --precision "$5" "${forward[@]}")
    printf '%s\ttheirs\t%s\t%s\t%s\t%s\n' "$1" "$2" "$4" "$5" "$result" >>"$rows"
    [ "$grapevine" != none ] || return 0
    # What ours used is on stderr.
    if ! result=$("$grapevine" bench train --model "$2" --batch "$3" --threads "$4" --precision "$5" \
        --seconds "$seconds" "${forward[@]}" --json 2>"$error"); then
        result=$(tail -n 1 "$error" | $python -c 'import json, sys; print(json.dumps({"error": sys.stdin.read().strip()}))')
    fi
    printf '%s\tours\t%s\t%s\t%s\t%s\n' "$1" "$2" "$4" "$5" "$result" >>"$rows"
    our_cpu=$(sed -n 's/.*instruction set: //p' "$error" | head -n 1)
}
our_cpu=none

for run in $(seq "$runs"); do
    for model in $models; do
        echo "run $run of $runs: $model" >&2
        case $model in gpt* | lstm) batch=32 ;; *) batch=64 ;; esac
        for precision in $precisions; do
            for threads in $threads_list; do
                [ "$precision" = f32 ] || [ "$threads" = 1 ] || continue
                measure "$run" "$model" "$batch" "$threads" "$precision"
            done
        done
    done
done

$python - "$rows" "$runs" "$seconds" "$our_cpu" "$what" <<'PY'
import json
import os
import statistics
import sys

cells, notes, version, their_cpu, settings = {}, [], "", "", {}
for line in open(sys.argv[1]):
    run, side, model, threads, precision, text = line.rstrip("\n").split("\t")
    result = json.loads(text)
    cells.setdefault(model, {}).setdefault((side, int(threads), precision), {})[int(run)] = result
    if "error" in result:
        note = f"{model}, {precision}, {threads} thread(s): {result['error']}"
        if note not in notes:
            notes.append(note)
    if side == "theirs":
        version, their_cpu = result["version"], result["cpu"]
        settings.setdefault(f"{model} {precision} {threads}", []).append(result["setting"])


def spread(values, form):
    if not values:
        return "-"
    return f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"


def speeds(model, key):
    return [r["per_s"] for r in cells[model].get(key, {}).values() if "per_s" in r]


def ratios(model, ours, theirs):
    """Of the same run: ours / theirs."""
    a, b = cells[model].get(ours, {}), cells[model].get(theirs, {})
    return [a[run]["per_s"] / b[run]["per_s"] for run in a if run in b and "per_s" in a[run]]


for model, sides in cells.items():
    for (side, threads, precision), results in sides.items():
        other = sides.get(("theirs", threads, precision), {})
        for run, result in results.items():
            for what in ("parameters", "unit"):
                if side == "ours" and what in result and result[what] != other[run][what]:
                    note = f"{model}: NOT THE SAME WORK: {what} {result[what]}, PyTorch's {other[run][what]}"
                    if note not in notes:
                        notes.append(note)

single, double, half = (1, "f32"), (2, "f32"), (1, "bf16")
print(f"Median (least to most) of {sys.argv[2]} runs of {sys.argv[3]} s, PyTorch {version}, "
      f"load {os.getloadavg()[1]:.1f}; instruction set: ours {sys.argv[4]}, PyTorch's {their_cpu}\n")
print(f"ours / PyTorch, {sys.argv[5]}\n")
print("| model | 1 thread f32 | 2 threads f32 | bf16 against PyTorch's f32 | bf16 against PyTorch's bf16 autocast |")
print("|---|---|---|---|---|")
for model in cells:
    columns = [(single, single), (double, double), (half, single), (half, half)]
    texts = [spread(ratios(model, ("ours", *a), ("theirs", *b)), "{:.2f}") for a, b in columns]
    print(f"| {model} | " + " | ".join(texts) + " |")
print("\nsamples or tokens a second\n")
print("| model | | 1 thread f32 | 2 threads f32 | 1 thread bf16 | peak RSS, MiB (1 thread f32) |")
print("|---|---|---|---|---|---|")
for model in cells:
    for side, name in (("ours", "grapevine"), ("theirs", "PyTorch")):
        texts = [spread(speeds(model, (side, *key)), "{:,.0f}") for key in (single, double, half)]
        memory = [r["rss_bytes"] / 2**20 for r in cells[model].get((side, *single), {}).values() if "rss_bytes" in r]
        print(f"| {model} | {name} | " + " | ".join(texts) + f" | {max(memory, default=0):.0f} |")
print("\nfastest of PyTorch's settings: " + "; ".join(f"{k}: {statistics.mode(v)}" for k, v in settings.items()))
for note in notes:
    print(note)
PY
