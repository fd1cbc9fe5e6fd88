#!/usr/bin/env bash
# What a peer tells of itself: who waits says that it waits, who has trained alone says that, a goal is
# told in the steps it counts, and log.txt has the time of day, debug lines where they are asked for,
# and no more than two files of it.
# shellcheck source=tests/e2e/helpers.sh
source "$(dirname "$0")/helpers.sh"
begin "$1"

peer=("$gv" peer --listen 127.0.0.1:0 --evaluate-samples 0 --report-every 100ms)

until_there() { # until_there TEXT FILE: within a minute
    local i
    checks=$((checks + 1))
    for ((i = 0; i < 600; i++)); do
        grep -qE -- "$1" "$2" 2>/dev/null && return 0
        sleep 0.1
    done
    bad "'$1' did not come in $2: $(tail -n 3 "$2")"
}

# Waiting is not training: in the terminal, the metrics, the status for people and for programs.
start one "${peer[@]}" --start-with 2 --time 1h --out one --verbose --http 127.0.0.1:0
first=$pid
until_there ' s  waiting for 1 more peer to begin  0 neighbours' one.err
until_there '"state":"waiting","step":0' one/metrics.jsonl
accepted 'state +waiting for 1 more peer to begin' "$gv" status "$address"
accepted '"state":"waiting".*"waits_for":1' "$gv" status "$address" --json
swarm=$address
start two "${peer[@]}" --start-with 2 --time 1h --step-time 1ms --bootstrap "$swarm"
second=$pid
until_there '"state":"training","step":[1-9][0-9]{2}' one/metrics.jsonl

# Who comes later takes as many steps as it was told to, whatever the model's count.
checks=$((checks + 1))
timeout 100 "${peer[@]}" --steps 50 --bootstrap "$swarm" --out late --json >late.out 2>late.err </dev/null ||
    bad "the late peer exits with $?: $(tail -n 1 late.err)"
grep -q '"event":"finished","steps":50,"step":[1-9][0-9]\{2\}' late.out || bad "$(tail -n 1 late.out)"
grep -q '"step":[1-9][0-9]*,"own_steps":50,' late/metrics.jsonl || bad "$(tail -n 1 late/metrics.jsonl)"
grep -qE 'step [0-9]+ \(own: 50 of 50\) ' late.err || bad "$(tail -n 1 late.err)"

# Who reaches its goal beside others without one round with them has trained alone: that is no success.
start slow "${peer[@]}" --averaging diloco:H=100000 --time 1h
refused 1 'without one averaging round, though 1 with the same model was linked' "${peer[@]}" --averaging diloco:H=100000 \
    --steps 30 --bootstrap "$address" --out alone
grep -q '^finished: 30 steps' refused.out || bad "its result is not told: $(cat refused.out)"
[ -s alone/model.safetensors ] || bad "its model is not kept"
stop "$pid"

# log.txt
stop "$second"
until_there 'Z debug ' one/log.txt # that it cannot be dialled
stop "$first"
checks=$((checks + 1))
grep -vE '^20[0-9]{2}-[01][0-9]-[0-3][0-9]T[0-2][0-9]:[0-5][0-9]:[0-6][0-9]\.[0-9]{3}Z (error|warn|info|debug) ' \
    one/log.txt && bad "lines of log.txt without their time"
grep -q 'Z info listening on 127' one/log.txt || bad "log.txt does not have the address"
grep -q 'Z debug ' late/log.txt && bad "there are debug lines without --verbose"
mkdir full && head -c 16777200 /dev/zero >full/log.txt
accepted '^finished: 5 steps' "${peer[@]}" --steps 5 --averaging none --out full
[ "$(stat -c %s full/log.txt.1)" -eq 16777200 ] || bad "the full log was not set aside: $(ls -l full)"
[ "$(stat -c %s full/log.txt)" -lt 10000 ] || bad "log.txt did not begin anew"
finish
