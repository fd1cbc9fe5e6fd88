#!/bin/bash
# The table of docs/own_data.md: accuracy on patients of all hospitals of a model of each one alone,
# of all data in one place, and of the three as a swarm; the same steps, seeds 1 to 3 of data and
# model. Usage: tests/bench/hospitals_compare.sh build/release/grapevine [STEPS] [METHOD...]
set -eu
gv=$(realpath "$1")
script=$(realpath "$(dirname "$0")/hospitals.sh")
steps=${2:-600}
methods=("${@:3}")
[ ${#methods[@]} -gt 0 ] || methods=(local-sgd:H=8)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
common=(--model 'linear:32 relu linear:classes' --labels 'healthy,flu,anaemia' --shard all --batch 32 --optimizer momentum:lr=0.02
    --steps "$steps" --threads 1 --evaluate-samples 0 --quiet)
accuracy() { # accuracy FOLDER
    "$gv" eval "$1/model.safetensors" --data 'csv:all.csv,label=diagnosis,test=test.csv' --json | sed 's/.*"accuracy":\([0-9.]*\).*/\1/;q'
}
one() { # one NAME FILE SEED
    "$gv" peer --listen 127.0.0.1:0 --averaging none --data "csv:$2.csv,label=diagnosis,test=test.csv" --seed "$3" --out "$1" "${common[@]}" >/dev/null
    echo "$1 seed $3 $(accuracy "$1")"
    rm -rf "$1"
}
for seed in 1 2 3; do
    bash "$script" "$seed"
    for file in north east south; do one "alone:$file" "$file" "$seed"; done
    one "one-place" all "$seed"
    for method in "${methods[@]}"; do
        port=$((20000 + RANDOM % 20000))
        swarm=(--start-with 3 --averaging "$method" --seed "$seed")
        "$gv" peer --listen "127.0.0.1:$port" --data 'csv:north.csv,label=diagnosis,test=test.csv' --out north "${swarm[@]}" "${common[@]}" >north.out &
        for file in east south; do
            "$gv" peer --listen 127.0.0.1:0 --bootstrap "127.0.0.1:$port" --data "csv:$file.csv,label=diagnosis,test=test.csv" --out "$file" \
                "${swarm[@]}" "${common[@]}" >"$file.out" &
        done
        wait
        for file in north east south; do echo "swarm:$method:$file seed $seed $(accuracy "$file")"; done
        rm -rf north east south
    done
done | tee rows
echo "mean of 3 seeds"
awk '{ sum[$1] += $4; n[$1]++ } END { for (k in sum) printf "%s %.1f %%\n", k, 100 * sum[k] / n[k] }' rows | sort
