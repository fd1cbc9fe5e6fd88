#!/usr/bin/env bash
# Codecs that lose something: three real peers on loopback that exchange bytes instead of floats
# all learn, those of choco by differences in a few bits, too; and one that comes with another codec is refused by
# name on both sides. They train until stopped.
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

# Differences in a few bits or of a few values: neighbours follow each other by them, and learn.
number=0
for codec in 'topk:64/4096|int2' int4 sign qsgd:16 randk:0.1 threshold:0.001 'lowrank:8|int8'; do
    common=(--data digits --model mlp --averaging choco:H=2 --steps 1000000000 --seed 3 --codec "$codec")
    number=$((number + 1))
    DOING="choco with codec $codec"
    start_peer "a$number" "${common[@]}"
    start_peer "b$number" "${common[@]}" --bootstrap "${PEER_ADDRESS[a$number]}"
    start_peer "c$number" "${common[@]}" --bootstrap "${PEER_ADDRESS[a$number]}"
    for name in a b c; do
        wait_line "$name$number" '"neighbours":2' 120
        wait_more "$name$number" rounds_ok 10 180
        wait_line "$name$number" '"accuracy":0\.9' 180
    done
    for name in a b c; do
        stop_peer "$name$number" || fail "a peer did not stop cleanly"
    done
done
DOING=""

# Of a model nothing may be left out.
"$GRAPEVINE" peer --data digits --model mlp --averaging local-sgd --codec 'topk:64/4096|int2' >"$WORK/refused" 2>&1 &&
    fail "a group takes a codec of differences"
grep -q 'what is left out of a model would be lost' "$WORK/refused" || fail "it is not said why"

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
echo "three peers with int8, three with bf16, three with each of seven codecs of differences: all learned; int8 and f32 do not link"
