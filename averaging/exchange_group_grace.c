/*
 * How long the forming of a group waits. Loop thread; pure.
 *
 *   grace   for answers to our FORM: as arrivals have taught (deadline.h). Then the group starts
 *           with those who have joined.
 *   slack   where training stands still for rounds, a member left out costs more than the wait: the
 *           others' mean lacks its data, and what it brings to the next is older and weighs more
 *           (with unlike data many points of accuracy). So all are given some paces, one that
 *           missed a round half as much in the next, and so on: who is frozen, or always slower,
 *           costs a few paces once. Where training goes on, an eighth of a pace costs nothing but
 *           that rounds begin so much later.
 *   linger  nobody has joined when the grace is over. Where training stands still meanwhile, the
 *           round is given up. Where it goes on (options.is_patient), the proposal stays open for
 *           about a pace, in which every peer as quick as this one comes to its own border once:
 * two that are out of step meet, and count their next periods from the same moment. The first who
 * joins gives the others one more grace.
 */
#include "averaging/exchange_group.h"

#include "base/bytes.h"

/* Waits nobody can configure: the first before anything is known, and what bounds the learned. */
static const uint64_t grace_first_ns = NS_PER_S;
static const uint64_t grace_floor_ns = 100 * NS_PER_MS;
static const uint64_t pace_unknown_ns = 2 * NS_PER_S;
static const uint64_t answer_most_ns = 3 * NS_PER_S;
static const uint64_t border_most_ns = 4 * NS_PER_S;
static const uint64_t slack_least_ns = NS_PER_S;
static const uint64_t slack_most_ns = 4 * NS_PER_S; /* or SLACK_SHARE of a long pace */
enum { GRACE_SPREAD = 4, GRACES_MAX = 4, BORDER_SHARE = 32 };
enum { SLACK_PACES = 3, SLACK_SHARE = 4, BESIDE_SHARE = 8 };

/* Where training goes on, members come to their borders one after the other, the farther apart the
 * longer the way to there was; that they came together a few times does not say that they will. */
static uint64_t border_ns(const struct group *group)
{
    uint64_t apart = group->options.is_patient ? group->period_ns / BORDER_SHARE : 0;

    return apart < border_most_ns ? apart : border_most_ns;
}

/* At most one pace of this peer, or twice what half of the answers took, where the way to the
 * others is longer than a pace. */
uint64_t group_grace_ns(const struct group *group)
{
    uint64_t cap = deadline_median(&group->paces, pace_unknown_ns);
    uint64_t usual = 2 * deadline_median(&group->arrivals, 0);
    uint64_t floor = group->answer_ns;

    if (usual > pace_unknown_ns) usual = pace_unknown_ns;
    if (cap < usual) cap = usual;
    if (floor < grace_floor_ns) floor = grace_floor_ns;
    if (floor < border_ns(group)) floor = border_ns(group);
    return deadline_window(&group->arrivals, GRACE_SPREAD, grace_first_ns, floor, cap);
}

/* ---- members that come late ---- */

/* Where it is remembered; where not, a place for it: one that is free, or of who missed least. */
static struct group_late *late_of(struct group *group, struct peer_id id)
{
    struct group_late *least = &group->late[0];

    for (uint32_t i = 0; i < GROUP_LATE_MAX; i++) {
        struct group_late *late = &group->late[i];

        if (late->missed > 0 && peer_id_is_equal(late->peer, id)) return late;
        if (late->missed < least->missed) least = late;
    }
    return least;
}

static uint32_t missed_by(const struct group *group, struct peer_id id)
{
    for (uint32_t i = 0; i < GROUP_LATE_MAX; i++) {
        if (peer_id_is_equal(group->late[i].peer, id)) return group->late[i].missed;
    }
    return 0;
}

static void late_note(struct group *group, struct peer_id id, bool has_missed)
{
    struct group_late *late = late_of(group, id);
    bool is_known = late->missed > 0 && peer_id_is_equal(late->peer, id);

    if (!has_missed) {
        if (is_known) late->missed--;
        return;
    }
    if (!is_known) *late = (struct group_late){.peer = id};
    if (late->missed < GROUP_MISSED_MAX) late->missed++;
}

/* FORM's list and START's are in the same order. */
void group_late_learn(struct group *group, const struct message_form *start)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct peer_id id = group->form.members[i].id;
        bool is_in = at < start->members_count && peer_id_is_equal(start->members[at].id, id);

        at += is_in;
        if (peer_id_is_equal(id, group->options.self)) continue;
        if (!is_in && (group->invited[i].has_declined || !group_is_linked(group, id))) continue;
        late_note(group, id, !is_in);
    }
}

/* A few paces may have been of a peer that was alone. */
uint64_t group_slack_ns(const struct group *group)
{
    uint64_t first = group->period_ns > 0 ? group->period_ns : pace_unknown_ns;
    uint64_t pace =
        group->paces.count < DEADLINE_FEW ? first : deadline_median(&group->paces, first);
    uint64_t most = pace / SLACK_SHARE > slack_most_ns ? pace / SLACK_SHARE : slack_most_ns;
    uint64_t slack = pace < most ? SLACK_PACES * pace : most;

    if (group->options.is_patient) {
        return pace / BESIDE_SHARE < slack_most_ns ? pace / BESIDE_SHARE : slack_most_ns;
    }
    if (slack < slack_least_ns) slack = slack_least_ns;
    return slack < most ? slack : most;
}

void group_forming_wait(struct group *group)
{
    uint64_t slack = group_slack_ns(group), wait = group_grace_ns(group);

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct peer_id id = group->form.members[i].id;
        uint64_t its = slack >> missed_by(group, id);

        if (peer_id_is_equal(id, group->options.self) || !group_is_linked(group, id)) continue;
        if (group->invited[i].has_joined || group->invited[i].has_declined) continue;
        if (wait < its) wait = its;
    }
    group->wait_until_ns = deadline_after(group->form_ns, wait);
}

/* ---- answers ---- */

/* Of half of them: one that is far away, or says so, is left out as any slow one. */
void group_lines_learn(struct group *group)
{
    uint64_t sorted[GROUP_MEMBERS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < group->order_count; i++) {
        uint64_t answer_ns =
            exchange_trips_ns(&group->options, group->order[i].id, 1, answer_most_ns);
        uint32_t at = count;

        if (i == group->order_self || answer_ns == 0) continue;
        for (; at > 0 && sorted[at - 1] > answer_ns; at--) { /* insertion sort */
            sorted[at] = sorted[at - 1];
        }
        sorted[at] = answer_ns;
        count++;
    }
    group->answer_ns = count == 0 ? 0 : sorted[count / 2];
}

/* A few of our own windows, or what we would wait for others at most, and may stumble itself; of
 * one that is proven also the window of who has learned nothing yet. */
uint64_t group_join_wait_ns(const struct group *group, const struct message_form *form)
{
    uint64_t wait = (uint64_t)form->deadline_ms * NS_PER_MS, grace = group_grace_ns(group);
    uint64_t most = GRACES_MAX * grace, slack = group_slack_ns(group);
    bool is_proven = group_standing(group, group->proposer.id) == STANDING_PROVEN;

    if (most < 2 * slack) most = 2 * slack; /* its paces may be longer than ours */
    if (is_proven && most < grace_first_ns) most = grace_first_ns;
    slack >>= missed_by(group, group->proposer.id);
    return (wait < most ? wait : most) + (slack > grace ? slack : grace);
}

/* A pace and a quarter: steps do not all take the same time. Who has been in no round yet has seen
 * no pace, and knows its own period all the same. */
static uint64_t linger_ns(const struct group *group)
{
    uint64_t period = group->period_ns;
    uint64_t pace = deadline_median(&group->paces, period > 0 ? period : pace_unknown_ns);

    if (pace < period) pace = period;
    return group->options.is_patient ? pace + pace / 4 : 0;
}

/* Others of our method leave theirs open as we do ours. If it is not, its proposer says so at once.
 */
static bool hears_open(const struct group *group, uint64_t now_ns)
{
    uint64_t open = (uint64_t)group->heard.deadline_ms * NS_PER_MS, linger = linger_ns(group);

    if (!group->has_heard || group->heard.round < group->round) return false;
    if (!group_is_linked(group, group->heard_from.id)) return false;
    return now_ns - group->heard_ns <= (open < linger ? linger : open);
}

bool group_hears_open(const struct group *group)
{
    return hears_open(group, group->now_ns);
}

bool group_linger(struct group *group)
{
    uint64_t until_ns = deadline_after(group->form_ns, linger_ns(group));

    if (until_ns <= group->now_ns) return false;
    group->is_lingering = group->has_lingered = true;
    group->wait_until_ns = until_ns;
    return true;
}

void group_linger_joined(struct group *group)
{
    if (!group->is_lingering) return;
    group->is_lingering = false;
    group->wait_until_ns = deadline_after(group->now_ns, group_grace_ns(group));
}

bool group_lingers(const struct exchange *exchange)
{
    const struct group *group = (const struct group *)(const void *)exchange;

    return group->state == GROUP_FORMING && group->is_lingering;
}

bool group_is_invited(const struct exchange *exchange, uint64_t now_ns)
{
    const struct group *group = (const struct group *)(const void *)exchange;

    return group->state == GROUP_IDLE && !group->is_busy && hears_open(group, now_ns) &&
           group_is_above_promise(group, &group->heard);
}

struct peer_id group_inviter(const struct exchange *exchange)
{
    const struct group *group = (const struct group *)(const void *)exchange;

    return group->heard_from.id;
}
