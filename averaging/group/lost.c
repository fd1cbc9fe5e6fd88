/*
 * Members that are lost to a running group round, and what is held against whom. Loop thread; pure.
 *
 * Once may be: honest members leave, too, and rounds come to nothing. What has become a habit is
 * charged, see conduct.h.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"

void group_party_drop(struct group *group, uint32_t index)
{
    bool was_awaited = group_is_awaited(group, index);

    group->parties[index].is_dropped = true;
    group->dropped |= UINT64_C(1) << index;
    if (was_awaited) group_wait_first_over(group, index);
}

void group_party_lose(struct group *group, uint32_t index)
{
    struct party *party = &group->parties[index];
    bool is_charged = group_is_awaited(group, index); /* for its contribution */

    CHECK(index != group->self);
    if (group_relays(group)) {
        group_relay_fail(group);
        return;
    }
    group_party_drop(group, index);
    if (party->part != PART_OPEN) return;
    if (!is_charged) group_wait_second_over(group, index);
    party->part = PART_LOST;
}

/* Its owner took part, and may be honest: what is usual each member learns for itself. */
void group_part_refuse(struct group *group, uint32_t index)
{
    struct party *part = &group->parties[index];

    group->has_refused = true;
    if (part->part != PART_OPEN) return;
    group_wait_second_over(group, index);
    part->part = PART_LOST;
}

/* It goes on without us, or was told something else (group_start_heard()): by its own word. */
void group_party_left(struct group *group, uint32_t index, struct commands *out)
{
    struct peer_id id = group->parties[index].ref.id, proposer = group->proposer.id;
    bool has_part = !group_relays(group) && group->parties[index].part == PART_OPEN;

    group_party_lose(group, index);
    if (!has_part) return;
    if (conduct_left(&group->conduct, id, group->parties[index].is_cut ? CONDUCT_CUT : CONDUCT_WORD,
                     proposer, peer_id_is_equal(proposer, group->options.self))) {
        commands_score(out, id, SCORE_LATE, "leaves rounds that have begun");
    }
}

/* Whoever it was that left, it was its proposer who chose them; of lost links nobody knows why. */
void group_came_to_nothing(struct group *group, struct commands *out)
{
    struct peer_id id = group->proposer.id;

    if (peer_id_is_equal(id, group->options.self)) return;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (group->parties[i].is_cut && !peer_id_is_equal(group->parties[i].ref.id, id)) return;
    }
    if (!conduct_vain(&group->conduct, id, exchange_is_proven(&group->options, id))) return;
    commands_score(out, id, SCORE_LATE, "proposes rounds that come to nothing");
}
