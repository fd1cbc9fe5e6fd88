#!/bin/bash
# GGUF: models of GPT-2's form, of bytes and of a tokenizer, tied or not, as a public reader reads them
# (tests/gguf/check.js); what cannot be one is refused by name. LONG=1: and run by llama.cpp, whose
# tokens, probabilities and perplexity are ours (tests/gguf/run.mjs).
here=$(cd "$(dirname "$0")/.." && pwd)
# shellcheck source=tests/e2e/helpers.sh
. "$here/e2e/helpers.sh"
begin "$1"

for i in $(seq 200); do echo "the vine grows, the grapes ripen, and $i birds sing \\ in the morning."; done >text.txt
train() { # train NAME WORD...
    local name=$1
    shift
    accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --batch 8 --out "$name" "$@"
}
block='[ ln attention:4 ]+ [ ln linear:64'
train bytes --steps 40 --data text:text.txt,context=24 --model "embed:32 positions:24 $block gelu linear:32 ]+ $block gelu linear:32 ]+ ln linear:classes,bias=0"
train tied --steps 40 --data text:text.txt,context=24 --model "embed:32 positions:24 $block gelu-tanh linear:32 ]+ ln linear:classes,bias=0,tied=1"
models='bytes tied'
if /usr/bin/python3 -c 'import regex' 2>/dev/null; then
    python3 "$here/tokenizer/bpe.py" train "$here/../docs/glossary.md" --merges 60 || bad "no tokenizer was trained"
    train tokens --steps 20 --data "text:$here/../docs/glossary.md,context=16" --tokenizer tokenizer.json \
        --model "embed:32 positions:16 $block gelu-tanh linear:32 ]+ ln linear:classes,bias=0"
    train llama --steps 1 --data "text:$here/../docs/glossary.md,context=16" --tokenizer llama.json \
        --model "embed:32 positions:16 $block gelu-tanh linear:32 ]+ ln linear:classes,bias=0"
    models="$models tokens"
    refused 1 'llama as GGUF: its tokenizer does not find words as GPT-2' "$gv" export llama/model.safetensors --to gguf --out x.gguf
    mkdir kept && mv tokenizer.json vocab.bpe kept
    refused 1 'tokenizer' "$gv" export tokens/model.safetensors --to gguf --out x.gguf
    mv kept/* .
fi
train lstm --steps 1 --data text:text.txt,context=8 --model 'embed:8 lstm:8 linear:classes'
train images --steps 1 --model 'linear:8 relu linear:classes'
refused 1 "lstm as GGUF: only models of GPT-2's form .* its layers are embed:8 lstm:8" "$gv" export lstm/model.safetensors --to gguf --out x.gguf
refused 1 'images as GGUF' "$gv" export images/model.safetensors --to gguf --out x.gguf
refused 2 '--tokenizer is for --to gguf' "$gv" export bytes/model.safetensors --to onnx --out x.onnx --tokenizer t.json
refused 1 'nowhere' "$gv" export bytes/model.safetensors --to gguf --out nowhere/x.gguf
refused 1 'cannot write x\.gguf' bash -c "ulimit -f 8; trap '' XFSZ; exec '$gv' export bytes/model.safetensors --to gguf --out x.gguf"
[ -z "$(ls -- *.gguf* 2>/dev/null)" ] || bad "a refused export left $(ls -- *.gguf*)"

for model in $models; do
    accepted 'GGUF 3, architecture gpt2' "$gv" export $model/model.safetensors --to gguf --out $model.gguf
    accepted 'safetensors' "$gv" export $model/model.safetensors --to safetensors --out $model.st
done
[ "$wrong" -eq 0 ] || finish
modules=$(bash "$here/node_module.sh" @huggingface/gguf 0.4.6) || skip "$modules"
for model in $models; do
    tokenizer=
    [ $model != tokens ] || tokenizer=tokenizer.json
    accepted "^read $model.gguf: [0-9]+ tensors" env NODE_PATH="$modules" node "$here/gguf/check.js" $model.gguf $model.st $tokenizer
done
[ -n "${LONG:-}" ] || finish

# In llama.cpp. Its GELU is the one by tanh, from a table of half precision.
runtime=$(bash "$here/node_module.sh" onnxruntime-node 1.14.0) || skip "$runtime"
llama=$here/../build/node/llama
mkdir -p "$llama"
if [ ! -d "$llama/node_modules/node-llama-cpp" ]; then
    (cd "$llama" && echo '{"private":true}' >package.json && npm install --silent --no-audit --no-fund --ignore-scripts \
        --omit=optional node-llama-cpp@3.22.1 @node-llama-cpp/linux-x64@3.22.1 >/dev/null 2>&1) || skip "node-llama-cpp cannot be fetched from npm"
fi
for model in $models; do
    text=text.txt words=
    if [ $model = tokens ]; then
        text=$here/../docs/glossary.md words=words.bin
        accepted 'tokens of' "$gv" tokenize --tokenizer tokenizer.json "$text" --out words.bin
    fi
    accepted 'ONNX' "$gv" export $model/model.safetensors --to onnx --out $model.onnx
    accepted '^[0-9]+ places: perplexity' env NODE_PATH="$runtime" node "$here/gguf/run.mjs" "$llama/node_modules" $model.gguf $model.onnx "$text" 0.002 $words
    echo "$model: $(cat accepted.out)"
done
finish
