#!/usr/bin/env bash
# Keys are not left about: the program's tables are read-only once it runs, it is
# position-independent, and a running peer leaves no core dump, cannot be looked into by others of
# its user, and keeps its keys out of swap; where it may not lock memory it runs all the same.
# GRAPEVINE_CORE_DUMPS=1 allows what debuggers need.
source "$(dirname "$0")/lib.sh"

if command -v readelf >/dev/null; then
    readelf -dW "$GRAPEVINE" | grep -Eq 'BIND_NOW|FLAGS_1.*NOW' || fail "not linked with -z now"
    readelf -dW "$GRAPEVINE" | grep -Eq 'FLAGS_1.*PIE' || fail "not position-independent"
    readelf -lW "$GRAPEVINE" | grep -q 'GNU_RELRO' || fail "no read-only relocations"
    readelf -lW "$GRAPEVINE" | grep -Eq 'GNU_STACK.* RW +0x' || fail "the stack can be executed"
fi

limit() { awk '/^Max core file size/ { print $5 }' "/proc/$1/limits"; }
locked() { awk '/^VmLck/ { print $2 }' "/proc/$1/status"; }
is_built_with_sanitizer() { ldd "$GRAPEVINE" | grep -Eq 'libasan|libtsan'; }

common=(--data digits --model linear:classes --steps 1000000000)
mkdir "$WORK/keys"
"$GRAPEVINE" keygen --swarm-key --out "$WORK/keys/swarm.key" >/dev/null || fail "no key was made"
chmod 755 "$WORK"

ulimit -Sc "$(ulimit -Hc)"
start_peer a "${common[@]}" --swarm-key "$WORK/keys/swarm.key"
[[ $(limit "${PEER_PID[a]}") == 0 ]] || fail "it may dump core: $(limit "${PEER_PID[a]}")"
if [[ $(ulimit -Hl) == unlimited || $(ulimit -Hl) -ge 64 ]] && ! is_built_with_sanitizer; then
    (($(locked "${PEER_PID[a]}") > 0)) || fail "no memory is locked"
fi

if [[ $(ulimit -Hc) != 0 ]]; then
    export GRAPEVINE_CORE_DUMPS=1
    start_peer b "${common[@]}"
    unset GRAPEVINE_CORE_DUMPS
    [[ $(limit "${PEER_PID[b]}") != 0 ]] || fail "GRAPEVINE_CORE_DUMPS=1 changes nothing"
fi

# As a user who is not root, and may lock nothing.
if ((EUID == 0)) && command -v setpriv >/dev/null; then
    nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups --bounding-set -all)
    if "${nobody[@]}" test -x "$GRAPEVINE"; then
        (
            ulimit -l 0
            cd / && exec "${nobody[@]}" "$GRAPEVINE" peer --listen 127.0.0.1:0 "${common[@]}"
        ) >"$WORK/c.out" 2>"$WORK/c.err" </dev/null &
        PEER_PID["c"]=$!
        for ((i = 0; i < 1200; i++)); do
            grep -q '^listening on' "$WORK/c.out" && break
            kill -0 "${PEER_PID[c]}" 2>/dev/null || fail "it does not run where nothing may be locked"
            sleep 0.1
        done
        grep -q '^listening on' "$WORK/c.out" || fail "it does not run where nothing may be locked"
        is_built_with_sanitizer || [[ $(stat -c %u "/proc/${PEER_PID[c]}/maps") == 0 ]] ||
            fail "others of its user can look into its memory"
    fi
fi
echo "keys stay where they are"
