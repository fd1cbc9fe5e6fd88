#!/bin/bash
# Model files for other programs: every kind of layer as ONNX, judged by onnx.checker and run by
# onnxruntime, which must say what we say; safetensors in our names and in Hugging Face's for GPT-2,
# read back to the same model.
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/e2e/helpers.sh
. "$here/e2e/helpers.sh"
begin "$1"

# Models and text to begin with.
for i in $(seq 300); do echo "the vine grows, the grapes ripen, and $i birds sing in the morning."; done >text.txt
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 40 --out cnn \
    --model 'conv3x3:8 bn relu maxpool2 linear:classes'
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 60 --out gpt --data text:text.txt \
    --model 'embed:32 positions:24 ( [ ln attention:4 ]+ [ ln linear:64 gelu linear:32 ]+ )*2 ln linear:classes,bias=0'
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 60 --out tied --data text:text.txt \
    --model 'embed:32 positions:24 [ ln attention:4 ]+ [ ln linear:64 gelu linear:32 ]+ ln linear:classes,bias=0,tied=1'
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 5 --out local --model 'local3x3:2 relu linear:classes'

# safetensors: the same model under our names.
accepted '^cnn\.st: safetensors$' "$gv" export cnn/model.safetensors --to safetensors --out cnn.st
accepted 'accuracy' "$gv" eval cnn/model.safetensors --json
sed 's/"\(files\|average_members\)":[^]]*]//g' accepted.out >want
accepted 'accuracy' "$gv" eval cnn.st --json
sed 's/"\(files\|average_members\)":[^]]*]//g' accepted.out >got
cmp -s want got || bad "an exported model is judged otherwise: $(cat want got)"

# safetensors: GPT-2's form under Hugging Face's names, tied or not, and back.
for model in gpt tied; do
    accepted '"names":"gpt2"' "$gv" export $model/model.safetensors --to safetensors --out $model.st --json
    accepted '"name":"transformer\.h\.0\.attn\.c_attn\.weight","dtype":"F32","shape":\[32,96\]' "$gv" inspect $model.st --json
    grep -q '"n_head":"4"' accepted.out || bad "the number of heads is not told"
    if [ $model = tied ]; then
        grep -q 'lm_head' accepted.out && bad "a tied head is written twice"
    else
        grep -q '"name":"lm_head.weight"' accepted.out || bad "the head is missing"
    fi
    accepted '^the vine' "$gv" generate $model/model.safetensors --prompt 'the vine' --tokens 60 --seed 3
    cp accepted.out want
    accepted '^the vine' "$gv" generate $model.st --prompt 'the vine' --tokens 60 --seed 3
    cmp -s want accepted.out || bad "$model under other names goes on otherwise"
done

# What cannot be is one clear line, and leaves nothing behind.
refused 1 "layer 'local3x3:2' \(local1\) to ONNX" "$gv" export local/model.safetensors --to onnx --out local.onnx
[ -e local.onnx ] && bad "a refused export left a file"
refused 2 'needs --to onnx, safetensors, page or gguf, and --out' "$gv" export cnn.st --to onnx
refused 2 'onnx or safetensors|onnx\|safetensors' "$gv" export cnn.st --to pickle --out x
refused 1 'nothing\.st' "$gv" export nothing.st --to onnx --out x.onnx
refused 1 'text\.txt' "$gv" export text.txt --to onnx --out x.onnx
refused 1 'nowhere' "$gv" export cnn.st --to onnx --out /nowhere/x.onnx

# ONNX, by its own rules and by another runtime.
accepted '^cnn\.onnx: ONNX, opset 17$' "$gv" export cnn/model.safetensors --to onnx --out cnn.onnx
cases=$(dirname "$gv")/tests/contract_onnx
if [ ! -x "$cases" ]; then skip "the cases of tests/contract/test_onnx.c are not built"; fi
mkdir onnx
ONNX_CASES=$PWD/onnx "$cases" >cases.out 2>&1 || bad "no cases: $(tail -n 3 cases.out)"
missing=
if /usr/bin/python3 -c 'import onnx' 2>/dev/null; then
    accepted '^checked [0-9]+$' /usr/bin/python3 "$here/onnx/check.py" onnx/*.onnx cnn.onnx
else
    missing="python3-onnx is not installed"
fi
# A later onnxruntime-node fetches its library from elsewhere; this one brings it along.
if runtime=$(bash "$here/node_module.sh" onnxruntime-node 1.14.0); then
    accepted '^same resnet20' env NODE_PATH="$runtime" node "$here/onnx/compare.js" "$PWD/onnx"
    if grep DIFFERS accepted.out; then bad "onnxruntime says otherwise"; fi
    awk 'BEGIN { for (r = 1; r <= 5; r++) for (i = 0; i < 64; i++)
        printf("%.4f%s", (r + i) * (r + i) % 17 / 17, (i < 63 ? "," : "\n")) }' >rows.csv
    accepted '"row":4' "$gv" predict cnn/model.safetensors --input rows.csv --top 10 --json
    cp accepted.out rows.jsonl
    accepted '^same: 5 rows' env NODE_PATH="$runtime" node "$here/onnx/predict.js" cnn.onnx rows.csv rows.jsonl 1,8,8
else
    missing="$missing${missing:+; }$runtime"
fi
if [ -n "$missing" ] && [ "$wrong" -eq 0 ]; then skip "ONNX files were not all checked: $missing"; fi
finish
