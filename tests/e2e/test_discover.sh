#!/bin/bash
# Peers of one name find each other on this machine by multicast, whether one is there first or both
# begin together, and end with one model; another key or another name is left alone. Skipped where
# multicast does not work.
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

DOING=names
"$GRAPEVINE" join --data digits 2>no.err && fail "neither address nor name"
grep -q -- 'join: HOST:PORT is missing; .* --discover NAME' no.err || fail "what is missing is not said"
"$GRAPEVINE" peer --discover "$(printf 'x%.0s' {1..65})" --listen 127.0.0.1:0 --steps 1 2>no.err && fail "a name of 65 letters"
grep -q -- '--discover: a name has 1 to 64 letters' no.err || fail "which names there are is not said"
exit 0
