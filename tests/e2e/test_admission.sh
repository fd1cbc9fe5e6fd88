#!/usr/bin/env bash
# Who may join: an allow-list is obeyed and read again on SIGHUP, a broken one changes nothing, a
# peer taken out of it is disconnected; a swarm with certificates lets in who has one; a deny list
# outlives a restart with an older one. Whoever is refused reads one line that says why.
source "$(dirname "$0")/lib.sh"
cd "$WORK" || exit 1

gv() { "$GRAPEVINE" "$@" || fail "grapevine $*"; }
key_of() { gv keygen --show "$1" | sed -n 's/^public key //p'; }
common=(--data digits --model linear:classes --steps 1000000000 --swarm-key swarm.key)

# refused PATTERN FLAGS...: such a peer ends with exit code 1 or 2 and one line that matches.
refused() {
    local pattern=$1 code
    shift
    timeout -s KILL 180 "$GRAPEVINE" peer --listen 127.0.0.1:0 --quiet --join-timeout 60s "${common[@]}" "$@" 2>out >/dev/null </dev/null
    code=$?
    ((code == 1 || code == 2)) || fail "exit code $code for: $*"
    [[ $(wc -l <out) == 1 ]] || fail "not one line: $(cat out)"
    grep -qE -- "$pattern" out || fail "'$pattern' is not in: $(cat out)"
}

gv keygen --swarm-key >/dev/null
for name in owner a b c; do gv keygen --out $name.key >/dev/null; done

# The allow-list.
{ key_of a.key; echo "$(key_of b.key)  the second one"; } >allow
start_peer a "${common[@]}" --identity a.key --allow allow
refused 'not on the --allow list' --identity c.key --bootstrap "${PEER_ADDRESS[a]}"
start_peer b "${common[@]}" --identity b.key --bootstrap "${PEER_ADDRESS[a]}"
wait_line a '"neighbours":1' 180
wait_line b '"rounds_ok":[1-9]' 180 # from here on it stays alive when it is refused
echo "not a key" >allow
kill -HUP "${PEER_PID[a]}"
until grep -q 'line 1.*stays' a.err; do wait_line a '"neighbours":1' 180; done
key_of a.key >allow
kill -HUP "${PEER_PID[a]}"
wait_line a '"neighbours":0' 180
until grep -q 'refused this peer.*--allow' b.err; do wait_line b '"report"' 180; done
kill_peer b
kill_peer a

# Certificates, and a deny list that is not forgotten.
owner=$(key_of owner.key)
for name in a b; do
    gv keygen --certificate "$(key_of $name.key)" --sign-with owner.key --out $name.cert >/dev/null
done
: >nobody
key_of b.key >left
gv keygen --deny nobody --serial 1 --sign-with owner.key --out deny.1 >/dev/null
gv keygen --deny left --serial 2 --sign-with owner.key --out deny.2 >/dev/null
cp deny.1 deny
start_peer a "${common[@]}" --identity a.key --certificate a.cert --authority "$owner" --deny deny --out a
refused 'need a --certificate' --identity c.key --bootstrap "${PEER_ADDRESS[a]}"
refused 'for another key' --identity c.key --certificate a.cert --authority "$owner" --bootstrap "${PEER_ADDRESS[a]}"
ask=(status "${PEER_ADDRESS[a]}" --swarm-key swarm.key --join-timeout 60s --certificate b.cert)
gv "${ask[@]}" --identity b.key >/dev/null
"$GRAPEVINE" "${ask[@]}" --identity a.key 2>out >/dev/null && fail "status with another's certificate"
grep -q 'for another key' out || fail "status with another's certificate: $(cat out)"
start_peer b "${common[@]}" --identity b.key --certificate b.cert --authority "$owner" --bootstrap "${PEER_ADDRESS[a]}"
wait_line a '"neighbours":1' 180
wait_line b '"rounds_ok":[1-9]' 180
cp deny.2 deny
kill -HUP "${PEER_PID[a]}"
wait_line a '"neighbours":0' 180
kill_peer b
kill_peer a
cp deny.1 deny
start_peer a "${common[@]}" --identity a.key --certificate a.cert --authority "$owner" --deny deny --out a
refused "on the swarm's deny list" --identity b.key --certificate b.cert --authority "$owner" --bootstrap "${PEER_ADDRESS[a]}"
kill_peer a

# What cannot be used is said at the start.
refused '--allow: cannot read missing' --identity a.key --allow missing
refused 'not a public key' --identity a.key --authority abc --deny deny
refused 'needs --authority' --identity a.key --deny deny
refused 'not signed by the key of --authority' --identity a.key --authority "$(key_of c.key)" --deny deny
echo "only those whom the lists name are let in"
