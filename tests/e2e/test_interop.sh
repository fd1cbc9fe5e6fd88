#!/bin/bash
# A member written in Python from gossip/WIRE.md and averaging/WIRE.md alone (tests/interop)
# joins real peers: status, download, a pair round from either end, a group round, a farewell; and
# what the documents forbid comes to what they say.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
interop=$(realpath "$(dirname "$0")/../interop")
begin "$1"
python=/usr/bin/python3
export PYTHONDONTWRITEBYTECODE=1
for package in cryptography msgpack numpy; do
    $python -c "import $package" 2>/dev/null || skip "SKIP: python3-$package is not installed"
done

# Four chunks, so that each of three members owns one at least; a learning rate that moves nothing,
# and no clipping, so that what rounds make can be told.
accepted . "$gv" keygen --swarm-key --out swarm.key
common=(--listen 127.0.0.1:0 --swarm-key swarm.key --swarm-name interop --data digits
    --optimizer sgd --lr 1e-12 --step-time 50ms --steps 1000000000 --robust none)
four='linear:1500 relu linear:classes'
start pair "$gv" peer "${common[@]}" --model "$four" --averaging ad-psgd:H=1000000 --out pair
pair=$address
start offering "$gv" peer "${common[@]}" --model linear:classes --averaging ad-psgd:H=10 --codec int8 --out offering
offering=$address
start one "$gv" peer "${common[@]}" --model "$four" --averaging local-sgd:H=10 --codec bf16 --out one
one=$address
start two "$gv" peer "${common[@]}" --model "$four" --averaging local-sgd:H=10 --codec bf16 --out two --bootstrap "$one"
two=$address
checks=$((checks + 1))
timeout -k 5 600 $python "$interop/run.py" swarm.key interop "$pair" "$offering" "$one" "$two" || bad "$(tail -n 5 ./*.err)"
for pid in "${pids[@]}"; do
    checks=$((checks + 1))
    kill -0 "$pid" 2>/dev/null || bad "a peer died of it: $(tail -n 5 ./*.err)"
done
finish
