#!/usr/bin/env bash
# Through doors that are shut: peers whose dials go through a SOCKS5 proxy (microsocks), an HTTP
# proxy (tinyproxy) or a command take part like others; who is wrong about the proxy is told so in
# one line; names are the proxy's to look up; and a command's processes go with their links, and with
# the peer.
source "$(dirname "$0")/lib.sh"

DOING=
start_peer a --data digits --model mlp --steps 1000000000
a=${PEER_ADDRESS[a]}

free_port() { # free_port COMMAND...: run it with PORT in the place of %, until it listens; PORT, PID
    local words
    for _ in 1 2 3 4 5 6 7 8 9 10; do
        PORT=$((20000 + RANDOM % 10000))
        words=("${@//%/$PORT}")
        [[ ! -e $WORK/tiny ]] || sed "s/%/$PORT/" "$WORK/tiny" >"$WORK/tiny.conf"
        "${words[@]}" >"$WORK/proxy.err" 2>&1 </dev/null &
        PID=$!
        PEER_PID["p$PORT"]=$PID
        while kill -0 "$PID" 2>/dev/null; do
            (exec 3<>"/dev/tcp/127.0.0.1/$PORT") 2>/dev/null && return
            sleep 0.05
        done
        unset "PEER_PID[p$PORT]"
    done
    fail "no proxy listens: $*"
}
refused() { # refused PATTERN FLAGS...: the status is not to be had, for this reason
    local pattern=$1
    shift
    "$GRAPEVINE" status "$@" --join-timeout 10s >"$WORK/said" 2>&1 && fail "status $* came through"
    grep -Eq "$pattern" "$WORK/said" || fail "status $*: $(cat "$WORK/said"), not $pattern"
    (($(grep -c . "$WORK/said") == 1)) || fail "more than one line: $(cat "$WORK/said")"
}
takes_part() { # takes_part NAME FLAGS...: joins a, and rounds are made
    start_peer "$@" --bootstrap "$a" --data digits --model mlp --steps 1000000000
    wait_line "$1" '"rounds_ok":[1-9]' 60
}

# SOCKS5
if command -v microsocks >/dev/null; then
    free_port microsocks -i 127.0.0.1 -p % -u me -P 'se:cret'
    socks=127.0.0.1:$PORT
    "$GRAPEVINE" status "$a" --proxy "socks5://me:se%3Acret@$socks" --json >"$WORK/said" || fail "no status through SOCKS5"
    "$GRAPEVINE" status "localhost:${a##*:}" --proxy "socks5h://me:se%3Acret@$socks" --json >"$WORK/said" || fail "no name through SOCKS5"
    refused 'wants a name and password' "$a" --proxy "socks5://$socks"
    refused 'does not take the name and password' "$a" --proxy "socks5://me:wrong@$socks"
    refused 'says the proxy' 127.0.0.1:1 --proxy "socks5://me:se%3Acret@$socks"
    refused 'no HTTP proxy|hung up' "$a" --proxy "http://$socks"
    takes_part socks --proxy "socks5://me:se%3Acret@$socks"
    grep -q 'se:cret' "$WORK/socks.err" && fail "the password is in the log"
    stop_peer socks || fail "a peer behind SOCKS5 does not end cleanly"
else
    echo "skipped: SOCKS5, microsocks is not installed"
fi
refused "proxy's port refuses connections" "$a" --proxy socks5://127.0.0.1:1
refused "name of the proxy's host" "$a" --proxy http://nowhere.invalid:3128
refused 'does not speak SOCKS5|no answer through the proxy|hung up' "$a" --proxy "socks5://$a"
refused '^grapevine: --proxy: not a proxy' "$a" --proxy "tcp://$a"

# HTTP
if command -v tinyproxy >/dev/null; then
    printf 'Port %%\nListen 127.0.0.1\nMaxClients 50\nTimeout 600\nConnectPort %s\n' "${a##*:}" >"$WORK/tiny"
    free_port tinyproxy -d -c "$WORK/tiny.conf"
    http=127.0.0.1:$PORT
    "$GRAPEVINE" status "localhost:${a##*:}" --proxy "http://$http/" --json >"$WORK/said" || fail "no status through HTTP"
    refused 'port 443' 127.0.0.1:1 --proxy "http://$http"
    refused 'does not speak SOCKS5|no answer through the proxy' "$a" --proxy "socks5://$http"
    takes_part http --proxy "http://$http"
    stop_peer http || fail "a peer behind an HTTP proxy does not end cleanly"
else
    echo "skipped: HTTP, tinyproxy is not installed"
fi

# A command
cat >"$WORK/carry" <<'SCRIPT'
#!/usr/bin/env bash
exec 3<>"/dev/tcp/$1/$2" || exit 1
cat <&3 &
exec cat >&3
SCRIPT
chmod +x "$WORK/carry"
"$GRAPEVINE" status "$a" --dial-command "$WORK/carry %h %p" --json >"$WORK/said" || fail "no status through a command"
refused 'not there, or may not be run' "$a" --dial-command "$WORK/nobody %h %p"
refused 'ended without a byte' "$a" --dial-command 'false %h %p'
refused '^grapevine: --dial-command .*%h and %p' "$a" --dial-command 'nc %h 7077'
no_zombie() { ! ps -o stat= --ppid "$1" | grep -q Z; }
gone() { ! kill -0 -- "-$1" 2>/dev/null; }
soon() { # soon WORD...: it is so, if not at once: the kernel takes its time with the dead
    for ((n = 0; n < 1200; n++)); do
        "$@" && return
        sleep 0.05
    done
    return 1
}
takes_part command --dial-command "$WORK/carry %h %p"
pid=${PEER_PID[command]}
first=$(pgrep -P "$pid" | head -n 1)
[[ -n $first ]] || fail "the connection has no process"
kill -9 -- "-$first" # as if the line were lost: another one is dialled, and this one is reaped
skip_lines command
wait_more command rounds_ok 1 60
soon gone "$first" || fail "a command that ended was not reaped"
soon no_zombie "$pid" || fail "the peer keeps zombies"
groups=$(pgrep -P "$pid")
stop_peer command || fail "a peer with a command does not end cleanly"
for group in $groups; do
    soon gone "$group" || fail "a command outlives its peer"
done
kill_peer a
echo "peers get out through proxies and commands"
