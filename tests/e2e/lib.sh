# lib: what the end-to-end tests share. Waiting is reading: a peer's standard output is a pipe, and
# a test reads it until the line it waits for is there, so that nothing sleeps or polls.
# Usage: source this file; GRAPEVINE and WORK are set.

set -u
GRAPEVINE=$(realpath "$1")
WORK=$(mktemp -d)
declare -A PEER_PID PEER_FD PEER_ADDRESS
export OMP_WAIT_POLICY=PASSIVE

cleanup() {
    local name
    for name in "${!PEER_PID[@]}"; do kill -9 "${PEER_PID[$name]}" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$WORK"
}
trap cleanup EXIT

fail() {
    echo "FAILED: $*" >&2
    for log in "$WORK"/*.err; do echo "--- $log"; tail -n 20 "$log"; done >&2
    exit 1
}

# start_peer NAME FLAGS...: a peer with --json on a port of its own choice; sets PEER_ADDRESS[NAME].
start_peer() {
    local name=$1 fd fifo=$WORK/$1.fifo line
    shift
    rm -f "$fifo" && mkfifo "$fifo"
    "$GRAPEVINE" peer --listen 127.0.0.1:0 --json --report-every 200ms "$@" >"$fifo" 2>>"$WORK/$name.err" &
    PEER_PID[$name]=$!
    exec {fd}<"$fifo"
    PEER_FD[$name]=$fd
    wait_line "$name" '"listening"' 30
    line=${LINE#*\"address\":\"}
    PEER_ADDRESS[$name]=${line%%\"*}
}

# wait_line NAME PATTERN SECONDS: read the peer's lines until one matches; it is then in LINE.
wait_line() {
    local name=$1 pattern=$2 seconds=$3 end
    end=$((SECONDS + seconds))
    while ((SECONDS < end)); do
        IFS= read -r -t $((end - SECONDS)) LINE <&"${PEER_FD[$name]}" || fail "peer $name ended or was silent while waiting for: $pattern"
        [[ $LINE =~ $pattern ]] && return 0
    done
    fail "peer $name did not say in $seconds s: $pattern"
}

# number KEY: the number of a key of LINE.
number() {
    local rest=${LINE#*\"$1\":}
    echo "${rest%%[,\}]*}"
}

# wait_exit NAME: its exit code, after reading what it still says.
wait_exit() {
    local name=$1 code
    while IFS= read -r LAST <&"${PEER_FD[$name]}"; do LINE=$LAST; done
    wait "${PEER_PID[$name]}"
    code=$?
    unset "PEER_PID[$name]"
    exec {PEER_FD[$name]}<&-
    return $code
}

kill_peer() {
    kill -9 "${PEER_PID[$1]}"
    wait "${PEER_PID[$1]}" 2>/dev/null
    unset "PEER_PID[$1]"
}

# stop_peer NAME: ask it to stop, and wait for its last checkpoint. False unless it ended cleanly.
stop_peer() {
    kill -TERM "${PEER_PID[$1]}"
    wait_exit "$1"
    [ $? -eq 143 ]
}
