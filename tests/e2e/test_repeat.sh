#!/usr/bin/env bash
# One peer and one seed give the same model to the bit each time, however the run is cut into jobs,
# reports and checkpoints, and also when it is stopped half-way and resumed. Another seed does not.
source "$(dirname "$0")/lib.sh"

run() { # run NAME FLAGS...
    local name=$1
    shift
    "$GRAPEVINE" peer --listen 127.0.0.1:0 --data digits --model mlp --steps 300 --quiet --out "$WORK/$name" "$@" \
        >"$WORK/$name.out" 2>"$WORK/$name.err" || fail "run $name exited with $?"
}

run one --seed 7 --report-every 10s
run two --seed 7 --report-every 50ms --checkpoint-every 60ms
run other --seed 8
cmp "$WORK/one/model.safetensors" "$WORK/two/model.safetensors" || fail "the same seed gave two models"
! cmp -s "$WORK/one/model.safetensors" "$WORK/other/model.safetensors" || fail "another seed gave the same model"

start_peer half --data digits --model mlp --steps 300 --seed 7 --out "$WORK/half"
kill -INT "${PEER_PID[half]}"
wait_exit half
run half --seed 7
cmp "$WORK/one/model.safetensors" "$WORK/half/model.safetensors" || fail "a stopped and resumed run gave another model"
echo "the same seed gives the same model, interrupted or not"
