#!/usr/bin/env bash
# The doctor tells apart what can be wrong on the way to a swarm, and names the fix: a port that is
# taken, a name that does not exist, a port where nobody listens, another swarm, another model; and
# whether others can dial back. Each is asked again until it says so, since a busy machine may miss
# its few seconds.
source "$(dirname "$0")/lib.sh"

# says PATTERN EXIT_CODES FLAGS...
says() {
    local pattern=$1 wanted=$2 code
    shift 2
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        "$GRAPEVINE" doctor "$@" >"$WORK/doctor.out" 2>"$WORK/doctor.err"
        code=$?
        [[ " $wanted " == *" $code "* ]] && grep -Eq "$pattern" "$WORK/doctor.out" && return
    done
    cat "$WORK/doctor.out" >&2
    fail "doctor $* exits with $code, not $wanted, or does not say: $pattern"
}

start_peer a --data digits --model mlp --steps 1000000000
address=${PEER_ADDRESS[a]}
here=(--listen 127.0.0.1:0)

says '^fine +bootstrap .*: reachable: a peer of this swarm' 0 "${here[@]}" --bootstrap "$address"
says '^fine +reachability: public: 1 of 1 ' 0 "${here[@]}" --bootstrap "$address"
says '^fine +model of .*the same' 0 "${here[@]}" --bootstrap "$address" --model mlp
says "^broken +model of .*it trains 'mlp'.*; start this peer with" 1 "${here[@]}" --bootstrap "$address" --model cnn
says '^broken +bootstrap .*another --swarm-name.*; compare' 1 "${here[@]}" --bootstrap "$address" --swarm-name other
says '^broken +bootstrap .*connection refused; start the peer' 1 "${here[@]}" --bootstrap "$address,127.0.0.1:1"
says '^broken +bootstrap .*; check the (name|address)' 1 "${here[@]}" --bootstrap nowhere.invalid:7077
says '^broken +listen .*already in use; stop what uses it' 1 --listen "$address"
says '"what":"listen [^}]*"verdict":"broken"[^}]*"fix":"stop what' 1 --listen "$address" --json
# --advertise has to lead back here, wherever it is said to lead.
for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do # a port that nobody has
    port=$((20000 + RANDOM % 10000))
    "$GRAPEVINE" doctor --listen "127.0.0.1:$port" --advertise "localhost:$port" >"$WORK/doctor.out"
    grep -q '^fine .*listen' "$WORK/doctor.out" && grep -q '^fine .*leads back' "$WORK/doctor.out" && port= && break
done
[[ -z $port ]] || fail "an address that leads back: $(cat "$WORK/doctor.out")"
says '^broken +advertise .*another peer .*; let the router' 1 "${here[@]}" --advertise "$address"
says '^(broken +advertise .*not found; check the name|note +advertise .*no answer)' '0 1' "${here[@]}" --advertise nowhere.invalid:7077
says '^broken +advertise .*connection refused; let the router' 1 "${here[@]}" --advertise 127.0.0.1:1 --bootstrap "$address"
says '^note +advertise .*no peer has tried.*; name a peer' 0 "${here[@]}" --advertise 192.0.2.1:7077 # a host that is nowhere
says '^note +advertise .*not looked at' 1 --listen "$address" --advertise 192.0.2.1:7077
says '^broken +out .*no folder; choose' 1 "${here[@]}" --out "$WORK/doctor.out/x"
says '^fine +out .* free' 0 "${here[@]}" --out "$WORK/not/yet"
[[ ! -e $WORK/not ]] || fail "the doctor made a folder"
says '^broken +lists: --allow: cannot read' 1 "${here[@]}" --allow "$WORK/nobody"
https_proxy=http://me:hush@192.0.2.1:3128 says '^note +way out: https_proxy is set.*; if dials come to nothing, pass --proxy "\$https_proxy"' 0 "${here[@]}" --bootstrap "$address"
grep -q hush "$WORK/doctor.out" && fail "the doctor tells a password"
says '^fine +way out: all dials go through the SOCKS5 proxy 127.0.0.1:1$' 1 "${here[@]}" --bootstrap "$address" --proxy socks5://me:hush@127.0.0.1:1
grep -Eq '^broken +bootstrap .*proxy.s port refuses' "$WORK/doctor.out" || fail "a proxy that is not there"
kill_peer a
echo "the doctor names what is wrong and what to do"
