#!/bin/bash
# Flags of training: precision, profile, threads without locks, a growing batch, L-BFGS; what they
# say, what they refuse, and that a run that was stopped goes on.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

peer=("$gv" peer --listen 127.0.0.1:0 --model "linear:16 relu linear:classes" --averaging none)

# What became of bf16 is said once, in one line; the benchmark tells what it used.
accepted '^finished: 9 steps' "${peer[@]}" --steps 9 --precision bf16
checks=$((checks + 1))
"${peer[@]}" --steps 9 --precision bf16 >said.out 2>said.err
[ "$(grep -c '^--precision bf16: ' said.err)" = 1 ] || bad "the precision is not said once"
accepted '"precision":"(f32|bf16)"' "$gv" bench train --model linear:classes --seconds 0.05 \
    --precision bf16 --json
accepted '"precision":"f32"' "$gv" bench train --model linear:classes --seconds 0.05 --json
refused 2 'precision' "${peer[@]}" --precision f16

# A profile has a row for each layer and for the rest.
accepted '^dense2 +linear:classes ' "${peer[@]}" --steps 9 --profile
grep -q '^wall ' accepted.out || bad "a profile does not end with the wall clock"
accepted '"event":"profile","layer":"dense1"' "${peer[@]}" --steps 9 --profile --json
accepted '^\{"layer":"\(loss\)"' "$gv" bench train --model linear:classes --seconds 0.05 --profile \
    --json
refused 2 'means nothing to' "$gv" bench kernels --profile

# Threads without locks are for sgd.
accepted '^finished: 50 steps' "${peer[@]}" --steps 50 --optimizer sgd --hogwild 2
refused 2 'add --optimizer sgd' "${peer[@]}" --steps 50 --optimizer adam --hogwild 2
refused 2 'leave --threads out' "${peer[@]}" --steps 50 --optimizer sgd --hogwild 2 --threads 2

# Epochs count samples: 1,437 of them, 23 batches, in fewer steps where the batch grows.
accepted '^finished: 16 steps' "${peer[@]}" --epochs 1 --schedule grow:every=50%,factor=2
refused 2 'grow needs every=STEPS' "${peer[@]}" --schedule grow

# L-BFGS, also stopped and resumed: the same bits.
accepted '^finished: 8 steps' "${peer[@]}" --steps 8 --optimizer lbfgs --out whole
accepted '^finished: 3 steps' "${peer[@]}" --steps 3 --optimizer lbfgs --out parts
accepted '^finished: 8 steps' "${peer[@]}" --steps 8 --out parts
cmp -s whole/model.safetensors parts/model.safetensors || bad "a resumed run has other bits"
refused 2 'leave --accumulate' "${peer[@]}" --optimizer lbfgs --accumulate 2

# A mean over the steps: a model file of its own, the same bits after a stop; not of other learners.
mean=("$gv" peer --listen 127.0.0.1:0 --model 'resnet14*0.25' --averaging none --evaluate-samples 0 --ema 0.9)
accepted '^finished: 12 steps' "${mean[@]}" --steps 12 --out mean
accepted '^finished: 6 steps' "${mean[@]}" --steps 6 --out halves
accepted '^finished: 12 steps' "$gv" peer --steps 12 --out halves
cmp -s mean/ema.safetensors halves/ema.safetensors || bad "a resumed run has another mean"
! cmp -s mean/ema.safetensors mean/model.safetensors || bad "the mean is the model"
accepted '"calibration_error":\[[0-9]' "$gv" eval mean/ema.safetensors --data digits --json
refused 2 'ema: not with' "${peer[@]}" --steps 1 --ema 0.9 --optimizer lbfgs
refused 2 'choose between' "${peer[@]}" --steps 1 --ema 1
refused 2 'behind the star' "$gv" inspect --model 'cnn*x' --data digits

# Averages of what was chosen, and of what did not begin together.
accepted '^finished' "$gv" peer --listen 127.0.0.1:0 --model 'resnet14*0.25' --averaging none --evaluate-samples 0 \
    --seed 2 --steps 12 --out other
files=(mean/model.safetensors other/model.safetensors)
accepted 'average of 2 models.*calibration error' "$gv" average "${files[@]}" --align --out aligned.safetensors
accepted '^chosen: [12] of 2: ' "$gv" average "${files[@]}" --soup greedy --out greedy.safetensors
accepted '"selection":0' "$gv" average "${files[@]}" --soup greedy --out greedy.safetensors --json
accepted '"weights":\[[0-9.]+,' "$gv" eval "${files[@]}" --weights score --align --json
accepted '^ensemble, mean of logits' "$gv" eval "${files[@]}"

finish
