#!/usr/bin/env bash
# Several peers beside PyTorch over gloo (python3-torch), in turn on this machine: seconds of training until 90 % of the
# Fashion-MNIST test set are right, and samples a second of two peers beside twice those of one. Every run is a row of JSON in
# a file; a run whose row is there is not repeated, so the script can be stopped and started again; the tables are printed from
# the rows.
#   tests/bench/swarm_pytorch.sh [GRAPEVINE]     (default build/release/grapevine)
#   TABLE=1 tests/bench/swarm_pytorch.sh         only the tables
# From the environment: RANKS ("2 4"), SEEDS ("1 2 3"), TARGET (0.9), LR (0.02), SCALING ("none linear": the rate as
# given, or times the peers), PARTS ("target speed"), SECONDS_EACH (8), LIMIT (900 s, after which a run has failed), ROWS
# (build/bench/swarm_pytorch.jsonl; docs/rows/swarm_pytorch.jsonl keeps them with the source). Needs dataset-fashion-mnist.
set -euo pipefail
cd "$(dirname "$0")/../.."
grapevine=${1:-build/release/grapevine}
ranks=${RANKS:-2 4} seeds=${SEEDS:-1 2 3} target=${TARGET:-0.9} lr=${LR:-0.02} scalings=${SCALING:-none linear}
parts=${PARTS:-target speed} seconds=${SECONDS_EACH:-8} limit=${LIMIT:-900}
rows=${ROWS:-build/bench/swarm_pytorch.jsonl} python=/usr/bin/python3
commit=$(git rev-parse --short HEAD 2>/dev/null || true)
mkdir -p "$(dirname "$rows")"
touch "$rows"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export OMP_WAIT_POLICY=PASSIVE

has_row() { grep -qF "\"key\": \"$1\"" "$rows"; }

failed() { # failed KEY: the run is told and left out
    echo "$1: failed" >&2
    tail -n 3 "$work/log" >&2
}

# theirs KEY ARGUMENTS...
theirs() {
    local key=$1 result
    shift
    has_row "$key" && return
    echo "$key" >&2
    result=$(timeout -s KILL "$limit" $python tests/bench/swarm_pytorch.py "$@" 2>"$work/log") || { failed "$key"; return 0; }
    $python - "$key" "$commit" "$result" >>"$rows" <<'PY'
import json, sys, time

key, commit, result = sys.argv[1:]
print(json.dumps({"key": key, **json.loads(result), "commit": commit, "date": time.strftime("%Y-%m-%d", time.gmtime())}))
PY
}

# ours KEY PEERS FLAGS...: how far the first peer got when, and its speed between the reports.
ours() {
    local key=$1 peers=$2
    shift 2
    has_row "$key" && return
    echo "$key" >&2
    timeout -s KILL "$limit" "$grapevine" testnet --peers "$peers" --threads 1 --start-with "$peers" --out "$work/run" --fresh --quiet \
        "$@" >"$work/log" 2>&1 || { failed "$key"; return 0; }
    $python - "$key" "$work/run" "$target" "$commit" >>"$rows" <<'PY'
import glob, json, statistics, sys, time

key, folder, target, commit = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
peers = [[json.loads(line) for line in open(path)] for path in sorted(glob.glob(f"{folder}/peer-*/metrics.jsonl"))]
summary = json.load(open(f"{folder}/summary.json"))
reached = [r["t"] - r["evaluation_s"] for reports in peers for r in reports if (r["accuracy"] or 0) >= target]
speeds = [statistics.median([r["samples_per_s"] for r in reports[1:-1]] or [0]) for reports in peers]
print(json.dumps({
    "key": key, "is_reached": bool(reached), "seconds": min(reached, default=None), "samples_per_s": sum(speeds),
    "samples": summary["samples_total"], "rounds": summary["rounds_ok"] / len(peers),
    "rounds_due": summary["steps_total"] / len(peers) / 16,
    "bytes_per_rank": summary["bytes_sent_total"] / len(peers),
    "ddp_bytes": 2 * (len(peers) - 1) / len(peers) * 4 * summary["parameters"] * summary["steps_total"] / len(peers),
    "commit": commit, "date": time.strftime("%Y-%m-%d", time.gmtime()),
}))
PY
    rm -rf "$work/run"
}

reach() {
    local n=$1 seed=$2 scaling=$3 method flags
    local rate=$lr tag="target $target, lr $lr $scaling, seed $seed"
    [ "$scaling" = none ] || rate=$($python -c "print($lr * $n)")
    flags=(--data fashion-mnist --model cnn --batch 64 --lr "$lr" --lr-scaling "$scaling" --seed "$seed" --target-accuracy "$target"
        --epochs 20 --report-every 3s --evaluate-samples 10000)
    if [ "$n" = 1 ]; then
        theirs "pytorch one, 1, $tag" one --lr "$lr" --target "$target" --seed "$seed"
        ours "grapevine none, 1, $tag" 1 "${flags[@]}" --averaging none
        return
    fi
    for method in ddp local; do
        theirs "pytorch $method, $n, $tag" "$method" --ranks "$n" --lr "$rate" --target "$target" --seed "$seed"
    done
    for method in allreduce local-sgd:H=16; do
        ours "grapevine $method, $n, $tag" "$n" "${flags[@]}" --averaging "$method"
    done
}

speed() {
    local model=$1 run=$2 data=fashion-mnist batch=64
    case $model in gpt*) data=text:$work/text batch=32 ;; esac
    for n in 1 2; do
        if [ "$n" = 1 ]; then
            theirs "pytorch speed one, $model, $run" one --model "$model" --batch "$batch" --seconds "$seconds"
        else
            theirs "pytorch speed local, $model, $run" local --ranks 2 --model "$model" --batch "$batch" --seconds "$seconds"
        fi
        ours "grapevine speed $n, $model, $run" "$n" --data "$data" --model "$model" --batch "$batch" --time "$((seconds + 2))s" \
            --report-every 0.5s --evaluate-samples 0 --averaging "$([ "$n" = 1 ] && echo none || echo local-sgd:H=16)"
    done
}

if [ -z "${TABLE:-}" ]; then
    [ -x "$grapevine" ] || { echo "no $grapevine: build first (cmake --preset release && ninja -C build/release)" >&2; exit 1; }
    for package in python3-torch dataset-fashion-mnist; do
        dpkg -s "$package" >/dev/null 2>&1 ||
            $([ "$(id -u)" = 0 ] || echo sudo) apt-get install -y --no-install-recommends "$package" >&2
    done
    cat /usr/share/common-licenses/GPL-* >"$work/text"
    for part in $parts; do
        for seed in $seeds; do
            if [ "$part" = target ]; then
                reach 1 "$seed" none
                for scaling in $scalings; do
                    for n in $ranks; do reach "$n" "$seed" "$scaling"; done
                done
            else
                for model in mlp cnn gpt-nano; do speed "$model" "$seed"; done
            fi
        done
    done
fi

$python - "$rows" <<'PY'
import collections, json, statistics, sys

cells = collections.OrderedDict()
for line in open(sys.argv[1]):
    row = json.loads(line)
    if ", seed " in row["key"]:
        cells.setdefault(row["key"].rsplit(", seed ", 1)[0], []).append(row)
    else:
        cells.setdefault(row["key"].rsplit(", ", 1)[0], []).append(row)


def middle(rows, key):
    values = [r[key] for r in rows if r.get(key) is not None]
    return statistics.median(values) if values else float("nan")


def beside_theirs(rows):
    """Our seconds as a share of theirs, seed by seed: median over the seeds with which both got there."""
    shares = []
    for row in rows:
        who, rest = row["key"].split(", ", 1)
        twin = reached.get(f"{TWINS.get(who)}, {rest}")
        if twin:
            shares.append(row["seconds"] / twin["seconds"])
    return f"{statistics.median(shares):.2f}" if shares else ""


TWINS = {"grapevine none": "pytorch one", "grapevine allreduce": "pytorch ddp", "grapevine local-sgd:H=16": "pytorch local"}
reached = {row["key"]: row for rows in cells.values() for row in rows if row["is_reached"]}
print("Medians over the seeds that got there; the ratio's, over those with which both did\n")
print("| run | seeds | reached | training seconds | of PyTorch's | samples | rounds | MB a peer |")
print("|---|---|---|---|---|---|---|---|")
for key, every in cells.items():
    if "speed" not in key:
        rows = [r for r in every if r["is_reached"]]
        print(f"| {key} | {len(every)} | {len(rows)} | {middle(rows, 'seconds'):.1f} | {beside_theirs(rows)} | "
              f"{middle(rows, 'samples'):,.0f} | {middle(rows, 'rounds'):.0f} | {middle(rows, 'bytes_per_rank') / 1e6:.1f} |")
print("\n| model | | one, samples/s | two, samples/s | of twice one | rounds of those due | bytes of DDP's |\n|---|---|---|---|---|---|---|")
for model in ("mlp", "cnn", "gpt-nano"):
    for who, one, two in (("grapevine", f"grapevine speed 1, {model}", f"grapevine speed 2, {model}"),
                          ("PyTorch", f"pytorch speed one, {model}", f"pytorch speed local, {model}")):
        if one not in cells or two not in cells:
            continue
        a, b = cells[one], cells[two]
        ratio = statistics.median(y["samples_per_s"] / (2 * x["samples_per_s"]) for x, y in zip(a, b))
        done = middle(b, "rounds") / middle(b, "rounds_due") if who == "grapevine" else 1.0
        share = middle(b, "bytes_per_rank") / middle(b, "ddp_bytes") if who == "grapevine" else 1 / 16
        print(f"| {model} | {who} | {middle(a, 'samples_per_s'):,.0f} | {middle(b, 'samples_per_s'):,.0f} | {ratio:.2f} "
              f"| {done:.2f} | {share:.4f} |")
PY
