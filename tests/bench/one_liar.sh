#!/usr/bin/env bash
# One liar among eight real peers on this machine, in each way that tests/liar knows: what the other
# seven learn, and how many rounds they have, beside the same run without it. The seventh comes when a
# quarter of the time is over, and is told the liar's address first. Every run is a row of JSON in a
# file; a run whose row is there is not repeated; the table is printed from the rows.
#   tests/bench/one_liar.sh [BUILD]          (default build/release: BUILD/grapevine, BUILD/tests/liar)
#   TABLE=1 tests/bench/one_liar.sh          only the table
# From the environment: METHODS and LIES (separated by blanks; default: all that apply), SEEDS ("1"),
# SHARD (iid), ROBUST (as shipped), SECONDS_EACH (16), STEP (20ms), MODEL, ROWS (docs/rows/one_liar.jsonl).
set -euo pipefail
cd "$(dirname "$0")/../.."
build=${1:-build/release}
export METHODS=${METHODS:-local-sgd:H=4 allreduce post-local:H=4 moshpit:H=4 bmuf:H=8 slowmo:H=8 diloco:H=8 easgd \
ad-psgd:H=4 noloco:H=8 dpsgd:H=2 aeasgd eamsgd choco:H=2 d2:H=2 gradient-tracking push-sum:H=2 osgp:H=2 gosgd}
export LIES=${LIES:-} SEEDS=${SEEDS:-1} SHARD=${SHARD:-iid} ROBUST=${ROBUST:-auto} SECONDS_EACH=${SECONDS_EACH:-16} STEP=${STEP:-20ms}
export MODEL=${MODEL:-linear:32 relu linear:classes} ROWS=${ROWS:-docs/rows/one_liar.jsonl} TABLE=${TABLE:-}
export OMP_WAIT_POLICY=PASSIVE
[ -n "$TABLE" ] || [ -x "$build/tests/liar" ] || { echo "one_liar.sh: no $build/tests/liar: build it first" >&2; exit 1; }
mkdir -p "$(dirname "$ROWS")"
touch "$ROWS"
exec /usr/bin/python3 - "$build" <<'PY'
import collections, json, os, signal, statistics, subprocess, sys, tempfile, time

build, env = sys.argv[1], os.environ
grapevine, liar = build + "/grapevine", build + "/tests/liar"
seconds, methods, rows_path = float(env["SECONDS_EACH"]), env["METHODS"].split(), env["ROWS"]
EXCHANGE = {"ad-psgd": "pair", "noloco": "pair", "dpsgd": "edges", "aeasgd": "edges", "eamsgd": "edges", "d2": "edges",
            "gradient-tracking": "edges", "choco": "mirror", "push-sum": "push", "osgp": "push", "gosgd": "push"}
KEYS = ("method", "lie", "seed", "shard", "robust", "seconds", "step", "model")


def start(work, name, program, lie, seed, share, method, bootstrap):
    words = [program, "peer", "--listen", "127.0.0.1:0", "--json", "--report-every", "500ms", "--data", "digits", "--model",
             env["MODEL"], "--threads", "1", "--averaging", method, "--robust", env["ROBUST"], "--shard", env["SHARD"],
             "--shard-of", "%d/8" % share, "--seed", str(seed), "--step-time", env["STEP"], "--steps", "1000000", "--quiet",
             "--evaluate-samples", "360"]
    if bootstrap:
        words += ["--bootstrap", ",".join(bootstrap), "--identity", "%s/%s.key" % (work, name)]
    out = open("%s/%s.out" % (work, name), "wb")
    err = open("%s/%s.err" % (work, name), "wb")
    extra = dict(env, LIE=lie) if lie else {k: v for k, v in env.items() if k != "LIE"}
    return subprocess.Popen(words, stdout=out, stderr=err, env=extra, stdin=subprocess.DEVNULL)


def events(work, name):
    found = []
    for line in open("%s/%s.out" % (work, name), errors="replace"):
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def address(work, name, process):
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        for event in events(work, name):
            if event.get("event") == "listening":
                return event["address"]
        time.sleep(0.05)
    raise SystemExit("%s does not listen: %s" % (name, open("%s/%s.err" % (work, name)).read()[-500:]))


def reports(work, name):
    return [e for e in events(work, name) if e.get("event") == "report" and e.get("accuracy") is not None]


def run(method, lie, seed):
    """Seven honest peers and, unless lie is "nobody", one more."""
    processes = {}
    with tempfile.TemporaryDirectory() as work:
        try:
            processes["0"] = start(work, "0", grapevine, None, seed, 0, method, [])
            first = address(work, "0", processes["0"])
            begun = time.monotonic()
            liars = []
            if lie != "nobody":
                processes["liar"] = start(work, "liar", liar, None if lie == "honest" else lie, seed, 7, method, [first])
            for i in range(1, 6):
                processes[str(i)] = start(work, str(i), grapevine, None, seed, i, method, [first])
            if lie != "nobody":
                liars = [address(work, "liar", processes["liar"])]
            time.sleep(max(0, begun + seconds / 4 - time.monotonic()))
            processes["6"] = start(work, "6", grapevine, None, seed, 6, method, liars + [first])
            time.sleep(max(0, begun + seconds / 2 - time.monotonic()))
            honest = [str(i) for i in range(7)]
            middle = {name: (reports(work, name) or [{"rounds_ok": 0, "t": 0, "step": 0}])[-1] for name in honest}
            half = time.monotonic()
            time.sleep(max(0, begun + seconds - time.monotonic()))
            took = time.monotonic() - half
            dead = sum(processes[name].poll() is not None for name in honest)
            last = [(reports(work, name) or [{"rounds_ok": 0, "accuracy": 0.0, "step": 0}])[-1] for name in honest]
        finally:
            for process in processes.values():
                if process.poll() is None:
                    process.send_signal(signal.SIGKILL)
                process.wait()
    accuracies = [r["accuracy"] for r in last]
    return {"method": method, "lie": lie, "seed": seed, "shard": env["SHARD"], "robust": env["ROBUST"], "seconds": seconds,
            "step": env["STEP"], "model": env["MODEL"], "accuracy": round(statistics.mean(accuracies), 4), "least": min(accuracies),
            "rounds_per_s": round(sum(r["rounds_ok"] - middle[n]["rounds_ok"] for n, r in zip(honest, last)) / took / 7, 3),
            "steps": sum(r["step"] for r in last) // 7, "ended": dead, "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "load": round(os.getloadavg()[0], 1)}


def key(row):
    return tuple(row[k] for k in KEYS)


def all_rows():
    return [json.loads(line) for line in open(rows_path)]


if not env["TABLE"]:
    known = {}
    for line in subprocess.run([liar, "lies"], capture_output=True, text=True, check=True).stdout.splitlines():
        name, *exchanges = line.split()
        known[name] = exchanges
    wanted = env["LIES"].split() or list(known)
    have = {key(row) for row in all_rows()}
    for seed in map(int, env["SEEDS"].split()):
        for method in methods:
            exchange = EXCHANGE.get(method.split(":")[0], "group")
            for lie in ["nobody"] + [name for name in wanted if exchange in known[name]]:
                ask = (method, lie, seed, env["SHARD"], env["ROBUST"], seconds, env["STEP"], env["MODEL"])
                if ask in have:
                    continue
                row = run(method, lie, seed)
                print(json.dumps(row), file=sys.stderr)
                with open(rows_path, "a") as file:
                    file.write(json.dumps(row) + "\n")

groups = collections.defaultdict(list)
for row in all_rows():
    groups[row["method"], row["lie"]].append(row)
methods = [m for m in methods if (m, "nobody") in groups] or sorted({m for m, _ in groups})


def mean(rows, what):
    return statistics.mean(row[what] for row in rows)


def cell(method, lie):
    rows, alone = groups.get((method, lie)), groups.get((method, "nobody"))
    if not rows or not alone:
        return ""
    if lie == "nobody":
        return "%.1f %%, %.1f a second" % (100 * mean(rows, "accuracy"), mean(rows, "rounds_per_s"))
    text = "%+.1f, %.2f" % (100 * (mean(rows, "accuracy") - mean(alone, "accuracy")),
                            mean(rows, "rounds_per_s") / max(mean(alone, "rounds_per_s"), 1e-9))
    ended = sum(row["ended"] for row in rows)
    return text + (" (%d ended)" % ended if ended else "")


names = list(dict.fromkeys(lie for _, lie in groups))
dates = sorted({row["date"] for rows in groups.values() for row in rows})
print("Accuracy of the seven honest peers in points, and their rounds a second, beside the same run without the liar; %s\n" % ", ".join(dates))
print("| lie | %s |" % " | ".join("`%s`" % m for m in methods))
print("|---|%s" % ("---|" * len(methods)))
for lie in names:
    print("| %s | %s |" % (lie, " | ".join(cell(m, lie) for m in methods)))
PY
