/*
 * How far ahead a group's round numbers may move, and by whose word. Loop thread; pure.
 *
 * A round that we take part in is believed, and no leap uses numbers up (GROUP_ROUND_LEAP). Mere
 * words, proposals of others and STARTs without us, take us GROUP_ROUND_NEAR rounds in all, and
 * more with time and with rounds that came about with us.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"

void group_set_next(struct group *group, uint64_t round)
{
    uint64_t next = group->counts.next_round;

    if (round > UINT64_MAX / 2 || round <= next) return; /* nobody gets there honestly */
    group->counts.next_round = round - next > GROUP_ROUND_LEAP ? next + GROUP_ROUND_LEAP : round;
}

void group_ahead_earn(struct group *group, uint64_t rounds)
{
    uint64_t room = GROUP_ROUND_NEAR - group->ahead_left;

    group->ahead_left += rounds < room ? rounds : room;
}

void group_ahead_refill(struct group *group)
{
    const uint64_t each_ns = NS_PER_S / GROUP_AHEAD_SECOND;
    uint64_t earned = (group->now_ns - group->ahead_ns) / each_ns;

    group_ahead_earn(group, earned);
    group->ahead_ns += earned * each_ns;
}

static uint64_t rounds_ahead(const struct group *group, uint64_t round)
{
    return round > group->counts.next_round ? round - group->counts.next_round : 0;
}

bool group_is_far(const struct group *group, uint64_t round)
{
    return rounds_ahead(group, round) > group->ahead_left;
}

bool group_is_leap(const struct group *group, uint64_t round)
{
    return rounds_ahead(group, round) > GROUP_ROUND_NEAR;
}

void group_hear_round(struct group *group, uint64_t round)
{
    if (group_is_far(group, round)) return;
    group->ahead_left -= rounds_ahead(group, round);
    group_set_next(group, round);
}
