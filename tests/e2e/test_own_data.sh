#!/bin/bash
# Each machine has data of its own. Peers whose tables have unlike means end with one normalisation,
# to the bit, and know more than each alone; one that comes back after kill -9, and one that comes
# later, have the same; a liar's numbers move it no farther than the bound; labels are mapped by
# name, and one that the swarm does not know is refused by name.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"
export GRAPEVINE_THREADS=1

# table FILE MEAN ILL ROWS SEED: a marker that tells who is ill, and a device that reads about MEAN.
table() {
    awk -v mean="$2" -v ill="$3" -v rows="$4" -v seed="$5" '
    function uniform() { state = (state * 16807) % 2147483647; return state / 2147483647 }
    BEGIN {
        state = 1 + seed * 7919
        for (i = 0; i < 20; i++) uniform()
        print "device,marker,label"
        for (i = 0; i < rows; i++) {
            is_ill = uniform() < ill
            printf "%.4f,%.4f,%s\n", mean + uniform() + uniform(), 2 * is_ill + uniform() + uniform(), is_ill ? "ill" : "well"
        }
    }' >"$1"
}
table a.csv 0 0.0 200 1
table b.csv 99 1.0 200 2
table c.csv 40 0.5 200 3
table test.csv 40 0.5 400 4
common=(--labels 'ill,well' --shard all --model 'linear:8 relu linear:classes' --averaging local-sgd:H=4 --batch 16 --report-every 200ms --evaluate-samples 0)
data() { echo "csv:$1.csv,label=label,test=test.csv"; }
normal_of() { # normal_of FOLDER: the bytes of input.mean and input.scale
    python3 - "$1/model.safetensors" <<'P'
import json, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<Q", data[:8])[0]
head = json.loads(data[8:8 + size])
for name in "input.mean", "input.scale":
    begin, end = head[name]["data_offsets"]
    print(*struct.unpack("<%df" % ((end - begin) // 4), data[8 + size + begin:8 + size + end]))
P
}
accuracy() { # accuracy FOLDER: per cent on patients of both kinds, in whole numbers
    "$gv" eval "$1/model.safetensors" --data "$(data a)" --json 2>/dev/null | sed 's/.*"accuracy":\([0-9.]*\).*/\1/;q' |
        awk '{ printf "%d\n", 100 * $1 }'
}
same() { # same FOLDER FOLDER
    checks=$((checks + 1))
    [ "$(normal_of "$1")" = "$(normal_of "$2")" ] || bad "$1 and $2 normalise unlike: $(normal_of "$1") and $(normal_of "$2")"
}
await() { # await FILE PATTERN WHAT
    local i
    checks=$((checks + 1))
    for ((i = 0; i < 600; i++)); do
        grep -qE -- "$2" "$1" 2>/dev/null && return
        sleep 0.1
    done
    bad "$3: $(tail -n 3 "$1")"
}

# Two tables, one of the ill and one of the well; each alone knows one kind only.
start a "$gv" peer --listen 127.0.0.1:0 --data "$(data a)" --start-with 2 --time 1h --checkpoint-every 300ms --out a "${common[@]}"
first=$address founder=$pid
start b "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" --data "$(data b)" --start-with 2 --time 1h --checkpoint-every 300ms --out b "${common[@]}"
second=$pid
await a.err 'normalised by the data of 2 members, 400 samples' "the founder does not say what was agreed"
await b.err 'normalised by the data of 2 members, 400 samples' "the other does not say what was agreed"
await b.err "look unlike the swarm's|round" "nothing runs" && await b/metrics.jsonl '"rounds_ok":[1-9]' "they do not average"
# One that restarts with nothing but its folder goes on with the same; one that lost it, too.
await b/model.safetensors 'input_members' "no checkpoint"
stop "$second"
start b2 "$gv" peer --listen 127.0.0.1:0 --out b
second=$pid
await b2.err '^linked with ' "it does not come back"

# Who joins takes labels by name, those that its own table lacks too; another label is refused.
sed '1!s/ill$/dead/' c.csv >d.csv
refused '1 2' "label 'dead' is none of the swarm's classes: ill,well" "$gv" join "$first" --data csv:d.csv,label=label
refused 1 "classes ill,well.*classes dead,well" "$gv" peer --bootstrap "$first" --listen 127.0.0.1:0 --data csv:d.csv,label=label \
    --model 'linear:8 relu linear:classes' --averaging local-sgd:H=4 --out refused
[ ! -e refused ] || bad "a refused peer leaves a folder that holds its next start to the same flags: $(ls -A refused)"
await a.err "classes ill,well.*classes dead,well" "the founder does not name the labels"
sed '1s/marker/mark/' c.csv >g.csv
refused 1 "2 columns, names' hash [0-9a-f]{8}; classes .*, you .*2 columns, names' hash [0-9a-f]{8}; classes" "$gv" join "$first" --data csv:g.csv,label=label
sed 's/^\([0-9.]*\),/\1e3,/' c.csv >e.csv # in another unit
"$gv" join "$first" --data 'csv:e.csv,label=label,test=test.csv' --steps 40 --out e >e.out 2>e.err || bad "$(tail -n 2 e.err)"
await e.err "look unlike the swarm's: the mean of device is 4.*deviations apart; is it in another unit" "another unit goes unsaid"
kill -TERM "$founder" "$second"
wait "$founder" "$second"
await a.err "^stopped at step [0-9]+; 'grapevine peer --out a' goes on from there$" "how to go on is not said"
for folder in b e; do same a "$folder"; done
checks=$((checks + 1))
[[ $(normal_of a) == 50.5* || $(normal_of a) == 50.4* ]] || bad "not the mean of both: $(normal_of a)"
"$gv" peer --listen 127.0.0.1:0 --averaging none --data "$(data a)" --labels ill,well --shard all --model 'linear:8 relu linear:classes' --batch 16 \
    --steps 300 --out alone >/dev/null 2>&1 || bad "alone"
together=$(accuracy a) alone=$(accuracy alone)
[ "$together" -ge 80 ] || bad "together $together %"
[ "$alone" -le 60 ] || bad "alone $alone %"

# A member with the swarm's key that tells of a mean of 10^12 does not decide.
table liar.csv 1000000000000 0.5 200 5
start f "$gv" peer --listen 127.0.0.1:0 --data "$(data a)" --start-with 4 --steps 100 --out f "${common[@]}"
first=$address founder=$pid
for name in b c liar; do
    start "f$name" "$gv" peer --listen 127.0.0.1:0 --bootstrap "$first" --data "$(data "$name")" --start-with 4 --steps 100 --out "f$name" "${common[@]}"
done
wait "$founder"
await f.err 'normalised by the data of 4 members' "four do not agree"
checks=$((checks + 1))
[ -n "$(normal_of f | awk 'NR == 1 && $1 > 0 && $1 < 150')" ] || bad "the liar decided: $(normal_of f)"
finish
