#!/bin/bash
# package: the Debian package of a build installs, runs and goes away again, in a system that has
# nothing but what it depends on.
#   tests/package.sh BUILD_FOLDER      needs root, mmdebstrap, and a Debian mirror
set -euo pipefail
cd "$(dirname "$0")/.."
build=$(realpath "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

(cd "$build" && cpack -G DEB -B "$work" >"$work/cpack.log" 2>&1) || fail "cpack: $(tail -n 5 "$work/cpack.log")"
package=$(find "$work" -maxdepth 1 -name 'grapevine_*.deb')
[ -n "$package" ] || fail "no package"
dpkg-deb -I "$package" | sed -n 's/^ *\(Depends\|Version\|Installed-Size\):/\1:/p'
command -v mmdebstrap >/dev/null || fail "mmdebstrap is not installed"
mmdebstrap --variant=minbase --quiet "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$work/root"
in_root() { chroot "$work/root" "$@"; }
cp -r /etc/apt/. "$work/root/etc/apt/" # the mirror of this machine, and the way to it
cp /etc/resolv.conf "$work/root/etc/resolv.conf"
in_root apt-get update -q >"$work/update.log" 2>&1 || fail "update: $(tail -n 5 "$work/update.log")"
cp "$package" "$work/root/tmp/grapevine.deb"
in_root apt-get install -y -q /tmp/grapevine.deb >"$work/install.log" 2>&1 || fail "install: $(tail -n 5 "$work/install.log")"
in_root grapevine --version
in_root env HOME=/tmp grapevine peer --listen 127.0.0.1:0 --data digits --model mlp --steps 50 --out /tmp/run >"$work/run.log" 2>&1 ||
    fail "a run: $(tail -n 5 "$work/run.log")"
tail -n 1 "$work/run.log"
[ -e "$work/root/usr/share/man/man1/grapevine.1" ] || [ -e "$work/root/usr/share/man/man1/grapevine.1.gz" ] || fail "no man page"
in_root rm -rf /tmp/run /tmp/grapevine.deb
in_root apt-get purge -y -q grapevine >/dev/null 2>&1 || fail "purge"
left=$(cd "$work/root" && find . -xdev -name '*grapevine*' -not -path './var/log/*')
[ -z "$left" ] || fail "left behind: $left"
echo "the package installs, runs and is removed"
