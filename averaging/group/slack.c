/*
 * For whom a group waits, by the credit that each has (patience.h). Loop thread; pure.
 *
 * Where training stands still for rounds, a member left out costs more than the wait: the mean
 * lacks its data, and what it brings to the next is older and weighs more. So the longest wait for
 * one is three paces. Where training goes on it is an eighth of a pace while a group forms, and
 * costs nothing but that rounds begin later.
 *
 * FORMING: when half of those who were asked have answered, the others have as long again, and then
 * their credit. Before, nobody can say who is late: all have the grace (grace.c).
 */
#include "averaging/group/group.h"

#include "base/bytes.h"

static const uint64_t pace_unknown_ns = 2 * NS_PER_S;
static const uint64_t slack_least_ns = 500 * NS_PER_MS;
static const uint64_t beside_most_ns = 4 * NS_PER_S;
enum { BESIDE_SHARE = 8 };

/* What a peer needs itself: from round to round it also waits, which would feed on itself. */
uint64_t group_pace_ns(const struct group *group)
{
    if (group->period_ns > 0) return group->period_ns;
    return deadline_least(deadline_median(&group->paces, pace_unknown_ns), pace_unknown_ns);
}

uint64_t group_slack_ns(const struct group *group)
{
    return patience_slack_ns(group_pace_ns(group), slack_least_ns);
}

static bool is_new(const struct group *group, struct peer_id id)
{
    return !exchange_is_proven(&group->options, id);
}

uint64_t group_slack_of(const struct group *group, struct peer_id id)
{
    return patience_left_ns(&group->patience, id, is_new(group, id), group_slack_ns(group),
                            group->now_ns);
}

/* Where training goes on all that is lost by waiting is that rounds begin later. */
uint64_t group_forming_slack_ns(const struct group *group, struct peer_id id)
{
    uint64_t beside = deadline_least(group_pace_ns(group) / BESIDE_SHARE, beside_most_ns);
    uint64_t slack = group_slack_of(group, id);

    return group->options.is_patient ? deadline_least(slack, beside) : slack;
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

/* It had us wait, and for nothing since `free_ns`. */
static void charge(struct group *group, struct peer_id id, bool has_come, uint32_t times,
                   uint64_t free_ns)
{
    const struct patience_wait wait = {.peer = id,
                                       .is_new = is_new(group, id),
                                       .has_come = has_come,
                                       .free_ns = free_ns,
                                       .times = times};

    patience_charge(&group->patience, &wait, group_slack_ns(group), group->now_ns);
}

/* ---- until START ---- */

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

void group_forming_note(struct group *group)
{
    uint32_t asked = 0, answered = 0;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        if (!is_asked(group, i)) continue;
        asked++;
        answered += has_answered(group, i);
    }
    if (group->form_half_ns == 0 && asked > 1 && 2 * answered >= asked) {
        group->form_half_ns = group->now_ns;
    }
}

/* Until when an answer to FORM costs nothing. On a slow line the round before ends later, and where
 * training stands still the next one begins at once. */
static uint64_t forming_free_ns(const struct group *group)
{
    uint64_t slow_ns = group->options.is_patient ? 0 : group_slow_ns(group, group->usual_ns);

    if (group->form_half_ns == 0) return deadline_after(group->form_ns, group->grace_ns);
    return deadline_after(patience_free_ns(group->form_ns, group->form_half_ns, group->answer_ns,
                                           group_pace_ns(group)),
                          slow_ns);
}

void group_forming_wait(struct group *group)
{
    uint64_t free_ns = forming_free_ns(group), until_ns = group->now_ns;
    bool is_half = group->form_half_ns != 0;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        uint64_t its = group_forming_slack_ns(group, group->form.members[i].id), its_ns;

        if (!is_asked(group, i) || has_answered(group, i)) continue;
        its_ns = deadline_after(is_half ? free_ns : group->form_ns, its);
        if (its_ns < free_ns) its_ns = free_ns;
        if (until_ns < its_ns) until_ns = its_ns;
    }
    group->wait_until_ns = until_ns;
}

/* Until when an answer, to what is asked then, costs nothing before others have answered. */
static uint64_t asked_free_ns(const struct group *group, uint64_t since_ns)
{
    return patience_free_ns(since_ns, 0, group->answer_ns, group_pace_ns(group));
}

static bool is_first_turn(const struct group *group)
{
    return group->state == GROUP_READY && !group->is_again;
}

void group_slack_vain(struct group *group, bool is_taken_back)
{
    group->is_taken_back = is_taken_back;
    group->vain_of = group->proposer.id;
    group->vain_ns = group->form_ns;
    group->has_vain = true;
}

/* A member whose proposal came to nothing has us wait until the next one. It may have had no
 * choice; one that takes its proposals back again and again is barred for it. At the first turn of
 * a round it is all before the proposer in the order that have us wait. */
void group_slack_turn(struct group *group, struct peer_id proposer)
{
    uint64_t free_ns = asked_free_ns(group, group->ready_ns);

    if (group->has_vain) {
        charge(group, group->vain_of, group->is_taken_back, 1,
               asked_free_ns(group, group->vain_ns));
    }
    group->has_vain = false;
    for (uint32_t i = 0; i < group->order_count && is_first_turn(group); i++) {
        struct peer_id id = group->order[i].id;

        if (peer_id_is_equal(id, proposer)) return;
        if (i == group->order_self || !roster_has(&group->roster, id)) continue;
        charge(group, id, false, 1, free_ns);
    }
}

/* Where it was left open, time says nothing. */
void group_slack_waited(struct group *group, uint32_t index)
{
    struct peer_id id = group->form.members[index].id;

    if (group->has_lingered) return;
    charge(group, id, false, 1, forming_free_ns(group));
}

void group_slack_missing(struct group *group)
{
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct peer_id id = group->form.members[i].id;

        if (peer_id_is_equal(id, group->options.self) || !roster_has(&group->roster, id)) continue;
        if (!has_answered(group, i)) group_slack_waited(group, i);
    }
}

/* We have waited for START since we joined. A member that was late and is in it the proposer knows;
 * one that is not is charged by all who waited for it, or it would have credit with each of them.
 */
void group_slack_started(struct group *group, const struct message_form *start)
{
    uint64_t free_ns = asked_free_ns(group, group->form_ns);
    uint32_t at = 0;

    for (uint32_t i = 0; i < group->form.members_count && group->now_ns > free_ns; i++) {
        struct peer_id id = group->form.members[i].id;

        if (at < start->members_count && peer_id_is_equal(start->members[at].id, id)) {
            at++;
        } else if (roster_has(&group->roster, id)) {
            charge(group, id, false, 1, free_ns);
        }
    }
}

/* ---- DATA ---- */

/* Owners alone see who contributes late. Where few members own a part each sees a member in a round
 * out of several, and has it for its share of the credit: else it would have as much with each. */
uint32_t group_slack_times(const struct group *group)
{
    uint32_t owners = 0;

    for (uint32_t i = 0; i < group->parties_count; i++) {
        owners += group->parties[i].count > 0;
    }
    return owners == 0 ? 1 : group->parties_count / owners;
}

void group_slack_note(struct group *group)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        group->parties[i].slack_ns = group_slack_of(group, group->parties[i].ref.id);
    }
}

void group_slack_data(struct group *group, uint32_t index, bool is_seen, uint32_t times,
                      uint64_t free_ns)
{
    if (group->now_ns <= free_ns) return;
    charge(group, group->parties[index].ref.id, is_seen, times, free_ns);
    group_slack_note(group);
}
