# audit: holds the files that `peer --audit FILE` wrote (peer/round/audit.h) against each other, one FILE a
# peer over all its lives. Fails, with a line for each, on: what a peer itself found; a life that did
# not begin with the bytes of one of its checkpoints; a chunk in a round that nobody told; two ends
# of a pair round that did not move by opposite differences; members of a group round that took
# another mean than its owner's. Prints how many rounds it looked at.
# Usage: awk -f audit.awk FILE...; a line `fresh` says that the next life has no checkpoint.

function broken(text) {
    printf "%s\n", text > "/dev/stderr"
    failures++
}

FNR == 1 { peer = FILENAME; sub(/.*\//, "", peer) }
FNR == 1 || $1 == "fresh" { is_fresh = 1; is_complete = 0; delete kept }

$1 == "violation" { broken(peer ": " $0) }
$1 == "begun" {
    lives++
    if (is_fresh) first = $2
    # Of two checkpoints that a life began the first is complete; of one nobody knows.
    if (!($2 in kept) && (is_complete || $2 != first))
        broken(peer " began with what is none of its checkpoints: " $2)
    is_fresh = in_life = 0
}
$1 == "kept" { kept[$2] = 1; if (++in_life > 1) is_complete = 1 }
$1 == "told" { told[$2, $3] = told[$2, $3] " " peer }
$1 == "mean" { mean[$2, $3] = 1 }
$1 == "late" { late++ }

$1 == "settled" || $1 == "doubt" {
    rounds++
    for (i = 6; i <= NF; i++) {
        split($i, part, /[=:]/)
        where = peer " " $2 " " $3 " chunk " part[1]
        if ($2 == "pair") {
            n = ++pairs
            pair_where[n] = where; pair_peer[n] = peer
            pair_heard[n] = part[1] SUBSEP part[3]
            key = $3 SUBSEP part[1] SUBSEP peer
            end_own[key] = part[2]; end_heard[key] = part[3]
            if ($1 == "settled") end_scale[key] = $5
            other[$3 SUBSEP part[1]] = other[$3 SUBSEP part[1]] " " peer
        } else {
            n = ++groups
            group_where[n] = where
            group_mean[n] = part[1] SUBSEP part[3]
        }
    }
}

END {
    for (n = 1; n <= pairs; n++) {
        tellers = told[pair_heard[n]]
        gsub(" " pair_peer[n] "$| " pair_peer[n] " ", " ", tellers)
        if (tellers !~ /[^ ]/) broken(pair_where[n] ": heard what nobody told")
    }
    for (key in other) {
        count = split(other[key], ends, " ")
        a = key SUBSEP ends[1]
        for (i = 2; i <= count; i++) {
            b = key SUBSEP ends[i]
            if (ends[i] == ends[1]) continue
            both++
            if (end_own[a] != end_heard[b] || end_heard[a] != end_own[b])
                broken(key ": " ends[1] " and " ends[i] " saw other planes")
            if ((a in end_scale) && (b in end_scale) && end_scale[a] != end_scale[b])
                broken(key ": " ends[1] " and " ends[i] " moved by other shares")
        }
    }
    for (n = 1; n <= groups; n++)
        if (!(group_mean[n] in mean)) broken(group_where[n] ": took a mean that no owner told")
    printf "%d rounds in %d lives, %d chunks settled by both ends, %d of means, %d late commits\n", rounds,
        lives, both, groups, late
    exit failures > 0
}
