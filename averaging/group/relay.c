/*
 * Group rounds that are not direct (schedule.h): a part goes along a tree to its owner, and each
 * member on the way adds its own values to the sums that its children give it and passes one sum
 * on; means come back the same way. Loop thread; pure.
 *
 * What is the same in all rounds is in data.c, which asks here where such a round differs. A sum
 * stands for all below, so nobody can be done without: with the first that fails, whatever is still
 * open comes to nothing for all. Along a chain who is late looks like all after it: nobody is to
 * blame before a direct round has shown who it is, so there is no credit, and one limit for all.
 */
#include "averaging/group/group.h"

#include "averaging/core/deadline.h"
#include "base/check.h"

bool group_relays(const struct group *group)
{
    return group->plan.schedule != SCHEDULE_DIRECT;
}

/* ---- sums ---- */

/* Between the owner and the leaves of its tree. */
static bool is_inner(const struct group *group, uint32_t part)
{
    return part != group->self && group->parties[part].children != 0;
}

bool group_relay_passes(const struct group *group, uint32_t part)
{
    return group_relays(group) && is_inner(group, part);
}

void group_relay_sum(struct group *group, uint32_t part, uint32_t chunk, struct commands *out)
{
    struct command *reduce;

    if (group->partials[chunk] != CHUNK_NONE || !group_is_complete(group, part, chunk)) return;
    group->partials[chunk] = CHUNK_REDUCING;
    reduce = commands_add(out, COMMAND_REDUCE);
    if (reduce == NULL) return;
    reduce->stream = group->stream;
    reduce->first = chunk;
    reduce->count = 1;
    reduce->is_partial = reduce->wants_hash = true;
}

bool group_relay_summed(struct group *group, uint32_t chunk, struct commands *out)
{
    if (group->partials[chunk] != CHUNK_REDUCING) return false;
    group->partials[chunk] = CHUNK_DONE;
    group_relay_offers(group, group->parties[schedule_part(&group->plan, chunk)].parent, out);
    return true;
}

/* Chunks of a part that could go to our parent in it, in order. */
static uint32_t ready(const struct group *group, const struct party *part)
{
    uint32_t count = part->count - part->passed, done = 0;

    if (part->children == 0) return count;
    while (done < count && group->partials[part->first + part->passed + done] == CHUNK_DONE) {
        done++;
    }
    return done;
}

void group_relay_offers(struct group *group, uint32_t index, struct commands *out)
{
    struct party *to = &group->parties[index];

    for (uint32_t i = 0; i < group->parties_count && to->is_linked && to->sent < to->credit; i++) {
        struct party *part = &group->parties[i];
        uint32_t first = part->first + part->passed, count;
        struct command *send;

        if (i == group->self || part->parent != index || part->part != PART_OPEN) continue;
        count = (uint32_t)deadline_least(ready(group, part), to->credit - to->sent);
        if (count == 0) continue;
        send = group_send_range(group, to->ref.id, DATA_OFFER, first, count, out);
        if (send != NULL) send->is_partial = send->is_last = part->children != 0;
        part->passed += count;
        to->sent += count;
    }
}

/* On a tree there is no mean before our own sum has gone up. */
bool group_relay_is_early(const struct group *group, const struct party *part, uint32_t chunk)
{
    return group_relays(group) && chunk - part->first >= part->passed;
}

/* ---- the end ---- */

/* What is complete stays; the others hear of it when the round is over here. */
void group_relay_fail(struct group *group)
{
    group->has_failed = true;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (i != group->self) group_party_drop(group, i);
        if (group->parties[i].part == PART_OPEN) group->parties[i].part = PART_LOST;
    }
}

bool group_relay_has_mixed(const struct group *group)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (group->parties[i].part == PART_COMMITTED && group->parties[i].count > 0) return true;
    }
    return false;
}
