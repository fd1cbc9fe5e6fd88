#!/usr/bin/python3
"""watching: the dashboard and the alert rules beside what peers say and what Prometheus makes of it.

watching.py PROMETHEUS_ADDRESS PEER_HTTP_ADDRESS...    of a Prometheus that asks those peers as deploy/prometheus says
"""
import json
import pathlib
import re
import sys
import urllib.parse
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONAL = {"grapevine_rounds_failed_total"}  # of a peer whose rounds have all been committed there is none


def get(address, path):
    with urllib.request.urlopen(f"http://{address}{path}", timeout=60) as answer:
        return answer.read().decode()


def query(prometheus, expression):
    answer = json.loads(get(prometheus, "/api/v1/query?" + urllib.parse.urlencode({"query": expression})))
    assert answer["status"] == "success", answer
    return answer["data"]["result"]


def dashboard():
    panels = json.loads((ROOT / "deploy/grafana/dashboard.json").read_text())["panels"]
    seen = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & seen and at["x"] + at["w"] <= 24, f"{panel['title']} lies upon another panel"
        seen |= cells
    return [(panel["title"], target["expr"]) for panel in panels for target in panel["targets"]]


def main():
    prometheus, *peers = sys.argv[1:]
    told = {}  # of each peer: its samples, by name and labels
    for peer in peers:
        told[peer] = dict(re.findall(r"^(grapevine_[^ ]+) (\S+)$", get(peer, "/metrics"), re.M))
    names = {sample.split("{")[0] for samples in told.values() for sample in samples} | OPTIONAL

    alerts = (ROOT / "deploy/prometheus/alerts.yml").read_text()
    expressions = dashboard()
    used = set(re.findall(r"grapevine_[a-z_]+", alerts + json.dumps(expressions)))
    assert len(used) > 15, f"too few metrics are looked at: {used}"
    assert not used - names, f"no peer has {sorted(used - names)}"

    # What does not change while one looks is in Prometheus as the peers say it.
    same = 0
    for peer in peers:
        for sample, value in told[peer].items():
            if not re.match(r"grapevine_(info|goal_steps|waits_for|alarms|checkpoint_failures|handshakes_refused_total)\b", sample):
                continue
            stem, _, labels = sample.partition("{")
            labels = (labels[:-1] + "," if labels else "") + f'instance="{peer}"'
            found = query(prometheus, f"{stem}{{{labels}}}")
            assert len(found) == 1 and float(found[0]["value"][1]) == float(value), f"{sample} of {peer}: {value}, and Prometheus: {found}"
            same += 1
    assert same >= 4 * len(peers), f"only {same} samples were compared"
    assert len(query(prometheus, 'up{job="grapevine"} == 1')) == len(peers)

    # Each panel shows something, but those of what has not happened.
    for title, expression in expressions:
        asked = expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
        shown = query(prometheus, asked)
        assert shown or any(name in expression for name in OPTIONAL), f"panel '{title}' is empty: {asked}"
    rules = json.loads(get(prometheus, "/api/v1/rules"))["data"]["groups"][0]["rules"]
    assert len(rules) == alerts.count("- alert:"), rules
    assert all(rule["health"] == "ok" or rule["health"] == "unknown" for rule in rules), rules
    print(f"{len(used)} metrics, {len(expressions)} expressions, {len(rules)} rules, {same} samples compared")


main()
