#!/bin/bash
# answers: what peers gain that mix answers and no parameters, on Fashion-MNIST with a sixteenth of the
# training data each (3,750 samples), judged on the 10,000 test images.
#
#   codistill  a peer with model A and one with model B, beside each alone for as many steps, and alone
#              for twice as many: a step with a batch of the probe set beside its own costs as much.
#   ec-dnn     four peers with model C and rounds every five epochs, beside local-sgd with the same
#              period, and each alone.
#
# One JSON line a run, to stdout: {"case":, "seed":, "steps":, "accuracy": [of each peer], "ensemble":}.
# Usage: answers.sh GRAPEVINE [SEED...]; A, B, C, STEPS, H, LAMBDA, CASES from the environment. About a
# quarter of an hour a seed on two idle cores.
set -eu
G=$(realpath "$1")
shift
SEEDS=${*:-1 2 3}
A=${A:-cnn} B=${B:-resnet14} # presets take their time; docs/consolidation.md has smaller ones
C=${C:-conv3x3:16 relu maxpool2 conv3x3:32 relu maxpool2 linear:64 relu linear:classes}
STEPS=${STEPS:-400} H=${H:-50} LAMBDA=${LAMBDA:-1} PARTS=${PARTS:-16}
EC_STEPS=${EC_STEPS:-1200} EC_H=${EC_H:-300} EC=${EC:-} CODISTILL=${CODISTILL:-} PACE=${PACE:-}
CASES=${CASES:-alone alone-twice codistill ec-alone local-sgd ec-dnn}
DATA=${DATA:-fashion-mnist}
WORK=$(mktemp -d)
PIDS=()
leave() {
    local pid
    for pid in "${PIDS[@]}"; do kill "$pid" 2>/dev/null || true; done
    wait
    rm -rf "$WORK"
}
trap leave EXIT
export GRAPEVINE_THREADS=1

# swarm CASE SEED AVERAGING STEPS MODEL...: one peer a model, each with a part of the data.
swarm() {
    local case=$1 seed=$2 averaging=$3 steps=$4 i=0 at pid
    shift 4
    PIDS=()
    rm -rf "${WORK:?}"/*
    for model in "$@"; do
        local flags=(--data "$DATA" --model "$model" --averaging "$averaging" --shard-of "$i/$PARTS" --seed "$seed"
            --steps "$steps" --evaluate-samples 0 --listen 127.0.0.1:0 --json --quiet --out "$WORK/p$i")
        [ "$averaging" = none ] || flags+=(--start-with $#)
        [ "$averaging" = none ] || [ -z "$PACE" ] || flags+=(--step-time "$PACE")
        ((i == 0)) || [ "$averaging" = none ] || flags+=(--bootstrap "$at")
        "$G" peer "${flags[@]}" >"$WORK/p$i.out" 2>"$WORK/p$i.err" &
        PIDS+=($!)
        if ((i == 0)); then
            until at=$(grep -o '"address":"[^"]*"' "$WORK/p0.out" | head -1 | cut -d'"' -f4) && [ -n "$at" ]; do sleep 0.2; done
        fi
        i=$((i + 1))
    done
    for pid in "${PIDS[@]}"; do wait "$pid" || { cat "$WORK"/*.err >&2; exit 1; }; done
    "$G" eval "$WORK"/p?/model.safetensors --data "$DATA" --json >"$WORK/eval.json"
    CASE=$case SEED=$seed STEPS_OF=$steps WORK=$WORK python3 - <<'END'
import glob, json, os
said = json.load(open(os.environ["WORK"] + "/eval.json"))
rounds = []
for path in sorted(glob.glob(os.environ["WORK"] + "/p?.out")):
    last = [json.loads(line) for line in open(path) if '"finished"' in line][-1]
    rounds.append(last["rounds_ok"])
print(json.dumps({"case": os.environ["CASE"], "seed": int(os.environ["SEED"]), "steps": int(os.environ["STEPS_OF"]),
                  "rounds": rounds, "eval": said}), flush=True)
END
}

for seed in $SEEDS; do
    for case in $CASES; do
        case $case in
        alone) swarm $case "$seed" none "$STEPS" "$A" "$B" ;;
        alone-twice) swarm $case "$seed" none $((2 * STEPS)) "$A" "$B" ;;
        codistill) swarm $case "$seed" "codistill:H=$H,lambda=$LAMBDA$CODISTILL" "$STEPS" "$A" "$B" ;;
        ec-alone) swarm $case "$seed" none "$EC_STEPS" "$C" "$C" "$C" "$C" ;;
        local-sgd) swarm $case "$seed" "local-sgd:H=$EC_H" "$EC_STEPS" "$C" "$C" "$C" "$C" ;;
        ec-dnn) swarm $case "$seed" "ec-dnn:H=$EC_H$EC" "$EC_STEPS" "$C" "$C" "$C" "$C" ;;
        esac
    done
done
