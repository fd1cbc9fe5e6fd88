#!/bin/bash
# generate: a model that has learnt a simple text goes on with it; the same seed gives the same; what
# it cannot do it says in one line.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

for _ in $(seq 400); do echo "one two three four five six seven eight nine ten"; done >text.txt
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 150 --out gpt --data text:text.txt \
    --model 'embed:32 positions:48 ( [ ln attention:4 ]+ [ ln linear:64 gelu linear:32 ]+ )*2 ln linear:classes,bias=0'
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 150 --out lstm --data text:text.txt,context=40 \
    --model 'embed:16 lstm:64 linear:classes' --optimizer adam:lr=0.01
m=gpt/model.safetensors

# It has learnt the text, and goes on far beyond its window of 48.
accepted '^four five six seven eight' "$gv" generate $m --prompt 'four five six s' --temperature 0 --tokens 200
[ "$(grep -c 'one two three four five six seven' accepted.out)" -ge 2 ] || bad "it wanders off: $(cat accepted.out)"
[ "$(wc -c <accepted.out)" -eq $((15 + 200 + 1)) ] || bad "not 200 tokens: $(wc -c <accepted.out)"
accepted '^four five six' "$gv" generate lstm/model.safetensors --prompt 'four five s' --temperature 0.2 --tokens 100

# A long prompt fills the window at once: only its end is seen.
head -n 3 text.txt >long.txt
accepted '^one two three f' "$gv" generate $m --prompt-file long.txt --temperature 0 --tokens 15
[ "$(tail -n 1 accepted.out)" = 'one two three f' ] || bad "a long prompt is not gone on with: $(cat accepted.out)"

# Chance is the seed's; one choice is no chance; JSON tells the same.
accepted '^one' "$gv" generate $m --prompt one --temperature 3 --tokens 50 --seed 7
cp accepted.out want
accepted '^one' "$gv" generate $m --prompt one --temperature 3 --tokens 50 --seed 7
cmp -s want accepted.out || bad "the same seed goes on otherwise"
accepted '^one' "$gv" generate $m --prompt one --temperature 3 --tokens 50 --seed 8
cmp -s want accepted.out && bad "another seed goes on the same"
accepted '^one' "$gv" generate $m --prompt one --temperature 0 --tokens 50
cp accepted.out want
accepted '^one' "$gv" generate $m --prompt one --top-k 1 --tokens 50 --seed 9
cmp -s want accepted.out || bad "the likeliest of one is not the likeliest of all"
accepted '^\{"prompt":"one","text":" two[^"]*","tokens":50,"tokens_per_s":[0-9.]+\}$' "$gv" generate $m --prompt one --top-k 1 --tokens 50 --json

# Numbers of tokens.
accepted '^1,2,3(,[0-9]+){5}$' "$gv" generate $m --prompt-tokens 1,2,3 --tokens 5
accepted '"prompt_tokens":\[1,2,3\],"text_tokens":\[[0-9]+\],"tokens":1' "$gv" generate $m --prompt-tokens 1,2,3 --tokens 1 --json

# A terminal obeys nothing that a model says or that its file tells; a pipe gets the bytes as they are.
text=$(printf 'x\302\233y.txt') # a control character of Latin-1 in UTF-8
for _ in $(seq 100); do printf 'one \033[31m\303\244\302\2332J\377 two\n'; done >"$text"
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 2 --out escapes --data "text:$text,context=16" \
    --model 'embed:4 lstm:4 linear:classes'
head -n 1 "$text" >prompt.txt
"$gv" generate escapes/model.safetensors --prompt-file prompt.txt --tokens 1 >raw.out || bad "generate into a file"
cmp -s -n "$(wc -c <prompt.txt)" raw.out prompt.txt || bad "a file does not get the bytes as they are"
script -qec "'$gv' generate escapes/model.safetensors --prompt-file prompt.txt --tokens 200" /dev/null </dev/null >tty.out ||
    bad "generate on a terminal: $?"
grep -qF 'one \x1b[31mä\xc2\x9b2J\xff two' tty.out || bad "a terminal was told $(od -c tty.out | head -n 4)"
LC_ALL=C grep -qP '[\x01-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]' tty.out && bad "a terminal was told $(od -c tty.out)"
accepted 'x.xc2.x9by\.txt' "$gv" inspect escapes/model.safetensors
[ -z "$(tr -d '\n -~' <accepted.out)" ] || bad "inspect prints control characters"
accepted 'u009b' "$gv" inspect escapes/model.safetensors --json

# One clear line each.
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --averaging none --steps 5 --out digits
refused 2 'needs something to begin with' "$gv" generate $m
refused 2 'exclude each other' "$gv" generate $m --prompt one --prompt-tokens 1
refused 2 '--prompt: the value is empty' "$gv" generate $m --prompt ''
: >empty.txt
refused 2 'empty\.txt is empty' "$gv" generate $m --prompt-file empty.txt
refused 1 'nothing\.txt' "$gv" generate $m --prompt-file nothing.txt
refused 2 "byte 3: the model has never seen 'Z'" "$gv" generate $m --prompt onZe
refused 2 'byte 1: the model has never seen such a byte \(0xc3\)' "$gv" generate $m --prompt 'ä'
refused 2 'column 3: expected a number below' "$gv" generate $m --prompt-tokens 1,999999
refused 2 'column 2: expected a comma' "$gv" generate $m --prompt-tokens '1;2'
refused 2 'column 3: expected a number' "$gv" generate $m --prompt-tokens '1,'
refused 2 '--top-k 5000: .* knows' "$gv" generate $m --prompt one --top-k 5000
refused 2 '--temperature' "$gv" generate $m --prompt one --temperature=-1
refused 2 '--tokens' "$gv" generate $m --prompt one --tokens 0
refused 2 'is no language model; use .grapevine predict' "$gv" generate digits/model.safetensors --prompt one
refused 2 "use 'grapevine generate" "$gv" predict $m --input x.csv
refused 1 'nothing\.st' "$gv" generate nothing.st --prompt one
finish
