#!/bin/bash
# aarch64: builds for ARM's 64 bits on a Debian machine of another kind, and runs the quick tests of units there, by
# emulation. Nothing of the machine's own changes, but that the compiler and the emulator are installed where they are
# missing; the libraries are unpacked in build/aarch64/root.
#   tests/aarch64.sh [--yes] [CTEST-WORDS...]      words: which tests; without any: -L quick -R '^unit_'
#     --yes  do not ask before installing (nobody is asked as root)
#   JOBS=2  compilers and tests side by side
set -euo pipefail
cd "$(dirname "$0")/.."

libraries=(libc6-dev libuv1-dev libsodium-dev libmsgpack-dev libopenblas-openmp-dev libdnnl-dev libjansson-dev
    libinih-dev libpcre2-dev zlib1g-dev libpng-dev libprotobuf-c-dev libcmocka-dev)
# What those ask for and C does not need.
unwanted='boost|msgpack-cxx|krb5|libk5crypto|tirpc|libnsl|gssapi|keyutils|libcom-err|libssl|^lib(a|l|t|ub|hwa)san'
jobs=${JOBS:-$(nproc)}
build=$PWD/build/aarch64
root=$build/root

yes=()
if [ "${1:-}" = --yes ]; then
    yes=(--yes)
    shift
fi
[ $# -gt 0 ] || set -- -L quick -R '^unit_'

bash testnet/install.sh "${yes[@]}" --aarch64

# Packages for another kind of machine, without telling dpkg of it: lists, state and files of apt are our own.
unpack_libraries() {
    local state=$build/apt names name
    rm -rf "$state" "$root"
    mkdir -p "$state/lists/partial" "$state/cache/archives/partial" "$state/debs" "$root/usr/lib"
    ln -s usr/lib "$root/lib"
    : >"$state/status"
    cat >"$state/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures "arm64";
APT::Install-Recommends "false";
Dir::State "$state";
Dir::State::lists "lists/";
Dir::State::status "$state/status";
Dir::Cache "$state/cache";
EOF
    export APT_CONFIG=$state/apt.conf
    apt-get update -q >&2
    mapfile -t names < <(apt-get install -s "${libraries[@]}" | awk '/^Inst/ { print $2 }' | grep -vE "$unwanted")
    (cd "$state/debs" && apt-get download -q "${names[@]}" >&2)
    unset APT_CONFIG
    for name in "$state"/debs/*.deb; do
        dpkg-deb --fsys-tarfile "$name" | tar -x --keep-directory-symlink -C "$root"
    done
    for name in libopenblas.so libopenblas.so.0 pkgconfig/openblas.pc; do # as the package's alternatives would
        ln -sf "$root/usr/lib/aarch64-linux-gnu/openblas-openmp/$name" "$root/usr/lib/aarch64-linux-gnu/$name"
    done
    rm -r "$state"
    touch "$root/complete"
}

[ -e "$root/complete" ] || unpack_libraries

export PKG_CONFIG_SYSROOT_DIR=$root PKG_CONFIG_PATH=
export PKG_CONFIG_LIBDIR=$root/usr/lib/aarch64-linux-gnu/pkgconfig:$root/usr/share/pkgconfig
cmake -G Ninja -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DGRAPEVINE_USE_CUDA=OFF \
    -DCMAKE_SYSTEM_NAME=Linux -DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_C_COMPILER=aarch64-linux-gnu-gcc \
    -DCMAKE_SYSROOT="$root" -DCMAKE_FIND_ROOT_PATH_MODE_PROGRAM=NEVER \
    -DCMAKE_FIND_ROOT_PATH_MODE_{LIBRARY,INCLUDE,PACKAGE}=ONLY \
    -DCMAKE_CROSSCOMPILING_EMULATOR="qemu-aarch64;-L;$root"
# Only the programs of these tests, unless one of them is a script, which may want any.
mapfile -t tests < <(ctest --test-dir "$build" -N "$@" | sed -nE 's/^ *Test +#[0-9]+: //p' |
    sed -E 's/^(unit_kernels_.*)_(baseline|avx2|avx512)$/\1/' | sort -u)
mapfile -t programs < <(ninja -C "$build" -t targets all | sed -n 's/: phony$//p' | grep -xFf <(printf '%s\n' "${tests[@]}"))
[ ${#programs[@]} -eq ${#tests[@]} ] || programs=(all)
cmake --build "$build" -j "$jobs" --target "${programs[@]}"
exec ctest --test-dir "$build" -j "$jobs" --output-on-failure "$@"
