#!/usr/bin/env bash
# Every preset learns from data of its kind: a few steps by a peer, which is started again on what it
# left and goes on, and eval judges the result. Ctrl-C in the middle of a language model keeps it.
# Swarms of two reach their goal with a model that has running statistics, and with a text.
source "$(dirname "$0")/lib.sh"

awk 'BEGIN {
    srand(1)
    count = split("the vine grows on a wall and bears grapes late in summer", word, " ")
    for (i = 0; i < 12000; i++) printf "%s%s", word[int(rand() * count) + 1], i % 11 ? " " : ".\n"
}' >"$WORK/text"
awk 'BEGIN {
    srand(2)
    print "height,width,area"
    for (i = 0; i < 400; i++) { a = rand(); b = rand(); print a "," b "," 3 * a - 2 * b }
}' >"$WORK/table.csv"

# run NAME STEPS FLAGS...: a peer to its goal; what it said on standard output is in $WORK/NAME.said.
run() {
    local name=$1 steps=$2
    shift 2
    timeout -k 5 400 "$GRAPEVINE" peer --listen 127.0.0.1:0 --averaging none --json --steps "$steps" \
        --out "$WORK/$name" "$@" >"$WORK/$name.said" 2>"$WORK/$name.err" || fail "$name: exit code $?"
    LINE=$(tail -n 1 "$WORK/$name.said")
    [[ $LINE =~ '"event":"finished"' && $LINE =~ '"goal_reached":true' ]] || fail "$name: $LINE"
    (($(number steps) == steps)) || fail "$name made $(number steps) steps instead of $steps"
    [[ $(number loss) =~ ^[0-9] ]] || fail "$name: no loss in $LINE"
}

# learns MODEL DATA STEPS FLAGS...: train, go on, judge.
learns() {
    local model=$1 data=$2 steps=$3
    shift 3
    run "$model" "$steps" --model "$model" --data "$data" "$@"
    run "$model" $((2 * steps))
    grep -q 'resuming from' "$WORK/$model.err" || fail "$model did not go on with what it had"
    judge "$model"
}

judge() { # judge NAME: a finite loss; the line is in LINE
    LINE=$("$GRAPEVINE" eval "$WORK/$1/model.safetensors" --json 2>"$WORK/$1.eval.err") ||
        fail "$1 cannot be judged: $(cat "$WORK/$1.eval.err")"
    [[ $LINE =~ '"loss":['[0-9] ]] || fail "$1 has no loss: $LINE"
}

learns mlp digits 60
grep -qE '"accuracy":\[(0\.[5-9]|1)' <<<"$LINE" || fail "mlp learned little: $LINE"
learns cnn digits 20
learns treenet digits 20
learns resnet14 digits 6 --batch 16
learns resnet20 digits 6 --batch 16
learns lstm "text:$WORK/text" 4 --batch 2
learns gpt-nano "text:$WORK/text" 4 --batch 2
learns gpt-micro "text:$WORK/text" 1 --batch 1

# The big ones, once: a step of resnet18; what gpt2-small would be.
run resnet18 1 --model resnet18 --data digits --batch 4
judge resnet18
"$GRAPEVINE" inspect --model gpt2-small --data "text:$WORK/text" >"$WORK/gpt2.txt" || fail "inspect of gpt2-small"
grep -q '1024 steps of 768' "$WORK/gpt2.txt" || fail "gpt2-small is something else: $(head -n 5 "$WORK/gpt2.txt")"

# Real values: a loss, and no accuracy to speak of.
run reals 300 --model 'linear:16 tanh linear:classes' --data "csv:$WORK/table.csv,target=area"
[[ $(number accuracy) == null ]] || fail "real values with an accuracy: $LINE"
judge reals
LINE=${LINE/'"loss":['/'"value":'}
awk -v loss="$(number value)" 'BEGIN { exit !(loss < 0.1) }' || fail "the plane was not learned: $LINE"

# Ctrl-C in the middle of a language model: a goodbye, a checkpoint, and the rest later.
start_peer stopped --model gpt-nano --data "text:$WORK/text" --batch 4 --steps 100000 --out "$WORK/stopped"
wait_line stopped '"step":[1-9]' 180
step=$(number step)
kill -INT "${PEER_PID[stopped]}"
wait_exit stopped
code=$?
((code == 130)) || fail "exit code $code after SIGINT, not 130"
start_peer stopped --model gpt-nano --out "$WORK/stopped" --steps $((step + 100000))
wait_line stopped '"step":[1-9]' 180
(($(number step) >= step)) || fail "the restarted peer began at step $(number step), it was at $step"
kill -INT "${PEER_PID[stopped]}"
wait_exit stopped
judge stopped

# together NAME PATTERN FLAGS...: a testnet of two, and what must hold at its end; what takes rounds
# (PATTERN in the summary, too) may need more time than the shortest on a slow machine.
together() {
    local name=$1 pattern=$2 time
    shift 2
    for time in 5s 20s 80s; do
        rm -rf "${WORK:?}/$name"
        timeout -k 5 300 "$GRAPEVINE" testnet --peers 2 --out "$WORK/$name" --averaging local-sgd:H=4 --time $time "$@" \
            >"$WORK/$name.said" 2>"$WORK/$name.err" || {
            local code=$?
            grep -q 'without one averaging round' "$WORK/$name.err" && [ "$time" != 80s ] && continue
            fail "testnet $name: exit code $code: $(tail -n 5 "$WORK/$name.err")"
        }
        tr -d ' \n' <"$WORK/$name/summary.json" >"$WORK/$name.json"
        grep -qE '"rounds_ok":[1-9]' "$WORK/$name.json" && grep -qE "$pattern" "$WORK/$name.json" && break
    done
    grep -q '"finished":2,' "$WORK/$name.json" || fail "testnet $name: $(cat "$WORK/$name.json")"
    grep -q '"invariants":{[a-z_":,]*true' "$WORK/$name.json" || fail "testnet $name says no invariants"
    grep -qE '"invariants":{[^}]*false' "$WORK/$name.json" && fail "testnet $name: $(cat "$WORK/$name.json")"
    grep -qE '"rounds_ok":[1-9]' "$WORK/$name.json" || fail "testnet $name: no round: $(cat "$WORK/$name.json")"
    return 0
}

together statistics '"average_model":0\.[89]' --data digits --model 'conv3x3:8 bn relu maxpool2 linear:classes'
grep -qE '"average_model":0\.[89]' "$WORK/statistics.json" ||
    fail "averaged running statistics judge badly: $(cat "$WORK/statistics.json")"
together prose . --data "text:$WORK/text" --model 'embed:16 gru:32 linear:classes' --batch 8
grep -qE '"loss":{"peers":\[[0-9.]+,[0-9.]+\],"average_model":[0-9]' "$WORK/prose.json" ||
    fail "no losses in the summary of a text: $(cat "$WORK/prose.json")"
grep -qE '^ +loss ' "$WORK/prose.err" || fail "the table of a text tells no losses: $(cat "$WORK/prose.err")"

echo "every preset learns, goes on and is judged; swarms of two mix statistics and texts"
