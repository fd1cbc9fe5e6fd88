#!/usr/bin/env bash
# Two real peers that would exchange as much as the machine allows, with --rate-limit 8mbit: what
# either has sent and received, by its own count over its own clock, stays below 1.05 times the cap,
# and rounds go on. However slow the machine is, it only makes the bytes fewer.
source "$(dirname "$0")/lib.sh"

limit=8000000
common=(--data digits --model mlp --averaging local-sgd:H=1 --time 1h --rate-limit 8mbit)

start_peer a "${common[@]}"
start_peer b "${common[@]}" --bootstrap "${PEER_ADDRESS[a]}"
for name in a b; do
    wait_line $name '"rounds_ok":[1-9]' 180
    wait_line $name '"t":([6-9]|[1-9][0-9])' 180
    for key in bytes_sent bytes_received; do
        awk -v bytes="$(number $key)" -v t="$(number t)" -v limit=$limit \
            'BEGIN { printf "%.3f of the cap\n", bytes * 8 / (t * limit); exit !(bytes * 8 <= 1.05 * limit * t) }' ||
            fail "$name: $key is above the cap: $LINE"
    done
done
"$GRAPEVINE" status "${PEER_ADDRESS[b]}" --join-timeout 60s >"$WORK/status" || fail "no status through the cap"
kill -TERM "${PEER_PID[a]}" "${PEER_PID[b]}"
for name in a b; do
    wait_exit $name
    code=$?
    [ $code -eq 143 ] || fail "$name: exit code $code after SIGTERM"
done
echo "two peers kept below their cap"
