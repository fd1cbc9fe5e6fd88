#!/usr/bin/env bash
# A disk that fills up while a peer trains, or is full when it starts: training goes on, the failed checkpoint is
# said once, the previous one stays whole and can be evaluated and resumed.
source "$(dirname "$0")/lib.sh"

mkdir "$WORK/disk"
if ! mount -t tmpfs -o size=2m tmpfs "$WORK/disk" 2>/dev/null; then
    echo "SKIPPED: cannot mount a small tmpfs here (needs root)"
    exit 77
fi
trap 'umount "$WORK/disk" 2>/dev/null || umount -l "$WORK/disk"; cleanup' EXIT

reports=0
common=(--data digits --model mlp --averaging none --checkpoint-every 200ms)

start_peer a "${common[@]}" --steps 1000000000 --out "$WORK/disk/a"
wait_line a '"step":[1-9]' 120
until [[ -s $WORK/disk/a/model.safetensors ]]; do wait_line a '"event":"report"' 120; done
dd if=/dev/zero of="$WORK/disk/filler" bs=64k 2>/dev/null # until it is full
until grep -q "checkpoint failed, the previous one stays" "$WORK/a.err"; do
    ((++reports < 600)) || fail "the failed checkpoint was not said"
    wait_line a '"event":"report"' 120
done
status=0 # a supervisor is told
"$GRAPEVINE" status "${PEER_ADDRESS[a]}" --join-timeout 60s --check >"$WORK/check" || status=$?
((status == 4)) && grep -q "checkpoint could not be written" "$WORK/check" || fail "status --check, exit code $status: $(cat "$WORK/check")"
kill -INT "${PEER_PID[a]}"
wait_exit a
code=$?
((code == 130)) || fail "exit code $code after SIGINT on a full disk, not 130"

"$GRAPEVINE" eval "$WORK/disk/a/model.safetensors" --data digits --json >"$WORK/eval.json" || fail "the previous model does not load"

# A restart on the full disk, and on one that is read-only, goes on, says so once, and again when it is over.
wait_log() { # wait_log TEXT: in what peer a says
    until grep -q -- "$1" "$WORK/a.err"; do
        ((++reports < 600)) || fail "peer a did not say: $1"
        wait_line a '"event":"report"' 120
    done
}
for state in full read-only; do
    rm -f "$WORK/a.err"
    reports=0
    [ $state = full ] || mount -o remount,ro "$WORK/disk" || fail "cannot make the disk read-only"
    start_peer a --checkpoint-every 100ms --steps 1000000000 --out "$WORK/disk/a"
    wait_log "config.ini: .*; going on with what is there"
    wait_log "resuming from"
    wait_log "checkpoint failed, the previous one stays"
    wait_log "lines are missing there until it can be written again"
    for ((i = 0; i < 4; i++)); do wait_line a '"event":"report"' 120; done
    [ "$(grep -cE "cannot (write|append)" "$WORK/a.err")" -eq 3 ] || fail "$(grep cannot "$WORK/a.err")"
    if [ $state = full ]; then rm "$WORK/disk/filler"; else mount -o remount,rw "$WORK/disk"; fi
    wait_log "a checkpoint was written again"
    wait_log "out can be written again"
    stop_peer a || fail "it does not stop"
done
start_peer a "${common[@]}" --time 1s --out "$WORK/disk/a"
wait_exit a || fail "the peer did not resume after the disk had room again"
grep -q "resuming from" "$WORK/a.err" || fail "it did not resume"

# Where the model of a reached goal cannot be kept, the run has failed and says so.
# On a slow machine the goal may be there before the disk is full: again, with more time.
for time in 2s 10s 60s; do
    start_peer b --data digits --model mlp --averaging none --checkpoint-every 1h --time $time --out "$WORK/disk/b"
    dd if=/dev/zero of="$WORK/disk/filler" bs=64k 2>/dev/null
    [[ -e $WORK/disk/b/model.safetensors ]] || break
    wait_exit b
    rm -rf "$WORK/disk/filler" "$WORK/disk/b"
done
wait_exit b
code=$?
((code == 1)) || fail "exit code $code where the last checkpoint failed, not 1"
grep -q 'grapevine: the last checkpoint failed: .*no space left' "$WORK/b.err" || fail "that was not said"
echo "a full disk costs checkpoints, not the run"
