#!/bin/bash
# Peers of one name find each other on this machine by multicast, whether one is there first or both
# begin together, and end with one model; another key or another name is left alone. Beacons of one
# that is gone, sent again, keep nobody from joining or beginning; sent from elsewhere they are
# refused. Skipped where multicast does not work.
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$WORK" || exit 1

"$GRAPEVINE" doctor --listen 127.0.0.1:0 >doctor.out 2>&1
if ! grep -q '^fine *  *multicast: --discover finds peers' doctor.out; then
    echo "no multicast here: $(grep multicast doctor.out)"
    exit 77
fi
name=test-$$-$RANDOM
for key in a b; do "$GRAPEVINE" keygen --swarm-key --out $key.key >/dev/null || fail "no key"; done

one_model() { # one_model PEER...: how far their parameters are from their mean
    "$GRAPEVINE" average "${@/%//model.safetensors}" --out mean --json >mean.json || fail "no average"
    LINE=$(cat mean.json)
    awk -v d="$(number consensus_distance)" 'BEGIN { exit !(d < 0.01) }' || fail "not one model: $LINE"
}

DOING="two begin together, a third joins by the name, and two others must not"
flags=(--listen 127.0.0.1:0 --json --report-every 200ms)
start_process wrong "$GRAPEVINE" join --discover "$name" --swarm-key b.key --join-timeout 6s
start_process other "$GRAPEVINE" join --discover "$name-b" --swarm-key a.key --join-timeout 6s
for peer in one two; do
    start_process $peer "$GRAPEVINE" peer "${flags[@]}" --discover "$name" --swarm-key a.key --start-with 3 --steps 200 --step-time 2ms --out $peer
done
start_process three "$GRAPEVINE" join "${flags[@]}" --discover "$name" --swarm-key a.key --start-with 3 --step-time 2ms --out three
for peer in one two three; do
    wait_exit $peer || fail "$peer does not end well"
    [[ $LINE =~ '"rounds_ok":0,' ]] && fail "$peer had no round: $LINE"
done
one_model one two three
for peer in wrong other; do
    wait_exit $peer && fail "$peer has joined"
    grep -q "^grapevine: --discover $name.*: no peer of this name" $peer.err || fail "$peer does not say why"
done
[ "$(grep -c "a peer at 127.0.0.1 has this name and another --swarm-key" wrong.err)" -eq 1 ] ||
    fail "another key is not told once"
grep -q 'has this name' other.err && fail "another name is told of"

DOING="a peer that is gone, and whoever sends its beacon again"
cat >beacons.py <<'P'
"""beacons.py FILE: keep the next beacon heard. beacons.py FILE HOST: send it from HOST until it is killed."""
import socket, struct, sys, time
group, lo = "239.71.86.1", socket.inet_aton("127.0.0.1")
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
if len(sys.argv) == 2:
    s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    s.bind((group, 7077))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group) + lo)
    s.settimeout(30)
    data = b""
    while not data.startswith(b"gvhere"): data = s.recv(2048)
    open(sys.argv[1], "wb").write(data)
else:
    data = open(sys.argv[1], "rb").read()
    s.bind((sys.argv[2], 0))
    s.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, lo)
    while True:
        for i in range(20): s.sendto(data, (group, 7077))
        print("sent", flush=True)
        time.sleep(0.05)
P
name=gone-$$-$RANDOM
one=("$GRAPEVINE" peer "${flags[@]}" --swarm-key a.key --step-time 2ms --join-timeout 4s --discover "$name")
start_process gone "${one[@]}" --steps 100000000
wait_line gone '"listening"' 60
python3 beacons.py beacon || fail "no beacon"
kill -9 "${PEER_PID[gone]}"
for host in 127.0.0.1 127.0.0.2; do start_process "again$host" python3 beacons.py beacon $host; done
for host in 127.0.0.1 127.0.0.2; do wait_line "again$host" sent 60; done
start_process stays "${one[@]}" --steps 2000 --start-with 2 --out stays
wait_line stays '"listening"' 60
start_process joins "$GRAPEVINE" join "${flags[@]}" --discover "$name" --swarm-key a.key --join-timeout 20s --start-with 2 --step-time 2ms --out joins
for peer in stays joins; do wait_exit $peer || fail "$peer does not end well"; done
one_model stays joins
grep -q 'found one at 127.0.0.1:' stays.err || fail "the beacon of the one that is gone is not heard"
grep -q 'nobody to join at 127.0.0.1:.*looking on' joins.err || fail "who joins does not say that it goes on"
grep -q '127.0.0.2:' stays.err joins.err && fail "a beacon sent again from elsewhere is dialled"
grep -q 'a peer at 127.0.0.2 has this name and .*sends again what it heard' joins.err || fail "it goes unsaid"
grep -q 'only peers on this machine will find this one, .* give --listen' stays.err || fail "who listens here alone does not say so"
start_process public "$GRAPEVINE" peer --discover "$name" --listen 127.0.0.1:0 --steps 1
start_process last "$GRAPEVINE" join --discover "$name" --swarm-key a.key --join-timeout 2s
wait_exit last && fail "joined nobody"
grep -q 'nobody who was heard on the local network lets this peer in, the last: 127.0.0.1:.* cannot be reached' last.err || fail "who was heard is not said"
wait_exit public || fail "no public one"
grep -q 'only peers on this machine will find this one, .* give --swarm-key FILE (or --public' public.err || fail "how to be found is not said"
DOING="a peer whose first find is gone begins alone"
"${one[@]}" --steps 20 >alone.out 2>alone.err || fail "it ends"
grep -q 'no other peer has answered: this peer trains alone' alone.err || fail "it does not say so"

DOING="an address that others can dial"
start_process wide "$GRAPEVINE" peer --listen 0.0.0.0:0 --json --report-every 200ms --swarm-key a.key --steps 100000000
wait_line wide '"event":"report"' 60
port=$(sed -n 's/.*"listening".*:\([0-9]*\)".*/\1/p' wide.out)
"$GRAPEVINE" status "127.0.0.1:$port" --swarm-key a.key --json >status.json || fail "no status"
grep -qE "\"address\":\"[1-9][0-9.]+:$port\"" status.json || fail "it is said to be at $(grep -oE '"address":"[^"]*"' status.json | head -n 1)"

DOING=names
"$GRAPEVINE" join --data digits 2>no.err && fail "neither address nor name"
grep -q -- 'join: HOST:PORT is missing; .* --discover NAME' no.err || fail "what is missing is not said"
"$GRAPEVINE" peer --discover "$(printf 'x%.0s' {1..65})" --listen 127.0.0.1:0 --steps 1 2>no.err && fail "a name of 65 letters"
grep -q -- '--discover: a name has 1 to 64 letters' no.err || fail "which names there are is not said"
exit 0
