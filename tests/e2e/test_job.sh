#!/usr/bin/env bash
# The main job on the digits that are built in: a testnet whose peers are killed and frozen ends well,
# a student learns from it, the report has both; wrong flags are exit 2 before anything runs.
source "$(dirname "$0")/lib.sh"

run=$WORK/run

# has FILE KEY PATTERN: the number or word of a key matches.
has() {
    LINE=$(tr -d ' \n' <"$1")
    [[ $(number "$2") =~ $3 ]] || fail "$1: $2 is $(number "$2"), wanted $3"
}

# refuses CODE WORDS FLAGS...: exits with CODE and one line that has WORDS.
refuses() {
    local code=$1 words=$2 got=0
    shift 2
    "$GRAPEVINE" "$@" >/dev/null 2>"$WORK/refused.err" || got=$?
    [ "$got" = "$code" ] || fail "$* exited with $got, not $code"
    [ "$(wc -l <"$WORK/refused.err")" = 1 ] || fail "$* did not say exactly one line"
    grep -q -- "$words" "$WORK/refused.err" || fail "$* did not mention: $words"
}

"$GRAPEVINE" testnet --peers 3 --data digits --model mlp --epochs 500 --out "$run" --report-every 200ms \
    --checkpoint-every 100ms --chaos "kill:mtbf=1s,restart=100ms;freeze:mtbf=400ms,for=50ms" --quiet \
    2>"$WORK/testnet.err" || fail "the testnet exited with $?"
has "$run/summary.json" faults_injected "^[1-9]"
has "$run/summary.json" finished '^3$'
has "$run/summary.json" average_model '^0\.9'
has "$run/summary.json" peers_finished '^true$'
has "$run/summary.json" models_finite '^true$'
has "$run/summary.json" lineages_equal '^true$'
[ -s "$run/average.safetensors" ] || fail "no average.safetensors"

"$GRAPEVINE" distill --teachers "$run" --student 'linear:16 relu linear:classes' --epochs 10 --baseline \
    --report "$run" --json --quiet >"$WORK/distill.json" \
    2>"$WORK/distill.err" || fail "distill exited with $?"
has "$WORK/distill.json" teachers '^3$'
has "$WORK/distill.json" student_accuracy '^0\.9'
has "$WORK/distill.json" labels_only_accuracy '^0\.[89]'
"$GRAPEVINE" eval "$run/student.safetensors" --quiet >"$WORK/eval.out" 2>"$WORK/eval.err" ||
    fail "eval of the student exited with $?"

"$GRAPEVINE" distill --teachers "$run" --student 'linear:16 relu linear:classes' --epochs 10 --baseline \
    --report "$run" --quiet >"$WORK/told.out" 2>"$WORK/told.err" || fail "distill in words exited with $?"
printf 'student: %s\ntable: grapevine report %s\n' "$run/student.safetensors" "$run" | cmp -s - "$WORK/told.out" ||
    fail "distill --report says: $(cat "$WORK/told.out")"

"$GRAPEVINE" report "$run" >"$WORK/report.out" 2>"$WORK/report.err" || fail "report exited with $?"
for words in 'peer 2' 'average of their parameters' 'ensemble of 3' 'smaller' 'labels alone'; do
    grep -q "$words" "$WORK/report.out" || fail "the table has no line: $words"
done
grep -q 'distilled student' "$run/report.html" || fail "report.html lacks the student"

"$GRAPEVINE" testnet --peers 3 --data digits --model mlp --epochs 520 --out "$run" --resume --quiet \
    2>"$WORK/resumed.err" || fail "the resumed testnet exited with $?"
"$GRAPEVINE" testnet --peers 3 --data digits --model mlp --epochs 520 --out "$run" --resume --quiet \
    2>"$WORK/again.err" || fail "the testnet resumed at its goal exited with $?"
for peer in 0 1 2; do
    grep -q "already at its goal" "$run/peer-00$peer/log.txt" || fail "peer $peer joined, though it was done"
done

# Beside it, what its peers reach without each other, and one with all the data.
"$GRAPEVINE" testnet --peers 3 --data digits --model mlp --shard dirichlet:0.1 --steps 200 --time 1m \
    --averaging local-sgd:H=4 --step-time 1ms --baselines --json --quiet --out "$WORK/beside" \
    >"$WORK/beside.json" 2>"$WORK/beside.err" || fail "the testnet with baselines exited with $?"
/usr/bin/python3 - "$WORK/beside.json" "$WORK/beside/summary.json" <<'EOF' || fail "the baselines are not what they should be"
import json, sys
said, kept = (json.load(open(path)) for path in sys.argv[1:])
assert said == kept
alone, whole = said["baselines"]["alone"], said["baselines"]["all_data"]
assert len(alone["accuracy"]["peers"]) == 3 and alone["rounds_ok"] == 0 and alone["averaging"] == "none"
assert len(whole["accuracy"]["peers"]) == 1 and whole["steps_total"] == said["steps_total"], whole["steps_total"]
assert abs(alone["steps_total"] - said["steps_total"]) <= 3
assert max(alone["accuracy"]["peers"]) < whole["accuracy"]["peers"][0], said["baselines"]
EOF
"$GRAPEVINE" report "$WORK/beside" | grep -q 'one peer with all the data' || fail "the table has no baselines"

"$GRAPEVINE" report "$run" >"$WORK/again.out" || fail "report of the resumed run exited with $?"
! grep -q ' 0 B ' "$WORK/again.out" || fail "nothing is known of what was sent, and the table says: $(cat "$WORK/again.out")"

refuses 2 --fresh testnet --peers 2 --out "$run"
refuses 2 'column 1' testnet --peers 2 --out "$WORK/none" --chaos 'explode:mtbf=1s'
refuses 2 'column 1' testnet --peers 2 --out "$WORK/none" --model 'linaer:3'
refuses 2 teachers distill --student mlp
refuses 1 no-such distill --teachers "$WORK/no-such" --student mlp
for flags in "--out $run/summary.json/s" "--out $run/s.safetensors --report $run/summary.json"; do # said before the work, not after it
    # shellcheck disable=SC2086
    refuses 1 "$run/summary.json" distill --teachers "$run" --student 'linear:16 relu linear:classes' $flags
done
first=$run/peer-000/model.safetensors
refuses 2 'would be overwritten' average "$first" "$run/peer-001/model.safetensors" --out "$first"
refuses 2 'would be overwritten' export "$first" --to onnx --out "$run/peer-000/../peer-000/model.safetensors"
refuses 2 'would be overwritten' distill --teachers "$run" --student mlp --out "$first"
refuses 1 summary.json report "$WORK"
echo "the job is done, through kills and freezes, and mistakes are told in a line"
