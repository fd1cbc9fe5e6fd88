#!/bin/bash
# Two PyTorch peers and two native ones of one architecture, each with a quarter of the data, are one swarm: all end with one
# model, as good as that of four native peers with the same parts. Who is left goes on when one of either kind is killed.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
root=$(realpath "$(dirname "$0")/../..")
python=/usr/bin/python3
$python -c 'import torch, numpy' 2>/dev/null || skip "skipped: python3-torch or python3-numpy is not installed"
[ -e /usr/share/datasets/fashion-mnist ] || skip "skipped: dataset-fashion-mnist is not installed"
begin "$1"
LIBGRAPEVINE=$(dirname "$gv")/libgrapevine.so
export LIBGRAPEVINE PYTHONPATH=$root/python PYTHONDONTWRITEBYTECODE=1
[ -e "$LIBGRAPEVINE" ] || bad "no $LIBGRAPEVINE: build the target grapevine_shared"

alike=(--averaging local-sgd:H=16 --start-with 4)
native() { # native NAME PART WORD...
    local name=$1 part=$2
    shift 2
    start "$name" "$gv" peer --data fashion-mnist --model mlp --optimizer momentum:lr=0.05,beta=0.9 --batch 64 --steps 300 --seed "$part" \
        --shard-of "$part/4" --threads 1 --listen 127.0.0.1:0 --report-every 200ms "${alike[@]}" "$@"
}
torch() { # torch NAME PART ADDRESS
    $python "$root/python/examples/fashion_mnist.py" "$2" 4 --bootstrap "$3" --listen 127.0.0.1:0 "${alike[@]}" >"$1.out" 2>"$1.err" </dev/null &
    pid=$!
    pids+=("$pid")
}
accuracy() { # accuracy NAME: in percent
    if grep -q '^finished' "$1.out"; then
        sed -n 's/^finished.*accuracy \([0-9.]*\) %.*/\1/p' "$1.out"
    else
        awk '/^accuracy/ { printf "%.2f\n", 100 * $2 }' "$1.out"
    fi
}
ended() { # ended PID NAME
    checks=$((checks + 1))
    wait "$1" || bad "$2 ended with $?: $(tail -n 2 "$2.err")"
}

# Mixed.
native a 0 && first=$address members=("$pid" a)
native b 1 --bootstrap "$first" && members+=("$pid" b)
torch c 2 "$first" && members+=("$pid" c)
torch d 3 "$first" && members+=("$pid" d)
for ((i = 0; i < 8; i += 2)); do ended "${members[i]}" "${members[i + 1]}"; done
for name in c d; do
    checks=$((checks + 1))
    awk '/^accuracy/ && $4 >= 5 { ok = 1 } END { exit !ok }' "$name.out" || bad "$name took part in hardly any round: $(cat "$name.out")"
done

# The same from four native peers.
native e 0 && first=$address members=("$pid" e)
for name in f g h; do native "$name" $((${#members[@]} / 2)) --bootstrap "$first" && members+=("$pid" "$name"); done
for ((i = 0; i < 8; i += 2)); do ended "${members[i]}" "${members[i + 1]}"; done
mixed=$(for name in a b c d; do accuracy $name; done)
control=$(for name in e f g h; do accuracy $name; done)
echo "accuracy, two of PyTorch and two native:" $mixed "; four native:" $control
checks=$((checks + 1))
[ "$(wc -w <<<"$mixed $control")" -eq 8 ] || bad "not all peers said how good they are"
for value in $mixed $control; do # a mean of models whose layers were not the same is hardly better than chance, 10 %
    checks=$((checks + 1))
    awk -v value="$value" 'BEGIN { exit !(value > 75) }' || bad "a peer is right in $value % only"
done
checks=$((checks + 2))
# The last round leaves all with one model: what differs is arithmetic, unless inputs are normalised otherwise.
awk -v values="$mixed" 'BEGIN { n = split(values, v); for (i = 2; i <= n; i++) if ((v[i] - v[1])^2 > 0.04) exit 1 }' ||
    bad "one model is judged unlike: $(echo $mixed)"
awk -v values="$mixed" -v control="$control" 'BEGIN { split(values, v); split(control, c); exit !(v[1] > c[1] - 2) }' ||
    bad "the mixed swarm has learned less: $(echo "$mixed; $control")"

# One of either kind is killed once rounds are under way.
native i 0 && first=$address stay=("$pid" i)
native j 1 --bootstrap "$first" && killed=("$pid")
torch k 2 "$first" && stay+=("$pid" k)
torch l 3 "$first" && killed+=("$pid")
for ((n = 0; n < 600; n++)); do
    grep -qE 'round [2-9]' i.err && break
    sleep 0.05
done
kill -KILL "${killed[@]}"
for ((i = 0; i < 4; i += 2)); do ended "${stay[i]}" "${stay[i + 1]}"; done
finish
