#!/bin/bash
# image: what deploy/image.sh wrote, unpacked, with the entry point, user and health check that it names: two peers in it, each
# with a /data of its own over a root that nobody can write to, reach a common round. Not part of the gate. Needs root.
#   tests/deploy/image.sh FILE.tar
set -euo pipefail
tar=$(realpath "$1")
if [ -z "${IMAGE_ALONE:-}" ]; then IMAGE_ALONE=1 exec unshare -n -m -p -f --mount-proc bash "$0" "$tar"; fi # all ends with this script
work=$(mktemp -d)
trap 'umount -R -l "$work"/root-* 2>/dev/null; rm -rf "$work"' EXIT
fail() {
    echo "FAILED: $*" >&2
    tail -n 5 "$work"/*.log >&2
    exit 1
}
ip link set lo up

mkdir "$work/archive" "$work/root"
tar -xf "$tar" -C "$work/archive"
read_json() { /usr/bin/python3 -c 'import json, sys; value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]: value = value[int(key) if key.isdigit() else key]
print("\n".join(value) if isinstance(value, list) else value)' "$@"; }
config=$work/archive/$(read_json "$work/archive/manifest.json" 0 Config)
for layer in $(read_json "$work/archive/manifest.json" 0 Layers); do tar -xf "$work/archive/$layer" -C "$work/root"; done
user=$(read_json "$config" config User)
mapfile -t entry < <(read_json "$config" config Entrypoint)
mapfile -t command < <(read_json "$config" config Cmd)
mapfile -t health < <(read_json "$config" config Healthcheck Test)
[ "$user" = 65532:65532 ] && [ "${health[0]}" = CMD ] || fail "user $user, health check ${health[*]}"

run() { # run NAME WORD...: in the image, as its user; /data is the only place that can be written to
    local name=$1 root=$work/root-$1
    shift
    if [ ! -d "$root" ]; then
        mkdir "$root"
        mount --bind "$work/root" "$root"
        mount -o remount,bind,ro "$root"
        mount -t tmpfs -o "mode=0700,uid=65532,gid=65532" tmpfs "$root/data"
    fi
    env -i "$(command -v chroot)" --userspec="$user" "$root" "$@"
}
until_says() { # until_says FILE PATTERN
    local end=$((SECONDS + 120))
    until grep -qE "$2" "$1"; do
        ((SECONDS < end)) || fail "$1 does not say: $2"
        sleep 0.1
    done
}
peer=(--json --report-every 200ms --data digits --model mlp --threads 1 --time 1h)
run a "${entry[@]}" "${command[@]}" --listen 127.0.0.1:7077 "${peer[@]}" >"$work/a.log" 2>&1 &
until_says "$work/a.log" '"listening"'
run b "${entry[@]}" peer --out /data --listen 127.0.0.1:0 --bootstrap 127.0.0.1:7077 "${peer[@]}" >"$work/b.log" 2>&1 &
for name in a b; do until_says "$work/$name.log" '"rounds_ok":[1-9]'; done
run a "${health[@]:1}" >"$work/health.log" 2>&1 || fail "the health check of a peer that is well"
[ "$(stat -c %u "$work"/root-a/data/identity.key)" = 65532 ] || fail "/data is not the user's"
[ -z "$(run a /usr/bin/grapevine peer --listen 127.0.0.1:0 --data digits --model mlp --steps 1 --out /elsewhere 2>/dev/null)" ] || fail "the root can be written to"
echo "unpacked: $(du -sh "$work/root" | cut -f1); two peers in it average: $(grep -oE '"rounds_ok":[0-9]+' "$work/b.log" | tail -n 1)"
