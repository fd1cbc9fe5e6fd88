#!/bin/bash
# The blocks of commands in README and docs, typed exactly as they stand: those fenced as sh, line by
# line, in a folder with the files that a reader has, on a machine with the address 192.0.2.7. A line
# that starts a peer has a terminal of its own and goes on beside the others until its section ends.
# Only the time is ours: no run is longer than some seconds (GRAPEVINE_TIME), of one peer alone than one, and a
# testnet told to run 20 s runs 8.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
root=$(realpath "$(dirname "$0")/../..")
# A network of its own, where that address and the usual port are nobody else's.
if [ -z "${BLOCKS_ALONE:-}" ]; then
    BLOCKS_ALONE=1 unshare -n true 2>/dev/null || skip "skipped: network namespaces are not permitted"
    BLOCKS_ALONE=1 exec unshare -n bash "$0" "$@"
fi
ip link set lo up && ip addr add 192.0.2.7/32 dev lo || skip "skipped: no address can be added"
begin "$1"
mkdir bin && ln -s "$gv" bin/grapevine
export PATH="$folder/bin:$PATH" GRAPEVINE_TIME=3s
grapevine peer --listen 127.0.0.1:0 --quiet --data fashion-mnist --model mlp --steps 1 --averaging none --out earlier >/dev/null ||
    skip "skipped: Fashion-MNIST is not there"

# What a reader has: tables of two machines, one without labels, a text, a model.
lay_out() {
    local i
    for file in a b; do
        echo height,width,kind >$file.csv
        for ((i = 0; i < 300; i++)); do echo "$((i * 7 % 50)),$((i * 11 % 40)),$((i * 7 % 50 > 20))"; done >>$file.csv
    done
    cut -d, -f1,2 b.csv | head -n 4 >new.csv
    echo rooms,price >table.csv
    for ((i = 0; i < 200; i++)); do echo "$((i % 9)),$((i % 9 * 100 + i % 3))"; done >>table.csv
    cat /usr/share/common-licenses/GPL-2 >licences.txt
    bash "$root/tests/bench/hospitals.sh"
}

# For the page about text: a book, a library, and in the place of GPT-2's folder a small one.
lay_out_texts() {
    mkdir library gpt2 tok && cp /usr/share/common-licenses/GPL-3 book.txt && cp book.txt licences.txt library
    /usr/bin/python3 "$root/tests/tokenizer/bpe.py" train book.txt --merges 200 --to tok && cp tok/tokenizer.json gpt2
    grapevine peer --listen 127.0.0.1:0 --quiet --data text:book.txt --tokenizer gpt2 --model 'embed:8 lstm:8 linear:classes' --steps 1 \
        --averaging none --out small >/dev/null && mv small/model.safetensors gpt2 && rm -r small
}

peers=() # that the section has started: number of the process, and its line

end_section() { # every peer of it has to end well
    local at code
    for ((at = 0; at < ${#peers[@]}; at += 2)); do
        wait "${peers[at]}"
        code=$?
        checks=$((checks + 1))
        [ "$code" -eq 0 ] || bad "exit code $code: ${peers[at + 1]}: $(grep '^grapevine:' "said.$at" | head -n 1)"
    done
    peers=()
}

type_line() {
    local line=$1 said=said.${#peers[@]} code alone=yes
    checks=$((checks + 1))
    [[ $line != 'grapevine testnet '* ]] || line=${line/--time 20s/--time 8s}
    case $line in
    'git clone '*) return ;; # this is one
    testnet/* | tests/* | peer/*)
        [ -x "$root/${line%% *}" ] || bad "there is no $line"
        return
        ;;
    'grapevine export '*' --to page '* | '(cd page '*) return ;; # test_export_page.sh does, and looks at it
    'cmake '*)
        [ -e "$root/CMakePresets.json" ] || bad "there is nothing to build"
        return
        ;;
    'grapevine peer '* | 'grapevine join '*)
        rm -f "$said"
        # Who founds or joins nothing has the usual port: the next one alone needs it again.
        case $line in *--bootstrap* | *--start-with* | *join* | *identity*) alone=no ;; esac
        [ $alone = no ] || local -x GRAPEVINE_TIME=1s
        eval "${line/#grapevine/exec grapevine}" >"$said" 2>&1 </dev/null &
        peers+=("$!" "$line")
        pids+=("$!")
        for ((i = 0; i < 600; i++)); do
            grep -q '^listening on ' "$said" 2>/dev/null && break
            kill -0 "${peers[-2]}" 2>/dev/null || break
            sleep 0.1
        done
        [ $alone = no ] || end_section
        return
        ;;
    esac
    if [[ $line == 'grapevine simulate '* ]]; then # in virtual time
        GRAPEVINE_TIME='' eval "$line" >said 2>&1 </dev/null
    else
        eval "$line" >said 2>&1 </dev/null
    fi
    code=$?
    [ "$code" -eq 0 ] || bad "exit code $code: $line: $(tail -n 1 said)"
}

blocks=0
for page in "$root"/README.md "$root"/docs/*.md; do
    mkdir "$folder/page" && cd "$folder/page" || exit 1
    grep -q '^```sh$' "$page" && lay_out
    [[ $page != */text.md ]] || lay_out_texts
    [[ $page != */training.md ]] || cp -r "$folder/earlier" a
    state=text
    while IFS= read -r line; do
        case $state:$line in
        text:'## '*) end_section ;;
        text:'```sh') state=sh blocks=$((blocks + 1)) ;;
        text:'```'*) state=other ;;
        sh:'```' | other:'```') state=text ;;
        sh:*) type_line "$line" ;;
        # What is not typed must show that it cannot be.
        other:'grapevine '* | other:'    grapevine '*)
            [[ $line == *...* || $line == 'grapevine: '* ]] || bad "${page#"$root"/}: a block of commands is not fenced as sh: $line" ;;
        esac
    done <"$page"
    end_section
    cd "$folder" && rm -rf page
done
[ "$blocks" -ge 10 ] || bad "only $blocks blocks were found"
finish
