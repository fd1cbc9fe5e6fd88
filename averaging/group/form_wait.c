/*
 * How long the forming of a group waits, and for whom. Loop thread; pure.
 *
 *   window  what answers to FORM have taken (times.h). So long a proposal is kept, whoever proposes
 *           beside it, and so long the n-th in the order waits for each before it.
 *   half    when half of those who were asked have answered, the others have as long again, and
 *           then their credit (patience.h). Before, nobody can say who is late: all have the
 *           window, or their credit.
 *   open    nobody has joined by then. Where training stands still the round is given up. Where it
 *           goes on (options.is_patient), the proposal stays open for about a pace, in which every
 *           peer as quick as this one comes to its own border once: two that are out of step meet,
 *           and count their next periods from the same moment. The first who joins gives the
 *           others one more window.
 *
 * Where training stands still for rounds, a member left out costs more than the wait: the mean
 * lacks its data, and what it brings to the next is older and weighs more. Where it goes on all
 * that is lost by waiting is that rounds begin later, and credit is an eighth of a pace.
 */
#include "averaging/group/group.h"

#include "averaging/core/times.h"

enum { WINDOWS_MAX = 4, BESIDE_SHARE = 8 };

/* ---- credit ---- */

static bool is_new(const struct group *group, struct peer_id id)
{
    return !exchange_is_proven(&group->options, id);
}

uint64_t group_credit_ns(const struct group *group, struct peer_id id)
{
    return patience_left_ns(&group->patience, id, is_new(group, id), group->now_ns);
}

static uint64_t forming_credit_ns(const struct group *group, struct peer_id id)
{
    uint64_t beside = deadline_least(group->patience.pace_ns / BESIDE_SHARE, BESIDE_MOST_NS);
    uint64_t credit = group_credit_ns(group, id);

    return group->options.is_patient ? deadline_least(credit, beside) : credit;
}

bool group_rests(const struct group *group, struct peer_id id)
{
    return patience_rests(&group->patience, id, group->now_ns);
}

bool group_leaves_out(const struct group *group, struct peer_id id)
{
    return exchange_standing(&group->options, id) == STANDING_OUT ||
           patience_bars(&group->patience, id, group->now_ns);
}

void group_charge(struct group *group, struct peer_id id, bool has_come, uint32_t times,
                  uint64_t free_ns)
{
    const struct patience_wait wait = {.peer = id,
                                       .is_new = is_new(group, id),
                                       .has_come = has_come,
                                       .free_ns = free_ns,
                                       .times = times};

    patience_charge(&group->patience, &wait, group->now_ns);
}

/* ---- FORMING ---- */

void group_lines_learn(struct group *group)
{
    struct peer_id others[GROUP_MEMBERS_MAX];
    uint32_t count = 0;

    for (uint32_t i = 0; i < group->order_count; i++) {
        if (i != group->order_self) others[count++] = group->order[i].id;
    }
    group->answer_ns = exchange_answer_ns(&group->options, others, count);
}

/* At most one pace of this peer, or twice what half of the answers took, where the way to the
 * others is longer than a pace. */
uint64_t group_window_ns(const struct group *group)
{
    struct deadline_bounds bounds = times_join;
    uint64_t twice = 2 * deadline_median(&group->arrivals, bounds.first_ns);

    bounds.cap_ns = deadline_most(group->patience.pace_ns, deadline_least(twice, bounds.cap_ns));
    return deadline_wait_ns(&group->arrivals, &bounds, true, group->answer_ns);
}

/* Somebody who was asked, and of whom an answer is awaited before the group can start. */
static bool is_asked(const struct group *group, uint32_t index)
{
    struct peer_id id = group->form.members[index].id;

    return !peer_id_is_equal(id, group->options.self) && roster_has(&group->roster, id) &&
           !group_rests(group, id);
}

static bool has_answered(const struct group *group, uint32_t index)
{
    return group->invited[index].has_joined || group->invited[index].has_declined;
}

/* Until when an answer to FORM costs nothing. On a slow line the round before ends later, and where
 * training stands still the next one begins at once. */
static uint64_t free_ns(const struct group *group)
{
    uint64_t slow_ns = group->options.is_patient ? 0 : group_slow_ns(group, group->given.usual_ns);

    if (group->form_half_ns == 0) return deadline_after(group->form_ns, group->window_ns);
    return deadline_after(
        patience_free_ns(&group->patience, group->form_ns, group->form_half_ns, group->answer_ns),
        slow_ns);
}

void group_forming_wait(struct group *group)
{
    uint32_t asked = 0, missing = 0;
    uint64_t credit_ns = 0, free;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        if (!is_asked(group, i)) continue;
        asked++;
        if (has_answered(group, i)) continue;
        missing++;
        credit_ns = deadline_most(credit_ns, forming_credit_ns(group, group->form.members[i].id));
    }
    if (missing == 0) {
        group->wait_until_ns = group->now_ns;
        return;
    }
    if (group->is_open) return;
    if (group->form_half_ns == 0 && 2 * missing <= asked) group->form_half_ns = group->now_ns;
    free = free_ns(group);
    group->wait_until_ns = deadline_most(
        free, deadline_after(group->form_half_ns == 0 ? group->form_ns : free, credit_ns));
}

/* A pace and a quarter: steps do not all take the same time. */
static uint64_t open_ns(const struct group *group)
{
    uint64_t pace = group->patience.pace_ns;

    return group->options.is_patient ? pace + pace / 4 : 0;
}

bool group_leave_open(struct group *group)
{
    uint64_t until_ns = deadline_after(group->form_ns, open_ns(group));

    if (until_ns <= group->now_ns) return false;
    group->is_open = true;
    group->wait_until_ns = until_ns;
    return true;
}

bool group_lingers(const struct group *group)
{
    return group->state == GROUP_FORMING && group->is_open && group_joined_count(group) == 0;
}

void group_open_joined(struct group *group)
{
    uint64_t window = group_window_ns(group), most = deadline_after(group->form_ns, open_ns(group));

    if (!group_lingers(group)) return;
    group->wait_until_ns =
        deadline_least(deadline_after(group->now_ns, window), deadline_after(most, window));
}

/* Where it was left open, time says nothing. */
void group_charge_answer(struct group *group, uint32_t index)
{
    if (group->is_open) return;
    group_charge(group, group->form.members[index].id, false, 1, free_ns(group));
}

void group_charge_missing(struct group *group)
{
    for (uint32_t i = 0; i < group->form.members_count && !group->is_open; i++) {
        struct peer_id id = group->form.members[i].id;

        if (peer_id_is_equal(id, group->options.self) || !roster_has(&group->roster, id)) continue;
        if (!has_answered(group, i)) group_charge(group, id, false, 1, free_ns(group));
    }
}

/* ---- READY, JOINED ---- */

/* Until when an answer, to what is asked then, costs nothing before others have answered. */
static uint64_t asked_free_ns(const struct group *group, uint64_t since_ns)
{
    return patience_free_ns(&group->patience, since_ns, 0, group->answer_ns);
}

void group_came_back(struct group *group, bool is_taken_back)
{
    group->vain_of = group->proposer.id;
    group->vain_ns = group->form_ns;
    group->is_taken_back = is_taken_back;
}

/* A member whose proposal came to nothing has us wait until the next one. It may have had no
 * choice; one that takes its proposals back again and again is barred for it. At the first turn of
 * a round it is all before the proposer in the order that have us wait. */
void group_charge_turn(struct group *group, struct peer_id proposer)
{
    bool is_first_turn = group->state == GROUP_READY && group->attempts == 0;
    uint64_t free = asked_free_ns(group, group->ready_ns);

    if (group->vain_ns != 0) {
        group_charge(group, group->vain_of, group->is_taken_back, 1,
                     asked_free_ns(group, group->vain_ns));
    }
    group->vain_ns = 0;
    for (uint32_t i = 0; i < group->order_count && is_first_turn; i++) {
        struct peer_id id = group->order[i].id;

        if (peer_id_is_equal(id, proposer)) return;
        if (i == group->order_self || !roster_has(&group->roster, id)) continue;
        group_charge(group, id, false, 1, free);
    }
}

/* A few of our own windows, or of its credit; of one that is proven also the window of who has
 * learned nothing yet. And then as long as it may be late itself. */
uint64_t group_join_wait_ns(const struct group *group, const struct message_form *form)
{
    uint64_t wait = (uint64_t)form->deadline_ms * NS_PER_MS, window = group_window_ns(group);
    uint64_t credit = forming_credit_ns(group, group->proposer.id), most;

    most = deadline_most(WINDOWS_MAX * window, 2 * credit); /* its paces may be longer than ours */
    if (group->options.is_patient) most = deadline_most(most, group->patience.pace_ns); /* free */
    if (!is_new(group, group->proposer.id)) most = deadline_most(most, times_join.first_ns);
    return deadline_least(wait, most) + deadline_most(credit, window) + 2 * group->answer_ns;
}

/* We have waited for START since we joined. A member that was late and is in it the proposer knows;
 * one that is not is charged by all who waited for it, or it would have credit with each of them.
 */
void group_charge_absent(struct group *group, const struct message_form *start)
{
    uint64_t free = asked_free_ns(group, group->form_ns);
    uint32_t at = 0;

    for (uint32_t i = 0; i < group->form.members_count && group->now_ns > free; i++) {
        struct peer_id id = group->form.members[i].id;

        if (at < start->members_count && peer_id_is_equal(start->members[at].id, id)) {
            at++;
        } else if (roster_has(&group->roster, id)) {
            group_charge(group, id, false, 1, free);
        }
    }
}

/* ---- what was heard, and not joined yet ---- */

/* Others of our method leave theirs open as we do ours. If it is not, its proposer says so at once.
 */
static uint64_t heard_until_ns(const struct group *group)
{
    uint64_t open = (uint64_t)group->heard.deadline_ms * NS_PER_MS;

    if (!group->has_heard || group->heard.round < group->round) return 0;
    if (!roster_has(&group->roster, group->heard_from.id)) return 0;
    return deadline_after(group->heard_ns, deadline_most(open, open_ns(group)));
}

bool group_hears_open(const struct group *group)
{
    return group->now_ns <= heard_until_ns(group);
}

uint64_t group_invited_until_ns(const struct group *group)
{
    if (group->state != GROUP_IDLE || group_is_busy(group)) return 0;
    if (!group_is_above_promise(group, &group->heard)) return 0;
    return heard_until_ns(group);
}
