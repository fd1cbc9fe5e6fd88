#!/usr/bin/env bash
# report of the folders of peers that nobody started together, one of them started twice: the table,
# the page, the CSV and TensorBoard's event files, read back by another program, say what
# metrics.jsonl says; and what is wrong with a folder is said.
source "$(dirname "$0")/lib.sh"

common=(--data digits --model mlp --steps 4000 --averaging local-sgd:H=64 --quiet)
start_peer a "${common[@]}" --out "$WORK/a"
start_peer b "${common[@]}" --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
wait_exit a || fail "peer a"
wait_exit b || fail "peer b"
"$GRAPEVINE" peer --out "$WORK/a" --steps 4400 --quiet >"$WORK/again" || fail "again"

cd "$WORK" || exit 1
"$GRAPEVINE" report a b --csv all.csv --tensorboard board >table || fail "report"
grep -q "^page: report.html" table || fail "$(cat table)"
[ "$(grep -c '^[ab] ' table)" = 2 ] || fail "$(cat table)"
grep -q '"name":"a"' report.html || fail "no curve of a"
lines=$(cat a/metrics.jsonl b/metrics.jsonl | wc -l)
[ "$(wc -l <all.csv)" = $((lines + 1)) ] || fail "$(wc -l <all.csv) lines of CSV, $lines reports"
"$GRAPEVINE" report a --json >json || fail "report --json"
grep -q '"name":"a",.*"own_steps":4400[.,]' json || fail "$(cat json)"
[ -s a/report.html ] || fail "no page in the folder"

python3 - <<'PYTHON' || fail "event files"
import json, math, struct


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked(data):
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        shift += 7
        at += 1
        if data[at - 1] < 128:
            return value, at


def fields(data):
    at, found = 0, []
    while at < len(data):
        key, at = varint(data, at)
        if key & 7 == 0:
            value, at = varint(data, at)
        else:
            size, at = {1: (8, at), 5: (4, at)}.get(key & 7) or varint(data, at)
            value, at = data[at : at + size], at + size
        found.append((key >> 3, value))
    return found


for name in "ab":
    reports = [json.loads(line) for line in open(f"{name}/metrics.jsonl")]
    data, events = open(f"board/{name}/events.out.tfevents.grapevine", "rb").read(), []
    while data:
        (size,) = struct.unpack("<Q", data[:8])
        assert struct.unpack("<I", data[8:12])[0] == masked(data[:8])
        assert struct.unpack("<I", data[12 + size : 16 + size])[0] == masked(data[12 : 12 + size])
        events.append(dict(fields(data[12 : 12 + size])))
        data = data[16 + size :]
    assert events[0][3] == b"brain.Event:2" and len(events) == len(reports) + 1
    for event, report in zip(events[1:], reports):
        assert event.get(2, 0) == report["own_steps"], (event, report)
        values = {}
        for _, value in fields(event[5]):
            value = dict(fields(value))
            values[value[1].decode()] = struct.unpack("<f", value[2])[0]
        assert ("loss" in values) == (report["loss"] is not None)
        if report["loss"] is not None:
            assert math.isclose(values["loss"], report["loss"], rel_tol=1e-6)
        assert values["samples"] == report["samples"]
PYTHON

mkdir empty
"$GRAPEVINE" report empty 2>said && fail "an empty folder"
grep -q "^grapevine: cannot report on empty: .*metrics.jsonl" said || fail "$(cat said)"
"$GRAPEVINE" report a b --csv /no/such/folder/x 2>said && fail "a CSV that cannot be"
grep -q "^grapevine: .*/no/such/folder/x" said || fail "$(cat said)"
echo "reports of peers say what they reported"
