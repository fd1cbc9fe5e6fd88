/*
 * How long the data phase of a group round waits, and for whom. Loop thread; pure.
 *
 * Two stages. At the end of the first, whoever has not given its contribution is left out of our
 * part; at the end of the second, owners that have not returned their mean are given up. When half
 * of the others are through a stage the rest have as long again for nothing, or what is usual, and
 * then their credit (patience.h). What owners wait for they bring later: parts have as long again
 * from when all contributions to ours are in, or given up; where we own none, from when they may
 * be.
 *
 * Whoever has a slow line is later than twice the half, each time. A sixteenth of the others' line
 * is the least that parts go by (weights.h): a member with that owns no part and carries half of
 * what they do, which takes it eight times as long. So long is free, too, but no longer than our
 * values take over 10 Mbit/s.
 *
 * Before half are through nobody can say who is late. Then a stage ends when nothing at all has
 * happened for a pace: peers of one swarm run steps of comparable length. STILL_MAX bounds the
 * whole, so that dripping bytes cannot hold a round open.
 */
#include "averaging/group/group.h"

#include "averaging/core/times.h"
#include "base/check.h"

#define NOBODY UINT32_MAX

enum { STILL_MAX = 8, SNAPSHOTS_MAX = 4, SLOW_LINE_TIMES = 8, FEW_BACK = 4 };

/* ---- what earlier rounds have taught ---- */

static uint64_t line_ns(const struct group *group)
{
    return exchange_slow_ns(&group->options, group->options.chunks);
}

static void credits_note(struct group *group)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        group->parties[i].credit_ns = group_credit_ns(group, group->parties[i].ref.id);
    }
}

/* Medians take sorting: once a phase, not at each look at the clock. */
void group_wait_begin(struct group *group)
{
    struct stage *given = &group->given, *back = &group->back;

    given->half_ns = back->half_ns = group->gathered_ns = 0;
    given->usual_ns = deadline_most(deadline_lower(&given->halves, 0), group->answer_ns);
    back->usual_ns = deadline_most(deadline_lower(&back->halves, 0), 2 * given->usual_ns);
    credits_note(group);
}

/* So long nothing may happen, before half are through: others may have waited as long for their
 * snapshot as we for ours, and some are slower. */
static uint64_t still_ns(const struct group *group)
{
    uint64_t snapshot = SNAPSHOTS_MAX * (group->data_ns - group->snapshot_ns);
    uint64_t pace = deadline_least(deadline_most(group->patience.pace_ns, snapshot), STILL_MOST_NS);

    return deadline_most(deadline_most(pace, group->patience.credit_ns), STILL_LEAST_NS);
}

static uint64_t hard_limit_ns(const struct group *group)
{
    return deadline_after(group->data_ns,
                          STILL_MAX * deadline_most(still_ns(group), line_ns(group)));
}

/* ---- who is awaited ---- */

bool group_is_awaited(const struct group *group, uint32_t index)
{
    const struct party *party = &group->parties[index];

    return index != group->self && !party->is_dropped && party->done < party->awaited;
}

static bool is_open(const struct group *group, uint32_t index)
{
    return index != group->self && group->parties[index].part == PART_OPEN;
}

static bool has_part(const struct party *party)
{
    return party->count > 0 && party->part != PART_LOST;
}

/* Half of those who are not lost have given all they owe our part, or returned all they owe us;
 * besides `besides`, if that is one of them. */
static bool has_quorum(const struct group *group, bool is_second, uint32_t besides)
{
    uint32_t others = 0, missing = 0;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        const struct party *party = &group->parties[i];

        if (i == group->self) continue;
        if (!has_part(party) && (is_second || party->is_dropped) && i != besides) continue;
        others++;
        missing += i == besides || (is_second ? is_open(group, i) : group_is_awaited(group, i));
    }
    return 2 * missing <= others;
}

/* ---- until when ---- */

uint64_t group_slow_ns(const struct group *group, uint64_t took_ns)
{
    return deadline_least(SLOW_LINE_TIMES * took_ns, line_ns(group));
}

static uint64_t free_ns(const struct group *group, uint64_t since_ns, uint64_t took_ns)
{
    return deadline_most(patience_free_ns(&group->patience, since_ns, 0, took_ns),
                         deadline_after(since_ns, took_ns + group_slow_ns(group, took_ns)));
}

static uint64_t stage_free_ns(const struct group *group, const struct stage *stage)
{
    uint64_t took = stage->half_ns == 0 ? 0 : stage->half_ns - group->data_ns;

    return free_ns(group, group->data_ns, deadline_most(took, stage->usual_ns));
}

/* Of those who missed it, it says nothing of how long a half takes. */
static void stage_half(struct group *group, struct stage *stage, bool is_through)
{
    if (is_through) deadline_add(&stage->halves, group->now_ns - group->data_ns);
    stage->half_ns = group->now_ns;
}

/* Until when a contribution costs nothing. */
static uint64_t first_free_ns(const struct group *group)
{
    return stage_free_ns(group, &group->given);
}

/* Owners alone see who contributes late. Where few members own a part each sees a member in a round
 * out of several, and has it for its share of the credit: else it would have as much with each. */
static uint32_t few_owners(const struct group *group)
{
    uint32_t owners = 0;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        owners += group->parties[i].count > 0;
    }
    return owners == 0 ? 1 : group->parties_count / owners;
}

/* Until when owners may wait for contributions. Half of them have done so when half are back. */
static uint64_t gathered_ns(const struct group *group)
{
    if (group->parties[group->self].count == 0) {
        if (group->back.half_ns != 0) return group->back.half_ns;
        return deadline_after(first_free_ns(group), group->patience.credit_ns / few_owners(group));
    }
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (group_is_awaited(group, i)) return UINT64_MAX;
    }
    return deadline_most(group->gathered_ns, group->data_ns);
}

/* Until when a part costs nothing. */
static uint64_t second_free_ns(const struct group *group)
{
    return deadline_most(stage_free_ns(group, &group->back),
                         free_ns(group, gathered_ns(group), group->given.usual_ns));
}

/* Of one owner alone no half can be back: what it usually takes is all there is to go by. Where it
 * has more members than us wait it has its credit from the first round on; of two nobody can say
 * who is slow before a few rounds have shown what is usual. */
static bool has_second(const struct group *group, uint32_t besides)
{
    uint32_t owners = 0;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        owners += i != group->self && group->parties[i].count > 0;
    }
    if (owners == 1 && (group->parties_count > 2 || group->back.halves.count >= FEW_BACK)) {
        return true;
    }
    return has_quorum(group, true, besides);
}

enum { GIVEN, BACK, STAGES };

static bool is_missing(const struct group *group, int stage, uint32_t index)
{
    return stage == GIVEN ? group_is_awaited(group, index) : is_open(group, index);
}

/* Of all members just now: what is free, or, without a half, when it has been still for too long.
 */
struct waits {
    bool has_half[STAGES];
    uint64_t until_ns[STAGES];
};

static struct waits waits_now(const struct group *group)
{
    struct waits waits = {
        .has_half = {has_quorum(group, false, NOBODY), has_second(group, NOBODY)}};
    const bool *has_half = waits.has_half;
    uint64_t still = still_ns(group);

    waits.until_ns[GIVEN] =
        has_half[GIVEN] ? first_free_ns(group) : deadline_after(group->progress_ns, still);
    waits.until_ns[BACK] =
        has_half[BACK] ? second_free_ns(group) : deadline_after(group->progress_ns, 2 * still);
    return waits;
}

/* When we stop waiting for what a member owes. */
static uint64_t limit_ns(const struct group *group, const struct waits *waits, int stage,
                         uint32_t index)
{
    uint64_t credit = waits->has_half[stage] ? group->parties[index].credit_ns : 0;

    if (stage == GIVEN) credit /= few_owners(group);
    return deadline_least(deadline_after(waits->until_ns[stage], credit), hard_limit_ns(group));
}

static bool is_late(const struct group *group, const struct waits *waits, int stage, uint32_t index)
{
    return is_missing(group, stage, index) && group->now_ns >= limit_ns(group, waits, stage, index);
}

/* ---- who was, until now ---- */

static void charge(struct group *group, uint32_t index, bool is_seen, uint32_t times,
                   uint64_t free_ns)
{
    if (group->now_ns <= free_ns) return;
    group_charge(group, group->parties[index].ref.id, is_seen, times, free_ns);
    credits_note(group);
}

/* Without half of the others it was not it that we waited for. If the half is what is left of them,
 * it does not say how long a half takes. */
void group_wait_first_over(struct group *group, uint32_t index)
{
    if (group_relays(group) || group->state != GROUP_DATA) return;
    group->gathered_ns = group->now_ns;
    if (has_quorum(group, false, index)) {
        charge(group, index, true, few_owners(group), first_free_ns(group));
    } else if (has_quorum(group, false, NOBODY)) {
        bool is_first = group->given.half_ns == 0;

        stage_half(group, &group->given, is_first && !group->parties[index].is_dropped);
    }
}

void group_wait_second_over(struct group *group, uint32_t index)
{
    bool is_back = group->parties[index].part == PART_COMMITTED;

    if (group_relays(group) || group->state != GROUP_DATA) return;
    if (has_second(group, index)) charge(group, index, true, 1, second_free_ns(group));
    if (group->back.half_ns != 0 || !has_quorum(group, true, NOBODY)) return;
    stage_half(group, &group->back, is_back);
}

/* Where we own no part we do not see who was late for another: or each owner would find out by
 * itself. By an owner's word few are charged, and nobody is barred. */
void group_wait_returned(struct group *group, uint64_t contributors)
{
    uint64_t all = ~UINT64_C(0) >> (64 - group->parties_count);
    uint64_t missing = ~contributors & all & ~(UINT64_C(1) << group->self);
    uint32_t few = group->parties_count / 4;

    if (group_relays(group) || group->parties[group->self].count > 0) return;
    if ((uint32_t)__builtin_popcountll(missing) > (few > 0 ? few : 1)) return;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if ((missing >> i & 1) == 0) continue;
        charge(group, i, false, few_owners(group), first_free_ns(group));
    }
}

/* ---- time ---- */

static uint64_t relay_limit_ns(const struct group *group)
{
    return deadline_least(deadline_after(group->progress_ns, 2 * still_ns(group)),
                          hard_limit_ns(group));
}

static void relay_tick(struct group *group, struct commands *out)
{
    if (group->now_ns < relay_limit_ns(group)) return;
    group_party_lose(group, group->self == 0 ? 1 : 0); /* any: it ends for all */
    group_data_advance(group, out);
}

static void leave_out(struct group *group, uint32_t index, struct commands *out)
{
    struct party *party = &group->parties[index];

    if (party->credit == 0 && party->received == 0) { /* not a word: its part will not come */
        group_party_lose(group, index);
    }
    group_party_drop(group, index); /* what is absorbed stays in */
    commands_score(out, party->ref.id, SCORE_LATE, "did not send its values in time");
}

void group_data_tick(struct group *group, struct commands *out)
{
    struct waits waits = waits_now(group);

    if (group_relays(group)) {
        relay_tick(group, out);
        return;
    }
    for (uint32_t i = 0; i < group->parties_count; i++) {
        bool is_first = is_late(group, &waits, GIVEN, i);
        bool is_second = is_late(group, &waits, BACK, i);

        if (!is_first && !is_second) continue;
        if (is_first) leave_out(group, i, out);
        if (is_second && is_open(group, i)) {
            group_party_lose(group, i);
            if (!is_first) { /* one fault */
                commands_score(out, group->parties[i].ref.id, SCORE_LATE,
                               "did not return its mean in time");
            }
        }
        waits = waits_now(group); /* for those that follow */
    }
    group_data_advance(group, out);
}

uint64_t group_data_next_ns(const struct group *group)
{
    uint64_t next = UINT64_MAX;
    struct waits waits;

    if (group_relays(group)) return relay_limit_ns(group);
    waits = waits_now(group);
    for (uint32_t i = 0; i < group->parties_count; i++) {
        for (int stage = GIVEN; stage < STAGES; stage++) {
            if (!is_missing(group, stage, i)) continue;
            next = deadline_least(next, limit_ns(group, &waits, stage, i));
        }
    }
    return next;
}
