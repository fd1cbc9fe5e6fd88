#!/bin/bash
# Smaller model files: int8 and pruned ones are judged, used, exported and distilled like the others;
# onnxruntime and a C file of its own say what we say; what cannot be is one clear line.
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/e2e/helpers.sh
. "$here/e2e/helpers.sh"
begin "$1"

accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 300 --out cnn \
    --model 'conv3x3:8 bn relu conv3x3:16,stride=2 relu maxpool2 dropout:0.1 linear:32 relu linear:classes'
m=cnn/model.safetensors

# int8: well under half of the bytes (of a model this small much is the header), and about as good.
accepted '^after +9[0-9]\.' "$gv" compact $m --data digits --out q.st
grep -qE '^q\.st: [0-9,]+ bytes, was [0-9,]+; int8, [0-9.]+ % of [0-9,]+ weights are 0$' accepted.out || bad "$(cat accepted.out)"
[ $((5 * $(wc -c <q.st))) -lt $((2 * $(wc -c <$m))) ] || bad "int8 is no smaller: $(wc -c q.st $m)"
accepted '"form":"int8","parameters":[0-9]+,"weights":' "$gv" compact $m --out q2.st --json
grep -q '"before":null,"after":null' accepted.out || bad "judged without being asked: $(cat accepted.out)"
cmp -s q.st q2.st || bad "judging changes what is written"

# Pruned, with fine-tuning on what the file was trained on, as int8 and as float32; and at once.
accepted '80\.[0-9] % of' "$gv" compact $m --prune 80% --epochs 2 --out p.st
accepted '"form":"f32".*"weights_error":0\.0,.*"steps":45,' "$gv" compact $m --prune 0.8 --epochs 2 --to f32 --out pf.st --json
accepted '50\.[0-9] % of' "$gv" compact $m --prune 0.5 --epochs 0 --out once.st
for a in "p.st q.st" "pf.st $m" "once.st q.st"; do
    # shellcheck disable=SC2086
    set -- $a
    [ "$(wc -c <"$1")" -lt "$(wc -c <"$2")" ] || bad "$1 is not smaller than $2"
done
accepted '^ensemble' "$gv" eval $m q.st p.st pf.st
awk '/^[a-z].*\.s/ { if ($2 < 90) exit 1 }' accepted.out || bad "something was lost: $(cat accepted.out)"

# What else reads model files.
accepted 'conv1\.weight +I8 +8 x 1 x 3 x 3' "$gv" inspect q.st
accepted 'average of 2 models' "$gv" average $m q.st --out a.st
accepted 'student' "$gv" distill --teachers q.st,p.st --student 'linear:16 relu linear:classes' --epochs 1 --out s.st
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 5 --init p.st
accepted '"dtype":"F32","shape":\[8,1,3,3\]' bash -c "'$gv' export q.st --to safetensors --out plain.st && '$gv' inspect plain.st --json"
accepted 'int8, ' "$gv" compact q.st --out q3.st # again: the same
"$gv" inspect q.st --json >want && "$gv" inspect q3.st --json >got
[ "$(grep -o '"digest":"[0-9a-f]*"' want)" = "$(grep -o '"digest":"[0-9a-f]*"' got)" ] || bad "packed again it is another model"

# Text models: embeddings, positions, attention.
for i in $(seq 300); do echo "the vine grows, the grapes ripen, and $i birds sing in the morning."; done >text.txt
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 40 --out gpt --data text:text.txt \
    --model 'embed:32 positions:24 [ ln attention:4 ]+ [ ln linear:64 gelu linear:32 ]+ ln linear:classes,bias=0,tied=1'
accepted '^after' "$gv" compact gpt/model.safetensors --data text:text.txt --prune 0.3 --epochs 0.2 --out gptq.st
accepted '^the vine' "$gv" generate gptq.st --prompt 'the vine' --tokens 20 --seed 3

# One line each for what cannot be.
refused 2 'nothing becomes smaller' "$gv" compact $m --to f32 --out x.st
refused 2 'is read and would be|same file|cnn/model' "$gv" compact $m --out $m
refused 2 '^grapevine: --lr is for fine-tuning' "$gv" compact $m --lr 0.01 --out x.st
refused 2 '^grapevine: --batch is for fine-tuning' "$gv" compact $m --prune 0.5 --epochs 0 --batch 8 --out x.st
refused 2 'prune' "$gv" compact $m --prune 1 --out x.st
refused 1 'does not fit the data' "$gv" compact $m --data synthetic:spirals --out x.st
refused 1 'nothing\.st' "$gv" compact nothing.st --out x.st
refused 1 'nowhere' "$gv" compact $m --out /nowhere/x.st
refused 1 'no longer finite' "$gv" compact $m --prune 0.5 --lr 1e6 --out x.st
refused 2 'lbfgs' "$gv" compact $m --prune 0.5 --optimizer lbfgs --out x.st
[ -e x.st ] && bad "a refused model was written"
head -c 3000 q.st >cut.st
refused 1 'cut\.st' "$gv" eval cut.st
refused 1 'cut\.st' "$gv" compact cut.st --out x.st

# A C file of its own gives the probabilities that predict gives.
awk 'BEGIN { srand(3); for (r = 1; r <= 5; r++) for (i = 0; i < 64; i++) printf("%.4f%s", rand(), (i < 63 ? "," : "\n")) }' >rows.csv
cc=$(command -v cc || command -v gcc || command -v clang) || skip "no C compiler for docs/run_model.c"
"$cc" -std=c99 -pedantic -Wall -Wextra -Werror -O1 -o run_model "$here/../docs/run_model.c" -lm || bad "docs/run_model.c"
for model in $m q.st p.st pf.st; do
    accepted '^[0-9.e-]+ ' bash -c "./run_model $model <rows.csv"
    cp accepted.out theirs
    accepted '"row":4' "$gv" predict $model --input rows.csv --top 10 --json
    awk 'NR == FNR { for (i = 1; i <= NF; i++) p[FNR, i - 1] = $i; n = FNR; next }
         { rows++; while (match($0, /"class":[0-9]+,"probability":[0-9.e-]+/)) {
             split(substr($0, RSTART, RLENGTH), part, /[:,]/); d = p[FNR, part[2]] - part[4]
             if (d > 1e-5 || d < -1e-5) bad++; seen++; $0 = substr($0, RSTART + RLENGTH) } }
         END { exit bad > 0 || seen != 50 || n != 5 || rows != 5 }' theirs accepted.out || bad "run_model says otherwise of $model"
done
checks=$((checks + 1))
./run_model q.st </dev/null >out 2>err && bad "no rows, and no error"
grep -q '^run_model: cannot run the model' err || bad "run_model does not say why"

# int8 as ONNX: smaller, and onnxruntime gives the same probabilities.
accepted '^q\.onnx: ONNX, opset 17, int8 weights$' "$gv" export q.st --to onnx --out q.onnx
accepted '^p\.onnx: ONNX' "$gv" export p.st --to onnx --out p.onnx
accepted '^f\.onnx: ONNX, opset 17$' "$gv" export $m --to onnx --out f.onnx
[ $((2 * $(wc -c <q.onnx))) -lt "$(wc -c <f.onnx)" ] || bad "int8 ONNX is not smaller"
if runtime=$(bash "$here/node_module.sh" onnxruntime-node 1.14.0); then
    for model in q p; do
        accepted '"row":4' "$gv" predict $model.st --input rows.csv --top 10 --json
        cp accepted.out rows.jsonl
        accepted '^same: 5 rows' env NODE_PATH="$runtime" node "$here/onnx/predict.js" $model.onnx rows.csv rows.jsonl 1,8,8
    done
elif [ "$wrong" -eq 0 ]; then
    skip "int8 ONNX was not run: $runtime"
fi
finish
