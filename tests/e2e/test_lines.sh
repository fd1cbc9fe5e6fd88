#!/usr/bin/env bash
# A testnet of real processes on bad lines (--link), with a partition and a slowed peer: a ping takes
# the way there and back at least, the swarm stays one and averages, and what is wrong is refused.
# Nothing here depends on how fast the machine is: times are only ever bounded from below.
source "$(dirname "$0")/lib.sh"

start_process net "$GRAPEVINE" testnet --peers 3 --data digits --model linear:classes --threads 1 --step-time 5ms \
    --hetero list:1,0.8 --start-with 3 --averaging ad-psgd:H=4 --steps 1200 --evaluate-samples 0 --report-every 200ms \
    --link delay=40ms,jitter=5ms,loss=0.1%,rate=100mbit --chaos 'partition:mtbf=1s,for=500ms;slow:mtbf=1s,for=500ms' \
    --out "$WORK/run" --json

# An observer dials the first peer through its gate, too.
address=
for ((i = 0; i < 1200; i++)); do
    address=$(grep -ohE "linked with 127[.]0[.]0[.]1:[0-9]+" "$WORK"/run/peer-001/log.txt 2>/dev/null | head -n 1)
    [ -n "$address" ] && break
    sleep 0.05
done
[ -n "$address" ] || fail "nobody linked with the first peer"
rtt=
for ((i = 0; i < 600; i++)); do
    "$GRAPEVINE" status "${address#linked with }" --json >"$WORK/status.json" 2>/dev/null
    rtt=$(grep -oE '"rtt_ms":[0-9.]+' "$WORK/status.json" | head -n 1)
    [ -n "$rtt" ] && break
    sleep 0.1
done
[ -n "$rtt" ] || fail "no round trip was ever measured: $(cat "$WORK/status.json")"
awk -v ms="${rtt#*:}" 'BEGIN { exit !(ms >= 79) }' || fail "over 40 ms each way a ping took $rtt"

# A peer that dies while its gate has bytes for it must not take the testnet along.
ignored=$(sed -n 's/^SigIgn:[[:space:]]*//p' "/proc/${PEER_PID[net]}/status" 2>/dev/null)
[ -z "$ignored" ] || (((16#$ignored & 0x1000) != 0)) || fail "SIGPIPE would end the testnet"

wait_exit net || fail "the testnet: $?"
summary=$WORK/run/summary.json
grep -q '"finished": 3' "$summary" || fail "not all finished: $(cat "$summary")"
grep -q '"rounds_ok": [1-9]' "$summary" || fail "no rounds"
grep -q '"faults_injected": [1-9]' "$summary" || fail "no fault struck"
grep -qE '"event":"fault".*"kind":"(partition|slow)"' "$WORK/run/events.jsonl" || fail "no fault in events.jsonl"

for wrong in '--link delay=soon' '--hetero list:1,x' '--hetero list:1,0.1' '--chaos partition:for=1s'; do
    # shellcheck disable=SC2086
    "$GRAPEVINE" testnet --peers 2 $wrong --out "$WORK/no" >/dev/null 2>"$WORK/wrong.err"
    [ $? -eq 2 ] || fail "testnet $wrong is not refused"
done
[ ! -e "$WORK/no" ] || fail "a refused testnet left files"
echo "three peers, 80 ms there and back, cut in two and slowed: one swarm, ${rtt#*:} ms measured"
