#!/usr/bin/env bash
# A long distillation that is killed, stopped or out of disk space goes on, or says one clear line, and leaves nothing
# half-written; the answers of teachers are used again; the table has every model.
source "$(dirname "$0")/lib.sh"

cd "$WORK" || exit 1
for i in 0 1; do
    "$GRAPEVINE" peer --data digits --model 'linear:32 relu linear:classes' --shard-of $i/2 --averaging none --epochs 5 \
        --listen 127.0.0.1:0 --quiet --out p$i >/dev/null 2>p$i.err || fail "peer $i: $(cat p$i.err)"
done
student=(--teachers 'p0,p1' --student 'conv3x3:8 bn relu linear:classes' --threads 1 --quiet)

# refuses CODE WORDS FLAGS...: exits with CODE and one line that has WORDS.
refuses() {
    local code=$1 words=$2 got=0
    shift 2
    "$GRAPEVINE" distill "${student[@]}" "$@" >/dev/null 2>refused.err || got=$?
    [ "$got" = "$code" ] || fail "$* exited with $got, not $code: $(cat refused.err)"
    [ "$(wc -l <refused.err)" = 1 ] || fail "$* did not say exactly one line: $(cat refused.err)"
    grep -q -- "$words" refused.err || fail "$* did not mention '$words': $(cat refused.err)"
}

"$GRAPEVINE" distill "${student[@]}" --epochs 20 --out whole.safetensors --answers kept --compare "alone=p0/model.safetensors" --json \
    >whole.json 2>whole.err || fail "$(cat whole.err)"
/usr/bin/python3 - whole.json <<'EOF' || fail "the table is not what it should be"
import json, sys

said = json.load(open(sys.argv[1]))
rows = {row["name"]: row for row in said["models"]}
assert not said["answers_reused"] and said["resumed_steps"] == 0, said
assert list(rows)[:3] == ["teacher 0", "teacher 1", "average of their parameters"], list(rows)
for name in ("ensemble", "ensemble, mean of logits", "ensemble, vote", "student", "alone"):
    assert rows[name]["parameters"] > 0 and rows[name]["bytes"] > 0 and rows[name]["flops"] > 0, rows[name]
    assert rows[name]["latency_us"] > 0 and 0.5 < rows[name]["accuracy"] <= 1, rows[name]
assert rows["student"]["command"].startswith("grapevine distill --"), rows["student"]
assert rows["ensemble"]["command"].startswith("grapevine eval p0/model.safetensors p1/model.safetensors"), rows["ensemble"]
assert rows["teacher 0"]["command"] == "grapevine peer --config p0/config.ini --out again", rows["teacher 0"]
EOF
[ -s kept ] || fail "the answers were not kept"
LINE=$("$GRAPEVINE" distill "${student[@]}" --epochs 20 --out again.safetensors --answers kept --json | tr -d ' \n')
[ "$(number answers_reused)" = true ] || fail "the answers were not used again"
cmp whole.safetensors again.safetensors || fail "the same again gives another student"

# Stopped in its middle it says so; killed after that it goes on, to the same bits.
"$GRAPEVINE" distill "${student[@]}" --epochs 200 --out one.safetensors >/dev/null || fail "one"
for signal in INT KILL; do
    "$GRAPEVINE" distill "${student[@]}" --epochs 200 --out two.safetensors >/dev/null 2>stopped.err &
    job=$!
    until [ -e two.safetensors.answers ] || ! kill -0 $job 2>/dev/null; do read -rt 0.01 <> <(:) || :; done
    kill -$signal $job || fail "it was done before it could be stopped"
    code=0
    wait $job 2>/dev/null || code=$?
    [ ! -e two.safetensors ] || fail "there is a student of a run that was stopped"
    [ $signal = KILL ] && continue
    [ $code = 130 ] || fail "exit code $code after SIGINT, not 130"
    grep -q 'the same command goes on' stopped.err || fail "it says: $(cat stopped.err)"
    [ -s two.safetensors.state ] || fail "nothing was kept"
done
"$GRAPEVINE" distill "${student[@]}" --epochs 200 --out two.safetensors >/dev/null || fail "it does not go on"
cmp one.safetensors two.safetensors || fail "who was stopped has another student"
[ "$(echo two.safetensors*)" = two.safetensors ] || fail "it left $(echo two.safetensors*)"

# What is wrong is one line, and nothing is lost.
cp kept damaged
printf 'x' | dd of=damaged bs=1 seek=500 conv=notrunc 2>/dev/null
LINE=$("$GRAPEVINE" distill "${student[@]}" --epochs 20 --out again.safetensors --answers damaged --json | tr -d ' \n')
[ "$(number answers_reused)" = false ] || fail "damaged answers were used"
cmp kept damaged || fail "damaged answers were not made anew"
cp p0/model.safetensors mine
refuses 2 'holds no answers' --answers mine
cmp mine p0/model.safetensors || fail "a file of another kind was changed"
echo x >taken.safetensors.state
refuses 1 'move it away' --out taken.safetensors --epochs 1
[ "$(cat taken.safetensors.state)" = x ] || fail "a file of another kind was changed"
for ((k = 0; k < 400; k++)); do echo "some words of a text"; done >words
refuses 1 'its samples are tokens' --transfer "text:$WORK/words"
refuses 2 'no labels to learn from' --transfer digits --alpha 0.5
refuses 2 "--out's own" --answers both --out both
refuses 2 '--compare' --compare x=
refuses 1 'no nope' --compare nope
refuses 2 '--augment' --augment hflip

mkdir disk
mount -t tmpfs -o size=64k tmpfs disk 2>/dev/null || exit 0 # needs root
trap 'umount "$WORK/disk" 2>/dev/null || umount -l "$WORK/disk"; cleanup' EXIT
dd if=/dev/zero of=disk/filler bs=1k count=56 2>/dev/null
refuses 1 'cannot write disk/a.part: no space left' --answers disk/a
[ "$(ls disk)" = filler ] || fail "a full disk has $(ls disk)"
