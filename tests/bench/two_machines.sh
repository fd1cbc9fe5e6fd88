#!/usr/bin/env bash
# A transcript of two machines, from the clone to one model: two network namespaces on a line of
# 1 Gbit/s, where the README's commands are typed, with seconds beside them. Prints
# Markdown; docs/two_machines.md keeps it with its date and machine. As root (ip, tc), with the
# packages of testnet/install.sh and dataset-fashion-mnist there.
#   tests/bench/two_machines.sh [DIR]     clones and works in DIR (default: a temporary folder)
#     SKIP_BUILD=build/release/grapevine  takes a program that is there, and times no build
set -euo pipefail
cd "$(dirname "$0")/../.."
root=$PWD work=${1:-$(mktemp -d)} tag=tm$$
for tool in ip tc git cmake python3; do
    command -v $tool >/dev/null || { echo "two_machines.sh: $tool is not installed" >&2; exit 2; }
done
ip netns add ${tag}a 2>/dev/null || { echo "two_machines.sh: network namespaces are not permitted" >&2; exit 2; }
trap 'kill $(jobs -p) 2>/dev/null; wait; ip netns del ${tag}a; ip netns del ${tag}b' EXIT
ip netns add ${tag}b
ip link add eth netns ${tag}a type veth peer name eth netns ${tag}b
for i in 1 2; do
    space=$tag$([ $i = 1 ] && echo a || echo b)
    ip -n "$space" link set lo up
    ip -n "$space" addr add 192.0.2.$((5 + i))/24 dev eth
    ip -n "$space" link set eth up
    tc -n "$space" qdisc add dev eth root tbf rate 1gbit burst 256kbit latency 50ms
done
# The README's first machine is 192.0.2.7.
ip -n ${tag}a addr del 192.0.2.6/24 dev eth && ip -n ${tag}b addr del 192.0.2.7/24 dev eth
ip -n ${tag}a addr add 192.0.2.7/24 dev eth && ip -n ${tag}b addr add 192.0.2.8/24 dev eth
mkdir -p "$work/a" "$work/b" "$work/bin"

begun=$SECONDS
typed() { # typed MACHINE COMMAND: as it is typed there, when
    printf '\n%s (%d s)$ %s\n' "$1" $((SECONDS - begun)) "$2"
}
on() { # on a|b COMMAND...
    local machine=$1
    shift
    (cd "$work/$machine" && PATH="$work/bin:$PATH" exec ip netns exec "$tag$machine" bash -c "$*")
}

echo '```'
if [ -n "${SKIP_BUILD:-}" ]; then
    cp "$SKIP_BUILD" "$work/bin/grapevine"
else
    # The second machine does the same at the same time; here it has the same processors, so once.
    typed "a, b" 'git clone "$URL_OF_THIS_REPOSITORY" grapevine && cd grapevine'
    git clone -q "$root" "$work/grapevine"
    typed "a, b" 'testnet/install.sh'
    (cd "$work/grapevine" && bash testnet/install.sh --yes) 2>&1 | tail -n 2
    typed "a, b" 'cmake --preset release && cmake --build build/release --target grapevine'
    (cd "$work/grapevine" && export CCACHE_DISABLE=1 && cmake --preset release >/dev/null && cmake --build build/release --target grapevine >/dev/null)
    typed "a, b" 'install build/release/grapevine /usr/local/bin'
    cp "$work/grapevine/build/release/grapevine" "$work/bin/"
fi
typed a 'grapevine keygen --swarm-key --out swarm.key'
on a grapevine keygen --swarm-key --out swarm.key 2>&1
typed a 'scp swarm.key b:'
cp "$work/a/swarm.key" "$work/b/"
typed a 'grapevine peer --swarm-key swarm.key --data fashion-mnist --model mlp --steps 2000 --start-with 2 --out a'
on a grapevine peer --swarm-key swarm.key --data fashion-mnist --model mlp --steps 2000 --start-with 2 --out a >"$work/a.out" 2>&1 &
first=$!
until grep -q '^listening' "$work/a.out"; do
    kill -0 $first || { cat "$work/a.out" >&2; exit 1; }
    sleep 0.1
done
cat "$work/a.out"
typed b 'grapevine join 192.0.2.7:7077 --swarm-key swarm.key --out b'
joined=$(date +%s.%N)
on b grapevine join 192.0.2.7:7077 --swarm-key swarm.key --out b >"$work/b.out" 2>&1 &
second=$!
rounds() {
    on b grapevine status 192.0.2.7:7077 --swarm-key swarm.key --json 2>/dev/null |
        python3 -c 'import json, sys; print(json.load(sys.stdin).get("rounds_ok", 0))' 2>/dev/null || echo 0
}
until [ "$(rounds)" -ge 1 ]; do sleep 0.05; kill -0 $first 2>/dev/null || break; done
printf '\n(the first common round is done %.1f s after b began to join, %d s after the first command)\n' \
    "$(echo "$(date +%s.%N) - $joined" | bc)" $((SECONDS - begun))
typed b 'grapevine status 192.0.2.7:7077 --swarm-key swarm.key'
on b grapevine status 192.0.2.7:7077 --swarm-key swarm.key 2>&1
wait $first $second
printf '\nand at the end, on a:\n'
tail -n 3 "$work/a.out"
printf 'on b, from its first line to its last:\n'
cat "$work/b.out"
typed a 'grapevine inspect a/model.safetensors'
on a grapevine inspect a/model.safetensors 2>&1 | head -n 12
python3 - "$work/a/a/model.safetensors" "$work/b/b/model.safetensors" <<'EOF'
import array, json, struct, sys

def values(path):
    with open(path, "rb") as file:
        json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        return array.array("f", file.read())

worst = max(abs(x - y) for x, y in zip(*map(values, sys.argv[1:])))
print(f"\n(the parameters of the two differ by {worst:.1g} at most)")
EOF
echo '```'
