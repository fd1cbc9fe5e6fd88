# lib: what the end-to-end tests share. A peer's standard output is a file, so that a peer whose
# lines nobody reads for a while is never held up; a test reads on in it until the line it waits for
# is there. Lines are read in order, each once: what shall be newer than now needs skip_lines before.
# Usage: source this file; GRAPEVINE and WORK are set.

set -u
GRAPEVINE=$(realpath "$1")
WORK=$(mktemp -d)
declare -A PEER_PID PEER_FD PEER_PART PEER_ADDRESS
export OMP_WAIT_POLICY=PASSIVE
export GRAPEVINE_THREADS=1 # unless told otherwise: many peers share the machine

cleanup() {
    local name
    for name in "${!PEER_PID[@]}"; do kill -9 "${PEER_PID[$name]}" 2>/dev/null; done
    wait 2>/dev/null
    rm -rf "$WORK"
}
trap cleanup EXIT

fail() { # fail TEXT: with what the script said in DOING
    echo "FAILED: $*${DOING:+ ($DOING)}" >&2
    for log in "$WORK"/*.err; do echo "--- $log"; tail -n 20 "$log"; done >&2
    exit 1
}

# start_process NAME WORD...: in the background; what it says is read by wait_line.
start_process() {
    local name=$1 fd out=$WORK/$1.out
    shift
    rm -f "$out" && : >"$out"
    "$@" >>"$out" 2>>"$WORK/$name.err" </dev/null &
    PEER_PID[$name]=$!
    exec {fd}<"$out"
    PEER_FD[$name]=$fd
    PEER_PART[$name]=
}

# start_peer NAME FLAGS...: a peer with --json on a port of its own choice; sets PEER_ADDRESS[NAME].
start_peer() {
    local name=$1 line
    shift
    start_process "$name" "$GRAPEVINE" peer --listen 127.0.0.1:0 --json --report-every 200ms "$@"
    wait_line "$name" '"listening"' 120
    line=${LINE#*\"address\":\"}
    PEER_ADDRESS[$name]=${line%%\"*}
}

# read_line NAME: the next line that is there in full, in LINE; false when there is none yet.
read_line() {
    local part
    if IFS= read -r part <&"${PEER_FD[$1]}"; then
        LINE=${PEER_PART[$1]}$part
        PEER_PART[$1]=
        return 0
    fi
    PEER_PART[$1]+=$part
    return 1
}

# skip_lines NAME: leave out what the peer has said so far.
skip_lines() {
    while read_line "$1"; do :; done
}

# wait_line NAME PATTERN SECONDS: read the peer's lines until one matches; it is then in LINE.
wait_line() {
    local name=$1 pattern=$2 end=$((SECONDS + $3)) ended
    while :; do
        ended=0
        kill -0 "${PEER_PID[$name]}" 2>/dev/null || ended=1 # asked before what it said last is read
        while read_line "$name"; do
            [[ $LINE =~ $pattern ]] && return 0
        done
        ((ended)) && fail "peer $name ended; waited for: $pattern"
        ((SECONDS < end)) || fail "peer $name did not say in $3 s: $pattern"
        sleep 0.05
    done
}

# wait_more NAME KEY MORE SECONDS: until the number of KEY has grown by MORE from what it is now.
wait_more() {
    local name=$1 key=$2 end=$((SECONDS + $4)) goal
    skip_lines "$name"
    wait_line "$name" "\"$key\":[0-9]" "$4"
    goal=$(($(number "$key") + $3))
    until (($(number "$key") >= goal)); do
        ((SECONDS < end)) || fail "peer $name: $key did not reach $goal in $4 s: $LINE"
        wait_line "$name" "\"$key\":[0-9]" "$4"
    done
}

# number KEY: the number of a key of LINE.
number() {
    local rest=${LINE#*\"$1\":}
    echo "${rest%%[,\}]*}"
}

# wait_exit NAME: its exit code; the last line it said is in LINE.
wait_exit() {
    local name=$1 code
    wait "${PEER_PID[$name]}"
    code=$?
    skip_lines "$name"
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
