#!/bin/bash
# tokenizer: text as tokens of a byte-level BPE that is trained here: the same numbers as an independent
# implementation has (tests/tokenizer/bpe.py, with python3-regex) on text of many scripts with bad bytes,
# from each form of file; trained on, evaluated, generated with, tokenized, and refused where it is not
# the model's or the swarm's. LONG=1: more texts.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
bpe=$(realpath "$(dirname "$0")/../tokenizer/bpe.py")
docs=$(realpath "$(dirname "$0")/../../docs")
begin "$1"
python3 -c 'import regex' 2>/dev/null || skip "no python3-regex here"

numbers() { # numbers FILE: those of a file of tokens, one a line
    python3 -c 'import struct, sys
data = open(sys.argv[1], "rb").read()
wide = struct.unpack("<I", data[:4])[0] == 20240801
print(*struct.unpack("<%d%s" % ((len(data) - 1024) // (4 if wide else 2), "IH"[not wide]), data[1024:]), sep="\n")' "$1"
}

python3 "$bpe" train "$docs/methods.md" "$docs/glossary.md" --merges 300 || bad "no tokenizer was trained"
for seed in 1 ${LONG:+2 3 4 5 6 7 8}; do
    { python3 "$bpe" text --seed "$seed" && cat "$docs/training.md"; } >text.txt
    for form in tokenizer.json llama.json; do
        python3 "$bpe" encode $form text.txt >want
        echo 556 >>want # <|endoftext|>
        accepted 'tokens of' "$gv" tokenize --tokenizer $form text.txt --out text.bin
        numbers text.bin | cmp -s - want || bad "seed $seed, $form: other tokens: $(numbers text.bin | diff - want | head -n 5)"
    done
done
# Other forms of the same, and a compressed text: the same file to the bit.
accepted 'tokens of' "$gv" tokenize --tokenizer tokenizer.json text.txt --out text.bin
mkdir only && cp vocab.bpe only
gzip -k text.txt
for words in 'vocab.bpe text.txt' 'only text.txt' '. text.txt.gz'; do
    accepted '"tokens":' "$gv" tokenize --tokenizer ${words% *} "${words#* }" --out again.bin --json
    cmp -s again.bin text.bin || bad "tokenize --tokenizer $words gives another file"
done
# A full disk, or a text that cannot be read, leaves the old file.
cp text.bin kept.bin
refused 1 'cannot write text.bin' bash -c "ulimit -f 64; trap '' XFSZ; exec '$gv' tokenize --tokenizer tokenizer.json text.txt --out text.bin"
refused 1 'none\.txt' "$gv" tokenize --tokenizer tokenizer.json text.txt none.txt --out text.bin
cmp -s text.bin kept.bin || bad "a failed tokenize changed the old file"
[ ! -e text.bin.tmp ] || bad "a failed tokenize left its half of a file"
yes 'It was the best of times, it was the worst of times.' | head -c 300000000 >long.txt
for signal in INT:130 TERM:143; do
    rm -f long.bin.tmp
    "$gv" tokenize --tokenizer tokenizer.json long.txt --out long.bin 2>long.err &
    pid=$!
    until [ -e long.bin.tmp ] || ! kill -0 "$pid"; do sleep 0.05; done
    kill -"${signal%:*}" "$pid"
    wait "$pid"
    code=$? checks=$((checks + 1))
    [ "$code" -eq "${signal#*:}" ] && [ "$(cat long.err)" = 'stopped: long.bin is not written' ] || bad "$signal: $code: $(cat long.err)"
    [ ! -e long.bin.tmp ] && [ ! -e long.bin ] || bad "$signal leaves a half of a file"
done
rm long.txt
refused 2 'would be overwritten' "$gv" tokenize --tokenizer tokenizer.json text.txt --out text.txt
refused 2 'needs --tokenizer FILE and --out FILE$' "$gv" tokenize text.txt
refused 2 'needs --tokenizer FILE$' "$gv" tokenize text.txt --out x.bin
refused 2 'needs --out FILE$' "$gv" tokenize text.txt --tokenizer tokenizer.json
refused 1 'line 1 is not a BPE merge' "$gv" tokenize --tokenizer text.txt text.txt --out x.bin

# Trained on, from text and from tokens: one meaning, so the models can be compared.
cat "$docs"/*.md >book.txt
accepted 'tokens of' "$gv" tokenize --tokenizer tokenizer.json book.txt --out book.bin
small='embed:16 positions:32 [ ln attention:2 ]+ ln linear:classes,bias=0'
train=("$gv" peer --listen 127.0.0.1:0 --averaging none --steps 30 --batch 16 --model "$small")
accepted 'finished' "${train[@]}" --out text --data text:book.txt --tokenizer tokenizer.json
accepted 'finished' "${train[@]}" --out tokens --data tokens:book.bin
accepted 'tokenizer_hash *[0-9a-f]{64}' "$gv" inspect text/model.safetensors
accepted 'symbols *557' "$gv" inspect tokens/model.safetensors
accepted 'text/model' "$gv" eval text/model.safetensors
accepted 'average of the parameters' "$gv" eval text/model.safetensors tokens/model.safetensors --data tokens:book.bin
accepted '32 steps of 16' "$gv" inspect --model "$small" --data text:book.txt --tokenizer tokenizer.json
accepted 'finished' "$gv" peer --out text --steps 31

# A number that is no token ends training.
python3 -c 'import sys; sys.stdout.buffer.write(bytes(4000) + b"\xe7\x03" * 2000)' >bad.bin
refused 1 'holds a number that is none of its vocabulary' "${train[@]}" --data tokens:bad.bin,symbols=10

# Told as it comes: whole characters, then the end; JSON tells the same; the file beside the model is found.
accepted '^Grüße' "$gv" generate text/model.safetensors --prompt 'Grüße' --tokens 20 --top-p 0.9 --seed 4
head -c -1 accepted.out >plain.out
accepted '"prompt":"Grüße"' "$gv" generate text/model.safetensors --prompt 'Grüße' --tokens 20 --top-p 0.9 --seed 4 --json
python3 -c 'import json, re, sys
told = json.load(open("accepted.out"))
one = lambda text: re.sub("[\0\ufffd]+", "\ufffd", text) # bytes that are no character: how many stand for them is free
sys.exit(one(told["prompt"] + told["text"]) != one(open("plain.out", errors="replace").read()))' || bad "JSON and text differ: $(od -c plain.out | head -20; cat accepted.out)"
accepted '^Gr' "$gv" generate text/model.safetensors --prompt 'Gr' --tokens 9 --top-p 0.000001 --seed 4
cp accepted.out likeliest.out
accepted '^Gr' "$gv" generate text/model.safetensors --prompt 'Gr' --tokens 9 --temperature 0
cmp -s likeliest.out accepted.out || bad "the least nucleus is not the likeliest token"
accepted '^Gr' "$gv" generate text/model.safetensors --prompt 'Gr' --tokens 9999 --temperature 3 --seed 4
grep -qE '^the model ended the text after [0-9]+ tokens$' accepted.err || bad "the early end is not told: $(cat accepted.err)"
refused 2 '--top-p' "$gv" generate text/model.safetensors --prompt one --top-p 1.5
refused 1 'with a tokenizer, 557 tokens, hash [0-9a-f]{16}; pass it with --tokenizer' \
    "$gv" generate tokens/model.safetensors --prompt one
cp tokenizer.json tokens
accepted '^one' "$gv" generate tokens/model.safetensors --prompt one --tokens 3
accepted '^1,2(,[0-9]+){3}$' "$gv" generate tokens/model.safetensors --prompt-tokens 1,2 --tokens 3
refused 1 'with another tokenizer' "$gv" generate text/model.safetensors --prompt one --tokenizer llama.json
refused 1 'with another tokenizer' "$gv" eval text/model.safetensors --tokenizer llama.json
refused 1 'made with another tokenizer' "$gv" eval text/model.safetensors --data tokens:book.bin --tokenizer llama.json
"$gv" generate text/model.safetensors --prompt one --tokens 100000 2>pipe.err | head -c 10 >/dev/null
! grep -v '^the model ended' pipe.err || bad "a closed pipe is told of: $(cat pipe.err)"

# A swarm has one tokenizer.
start founder "$gv" peer --listen 127.0.0.1:0 --data text:book.txt --tokenizer tokenizer.json --model "$small" --batch 16 --time 60s
refused 2 'reads text with a tokenizer \(hash [0-9a-f]{16}\); pass it with --tokenizer' "$gv" join "$address" --data text:book.txt
refused '1 2' 'is another one than that of the swarm' "$gv" join "$address" --data text:book.txt --tokenizer llama.json
refused '1 2' 'model' "$gv" peer --bootstrap "$address" --listen 127.0.0.1:0 --data text:book.txt --tokenizer llama.json \
    --model "$small" --batch 16 --join-timeout 20s --steps 5
accepted 'finished' "$gv" join "$address" --listen 127.0.0.1:0 --data tokens:book.bin --steps 5
stop "$pid"
finish
