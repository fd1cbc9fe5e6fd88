#!/usr/bin/env bash
# --init FILE begins a run from a model file, ours or one of GPT-2's form: with its layers, its values
# and their lineage, so that peers which begin from it average; a file that does not fit is refused.
# shellcheck source=tests/e2e/helpers.sh
source "$(dirname "$0")/helpers.sh"
begin "$1"

peer=("$gv" peer --listen 127.0.0.1:0 --report-every 100ms)

accepted '^finished: 600 steps' "${peer[@]}" --model 'conv3x3:8 bn relu maxpool2 linear:classes' --steps 600 \
    --averaging none --out a
file=a/model.safetensors
"$gv" eval "$file" --quiet --json >a.json
accuracy=$(sed -E 's/.*"accuracy":\[([0-9.]+)\].*/\1/' a.json)

# Its values: after a step that goes nowhere it answers as it did.
accepted '^finished: 1 steps' "${peer[@]}" --init "$file" --steps 1 --lr 1e-9 --averaging none --out b
grep -q '^model = conv3x3:8 bn relu maxpool2 linear:classes$' b/config.ini || bad "its layers are not the model"
"$gv" eval b/model.safetensors --quiet --json >b.json
[ "$(sed -E 's/.*"accuracy":\[([0-9.]+)\].*/\1/' b.json)" = "$accuracy" ] || bad "$(cat a.json b.json)"
# The run goes on without the file.
cp -r b c && sed -i 's/a.model/gone/' c/config.ini
accepted '^finished: 2 steps' "$gv" peer --out c --steps 2

# Peers of unlike seeds that begin from it hold one model at once.
start one "${peer[@]}" --init "$file" --seed 1 --averaging local-sgd:H=4 --time 1h --start-with 2 --out one
first=$pid
start two "${peer[@]}" --init "$file" --seed 2 --averaging local-sgd:H=4 --time 1h --start-with 2 \
    --bootstrap "$address" --out two
checks=$((checks + 1))
for ((i = 0; i < 600; i++)); do
    grep -q '"rounds_ok":[1-9]' two/metrics.jsonl 2>/dev/null && break
    sleep 0.1
done
grep -q '"rounds_ok":[1-9]' two/metrics.jsonl || bad "they do not average"
stop "$pid"
stop "$first"
grep -q "took the swarm's model" one/log.txt two/log.txt && bad "one of them has downloaded the model"

# GPT-2's form.
yes 'some words of a text, and some more. ' | head -c 20000 >text
gpt='embed:64 positions:32 [ ln attention:1 ]+ [ ln linear:256 gelu-tanh linear:64 ]+ ln linear:classes,tied=1,bias=0'
small=(--data text:text --batch 4 --evaluate-samples 10 --averaging none)
accepted '^finished: 3 steps' "${peer[@]}" "${small[@]}" --model "$gpt" --steps 3 --out poet
accepted 'Hugging Face' "$gv" export poet/model.safetensors --to safetensors --out gpt2.safetensors
accepted '^finished: 1 steps' "${peer[@]}" "${small[@]}" --init gpt2.safetensors --steps 1 --lr 1e-9 --out again
grep -q '^model = embed:64 positions:32 ' again/config.ini || bad "the layers of GPT-2's form are not the model"

# What does not fit.
refused 1 'does not fit --model: the file has the layers conv3x3:8' "${peer[@]}" --init "$file" --model mlp --steps 1
refused 1 'a/model.safetensors does not fit the data: .*real values' "${peer[@]}" --init "$file" \
    --data synthetic:least-squares,features=64,outputs=10 --model 'linear:classes' --steps 1
tr a-z b-za <text >other
refused 1 'gpt2.safetensors does not fit the data: the model was trained on .* symbols' "${peer[@]}" \
    --init gpt2.safetensors --data text:other --steps 1 --out none
[ -e none ] && bad "a refused start leaves a folder"
refused 1 'cannot read no-such: no such file' "${peer[@]}" --init no-such --steps 1
refused 1 'cannot read b/config.ini: not a sound safetensors file' "${peer[@]}" --init b/config.ini --steps 1
finish
