#!/usr/bin/env bash
# --trace FILE: two peers that average write what took how long in a form that viewers read: spans of each kind, inside
# of each other, of both together, in virtual time, of a peer that is killed, and on a disk that is full.
source "$(dirname "$0")/lib.sh"
here=$(realpath "$(dirname "$0")")
python=$(command -v python3) || { echo "SKIPPED: no python3 to read traces with"; exit 77; }
cd "$WORK" || exit 1

check() { "$python" "$here/trace.py" "$@" >spans || fail "the trace $1 is not what it should be"; }
has() { # has NAME LEAST: spans of that name
    local count
    count=$(sed -n "s/^\([0-9]*\) $1\$/\1/p" spans)
    ((${count:-0} >= $2)) || fail "${count:-no} spans '$1', not at least $2: $(tr '\n' ',' <spans)"
}

# Two peers whose rounds are waited for. Each step of a peer has its passes and its update.
common=(--data digits --model mlp --averaging allreduce --shard iid --start-with 2 --steps 60)
start_peer a "${common[@]}" --out a --trace a.json
start_peer b "${common[@]}" --bootstrap "${PEER_ADDRESS[a]}" --trace b.json
for peer in a b; do wait_exit $peer || fail "peer $peer did not end well"; done
for peer in a b; do
    check $peer.json
    for name in forward loss backward update; do
        has $name 60
        [ "$(grep -c " $name$" spans)" -eq 1 ] || fail "$name is there twice"
    done
    [ "$(sed -n 's/ forward$//p' spans)" -eq 60 ] || fail "$(grep forward spans) for 60 steps"
    for name in steps data snapshot encode decode reduce settle apply seal open send wait evaluate 'round begins' 'round formed' \
        'round commits' round; do
        has "$name" 1
    done
done
check a.json
has checkpoint 1

# Partners are the other, rounds are numbered, bytes are told; both can be looked at together.
"$python" - <<'END' || fail "the two traces do not fit together"
import json
a, b = (json.load(open(f"{name}.json")) for name in "ab")
names = {e["pid"]: e["args"]["name"].split()[1] for e in a + b if e["name"] == "process_name"}
assert len(names) == 2, names
for own, other in ((a, b), (b, a)):
    theirs = names[other[0]["pid"]]
    spans = [e for e in own if e["ph"] == "X"]
    for kind in ("decode", "send", "seal", "open"):
        partners = {e["args"].get("partner") for e in spans if e["name"] == kind}
        assert partners == {theirs}, (kind, partners, theirs)
    assert all(e["args"]["bytes"] > 0 for e in spans if e["name"] == "send")
    assert {e["args"]["detail"] for e in spans if e["name"] == "wait"} <= {"a model", "peers", "a round", "the end"}
    rounds = [e["args"]["round"] for e in own if e["name"] == "round commits"]
    assert rounds == sorted(set(rounds)) and len(rounds) >= 20, rounds
    assert all(e["args"]["round"] in range(-1, rounds[-1] + 2) for e in spans if e["name"] == "decode")
    steps = [e for e in spans if e["name"] == "steps"]
    for e in spans:
        if e["name"] in ("forward", "backward"):
            assert any(s["ts"] <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.002 for s in steps), e
common = {e["args"]["round"] for e in a if e["name"] == "round commits"} & \
         {e["args"]["round"] for e in b if e["name"] == "round commits"}
assert len(common) >= 20, common
END

# Killed, it has all but the last quarter of a second. Without the flag there is no file.
start_peer c --data digits --model mlp --averaging none --steps 1000000000 --trace c.json
until [ -s c.json ] && grep -q '"steps"' c.json; do wait_line c '"event":"report"' 120; done
kill_peer c
check c.json --cut
has steps 1
"$GRAPEVINE" peer --data digits --model mlp --averaging none --steps 3 >/dev/null 2>&1 || fail "a peer without a trace"
[ "$(echo *.json)" = "a.json b.json c.json" ] || fail "a trace that nobody asked for: $(echo *.json)"

# A simulated swarm, in its own time: twice the same.
for n in 1 2; do
    "$GRAPEVINE" simulate --peers 6 --rounds 4 --trace s$n.json >/dev/null 2>&1 || fail "simulate --trace"
done
cmp s1.json s2.json || fail "equal runs have unlike traces"
check s1.json
for name in steps snapshot encode decode settle apply send 'round commits'; do has "$name" 24; done # 6 peers, 4 rounds
has reduce 4                                                                                        # one chunk, so one owner a round
[ "$(grep -c process_name s1.json)" -ge 6 ] || fail "$(grep -c process_name s1.json) processes for 6 peers"

# Where it cannot be written at all the start says so; where the disk fills up, one line does, and training goes on.
"$GRAPEVINE" peer --data digits --model mlp --averaging none --steps 3 --trace none/t.json >/dev/null 2>e.err && fail "a folder that is not there"
grep -q 'none/t.json' e.err || fail "$(cat e.err)"
mkdir disk
if mount -t tmpfs -o size=256k tmpfs disk 2>/dev/null; then
    trap 'umount "$WORK/disk" 2>/dev/null || umount -l "$WORK/disk"; cleanup' EXIT
    start_peer f --data digits --model mlp --averaging none --steps 100000 --trace disk/t.json
    end=$((SECONDS + 120))
    until grep -q 'training goes on without a trace' f.err; do
        ((SECONDS < end)) || fail "the full disk was not told"
        wait_line f '"event":"report"' 120
    done
    skip_lines f
    wait_line f '"event":"report"' 120
    stop_peer f || fail "it does not stop"
    [ "$(grep -c 'disk/t.json' f.err)" -eq 1 ] || fail "$(grep disk f.err)"
    check disk/t.json --cut
    has steps 1
else
    echo "a disk that fills up was not tried: it needs root"
fi
echo "traces are whole, of all that takes time"
