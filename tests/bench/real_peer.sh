#!/usr/bin/env bash
# Is a peer as fast as the benchmark? One that averages with nobody, with its data, evaluations, reports and checkpoints,
# beside `bench train`, which repeats one batch from memory, in turn; one thread. Prints samples a second of both and the
# ratio of neighbouring runs, median (least to most). From its first report, which comes after its first evaluation, to the last
# while it trains: the evaluation of all test samples at the end is not training.
#   tests/bench/real_peer.sh [GRAPEVINE]     (default build/release/grapevine)
# From the environment: MODELS ("mlp cnn resnet14"), RUNS (5), SECONDS_EACH (8), BATCH (64), THREADS (1).
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=${1:-build/release/grapevine}
runs=${RUNS:-5} seconds=${SECONDS_EACH:-8} batch=${BATCH:-64} threads=${THREADS:-1}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

for model in ${MODELS:-mlp cnn resnet14}; do
    for ((run = 0; run < runs; run++)); do
        "$grapevine" bench train --model "$model" --batch "$batch" --threads "$threads" --seconds "$seconds" --json --quiet >"$work/bench.$run"
        rm -rf "$work/peer"
        "$grapevine" peer --listen 127.0.0.1:0 --data fashion-mnist --model "$model" --batch "$batch" --threads "$threads" --averaging none \
            --time "${seconds}s" --report-every 1s --checkpoint-every 30s --out "$work/peer" --json --quiet >"$work/peer.$run"
    done
    /usr/bin/python3 - "$work" "$runs" "$model" <<'EOF'
import json, statistics, sys

work, runs, model = sys.argv[1], int(sys.argv[2]), sys.argv[3]
bench, peer, ratios = [], [], []
for run in range(runs):
    said = json.loads(open(f"{work}/bench.{run}").read())
    bench.append(said["per_s"])
    reports = [json.loads(line) for line in open(f"{work}/peer.{run}")]
    reports = [r for r in reports if r["event"] == "report" and r["state"] == "training"]  # the end is a long evaluation
    first, last = reports[0], reports[-1]
    peer.append((last["samples"] - first["samples"]) / (last["t"] - first["t"]))
    ratios.append(peer[-1] / bench[-1])
words = lambda values, form: f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"
print(f"{model}: bench train {words(bench, ',.0f')}, a peer {words(peer, ',.0f')} samples/s, ratio {words(ratios, '.3f')}")
EOF
done
