#!/usr/bin/env python3
"""gate_cost: what the tests of a build cost in CPU seconds, which a loaded machine tells, too, where the
clock does not: user and system of a test with all of its processes, and how long it took.
    tests/bench/gate_cost.py BUILD_FOLDER [JOBS] [words of ctest, as -L quick -E tidy]
The dearest first, then a sum for each label. Tests run side by side (2), the dearest do not begin first.
"""
import collections
import concurrent.futures
import json
import os
import subprocess
import sys
import time


def cost_of(test):
    """(CPU seconds, seconds, verdict) of one test, run as ctest runs it."""
    properties = {p["name"]: p["value"] for p in test["properties"]}
    environment = dict(os.environ)
    for entry in properties.get("ENVIRONMENT", []):
        key, _, value = entry.partition("=")
        environment[key] = value
    started = time.monotonic()
    child = subprocess.Popen(test["command"], cwd=properties["WORKING_DIRECTORY"], env=environment,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    verdict = {0: "passed", properties.get("SKIP_RETURN_CODE"): "skipped"}.get(child.returncode, "failed")
    label = ",".join(properties.get("LABELS", ["none"]))
    return label, test["name"], usage.ru_utime + usage.ru_stime, time.monotonic() - started, verdict


def main():
    folder, *words = sys.argv[1:]
    jobs = int(words.pop(0)) if words and words[0].isdigit() else 2
    listed = subprocess.run(["ctest", "--test-dir", folder, "--show-only=json-v1", *words], check=True,
                            capture_output=True, text=True).stdout
    tests = [test for test in json.loads(listed)["tests"] if "command" in test]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        rows = sorted(pool.map(cost_of, tests), key=lambda row: -row[2])
    sums = collections.Counter()
    for label, name, cpu, wall, verdict in rows:
        print(f"{cpu:8.1f} s CPU {wall:8.1f} s  {verdict}  {name}")
        sums[label] += cpu
    for label, cpu in sums.most_common():
        print(f"{cpu:8.1f} s CPU  label {label}")


if __name__ == "__main__":
    main()
