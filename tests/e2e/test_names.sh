#!/usr/bin/env bash
# Names of --bootstrap that do not resolve yet are asked for again as long as --join-timeout lasts, as those of pods that are not
# there yet: a peer whose one name appears later joins by it, and one that finds itself behind its own name, and nobody behind the
# others, begins alone. The names stand in a hosts file of our own, in a mount namespace.
if [ -z "${NAMES_ALONE:-}" ]; then
    NAMES_ALONE=1 unshare -m true 2>/dev/null || { echo "skipped: mount namespaces are not permitted"; exit 77; }
    NAMES_ALONE=1 exec unshare -m bash "$0" "$@"
fi
source "$(dirname "$0")/lib.sh"

echo "127.0.0.1 localhost peer-0.test" >"$WORK/hosts"
echo "hosts: files" >"$WORK/nsswitch.conf"
for file in hosts nsswitch.conf; do
    mount --bind "$WORK/$file" "/etc/$file" || { echo "skipped: /etc/$file cannot be replaced here"; exit 77; }
done
common=(--data digits --model mlp --batch 8 --averaging local-sgd:H=64 --time 1h)

# Who has a name that never comes gives up when the time is over, and says why.
"$GRAPEVINE" peer --listen 127.0.0.1:0 --bootstrap never.test:7077 --join-timeout 1s "${common[@]}" >/dev/null 2>"$WORK/never"
[ $? -eq 1 ] || fail "a name that never resolves: $(cat "$WORK/never")"
grep -q "never.test:7077" "$WORK/never" || fail "what was tried is not said: $(cat "$WORK/never")"

start_peer a "${common[@]}"
port=${PEER_ADDRESS[a]##*:}
start_peer b "${common[@]}" --bootstrap "peer-1.test:$port" --join-timeout 1h --verbose
end=$((SECONDS + 60)) # the name has been asked for in vain
until grep -q "peer-1.test.*name" "$WORK/b.err"; do
    ((SECONDS < end)) || fail "b did not ask for the name"
    sleep 0.05
done
kill -0 "${PEER_PID[b]}" || fail "b ended, though it had an hour"
echo "127.0.0.1 peer-1.test" >>"$WORK/hosts"
wait_line b '"rounds_ok":[1-9]' 120

# The first pod: its own name is in the list that all have. A port of its own, known before.
stop_peer a || fail "a did not end cleanly"
stop_peer b || fail "b did not end cleanly"
start_process c "$GRAPEVINE" peer --listen "127.0.0.1:$port" --json --report-every 200ms "${common[@]}" \
    --bootstrap "peer-0.test:$port,peer-2.test:$port" --join-timeout 3s
wait_line c '"step":[1-9]' 120
grep -q "this peer trains alone" "$WORK/c.err" || fail "it does not say that it is alone"
stop_peer c || fail "c did not end cleanly"
echo "names that come later are found"
