#!/usr/bin/env bash
# What rounds cost the training of a peer: samples a second of one peer that trains while it averages
# with three that hardly do anything else (a step on one sample each 20 ms), beside the same peer alone; in turn,
# RUNS times, medians. One thread a peer, so that of two cores one is free for the network. The second
# figure is by processor time of the thread that trains, and tells something on a busy machine, too.
#   tests/bench/training_beside_rounds.sh build/release/grapevine [MODEL [METHOD [RUNS [SECONDS]]]]
[ -x "${1:-}" ] || { echo "training_beside_rounds.sh: no executable '${1:-}': training_beside_rounds.sh GRAPEVINE [MODEL ...]" >&2; exit 2; }
grapevine=$1 model=${2:-cnn} method=${3:-local-sgd:H=16} runs=${4:-5} seconds=${5:-6}
# shellcheck source=tests/e2e/lib.sh
source "$(dirname "$0")/../e2e/lib.sh"

common=(--data digits --shard all --model "$model" --threads 1 --seed 3 --steps 1000000000 --evaluate-samples 0)

jiffies() { # of each thread of a process: id, time
    awk '{ sub(/.*[)] /, ""); print FILENAME, $12 + $13 }' /proc/"$1"/task/*/stat
}

# measure NAME: its samples a second from now on, in SPEED, and by processor time in BARE; rounds meanwhile, in ROUNDS.
measure() {
    local from_s from_n from_r before
    skip_lines "$1"
    wait_line "$1" '"samples":[0-9]' 60
    from_s=$(number t) from_n=$(number samples) from_r=$(number rounds_ok)
    before=$(jiffies "${PEER_PID[$1]}")
    sleep "$seconds"
    skip_lines "$1"
    wait_line "$1" '"samples":[0-9]' 60
    BUSY=$({ echo "$before"; echo; jiffies "${PEER_PID[$1]}"; } | awk '
        NF == 0 { after = 1; next }
        !after { t[$1] = $2; next }
        $2 - t[$1] > most { most = $2 - t[$1] }
        END { print most / 100 }')
    ROUNDS=$(($(number rounds_ok) - from_r))
    SPEED=$(awk -v n="$(number samples)" -v m="$from_n" -v t="$(number t)" -v s="$from_s" 'BEGIN { print (n - m) / (t - s) }')
    BARE=$(awk -v n="$(number samples)" -v m="$from_n" -v busy="$BUSY" 'BEGIN { print (n - m) / busy }')
}

alone=() beside=() rounds=() bare_alone=() bare_beside=()
for ((run = 0; run < runs; run++)); do
    start_peer alone "${common[@]}" --averaging none
    wait_line alone '"step":[1-9][0-9]' 60
    measure alone
    alone+=("$SPEED")
    bare_alone+=("$BARE")
    kill_peer alone

    start_peer a "${common[@]}" --averaging "$method" --lr 1e-9 --batch 1 --step-time 20ms
    for name in b c; do
        start_peer $name "${common[@]}" --averaging "$method" --lr 1e-9 --batch 1 --step-time 20ms --bootstrap "${PEER_ADDRESS[a]}"
    done
    start_peer t "${common[@]}" --averaging "$method" --bootstrap "${PEER_ADDRESS[a]}"
    wait_line t '"neighbours":3' 60
    wait_line t '"rounds_ok":[1-9]' 60
    measure t
    beside+=("$SPEED")
    bare_beside+=("$BARE")
    rounds+=("$ROUNDS")
    for name in a b c t; do kill_peer $name; done
done

median() { printf '%s\n' "$@" | sort -g | awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }'; }
awk -v a="$(median "${alone[@]}")" -v b="$(median "${beside[@]}")" -v r="$(median "${rounds[@]}")" -v s="$seconds" \
    -v x="$(median "${bare_alone[@]}")" -v y="$(median "${bare_beside[@]}")" -v name="$model, $method" 'BEGIN {
        printf "%s: %.0f samples/s alone, %.0f while %d rounds ran in %d s: %.3f; by processor time %.3f\n", name, a, b, r, s, b / a, y / x }'
