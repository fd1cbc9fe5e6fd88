#!/bin/bash
# Every form of data, from files made here: a peer trains on it, eval finds it again by what the
# model file says. Files that are missing, cut, damaged or not what the spec says, and specs that
# are wrong, each cost one clear line.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

bytes() { printf '%b' "$(printf '\\x%s' "$@")"; }

learned=0
learns() { # learns SPEC MODEL
    learned=$((learned + 1))
    accepted '^finished: 5 steps, test loss [0-9]' "$gv" peer --listen 127.0.0.1:0 --averaging none --batch 8 \
        --steps 5 --out "run$learned" --data "$1" --model "$2"
    accepted '"loss":\[[0-9]' "$gv" eval "run$learned/model.safetensors" --json
    # A spec is whole or an error: another one is not what is in --out.
    refused 2 '--data' "$gv" peer --listen 127.0.0.1:0 --steps 9 --out "run$learned" --data digits
}
spoils() { # spoils TEXT SPEC [MODEL]
    refused '1 2' "$1" "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 1 --batch 8 --data "$2" \
        --model "${3:-linear:classes}"
}

# --- idx -------------------------------------------------------------------------------------------
idx_set() { # idx_set FOLDER: 40 training and 10 test images of 8x8
    mkdir -p "$1"
    { bytes 00 00 08 03 00 00 00 28 00 00 00 08 00 00 00 08; seq 4000 | head -c 2560; } >"$1/train-images-idx3-ubyte"
    { bytes 00 00 08 01 00 00 00 28; for ((i = 0; i < 40; i++)); do bytes "0$((i % 4))"; done; } >"$1/train-labels-idx1-ubyte"
    { bytes 00 00 08 03 00 00 00 0a 00 00 00 08 00 00 00 08; seq 4000 | head -c 640; } >"$1/t10k-images-idx3-ubyte"
    { bytes 00 00 08 01 00 00 00 0a; for ((i = 0; i < 10; i++)); do bytes "0$((i % 4))"; done; } >"$1/t10k-labels-idx1-ubyte"
}
idx_set idx
learns idx:idx 'conv3x3:4 bn relu globalpool linear:classes'
idx_set packed
gzip packed/*
learns idx:packed 'linear:classes'
head -c 60 packed/train-images-idx3-ubyte.gz >short.gz && mv short.gz packed/train-images-idx3-ubyte.gz
spoils 'train-images-idx3-ubyte.gz' idx:packed
spoils 'nowhere.*no such file' idx:nowhere
spoils 'column 5: the folder is missing' idx:

# --- cifar10 ---------------------------------------------------------------------------------------
mkdir cifar
record() { # record LABEL: a label and 3,072 pixels
    bytes "0$1"
    head -c 3072 /dev/zero | tr '\0' "$1"
}
for part in data_batch_{1..5} test_batch; do
    for label in 3 5 7 9; do record "$label"; done >"cifar/$part.bin"
done
learns cifar10:cifar 'conv3x3:4,stride=2 relu globalpool linear:classes'
cp -r cifar cut
head -c 5000 cifar/data_batch_2.bin >cut/data_batch_2.bin
spoils 'cut/data_batch_2.bin' cifar10:cut
cp -r cifar wrong
{ bytes 0a; tail -c +2 cifar/data_batch_3.bin; } >wrong/data_batch_3.bin
spoils 'wrong/data_batch_3.bin.*label 10' cifar10:wrong
rm wrong/test_batch.bin
cp cifar/data_batch_3.bin wrong/
spoils 'wrong/test_batch.bin.*no such file' cifar10:wrong

# --- csv -------------------------------------------------------------------------------------------
awk 'BEGIN {
    srand(1)
    print "height,width,\"kind, roughly\",area"
    for (i = 0; i < 60; i++) { a = rand(); b = rand(); print a "," b "," (a > b ? "tall" : "wide") "," a * b }
}' >table.csv
learns 'csv:table.csv,label=3' 'linear:8 relu linear:classes'
sed 's/"kind, roughly"/kind/; s/tall/1/; s/wide/0/' table.csv >plain.csv
learns 'csv:plain.csv,label=kind' 'linear:8 relu linear:classes'
learns 'csv:plain.csv,target=area,target=width' 'linear:8 relu linear:classes'
gzip -k plain.csv
learns 'csv:plain.csv.gz,label=kind,test=plain.csv' 'linear:classes'
spoils "no column is called 'sort'" csv:plain.csv,label=sort
spoils 'there is no column 9' csv:plain.csv,label=9
spoils "column 26: unknown key 'lable'; did you mean label" csv:plain.csv,header=yes,lable=kind
spoils 'label=COLUMN \(classes\) or target=COLUMN' csv:plain.csv
spoils "given twice" csv:plain.csv,label=kind,label=area
spoils 'cannot read nowhere.csv: no such file' csv:nowhere.csv,label=1
sed '7s/,/,?,/' plain.csv >fields.csv
spoils 'fields.csv, line 7: 5 fields, but there are 4 columns' csv:fields.csv,label=kind
sed '9s/[0-9.]*/some/' plain.csv >words.csv
spoils "words.csv, line 9: .*'some' is not a number" csv:words.csv,label=kind
head -c 300 plain.csv.gz >cut.csv.gz
spoils 'cut.csv.gz' csv:cut.csv.gz,label=kind
spoils 'dir|folder|read' "csv:.,label=1"

# --- npy -------------------------------------------------------------------------------------------
npy() { # npy FORM SHAPE: a header of 118 bytes behind the first ten; the values follow on stdin
    printf '\x93NUMPY\x01\x00\x76\x00'
    printf "%-117s\n" "{'descr': '$1', 'fortran_order': False, 'shape': $2, }"
    cat
}
seq 9000 | head -c $((40 * 64)) | npy '|u1' '(40, 8, 8)' >x.npy
for ((i = 0; i < 40; i++)); do bytes "0$((i % 3))"; done | npy '|u1' '(40,)' >y.npy
for ((i = 0; i < 40; i++)); do bytes 00 00 "$((i % 8))0" 3f; done | npy '<f4' '(40, 1)' >reals.npy
learns npy:x.npy,y.npy 'conv3x3:4 relu linear:classes'
learns npy:x.npy,reals.npy 'linear:classes'
for ((i = 0; i < 39; i++)); do bytes 01; done | npy '|u1' '(39,)' >short.npy
spoils 'x.npy has 40 samples.*short.npy|short.npy.*39' npy:x.npy,short.npy
head -c 1000 x.npy >cut.npy
spoils 'cut.npy' npy:cut.npy,y.npy
for ((i = 0; i < 40; i++)); do bytes 01; done | npy '>f8' '(40,)' >order.npy
spoils 'order.npy' npy:x.npy,order.npy
echo 'not an array' >none.npy
spoils 'none.npy' npy:none.npy,y.npy
spoils 'missing' npy:x.npy

# --- text ------------------------------------------------------------------------------------------
awk 'BEGIN { for (i = 0; i < 1500; i++) printf "%d green bottles. ", i }' >text
gzip -k text
learns text:text,context=32 'embed:8 gru:16 linear:classes'
learns text:text.gz 'embed:8 positions:64 [ ln attention:2 ]+ linear:classes'
spoils 'context=32, but the model reads 64' text:text,context=32 'embed:8 positions:64 linear:classes'
spoils 'nowhere.*no such file' text:nowhere 'embed:8 linear:classes'
: >empty
spoils 'empty' text:empty 'embed:8 linear:classes'
head -c 2000 text.gz >cut.gz
spoils 'cut.gz' text:cut.gz 'embed:8 linear:classes'
spoils 'token.*embed' text:text 'linear:classes'
spoils 'embed:8.*text' digits 'embed:8 linear:classes'

# --- synthetic -------------------------------------------------------------------------------------
learns synthetic:least-squares,features=4,outputs=2,noise=0.1 'linear:classes'
learns synthetic:spirals,arms=3 'linear:16 tanh linear:classes'
learns synthetic:parity,length=8 'embed:8 rnn:16 last linear:classes'
spoils 'heads.*probabilities' synthetic:least-squares '[ linear:classes ]*2'
spoils 'column 11: unknown family' synthetic:spiral
spoils 'arms must be a whole number' synthetic:spirals,arms=0
spoils 'each step|one row|last|token' synthetic:parity 'embed:8 rnn:16 linear:classes'

# --- what is done with samples ---------------------------------------------------------------------
accepted '^finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 3 --data idx:idx --augment crop:2,flip \
    --prefetch on --model 'linear:classes'
refused 2 'augment' "$gv" peer --listen 127.0.0.1:0 --steps 3 --augment crop:2,flop
refused '1 2' 'augment|image' "$gv" peer --listen 127.0.0.1:0 --steps 3 --augment flip --data synthetic:spirals
refused 2 'auto\|on\|off' "$gv" peer --listen 127.0.0.1:0 --steps 3 --prefetch maybe
finish
