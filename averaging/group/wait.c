/*
 * How long the data phase of a group round waits, and for whom. Loop thread; pure.
 *
 * Two limits. At the first, whoever has not given its contribution is left out of our part; at the
 * second, owners that have not returned their mean are given up. The second is later by what an
 * owner may wait itself (twice as late where training goes on), so that one which has just left out
 * a third member is still in time. They are learned:
 *
 *   window   median + 6 MAD of how long all contributions of earlier rounds took, measured from our
 *            own snapshot and from when half of the others were in: who is missing then is late,
 *            not everyone slow. At least a floor, with what an answer takes over the line.
 *   patience where the half is missing: how long nothing at all may happen. From the length of
 *            earlier phases and of our own snapshots (peers of one swarm run steps of comparable
 *            length).
 *
 * Whoever is last teaches both, so a slow member is waited for, but none may make rounds as long as
 * it likes: beyond twice what half of the others took, the window has room for a pace of ours or
 * for our values over a line of 10 Mbit/s, whichever is longer, and patience for a few of these.
 * Who stumbles has at least its slack, and is charged beyond the window (slack.c).
 * Where training goes on, that room is four times as long, at least 2.5 s, and who has kept its
 * word for many rounds has a window of at least our patience.
 *
 * A member that a limit has caught may be slower than we knew: it is counted as twice what it took.
 * PATIENCES_MAX bounds the whole, so that dripping bytes cannot hold a round open.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"

#define NOBODY UINT32_MAX

static const uint64_t patience_floor_ns = 2500 * NS_PER_MS;
static const uint64_t patience_cap_ns = 300 * NS_PER_S;
static const uint64_t window_floor_ns = 300 * NS_PER_MS;
static const uint64_t slow_line_ns = 800; /* a byte */
enum { PATIENCES_MAX = 8, WINDOW_SPREAD = 6, SNAPSHOTS = 4, PACES = 4, SCORE_MISS = -1 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* A pace of ours, or what our values take over a slow line, whichever is longer. */
static uint64_t pace_or_line_ns(const struct group *group)
{
    uint64_t bytes = (uint64_t)group->options.chunks * group->options.chunk_bytes;

    return most(group_pace_ns(group), bytes * slow_line_ns);
}

/* By how much one member may make rounds longer, again and again. Where training goes on it has to
 * end its step first, which may be ten times as long as ours, and nobody stands still. */
static uint64_t room_ns(const struct group *group)
{
    if (!group->options.is_patient) return pace_or_line_ns(group);
    return most(PACES * pace_or_line_ns(group), patience_floor_ns);
}

static uint64_t patience_ns(const struct group *group)
{
    uint64_t phases = least(2 * deadline_median(&group->phases, 0), PACES * pace_or_line_ns(group));
    uint64_t steps = SNAPSHOTS * deadline_median(&group->snapshots, 0);
    uint64_t longest = most(most(phases, steps), group_slack_ns(group));

    return most(least(longest, patience_cap_ns), patience_floor_ns);
}

/* What few rounds have taught counts double, and other snapshots may wait for a step as ours do.
 * Medians take sorting: once a phase, not at each look at the clock. */
static void waits_learn(struct group *group)
{
    uint64_t patience = patience_ns(group), step = deadline_median(&group->snapshots, 0);
    uint64_t floor = window_floor_ns + group->answer_ns; /* CREDIT out, values in */
    uint64_t most_of_one = 2 * (deadline_median(&group->halves, patience) + step) + room_ns(group);
    uint64_t window =
        deadline_window(&group->gathers, WINDOW_SPREAD, patience, floor, patience_cap_ns);

    if (group->gathers.count < DEADLINE_FEW) window = 2 * (window + step);
    group->patience_ns = patience;
    group->window_most_ns = most(most_of_one, floor);
    group->window_ns = most(least(window, group->window_most_ns), floor);
}

/* Without slack. */
static uint64_t window_ns(const struct group *group, uint32_t index)
{
    if (!group->options.is_patient || !group->parties[index].is_proven) return group->window_ns;
    return most(group->window_ns, group->patience_ns);
}

static uint64_t window_with_slack_ns(const struct group *group, uint32_t index)
{
    return most(window_ns(group, index), group->parties[index].slack_ns);
}

void group_wait_begin(struct group *group)
{
    group->has_missed = false;
    deadline_add(&group->snapshots, group->now_ns - group->snapshot_ns);
    waits_learn(group);
    group_slack_note(group);
}

/* With no part of our own nobody owes us a contribution; means come a little later than those. */
static bool learns_from_parts(const struct group *group)
{
    return group->plan.schedule == SCHEDULE_DIRECT && group->parties[group->self].count == 0;
}

void group_wait_learn(struct group *group)
{
    /* Waiting in vain says nothing of how long phases take: patience would feed on itself. */
    if (!group->has_missed) deadline_add(&group->phases, group->now_ns - group->data_ns);
    if (group->gathered_ns != 0 && group->plan.schedule == SCHEDULE_DIRECT) {
        deadline_add(&group->gathers, group->gathered_ns - group->data_ns);
    }
    if (group->returned_ns != 0 && learns_from_parts(group)) {
        deadline_add(&group->gathers, group->returned_ns - group->data_ns);
    }
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

static uint64_t first_soft_ns(const struct group *group, uint64_t window)
{
    return most(deadline_after(group->data_ns, window), deadline_after(group->half_ns, window));
}

/* What the limits of all members have in common just now. */
struct waits {
    bool has_first, has_second;      /* half have given, or returned, theirs */
    uint64_t slack_ns, slack_two_ns; /* the most, and the next, that an open owner has; */
    uint32_t slack_of;               /* whose the most is */
};

static struct waits waits_now(const struct group *group)
{
    struct waits waits = {.has_first = has_quorum(group, false, NOBODY),
                          .has_second = has_quorum(group, true, NOBODY),
                          .slack_of = NOBODY};

    for (uint32_t i = 0; i < group->parties_count; i++) {
        uint64_t slack_ns = group->parties[i].slack_ns;

        if (!is_open(group, i)) continue;
        if (waits.slack_of == NOBODY || slack_ns > waits.slack_ns) {
            waits.slack_two_ns = waits.slack_ns;
            waits.slack_ns = slack_ns;
            waits.slack_of = i;
        } else {
            waits.slack_two_ns = most(waits.slack_two_ns, slack_ns);
        }
    }
    return waits;
}

/* When we stop waiting for a member's contribution. */
static uint64_t first_limit_ns(const struct group *group, const struct waits *waits, uint32_t index)
{
    uint64_t soft = waits->has_first ? first_soft_ns(group, window_with_slack_ns(group, index))
                                     : deadline_after(group->progress_ns, group->patience_ns);

    return least(soft, hard_limit_ns(group));
}

/* What an owner may wait for another, which is then late itself. Where training goes on a part less
 * is better than later rounds. */
static uint64_t owner_waits_ns(const struct group *group, const struct waits *waits, uint32_t owner)
{
    if (group->options.is_patient) return 0;
    return most(group->window_most_ns,
                waits->slack_of == owner ? waits->slack_two_ns : waits->slack_ns);
}

/* Where others returned theirs late, it had the same to wait for as they. */
static uint64_t second_soft_ns(const struct group *group, const struct waits *waits, uint32_t index,
                               uint64_t window)
{
    uint64_t twice = window + most(window, owner_waits_ns(group, waits, index));

    return most(deadline_after(group->data_ns, twice), deadline_after(group->returned_ns, window));
}

/* When we stop waiting for a member's part. */
static uint64_t second_limit_ns(const struct group *group, const struct waits *waits,
                                uint32_t index)
{
    uint64_t soft = waits->has_second
                        ? second_soft_ns(group, waits, index, window_with_slack_ns(group, index))
                        : deadline_after(group->progress_ns, 2 * group->patience_ns);

    return least(soft, hard_limit_ns(group));
}

/* ---- who was, until now ---- */

/* Without half of the others it was not it that we waited for. */
void group_wait_first_over(struct group *group, uint32_t index)
{
    if (group->plan.schedule != SCHEDULE_DIRECT || group->state != GROUP_DATA) return;
    if (has_quorum(group, false, index)) {
        group_slack_data(group, index, first_soft_ns(group, window_ns(group, index)));
    } else if (has_quorum(group, false, NOBODY)) {
        /* If the half is what is left of them, it does not say how long a half takes. */
        if (group->half_ns == 0 && !group->parties[index].is_dropped) {
            deadline_add(&group->halves, group->now_ns - group->data_ns);
        }
        group->half_ns = group->now_ns;
    }
}

void group_wait_second_over(struct group *group, uint32_t index)
{
    if (group->plan.schedule != SCHEDULE_DIRECT || group->state != GROUP_DATA) return;
    if (has_quorum(group, true, index)) {
        struct waits waits = waits_now(group);

        group_slack_data(group, index,
                         second_soft_ns(group, &waits, index, window_ns(group, index)));
    } else if (has_quorum(group, true, NOBODY) && learns_from_parts(group)) {
        deadline_add(&group->halves, group->now_ns - group->data_ns);
    }
}

/* ---- time ---- */

/* Along a chain who is late looks like all after it: nobody is to blame before a direct round has
 * shown who it is. */
static uint64_t schedule_limit_ns(const struct group *group)
{
    return least(deadline_after(group->progress_ns, 2 * group->patience_ns), hard_limit_ns(group));
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
    group_score(party->ref.id, SCORE_MISS, "did not send its values in time", out);
}

void group_data_tick(struct group *group, struct commands *out)
{
    struct waits waits = waits_now(group);
    bool has_missed = false;

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
            has_missed = group->has_missed = true;
        }
        if (is_second && is_open(group, i)) {
            group_party_lose(group, i);
            group->has_missed = true;
            if (!is_first) { /* one fault */
                group_score(group->parties[i].ref.id, SCORE_MISS, "did not return its mean in time",
                            out);
            }
        }
        waits = waits_now(group); /* for those that follow */
    }
    if (has_missed) {
        deadline_add(&group->gathers, 2 * (group->now_ns - group->data_ns));
        waits_learn(group);
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
        if (group_is_awaited(group, i)) next = least(next, first_limit_ns(group, &waits, i));
        if (is_open(group, i)) next = least(next, second_limit_ns(group, &waits, i));
    }
    return next;
}
