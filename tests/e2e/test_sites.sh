#!/usr/bin/env bash
# --site: of four peers at two sites most rounds are of two and some of four; status says who is where, and a word that
# is no site is refused.
source "$(dirname "$0")/lib.sh"
cd "$WORK" || exit 1

common=(--data digits --model mlp --averaging local-sgd:H=8 --topology 'complete,sites:3' --shard iid --start-with 4 --steps 1000000000)
start_peer a1 "${common[@]}" --site berlin
for peer in a2 b1 b2; do
    site=tokyo
    [ $peer = a2 ] && site=berlin
    start_peer $peer "${common[@]}" --site $site --bootstrap "${PEER_ADDRESS[a1]}"
done

# The last rounds of each have been of both kinds; nobody else's are wanted.
ask() { "$GRAPEVINE" status "${PEER_ADDRESS[$1]}" --json >status.json || fail "peer $1 does not answer"; }
sizes() { grep -o '"last_rounds":\[[^]]*\]' status.json | grep -o '"members":[0-9]*' | sort | uniq -c | sort -rn; }
for peer in a1 a2 b1 b2; do
    end=$((SECONDS + 180))
    until
        wait_more $peer rounds_ok 12 180
        ask $peer
        grep -q '"members":2' <(sizes) && grep -q '"members":4' <(sizes)
    do
        ((SECONDS < end)) || fail "rounds of $peer by their members: $(sizes)"
    done
done
ask a1
grep -q '"site":"berlin"' status.json || fail "its own site is not shown"
[ "$(grep -o '"site":"tokyo"' status.json | wc -l)" -eq 2 ] || fail "not two of the others are in tokyo: $(cat status.json)"
"$GRAPEVINE" status "${PEER_ADDRESS[b1]}" >status.txt || fail "no status"
{ grep -q ', site tokyo' status.txt && grep -q ' berlin ' status.txt; } || fail "$(cat status.txt)"
for peer in a1 a2 b1 b2; do stop_peer $peer || fail "peer $peer does not stop"; done

"$GRAPEVINE" peer --data digits --model mlp --site 'two words' --steps 1 >/dev/null 2>bad.err
[ $? -eq 2 ] || fail "a site of two words is taken"
grep -q -- '--site "two words": a site is' bad.err || fail "$(cat bad.err)"
"$GRAPEVINE" peer --data digits --model mlp --averaging dpsgd --topology ring,sites:4 --steps 1 >/dev/null 2>bad.err
[ $? -eq 2 ] || fail "a ring goes by sites"
echo "most rounds stay at a site"
