#!/usr/bin/env bash
# The units of systemd, as they are installed: systemd finds nothing wrong with them, and what it thinks of how shut in
# the peer is stays at 1.4 or better (0 is the best of 10). What the peer asks of the kernel while it trains with another
# is among what SystemCallFilter lets through. That systemd starts them is not shown here: no test boots one.
# shellcheck source=tests/e2e/helpers.sh
. "$(dirname "$0")/helpers.sh"
build=$(dirname "$(realpath "$1")")
units=$(realpath "$(dirname "$0")/../../deploy/systemd")
begin "$1"
command -v systemd-analyze >/dev/null || skip "skipped: systemd-analyze is not installed"
[ -e "$build/grapevine.service" ] || skip "skipped: $build is no build folder"

# A root in which the program is where systemd looks for it.
mkdir -p root/usr/bin root/usr/lib/systemd/system
ln -s usr/lib root/lib
cp "$gv" root/usr/bin/grapevine
cp "$(type -P kill)" root/usr/bin/kill
cp "$units/grapevine@.service" "$build/grapevine.service" root/usr/lib/systemd/system
for unit in sysinit.target basic.target network-online.target multi-user.target shutdown.target; do
    printf '[Unit]\nDescription=%s\n' "$unit" >"root/usr/lib/systemd/system/$unit"
done
for unit in grapevine.service grapevine@ward.service; do
    checks=$((checks + 1))
    systemd-analyze verify --man=no --root="$folder/root" "$unit" >verify.out 2>&1 || bad "$unit: $(cat verify.out)"
    ! grep -q grapevine verify.out || bad "$unit: $(cat verify.out)"
done
checks=$((checks + 1))
systemd-analyze security --no-pager --offline=yes --threshold=14 "$build/grapevine.service" >security.out 2>&1 ||
    bad "the exposure is over 1.4"
grep 'exposure level' security.out || bad "no score: $(tail -n 3 security.out)"

# What it lets through, by systemd's own lists.
: >allowed
if command -v strace >/dev/null; then
    filter() { systemd-analyze syscall-filter --no-pager "$1" | sed -n 's/^    \([@a-z0-9_-]*\)$/\1/p'; }
    expand() {
        local word
        filter "$1" | while read -r word; do
            case $word in @*) expand "$word" ;; *) echo "$word" ;; esac
        done
    }
    sed -n 's/^SystemCallFilter=//p' "$build/grapevine.service" | while read -r line; do
        for word in ${line#\~}; do
            case $word in @*) expand "$word" ;; *) echo "$word" ;; esac
        done >part
        case $line in
        \~*) sort -u part >without && comm -23 allowed without >rest && mv rest allowed ;;
        *) sort -u part allowed >all && mv all allowed ;;
        esac
    done
    strace -f -qq -o calls "$gv" peer --listen 127.0.0.1:0 --data digits --model cnn --steps 30 --averaging none --http 0 --out out \
        >/dev/null 2>strace.err || bad "$(tail -n 3 strace.err)"
    sed -n 's/^[0-9]* *\([a-z0-9_]*\)(.*/\1/p' calls | sort -u >used
    checks=$((checks + 1))
    [ "$(wc -l <used)" -gt 20 ] || bad "strace saw only $(wc -l <used) system calls"
    # prctl and execve are of the service manager's own list; a refused one is EPERM, which the program takes.
    refused=$(comm -23 used allowed | tr '\n' ' ')
    [ -z "$refused" ] || bad "not let through: $refused"
else
    echo "strace is not installed: the filter of system calls was not compared"
fi
finish
