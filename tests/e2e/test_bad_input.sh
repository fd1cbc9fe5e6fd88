#!/bin/bash
# Bad input: each case is one clear line and exit code 1 or 2, within its time, and nothing else is
# complained about afterwards.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
source_folder=$(realpath "$(dirname "$0")")
begin "$1"

peer=("$gv" peer --listen 127.0.0.1:0 --averaging none --steps 3)

# --- the command line ------------------------------------------------------------------------------
refused 2 'unknown command pear: did you mean peer' "$gv" pear
refused 2 'did you mean --bootstrap' "${peer[@]}" --bootstap x
refused 2 'no value' "$gv" peer --steps
refused 2 'given twice' "${peer[@]}" --steps 4
refused 2 'not a count' "$gv" peer --steps ten
refused 2 'did you mean GRAPEVINE_LISTEN' env GRAPEVINE_LISTN=x "${peer[@]}"
refused 2 'GRAPEVINE_CPU=avx: choose baseline, avx2, avx512 or amx' env GRAPEVINE_CPU=avx "${peer[@]}"
echo 'modle = cnn' >typo.ini
refused 2 'typo.ini:1: unknown setting modle; did you mean model' "${peer[@]}" --config typo.ini
refused 2 'no such file' "${peer[@]}" --config nowhere.ini

# --- a limited address space -----------------------------------------------------------------------
# OpenBLAS would try for ever to get its buffers.
for kib in 200000 300000 500000; do
    refused_within=20 refused 1 'ulimit -v' bash -c "ulimit -v $kib && exec \"\$@\"" - "${peer[@]}"
done

# --- data ------------------------------------------------------------------------------------------
refused '1 2' 'digist.*digits|digits.*digist' "${peer[@]}" --data digist
refused 1 'no such file.*--data|--data.*no such file|cannot read .*nowhere' "${peer[@]}" --data idx:nowhere

bytes() { printf "%b" "$(printf '\\x%s' "$@")"; }
images() { # images FILE COUNT(4 hex bytes) PIXELS: 8x8 images
    { bytes 00 00 08 03; bytes "${@:2:4}"; bytes 00 00 00 08 00 00 00 08; head -c "$6" /dev/zero; } >"$1"
}
labels() { # labels FILE COUNT(4 hex bytes) LABELS
    { bytes 00 00 08 01; bytes "${@:2:4}"; head -c "$6" /dev/zero; } >"$1"
}
good_set() { # a sound set of 20 training and 10 test images in folder $1
    mkdir -p "$1"
    images "$1/train-images-idx3-ubyte" 00 00 00 14 1280
    labels "$1/train-labels-idx1-ubyte" 00 00 00 14 20
    images "$1/t10k-images-idx3-ubyte" 00 00 00 0a 640
    labels "$1/t10k-labels-idx1-ubyte" 00 00 00 0a 10
}
good_set cut
head -c 7 cut/train-images-idx3-ubyte >short && mv short cut/train-images-idx3-ubyte
refused 1 'train-images-idx3-ubyte' "${peer[@]}" --data idx:cut
good_set lying
images lying/train-images-idx3-ubyte 00 00 00 20 1280
labels lying/train-labels-idx1-ubyte 00 00 00 20 32
refused 1 'train-images-idx3-ubyte' "${peer[@]}" --data idx:lying
good_set huge
images huge/train-images-idx3-ubyte ff ff ff ff 1280
labels huge/train-labels-idx1-ubyte ff ff ff ff 20
refused 2 '^grapevine: --labels is for --data csv:FILE,label=COLUMN$' "$gv" peer --data digits --labels a,b
refused 2 '^grapevine: --tokenizer is for --data text:FILE or tokens:FILE$' "$gv" testnet --data csv:x,label=y --tokenizer x
refused 1 'train-(images|labels)-idx' "${peer[@]}" --data idx:huge
good_set uneven
labels uneven/train-labels-idx1-ubyte 00 00 00 13 19
refused 1 'train-(images|labels)-idx' "${peer[@]}" --data idx:uneven
good_set magic
{ bytes 50 4b 03 04; head -c 1300 /dev/zero; } >magic/train-images-idx3-ubyte
refused 1 'train-images-idx3-ubyte' "${peer[@]}" --data idx:magic

# --- models, optimizers, strategies ----------------------------------------------------------------
refused 2 'column 12' "${peer[@]}" --model 'conv3x3:32 rleu linear:classes'
refused 2 'column' "${peer[@]}" --model 'linear:0'
mkdir before
refused 2 'unknown layer' "${peer[@]}" --model modle --out before//never/at/all/
[ -d before ] && [ -z "$(ls before)" ] || bad 'a mistyped flag left a folder above its own, or took one that was there'
refused 2 'unknown layer' "${peer[@]}" --model modle --out never/again
[ ! -e never ] || bad 'a mistyped flag left a folder'
refused 2 'peer 0 failed.*unknown layer' "$gv" testnet --peers 2 --model modle --out run
[ -z "$(ls run)" ] || bad "a mistyped flag left something in a testnet's folder"
mkdir -p run/peer-000 && echo '{}' >run/summary.json && echo 'an hour' >run/peer-000/model.safetensors
refused 2 'peer 0 failed.*unknown layer' "$gv" testnet --peers 2 --model modle --out run --fresh
[ "$(cat run/peer-000/model.safetensors)" = 'an hour' ] && [ "$(ls -A run run/peer-000 | wc -l)" = 6 ] ||
    bad "a mistyped flag changed an earlier testnet: $(ls -A run run/peer-000)"
refused 2 'maxpool|shape|fit|small' "${peer[@]}" --model 'maxpool2 maxpool2 maxpool2 maxpool2 linear:classes'
refused 2 'classes|10|fit' "${peer[@]}" --model 'linear:3'
refused 2 'adma' "${peer[@]}" --optimizer adma
refused 2 'cosien' "${peer[@]}" --schedule cosien
refused 2 'did you mean|nearest|known|local-sgd' "$gv" peer --listen 127.0.0.1:0 --averaging local-sdg
refused 2 'H|column' "$gv" peer --listen 127.0.0.1:0 --averaging local-sgd:H=0
refused 2 'complete' "$gv" peer --listen 127.0.0.1:0 --topology rign
refused 2 'f16' "$gv" peer --listen 127.0.0.1:0 --codec f17
refused 2 'pair' "$gv" peer --listen 127.0.0.1:0 --exchange pear
refused 2 'mean' "$gv" peer --listen 127.0.0.1:0 --rule maen
refused 2 'every|key=value' "$gv" peer --listen 127.0.0.1:0 --pace never
refused 2 'dirichlet|shard' "${peer[@]}" --shard dirichlet:0.1
refused 2 'target-accuracy.*evaluate-samples' "${peer[@]}" --target-accuracy 0.9 --evaluate-samples 0
refused 2 'shard-of' "${peer[@]}" --shard-of 3/3

# --- files -----------------------------------------------------------------------------------------
echo 'no tensors here' >garbage.safetensors
refused 1 'garbage.safetensors' "$gv" eval garbage.safetensors
refused 1 'garbage.safetensors' "$gv" inspect garbage.safetensors
refused 1 'nowhere.safetensors.*no such file' "$gv" inspect nowhere.safetensors
refused 1 'cannot (make|create|write|open).*garbage.safetensors' "${peer[@]}" --out garbage.safetensors/a
accepted 'finished' "${peer[@]}" --out kept
refused 2 '--model' "${peer[@]}" --out kept --model cnn
refused 2 '--seed' "${peer[@]}" --out kept --seed 9
cp -r kept damaged
for file in damaged/*.safetensors; do # one bit of the last value
    size=$(stat -c %s "$file")
    printf '\x55' | dd of="$file" bs=1 seek=$((size - 1)) conv=notrunc status=none
done
refused 1 'damaged' "$gv" inspect damaged/model.safetensors
refused 1 'state.safetensors|damaged' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 9 --out damaged
cp -r kept foreign
cp foreign/model.safetensors foreign/state.safetensors
refused 1 'state.safetensors|foreign' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 9 --out foreign

# --- the network -----------------------------------------------------------------------------------
refused 2 'HOST:PORT' "${peer[@]}" --bootstrap nonsense
refused 2 'public|swarm-key' "$gv" peer --listen 0.0.0.0:0 --steps 3
refused 1 'no such file' "${peer[@]}" --swarm-key nowhere.key
echo 'not a key' >bad.key
refused '1 2' 'bad.key' "${peer[@]}" --swarm-key bad.key

host=("$gv" peer --listen 127.0.0.1:0 --steps 100000000 --report-every 1h)
start host "${host[@]}"
refused 1 'in use' "$gv" peer --listen "$address" --steps 3

join=("$gv" peer --listen 127.0.0.1:0 --steps 3 --join-timeout 30s)
within() { briefly=("${join[@]/30s/$1}"); } # where nothing but the end of its time ends the joining
refused '1 2' 'mlp.*cnn|cnn.*mlp' "${join[@]}" --bootstrap "$address" --model cnn
refused '1 2' 'swarm-name|swarm-key' "${join[@]}" --bootstrap "$address" --swarm-name other
"$gv" keygen --swarm-key --out other.key >/dev/null
refused '1 2' 'swarm-name|swarm-key' "${join[@]}" --bootstrap "$address" --swarm-key other.key

stop "$pid"
within 3s
refused 1 'refused' "${briefly[@]}" --bootstrap "$address"
refused 1 'refused' "$gv" status "$address"

if ${CC:-cc} -D_GNU_SOURCE -O1 -o answer "$source_folder/answer.c" 2>/dev/null; then
    start silent ./answer
    within 7s # it has 5 s for the handshake
    refused 1 'answer|time' "${briefly[@]}" --bootstrap "$address"
    start web ./answer $'HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n'
    refused 1 'HTTP|not a grapevine peer' "${join[@]}" --bootstrap "$address"
    refused 1 'HTTP|not a grapevine peer' "$gv" status "$address"
else
    echo "no C compiler, so listeners that are no peers were not tried"
fi
finish
