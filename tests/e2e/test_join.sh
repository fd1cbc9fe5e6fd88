#!/bin/bash
# `grapevine join HOST:PORT` takes the swarm's model, method, codec, optimizer, schedule and goal,
# says so, and keeps them; flags of its own are stronger; whatever it is told is checked as a command
# line would be. Who joins others finds a free port by itself. Nobody ends unaveraged in silence.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

layers='linear:24 relu linear:classes'
founder=(--listen 127.0.0.1:0 --model "$layers" --averaging local-sgd:H=4 --codec f16 --lr 0.03 --schedule cosine:warmup=5%
    --batch 16 --seed 9 --report-every 200ms --steps 9000000 --out a)
start a "$gv" peer "${founder[@]}"
first=$address

# All of it is taken, told, and in the folder under the flags' own names.
"$gv" join "$first" --steps 30000 --out b --report-every 200ms >b.out 2>b.err &
pids+=($!)
joined=$!
for ((i = 0; i < 600; i++)); do
    grep -q '"rounds_ok":[1-9]' b/metrics.jsonl 2>/dev/null && break
    sleep 0.1
done
checks=$((checks + 1))
grep -q '"rounds_ok":[1-9]' b/metrics.jsonl || bad "who joined does not average: $(cat b.err)"
grep -q "^settings of the swarm at $first: data digits, model $layers, averaging local-sgd:H=4, codec f16," b.err ||
    bad "it does not say what it took: $(cat b.err)"
for line in "model = $layers" 'averaging = local-sgd:H=4' 'codec = f16' 'lr = 0.03' 'schedule = cosine:warmup=5%' 'batch = 16' \
    'seed = 9' 'steps = 30000' "bootstrap = $first" 'optimizer = momentum:lr=0.05,beta=0.9'; do
    checks=$((checks + 1))
    grep -qxF "$line" b/config.ini || bad "not in its config.ini: $line"
done
grep -q "^time = " b/config.ini && bad "a goal nobody gave"
kill -TERM "$joined" && wait "$joined"
# Later starts need neither command nor flags.
checks=$((checks + 1))
"$gv" peer --out b --steps 31000 --report-every 200ms >b.out 2>b.err || bad "$(cat b.err)"
grep -q '^linked with ' b.err || bad "resumed, it does not find the swarm: $(cat b.err)"

# Flags of its own are stronger; another method or codec is refused by name, on both sides.
refused 1 "refused this peer: this swarm averages with .*codec f16.* you with .*codec f32" "$gv" join "$first" --codec f32
grep -q "refused .* with the words: this swarm averages with .*codec f16.* you with .*codec f32" a.err ||
    bad "the founder says nothing of it: $(cat a.err)"
refused 1 "you with .*exchange pair" "$gv" join "$first" --averaging ad-psgd
refused 1 "trains the model '$layers', you 'mlp'" "$gv" join "$first" --model mlp
refused 1 'cannot be reached: connection refused' "$gv" join 127.0.0.1:1 --data digits
refused 2 'not HOST:PORT' "$gv" join nowhere
refused 2 'HOST:PORT is missing' "$gv" join
stop "$pid"

# Whose data are a file of its own tells nobody which.
printf 'a,b,label\n' >t.csv
for ((i = 0; i < 60; i++)); do echo "$((i % 7)),$((i % 5)),$((i % 2))"; done >>t.csv
start c "$gv" peer --listen 127.0.0.1:0 --data csv:t.csv,label=label --shard all --time 1h --out c
refused 2 '^grapevine: join: --data is missing' "$gv" join "$address"
"$gv" status "$address" --json | grep -o '"settings":{[^}]*}' >settings
grep -q '"shard":"all"' settings || bad "settings lack the shard: $(cat settings)"
grep -q 't\.csv' settings && bad "the path of the data is told"
accepted '^finished: 40 steps' "$gv" join "$address" --data csv:t.csv,label=label --steps 40 --out d
grep -q '^shard = all$' d/config.ini || bad "who joined would take a part of its own data only"
stop "$pid"

# Who joins others where the usual port is taken has another one; who founds a swarm is told.
start e "$gv" peer --swarm-name e --averaging local-sgd:H=4 --time 1h
if [ "$address" = 127.0.0.1:7077 ]; then # else it is somebody else's, and there is nothing to try
    refused 1 'cannot listen on 127.0.0.1:7077: address already in use' "$gv" peer --steps 1
    start f "$gv" peer --swarm-name e --averaging local-sgd:H=4 --bootstrap "$address" --time 1h
    [ -n "$address" ] && [ "$address" != 127.0.0.1:7077 ] || bad "who joins does not take a free port"
    checks=$((checks + 1))
fi
finish
