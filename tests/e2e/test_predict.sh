#!/bin/bash
# inspect and predict: what a model is, and what it says about images, rows and test samples.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 400 --out digits
m=digits/model.safetensors

# The table of layers, its sums, and memory; the same of a model that nobody has trained.
accepted '^  dense1 +linear:256 +256 +16,640 +32,768$' "$gv" inspect $m
grep -q '^  all .* 50,826 ' accepted.out || bad "no sum of the parameters"
grep -q '^memory of training at batch 64' accepted.out || bad "no memory"
accepted '"layers":\[\{"name":"dense1","layer":"linear:256","output":"256","parameters":16640,"flops":32768\}' "$gv" inspect $m --json --batch 8
grep -q '"memory_bytes":{"batch":8,"parameters":203304,"gradients":203304,' accepted.out || bad "memory is not told: $(cat accepted.out)"
accepted '^  bn19 +bn +64x2x2 +128' "$gv" inspect --model resnet20 --data digits
accepted '"parameters":269434' "$gv" inspect --model resnet20 --data digits --json
refused 2 'takes a file, or --model' "$gv" inspect
refused 2 'takes a file, or --model' "$gv" inspect $m --model mlp
refused '1 2' "column 1: .*'nonsense'" "$gv" inspect --model nonsense --data digits

# The test samples with their labels: mostly right, probabilities falling.
accepted '^\{"row":0,"label":[0-9],"top":\[\{"class":[0-9],"probability":' "$gv" predict $m --data digits --json
[ "$(wc -l <accepted.out)" -eq 360 ] || bad "not one line a sample: $(wc -l <accepted.out)"
right=$(awk -F'[:,]' '{ n += $4 == $7 } END { print n }' accepted.out)
[ "$right" -gt 320 ] || bad "only $right of 360 are right"
accepted '^0 +[0-9] [0-9.]+ %  [0-9] [0-9.]+ %  \(is [0-9]\)$' "$gv" predict $m --data digits --top 2

# A picture of a one, as PGM and as PNG-less colours; the same answer.
{ printf 'P5 8 8 255\n'; for _ in 1 2 3 4 5 6 7 8; do printf '\0\0\0\377\377\0\0\0'; done; } >one.pgm
{ printf 'P6 8 8 255\n'; for _ in 1 2 3 4 5 6 7 8; do
    printf '\0\0\0\0\0\0\0\0\0\377\377\377\377\377\377\0\0\0\0\0\0\0\0\0'; done; } >one.ppm
accepted '"class":1,' "$gv" predict $m --input one.pgm --top 1 --json
cp accepted.out want
accepted '"row":0' "$gv" predict $m --input one.ppm --top 1 --json
cmp -s want accepted.out || bad "colours change what is grey: $(cat want accepted.out)"

# Rows of a CSV are taken as they are; the same picture again.
for _ in 1 2 3 4 5 6 7 8; do printf '0,0,0,1,1,0,0,0,'; done | sed 's/,$/\n/' >one.csv
accepted '"row":0' "$gv" predict $m --input one.csv --top 1 --json
cmp -s want accepted.out || bad "a CSV row is judged otherwise: $(cat want accepted.out)"

# Real values.
{ echo x,y; for i in $(seq 200); do echo "$((i % 17)),$((3 * (i % 17)))"; done; } >line.csv
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 200 --out line \
    --data csv:line.csv,target=y --model linear:classes --optimizer sgd:lr=0.05
printf '5\n' >five.csv
accepted '^\{"row":0,"values":\[1[45]\.[0-9]+\]\}$' "$gv" predict line/model.safetensors --input five.csv --json

# Words for classes, where the table has words.
{ echo size,kind; for i in $(seq 200); do echo "$((i % 20)),$([ $((i % 20)) -lt 10 ] && echo small || echo 'very big')"; done; } >kinds.csv
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 200 --out kinds \
    --data csv:kinds.csv,label=kind --model 'linear:8 relu linear:classes' --optimizer adam:lr=0.02
printf 'size\n1\n19\n' >sizes.csv
accepted '^1 +very big [0-9.]+ %' "$gv" predict kinds/model.safetensors --input sizes.csv --top 1
grep -q '^0  *small ' accepted.out || bad "the small is not small: $(cat accepted.out)"
accepted '^\{"row":0,"top":\[\{"class":0,"word":"small"' "$gv" predict kinds/model.safetensors --input sizes.csv --json
accepted '"label":[01],"label_word":"(small|very big)"' "$gv" predict kinds/model.safetensors --data csv:kinds.csv,label=kind --json

# One clear line each.
printf 'P5 3 1 255\nabc' >small.pgm
printf '1,2,3\n' >three.csv
sed 's/,0,/,x,/' one.csv | cat one.csv - >word.csv
refused 2 'needs --input FILE, or --data' "$gv" predict $m
refused 2 'needs --input FILE, or --data' "$gv" predict $m --input one.pgm --data digits
refused 1 'it is 3x1 pixels, the model reads 8x8' "$gv" predict $m --input small.pgm
refused 1 '3 fields, but the model reads 64' "$gv" predict $m --input three.csv
refused 1 "nothing\.png" "$gv" predict $m --input nothing.png
printf 'GIF89a' >x.gif
refused 1 'no image of a known kind' "$gv" predict $m --input x.gif
refused 1 'config\.ini' "$gv" predict digits/config.ini --input one.pgm
refused 1 'nothing\.st' "$gv" predict nothing.st --input one.pgm
refused 2 '--top 11: .* knows 10 classes' "$gv" predict $m --input one.pgm --top 11
refused 2 '--top' "$gv" predict $m --input one.pgm --top 99999999999
refused 2 '--top' "$gv" predict $m --input one.pgm --top 0
refused 1 'reads 1x8x8 values and gives 10' "$gv" predict $m --data csv:line.csv,target=y
finish
