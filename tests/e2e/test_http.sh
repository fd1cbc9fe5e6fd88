#!/usr/bin/env bash
# Two peers, one with --http: its status as JSON, as metrics and as a page; what is refused, and what
# a port that is taken says. Requests are written by hand, so that wrong ones can be.
source "$(dirname "$0")/lib.sh"
trap '' PIPE # connections are closed under our hands here

common=(--data digits --model mlp --time 1h --averaging local-sgd:H=64 --batch 8)

# ask WORDS: the answer to raw bytes, in ANSWER.
ask() {
    exec {web}<>"/dev/tcp/${http%:*}/${http##*:}" || fail "no connection to $http"
    printf '%b' "$1" >&$web
    ANSWER=$(timeout 60 cat <&$web)
    exec {web}>&-
}

expect() { # expect TEXT: in ANSWER
    [[ $ANSWER == *"$1"* ]] || fail "'$1' is not in: ${ANSWER:0:2000}"
}

"$GRAPEVINE" peer --listen 127.0.0.1:0 --http nonsense "${common[@]}" 2>"$WORK/wrong"
[ $? -eq 2 ] || fail "--http nonsense: $(cat "$WORK/wrong")"
grep -q "^grapevine: --http nonsense: not an address" "$WORK/wrong" || fail "$(cat "$WORK/wrong")"

"$GRAPEVINE" peer --listen 127.0.0.1:0 --http 0 --data digits --model mlp --steps 1 2>"$WORK/first"
if grep -q "libmicrohttpd" "$WORK/first"; then
    tail -n 1 "$WORK/first"
    exit 77
fi
start_peer a "${common[@]}" --http 0
http=$(sed -n 's|^status page: http://\(.*\)/$|\1|p' "$WORK/a.err") # said before it listens
start_peer b "${common[@]}" --bootstrap "${PEER_ADDRESS[a]}"
wait_line a '"rounds_ok":[1-9]' 180

# until_says TEXT: of the status, however often one has to ask: a busy peer is suspected for a moment.
until_says() {
    local end=$((SECONDS + 120))
    while ((SECONDS < end)); do
        ask 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'
        [[ $ANSWER == *"$1"* ]] && return
        sleep 0.1
    done
    expect "$1"
}
until_says 'grapevine_members{state="alive"} 1'

"$GRAPEVINE" status "$http" --join-timeout 60s >"$WORK/status" || fail "status of the page's address"
grep -qE "(alive|suspect) +(unknown|public|outbound-only) " "$WORK/status" || fail "$(cat "$WORK/status")"
for path in /status.json /metrics / /elsewhere; do
    ask "GET $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    case $path in
    /status.json)
        expect "200 OK"
        expect '"state":"'
        for key in peer address run step round loss neighbours consensus_distance members id rtt_ms \
            bytes_sent bytes_received last_failure nat score rate odds; do expect "\"$key\":"; done
        ;;
    /metrics) expect 'grapevine_members{state="alive"} ' ;;
    /) expect "Content-Security-Policy: default-src 'none'" && expect "<title>grapevine</title>" ;;
    *) expect "404 Not Found" ;;
    esac
done
# The stream of the page: all points so far, then a status and one more point, while it stays open.
exec {web}<>"/dev/tcp/${http%:*}/${http##*:}" || fail "no connection to $http"
printf 'GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n' >&$web
for event in points status point; do
    while read -r -t 60 line <&$web; do [[ $line == "event: $event"* ]] && break; done
    [[ $line == "event: $event"* ]] || fail "no '$event' from /events"
done
exec {web}>&-
# More of them than are served at once: the rest is told, and others are answered as before.
streams=()
for _ in {1..9}; do
    exec {fd}<>"/dev/tcp/${http%:*}/${http##*:}" && streams+=("$fd")
    printf 'GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n' >&$fd
done
for fd in "${streams[@]}"; do read -r -t 60 line <&$fd; done
[[ $line == *" 503 "* ]] || fail "the ninth stream: $line"
ask 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n'
expect "grapevine_alarms 0"
for fd in "${streams[@]}"; do exec {fd}>&-; done
ask 'POST /status.json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello'
expect "405 Method Not Allowed"
ask 'GET /status.json HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n'
expect "403 Forbidden"
# Far more connections than are served at once, all silent, and one header that does not end: the
# peer goes on, and others are answered again once those are closed.
silent=()
for _ in {1..40}; do
    exec {fd}<>"/dev/tcp/${http%:*}/${http##*:}" && silent+=("$fd")
done
{ printf 'GET / HTTP/1.1\r\nX: %065536d' 0 >&"${silent[0]}"; } 2>/dev/null
{ printf '\x16\x03\x01\r\n\r\nnonsense' >&"${silent[1]}"; } 2>/dev/null
for fd in "${silent[@]}"; do exec {fd}>&-; done
ask 'GET /metrics HTTP/1.0\r\n\r\n'
expect "grapevine_step"

"$GRAPEVINE" peer --listen 127.0.0.1:0 --http "$http" "${common[@]}" 2>"$WORK/taken"
[ $? -eq 1 ] || fail "a port that is taken: $(cat "$WORK/taken")"
grep -qi "^grapevine: cannot listen on --http $http: address already in use" "$WORK/taken" || fail "$(cat "$WORK/taken")"

# The same over the swarm's own port: once for people, and watched for scripts.
"$GRAPEVINE" status "${PEER_ADDRESS[a]}" --join-timeout 60s >"$WORK/status" || fail "status"
grep -qE "(alive|suspect) +(unknown|public|outbound-only) " "$WORK/status" || fail "$(cat "$WORK/status")"
[ "$("$GRAPEVINE" top "${PEER_ADDRESS[a]}" --join-timeout 60s --times 2 --every 300ms --json | grep -c '"last_failure":')" = 2 ] || fail "top"

"$GRAPEVINE" status "${PEER_ADDRESS[a]}" --join-timeout 60s --check >"$WORK/check" || fail "status --check: $(cat "$WORK/check")"
[ "$(cat "$WORK/check")" = ok ] || fail "status --check says: $(cat "$WORK/check")"
kill -USR1 "${PEER_PID[a]}" # the last rounds, and it goes on
for _ in {1..600}; do grep -q "^round, .* ago: averaged; 2 members" "$WORK/a.err" && break || sleep 0.1; done
grep -q "^round, .* ago: averaged; 2 members" "$WORK/a.err" || fail "SIGUSR1: $(tail -n 3 "$WORK/a.err")"

kill -TERM "${PEER_PID[a]}"
wait_exit a
[ $? -eq 143 ] || fail "exit code after SIGTERM"
echo "status, metrics and page are served"
