#!/bin/bash
# image: the container image of a peer, made without a registry: the base of Debian's packages (mmdebstrap), the rest as
# Containerfile says (buildah, in a chroot, so that no daemon, no user namespace and no container are needed).
#   deploy/image.sh [FILE.tar]      needs root, mmdebstrap, buildah, and a Debian mirror
# FILE.tar: the image as `podman load` and `docker load` take it. Storage: IMAGE_STORE (a new folder, removed at the end).
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
store=${IMAGE_STORE:-$work/store}
trap 'rm -rf "$work"' EXIT
fail() {
    echo "image.sh: $*" >&2
    exit 1
}
for tool in mmdebstrap buildah; do
    command -v "$tool" >/dev/null || fail "$tool is not installed; apt-get install $tool, or build deploy/Containerfile where a registry can be reached"
done
build() { buildah --storage-driver vfs --root "$store" --runroot "$work/run" "$@"; }

# The mirror of this machine, and the way to it.
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
mmdebstrap --variant=apt --quiet --include=ca-certificates "$release" "$work/base.tar"
printf 'FROM scratch\nADD base.tar /\n' >"$work/Containerfile"
build build --isolation chroot --quiet -f "$work/Containerfile" -t grapevine-base "$work" >/dev/null
build build --isolation chroot --format docker --layers --build-arg BASE=localhost/grapevine-base -f deploy/Containerfile -t grapevine . \
    >"$work/log" 2>&1 || fail "buildah: $(tail -n 5 "$work/log")"
echo "image: $(build images --format '{{.Size}}' localhost/grapevine) unpacked"
if [ $# -gt 0 ]; then
    build push --quiet localhost/grapevine "docker-archive:$1:grapevine:latest"
    echo "image: written to $1, $(stat -c %s "$1") bytes"
fi
