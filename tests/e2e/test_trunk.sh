#!/usr/bin/env bash
# A shared trunk (--share trunk:K) with real processes: peers average the first layers and keep heads of their own; who joins
# takes the trunk and keeps its head; a restart keeps both to the bit; who shares another trunk is refused.
source "$(dirname "$0")/lib.sh"
command -v python3 >/dev/null || {
    echo "skipped: needs python3 to read safetensors"
    exit 77
}

# apart FILE FILE TENSOR: the largest difference of a value.
apart() {
    python3 - "$@" <<'PY'
import array, json, struct, sys
def tensor(path, name):
    data = open(path, "rb").read()
    size = struct.unpack("<Q", data[:8])[0]
    first, end = json.loads(data[8 : 8 + size])[name]["data_offsets"]
    return array.array("f", data[8 + size + first : 8 + size + end])
a, b = (tensor(path, sys.argv[3]) for path in sys.argv[1:3])
print(max(abs(x - y) for x, y in zip(a, b)))
PY
}
is_less() { python3 -c "import sys; sys.exit(not float(sys.argv[1]) < float(sys.argv[2]))" "$1" "$2"; }

model='linear:32 relu [ linear:classes | linear:classes ]heads'
base=(--data digits --model "$model" --heads-loss ensemble --step-time 2ms --seed 3 --evaluate-samples 0)
common=("${base[@]}" --share trunk:1 --averaging local-sgd:H=4)
DOING="trunk and heads"
one=$WORK/a/model.safetensors two=$WORK/b/model.safetensors
# On a busy machine one may be at its goal, and gone, while the other has some steps to take alone: then once more.
for try in 1 2 3 4 5; do
    rm -rf "$WORK/a" "$WORK/b"
    start_peer a "${common[@]}" --steps 300 --start-with 2 --out "$WORK/a"
    start_peer b "${common[@]}" --steps 300 --start-with 2 --out "$WORK/b" --bootstrap "${PEER_ADDRESS[a]}"
    wait_exit a || fail "a failed"
    wait_exit b || fail "b failed"
    is_less "$(apart "$one" "$two" dense1.weight)" 1e-5 && break
    ((try < 5)) || fail "trunks are apart: $(apart "$one" "$two" dense1.weight)"
done
is_less 0.01 "$(apart "$one" "$two" dense2.weight)" || fail "heads were averaged"
"$GRAPEVINE" eval "$one" --json | grep -q '"accuracy":\[0\.9' || fail "a has learnt nothing"

DOING="a restart"
cp "$one" "$WORK/before.safetensors"
start_peer a --out "$WORK/a" --steps 301
wait_exit a || fail "a did not go on"
is_less "$(apart "$WORK/before.safetensors" "$one" dense2.weight)" 0.05 || fail "the head did not survive a restart"

DOING="a joiner"
# c has taken no step when it leaves: its head is the one it began with, its trunk the swarm's. d is for comparison.
start_peer a "${common[@]}" --steps 1000000 --out "$WORK/a2"
wait_more a own_steps 200 60
"$GRAPEVINE" peer --listen 127.0.0.1:0 "${base[@]}" --lr 1e-12 --steps 1 --averaging none --out "$WORK/d" --quiet || fail "d failed"
start_peer c "${common[@]}" --lr 1e-12 --steps 3 --out "$WORK/c" --bootstrap "${PEER_ADDRESS[a]}"
wait_exit c || fail "c failed"
grep -q "took the swarm's model" "$WORK/c/log.txt" || fail "c took no model"
first=$WORK/d/model.safetensors
is_less "$(apart "$first" "$WORK/c/model.safetensors" dense2.weight)" 1e-6 || fail "c's head is not its own"
is_less 0.01 "$(apart "$first" "$WORK/c/model.safetensors" dense1.weight)" || fail "c's trunk is not the swarm's"

DOING="another trunk"
"$GRAPEVINE" peer --listen 127.0.0.1:0 "${base[@]}" --averaging local-sgd:H=4 --steps 3 --bootstrap "${PEER_ADDRESS[a]}" >"$WORK/other.out" 2>&1 &&
    fail "who shares all was let in"
grep -q 'the same --share' "$WORK/other.out" || fail "it is not said why: $(cat "$WORK/other.out")"
stop_peer a || fail "a did not stop cleanly"
echo "trunks are averaged, heads are each peer's own, over joins and restarts"
