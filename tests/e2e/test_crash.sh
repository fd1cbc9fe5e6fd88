#!/usr/bin/env bash
# A peer dies by SIGKILL inside a round, a download or a checkpoint, at a named point
# (base/crash_point.h), and again in its next life at another. The others go on averaging; each round
# they were in ended with the agreed result or left every byte as it was, and each life of the victim
# begins with the bytes of one of its checkpoints: what `--audit` writes says so (audit.awk).
# LONG=1: all points, over each exchange; ONLY=pair, group, schedule, push or edges: over one. Of shares and edges
# the audit sees that nothing but steps and settled rounds changed a model, not what they settled.
source "$(dirname "$0")/lib.sh"

POINTS=$(GRAPEVINE_CRASH_POINT=list "$GRAPEVINE")
LIVES=0

# launch NAME POINT FLAGS...: a peer, armed if POINT is not empty.
launch() {
    local name=$1 point=$2
    shift 2
    if [ -n "$point" ]; then export GRAPEVINE_CRASH_POINT=$point; fi
    start_peer "$name" "${common[@]}" --out "$FOLDER/$name" --audit "$FOLDER/$name.audit" "$@"
    unset GRAPEVINE_CRASH_POINT
}

is_alive() { kill -0 "${PEER_PID[$1]}" 2>/dev/null; }

# crashed NAME: it is dead; by SIGKILL?
crashed() {
    local code
    wait "${PEER_PID[$1]}" 2>/dev/null
    code=$?
    unset "PEER_PID[$1]"
    exec {PEER_FD[$1]}<&- || return 1
    [ $code -eq 137 ] || fail "peer $1 ended with code $code, not by SIGKILL"
}

forget() { # forget NAME: its next life knows nothing
    rm -rf "${FOLDER:?}/$1"
    echo fresh >>"$FOLDER/$1.audit"
}

# How often a point is passed before it kills: later than the first, where rounds pass it.
count_of() {
    case $1 in
    file:*) echo 9 ;; # keys and configuration are files, too
    round:chunk-*) echo 5 ;;
    round:* | pair:offer-* | pair:accept-* | swap:ready-* | swap:commit-* | group:* | schedule:*) echo 2 ;;
    *) echo 1 ;;
    esac
}

# A fourth peer that does what brings the victim to its point.
nudge() {
    case $1 in
    round:aborted) launch j round:encoded:2 --bootstrap "${PEER_ADDRESS[v]}" ;;
    pair:in-doubt) launch j swap:ready-received --bootstrap "${PEER_ADDRESS[v]}" ;;
    swap:outcome-req-sent | swap:outcome-received | pair:doubt-settled)
        launch j swap:ready-received:stop --bootstrap "${PEER_ADDRESS[v]}" ;;
    swap:outcome-req-received | swap:outcome-sent)
        launch j swap:ready-sent:stop --bootstrap "${PEER_ADDRESS[v]}" ;;
    join:* | edge:* | swap:*) forget j && launch j "" --bootstrap "${PEER_ADDRESS[v]}" ;;
    *) launch j "" --bootstrap "${PEER_ADDRESS[v]}" ;;
    esac
}

# The nudging peer has had its time: away with it. It may hang at a stop point.
drop_nudger() {
    [ -n "${PEER_PID[j]:-}" ] || return 0
    kill -CONT "${PEER_PID[j]}" 2>/dev/null
    kill -9 "${PEER_PID[j]}" 2>/dev/null
    wait "${PEER_PID[j]}" 2>/dev/null
    unset "PEER_PID[j]"
}

# wait_crash POINT: until the victim has died there.
wait_crash() {
    local point=$1 end=$((SECONDS + 400)) since=$SECONDS patience=1
    case $point in # what does not come by itself
    round:aborted | round:abort-* | pair:in-doubt | swap:outcome-* | pair:doubt-settled) patience=0 ;;
    esac
    while is_alive v; do
        ((SECONDS < end)) || fail "the victim did not come to $point in 400 s"
        if ((SECONDS - since >= patience)); then
            drop_nudger
            case $point in
            round:abort-sent)
                kill -TERM "${PEER_PID[v]}"
                wait "${PEER_PID[v]}"
                if [ $? -ne 137 ]; then launch v "$point" --bootstrap "${PEER_ADDRESS[a]}"; else return 0; fi
                sleep 0.4
                ;;
            round:abort-received)
                nudge "$point"
                wait_line j '"rounds_ok":[1-9]' 60
                kill -TERM "${PEER_PID[j]}"
                ;;
            *:stop | swap:outcome-* | pair:doubt-settled)
                nudge "$point"
                for ((i = 0; i < 90; i++)); do # longer than a partner waits for the outcome
                    is_alive v || break
                    sleep 0.1
                done
                kill -CONT "${PEER_PID[j]}" 2>/dev/null
                ;;
            *) nudge "$point" ;;
            esac
            patience=2
            since=$SECONDS
        fi
        sleep 0.05
    done
    drop_nudger
}

# campaign NAME METHOD POINT...
campaign() {
    local point
    local -a method
    read -ra method <<<"$2"
    FOLDER=$WORK/$1
    mkdir "$FOLDER"
    # Nothing is clipped: the audit asks whether each took exactly what another told.
    common=(--data digits --model 'linear:1024 relu linear:classes' --batch 16 --threads 1 --seed 3
        --averaging "${method[@]}" --robust none --step-time 5ms --steps 1000000000 --checkpoint-every 100ms --evaluate-samples 0)
    shift 2
    launch a ""
    launch b "" --bootstrap "${PEER_ADDRESS[a]}"
    wait_more a rounds_ok 2 120
    for point in "$@"; do
        DOING=$point
        case $point in join:state-req-sent | join:manifest-received | join:bucket-req-sent | join:bucket-received | \
            join:state-done-sent | join:assign* | edge:*) forget v ;; esac
        # On an edge the end with the smaller id decides: a new life is of both kinds in turn.
        case ${FOLDER##*/}/$point in edges/swap:*) forget v ;; esac
        # Fewer partners, so that the nudging peer meets the victim sooner.
        case $point in swap:outcome-*) stop_peer b ;; esac
        launch v "$point:$(count_of "$point")" --bootstrap "${PEER_ADDRESS[a]}"
        wait_crash "$point"
        [ -n "${PEER_PID[b]:-}" ] || launch b "" --bootstrap "${PEER_ADDRESS[a]}"
        [ -n "${PEER_PID[v]:-}" ] && crashed v
        LIVES=$((LIVES + 1))
        wait_more a rounds_ok 1 120
        [ "${LONG:-}" ] && echo "${method[*]}: killed at $point"
    done
    DOING=end
    launch v "" --bootstrap "${PEER_ADDRESS[a]}"
    wait_more v rounds_ok 2 120
    for name in a b v; do
        stop_peer $name || fail "peer $name did not stop cleanly"
    done
    awk -f "$(dirname "$0")/audit.awk" "$FOLDER"/*.audit || fail "the audit of ${method[*]}"
}

if [ "${LONG:-}" ]; then
    [ "${ONLY:-pair}" = pair ] &&
        mapfile -t list < <(grep -E '^(pair|swap|round|join|checkpoint|file):' <<<"$POINTS") && campaign pair ad-psgd:H=4 "${list[@]}"
    [ "${ONLY:-group}" = group ] &&
        mapfile -t list < <(grep -E '^(group|round|join|checkpoint|file):' <<<"$POINTS") && campaign group local-sgd:H=4 "${list[@]}"
    [ "${ONLY:-schedule}" = schedule ] && for schedule in ring halving tree; do
        mapfile -t list < <(grep -E '^schedule:' <<<"$POINTS") &&
            campaign $schedule "local-sgd:H=4 --exchange group:$schedule" "${list[@]}"
    done
    for other in 'push push-sum:H=4 ^(push|checkpoint):' 'edges dpsgd:H=4 ^(edge:|swap:(ready|commit)|round:(snapshot-taken|encoded|committed|settl|appl|done))'; do
        read -r name method points <<<"$other"
        [ "${ONLY:-$name}" = "$name" ] || continue
        mapfile -t list < <(grep -E "$points" <<<"$POINTS") && campaign "$name" "$method" "${list[@]}"
    done
else
    campaign pair ad-psgd:H=4 swap:ready-sent swap:ready-received swap:commit-received
    campaign ring 'local-sgd:H=4 --exchange group:ring' schedule:mean-kept
    campaign group local-sgd:H=4 group:mean-chunk-queued group:start-received checkpoint:encoded
fi
echo "$LIVES lives ended by SIGKILL inside a round, a download or a checkpoint: nobody was harmed"
