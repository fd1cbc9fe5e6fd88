#!/usr/bin/env bash
# What a swarm costs a peer that does nothing: resident memory of peers linked with all others, with
# a tiny model (linear, 650 values) and a step every ten seconds; then beside idle strangers, and
# beside garbage handshakes as fast as one process can send them.
#   tests/bench/idle_members.sh build/release/grapevine [MEMBERS, 64]
[ -x "${1:-}" ] || { echo "idle_members.sh: no executable '${1:-}': idle_members.sh GRAPEVINE [MEMBERS]" >&2; exit 2; }
source "$(dirname "$0")/../e2e/lib.sh"

members=${2:-64}
evil=$(dirname "$GRAPEVINE")/tests/evil
common=(--data digits --model linear:classes --averaging none --threads 1)

rss() { awk '/^VmRSS/ { print $2 }' "/proc/$1/status"; }

linked() { # of the first peer
    timeout 60 "$GRAPEVINE" status "${PEER_ADDRESS[p1]}" --json --join-timeout 30s |
        grep -o '"neighbours":\[[^]]*' | grep -o ',\|\["' | wc -l
}

start_peer p1 "${common[@]}" --step-time 10s --steps 1000000000
alone=$(rss "${PEER_PID[p1]}")
for ((i = 2; i <= members; i++)); do
    start_peer "p$i" "${common[@]}" --step-time 10s --steps 1000000000 --bootstrap "${PEER_ADDRESS[p1]}"
done
for ((tries = 0; tries < 120; tries++)); do
    now=$(linked) && ((now >= members - 1)) && break
    sleep 2
done
echo "one peer alone: $alone KiB; with $now linked members: $(rss "${PEER_PID[p1]}") KiB at once"
sleep "${SETTLE:-60}"
for ((i = 1; i <= members; i++)); do rss "${PEER_PID[p$i]}"; done | sort -n |
    awk -v n="$members" '{ a[NR] = $1 } END { print n " peers a minute later, KiB: least " a[1] \
        ", median " a[int((NR + 1) / 2)] ", most " a[NR] }'
[[ -x $evil ]] || exit 0
before=$(rss "${PEER_PID[p1]}")
start_process strangers "$evil" "${PEER_ADDRESS[p1]}" idle 60 10000
wait_line strangers holding 240
echo "10,000 idle strangers: $before -> $(rss "${PEER_PID[p1]}") KiB"
kill_peer strangers
before=$(rss "${PEER_PID[p1]}")
start_process garbage "$evil" "${PEER_ADDRESS[p1]}" garbage 30
sleep 2
begun=$(date +%s%N)
timeout 120 "$GRAPEVINE" peer --listen 127.0.0.1:0 "${common[@]}" --steps 1 \
    --bootstrap "${PEER_ADDRESS[p1]}" >"$WORK/late.err" 2>&1 || echo "a member did not get in"
ended=$(date +%s%N)
wait "${PEER_PID[garbage]}"
echo "garbage handshakes: $(tail -1 "$WORK/garbage.out"); $before -> $(rss "${PEER_PID[p1]}") KiB;" \
    "a member was in and through in $(((ended - begun) / 1000000)) ms"
