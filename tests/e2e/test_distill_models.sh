#!/bin/bash
# `grapevine distill --swarm HOST:PORT --models`: the members' models are fetched, each as it is, and are
# teachers as files are. One that dies in the middle of its download is left out, and so is one that
# gives none, each told in a line; one that lies is outvoted; a swarm that gives none is refused.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"
liar=${gv%/*}/tests/liar
export GRAPEVINE_THREADS=1
student=(--student 'linear:24 relu linear:classes' --epochs 8 --out s.safetensors)

above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a + 0 > b + 0) }'; }
number() { sed -n 's/.*"'"$1"'":\([0-9.]*\).*/\1/p' accepted.out; }
know() { # know COUNT ADDRESS...: until each of them knows so many others
    local count=$1 address i
    shift
    for address in "$@"; do
        for ((i = 0; i < 300; i++)); do
            [ "$("$gv" status "$address" --json 2>/dev/null | grep -o '"state":"alive"' | wc -l)" -ge "$count" ] && break
            sleep 0.1
        done
    done
}
nothing_left() {
    checks=$((checks + 1))
    compgen -G '.grapevine-models-*' >/dev/null && bad "models were left behind: $(ls -a)"
    compgen -G 's.safetensors.*' >/dev/null && bad "something is kept to go on with: $(ls -a)"
}

# Flags that do not go together, before anything is asked.
refused 2 'it goes with --swarm' "$gv" distill --teachers . --models "${student[@]}"
refused 2 'go on changing' "$gv" distill --swarm 127.0.0.1:1 --models --answers x "${student[@]}"
refused 2 'all weigh the same' "$gv" distill --swarm 127.0.0.1:1 --models --weights score "${student[@]}"

# Three that train alone, on shares; one of them gives no models, and one lies about its own.
peer=(--model mlp --data digits --averaging none --seed 5 --time 1h --report-every 200ms)
start a "$gv" peer --listen 127.0.0.1:0 --shard iid --shard-of 0/3 "${peer[@]}"
first=$address
start b "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" --shard iid --shard-of 1/3 "${peer[@]}"
second=$address
start c "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" --shard iid --shard-of 2/3 "${peer[@]}"
third=$address
LIE=donor-values start d "$liar" peer --listen 127.0.0.1:0 --bootstrap "$first" --shard all "${peer[@]}"
fourth=$address
start e "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" --shard all "${peer[@]}" --serve-models no
fifth=$address
know 4 "$first"
accepted '"trim":1' "$gv" distill --swarm "$first" --models "${student[@]}" --json
checks=$((checks + 5))
[ "$(number teachers)" = 4 ] || bad "not four teachers: $(cat accepted.out accepted.err)"
above "$(number ensemble_accuracy)" 0.85 || bad "the liar was not outvoted: $(cat accepted.out)"
above "$(number student_accuracy)" 0.8 || bad "the student: $(cat accepted.out)"
above 0.6 "$(sed -n 's/.*"name":"'"$fourth"'"[^}]*"accuracy":\([0-9.]*\).*/\1/p' accepted.out)" ||
    bad "the liar does not stand out: $(cat accepted.out)"
grep -q "member at $fifth: it gives its model to members only" accepted.err || bad "no line about who gives none: $(cat accepted.err)"
nothing_left
# With the usual flags of teachers that are files.
accepted '"vote":"logits"' "$gv" distill --swarm "$first" --models --trim 0 --teachers-vote logits --targets hard "${student[@]}" --json
# None of the members has noticed: the asker is no member, and none has lost one.
checks=$((checks + 1))
"$gv" status "$first" --json | grep -q '"members_count":4,' || bad "members: $("$gv" status "$first" --json)"
for address in "$second" "$third"; do
    checks=$((checks + 1))
    "$gv" status "$address" --json | grep -q '"state":"training"' || bad "$address trains no more"
done

# Nobody gives any: one clear line.
start f "$gv" peer --listen 127.0.0.1:0 "${peer[@]}" --serve-models no
refused 1 'no member of the swarm at .* has given its model: of 1 asked, it: it gives its model to members only' \
    "$gv" distill --swarm "$address" --models "${student[@]}"
nothing_left
# Nor does a method whose members keep their models at home.
start g "$gv" peer --listen 127.0.0.1:0 --model mlp --data digits --averaging codistill --seed 5 --time 1h
refused 1 'or its method keeps it at home' "$gv" distill --swarm "$address" --models "${student[@]}"
# Whoever is let in for being on this machine, and could not join, may ask for the status and no more.
for key in listed asker; do
    "$gv" keygen --out $key.key >/dev/null
    "$gv" keygen --show $key.key | sed -n 's/^public key //p' >>allowed.txt
done
start h "$gv" peer --listen 127.0.0.1:0 "${peer[@]}" --identity listed.key --allow allowed.txt
refused 1 'gives its model to members only' "$gv" distill --swarm "$address" --models "${student[@]}"
accepted '"teachers":1' "$gv" distill --swarm "$address" --models --identity asker.key "${student[@]}" --json

# One that is killed while its model is on its way: the other's model is enough.
large=(--model 'linear:1024 relu linear:1024 relu linear:classes' --data digits --averaging none --seed 5 --time 1h)
start i "$gv" peer --listen 127.0.0.1:0 "${large[@]}"
first=$address
start j "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" "${large[@]}" --rate-limit 4mbit
slow=$address dies=$pid
know 1 "$first"
(
    for ((k = 0; k < 600; k++)); do
        compgen -G '.grapevine-models-*/*.safetensors' >/dev/null && break
        sleep 0.05
    done
    kill -KILL "$dies"
) &
accepted '"teachers":1' "$gv" distill --swarm "$first" --models --student 'linear:32 relu linear:classes' --epochs 2 --out s.safetensors --json
checks=$((checks + 1))
grep -q "member at $slow: .*; its model is left out" accepted.err || bad "no line about who died: $(cat accepted.err)"
nothing_left
# Stopped in the middle: nothing is left.
stop "$dies"
start k "$gv" peer --listen 127.0.0.1:0 "${large[@]}" --rate-limit 1mbit
"$gv" distill --swarm "$address" --models "${student[@]}" >stopped.out 2>stopped.err </dev/null &
asker=$!
for ((k = 0; k < 600; k++)); do
    compgen -G '.grapevine-models-*' >/dev/null && break
    sleep 0.05
done
kill -INT "$asker"
wait "$asker"
code=$?
checks=$((checks + 2))
[ "$code" -eq 130 ] || bad "exit code $code of a stopped fetch"
grep -q 'grapevine: stopped' stopped.err || bad "a stopped fetch says: $(cat stopped.err)"
nothing_left
finish
