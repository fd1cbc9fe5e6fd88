#!/usr/bin/env bash
# Whoever happens to be there: a peer with one thread, one with two, one on a line of 20 Mbit/s, and
# one that joins half-way train in one swarm, and come as far as four equal peers do on as many
# samples. LONG=1: it takes minutes, and is worth the more the longer it trains (SAMPLES=N in all).
source "$(dirname "$0")/lib.sh"

[ "${LONG:-}" ] || { echo "skipped: LONG=1 runs it"; exit 77; }
SAMPLES=${SAMPLES:-600000}
common=(--data digits --model mlp --averaging local-sgd --pace time=200ms --batch 32 --seed 5 --lr 0.02
    --steps 1000000000 --step-time 4ms --evaluate-samples 0)

# samples_of NAME...: what they trained on in all, as last said; what others trained on is in nobody's.
samples_of() {
    local name all=0
    for name in "$@"; do
        wait_line "$name" '"samples":[0-9]' 60
        skip_lines_to_last "$name"
        all=$((all + $(number samples)))
    done
    echo "$all"
}

# The last line that is there: LINE stays what it is when there is none.
skip_lines_to_last() {
    while read_line "$1"; do :; done
    [[ $LINE =~ \"samples\" ]] || wait_line "$1" '"samples":[0-9]' 60
}

# train_to SAMPLES NAME...: until they have so many together.
train_to() {
    local goal=$1 end=$((SECONDS + 1200))
    shift
    until (($(samples_of "$@") >= goal)); do
        ((SECONDS < end)) || fail "not $goal samples in 20 minutes"
        sleep 0.3
    done
}

# judge FOLDER...: accuracy of the average, in thousandths.
judge() {
    local json
    json=$("$GRAPEVINE" eval "${@/%//model.safetensors}" --data digits --json) || fail "eval"
    json=${json#*\"average_model\":\{\"accuracy\":}
    awk -v x="${json%%,*}" 'BEGIN { printf "%d\n", x * 1000 + 0.5 }'
}

start_peer e1 "${common[@]}" --out "$WORK/e1" --threads 1
for name in e2 e3 e4; do
    start_peer $name "${common[@]}" --out "$WORK/$name" --threads 1 --bootstrap "${PEER_ADDRESS[e1]}"
done
train_to "$SAMPLES" e1 e2 e3 e4
for name in e1 e2 e3 e4; do stop_peer $name || fail "peer $name did not stop cleanly"; done
equal=$(judge "$WORK"/e{1,2,3,4})

start_peer a1 "${common[@]}" --out "$WORK/a1" --threads 1
start_peer a2 "${common[@]}" --out "$WORK/a2" --threads 2 --bootstrap "${PEER_ADDRESS[a1]}"
start_peer a3 "${common[@]}" --out "$WORK/a3" --threads 1 --rate-limit 20mbit --bootstrap "${PEER_ADDRESS[a1]}"
train_to $((SAMPLES / 2)) a1 a2 a3
start_peer a4 "${common[@]}" --out "$WORK/a4" --threads 1 --bootstrap "${PEER_ADDRESS[a1]}"
wait_line a4 '"step":[1-9]' 120
grep -q "took the swarm's model" "$WORK/a4.err" || fail "the late peer did not take the swarm's model"
train_to "$SAMPLES" a1 a2 a3 a4
for name in a1 a2 a3 a4; do
    wait_line $name '"rounds_ok":[1-9]' 60
    stop_peer $name || fail "peer $name did not stop cleanly"
done
adhoc=$(judge "$WORK"/a{1,2,3,4})

echo "average model: $equal thousandths with equal peers, $adhoc with unlike ones, $SAMPLES samples each way"
((adhoc >= equal - 10)) || fail "unlike peers: $adhoc thousandths, equal ones $equal"
