#!/bin/bash
# run: the whole test suite, from a fresh clone on a fresh Debian machine. Installs what is missing,
# builds, tests, and ends with one line: N passed, N failed, N skipped.
#   tests/run.sh [--yes] [--no-install] [--quick]
#     --yes         do not ask before installing (nobody is asked as root)
#     --no-install  install nothing
#     --quick       only the quick tests of the release build
#   FUZZ_SECONDS=20  how long each fuzz target runs, half of it for those of files and words of the user's own;
#                    without it 20 s, on a slower machine what is left of 18 minutes, at least 2 s
#   JOBS=2  compilers and tests side by side
#   LONG=1  the long forms of the tests that have one, and sanitizers on the CUDA kernels, too
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

jobs=${JOBS:-$(nproc)}
fuzz_seconds=${FUZZ_SECONDS:-}
long=no
[ -z "${LONG:-}" ] || long=yes
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
cuda=() # words for cmake about the CUDA module
logs=build/test-logs
mkdir -p "$logs"

say() { printf '\n== %s, after %d s\n' "$*" $((SECONDS - started)); }

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
    if ! cmake --preset "$preset" "${cuda[@]}" >"$log" 2>&1; then
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
    if [ ! -s "$junit" ]; then
        fail "ctest $preset"
    elif grep -q '<testcase ' "$junit"; then
        count "$preset" "$junit"
    else
        skip "$preset: no test is here${*:+ for $*}"
    fi
}
launcher=()

with_threads='^(unit_env|contract_env|unit_library|unit_peer_link_workers|unit_replica_(prefetch|team|hogwild|replica_train|lbfgs)|unit_distill_comparison)'
without='^unit_env_sim' # the simulated world, which has none
threaded_tests() { # of build/tsan, once it is configured
    ninja -C build/tsan -t targets all | grep -oE "${with_threads}[a-z_]*: phony" | grep -oE '^[a-z_]+' | grep -vE "$without"
}

build_ahead() { # the builds of the sanitizers and of fuzzing, in the order in which they are asked for
    local targets
    build asan
    touch "$logs/ahead-asan"
    cuda=()
    cmake --preset tsan && mapfile -t targets < <(threaded_tests) && build tsan "${targets[@]}"
    touch "$logs/ahead-tsan"
    ! command -v clang || build fuzz
    touch "$logs/ahead-fuzz"
}

await() { # await PRESET: until it is built ahead, well or not
    while [ ! -e "$logs/ahead-$1" ] && kill -0 "$ahead" 2>/dev/null; do sleep 1; done
}

started=$SECONDS
if [ "$install" = yes ]; then
    say "what is missing"
    bash testnet/install.sh --tests "${yes[@]}" || { fail "install"; finish; }
fi

say "release build"
# Without a GPU nothing runs the CUDA module, and no kernel asks what it is compiled for (tidy): code for one
# architecture says what that for two would. Only said, not left in the cache of a tree people install from.
ls /dev/nvidia[0-9]* >/dev/null 2>&1 || [ "$long" = yes ] || export GRAPEVINE_CUDA_ARCHITECTURES=80
quick_only=() # targets
[ "$quick" = no ] || quick_only=(quick_tests)
build release "${quick_only[@]}" || finish
unset GRAPEVINE_CUDA_ARCHITECTURES
if [ "$quick" = yes ]; then
    run_tests release -L quick
    finish
fi
say "all tests, release build"
# The virtual CUDA device takes longer to build and run with sanitizers than all the rest. Said either way:
# the cache has what the last run said.
cuda=(-DGRAPEVINE_USE_CUDA="$([ "$long" = yes ] && echo ON || echo OFF)")
# Tests of real processes wait a lot: what they, and the last tests of each stage, leave of the processors goes into
# the builds of the stages to come. A stage asks for its build again, which says what went wrong in it.
rm -f "$logs"/ahead-*
(renice -n 19 "$BASHPID" && build_ahead) >/dev/null 2>&1 &
ahead=$!
run_tests release

say "address and undefined behaviour sanitizers: all but end to end"
await asan
if build asan; then
    # These compare how well methods learn, on paths that sim_methods walks.
    learning=$([ "$long" = yes ] || echo '|^sim_(unlike|quasi_global|tracking|graphs)$')
    run_tests asan -L 'quick|sim' -E "^tidy\$$learning"
    [ "$long" = yes ] || echo "sim_unlike, sim_quasi_global, sim_tracking and sim_graphs ran without sanitizers; LONG=1 has them with"
    run_tests asan -R '^e2e_python$'
    if [ "$long" = yes ]; then
        # Kernels of the CUDA backend on the virtual device, but those that take minutes there.
        SEED=1 run_tests asan -L cuda -E '^virtual_(models|learner|attention|bench)$'
    else
        echo "the CUDA kernels on the virtual device ran without sanitizers; LONG=1 has them with"
    fi
fi
cuda=()

say "thread sanitizer: the parts with threads"
# The sanitizer needs a fixed memory layout; where it cannot be had, it may still run.
if setarch "$(uname -m)" -R true 2>/dev/null; then launcher=(setarch "$(uname -m)" -R); fi
await tsan
if cmake --preset tsan >"$logs/build-tsan.log" 2>&1; then
    mapfile -t threaded < <(threaded_tests)
    if [ ${#threaded[@]} -eq 0 ]; then
        skip "thread sanitizer: no test with threads is here"
    else
        build tsan "${threaded[@]}" && run_tests tsan -R "$with_threads" -E "$without"
    fi
else
    fail "configure tsan" "$logs/build-tsan.log"
fi
launcher=()

# Runs one target and leaves one line of verdict beside its log, as several run side by side.
own_files='^fuzz_(cifar|csv|data_spec|gpt2|idx|image|layers|library|npy|options|safetensors|strategy|tokenizer|tokens|units)$'
fuzz_one() { # fuzz_one TARGET
    local target=$1 fresh log=$logs/$1.log corpus=tests/fuzz/corpus/${1#fuzz_} verdict seconds=$fuzz_seconds
    fresh=$(mktemp -d)
    [ -d "$corpus" ] || corpus=
    [[ ! $target =~ $own_files ]] || seconds=$(((fuzz_seconds + 1) / 2))
    if "build/fuzz/tests/$target" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 \
        -artifact_prefix="$logs/" -print_final_stats=1 "$fresh" ${corpus:+"$corpus"} >"$log" 2>&1; then
        verdict=passed
    else
        verdict=failed
    fi
    rm -rf "$fresh"
    echo "$verdict" >"$logs/$target.verdict"
}

# How long a target may run, so that all of this script is over in 18 minutes; from 2 to 20 s. A target takes a second more than
# it is told, and one of own_files runs half as long.
seconds_left() { # seconds_left TARGET...
    local target halves=0 seconds
    for target in "$@"; do
        if [[ $target =~ $own_files ]]; then halves=$((halves + 1)); else halves=$((halves + 2)); fi
    done
    seconds=$((2 * (jobs * (1080 - (SECONDS - started)) - $#) / halves))
    if [ "$seconds" -lt 2 ]; then seconds=2; elif [ "$seconds" -gt 20 ]; then seconds=20; fi
    echo "$seconds"
}

say "fuzzing, $jobs targets side by side"
if ! command -v clang >/dev/null; then
    skip "fuzzing: clang is not installed"
elif await fuzz && build fuzz; then
    targets=()
    for source in tests/fuzz/fuzz_*.c; do
        [ -e "$source" ] && targets+=("$(basename "$source" .c)")
    done
    [ ${#targets[@]} -gt 0 ] || skip "fuzzing: there is no target"
    [ -n "$fuzz_seconds" ] || [ ${#targets[@]} -eq 0 ] || fuzz_seconds=$(seconds_left "${targets[@]}")
    echo "$fuzz_seconds s a target, half of it for files and words of the user's own"
    rm -f "$logs"/fuzz_*.verdict
    running=0
    for target in "${targets[@]}"; do
        if [ "$running" -ge "$jobs" ]; then
            wait -n
            running=$((running - 1))
        fi
        fuzz_one "$target" &
        running=$((running + 1))
    done
    wait
    for target in "${targets[@]}"; do
        log=$logs/$target.log
        if [ "$(cat "$logs/$target.verdict" 2>/dev/null)" = passed ]; then
            passed=$((passed + 1))
            echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") runs, nothing found"
        else
            fail "$target (input kept in $logs)" "$log"
        fi
    done
fi

say "done"
finish
