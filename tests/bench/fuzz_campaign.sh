#!/usr/bin/env bash
# fuzz_campaign: every fuzz target for long, as rows and a table.
#   tests/bench/fuzz_campaign.sh [TARGET...]      names without fuzz_; default: all in tests/fuzz
#   SECONDS_EACH=60  of each target in this run;  BUILD=build/fuzz  where they are built;
#   OUT=build/bench/fuzz  a row for each run in OUT/rows.tsv (target, commit, executions, seconds), the corpora that grow
#   in OUT/corpus, and a finding's input and log in OUT/findings;  TABLE=1  only the table, summed over all rows
# Can be stopped and started again: rows and corpora add up. Exit 1 if a run found something.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 1

build=${BUILD:-build/fuzz} out=${OUT:-build/bench/fuzz} each=${SECONDS_EACH:-60}
rows=$out/rows.tsv found=0
mkdir -p "$out/corpus" "$out/findings"
touch "$rows"

# one TARGET: a run and its row.
one() {
    local target=$1 program=$build/tests/fuzz_$1 log=$out/findings/$1.log executions
    [ -x "$program" ] || { echo "fuzz_campaign.sh: $program is not built: cmake --preset fuzz && ninja -C $build" >&2; exit 2; }
    mkdir -p "$out/corpus/$target"
    echo "$target" >&2
    local kept=()
    [ -d "tests/fuzz/corpus/$target" ] && kept=("tests/fuzz/corpus/$target")
    "$program" -max_total_time="$each" -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="$out/findings/$target-" "$out/corpus/$target" "${kept[@]}" >"$log" 2>&1 </dev/null
    local verdict=$?
    executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
    printf '%s\t%s\t%s\t%s\n' "$target" "$(git rev-parse --short HEAD 2>/dev/null || echo -)" "${executions:-0}" "$each" >>"$rows"
    if [ "$verdict" -ne 0 ]; then
        echo "fuzz_$target found something (exit $verdict): see $log" >&2
        found=1
    else
        rm -f "$log"
    fi
}

if [ -z "${TABLE:-}" ]; then
    targets=("$@")
    if [ ${#targets[@]} -eq 0 ]; then
        for source in tests/fuzz/fuzz_*.c; do
            source=${source##*/fuzz_}
            targets+=("${source%.c}")
        done
    fi
    for target in "${targets[@]}"; do one "$target"; done
fi

echo "| target | executions | seconds |"
echo "|---|---|---|"
sort "$rows" | awk -F'\t' '
    $1 != last { if (last != "") printf "| %s | %\047d | %d |\n", last, runs, time; last = $1; runs = time = 0 }
    { runs += $3; time += $4; all += $3; hours += $4 }
    END { if (last != "") printf "| %s | %\047d | %d |\n", last, runs, time; printf "| all | %\047d | %d |\n", all, hours }'
exit $found
