"""What a trace must be, whoever wrote it: trace.py FILE [--cut]. --cut: of a killed process, so without its end.

Prints the number of spans by name. Exits 1 with a line that says what is wrong.
"""
import collections
import json
import sys


def load(path, is_cut):
    text = open(path, encoding="utf-8").read()
    if is_cut:
        text = text[: text.rindex("}") + 1] + "]"  # as viewers take it
    return json.loads(text)


def check_rows(events):
    """Spans of one row lie one behind or inside the other, and none has a negative length."""
    rows = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            assert event["dur"] >= 0, f"a negative length: {event}"
            rows[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["name"]))
    for row, spans in rows.items():
        open_until = []
        for begin, length, name in sorted(spans):
            end = begin - length
            while open_until and open_until[-1] <= begin + 0.0015:
                open_until.pop()
            assert not open_until or end <= open_until[-1] + 0.0015, f"{name} at {begin} of {row} overlaps another"
            open_until.append(end)


def check_rounds(events, is_cut):
    """Each round that has a row of its own begins once and ends once, later."""
    begins = {}
    for event in events:
        if event["ph"] == "b":
            assert event["id"] not in begins, f"round {event['id']} begins twice"
            begins[event["id"]] = event["ts"]
        if event["ph"] == "e":
            assert event["ts"] >= begins.pop(event["id"]), f"round {event['id']} ends before it begins"
    assert not begins or is_cut, f"rounds without an end: {begins}"


def main():
    is_cut = "--cut" in sys.argv
    events = load(sys.argv[1], is_cut)
    for event in events:
        assert event["ph"] in "XibeM" and isinstance(event["name"], str), event
        assert event["ph"] == "M" or event["ts"] >= 0, event
    check_rows(events)
    check_rounds(events, is_cut)
    assert is_cut or events[-1]["name"] == "trace_end", "no end"
    names = collections.Counter(event["name"] for event in events if event["ph"] in "Xib")
    for name, count in sorted(names.items()):
        print(f"{count} {name}")


if __name__ == "__main__":
    try:
        main()
    except AssertionError as wrong:
        sys.exit(f"{sys.argv[1]}: {wrong}")
