#!/bin/bash
# --device: which one is used is said once, wrong ones are told, and a peer on the processor pays
# nothing for what a GPU would need. The whole program on GPUs: test_gpu_swarm.sh.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

# What is no device at all is wrong usage, wherever it stands.
for device in gpu cuda: cuda:x cuda:0,0 'cuda:0,' cuda:-1 cuda:99999 cuda,1 CPU ''; do
    refused 2 '--device' "$gv" bench train --device "$device" --seconds 0.01
done
refused 2 '--device gpu: .*auto.*cpu.*cuda' "$gv" peer --listen 127.0.0.1:0 --device gpu --steps 1
refused 2 'GRAPEVINE_DEVICE gpu' env GRAPEVINE_DEVICE=gpu "$gv" peer --listen 127.0.0.1:0 --steps 1

# libraries PID: those that only a GPU needs, as the process has mapped them.
libraries() {
    grep -oE '[^/]*(libcuda|libcublas|libcudart|libcudnn|libnccl|grapevine-cuda)[^ ]*' "/proc/$1/maps" | sort -u
}

peer_of() { # peer_of NAME FLAGS...: one that trains until it is stopped
    local name=$1
    shift
    start "$name" "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 100000000 --quiet "$@"
}

# Where the processor is asked for nothing else is looked at, with or without a GPU.
peer_of cpu --device cpu
checks=$((checks + 1))
[ -z "$(libraries "$pid")" ] || bad "a peer on the processor has mapped: $(libraries "$pid")"
stop "$pid"
[ ! -s cpu.err ] || bad "--device cpu says something: $(head -n 2 cpu.err)"

if [ -e /proc/driver/nvidia/version ] || ldconfig -p 2>/dev/null | grep -q 'libcuda\.so\.1'; then
    echo "this machine has an NVIDIA driver: what is said where there is none was not tried"
else
    for device in cuda cuda:0 cuda:0,1 cuda:99; do
        refused 1 '--device cuda: no NVIDIA driver.*CPU' \
            "$gv" bench train --device "$device" --seconds 0.01
    done
    refused 1 'no NVIDIA driver' "$gv" peer --listen 127.0.0.1:0 --device cuda --steps 1
    refused 1 'no NVIDIA driver' "$gv" bench kernels --device cuda --seconds 0.1

    # auto: the processor, told once to who asked for it, and to nobody else.
    for flags in '--device auto' ''; do
        checks=$((checks + 1))
        # shellcheck disable=SC2086
        "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 20 --out a $flags >auto.out 2>auto.err ||
            bad "auto without a driver: $(tail -n 2 auto.err)"
        [ "$(grep -cE '^device: cpu \(no NVIDIA driver' auto.err)" -eq "$([ -n "$flags" ] && echo 1 || echo 0)" ] ||
            bad "auto does not say what is used once to who asked: $(cat auto.err)"
        rm -rf a
    done
    "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 20 --out a --quiet 2>auto.err >/dev/null
    [ ! -s auto.err ] || bad "a quiet peer talks about its device: $(cat auto.err)"
    checks=$((checks + 1))
    "$gv" eval a/model.safetensors >eval.out 2>eval.err || bad "eval: $(cat eval.err)"
    if grep -q '^device:' eval.err; then bad "eval talks about a device that nobody asked for"; fi
    accepted '"device":"cpu"' "$gv" bench train --model mlp --seconds 0.05 --json

    peer_of auto --device auto
    checks=$((checks + 1))
    [ -z "$(libraries "$pid")" ] || bad "auto without a driver has mapped: $(libraries "$pid")"
    stop "$pid"
fi

# --- what the module costs who does not use it ------------------------------------------------------

median() {
    sort -n | sed -n 3p
}

# cost EXECUTABLE: peak memory (KiB) and milliseconds from start to end of five short runs.
cost() {
    local begin
    for _ in 1 2 3 4 5; do
        begin=${EPOCHREALTIME/./}
        "$1" bench train --model mlp --device cpu --seconds 0.05 --json >run.json 2>run.err || bad "$(cat run.err)"
        echo $(((${EPOCHREALTIME/./} - begin) / 1000)) >>milliseconds
        grep -oE '"rss_bytes":[0-9]+' run.json | cut -d: -f2 >>bytes
    done
}

if [ -e "$(dirname "$gv")/grapevine-cuda.so" ]; then
    checks=$((checks + 1))
    mkdir with without
    cp "$gv" with/grapevine
    cp "$gv" without/grapevine
    ln -s "$(dirname "$gv")/grapevine-cuda.so" with/grapevine-cuda.so
    for folder in with without with without; do # in turns, and the second pair counts
        rm -f milliseconds bytes
        cost "./$folder/grapevine"
        median <bytes >"$folder/bytes"
        median <milliseconds >"$folder/times"
    done
    awk -v a="$(cat with/bytes)" -v b="$(cat without/bytes)" 'BEGIN { exit !(a < 1.02 * b && b < 1.02 * a) }' ||
        bad "peak memory is $(cat with/bytes) bytes with the module and $(cat without/bytes) without"
    echo "peak memory $(cat with/bytes) bytes with the module, $(cat without/bytes) without;" \
        "a short run $(cat with/times) ms with, $(cat without/times) ms without"
    [ "$(cat with/times)" -lt $((10 * $(cat without/times) + 1000)) ] || bad "the module makes a peer slow to start"
else
    echo "this build has no CUDA module: what it costs was not compared"
fi
finish
