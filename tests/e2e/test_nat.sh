#!/usr/bin/env bash
# Two peers behind NATs of their own (network namespaces, nft masquerade) and one in the open: the
# hidden ones find out that they can only dial out, the other that it can be dialled, and the hidden
# ones are linked with each other through it. It goes away until they are dead to each other; then
# another one comes, and they are linked through that. LONG=1 runs it; it needs to be root.
[ "${LONG:-0}" = 1 ] || { echo "skipped: LONG=1 runs it"; exit 77; }
source "$(dirname "$0")/lib.sh"

tag=gv$$
spaces=("${tag}w" "${tag}r1" "${tag}h1" "${tag}r2" "${tag}h2")
for tool in ip nft; do
    command -v "$tool" >/dev/null || { echo "skipped: $tool is not installed"; exit 77; }
done
ip netns add "${spaces[0]}" 2>/dev/null || { echo "skipped: network namespaces are not permitted"; exit 77; }
ip netns del "${spaces[0]}"

pids=()
leave() {
    kill -9 "${pids[@]}" 2>/dev/null
    wait 2>/dev/null
    for space in "${spaces[@]}"; do ip netns del "$space" 2>/dev/null; done
    rm -rf "$WORK"
}
trap leave EXIT

within() { # within NAME COMMAND...
    local name=$1
    shift
    ip netns exec "$tag$name" "$@"
}

for space in "${spaces[@]}"; do
    ip netns add "$space"
    ip -n "$space" link set lo up
done
ip -n "${tag}w" link add wan type bridge
ip -n "${tag}w" link set wan up
ip -n "${tag}w" addr add 203.0.113.1/24 dev wan
ip -n "${tag}w" addr add 203.0.113.2/24 dev wan
for i in 1 2; do
    ip link add out netns "${tag}r$i" type veth peer name "to$i" netns "${tag}w"
    ip link add in netns "${tag}r$i" type veth peer name lan netns "${tag}h$i"
    ip -n "${tag}w" link set "to$i" master wan up
    ip -n "${tag}r$i" addr add "203.0.113.1$i/24" dev out
    ip -n "${tag}r$i" addr add "10.$i.0.1/24" dev in
    ip -n "${tag}r$i" link set out up
    ip -n "${tag}r$i" link set in up
    ip -n "${tag}h$i" addr add "10.$i.0.2/24" dev lan
    ip -n "${tag}h$i" link set lan up
    ip -n "${tag}h$i" route add default via "10.$i.0.1"
    within "r$i" sysctl -qw net.ipv4.ip_forward=1
    within "r$i" nft add table ip nat
    within "r$i" nft add chain ip nat post '{ type nat hook postrouting priority 100; }'
    within "r$i" nft add rule ip nat post oifname out masquerade || { echo "skipped: no nft masquerade"; exit 77; }
done

run() { # run SPACE NAME FLAGS...
    local space=$1 name=$2
    shift 2
    ip netns exec "$tag$space" "$GRAPEVINE" peer --public --steps 1000000000 --report-every 1s "$@" >"$WORK/$name.out" 2>"$WORK/$name.err" &
    pids+=($!)
}
run w p1 --listen 203.0.113.1:7077
run h1 h1 --listen 0.0.0.0:7077 --bootstrap 203.0.113.1:7077,203.0.113.2:7077
run h2 h2 --listen 0.0.0.0:7077 --bootstrap 203.0.113.1:7077,203.0.113.2:7077

# until_status SPACE ADDRESS PATTERN: ask again until the status says so.
until_status() {
    local end=$((SECONDS + 180))
    while ((SECONDS < end)); do
        within "$1" "$GRAPEVINE" status "$2" --json >"$WORK/status" 2>/dev/null && grep -Eq "$3" "$WORK/status" && return
        sleep 1
    done
    cat "$WORK/status" >&2
    fail "status of $2 in $1 never said $3"
}
until_log() { # until_log NAME WORDS
    local end=$((SECONDS + 120))
    until grep -q "$2" "$WORK/$1.err"; do
        ((SECONDS < end)) || fail "$1 never said: $2"
        sleep 1
    done
}
until_status h1 127.0.0.1:7077 '"state":"training","nat":"outbound-only"'
until_status h2 127.0.0.1:7077 '"state":"training","nat":"outbound-only"'
until_status w 203.0.113.1:7077 '"state":"training","nat":"public"'
until_status h1 127.0.0.1:7077 '"is_relayed":true'
until_status h2 127.0.0.1:7077 '"is_relayed":true'
kill -9 "${pids[0]}" # without a relay, until each believes that the other is dead
both_dead='"state":"dead".*"state":"dead"'
until_status h1 127.0.0.1:7077 "$both_dead"
until_status h2 127.0.0.1:7077 "$both_dead"
until_log h1 'no neighbour relays for it'
run w p2 --listen 203.0.113.2:7077
until_status h1 127.0.0.1:7077 '"is_relayed":true'
until_status h2 127.0.0.1:7077 '"is_relayed":true'
within h1 "$GRAPEVINE" doctor --listen 0.0.0.0:7078 --bootstrap 203.0.113.2:7077 >"$WORK/doctor.out"
grep -Eq '^note +reachability: (outbound-only|no dial-back)' "$WORK/doctor.out" || fail "the doctor: $(cat "$WORK/doctor.out")"
echo "hidden peers know that they are, and reach each other through a relay"
