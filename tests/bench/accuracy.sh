#!/usr/bin/env bash
# What one peer reaches, beside what PyTorch reached with the same settings: accuracy on
# Fashion-MNIST, and loss on the King James text (validation: its last tenth).
#   tests/bench/accuracy.sh [GRAPEVINE]     (default build/release/grapevine)
# From the environment: MODELS ("mlp cnn gpt-nano"), SEEDS ("1 2 3"), THREADS (1), PRECISION (f32),
# TEXT (a copy of the text that is there already). Installs dataset-fashion-mnist and, for the text,
# bible-kjv and bible-kjv-text if they are absent. gpt-nano takes minutes a seed.
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=${1:-build/release/grapevine}
models=${MODELS:-mlp cnn gpt-nano} seeds=${SEEDS:-1 2 3} threads=${THREADS:-1} precision=${PRECISION:-f32}
text=${TEXT:-}
python=/usr/bin/python3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=PASSIVE

[ -x "$grapevine" ] || { echo "no $grapevine: build first (cmake --preset release && ninja -C build/release)" >&2; exit 1; }

# need FILE PACKAGE...: install the packages unless FILE is there.
need() {
    local file=$1
    shift
    [ -e "$file" ] && return
    echo "installing $* ..." >&2
    # shellcheck disable=SC2046
    $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y --no-install-recommends "$@" >&2
}

# train OUT MODEL DATA FLAGS...: one peer on its own; a second call with the same OUT goes on.
train() {
    local out=$1 model=$2 data=$3
    shift 3
    [ "$precision" = f32 ] || set -- "$@" --precision "$precision"
    "$grapevine" peer --listen 127.0.0.1:0 --averaging none --out "$work/$out" --model "$model" --data "$data" \
        --threads "$threads" --report-every 60s --quiet "$@" >"$work/$out.txt" 2>&1 || { cat "$work/$out.txt" >&2; return 1; }
}

# judge OUT MEASURE MODEL AFTER REFERENCE: the figure of the model in OUT as a row.
judge() {
    local result
    result=$("$grapevine" eval "$work/$1/model.safetensors" --threads "$threads" --json --quiet)
    printf '%s\t%s\t%s\t%s\t%s\n' "$2" "$3" "$4" "$5" "$result" >>"$work/rows"
    echo "$1, $4: done" >&2
}

for model in $models; do
    case $model in
    mlp | cnn) need /usr/share/datasets/fashion-mnist dataset-fashion-mnist ;;
    gpt-nano)
        [ -n "$text" ] && continue
        need /usr/bin/bible bible-kjv bible-kjv-text
        text=$work/kjv.txt
        /usr/bin/bible -f -l 200 gen1:1-rev22:21 >"$text"
        [ "$(wc -c <"$text")" = 4404412 ] || echo "the text has $(wc -c <"$text") bytes instead of 4404412" >&2
        ;;
    esac
done

for seed in $seeds; do
    for model in $models; do
        out=$model-$seed
        case $model in
        mlp)
            train "$out" mlp fashion-mnist --optimizer momentum:lr=0.05,beta=0.9 --batch 64 --seed "$seed" --epochs 5
            judge "$out" accuracy mlp "5 epochs" 0.873
            ;;
        cnn)
            set -- --optimizer momentum:lr=0.02,beta=0.9 --batch 64 --seed "$seed"
            train "$out" cnn fashion-mnist "$@" --epochs 1
            judge "$out" accuracy cnn "1 epoch" 0.897
            train "$out" cnn fashion-mnist "$@" --epochs 3
            judge "$out" accuracy cnn "3 epochs" 0.919
            ;;
        gpt-nano)
            set -- --optimizer adamw:lr=1e-3,beta1=0.9,beta2=0.95,wd=0.1 --schedule constant:warmup=100 --batch 32 --seed "$seed"
            train "$out" gpt-nano "text:$text" "$@" --steps 300
            judge "$out" loss gpt-nano "300 steps" 2.184
            train "$out" gpt-nano "text:$text" "$@" --steps 1000
            judge "$out" loss gpt-nano "1000 steps" 1.688
            ;;
        *) echo "no reference for $model" >&2 && exit 2 ;;
        esac
    done
done

$python - "$work/rows" "$precision" "$seeds" <<'PY'
import json
import statistics
import sys

rows = {}
for line in open(sys.argv[1]):
    measure, model, after, reference, result = line.rstrip("\n").split("\t")
    rows.setdefault((measure, model, after, float(reference)), []).append(json.loads(result)[measure][0])
print(f"{sys.argv[2]}, seeds {sys.argv[3]}\n")
print("| model | after | measure | grapevine, median (least to most) | PyTorch |")
print("|---|---|---|---|---|")
for (measure, model, after, reference), values in rows.items():
    form = "{:.1%}" if measure == "accuracy" else "{:.3f}"
    ours = f"{form.format(statistics.median(values))} ({form.format(min(values))} to {form.format(max(values))})"
    print(f"| {model} | {after} | {measure} | {ours} | {form.format(reference)} |")
PY
