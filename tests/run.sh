#!/bin/bash
# run: the whole test suite, from a fresh clone on a fresh Debian machine. Installs what is missing,
# builds, tests, and ends with one line: N passed, N failed, N skipped.
#   tests/run.sh [--yes] [--no-install] [--quick]
#     --yes         do not ask before installing (nobody is asked as root)
#     --no-install  install nothing
#     --quick       only the quick tests of the release build
#   FUZZ_SECONDS=5  how long each fuzz target runs;  JOBS=2  compilers and tests side by side
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-5}
install=yes
quick=no
yes=()
for word in "$@"; do
    case $word in
    --yes) yes=(--yes) ;;
    --no-install) install=no ;;
    --quick) quick=yes ;;
    *)
        echo "run.sh: unknown word $word: it takes --yes, --no-install and --quick" >&2
        exit 2
        ;;
    esac
done

passed=0
failed=0
skipped=0
failures=()
skips=()
logs=build/test-logs
mkdir -p "$logs"

say() { printf '\n== %s\n' "$*"; }

finish() {
    echo
    [ ${#skips[@]} -eq 0 ] || printf 'skipped: %s\n' "${skips[@]}"
    [ ${#failures[@]} -eq 0 ] || printf 'failed: %s\n' "${failures[@]}"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
    exit
}

fail() { # one failure, with the log it is told in
    failed=$((failed + 1))
    failures+=("$1")
    [ -z "${2:-}" ] || tail -n 40 "$2"
}

skip() {
    skipped=$((skipped + 1))
    skips+=("$1")
}

build() { # build PRESET [TARGET...]
    local preset=$1 log=$logs/build-$1.log
    shift
    if ! cmake --preset "$preset" >"$log" 2>&1; then
        fail "configure $preset" "$log"
        return 1
    fi
    if ! cmake --build "build/$preset" -j "$jobs" ${1:+--target "$@"} >>"$log" 2>&1; then
        fail "build $preset" "$log"
        return 1
    fi
}

# Counts the tests of one ctest run from its JUnit file: name, verdict, last line of output.
count() { # count PRESET JUNIT
    local preset=$1 name verdict text
    while IFS=$'\t' read -r name verdict text; do
        case $verdict in
        run) passed=$((passed + 1)) ;;
        notrun | disabled) skip "$preset/$name: ${text:-it gave no reason}" ;;
        *) fail "$preset/$name" ;;
        esac
    done < <(awk '
        function attribute(key,    at, rest) {
            at = index($0, " " key "=\"")
            if (!at) return ""
            rest = substr($0, at + length(key) + 3)
            return substr(rest, 1, index(rest, "\"") - 1)
        }
        /<testcase / { name = attribute("name"); verdict = attribute("status"); text = ""; output = 0 }
        /<system-out>/ { output = 1; sub(/.*<system-out>/, "") }
        /<\/system-out>/ { sub(/<\/system-out>.*/, ""); if ($0 ~ /[^ ]/) text = $0; output = 0 }
        output && /[^ ]/ { text = $0 }
        /<\/testcase>/ { printf "%s\t%s\t%s\n", name, verdict, text }
    ' "$2")
}

run_tests() { # run_tests PRESET CTEST-WORDS...
    local preset=$1 junit
    shift
    junit=$PWD/$logs/$preset.xml
    rm -f "$junit"
    "${launcher[@]}" ctest --test-dir "build/$preset" -j "$jobs" --output-on-failure \
        --no-tests=ignore --output-junit "$junit" "$@"
    if [ -s "$junit" ]; then count "$preset" "$junit"; else fail "ctest $preset"; fi
}
launcher=()

started=$SECONDS
if [ "$install" = yes ]; then
    say "what is missing"
    bash testnet/install.sh --tests "${yes[@]}" || { fail "install"; finish; }
fi

say "release build"
build release || finish
if [ "$quick" = yes ]; then
    run_tests release -L quick
    finish
fi
say "all tests, release build"
run_tests release

say "address and undefined behaviour sanitizers: all but end to end"
if build asan; then
    run_tests asan -L 'quick|sim' -E '^tidy$'
    # Kernels of the CUDA backend on the virtual device, but those that take minutes there.
    SEED=1 run_tests asan -L cuda -E '^virtual_(models|learner|attention|bench)$'
fi

say "thread sanitizer: the parts with threads"
# The sanitizer needs a fixed memory layout; where it cannot be had, it may still run.
if setarch "$(uname -m)" -R true 2>/dev/null; then launcher=(setarch "$(uname -m)" -R); fi
if cmake --preset tsan >"$logs/build-tsan.log" 2>&1; then
    with_threads='^(unit_env|contract_env|unit_replica_(prefetch|team|hogwild|replica_train|lbfgs))'
    mapfile -t threaded < <(ninja -C build/tsan -t targets all |
        grep -oE "${with_threads}[a-z_]*: phony" | grep -oE '^[a-z_]+')
    if [ ${#threaded[@]} -eq 0 ]; then
        skip "thread sanitizer: no test with threads is here"
    else
        build tsan "${threaded[@]}" && run_tests tsan -R "$with_threads"
    fi
else
    fail "configure tsan" "$logs/build-tsan.log"
fi
launcher=()

say "fuzzing, $fuzz_seconds s a target"
if ! command -v clang >/dev/null; then
    skip "fuzzing: clang is not installed"
elif build fuzz; then
    for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] || { skip "fuzzing: there is no target"; break; }
        target=$(basename "$source" .c)
        fresh=$(mktemp -d)
        corpus=tests/fuzz/corpus/${target#fuzz_}
        [ -d "$corpus" ] || corpus=
        log=$logs/$target.log
        if "build/fuzz/tests/$target" -max_total_time="$fuzz_seconds" -timeout=10 -rss_limit_mb=2048 \
            -artifact_prefix="$logs/" -print_final_stats=1 "$fresh" ${corpus:+"$corpus"} >"$log" 2>&1; then
            passed=$((passed + 1))
            echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, nothing found"
        else
            fail "$target (input kept in $logs)" "$log"
        fi
        rm -rf "$fresh"
    done
fi

say "done in $((SECONDS - started)) s"
finish
