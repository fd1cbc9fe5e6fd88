#!/usr/bin/env bash
# A peer that keeps the swarm's model and does not train (--no-train): those who train end, the last
# of them once it has their model; who comes later, from nowhere, goes on with that; and when that
# one dies, too, the model is still there, for members and for who only asks.
source "$(dirname "$0")/lib.sh"

refused() { # refused TEXT FLAGS...
    local text=$1
    shift
    "$GRAPEVINE" peer --listen 127.0.0.1:0 --no-train "$@" >"$WORK/refused.out" 2>"$WORK/refused.said" && fail "not refused: $*"
    grep -q "^grapevine: --no-train: .*$text" "$WORK/refused.said" || fail "$*: $(cat "$WORK/refused.said")"
}

for method in none one-shot pbt codistill; do refused "averaging $method" --averaging "$method"; done
refused 'share trunk' --averaging local-sgd --share trunk:1
for goal in steps epochs target-accuracy; do refused "--$goal is a goal" --averaging local-sgd "--$goal" 1; done

common=(--data digits --model mlp --averaging local-sgd:H=8)
start_peer keep "${common[@]}" --no-train --out "$WORK/keep"
address=${PEER_ADDRESS[keep]}
for name in a b; do
    start_peer "$name" "${common[@]}" --bootstrap "$address" --steps 150 --start-with 2 --out "$WORK/$name"
done
for name in a b; do
    wait_exit "$name" || fail "$name ended with $?"
    [[ $LINE =~ '"goal_reached":true' ]] || fail "$name did not end at its goal: $LINE"
done
wait_line keep '"state":"keeping","step":150,' 60

# Other initial values than theirs, and nobody there but the keeper.
start_peer c "${common[@]}" --bootstrap "$address" --seed 9 --steps 1000000000
wait_line c '"own_steps":[1-9]' 120
(($(number step) > 150 && $(number step) - $(number own_steps) == 150)) || fail "c did not go on from what was kept: $LINE"
kill_peer c
skip_lines keep
wait_line keep '"neighbours":0' 120
[[ $LINE =~ '"state":"keeping"' && $LINE =~ '"own_steps":0,' ]] || fail "it keeps no more: $LINE"
"$GRAPEVINE" distill --swarm "$address" --student 'linear:16 relu linear:classes' --epochs 1 --samples 64 --out "$WORK/student.safetensors" \
    >"$WORK/distill.out" 2>"$WORK/distill.err" || fail "who asks is not answered: $(cat "$WORK/distill.err")"
stop_peer keep || fail "keep did not end cleanly"
"$GRAPEVINE" eval "$WORK/keep/model.safetensors" --json >"$WORK/eval.out" 2>"$WORK/eval.said" || fail "$(cat "$WORK/eval.said")"
grep -qE '"accuracy":\[0\.9' "$WORK/eval.out" || fail "what was kept is not what they made: $(cat "$WORK/eval.out")"

# Its folder is a peer's like any other: whoever has it may train on.
"$GRAPEVINE" peer --out "$WORK/keep" --no-train=no --steps 10 --listen 127.0.0.1:0 --join-timeout 1s >"$WORK/on.out" 2>"$WORK/on.said" || fail "$(cat "$WORK/on.said")"
grep -q '^finished: 10 steps' "$WORK/on.out" || fail "it does not train on: $(cat "$WORK/on.out")"
echo 'the model outlives those who train'
