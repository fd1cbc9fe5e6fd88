#!/usr/bin/env bash
# Codecs that lose something: three real peers on loopback that exchange bytes instead of floats
# all learn, and a fourth that speaks another codec is never mixed with. They train until stopped.
source "$(dirname "$0")/lib.sh"

for codec in int8 bf16; do
    common=(--data digits --model mlp --averaging local-sgd:H=4 --steps 1000000000 --seed 3 --codec "$codec")
    start_peer "a-$codec" "${common[@]}" --out "$WORK/a-$codec"
    start_peer "b-$codec" "${common[@]}" --out "$WORK/b-$codec" --bootstrap "${PEER_ADDRESS[a-$codec]}"
    start_peer "c-$codec" "${common[@]}" --out "$WORK/c-$codec" --bootstrap "${PEER_ADDRESS[a-$codec]}"
    for name in a b c; do
        wait_line "$name-$codec" '"neighbours":2' 120
        wait_more "$name-$codec" rounds_ok 10 180
        wait_line "$name-$codec" '"accuracy":0\.9' 180
    done
    for name in a b c; do
        stop_peer "$name-$codec" || fail "peer $name-$codec did not stop cleanly"
    done
done

common=(--data digits --model mlp --averaging local-sgd:H=4 --steps 1000000000 --seed 3)
start_peer d "${common[@]}" --codec int8
start_peer e "${common[@]}" --codec f32 --bootstrap "${PEER_ADDRESS[d]}"
wait_line e '"neighbours":1' 120
first=$(number step)
wait_line e '"step":([2-9][0-9]{3}|[0-9]{5})' 180
(($(number rounds_ok) == 0)) || fail "int8 and f32 were mixed after step $first: $LINE"
kill_peer d
kill_peer e
echo "three peers with int8, three with bf16: all learned; int8 and f32 were never mixed"
