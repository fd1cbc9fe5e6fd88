#!/usr/bin/env bash
# Four real peers on loopback, rounds at every step so that some round is always under way: one is
# killed (the first, which all others joined through) and started again, one joins late. All that
# live reach their goal with one accurate model.
source "$(dirname "$0")/lib.sh"

common=(--data digits --model mlp --averaging local-sgd:H=1 --steps 8000 --seed 3 --checkpoint-every 100ms)

start_peer a "${common[@]}" --out "$WORK/a"
start_peer b "${common[@]}" --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
start_peer c "${common[@]}" --out "$WORK/c" --bootstrap "${PEER_ADDRESS[a]}"
wait_line a '"neighbours":2' 30
wait_line a '"rounds_ok":[1-9]' 30

# The first one dies in the middle of things; the others go on and mix with each other.
kill_peer a
wait_line b '"neighbours":1' 30
before=$(number rounds_ok)
wait_line b "\"rounds_ok\":$((before / 10 + 1))?[0-9]{2,}" 30

# A late joiner finds the swarm through the second, and the killed one comes back through its
# address book, without --bootstrap.
start_peer d "${common[@]}" --out "$WORK/d" --bootstrap "${PEER_ADDRESS[b]}"
wait_line d '"neighbours":[2-3]' 30
step=$(number step)
((step > 0)) || fail "the late joiner began at step $step, not at the swarm's"
start_peer a "${common[@]}" --out "$WORK/a"
wait_line a '"neighbours":[1-3]' 30
grep -q "resuming from" "$WORK/a.err" || fail "the killed peer did not resume"

for name in a b c d; do
    wait_exit $name || fail "peer $name exited with $?"
    [[ $LINE =~ '"event":"finished"' ]] || fail "peer $name did not say that it finished: $LINE"
    accuracy=$(number accuracy)
    [[ $accuracy =~ ^0\.9 ]] || fail "peer $name reached only $accuracy"
done

# What they left can be judged together.
"$GRAPEVINE" eval "$WORK"/{a,b,c,d}/model.safetensors --data digits --json >"$WORK/eval.json" || fail "eval"
grep -q '"ensemble":{"accuracy":0\.9' "$WORK/eval.json" || fail "$(cat "$WORK/eval.json")"
echo "four peers, one killed and restarted, one late: all finished"
