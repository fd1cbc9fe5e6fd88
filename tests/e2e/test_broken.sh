#!/usr/bin/env bash
# A testnet says with exit code 3 what of it must always hold and was broken: the files of a peer that
# is done are damaged while another one still trains, one value of its model and the name of its
# lineage. What was not damaged still holds, and the report names what does not.
source "$(dirname "$0")/lib.sh"

# damaged SPEED: a testnet whose second peer is so much slower, and the first one's files damaged as
# soon as it has ended. False: the other was as soon.
damaged() {
    local net=$WORK/net model=$WORK/net/peer-000/model.safetensors
    rm -rf "$net" "$WORK/testnet.err"
    start_process testnet "$GRAPEVINE" testnet --peers 2 --out "$net" --averaging none --data digits \
        --model linear:classes --steps 20 --step-time 50ms --hetero "list:1,$1" --report-every 1s
    until grep -qs '"event":"finished","peer":0' "$net/events.jsonl"; do
        kill -0 "${PEER_PID[testnet]}" 2>/dev/null || fail "the testnet ended before its first peer"
        sleep 0.02
    done
    flock "$net/peer-000/lock" true # held until the peer ends, after its last checkpoint
    printf '\0\0\300\177' | # NaN, in little endian
        dd of="$model" bs=1 seek=$(($(stat -c %s "$model") - 4)) conv=notrunc status=none
    LC_ALL=C sed -i -E 's/("lineage":"[^"]*)[^"]"/\1!"/' "$net/peer-000/state.safetensors"
    ! grep -q '"event":"finished","peer":1' "$net/events.jsonl"
}

for speed in 0.3 0.05 0.01; do
    damaged $speed && break
    wait_exit testnet
done
wait_exit testnet
code=$?
((code == 3)) || fail "exit code $code instead of 3"
grep -q 'broken: models_finite; see .*summary\.json' "$WORK/testnet.err" || fail "it does not say what was broken"
grep -q 'peer-000/model\.safetensors' "$WORK/testnet.err" || fail "it does not say which file"
summary=$(tr -d ' \n' <"$WORK/net/summary.json")
for said in '"finished":2' '"peers_finished":true' '"models_finite":false' '"lineages_equal":false' \
    '"average_model":null'; do
    [[ $summary =~ $said ]] || fail "no $said in $summary"
done
grep -q 'invariant: models_finite' "$WORK/net/report.html" || fail "the report does not name it"

echo "a testnet whose invariants are broken says which, and ends with exit code 3"
