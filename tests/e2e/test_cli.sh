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
for command in peer testnet distill average eval inspect predict generate export keygen status top doctor bench simulate; do
    accepted "^Usage: grapevine $command" "$gv" "$command" --help
    accepted "^  grapevine $command" "$gv" "$command" --help
    accepted "^; grapevine .*, $command" "$gv" "$command" --print-config
done

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
grep -q '^finished: 400 steps' accepted.out || bad "a peer does not say that it has finished"
accepted '^[0-9,]+ parameters' "$gv" inspect a/model.safetensors
accepted '"digest":"[0-9a-f]{64}"' "$gv" inspect a/model.safetensors --json
accepted '"accuracy":\[0\.[0-9]+\]' "$gv" eval a/model.safetensors --json
grep -q '^data = digits$' a/config.ini || bad "config.ini does not hold what was in force"
grep -q '"loss":' a/metrics.jsonl || bad "metrics.jsonl has no report"

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
