#!/bin/bash
# The command line itself: help, version, manual page, configuration, keys, exit codes, and what goes
# to stdout and what to stderr.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
begin "$1"

# Help and version need nothing and are results.
accepted 'Usage: grapevine COMMAND' "$gv" --help
accepted '^grapevine [0-9]+\.[0-9]+\.[0-9]+ \(.+\)$' "$gv" --version
accepted '^\.TH GRAPEVINE 1' "$gv" --man
for command in peer join testnet report distill compact average eval inspect predict generate tokenize export keygen status top doctor bench simulate help version completion; do
    accepted "^Usage: grapevine $command" "$gv" "$command" --help
    accepted "^  grapevine $command" "$gv" "$command" --help
    accepted "^; grapevine .*, $command" "$gv" "$command" --print-config
done

# The words that people try first.
accepted 'Usage: grapevine COMMAND' "$gv" help
accepted '^Usage: grapevine peer' "$gv" help peer
accepted '^grapevine [0-9]+\.[0-9]+\.[0-9]+ \(.+\)$' "$gv" version
refused 2 "unknown command pear: did you mean peer; 'grapevine help'" "$gv" help pear
refused 2 'unknown command fedavg: write grapevine peer --averaging local-sgd;' "$gv" fedavg
refused 2 "^grapevine: unknown command zyxw; 'grapevine help' lists the commands$" "$gv" zyxw
refused 2 'unknown method "ddp"; write allreduce; known: none' "$gv" peer --averaging ddp
refused 2 "unknown data set; write idx:DIR, a folder with MNIST's four files; there are digits" "$gv" peer --data mnist
refused 2 "unknown model 'gpt2'; write gpt2-small" "$gv" peer --model gpt2
"$gv" --man >page
for section in FILES EXAMPLES 'EXIT STATUS' 'SEE ALSO' ENVIRONMENT; do
    checks=$((checks + 1))
    grep -q "^\.SH $section$" page || bad "the manual page has no $section"
done

# Completion, by the shells themselves where they are there.
refused 2 'write bash, zsh or fish' "$gv" completion csh
for shell in bash zsh fish; do
    "$gv" completion "$shell" >"completion.$shell" || bad "completion $shell"
    checks=$((checks + 1))
    if command -v "$shell" >/dev/null; then "$shell" -n "completion.$shell" || bad "it is no $shell"; fi
done
completed() { # completed EXPECTED WORD...: what bash offers for the last word
    local expected=$1 said
    shift
    said=$(bash -c '. ./completion.bash; COMP_WORDS=(grapevine "$@") COMP_CWORD=$#; _grapevine; echo "${COMPREPLY[*]}"' - "$@")
    checks=$((checks + 1))
    [ "$said" = "$expected" ] || bad "bash completes '$*' to '$said', not to '$expected'"
}
completed 'peer predict' p
completed '--lr --lr-scaling' peer --lr
completed 'none sqrt linear' peer --lr-scaling ''
completed linear peer --lr-scaling = l
completed 'kernels' bench k
completed 'testnet' help te
completed '' peer x

# A printed configuration is read back to the same.
accepted '^model = cnn$' "$gv" peer --model cnn --lr 0.05 --steps 7 --json --print-config
cp accepted.out run.ini
accepted '^steps = 7$' "$gv" peer --config run.ini --print-config
cmp -s run.ini accepted.out || bad "the configuration does not survive printing and reading"

# Flag before environment before file before default.
accepted '^steps = 7$' env GRAPEVINE_BATCH=3 "$gv" peer --config run.ini --print-config
grep -q '^batch = 3$' accepted.out || bad "the environment is not read"
accepted '^steps = 9$' env GRAPEVINE_STEPS=8 "$gv" peer --config run.ini --steps 9 --print-config
accepted '^steps = 8$' env GRAPEVINE_STEPS=8 "$gv" peer --config run.ini --print-config

# Keys: mode 0600, never overwritten, of two kinds.
accepted '^identity\.key [a-z2-7]{32}$' "$gv" keygen
accepted '"file":"b.key"' "$gv" keygen --json --out b.key
accepted '^swarm\.key$' "$gv" keygen --swarm-key
[ "$(stat -c %a identity.key swarm.key | sort -u)" = 600 ] || bad "key files are readable by others"
cp identity.key before
refused 1 'there already' "$gv" keygen
cmp -s before identity.key || bad "keygen changed an existing key"
cmp -s identity.key b.key && bad "two identities are the same"

# The doctor: fine here, broken with the fix where something is broken.
accepted '^fine +data digits' "$gv" doctor --listen 127.0.0.1:0 --identity identity.key
accepted '"healthy":true' "$gv" doctor --listen 127.0.0.1:0 --json
chmod 644 identity.key
checks=$((checks + 1))
"$gv" doctor --listen 127.0.0.1:0 --identity identity.key >doctor.out 2>&1
[ $? -eq 1 ] || bad "the doctor does not exit with 1"
grep -q 'chmod 600 identity.key' doctor.out || bad "the doctor does not name the fix"

# One peer alone trains, says its address, and its files can be looked at.
accepted '^listening on 127\.0\.0\.1:[0-9]+$' "$gv" peer --listen 127.0.0.1:0 --steps 400 \
    --report-every 50ms --out a --averaging none
grep -q "^model, metrics and log go to a; 'grapevine peer --out a' resumes$" accepted.err || bad "where it is kept is not said"
grep -q '^finished: 400 steps' accepted.out || bad "a peer does not say that it has finished"
accepted '^[0-9,]+ parameters' "$gv" inspect a/model.safetensors
accepted '"digest":"[0-9a-f]{64}"' "$gv" inspect a/model.safetensors --json
accepted '"accuracy":\[0\.[0-9]+\]' "$gv" eval a/model.safetensors --json
grep -q '^data = digits$' a/config.ini || bad "config.ini does not hold what was in force"
grep -q '"loss":' a/metrics.jsonl || bad "metrics.jsonl has no report"

# Without --out nothing is kept, nothing is made in the current folder, and that is said.
before=$(ls)
accepted 'finished' "$gv" peer --listen 127.0.0.1:0 --steps 5 --averaging none
grep -q '^nothing is kept, and the model is gone when this peer ends: pass --out DIR' accepted.err || bad "a peer without --out does not say so"
[ "$(ls)" = "$before" ] || bad "a peer without --out leaves $(ls)"

# Quiet is quiet, and results that cannot be written are a failure.
checks=$((checks + 1))
"$gv" peer --listen 127.0.0.1:0 --steps 5 --averaging none --quiet >quiet.out 2>quiet.err || bad "a quiet peer fails"
[ -s quiet.err ] && bad "a quiet peer talks: $(head -n 2 quiet.err)"
if [ -w /dev/full ]; then
    checks=$((checks + 1))
    "$gv" inspect a/model.safetensors >/dev/full 2>full.err
    [ $? -eq 1 ] || bad "lost results are not a failure"
    [ "$(grep -c '^grapevine: cannot write to standard output' full.err)" -eq 1 ] || bad "lost results are not told"
fi
finish
