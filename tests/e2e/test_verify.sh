#!/usr/bin/env bash
# Real peers that take each other's steps again: all come to the same bits, status says how many can be checked, and
# what cannot be checked is said at the start.
source "$(dirname "$0")/lib.sh"

common=(--data digits --model mlp --averaging local-sgd:H=16 --steps 1000000000 --seed 3 --step-time 2ms --verify 1)
start_peer a "${common[@]}" --out "$WORK/a"
for name in b c; do
    start_peer "$name" "${common[@]}" --out "$WORK/$name" --bootstrap "${PEER_ADDRESS[a]}"
done
for name in a b c; do
    wait_line "$name" '"verify_members":2' 120
    wait_more "$name" verify_equal 3 120
done
start_peer d --data digits --model mlp --averaging local-sgd:H=16 --codec f16 --steps 1000000000 --verify 1 --out "$WORK/d"
grep -q "^.*--verify: nobody can check this peer" "$WORK/d.err" "$WORK/d.out" || fail "nobody said that it cannot be checked"
for name in a b c d; do
    stop_peer "$name" || fail "peer $name did not stop cleanly"
done
for name in a b c; do
    tail -n 1 "$WORK/$name/metrics.jsonl" | grep -q '"verify_unlike":0' || fail "peer $name accuses one that trains"
done
echo "peers took each other's steps again, and came to the same bits"
