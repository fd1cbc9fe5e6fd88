#!/bin/bash
# grapevine simulate: equal seeds give equal results, faults happen, what does not suit is refused.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

without_wall() { sed 's/"wall_s":[^,}]*//' "$1"; }

accepted '"invariants":{"finite":true,"progress":true,"one_swarm":true}' \
    "$gv" simulate --peers 8 --rounds 10 --seed 7 --json
cp accepted.out first
accepted '"samples":\[{"t":0' "$gv" simulate --peers 8 --rounds 10 --seed 7 --json
[ "$(without_wall first)" = "$(without_wall accepted.out)" ] || bad "equal seeds, unequal results"
accepted '"peers":8' "$gv" simulate --peers 8 --rounds 10 --seed 8 --json
[ "$(without_wall first)" != "$(without_wall accepted.out)" ] || bad "unequal seeds, equal results"

accepted 'virtual seconds' "$gv" simulate --peers 6 --averaging ad-psgd --time 20s --link delay=20ms,loss=1% \
    --chaos 'kill:mtbf=6s,restart=2s;freeze:mtbf=6s,for=1s;slow:mtbf=6s,for=2s;partition:mtbf=9s,for=2s'
accepted '"rounds_ok":0' "$gv" simulate --peers 2 --averaging none --time 2s --json

refused 2 'topology groups:8' "$gv" simulate --peers 300 --topology complete
refused 2 'column 6' "$gv" simulate --chaos kill:x=1
refused 2 'column 1: unknown key' "$gv" simulate --link slow=1
refused 2 'below 0.5 ' "$gv" simulate --peers 16 --averaging aeasgd:alpha=0.6
refused 2 'below 0.5 ' "$gv" simulate --peers 16 --averaging easgd:rho=0.5 --topology ring
refused 2 'below 0.4 ' "$gv" testnet --peers 5 --averaging aeasgd:alpha=0.4 --topology complete --out apart
accepted 'virtual seconds' "$gv" simulate --peers 4 --time 1s --averaging diloco
refused 2 'say --time' "$gv" simulate --averaging none
refused 2 'say --time' "$gv" simulate --peers 1
finish
