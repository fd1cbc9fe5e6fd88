#!/usr/bin/env bash
# Codecs that lose something: three real peers on loopback that exchange bytes instead of floats
# all learn, and one that comes with another codec is refused by name on both sides. They train until stopped.
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
wait_exit e
code=$?
((code == 1)) || fail "a peer of another codec ends with $code"
grep -Eq "this swarm averages with '[^']*codec int8[^']*', you with '[^']*codec f32" "$WORK/e.err" ||
    fail "a peer of another codec is not told so"
grep -q 'refused 127.0.0.1:.*codec int8.*codec f32' "$WORK/d.err" || fail "the member does not say whom it refused"
kill_peer d
echo "three peers with int8, three with bf16: all learned; int8 and f32 do not link"
