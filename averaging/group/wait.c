/*
 * How long the data phase of a group round waits, and for whom. Loop thread; pure.
 *
 * Two limits. At the first, whoever has not given its contribution is left out of our part; at the
 * second, owners that have not returned their mean are given up. Both count from when half of the
 * others are through: as long again is free, and what is beyond it costs the member's credit
 * (slack.c). What owners wait for they bring later: parts have as long again from when all
 * contributions to ours are in, or given up; where we own none, from when they may be.
 *
 * Whoever has a slow line is later than twice the half, each time. A sixteenth of the others' line
 * is the least that parts go by (weights.h): a member with that owns no part and carries half of
 * what they do, which takes it eight times as long. So long is free, too, but no longer than our
 * values take over 10 Mbit/s.
 *
 * Where the half is missing nobody can say who is late. Then patience says how long nothing at all
 * may happen: from the length of earlier phases and of our own snapshots (peers of one swarm run
 * steps of comparable length). PATIENCES_MAX bounds the whole, so that dripping bytes cannot hold a
 * round open.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"

#define NOBODY UINT32_MAX

static const uint64_t patience_floor_ns = 2500 * NS_PER_MS;
static const uint64_t patience_cap_ns = 300 * NS_PER_S;
static const uint64_t slow_line_ns = 800; /* a byte */
enum { PATIENCES_MAX = 8, SLOW_LINE_TIMES = 8, SNAPSHOTS = 4, PACES = 4 };

/* ---- what earlier rounds have taught ---- */

static uint64_t line_ns(const struct group *group)
{
    return (uint64_t)group->options.chunks * group->options.chunk_bytes * slow_line_ns;
}

/* Medians take sorting: once a phase, not at each look at the clock. */
void group_wait_begin(struct group *group)
{
    uint64_t usually = 2 * deadline_median(&group->phases, 0), steps;

    group->has_missed = false;
    deadline_add(&group->snapshots, group->now_ns - group->snapshot_ns);
    steps = SNAPSHOTS * deadline_median(&group->snapshots, 0);
    usually = deadline_least(usually, PACES * deadline_most(group_pace_ns(group), line_ns(group)));
    usually = deadline_least(deadline_most(deadline_most(usually, steps), group_slack_ns(group)),
                             patience_cap_ns);
    group->patience_ns = deadline_most(usually, patience_floor_ns);
    group->usual_ns = deadline_most(deadline_lower(&group->halves, 0), group->answer_ns);
    group->back_ns = deadline_most(deadline_lower(&group->backs, 0), 2 * group->usual_ns);
    group_slack_note(group);
}

/* Waiting in vain says nothing of how long phases take: patience would feed on itself. */
void group_wait_learn(struct group *group)
{
    if (!group->has_missed) deadline_add(&group->phases, group->now_ns - group->data_ns);
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

static uint64_t hard_limit_ns(const struct group *group)
{
    return deadline_after(group->data_ns, PATIENCES_MAX * group->patience_ns);
}

/* ---- until when ---- */

uint64_t group_slow_ns(const struct group *group, uint64_t took_ns)
{
    return deadline_least(SLOW_LINE_TIMES * took_ns, line_ns(group));
}

static uint64_t free_ns(const struct group *group, uint64_t since_ns, uint64_t took_ns)
{
    return deadline_most(patience_free_ns(since_ns, since_ns, took_ns, group_pace_ns(group)),
                         deadline_after(since_ns, took_ns + group_slow_ns(group, took_ns)));
}

static uint64_t took_ns(const struct group *group, uint64_t half_ns, uint64_t usual_ns)
{
    return half_ns == 0 ? usual_ns : deadline_most(half_ns - group->data_ns, usual_ns);
}

/* Until when a contribution costs nothing. */
static uint64_t first_free_ns(const struct group *group)
{
    return free_ns(group, group->data_ns, took_ns(group, group->half_ns, group->usual_ns));
}

static uint64_t first_slack_ns(const struct group *group, uint64_t slack_ns)
{
    return slack_ns / group_slack_times(group);
}

/* Until when owners may wait for contributions. Half of them have done so when half are back. */
static uint64_t gathered_ns(const struct group *group)
{
    if (group->parties[group->self].count == 0) {
        if (group->back_half_ns != 0) return group->back_half_ns;
        return deadline_after(first_free_ns(group), first_slack_ns(group, group_slack_ns(group)));
    }
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (group_is_awaited(group, i)) return UINT64_MAX;
    }
    return deadline_most(group->gathered_ns, group->data_ns);
}

/* Until when a part costs nothing. */
static uint64_t second_free_ns(const struct group *group)
{
    uint64_t took = took_ns(group, group->back_half_ns, group->back_ns);

    return deadline_most(free_ns(group, group->data_ns, took),
                         free_ns(group, gathered_ns(group), group->usual_ns));
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
    if (owners == 1 && (group->parties_count > 2 || group->backs.count >= DEADLINE_FEW / 2)) {
        return true;
    }
    return has_quorum(group, true, besides);
}

/* Of all members just now: what is free, or, without a half, when patience is over. */
struct waits {
    bool has_first, has_second;
    uint64_t first_ns, second_ns;
};

static struct waits waits_now(const struct group *group)
{
    struct waits waits = {.has_first = has_quorum(group, false, NOBODY),
                          .has_second = has_second(group, NOBODY)};

    waits.first_ns = waits.has_first ? first_free_ns(group)
                                     : deadline_after(group->progress_ns, group->patience_ns);
    waits.second_ns = waits.has_second ? second_free_ns(group)
                                       : deadline_after(group->progress_ns, 2 * group->patience_ns);
    return waits;
}

/* When we stop waiting for a member's contribution. */
static uint64_t first_limit_ns(const struct group *group, const struct waits *waits, uint32_t index)
{
    uint64_t slack_ns = first_slack_ns(group, group->parties[index].slack_ns);

    return deadline_least(deadline_after(waits->first_ns, waits->has_first ? slack_ns : 0),
                          hard_limit_ns(group));
}

/* When we stop waiting for a member's part. */
static uint64_t second_limit_ns(const struct group *group, const struct waits *waits,
                                uint32_t index)
{
    uint64_t slack_ns = waits->has_second ? group->parties[index].slack_ns : 0;

    return deadline_least(deadline_after(waits->second_ns, slack_ns), hard_limit_ns(group));
}

/* ---- who was, until now ---- */

/* Without half of the others it was not it that we waited for. If the half is what is left of them,
 * it does not say how long a half takes. */
void group_wait_first_over(struct group *group, uint32_t index)
{
    if (group->plan.schedule != SCHEDULE_DIRECT || group->state != GROUP_DATA) return;
    group->gathered_ns = group->now_ns;
    if (has_quorum(group, false, index)) {
        group_slack_data(group, index, true, group_slack_times(group), first_free_ns(group));
    } else if (has_quorum(group, false, NOBODY)) {
        if (group->half_ns == 0 && !group->parties[index].is_dropped) {
            deadline_add(&group->halves, group->now_ns - group->data_ns);
        }
        group->half_ns = group->now_ns;
    }
}

void group_wait_second_over(struct group *group, uint32_t index)
{
    bool is_back = group->parties[index].part == PART_COMMITTED;

    if (group->plan.schedule != SCHEDULE_DIRECT || group->state != GROUP_DATA) return;
    if (has_second(group, index)) group_slack_data(group, index, true, 1, second_free_ns(group));
    if (group->back_half_ns != 0 || !has_quorum(group, true, NOBODY)) return;
    if (is_back) deadline_add(&group->backs, group->now_ns - group->data_ns);
    group->back_half_ns = group->now_ns;
}

/* Where we own no part we do not see who was late for another: or each owner would find out by
 * itself. By an owner's word few are charged, and nobody is barred. */
void group_wait_returned(struct group *group, uint64_t contributors)
{
    uint64_t all = ~UINT64_C(0) >> (64 - group->parties_count);
    uint64_t missing = ~contributors & all & ~(UINT64_C(1) << group->self);
    uint32_t few = group->parties_count / 4;

    if (group->plan.schedule != SCHEDULE_DIRECT || group->parties[group->self].count > 0) return;
    if ((uint32_t)__builtin_popcountll(missing) > (few > 0 ? few : 1)) return;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if ((missing >> i & 1) == 0) continue;
        group_slack_data(group, i, false, group_slack_times(group), first_free_ns(group));
    }
}

/* ---- time ---- */

/* Along a chain who is late looks like all after it: nobody is to blame before a direct round has
 * shown who it is. */
static uint64_t schedule_limit_ns(const struct group *group)
{
    return deadline_least(deadline_after(group->progress_ns, 2 * group->patience_ns),
                          hard_limit_ns(group));
}

static void schedule_tick(struct group *group, struct commands *out)
{
    if (group->now_ns < schedule_limit_ns(group)) return;
    group->has_missed = true;
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

    if (group->plan.schedule != SCHEDULE_DIRECT) {
        schedule_tick(group, out);
        return;
    }
    for (uint32_t i = 0; i < group->parties_count; i++) {
        bool is_first =
            group_is_awaited(group, i) && group->now_ns >= first_limit_ns(group, &waits, i);
        bool is_second = is_open(group, i) && group->now_ns >= second_limit_ns(group, &waits, i);

        if (!is_first && !is_second) continue;
        if (is_first) {
            leave_out(group, i, out);
            group->has_missed = true;
        }
        if (is_second && is_open(group, i)) {
            group_party_lose(group, i);
            group->has_missed = true;
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

    if (group->plan.schedule != SCHEDULE_DIRECT) return schedule_limit_ns(group);
    waits = waits_now(group);
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (group_is_awaited(group, i))
            next = deadline_least(next, first_limit_ns(group, &waits, i));
        if (is_open(group, i)) next = deadline_least(next, second_limit_ns(group, &waits, i));
    }
    return next;
}
