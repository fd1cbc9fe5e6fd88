#!/usr/bin/env bash
# Ctrl-C: goodbye to the neighbours, a checkpoint, exit 130 within a second; started again with the
# same --out the peer goes on where it was. Another model there is exit 2 naming the key.
source "$(dirname "$0")/lib.sh"

common=(--data digits --model mlp --steps 1000000000 --checkpoint-every 1h)

start_peer a "${common[@]}" --out "$WORK/a"
start_peer b "${common[@]}" --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
wait_line a '"neighbours":1' 120
wait_line b '"rounds_ok":[1-9]' 120
step=$(number step)

kill -INT "${PEER_PID[b]}"
wait_exit b
code=$?
((code == 130)) || fail "exit code $code after SIGINT, not 130"
wait_line a '"neighbours":0' 60
[[ -s $WORK/b/state.safetensors && -s $WORK/b/model.safetensors ]] || fail "no checkpoint was written"

start_peer b "${common[@]}" --out "$WORK/b"
wait_line b '"neighbours":1' 120
(($(number step) >= step)) || fail "the restarted peer began at step $(number step), it was at $step"

kill -TERM "${PEER_PID[a]}"
wait_exit a
code=$?
((code == 143)) || fail "exit code $code after SIGTERM, not 143"

# Steps of this one take long: who cannot wait for one presses Ctrl-C until the peer is gone.
awk 'BEGIN { for (i = 0; i < 12000; i++) printf "%d bottles. ", i }' >"$WORK/text"
start_peer slow --data "text:$WORK/text" --model gpt-micro --batch 32
while jobs -rp | grep -qx "${PEER_PID[slow]}"; do kill -INT "${PEER_PID[slow]}" 2>/dev/null; done
wait_exit slow
code=$?
((code == 130)) || fail "exit code $code after many SIGINTs, not 130"

if "$GRAPEVINE" peer --out "$WORK/a" --model 'linear:classes' --steps 1 >"$WORK/other.out" 2>&1; then
    fail "another model in the same --out was accepted"
else
    code=$?
fi
((code == 2)) || fail "exit code $code for another model in --out, not 2"
grep -q "model" "$WORK/other.out" || fail "the message does not name the key: $(cat "$WORK/other.out")"
(($(wc -l <"$WORK/other.out") == 1)) || fail "more than one line: $(cat "$WORK/other.out")"
echo "stopped peers say goodbye, keep a checkpoint and resume"
