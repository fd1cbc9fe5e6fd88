#!/bin/bash
# `grapevine distill --swarm`: members of a running swarm are asked for what their models say, and a
# student learns from that. One that lies is bounded and stands out, rubbish counts for nothing, who
# is frozen is not waited for, who dies keeps its say, and each is told in a line. No member trains
# on less well for it, or hears of a member more. LONG=1: with a member that dies in the middle.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"
liar=${gv%/*}/tests/liar
export GRAPEVINE_THREADS=1
student=(--student 'linear:24 relu linear:classes' --epochs 8 --out s.safetensors)

field() { # field NAME ADDRESS: of a member's row
    sed -n 's/.*{"address":"'"$2"'"\([^}]*\)}.*/\1/p' accepted.out | sed -n 's/.*"'"$1"'":\("\?[^,"]*"\?\).*/\1/p'
}
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > b + 0) }'; }

# Nobody there; flags that do not go together; all before anything is asked.
refused 1 'cannot be reached' "$gv" distill --swarm 127.0.0.1:1 "${student[@]}" --join-timeout 5s
refused 2 'not HOST:PORT' "$gv" distill --swarm nowhere "${student[@]}"
refused 2 'one of them' "$gv" distill --swarm 127.0.0.1:1 --teachers . "${student[@]}"
refused 2 'trimmed mean; leave it out' "$gv" distill --swarm 127.0.0.1:1 --teachers-vote logits "${student[@]}"

peer=(--model mlp --data digits --shard all --seed 5 --time 1h --report-every 200ms)
start a "$gv" peer --listen 127.0.0.1:0 "${peer[@]}"
first=$address
start b "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" "${peer[@]}"
second=$address frozen=$pid
LIE_PREDICTIONS=wrong start c "$liar" peer --listen 127.0.0.1:0 --bootstrap "$first" "${peer[@]}"
third=$address lies=$pid
for ((i = 0; i < 300; i++)); do
    [ "$("$gv" status "$first" --json 2>/dev/null | grep -o '"state":"alive"' | wc -l)" -ge 2 ] && grep -q 'accuracy 9' a.err a.out && break
    sleep 0.1
done

# Three members, one of which lies: the student learns what the other two say, and the liar stands out.
refused 2 'unknown' "$gv" distill --swarm "$first" --student nonsense --out s.safetensors
accepted '"trim":1' "$gv" distill --swarm "$first" "${student[@]}" --json
checks=$((checks + 5))
grep -q '"answered":3,"samples_asked":1437,' accepted.out || bad "not all three answered: $(cat accepted.out)"
above "$(sed -n 's/.*"student_accuracy":\([0-9.]*\).*/\1/p' accepted.out)" 0.8 || bad "the student: $(cat accepted.out)"
above "$(sed -n 's/.*"trim":1,"accuracy":\([0-9.]*\).*/\1/p' accepted.out)" 0.9 || bad "together: $(cat accepted.out)"
above "$(field distance "$third")" 0.4 || bad "the liar does not stand out: $(cat accepted.out)"
above 0.3 "$(field distance "$first")" || bad "an honest member does: $(cat accepted.out)"
[ -s s.safetensors ] || bad 'there is no student'
# The asker was no member, and left nothing behind.
checks=$((checks + 2))
"$gv" status "$first" --json | grep -q '"members_count":2,' || bad 'the asker counts as a member'
compgen -G '.grapevine-answers-*' >/dev/null && bad 'the answers were left behind'

# Other data than the swarm's; the same numbers of samples, and other ones.
refused 1 'it has other data than the probe set' "$gv" distill --swarm "$first" "${student[@]}" --data synthetic:spirals,samples=1437

# One frozen, one that sends rubbish: a line each, and the third is enough.
LIE_PREDICTIONS=rubbish start d "$liar" peer --listen 127.0.0.1:0 --bootstrap "$first" "${peer[@]}"
fourth=$address
stop "$lies"
kill -STOP "$frozen"
for ((i = 0; i < 100; i++)); do
    [ "$("$gv" status "$first" --json 2>/dev/null | grep -o '"members_count":3' | wc -l)" -ge 1 ] && break
    sleep 0.1
done
for ((i = 0; i < 4; i++)); do # on a busy machine it may be too late to be heard
    accepted '"student_accuracy":0\.[89]' "$gv" distill --swarm "$first" "${student[@]}" --json --join-timeout 6s
    grep -q "member at $fourth: its answers are no probabilities" accepted.err && break
done
checks=$((checks + 2))
grep -q "member at $fourth: its answers are no probabilities; of its answers 0 of 1437 count" accepted.err ||
    bad "no line about rubbish: $(cat accepted.err)"
[ "$(field answered "$fourth")" = 0 ] || bad "rubbish counts: $(cat accepted.out)"
kill -CONT "$frozen"

# A peer that gives none.
start e "$gv" peer --listen 127.0.0.1:0 "${peer[@]}" --serve-predictions no
refused 1 'it gives no predictions' "$gv" distill --swarm "$address" "${student[@]}"

if [ -n "${LONG:-}" ]; then
    peer=(--model 'linear:1024 relu linear:1024 relu linear:classes' --data 'synthetic:spirals,samples=16384' --shard all --seed 5
        --time 1h --batch 16)
    start f "$gv" peer --listen 127.0.0.1:0 "${peer[@]}"
    first=$address
    start g "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" "${peer[@]}"
    dies=$pid second=$address
    start h "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" "${peer[@]}"
    sleep 3
    (
        for ((i = 0; i < 600; i++)); do
            "$gv" status "$second" --json 2>/dev/null | grep -q '"predictions":[1-9]' && break
            sleep 0.1
        done
        kill -KILL "$dies"
    ) &
    accepted '"answered":3' "$gv" distill --swarm "$first" --student 'linear:32 relu linear:classes' --epochs 2 --out s.safetensors \
        --data synthetic:spirals,samples=16384 --json
    checks=$((checks + 2))
    [ "$(field state "$second")" = '"lost"' ] || bad "nobody died: $(cat accepted.out)"
    above "$(field answered "$second")" 0 || bad "what it said counts no more: $(cat accepted.out)"
fi
finish
