#!/usr/bin/env bash
# --out is one process's at a time, gives all flags of its run back, never loses the swarm's key, and
# what it holds is never replaced by another run.
# shellcheck source=tests/e2e/helpers.sh
source "$(dirname "$0")/helpers.sh"
begin "$1"

peer=("$gv" peer --listen 127.0.0.1:0)
quick=(--averaging none --evaluate-samples 0 --report-every 100ms)

# --- one process at a time --------------------------------------------------------------------------
# Two at the same instant in a fresh folder: one runs, the other says who does, and nothing is lost.
for turn in 1 2 3 4; do
    out=(--out "both$turn" --time 30s "${quick[@]}")
    "${peer[@]}" "${out[@]}" >"$turn.1.out" 2>"$turn.1.err" </dev/null & one=$!
    "${peer[@]}" "${out[@]}" >"$turn.2.out" 2>"$turn.2.err" </dev/null & two=$!
    pids+=("$one" "$two")
    checks=$((checks + 1))
    wait -n -p loser "$one" "$two"
    code=$?
    [ "$code" -eq 1 ] || bad "the second peer of a folder exits with $code"
    ((loser == one)) && winner=$two || winner=$one
    ((loser == one)) && said=$turn.1.err || said=$turn.2.err
    grep -q "^grapevine: --out both$turn is in use by process $winner;" "$said" || bad "$(cat "$said")"
    [ "$(wc -l <"$said")" -eq 1 ] || bad "more than a line: $(cat "$said")"
    for ((i = 0; i < 600; i++)); do
        [ -s "both$turn/config.ini" ] && break
        sleep 0.1
    done
    [ -s "both$turn/identity.key" ] || bad "the one that runs has lost its key"
    kill -0 "$winner" || bad "nobody runs in both$turn"
    stop "$winner"
done
# Killed before its first checkpoint it has nothing to go on from: the next start says so, in a line.
anew='both1 was started before and holds no checkpoint yet: this peer starts over'
grep -q "$anew" ./*.err && bad "a first start says that it starts over"
accepted '^finished: 1 steps' "$gv" peer --out both1 --steps 1
[ "$(grep -c "$anew" accepted.err)" -eq 1 ] || bad "a start without a checkpoint does not say so: $(cat accepted.err)"
accepted '^finished' "$gv" peer --out both1 --steps 1
grep -q "$anew" accepted.err && bad "a peer that resumes says that it starts over"
# A start that fails beside a running peer undoes nothing of it; alone it leaves nothing.
start holder "${peer[@]}" --out held --time 1h "${quick[@]}"
refused 1 "held is in use by process $pid;" "${peer[@]}" --out held
refused 1 'address already in use' "$gv" peer --listen "$address" --out fresh/er --time 1h "${quick[@]}"
[ -e fresh ] && bad "a failed start leaves its folder"
[ -s held/identity.key ] || bad "the key of a running peer is gone"
stop "$pid"

# A testnet's folder, too: a second one, whatever it wishes, names the first and leaves all as it is.
"$gv" testnet --peers 1 --out net --time 1h --averaging none --evaluate-samples 0 >net.out 2>net.err </dev/null & first=$!
pids+=("$first")
for ((i = 0; i < 600; i++)); do
    [ -s net/peer-000/config.ini ] && break
    sleep 0.1
done
for wish in '' --fresh --resume; do
    refused 1 "net is in use by process $first;" "$gv" testnet --peers 1 --out net $wish --time 1s "${quick[@]}"
done
[ -s net/peer-000/identity.key ] || bad "a refused testnet has touched the folder of another: $(ls -A net)"
# Peers of a testnet share the cores; a single one has them all, as any command that is not told otherwise.
accepted '[0-9]+ cores' "$gv" doctor --json
cores=$(grep -oE '[0-9]+ cores' accepted.out | tr -dc 0-9)
grep -qx "threads = $cores" net/peer-000/config.ini || bad "not $cores threads: $(cat net/peer-000/config.ini)"
accepted "\"threads\":$((cores < 16 ? cores : 16))," "$gv" bench train --model linear:classes --batch 16 --seconds 0.01 --json
"$gv" testnet --peers 2 --out two --steps 1 "${quick[@]}" >two.out 2>&1 </dev/null || bad "$(cat two.out)"
grep -qx "threads = $((cores > 3 ? cores / 2 : 1))" two/peer-001/config.ini || bad "two peers do not share $cores cores"
kill -TERM "$first"
wait "$first"
[ -e net/lock ] && bad "a testnet that has ended leaves its lock"
"$gv" testnet --peers 1 --out net --fresh --steps 1 "${quick[@]}" >again.out 2>&1 </dev/null || bad "$(cat again.out)"

# --- all flags come back ---------------------------------------------------------------------------
"$gv" keygen --swarm-key --out swarm.key >/dev/null
start a "${peer[@]}" --out a --swarm-key swarm.key --swarm-name blue --steps 1000000 --lr 0.03 \
    --schedule cosine --checkpoint-every 50ms "${quick[@]}"
for ((i = 0; i < 600; i++)); do
    [ -s a/model.safetensors ] && break
    sleep 0.1
done
stop "$pid"
cp a/config.ini before.ini
start again "$gv" peer --out a
wait_s=$SECONDS
until grep -q 'resuming from a' again.err || ((SECONDS > wait_s + 60)); do sleep 0.05; done
checks=$((checks + 1))
grep -q 'resuming from a' again.err || bad "it does not go on"
cmp -s before.ini a/config.ini || bad "config.ini changed: $(diff before.ini a/config.ini)"
refused 1 'another --swarm-key|another swarm|handshake' "${peer[@]}" --bootstrap "$address" --swarm-name blue \
    --join-timeout 2s --steps 5 "${quick[@]}"
accepted '"peer":' "$gv" status "$address" --swarm-key swarm.key --swarm-name blue --json
stop "$pid"
refused 2 'config.ini has other flags \(2\): --lr 0.03, not 0.5; --schedule cosine, not linear;' \
    "$gv" peer --out a --lr 0.5 --schedule linear
refused 2 '--swarm-name blue, not red' env GRAPEVINE_SWARM_NAME=red "$gv" peer --out a
mv swarm.key gone.key
refused 1 '--swarm-key: cannot read swarm.key' "$gv" peer --out a
cmp -s before.ini a/config.ini || bad "a refused start has changed config.ini"

# A text that has changed meanwhile is said to be that.
yes 'some words' | head -c 9000 >text
accepted '^finished: 1 steps' "${peer[@]}" "${quick[@]}" --data text:text --batch 2 --steps 1 --out words \
    --model 'embed:8 linear:classes'
yes 'other words' | head -c 9000 >text
refused 1 'holds a model for other data than --data is now' "$gv" peer --out words --steps 2

# --- what is there is not replaced -----------------------------------------------------------------
mkdir only
cp a/model.safetensors only/
refused 2 '--init only/model.safetensors' "${peer[@]}" --out only "${quick[@]}"
cmp -s a/model.safetensors only/model.safetensors || bad "a model was replaced"
[ "$(ls only)" = model.safetensors ] || bad "a refused start leaves files: $(ls only)"
cp -r a lost && rm lost/config.ini
refused 2 'config.ini, which has the flags it was made with, is missing' "${peer[@]}" --out lost "${quick[@]}"
mv gone.key swarm.key
cp -r a torn && head -c 100 a/state.safetensors >torn/state.safetensors
refused 1 'cannot resume from torn: .*--init torn/model.safetensors' "$gv" peer --out torn
: >file
refused 1 'not a directory' "${peer[@]}" --out file "${quick[@]}"
mkdir spoilt
for text in 'no setting' '\0\0\0' 'seed = 1\nseed = 2' 'out = b\nconfig = c' 'model = '; do
    printf "$text\n" >spoilt/config.ini
    refused 2 'spoilt/config.ini:' "${peer[@]}" --out spoilt "${quick[@]}"
done
head -c 2000000 /dev/zero >spoilt/config.ini
refused '1 2' 'spoilt/config.ini' "${peer[@]}" --out spoilt "${quick[@]}"
rm spoilt/config.ini && ln -s ../file spoilt/lock
refused 1 'cannot lock spoilt/lock' "${peer[@]}" --out spoilt "${quick[@]}"
finish
