#!/usr/bin/env bash
# What becomes of several peers' models: teachers, averages, soups, ensembles, students of a quarter and a twentieth of the
# parameters, from labelled and from unlabelled images, on equal (iid) and unlike (dirichlet:0.1) shards; a text; and what
# distilling costs beside training on labels. Every run is a row of JSON in a file; a run whose row is there is not repeated, and
# peers and students that were stopped go on, so the script can be stopped and started again; the tables are printed from the
# rows.
#   tests/bench/distill.sh [GRAPEVINE]     (default build/release/grapevine)
#   TABLE=1 tests/bench/distill.sh         only the tables
# Of Fashion-MNIST's 60,000 training images the peers have 50,000; the other 10,000 are the unlabelled ones, which nobody has
# seen. The test images only judge. Each peer trains alone from the same beginning, so the average of their parameters is what
# `--averaging one-shot` gives.
# From the environment: SEEDS ("1 2 3"), PARTS ("images text cost"), CASES ("iid dirichlet:0.1"), PEERS (8), MODEL (cnn*0.5),
# QUARTER (cnn*0.25), TWENTIETH (cnn*0.11), EPOCHS (15: of each peer over its shard), STUDENT_EPOCHS (20, over 50,000 images),
# TEMPERATURE (3), ALPHA (0.9), TEXT (a file; default: the licenses of this machine), TEXT_MODEL (gpt-nano), TEXT_HALF
# (gpt-nano*0.7), TEXT_PEERS (4), TEXT_STEPS (800), COST_MODEL (cnn), COST_STUDENT (cnn*0.5), ROWS (build/bench/distill.jsonl),
# WORK (build/bench/distill: models and answers, some 100 MB; remove it to begin anew). About an hour a seed on two cores of
# 2021. Needs dataset-fashion-mnist.
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=$(realpath "${1:-build/release/grapevine}")
seeds=${SEEDS:-1 2 3} parts=${PARTS:-images text cost} cases=${CASES:-iid dirichlet:0.1} peers=${PEERS:-8}
model=${MODEL:-cnn*0.5} quarter=${QUARTER:-cnn*0.25} twentieth=${TWENTIETH:-cnn*0.11}
epochs=${EPOCHS:-15} student_epochs=${STUDENT_EPOCHS:-20} temperature=${TEMPERATURE:-3} alpha=${ALPHA:-0.9}
text_model=${TEXT_MODEL:-gpt-nano} text_half=${TEXT_HALF:-gpt-nano*0.7} text_peers=${TEXT_PEERS:-4} text_steps=${TEXT_STEPS:-800}
cost_model=${COST_MODEL:-cnn} cost_student=${COST_STUDENT:-cnn*0.5}
rows=$(realpath -m "${ROWS:-build/bench/distill.jsonl}") work=$(realpath -m "${WORK:-build/bench/distill}")
python=${PYTHON:-python3} commit=$(git rev-parse --short HEAD 2>/dev/null || true)
mkdir -p "$(dirname "$rows")" "$work"
touch "$rows"

has_row() { grep -qF "\"key\": \"$1\"" "$rows"; }

# keep KEY FILE: the JSON that a command printed, as a row.
keep() {
    $python - "$1" "$commit" "$2" >>"$rows" <<'PY'
import json, sys, time

key, commit, path = sys.argv[1:]
print(json.dumps({"key": key, **json.load(open(path)), "commit": commit, "date": time.strftime("%Y-%m-%d", time.gmtime())}))
PY
}

# peer FOLDER FLAGS...: one that trains alone; one that is done is left as it is.
peer() {
    local folder=$1
    shift
    [ -e "$folder/done" ] && return
    "$grapevine" peer --averaging none --listen 127.0.0.1:0 --evaluate-samples 0 --quiet --out "$folder" "$@" </dev/null
    touch "$folder/done"
}

# distil KEY FLAGS...
distil() {
    local key=$1
    shift
    has_row "$key" && return
    echo "$key" >&2
    "$grapevine" distill --json --quiet --out "$work/student.safetensors" "$@" >"$work/result.json" </dev/null
    keep "$key" "$work/result.json"
}

# evaluate KEY FLAGS...
evaluate() {
    local key=$1
    shift
    has_row "$key" && return
    echo "$key" >&2
    "$grapevine" eval --json --quiet "$@" >"$work/result.json" </dev/null
    keep "$key" "$work/result.json"
}

# The first 50,000 training images with their labels and all for testing; the other 10,000 by themselves.
split_images() {
    [ -e "$work/unlabelled/done" ] && return
    mkdir -p "$work/labelled" "$work/unlabelled"
    $python - "$work" <<'PY'
import glob, gzip, os, struct, sys

def find(name):
    for pattern in ("/usr/share/datasets/fashion-mnist/%s*", "/usr/share/**/fashion-mnist/%s*", "/usr/share/**/fashion_mnist/%s*"):
        for path in sorted(glob.glob(pattern % name, recursive=True)):
            data = open(path, "rb").read()
            return gzip.decompress(data) if path.endswith(".gz") else data
    sys.exit("distill.sh: there is no %s: install dataset-fashion-mnist" % name)

def part(data, first, count):
    rank = data[3]
    head = 4 + 4 * rank
    sizes = struct.unpack(">%dI" % rank, data[4:head])
    each = 1
    for size in sizes[1:]:
        each *= size
    return data[:4] + struct.pack(">%dI" % rank, count, *sizes[1:]) + data[head + first * each:head + (first + count) * each]

for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
    data = find(name)
    open(os.path.join(sys.argv[1], "labelled", name), "wb").write(part(data, 0, 50000))
    open(os.path.join(sys.argv[1], "unlabelled", name), "wb").write(part(data, 50000, 10000))
for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
    for folder in ("labelled", "unlabelled"):
        open(os.path.join(sys.argv[1], folder, name), "wb").write(find(name))
PY
    touch "$work/unlabelled/done"
}

images() {
    local seed=$1 case=$2 files="" i
    local data=idx:$work/labelled here=$work/$case-$seed tag="$case, seed $seed"
    # As many steps from 10,000 images as from 50,000.
    local transfer_epochs
    transfer_epochs=$($python -c "print(5 * $student_epochs)")
    for ((i = 0; i < peers; i++)); do
        echo "peer $i, $tag" >&2
        peer "$here/peer-$i" --data "$data" --model "$model" --shard "$case" --shard-of "$i/$peers" --seed "$seed" --epochs "$epochs"
        files+=${files:+,}$here/peer-$i/model.safetensors
    done
    # As many samples as all peers together, with all labels.
    peer "$work/alone-$seed" --data "$data" --model "$model" --shard all --seed "$seed" --epochs "$epochs"
    local -a flags=(--teachers "$files" --data "$data" --temperature "$temperature" --seed "$seed")
    for weights in score confidence; do
        # shellcheck disable=SC2086
        evaluate "eval $weights, $tag" --data "$data" --weights $weights ${files//,/ }
    done
    distil "quarter, $tag" "${flags[@]}" --student "$quarter" --epochs "$student_epochs" --alpha "$alpha" --answers "$here/answers" --baseline \
        --compare "one peer with all the labels=$work/alone-$seed/model.safetensors"
    distil "twentieth, $tag" "${flags[@]}" --student "$twentieth" --epochs "$student_epochs" --alpha "$alpha" --answers "$here/answers"
    distil "quarter by score, $tag" "${flags[@]}" --student "$quarter" --epochs "$student_epochs" --alpha "$alpha" --weights score
    distil "quarter without labels, $tag" "${flags[@]}" --student "$quarter" --epochs "$student_epochs" --alpha 1 --answers "$here/answers"
    distil "quarter from unlabelled, $tag" "${flags[@]}" --student "$quarter" --epochs "$transfer_epochs" --transfer "idx:$work/unlabelled"
    rm -f "$here/answers"
}

text() {
    local seed=$1 files="" i text=${TEXT:-$work/text}
    local here=$work/text-$seed
    [ -e "$text" ] || cat /usr/share/common-licenses/* >"$text"
    for ((i = 0; i < text_peers; i++)); do
        echo "peer $i, text, seed $seed" >&2
        peer "$here/peer-$i" --data "text:$text" --model "$text_model" --shard-of "$i/$text_peers" --seed "$seed" --steps "$text_steps"
        files+=${files:+,}$here/peer-$i/model.safetensors
    done
    # As many steps as two of the teachers took, over all of the text.
    distil "half, text, seed $seed" --teachers "$files" --student "$text_half" --seed "$seed" --temperature 1 --alpha 0.7 --baseline \
        --epochs "${TEXT_EPOCHS:-$($python -c "import os; print(2 * $text_steps * 32 / max(1, os.path.getsize('$text') * 0.8 / 128))")}"
}

# What is measured here is time, so the teachers may be of a step.
cost() {
    local seed=$1 files="" i
    for ((i = 0; i < peers; i++)); do
        peer "$work/cost/peer-$i" --data fashion-mnist --model "$cost_model" --shard-of "$i/$peers" --seed 1 --steps 20
        files+=${files:+,}$work/cost/peer-$i/model.safetensors
    done
    local key="eval, cost, seed $seed" begin end
    if ! has_row "$key"; then
        echo "$key" >&2
        begin=$(date +%s%N)
        "$grapevine" eval --json --quiet --data fashion-mnist "$work/cost/peer-0/model.safetensors" >"$work/eval.json" </dev/null
        end=$(date +%s%N)
        echo "{\"samples_per_s\": $($python -c "print(10000e9 / ($end - $begin))")}" >"$work/result.json"
        keep "$key" "$work/result.json"
    fi
    distil "cost, seed $seed" --teachers "$files" --data fashion-mnist --student "$cost_student" --epochs 1 --seed "$seed" --baseline
}

if [ -z "${TABLE:-}" ]; then
    [ -x "$grapevine" ] || { echo "no $grapevine: build first (cmake --preset release && ninja -C build/release)" >&2; exit 1; }
    dpkg -s dataset-fashion-mnist >/dev/null 2>&1 ||
        $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y --no-install-recommends dataset-fashion-mnist >&2
    for seed in $seeds; do
        for part in $parts; do
            if [ "$part" = images ]; then
                split_images
                for case in $cases; do images "$seed" "$case"; done
            else
                "$part" "$seed"
            fi
        done
    done
fi

$python - "$rows" <<'PY'
import collections, json, statistics, sys

runs = collections.OrderedDict()
for line in open(sys.argv[1]):
    row = json.loads(line)
    what, seed = row["key"].rsplit(", seed ", 1)
    runs.setdefault(what, []).append(row)


def said(values):
    """Mean, and over several seeds the least and the most."""
    values = [v for v in values if v is not None]
    if not values:
        return ""
    mean = statistics.mean(values)
    return f"{mean:.2f}" if len(values) == 1 else f"{mean:.2f} ({min(values):.2f} to {max(values):.2f})"


def models(rows, name):
    return [m for row in rows for m in row["models"] if m["name"] == name]


def line(name, rows):
    if rows:
        print(f"| {name} | {said([100 * m['accuracy'] if m['accuracy'] is not None else None for m in rows])} | "
              f"{said([m['loss'] for m in rows])} | "
              f"{said([100 * m['calibration_error'] if m['calibration_error'] is not None else None for m in rows])} | "
              f"{rows[0]['parameters']:,} | {rows[0]['bytes'] / 1e6:.2f} | {rows[0]['flops'] / 1e6:.1f} | {said([m['latency_us'] for m in rows])} |")


for what, rows in runs.items():
    if not what.startswith(("quarter, ", "half, ")):
        continue
    case = what.split(", ", 1)[1]
    print(f"\n{case}: {len(rows)} seed(s), mean (least to most)\n")
    print("| model | accuracy % | loss | calibration error % | parameters | MB | MFLOPs | us a sample |\n|---|---|---|---|---|---|---|---|")
    teachers = [[m for m in row["models"] if m["name"].startswith("teacher ")] for row in rows]
    line("one teacher", [m for row in teachers for m in row])
    line("best teacher", [min(row, key=lambda m: (-(m["accuracy"] or 0), m["loss"])) for row in teachers])
    for name in dict.fromkeys(m["name"].split(" of ")[0] if m["name"].startswith("greedy") else m["name"]
                              for row in rows for m in row["models"]):
        if name.startswith("teacher ") or name in ("student", "the same student on labels alone"):
            continue
        line(name, [m for row in rows for m in row["models"] if m["name"].startswith(name) and
                    (name.startswith("greedy") or m["name"] == name)])
    for weights in ("score", "confidence"):
        found = runs.get(f"eval {weights}, {case}", [])
        if found:
            print(f"| ensemble, weights by {weights} | {said([100 * r['ensemble']['accuracy'] for r in found])} | "
                  f"{said([r['ensemble']['loss'] for r in found])} | {said([100 * r['ensemble']['calibration_error'] for r in found])} | | | | |")
    line("student" + (" of half" if what.startswith("half") else " of a quarter"), models(rows, "student"))
    line("the same on labels alone", models(rows, "the same student on labels alone"))
    for name, other in (("weights by score", "quarter by score"), ("its images without labels", "quarter without labels"),
                        ("10,000 other images without labels", "quarter from unlabelled"), ("a twentieth", "twentieth")):
        line(f"student: {name}", models(runs.get(f"{other}, {case}", []), "student"))
if runs.get("cost"):
    rows = runs["cost"]
    evals = {row["key"].rsplit(" ", 1)[1]: row["samples_per_s"] for row in runs.get("eval, cost", [])}
    print("\n| seed | teachers asked, samples/s | eval's | student's training s | on labels s | ratio |\n|---|---|---|---|---|---|")
    for row in rows:
        seed = row["key"].rsplit(" ", 1)[1]
        asked = row["teachers"] * row["samples"] / row["answering_s"]
        print(f"| {seed} | {asked:,.0f} | {evals.get(seed, 0):,.0f} | {row['learning_s']:.1f} | {row['labels_only_s']:.1f} | {row['learning_s'] / row['labels_only_s']:.2f} |")
PY
