#!/usr/bin/env bash
# What a service manager is told, with a socket in its place: signs of life from the loop while the peer
# joins, READY=1 once it holds the swarm's model and not before, RELOADING=1 and READY=1 around SIGHUP,
# which ends no peer and makes it read its list of addresses again, and STOPPING=1; through a path and
# through an abstract name. An address that cannot be used is said, and the peer runs.
source "$(dirname "$0")/lib.sh"
python=/usr/bin/python3
[ -x $python ] || { echo "skipped: python3 is not installed"; exit 77; }
cd "$WORK" || exit 1

# manager NAME ADDRESS: what is sent there, each datagram a line that the process NAME says.
manager() {
    start_process "$1" $python -c '
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1].replace("@", "\0", 1))
print("bound", flush=True)
while True: print(s.recv(4096).decode().replace("\n", " "), flush=True)' "$2"
    wait_line "$1" '^bound$' 60
}
common=(--data digits --model mlp --steps 1000000000)

# The founder has a model at once.
manager path "$WORK/socket"
NOTIFY_SOCKET=$WORK/socket start_peer a "${common[@]}"
wait_line path '^READY=1 WATCHDOG=1 STATUS=(training|waiting): step [0-9]+' 120
kill -HUP "${PEER_PID[a]}"
wait_line path '^RELOADING=1 MONOTONIC_USEC=[0-9]{4,}$' 120
wait_line path '^READY=1$' 120
wait_line path '^WATCHDOG=1 STATUS=training: step [1-9]' 120

# Who joins has none as long as nobody answers.
kill -STOP "${PEER_PID[a]}"
manager name "@grapevine-test-$$"
echo "${PEER_ADDRESS[a]}" >list
NOTIFY_SOCKET=@grapevine-test-$$ WATCHDOG_USEC=2000000 start_peer b "${common[@]}" --bootstrap @list --join-timeout 1h
wait_line name STATUS= 120
[[ $LINE == 'WATCHDOG=1 STATUS=joining: step 0, round 0, 0 neighbours' ]] || fail "while it joins: $LINE"
echo "not an address" >>list
kill -HUP "${PEER_PID[b]}"
until grep -q 'not HOST:PORT.*stay in force' b.err; do wait_line name STATUS=joining 120; done
sed -i 1q list
kill -HUP "${PEER_PID[b]}"
until grep -q 'read again: 1 addresses in --bootstrap' b.err; do wait_line name STATUS=joining 120; done
kill -CONT "${PEER_PID[a]}"
while wait_line name . 120 && [[ $LINE == *STATUS=[jl]o* ]]; do [[ $LINE == WATCHDOG=1\ * ]] || fail "before it has a model: $LINE"; done
[[ $LINE == 'READY=1 WATCHDOG=1 STATUS=training'* ]] || fail "not told that it is ready: $LINE"
wait_line name 'round [1-9][0-9]*, 1 neighbour$' 120
grep -q 'WatchdogSec=10 or more' b.err || fail "a watchdog of 2 s was not spoken of"
stop_peer b || fail "exit code after SIGTERM"
wait_line name '^STOPPING=1$' 120
stop_peer a || fail "exit code after SIGTERM"
wait_line path '^STOPPING=1$' 120

# What is no address.
for socket in relative "/$(printf 'x%.0s' {1..120})" vsock:2:1; do
    NOTIFY_SOCKET=$socket start_peer "odd" --data digits --model mlp --steps 1 --averaging none
    wait_exit odd || fail "exit code with NOTIFY_SOCKET=$socket"
    grep -q "NOTIFY_SOCKET ${socket:0:80}.*is told nothing" odd.err || fail "nothing said of $socket: $(cat odd.err)"
done
echo "a service manager is told what a peer does"
