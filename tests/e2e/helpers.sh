# shellcheck shell=bash disable=SC2034
# helpers: what the scripts that try single commands share (tests/e2e/lib.sh is for whole swarms).
# Source it, then call `begin EXECUTABLE`. Processes started with `start` are killed by their own
# numbers when the script ends, whatever happens.

begin() { # begin EXECUTABLE
    set -uo pipefail
    gv=$(realpath "$1")
    folder=$(mktemp -d)
    pids=()
    checks=0
    wrong=0
    # What the caller's environment says must not decide what is tested here.
    local name
    for name in $(compgen -e GRAPEVINE_); do unset "$name"; done
    export NO_COLOR=1 OMP_WAIT_POLICY=PASSIVE
    trap end EXIT
    cd "$folder" || exit 1
}

end() {
    local pid
    for pid in "${pids[@]}"; do kill -KILL "$pid" 2>/dev/null; done
    wait
    cd / && rm -rf "$folder"
}

finish() { # the last line of every script
    echo "$checks checks, $wrong wrong"
    [ "$wrong" -eq 0 ] && [ "$checks" -gt 0 ]
    exit
}

skip() { # skip REASON
    echo "$1"
    exit 77
}

bad() {
    wrong=$((wrong + 1))
    printf 'WRONG: %s\n' "$*"
}

start() { # start NAME WORD...: in the background; says where it listens in $address, number in $pid
    local name=$1 end=$((SECONDS + 120))
    shift
    "$@" >"$name.out" 2>"$name.err" </dev/null &
    pid=$!
    pids+=("$pid")
    while ((SECONDS < end)); do
        if grep -q '^listening on .' "$name.out"; then
            address=$(sed -n 's/^listening on //p;T;q' "$name.out")
            return 0
        fi
        kill -0 "$pid" 2>/dev/null || break
        sleep 0.05
    done
    address=
    bad "$name does not say where it listens: $(tail -n 3 "$name.err")"
}

stop() { # stop PID: kill it, and wait until it is gone
    kill -KILL "$1" 2>/dev/null
    wait "$1" 2>/dev/null
}

# The command must fail with one of the CODES (1 or 2 mostly), leave stdout empty, and say one line,
# "grapevine: ...", in which TEXT (a pattern of grep -E) occurs. Notes of a peer before it are fine.
refused() { # refused "CODES" TEXT WORD...
    local codes=$1 text=$2 code lines
    shift 2
    checks=$((checks + 1))
    timeout -k 5 "${refused_within:-120}" "$@" >refused.out 2>refused.err </dev/null
    code=$?
    lines=$(grep -c '^grapevine: ' refused.err)
    case " $codes " in
    *" $code "*) ;;
    *) bad "exit code $code instead of $codes: $*: $(tail -n 3 refused.err)" ;;
    esac
    [ "$lines" -eq 1 ] || bad "$lines error lines instead of one: $*: $(cat refused.err)"
    grep '^grapevine: ' refused.err | grep -qE -- "$text" ||
        bad "'$text' is not in what '$*' says: $(grep '^grapevine: ' refused.err)"
    if grep -qE 'Sanitizer|internal error|core dumped' refused.err; then bad "crash: $*"; fi
}

# The command must succeed, and TEXT must occur in what it prints on stdout.
accepted() { # accepted TEXT WORD...
    local text=$1 code
    shift
    checks=$((checks + 1))
    timeout -k 5 "${accepted_within:-300}" "$@" >accepted.out 2>accepted.err </dev/null
    code=$?
    [ "$code" -eq 0 ] || bad "exit code $code: $*: $(tail -n 3 accepted.err)"
    grep -qE -- "$text" accepted.out || bad "'$text' is not in what '$*' prints: $(head -n 5 accepted.out)"
}
