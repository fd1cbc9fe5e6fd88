#!/usr/bin/env bash
# Population-based training (--averaging pbt) with real processes: peers that began with bad learning
# rates come by good ones from one that has one; a member that boasts and serves noise is refused and
# left alone; SIGKILL in the middle of a copy, of either side, costs neither its model; settings that
# make no sense are one clear line.
source "$(dirname "$0")/lib.sh"
LIAR=$(dirname "$GRAPEVINE")/tests/liar

common=(--data digits --model 'linear:32 relu linear:classes' --averaging "pbt:every=40,spread=1" --seed 3 --step-time 2ms
    --steps 1000000000 --evaluate-samples 0 --checkpoint-every 300ms)

DOING="bad rates"
start_peer a "${common[@]}" --lr 0.02 --out "$WORK/a"
start_peer b "${common[@]}" --lr 0.00001 --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
wait_more b copies 1 120
grep -q 'copied the model of peer' "$WORK/b/log.txt" || fail "no copy in b's log"
# At most 1000 times what it was given, and each copy explores from there: 0.008 is as good as 0.012.
wait_line b '"learning_rate":(0\.(00)?[1-9]|0\.0[1-9]|[1-9])' 120
skip_lines a && wait_line a '"line":"[0-9a-f]{16}"' 30
line=${LINE#*\"line\":\"} && line=${line%%\"*}
skip_lines b && wait_line b "\"line\":\"$line\"" 30

DOING="the copier is killed in the middle of a copy"
stop_peer b || fail "b did not stop cleanly"
rm -rf "$WORK/b"
for point in join:bucket-received copy:assigning copy:assigned; do
    DOING="the copier is killed at $point"
    GRAPEVINE_CRASH_POINT=$point start_peer b "${common[@]}" --lr 0.00001 --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
    wait_exit b
    [ $? -eq 137 ] || fail "b did not die at $point"
done
start_peer b "${common[@]}" --lr 0.00001 --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
wait_line b '"copies":[1-9]' 120 # one that was made before it was killed is kept

DOING="the donor is killed in the middle of a copy"
GRAPEVINE_CRASH_POINT=join:bucket-queued start_peer d "${common[@]}" --lr 0.1 --out "$WORK/d" --bootstrap "${PEER_ADDRESS[a]}"
start_peer e "${common[@]}" --lr 0.00001 --out "$WORK/e" --bootstrap "${PEER_ADDRESS[d]}"
wait_exit d # it gave a part of its model to one of them
[ $? -eq 137 ] || fail "d did not die at its point"
wait_line e '"copies":[1-9]' 120 # of another
for name in a b e; do wait_more "$name" own_steps 100 60; done
skip_lines a && wait_line a '"loss":0\.' 30

DOING="a liar"
if [ -x "$LIAR" ]; then
    LIE=boasts start_process l "$LIAR" peer --listen 127.0.0.1:0 --json --report-every 200ms "${common[@]}" --lr 0.02 \
        --out "$WORK/l" --bootstrap "${PEER_ADDRESS[a]}"
    lies() { grep -c 'is not taken: it said loss 0, and here' "$WORK/a/log.txt"; }
    for ((i = 0; i < 1200 && $(lies) == 0; i++)); do sleep 0.1; done
    (($(lies) > 0)) || fail "a's log does not name the lie"
    skip_lines a && wait_line a '"copies_refused":[1-9]' 30
    before=$(lies)
    sleep 4 # fifty scores: 4 and 16 of them without it
    (($(lies) <= before + 3)) || fail "a asked the liar $(lies) times"
    wait_line a '"loss":0\.' 30
    kill_peer l
fi
for name in a b e; do
    stop_peer "$name" || fail "$name did not stop cleanly"
done
"$GRAPEVINE" eval "$WORK/a/model.safetensors" --json >"$WORK/eval.json" || fail "eval of a"
grep -q '"accuracy":\[0\.9' "$WORK/eval.json" || fail "a's model is bad: $(cat "$WORK/eval.json")"
# A run goes on with the rate it had come to.
stop_rate=$(tail -n 1 "$WORK/a/metrics.jsonl" | grep -o '"learning_rate":[^,]*')
start_peer a --out "$WORK/a"
wait_line a '"learning_rate"' 60
[ "${LINE/"$stop_rate"/}" != "$LINE" ] || fail "the rate was $stop_rate, and now: $LINE"
stop_peer a || fail "a did not stop cleanly"

refuses() { # refuses PATTERN FLAGS...
    local pattern=$1
    shift
    "$GRAPEVINE" peer --listen 127.0.0.1:0 --data digits --model mlp --steps 3 "$@" >"$WORK/refused.out" 2>&1 && fail "accepted: $*"
    [ "$(wc -l <"$WORK/refused.out")" -le 2 ] || fail "more than a line: $(cat "$WORK/refused.out")"
    grep -q -- "$pattern" "$WORK/refused.out" || fail "$*: $(cat "$WORK/refused.out")"
}
DOING="flags"
refuses 'not a number from 1 to 1000' --averaging pbt:spread=0.5
refuses 'not a number from 0 to 0.9' --averaging pbt:margin=1
refuses 'not a count of steps' --averaging pbt:every=0
refuses 'unknown setting' --averaging pbt:often=3
refuses 'never averages' --averaging pbt --codec int8
refuses 'has none; use' --averaging pbt --optimizer lbfgs
echo "bad rates became good ones, lies and kills in the middle of copies cost nobody its model"
