/*
 * How long the forming of a group waits. Loop thread; pure.
 *
 *   grace   for answers to our FORM: as arrivals have taught (deadline.h). Then the group starts
 *           with those who have joined, but for the slack of those who have not
 *           (slack.c).
 *   linger  nobody has joined when the grace is over. Where training stands still meanwhile, the
 *           round is given up. Where it goes on (options.is_patient), the proposal stays open for
 *           about a pace, in which every peer as quick as this one comes to its own border once:
 * two that are out of step meet, and count their next periods from the same moment. The first who
 * joins gives the others one more grace.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"

/* Waits nobody can configure: the first before anything is known, and what bounds the learned. */
static const uint64_t grace_first_ns = NS_PER_S;
static const uint64_t grace_floor_ns = 100 * NS_PER_MS;
static const uint64_t pace_unknown_ns = 2 * NS_PER_S;
static const uint64_t border_most_ns = 4 * NS_PER_S;
enum { GRACE_SPREAD = 4, GRACES_MAX = 4, BORDER_SHARE = 32 };

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

void group_lines_learn(struct group *group)
{
    struct peer_id others[GROUP_MEMBERS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < group->order_count; i++) {
        if (i != group->order_self) others[count++] = group->order[i].id;
    }
    group->answer_ns = exchange_answer_ns(&group->options, others, count);
}

/* A few of our own windows, or of its slack; of one that is proven also the window of who has
 * learned nothing yet. And then as long as it may be late itself. */
uint64_t group_join_wait_ns(const struct group *group, const struct message_form *form)
{
    uint64_t wait = (uint64_t)form->deadline_ms * NS_PER_MS, grace = group_grace_ns(group);
    uint64_t most = GRACES_MAX * grace, slack = group_forming_slack_ns(group, group->proposer.id);
    bool is_proven = exchange_is_proven(&group->options, group->proposer.id);

    if (most < 2 * slack) most = 2 * slack; /* its paces may be longer than ours */
    if (group->options.is_patient && most < group->period_ns) most = group->period_ns; /* free */
    if (is_proven && most < grace_first_ns) most = grace_first_ns;
    return (wait < most ? wait : most) + (slack > grace ? slack : grace) + 2 * group->answer_ns;
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
static uint64_t heard_until_ns(const struct group *group)
{
    uint64_t open = (uint64_t)group->heard.deadline_ms * NS_PER_MS, linger = linger_ns(group);

    if (!group->has_heard || group->heard.round < group->round) return 0;
    if (!roster_has(&group->roster, group->heard_from.id)) return 0;
    return deadline_after(group->heard_ns, open < linger ? linger : open);
}

bool group_hears_open(const struct group *group)
{
    return group->now_ns <= heard_until_ns(group);
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

bool group_lingers(const struct group *group)
{
    return group->state == GROUP_FORMING && group->is_lingering;
}

uint64_t group_invited_until_ns(const struct group *group)
{
    if (group->state != GROUP_IDLE || group->is_busy) return 0;
    if (!group_is_above_promise(group, &group->heard)) return 0;
    return heard_until_ns(group);
}
