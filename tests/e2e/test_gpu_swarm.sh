#!/usr/bin/env bash
# GPU and CPU peers in one swarm, as real processes on the virtual device of tests/cuda: they mix, a
# lost GPU ends its peer with a reason and nobody else, and the peer goes on from its checkpoint on
# the processor. Two GPUs in one peer train as one would.
here=$(dirname "$0")
virtual=$(dirname "$(realpath "$1")")/virtual
if [ ! -e "$virtual/grapevine-cuda.so" ]; then
    echo "skipped: this build has no virtual device (it takes the CUDA toolkit)"
    exit 77
fi
set -- "$virtual/grapevine"
# shellcheck source=tests/e2e/lib.sh
source "$here/lib.sh"
export LD_LIBRARY_PATH=$virtual${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}

"$GRAPEVINE" doctor --listen 127.0.0.1:0 >"$WORK/doctor" || fail "doctor: $(cat "$WORK/doctor")"
grep -q '^fine *device cuda:0' "$WORK/doctor" || fail "the doctor sees no GPU: $(cat "$WORK/doctor")"

alone=(--data digits --model "linear:64 relu linear:classes" --seed 3)
# They train until they are stopped: nothing here depends on who is faster.
common=("${alone[@]}" --averaging local-sgd:H=8 --checkpoint-every 100ms --steps 1000000000)

# Half the numbers on the wire, in both directions between a GPU, a CPU and a bfloat16 GPU.
start_peer gpu "${common[@]}" --codec f16 --device cuda --out "$WORK/gpu"
start_peer cpu "${common[@]}" --codec f16 --device cpu --out "$WORK/cpu" \
    --bootstrap "${PEER_ADDRESS[gpu]}"
start_peer half "${common[@]}" --codec f16 --device cuda:0 --precision bf16 --out "$WORK/half" \
    --bootstrap "${PEER_ADDRESS[gpu]}"
for name in gpu cpu half; do
    wait_line $name '"rounds_ok":[1-9]' 180
    wait_line $name '"accuracy":0\.9' 180
done
for name in gpu cpu half; do
    stop_peer $name || fail "peer $name did not stop cleanly"
done

# The GPU of one fails in the middle: it says so, and leaves; the other finishes.
start_peer stays "${common[@]}" --device cpu --out "$WORK/stays"
VIRTUAL_DEVICE_LOST_AFTER=10000 start_peer loses "${common[@]}" --device cuda \
    --out "$WORK/loses" --bootstrap "${PEER_ADDRESS[stays]}"
wait_exit loses && fail "a peer without its GPU exited with 0"
grep -q '^grapevine: .*GPU 0' "$WORK/loses.err" || fail "it does not say what failed"
wait_line stays '"accuracy":0\.9' 180
stop_peer stays || fail "its neighbour did not stop cleanly"

# And goes on from its checkpoint where there is no GPU.
start_peer loses "${common[@]}" --join-timeout 1s --device cpu --out "$WORK/loses"
grep -q "resuming from" "$WORK/loses.err" || fail "the peer did not resume"
wait_line loses '"step":' 120
(($(number step) > 0)) || fail "it began anew"
kill_peer loses

# Several GPUs, and none.
export VIRTUAL_DEVICE_COUNT=2
start_peer two "${alone[@]}" --steps 300 --averaging none --device cuda:0,1 --out "$WORK/two"
wait_exit two || fail "a peer with two GPUs exited with $?"
[[ $(number accuracy) =~ ^0\.[89] ]] || fail "two GPUs reached only $(number accuracy)"
start_peer pair "${common[@]}" --device cuda:0,1 --out "$WORK/pair"
start_peer third "${common[@]}" --device cpu --out "$WORK/third" --bootstrap "${PEER_ADDRESS[pair]}"
for name in pair third; do # of a pair of GPUs and a processor
    wait_line $name '"rounds_ok":[1-9]' 180
    wait_line $name '"accuracy":0\.9' 180
done
for name in pair third; do
    stop_peer $name || fail "peer $name did not stop cleanly"
done
"$GRAPEVINE" peer "${alone[@]}" --steps 5 --device cuda:2 2>"$WORK/third.err" &&
    fail "a third of two GPUs"
grep -q 'there is no GPU 2, only 2' "$WORK/third.err" || fail "$(cat "$WORK/third.err")"
VIRTUAL_DEVICE_MEMORY=$((80 << 20)) "$GRAPEVINE" peer --data digits --model "linear:8000 relu linear:8000 relu linear:classes" --steps 5 \
    --device cuda 2>"$WORK/memory.err" && fail "a model larger than the GPU"
grep -q '^grapevine: .*out of memory' "$WORK/memory.err" || fail "$(cat "$WORK/memory.err")"
export VIRTUAL_DEVICE_COUNT=0
"$GRAPEVINE" peer --listen 127.0.0.1:0 "${alone[@]}" --averaging none --steps 5 2>"$WORK/none.err" >/dev/null ||
    fail "auto without a GPU: $(cat "$WORK/none.err")"
[ "$(grep -c '^device: cpu (' "$WORK/none.err")" -eq 1 ] || fail "auto did not say it once"
"$GRAPEVINE" peer "${alone[@]}" --steps 5 --device cuda 2>"$WORK/none.err" && fail "cuda without a GPU"
grep -q '^grapevine: --device cuda: .*no GPU' "$WORK/none.err" || fail "$(cat "$WORK/none.err")"
echo "GPU and CPU peers mix; a lost GPU is one peer's loss"
