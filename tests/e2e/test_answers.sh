#!/bin/bash
# codistill and ec-dnn between real peers: networks of unlike layers in one swarm, one killed and gone
# on, one that joins by what the swarm says, and what is refused.
. "$(dirname "$0")/lib.sh"

conv='conv3x3:4,stride=2 relu linear:classes'
method='codistill:H=10,samples=300'
common=(--data digits --averaging "$method" --evaluate-samples 0)

DOING="two peers of unlike layers"
start_peer a "${common[@]}" --model mlp --shard-of 0/2 --time 60s --start-with 2 --step-time 5ms --checkpoint-every 1s --out "$WORK/a"
start_peer b "${common[@]}" --model "$conv" --shard-of 1/2 --steps 100000 --bootstrap "${PEER_ADDRESS[a]}" --start-with 2 --step-time 5ms --checkpoint-every 1s \
    --out "$WORK/b"
wait_more a rounds_ok 5 60
grep -q "rounds mix answers to 300 samples" "$WORK/a/log.txt" || fail "a does not say what its rounds mix"

DOING="one is killed, and goes on with its own model"
for ((i = 0; i < 100; i++)); do
    [ -s "$WORK/b/model.safetensors" ] && break
    sleep 0.2
done
kill_peer b
[ -s "$WORK/b/state.safetensors" ] || fail "no checkpoint"
wait_more a own_steps 20 60
start_process b "$GRAPEVINE" peer --out "$WORK/b" --json --report-every 200ms
wait_line b '"listening"' 60
grep -q "resuming from" "$WORK/b/log.txt" || fail "b did not resume"
wait_more b rounds_ok 3 60
wait_more a rounds_ok 3 60

DOING="who joins by the swarm's settings has its own layers, too"
start_process c "$GRAPEVINE" join "${PEER_ADDRESS[a]}" --model linear:classes --listen 127.0.0.1:0 --json --report-every 200ms --step-time 5ms --out "$WORK/c"
wait_more c rounds_ok 2 60
grep -q "answers" "$WORK/c/log.txt" || fail "c does not say so"

DOING="another probe set, another method"
refused() { # refused CODE WORDS FLAGS...
    local wanted=$1 words=$2 code=0
    shift 2
    timeout 60 "$GRAPEVINE" peer --listen 127.0.0.1:0 --join-timeout 5s --bootstrap "${PEER_ADDRESS[a]}" "$@" >"$WORK/refused.out" 2>"$WORK/refused.err" || code=$?
    [ $code -ne 0 ] || fail "not refused: $*"
    [ -z "$wanted" ] || [ $code -eq "$wanted" ] || fail "exit code $code: $*"
    grep -q -- "$words" "$WORK/refused.err" || { cat "$WORK/refused.err" >&2; fail "not said: $words"; }
}
refused "" "answers other samples" --data digits --model mlp --averaging codistill:H=10,samples=299
refused "" "answers other samples" --data digits --model mlp --averaging codistill:H=10,samples=300 --seed 2
refused "" "exchanges answers, you models" --data digits --model mlp --averaging local-sgd
refused 2 "leave it out, or take codistill" --data digits --model mlp --averaging local-sgd --probe digits
refused 2 "leave it out" --data digits --model mlp --averaging codistill --audit "$WORK/audit"
refused "" "of another form" --data digits --model mlp --averaging codistill --probe synthetic:spirals
refused 2 "--hogwild" --data digits --model mlp --averaging codistill --hogwild 2

DOING="they end, each with a model of its own"
for peer in c b a; do stop_peer $peer || fail "$peer did not stop cleanly"; done
"$GRAPEVINE" eval "$WORK"/[abc]/model.safetensors --data digits --json >"$WORK/eval.json" || fail "eval"
grep -q '"average_model":null' "$WORK/eval.json" || fail "unlike layers have no parameter average"

DOING="a checkpoint of other layers"
sed -i 's/^model.*/model = linear:classes/' "$WORK/b/config.ini"
timeout 60 "$GRAPEVINE" peer --out "$WORK/b" >"$WORK/other.out" 2>"$WORK/other.err" && fail "resumed with another model"
grep -q "give the --model it was begun with" "$WORK/other.err" || fail "not said: $(cat "$WORK/other.err")"

DOING="ec-dnn, and data of one's own asked about a public set"
start_peer d --data digits --model mlp --averaging ec-dnn:H=10,compress=4 --shard-of 0/2 --steps 100 --start-with 2 --step-time 5ms --evaluate-samples 0 \
    --out "$WORK/d"
start_peer e --data digits --model "$conv" --averaging ec-dnn:H=10,compress=4 --shard-of 1/2 --steps 100 --start-with 2 --step-time 5ms --evaluate-samples 0 \
    --bootstrap "${PEER_ADDRESS[d]}" --out "$WORK/e"
for peer in d e; do
    wait_line $peer '"finished"' 60
    [ "$(number rounds_ok)" -ge 1 ] || fail "$peer had no round: $LINE"
    wait_exit $peer || fail "$peer: exit code $?"
done
