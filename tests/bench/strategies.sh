#!/usr/bin/env bash
# All averaging methods on the same work, as a table: a cnn on Fashion-MNIST, trained by real peers on this machine over encrypted
# links. Every run is a row of JSON in a file; a run whose row is there is not repeated, so the script can be stopped and started
# again, on another day as well; the table is printed from the rows.
#   tests/bench/strategies.sh [GRAPEVINE]          (default build/release/grapevine)
#   TABLE=1 tests/bench/strategies.sh              only the table
# From the environment: METHODS (separated by blanks; `name@topology` asks for a topology, `name/codec` for a codec, in this order),
# SHARDS ("iid dirichlet:0.1"), SEEDS ("1 2 3"), PEERS (8), SAMPLES (120000, of all peers together), MODEL (cnn), LR (of all
# methods; default: the model's own), ROWS (build/bench/strategies.jsonl; docs/rows/strategies.jsonl keeps them with the source),
# LIMIT (900 s, after which a run has failed).
# As root each run has a network namespace of its own, whose loopback counts what the kernel sent
# beside what the peers say.
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=${1:-build/release/grapevine}
shards=${SHARDS:-iid dirichlet:0.1} seeds=${SEEDS:-1 2 3}
peers=${PEERS:-8} samples=${SAMPLES:-120000} model=${MODEL:-cnn} batch=64
rows=${ROWS:-build/bench/strategies.jsonl} limit=${LIMIT:-900} python=/usr/bin/python3
steps=$((samples / batch / peers))
# The most telling first. Periods are those of the papers or the defaults, but where a run of so few steps would be over before.
methods=${METHODS:-local-sgd none allreduce diloco:H=50 ad-psgd dpsgd push-sum noloco:H=50 gasloc:H=50 choco/int8 choco/topk:0.1 \
    moshpit@grid:2 gradient-tracking d2 slowmo bmuf:H=16 post-local:H=16,switch=$((steps / 2)) easgd aeasgd eamsgd one-shot osgp gosgd \
    dpsgd@exponential easgd@ring}

mkdir -p "$(dirname "$rows")"
touch "$rows"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# one METHOD SHARD SEED: a run and its row.
one() {
    local method=$1 flags=() begun
    case $method in */*) flags+=(--codec "${method#*/}") method=${method%%/*} ;; esac
    case $method in *@*) flags+=(--topology "${method#*@}") method=${method%%@*} ;; esac
    [ -z "${LR:-}" ] || flags+=(--lr "$LR")
    begun=$(date +%s%N)
    if ! timeout -s KILL "$limit" $wall sh -c '
        [ -z "$ALONE" ] || ip link set lo up
        "$@" && grep "lo:" /proc/net/dev >"$COUNTERS"' sh \
        "$grapevine" testnet --peers "$peers" --threads 1 --data fashion-mnist --model "$model" --averaging "$method" "${flags[@]}" \
        --shard "$2" --seed "$3" --steps "$steps" --batch "$batch" --start-with "$peers" \
        --report-every 120s --evaluate-samples 0 --out "$work/run" --fresh --quiet >"$work/log" 2>&1; then
        echo "$1 $2 $3: failed" >&2
        tail -n 3 "$work/log" >&2
        return 0
    fi
    $python - "$work/run/summary.json" "$COUNTERS" "$1" "$2" "$3" "$samples" "$peers" "$model" "${LR:-}" "$begun" \
        "$(date +%s%N)" "$(git rev-parse --short HEAD 2>/dev/null || true)" "${ALONE:-}" >>"$rows" <<'PY'
import json, sys, time

(summary, counters, method, shard, seed, samples, peers, model, lr, begun, ended, commit, alone) = sys.argv[1:]
s = json.load(open(summary))
kernel = int(open(counters).read().split()[9]) if alone else None
print(json.dumps({
    "method": method, "shard": shard, "seed": int(seed), "samples": int(samples), "peers": int(peers), "model": model,
    "lr": lr, "accuracy_peers": s["accuracy"]["peers"], "accuracy_average": s["accuracy"]["average_model"],
    "accuracy_ensemble": s["accuracy"]["ensemble"], "bytes_sent": s["bytes_sent_total"], "kernel_bytes": kernel,
    "rounds_ok": s["rounds_ok"], "rounds_aborted": s["rounds_aborted"], "wall_s": s["wall_s"],
    "steps": s["steps_total"], "parameters": s["parameters"], "finished": s["finished"],
    "consensus_distance": s["consensus_distance"], "commit": commit,
    "elapsed_s": round((int(ended) - int(begun)) / 1e9, 1), "date": time.strftime("%Y-%m-%d", time.gmtime()),
}))
PY
    rm -rf "$work/run"
}

has_row() {
    $python - "$rows" "$1" "$2" "$3" "$samples" "$peers" "$model" "${LR:-}" <<'PY'
import json, sys

path, method, shard, seed, samples, peers, model, lr = sys.argv[1:]
wanted = (method, shard, int(seed), int(samples), int(peers), model, lr)
keys = ("method", "shard", "seed", "samples", "peers", "model", "lr")
sys.exit(0 if any(tuple(json.loads(line)[k] for k in keys) == wanted for line in open(path)) else 1)
PY
}

if [ -z "${TABLE:-}" ]; then
    [ -x "$grapevine" ] || { echo "no $grapevine: build first (cmake --preset release && ninja -C build/release)" >&2; exit 1; }
    [ -d /usr/share/datasets/fashion-mnist ] || $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y dataset-fashion-mnist >&2
    export COUNTERS=$work/counters ALONE=
    wall=""
    if unshare -n true 2>/dev/null && command -v ip >/dev/null; then wall="unshare -n" ALONE=1; fi
    for seed in $seeds; do
        for shard in $shards; do
            for method in $methods; do
                has_row "$method" "$shard" "$seed" && continue
                echo "$method, $shard, seed $seed" >&2
                one "$method" "$shard" "$seed"
            done
        done
    done
fi

$python - "$rows" "$peers" "$samples" "$model" "${LR:-}" "$methods" <<'PY'
import collections, json, statistics, sys

path, peers, samples, model, lr, methods = sys.argv[1:]
order = {method: place for place, method in enumerate(methods.split())}
runs = collections.OrderedDict()
for line in open(path):
    row = json.loads(line)
    if (row["peers"], row["samples"], row["model"], row["lr"]) == (int(peers), int(samples), model, lr):
        runs.setdefault((row["shard"], row["method"]), []).append(row)


def mean(values, form="{:.2f}"):
    values = list(values)
    text = form.format(statistics.mean(values))
    return text if len(values) == 1 else f"{text} ({form.format(min(values))} to {form.format(max(values))})"


for shard in dict.fromkeys(s for s, _ in runs):
    print(f"\n{model}, {peers} peers, {int(samples):,} samples in all, shard {shard}; mean (least to most) over seeds\n")
    print("| method | seeds | accuracy of peers, % | of their average, % | MB sent a peer | of DDP's | rounds a peer | seconds |")
    print("|---|---|---|---|---|---|---|---|")
    for (s, method), rows in sorted(runs.items(), key=lambda run: order.get(run[0][1], len(order))):
        if s != shard:
            continue
        n = len(rows)
        first = rows[0]
        ddp = 2 * (first["peers"] - 1) / first["peers"] * 4 * first["parameters"] * first["steps"] / first["peers"]
        sent = [r["bytes_sent"] / r["peers"] for r in rows]
        print(f"| `{method}` | {n} | {mean(100 * statistics.mean(r['accuracy_peers']) for r in rows)}"
              f" | {mean(100 * r['accuracy_average'] for r in rows)} | {mean((b / 1e6 for b in sent), '{:.1f}')}"
              f" | {statistics.mean(sent) / ddp:.3f} | {mean((r['rounds_ok'] / r['peers'] for r in rows), '{:.1f}')}"
              f" | {mean((r['wall_s'] for r in rows), '{:.0f}')} |")
both = [(r["kernel_bytes"], r["bytes_sent"]) for rows in runs.values() for r in rows if r["kernel_bytes"] and r["bytes_sent"] > 1e7]
if both:
    worst = max(abs(k / b - 1) for k, b in both)
    print(f"\nThe kernel's loopback counter beside the peers' own, runs of over 10 MB: at most {100 * worst:.2f} % apart")
PY
