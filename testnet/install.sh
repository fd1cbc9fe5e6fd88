#!/bin/bash
# install: the Debian packages that grapevine needs, only those that are missing. Says what it is
# about to do; asks first unless run as root or with --yes.
#   testnet/install.sh [--yes] [--tests] [--aarch64]
#     --tests    also what only tests/run.sh needs
#     --aarch64  also what tests/aarch64.sh needs
set -euo pipefail

packages=(
    cmake ninja-build gcc libc6-dev pkg-config git ca-certificates
    libuv1-dev libsodium-dev libmsgpack-dev libopenblas-openmp-dev libdnnl-dev
    libjansson-dev libinih-dev libpcre2-dev zlib1g-dev libpng-dev libprotobuf-c-dev protobuf-c-compiler libmicrohttpd-dev
    dataset-fashion-mnist
)
# It exists for this kind of processor only; without it libsodium does its work, more slowly.
[ "$(dpkg --print-architecture 2>/dev/null)" != amd64 ] || packages+=(libipsec-mb-dev)
test_packages=(libcmocka-dev clang libomp-dev lld clang-format libclang-rt-14-dev shellcheck binutils python3-onnx
    microsocks tinyproxy-bin python3-cryptography python3-msgpack python3-numpy python3-regex python3-yaml
    python3-setuptools python3-wheel python3-pip slurmctld slurmd munge)

agreed=$([ "$(id -u)" = 0 ] && echo yes || echo no)
for word in "$@"; do
    case $word in
    --yes) agreed=yes ;;
    --tests) packages+=("${test_packages[@]}") ;;
    --aarch64) packages+=(gcc-aarch64-linux-gnu qemu-user) ;;
    *)
        echo "install.sh: unknown word $word: it takes --yes, --tests and --aarch64" >&2
        exit 2
        ;;
    esac
done

is_installed() {
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
    echo "install.sh: no apt-get here: install the equivalents of these yourself if the build misses them:" >&2
    echo "    ${packages[*]}" >&2
    exit 0
fi

missing=()
for package in "${packages[@]}"; do
    is_installed "$package" || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
    echo "install: nothing is missing" >&2
    exit 0
fi

as_root=()
[ "$(id -u)" = 0 ] || as_root=(sudo)
echo "install: these Debian packages are missing and will be installed: ${missing[*]}" >&2
if [ "$agreed" = no ]; then
    if [ ! -t 0 ]; then
        echo "install.sh: nobody to ask: run it again with --yes" >&2
        exit 1
    fi
    read -r -p "go on? [y/N] " answer
    case $answer in [yY]*) ;; *) exit 1 ;; esac
fi
if [ ${#as_root[@]} -gt 0 ] && ! command -v sudo >/dev/null; then
    echo "install.sh: no sudo here: run as root: apt-get install ${missing[*]}" >&2
    exit 1
fi

install_missing() {
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends "${missing[@]}"
}
# Lists may be missing (fresh image) or too old: look at them again before giving up.
if ! install_missing >/dev/null 2>&1; then
    "${as_root[@]}" apt-get update -q >&2
    install_missing >&2
fi
echo "install: done" >&2
