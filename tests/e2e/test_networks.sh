#!/usr/bin/env bash
# Real processes on networks that fail, each host a network namespace on one bridge: tc's tbf makes
# lines slow, nft loses packets. A line for each scene, with what was measured; the exit code is 1 if
# any did not end as its first line says. As root.
#   LONG=1 tests/e2e/test_networks.sh build/release/grapevine     all scenes, about 12 minutes
#   LONG=1 ONLY='mtu|blip' tests/e2e/test_networks.sh ...         some of them (grep -E)
# The simulator has the same scenes in the gate: sim_joining, sim_methods, sim_reach, sim_partition,
# sim_restart.
[ "${LONG:-0}" = 1 ] || { echo "skipped: LONG=1 runs it"; exit 77; }
source "$(dirname "$0")/lib.sh"

for tool in ip nft tc; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
tag=gn$$
ip netns add "${tag}0" 2>/dev/null || { echo "skipped: network namespaces are not permitted"; exit 77; }
ip -n "${tag}0" link add wan type bridge
ip -n "${tag}0" link set wan up
hosts=0
failed=0
declare -A PIDS

clear_up() {
    kill -9 "${PIDS[@]}" 2>/dev/null
    wait 2>/dev/null
    for ((i = 0; i <= hosts; i++)); do ip netns del "$tag$i" 2>/dev/null; done
    rm -rf "$WORK"
}
trap clear_up EXIT

# host RATE: one more host, number $hosts at 203.0.113.$hosts; its line carries so much each way.
host() {
    hosts=$((hosts + 1))
    ip netns add "$tag$hosts"
    ip -n "$tag$hosts" link set lo up
    ip link add eth netns "$tag$hosts" type veth peer name "to$hosts" netns "${tag}0"
    ip -n "${tag}0" link set "to$hosts" master wan up
    ip -n "$tag$hosts" addr add "203.0.113.$hosts/24" dev eth
    ip -n "$tag$hosts" link set eth up
    [ "${1:-}" ] && line "$hosts" "$1"
    within "$hosts" nft add table ip faults
    within "$hosts" nft add chain ip faults in '{ type filter hook input priority 0; }'
    within "$hosts" nft add chain ip faults out '{ type filter hook output priority 0; }'
}

within() { # within HOST COMMAND...
    local space=$1
    shift
    ip netns exec "$tag$space" "$@"
}

line() { # line HOST RATE: both ways
    tc -n "$tag$1" qdisc replace dev eth root tbf rate "$2" burst 32kbit latency 200ms
    tc -n "${tag}0" qdisc replace dev "to$1" root tbf rate "$2" burst 32kbit latency 200ms
}

lose() { # lose HOST in|out RULE...: packets that the rule fits are dropped
    local space=$1 chain=$2
    shift 2
    within "$space" nft add rule ip faults "$chain" "$@" drop
}

heal() { within "$1" nft flush table ip faults; }

# peer HOST FLAGS...: a peer on the host; the first host founds the swarm.
peer() {
    local at=$1 bootstrap=()
    shift
    [ "$at" = "$founder" ] || bootstrap=(--bootstrap "203.0.113.$founder:7077")
    ip netns exec "$tag$at" "$GRAPEVINE" peer --public --listen "203.0.113.$at:7077" "${bootstrap[@]}" --data digits \
        --threads 1 --steps 1000000000 --step-time 20ms --evaluate-samples 0 --report-every 500ms --json "$@" \
        >>"$WORK/$at.out" 2>>"$WORK/$at.err" &
    PIDS[$at]=$!
}

# key HOST KEY: the latest value that the peer has reported; 0 before.
key() {
    local text
    text=$(grep '"report"' "$WORK/$1.out" 2>/dev/null | tail -n 1)
    [[ $text =~ \"$2\":([0-9.]+) ]] && echo "${BASH_REMATCH[1]}" || echo 0
}

# until_true SECONDS COMMAND...: false if it does not come true in that time; took_s says how long it took.
until_true() {
    local begun=$EPOCHREALTIME end=$((SECONDS + $1))
    shift
    until "$@"; do
        ((SECONDS < end)) || return 1
        sleep 0.1
    done
    took_s=$(awk -v a="$begun" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')
}

has() { awk -v value="$(key "$1" "$2")" -v least="$3" 'BEGIN { exit !(value >= least) }'; } # has HOST KEY LEAST
says() { grep -Eq "$2" "$WORK/$1.err"; }                                                      # says HOST PATTERN
lives() { kill -0 "${PIDS[$1]}" 2>/dev/null; }

# dead_among HOST: how many members the peer on the host holds for dead.
dead_among() {
    within "$1" timeout 20 "$GRAPEVINE" status "203.0.113.$1:7077" --json 2>/dev/null | grep -o '"state":"dead"' | wc -l
}
dead_are() { [ "$(dead_among "$1")" -ge "$2" ]; }

stop_all() {
    local at
    for at in "${!PIDS[@]}"; do
        kill -CONT "${PIDS[$at]}" 2>/dev/null
        kill -9 "${PIDS[$at]}"
        wait "${PIDS[$at]}"
    done 2>/dev/null
    PIDS=()
    rm -rf "${WORK:?}"/*
}

scene() { # scene NAME: runs scene_NAME, which sets `told` and fails by its exit code
    [[ $1 =~ ^(${ONLY:-.*})$ ]] || return 0
    founder=$((hosts + 1))
    told=
    if "scene_$1"; then
        echo "ok      $1: $told"
    else
        echo "FAILED  $1: ${told:-}"
        for log in "$WORK"/*.err; do
            echo "--- $log"
            grep -Ev '^ *[0-9.]+ s  step' "$log" | tail -n 4
            tail -n 1 "$log"
        done
        failed=$((failed + 1))
    fi
    stop_all
}

wide=(--model 'linear:2048 relu linear:512 relu linear:classes') # 4.8 MB

# A joiner on a slow line bears a cut of its line that falls after --join-timeout has passed.
scene_blip() {
    host && host && host 4mbit
    peer "$founder" "${wide[@]}" --averaging local-sgd:H=64
    peer $((founder + 1)) "${wide[@]}" --averaging local-sgd:H=64
    until_true 30 has $((founder + 1)) rounds_ok 2 || return 1
    peer $((founder + 2)) "${wide[@]}" --averaging local-sgd:H=64 --join-timeout 3s
    until_true 60 says $((founder + 2)) 'downloading the model' || return 1
    lose $((founder + 2)) in tcp dport 1-65535
    lose $((founder + 2)) out tcp dport 1-65535
    sleep 8
    heal $((founder + 2))
    until_true 180 has $((founder + 2)) step 1 || return 1
    told="trains $took_s s after an 8 s cut in its download"
}

# A late join on lines that rounds fill: it has its model in a small multiple of the time alone.
scene_busy() {
    host 16mbit && host 16mbit && host 16mbit && host 16mbit
    for i in 0 1 2; do peer $((founder + i)) "${wide[@]}" --averaging local-sgd:H=1; done
    until_true 60 has $((founder + 2)) rounds_ok 3 || return 1
    peer $((founder + 3)) "${wide[@]}" --averaging local-sgd:H=1
    until_true 120 has $((founder + 3)) step 1 || return 1
    told="4.8 MB over 16 Mbit/s (2.4 s alone) beside rounds: trains after $took_s s"
}

# The donor dies half-way: what was downloaded is not lost.
scene_donor() {
    host && host && host && host 8mbit
    for i in 0 1 2; do peer $((founder + i)) "${wide[@]}" --averaging local-sgd:H=16; done
    until_true 60 has $((founder + 2)) rounds_ok 3 || return 1
    peer $((founder + 3)) "${wide[@]}" --averaging local-sgd:H=16
    until_true 60 says $((founder + 3)) 'downloading the model' || return 1
    kill -9 "${PIDS[$founder]}"
    until_true 120 has $((founder + 3)) step 1 || return 1
    told="4.8 MB over 8 Mbit/s, a donor killed half-way: trains $took_s s after that"
}

# Packets of more than 1,400 bytes to one are lost: it says that there are no rounds, and why; the others go on.
scene_mtu() {
    host && host && host && host
    lose $((founder + 3)) in meta length gt 1400
    for i in 0 1 2 3; do peer $((founder + i)) --model mlp --averaging local-sgd:H=16; done
    until_true 240 says $((founder + 3)) 'no averaging round for' || says $((founder + 3)) 'no peer|nothing came' || return 1
    told="it says: $(grep -Eo '(no averaging round|downloading the model).*' "$WORK/$((founder + 3)).err" | tail -n 1 | cut -c 1-120)"
    has "$founder" rounds_ok 20
}

# Half of eight freeze: the others notice all of them within seconds.
scene_half() {
    for i in 0 1 2 3 4 5 6 7; do host; done
    for i in 0 1 2 3 4 5 6 7; do peer $((founder + i)) --model linear:classes --averaging local-sgd:H=16; done
    until_true 60 has $((founder + 7)) neighbours 7 && until_true 60 has $((founder + 7)) rounds_ok 5 || return 1
    for i in 4 5 6 7; do kill -STOP "${PIDS[$((founder + i))]}"; done
    until_true 90 dead_are "$founder" 4 || return 1
    told="all four known dead after $took_s s"
    awk -v took="$took_s" 'BEGIN { exit !(took < 20) }'
}

# 30 % of what one sends is lost: the others' rounds go on.
scene_lossy() {
    host && host && host && host
    for i in 0 1 2 3; do peer $((founder + i)) --model linear:classes --averaging local-sgd:H=16; done
    until_true 60 has $((founder + 3)) rounds_ok 5 || return 1
    lose $((founder + 3)) out meta random lt 1288490188
    before=$(key "$founder" rounds_ok)
    sleep 20
    told="$(($(key "$founder" rounds_ok) - before)) rounds in 20 s beside it"
    has "$founder" rounds_ok $((before + 10))
}

# In pairs, a peer that was away while the others took thousands of steps takes their model.
scene_stale() {
    host && host && host
    for i in 0 1 2; do peer $((founder + i)) --model linear:classes --averaging ad-psgd:H=8 --out "$WORK/out$i"; done
    until_true 60 has $((founder + 2)) rounds_ok 5 || return 1
    kill -TERM "${PIDS[$((founder + 2))]}"
    wait "${PIDS[$((founder + 2))]}"
    mark=$(key "$founder" step)
    until_true 120 has "$founder" step $((mark + 3000)) || return 1
    : >"$WORK/$((founder + 2)).out"
    peer $((founder + 2)) --model linear:classes --averaging ad-psgd:H=8 --out "$WORK/out2"
    until_true 20 has $((founder + 2)) step $((mark + 2500)) || return 1
    told="3,000 steps away: at step $(key $((founder + 2)) step) $took_s s after its start"
}

# Few descriptors: a model is kept all the same.
scene_descriptors() {
    host && host
    peer "$founder" --model linear:classes
    (
        ulimit -n 28
        exec ip netns exec "$tag$((founder + 1))" "$GRAPEVINE" peer --public --listen "203.0.113.$((founder + 1)):7077" \
            --bootstrap "203.0.113.$founder:7077" --data digits --model linear:classes --steps 300 --step-time 5ms --out "$WORK/few"
    ) >"$WORK/$((founder + 1)).out" 2>"$WORK/$((founder + 1)).err"
    [ -s "$WORK/few/model.safetensors" ]
    code=$?
    told="28 descriptors: $(tail -n 1 "$WORK/$((founder + 1)).out" | cut -c 1-80)"
    return $code
}

# A peer of another method is refused by name on both sides, and costs nobody a round.
scene_method() {
    host && host && host
    for i in 0 1; do peer $((founder + i)) --model linear:classes --averaging local-sgd:H=16; done
    until_true 60 has $((founder + 1)) rounds_ok 5 || return 1
    peer $((founder + 2)) --model linear:classes --averaging ad-psgd
    wait "${PIDS[$((founder + 2))]}"
    code=$?
    told="exit $code: $(grep -o 'refused this peer.*' "$WORK/$((founder + 2)).err" | cut -c 1-90)"
    [ $code -eq 1 ] && says "$founder" "refused 203.0.113.$((founder + 2)):.*exchange pair"
}

# Two peers behind routers and one in the open: they are linked over it; it dies and comes back, and so do they.
scene_relay() {
    host && host && host
    for i in 1 2; do # what a router lets in: answers
        within $((founder + i)) nft add rule ip faults in ct state established,related accept
        within $((founder + i)) nft add rule ip faults in iifname lo accept
        lose $((founder + i)) in tcp dport 1-65535
    done
    for i in 0 1 2; do peer $((founder + i)) --model linear:classes --averaging local-sgd:H=16; done
    until_true 90 has $((founder + 1)) neighbours 2 || return 1
    told="linked over the third after $took_s s"
    kill -9 "${PIDS[$founder]}"
    wait "${PIDS[$founder]}" 2>/dev/null
    sleep 40
    peer "$founder" --model linear:classes --averaging local-sgd:H=16 --bootstrap "203.0.113.$((founder + 1)):7077"
    until_true 120 has $((founder + 1)) neighbours 2 || return 1
    told+=", 40 s without it, and again $took_s s after it came back"
}

for name in method blip busy donor mtu half lossy stale descriptors relay; do scene "$name"; done
((failed == 0))
