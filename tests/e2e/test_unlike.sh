#!/usr/bin/env bash
# Peers that have nothing in common but the model: threads, precision, batch, speed and line of each are its own. None
# stands still for another: whoever is first begins rounds (decoupled-diloco), or the clock does; all are in them, and
# all learn.
source "$(dirname "$0")/lib.sh"

for method in "decoupled-diloco:H=32,P=4,tau=6" "local-sgd --pace time=400ms"; do
    DOING="--averaging $method"
    # shellcheck disable=SC2206  # a method and what goes with it are words
    common=(--data digits --model mlp --averaging $method --steps 1000000000 --seed 3)
    start_peer a "${common[@]}" --out "$WORK/a-$method" --threads 2 --batch 32 --step-time 10ms
    start_peer b "${common[@]}" --out "$WORK/b-$method" --threads 1 --batch 64 --step-time 20ms --precision bf16 \
        --bootstrap "${PEER_ADDRESS[a]}"
    start_peer c "${common[@]}" --out "$WORK/c-$method" --threads 1 --batch 16 --step-time 45ms --rate-limit 20mbit \
        --bootstrap "${PEER_ADDRESS[a]}"
    for name in a b c; do
        wait_line "$name" '"neighbours":2' 120
        wait_more "$name" rounds_ok 10 180
        wait_line "$name" '"accuracy":0\.9' 180
    done
    for name in a b c; do
        stop_peer "$name" || fail "peer $name did not stop cleanly"
    done
done
echo "peers of unlike threads, precision, batch, speed and line met, and all learned"
