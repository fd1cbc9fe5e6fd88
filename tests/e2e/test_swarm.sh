#!/usr/bin/env bash
# Four real peers on loopback, rounds at every step so that some round is always under way: one is
# killed (the first, which all others joined through) and started again, one joins late, while the
# rounds go on. All hold one accurate model in the end. They train until they are stopped: nothing
# here depends on who is faster.
source "$(dirname "$0")/lib.sh"

common=(--data digits --model mlp --averaging local-sgd:H=1 --steps 1000000000 --seed 3 --checkpoint-every 100ms)

start_peer a "${common[@]}" --out "$WORK/a"
start_peer b "${common[@]}" --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
start_peer c "${common[@]}" --out "$WORK/c" --bootstrap "${PEER_ADDRESS[a]}"
for name in a b c; do
    wait_line $name '"neighbours":2' 120
    wait_line $name '"rounds_ok":[1-9]' 120
done

# The first one dies in the middle of things; the others go on and mix with each other.
kill_peer a
for name in b c; do
    skip_lines $name
    wait_line $name '"neighbours":1' 180
    wait_more $name rounds_ok 10 180
done

# A late joiner finds the swarm through the second and begins where it is, and the killed one comes
# back through its address book, without --bootstrap.
start_peer d "${common[@]}" --out "$WORK/d" --bootstrap "${PEER_ADDRESS[b]}"
wait_line d '"step":[1-9]' 120
step=$(number step)
grep -q "took the swarm's model at step [1-9]" "$WORK/d.err" || fail "the late joiner began at step $step, not at the swarm's"
start_peer a "${common[@]}" --out "$WORK/a"
wait_line a '"neighbours":[1-3]' 120
grep -q "resuming from" "$WORK/a.err" || fail "the killed peer did not resume"

for name in a b c d; do
    wait_more $name rounds_ok 10 180
    wait_line $name '"accuracy":0\.9' 180
done
for name in a b c d; do
    stop_peer $name || fail "peer $name did not stop cleanly: $?"
done

# What they left can be judged together.
"$GRAPEVINE" eval "$WORK"/{a,b,c,d}/model.safetensors --data digits --json >"$WORK/eval.json" || fail "eval"
grep -q '"ensemble":{"accuracy":0\.9' "$WORK/eval.json" || fail "$(cat "$WORK/eval.json")"
echo "four peers, one killed and restarted, one late: one model"
