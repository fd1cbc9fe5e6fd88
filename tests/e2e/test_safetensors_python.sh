#!/bin/bash
# Model files in other hands: a plain Python reader computes from a file of ours the loss and accuracy
# that `eval` tells, and what it writes is evaluated and inspected by us.
python=/usr/bin/python3
tool=$(realpath "$(dirname "$0")")/../parity/safetensors_plain.py
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"
$python -c 'import numpy' 2>/dev/null || skip "SKIP: python3-numpy is not installed"
export PYTHONDONTWRITEBYTECODE=1

# same_as_eval FILE: accuracy and loss by numpy and by `eval`.
same_as_eval() {
    local theirs
    accepted '"accuracy"' "$gv" eval "$1" --data "idx:$folder/data" --json
    theirs=$($python "$tool" eval "$1" data) || bad "Python cannot evaluate $1"
    checks=$((checks + 1))
    $python - accepted.out $theirs <<'PY' || bad "$1: $(cat accepted.out), numpy: $theirs"
import json
import sys

ours = json.load(open(sys.argv[1]))
accuracy, loss = map(float, sys.argv[2:])
near = abs(ours["loss"][0] / loss - 1) < 1e-5 and abs(ours["accuracy"][0] - accuracy) < 1e-9
sys.exit(0 if near and ours["samples"] == 200 else 1)
PY
}

mkdir data
$python "$tool" data data
accepted '"goal_reached":true' "$gv" peer --listen 127.0.0.1:0 --data "idx:$folder/data" --model mlp --lr 0.01 \
    --steps 20 --quiet --json --out ours
same_as_eval ours/model.safetensors

$python "$tool" random ours/model.safetensors theirs.safetensors || bad "Python cannot write"
same_as_eval theirs.safetensors
accepted '256' "$gv" inspect theirs.safetensors
cmp -s ours/model.safetensors theirs.safetensors && bad "nothing was written anew"

# The order of the tensors in the file means nothing.
$python "$tool" random ours/model.safetensors turned.safetensors reversed || bad "Python cannot write"
accepted '256' "$gv" inspect turned.safetensors
same_as_reordered=$($python -c 'import sys; sys.path.insert(0, sys.argv[1])
import safetensors_plain as s
a, b = (s.read(f)[0] for f in ("theirs.safetensors", "turned.safetensors"))
print(all((a[n] == b[n]).all() for n in a), list(a) == list(b))' "$(dirname "$tool")")
[ "$same_as_reordered" = "True False" ] || bad "the turned file is not what it should be: $same_as_reordered"
"$gv" eval theirs.safetensors --data "idx:$folder/data" --json | sed 's/theirs//g' >plain.out
"$gv" eval turned.safetensors --data "idx:$folder/data" --json | sed 's/turned//g' >turned.out
checks=$((checks + 1))
cmp -s plain.out turned.out || bad "the order of tensors in a file matters: $(cat plain.out turned.out)"
finish
