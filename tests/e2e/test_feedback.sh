#!/usr/bin/env bash
# Rounds of differences with error feedback, with real processes on loopback: three peers learn; one dies by SIGKILL at points
# inside a round, and by a plain kill -9, and goes on each time from its checkpoint, anchor and residual included, while the
# others go on. What `--audit` writes says that nothing but steps and settled rounds changed a model.
source "$(dirname "$0")/lib.sh"

common=(--data digits --model mlp --steps 1000000000 --seed 3 --checkpoint-every 1s)

launch() { # launch NAME FLAGS...
    local name=$1
    shift
    start_peer "$name" "${common[@]}" "${method[@]}" --out "$WORK/$name-$RUN" --audit "$WORK/$name-$RUN.audit" "$@"
}

RUN=0
for spec in "--averaging sparseloco:H=8" "--averaging diloco:H=8,lr=0.5 --codec int8+ef:0.9"; do
    DOING=$spec
    RUN=$((RUN + 1))
    read -ra method <<<"$spec"
    launch a
    launch b --bootstrap "${PEER_ADDRESS[a]}"
    launch v --bootstrap "${PEER_ADDRESS[a]}"
    for name in a b v; do
        wait_more "$name" rounds_ok 5 180
    done
    for point in "" group:reduced:3 round:settling:3 group:mean-agreed:3; do
        kill_peer v
        if [ -n "$point" ]; then
            DOING="$spec, $point"
            export GRAPEVINE_CRASH_POINT=$point
            launch v --bootstrap "${PEER_ADDRESS[a]}"
            unset GRAPEVINE_CRASH_POINT
            code=0
            wait "${PEER_PID[v]}" 2>/dev/null || code=$?
            [ $code -eq 137 ] || fail "the victim ended with code $code, not by SIGKILL"
        fi
        launch v --bootstrap "${PEER_ADDRESS[a]}"
        for name in a b v; do
            wait_more "$name" rounds_ok 5 180
        done
    done
    for name in a b v; do
        wait_line "$name" '"accuracy":0\.9' 180
        stop_peer "$name" || fail "peer $name did not stop cleanly"
    done
    if grep -n violation "$WORK"/*-"$RUN".audit; then fail "the audit found something"; fi
done
echo "differences with error feedback: three peers learned, one of them in nine lives"
