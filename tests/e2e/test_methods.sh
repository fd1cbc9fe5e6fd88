#!/usr/bin/env bash
# Methods that are not local-sgd, with real processes on loopback: two peers meet, learn, and stop
# with a checkpoint from which the first goes on. They train until stopped.
source "$(dirname "$0")/lib.sh"

methods=("adacomm:H=16,block=200" "ssp:s=4,H=4" "des-loc:H=8" "noloco:H=8" "async-diloco:H=8" "gasloc:H=8" "muloco:H=8" "qg-dsgdm:H=4" "swarmsgd:p=0.2" "choco:H=4" "dpsgd:H=4"
    "streaming-diloco:H=16,P=4,tau=2" "decoupled-diloco:H=16,P=4,tau=2" "sparta:H=2,p=0.1" "loscar:H=4")
for method in "${methods[@]}"; do
    DOING="--averaging $method"
    common=(--data digits --model mlp --averaging "$method" --steps 1000000000 --seed 3)
    start_peer a "${common[@]}" --out "$WORK/a-$method"
    start_peer b "${common[@]}" --out "$WORK/b-$method" --bootstrap "${PEER_ADDRESS[a]}"
    for name in a b; do
        wait_line "$name" '"neighbours":1' 120
        wait_more "$name" rounds_ok 10 180
        wait_line "$name" '"accuracy":0\.9' 180
    done
    stop_peer a || fail "peer a did not stop cleanly"
    start_peer a "${common[@]}" --out "$WORK/a-$method" --bootstrap "${PEER_ADDRESS[b]}"
    wait_more a rounds_ok 5 180
    for name in a b; do
        stop_peer "$name" || fail "peer $name did not stop cleanly"
    done
done
echo "${methods[*]}: two peers met, learned, and went on from a checkpoint"
