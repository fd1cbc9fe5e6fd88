/*
 * Slack: how much later than the others a member may be that is usually in time. Loop thread; pure.
 *
 * Where training stands still for rounds, a member left out costs more than the wait: the mean
 * lacks its data, and what it brings to the next is older and weighs more. So beyond the grace
 * (grace.c) each has slack: three paces, or a sixteenth of a long one. Where
 * training goes on it is an eighth of a pace, and costs nothing but that rounds begin later.
 *
 * Whoever has others wait is charged the time beyond the grace, or in the data phase beyond its
 * window (wait.c), however it ends: it joins, says no, hangs up, or never comes. Two
 * slacks in all are its credit, and each round to which it comes in time gives an eighth of a pace
 * back. So a stumble is waited for, again and again; who is always slower, frozen, or wants us to
 * wait, costs two slacks and then an eighth of a pace a round at most, over reconnects, too. Those
 * who are not proven have one credit together, or a new name would be new credit.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"

static const uint64_t pace_unknown_ns = 2 * NS_PER_S;
static const uint64_t slack_least_ns = NS_PER_S;
static const uint64_t slack_usual_ns = 4 * NS_PER_S; /* or LONG_SHARE of a long pace, up to */
static const uint64_t slack_most_ns = 30 * NS_PER_S;
enum { PACES = 3, LONG_SHARE = 16, BESIDE_SHARE = 8, BACK_SHARE = 8, CREDIT = 2, CREDIT_NEW = 4 };

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* What a peer needs itself: from round to round it also waits, which would feed on itself. */
uint64_t group_pace_ns(const struct group *group)
{
    if (group->period_ns > 0) return group->period_ns;
    return least(deadline_median(&group->paces, pace_unknown_ns), pace_unknown_ns);
}

uint64_t group_slack_ns(const struct group *group)
{
    uint64_t pace = group_pace_ns(group), slack;

    if (group->options.is_patient) return least(pace / BESIDE_SHARE, slack_usual_ns);
    slack = pace < slack_usual_ns ? least(PACES * pace, slack_usual_ns) : slack_usual_ns;
    if (slack < slack_least_ns) slack = slack_least_ns;
    if (slack < pace / LONG_SHARE) slack = pace / LONG_SHARE;
    return least(slack, slack_most_ns);
}

/* ---- who has had others wait ---- */

static bool is_new(const struct group *group, struct peer_id id)
{
    return group_standing(group, id) != STANDING_PROVEN;
}

static uint64_t credit_ns(const struct group *group, struct peer_id id)
{
    return (is_new(group, id) ? CREDIT_NEW : CREDIT) * group_slack_ns(group);
}

static uint64_t debt_seen(const struct group *group, struct peer_id id)
{
    if (is_new(group, id)) return group->debt_of_new.ns;
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        if (peer_id_is_equal(group->debts[i].peer, id)) return group->debts[i].ns;
    }
    return 0;
}

/* Where it is written; with the table full, in place of the smallest. */
static struct group_debt *debt_of(struct group *group, struct peer_id id)
{
    struct group_debt *place = &group->debts[0];

    if (is_new(group, id)) return &group->debt_of_new;
    for (uint32_t i = 0; i < GROUP_MEMBERS_MAX; i++) {
        struct group_debt *debt = &group->debts[i];

        if (peer_id_is_equal(debt->peer, id)) return debt;
        if (debt->ns < place->ns) place = debt;
    }
    *place = (struct group_debt){.peer = id};
    return place;
}

uint64_t group_slack_of(const struct group *group, struct peer_id id)
{
    uint64_t credit = credit_ns(group, id), debt = debt_seen(group, id);

    return least(group_slack_ns(group), debt < credit ? credit - debt : 0);
}

/* True: it had us wait beyond `limit_ns`. The same time is charged once, also of several that have
 * one credit. */
static bool charge(struct group *group, struct peer_id id, uint64_t limit_ns)
{
    struct group_debt *debt;
    uint64_t since_ns;

    if (group->now_ns <= limit_ns) return false;
    debt = debt_of(group, id);
    since_ns = debt->until_ns > limit_ns ? debt->until_ns : limit_ns;
    if (group->now_ns <= since_ns) return true;
    debt->ns = least(deadline_after(debt->ns, group->now_ns - since_ns), credit_ns(group, id));
    debt->until_ns = group->now_ns;
    return true;
}

static bool charge_forming(struct group *group, struct peer_id id)
{
    return charge(group, id, deadline_after(group->form_ns, group->grace_ns));
}

/* Where it was left open, time says nothing. */
void group_slack_waited(struct group *group, uint32_t index)
{
    struct peer_id id = group->form.members[index].id;

    if (group->has_lingered) return;
    group->invited[index].is_late |= charge_forming(group, id);
}

void group_slack_missing(struct group *group)
{
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct peer_id id = group->form.members[i].id;

        if (peer_id_is_equal(id, group->options.self) || !group_is_linked(group, id)) continue;
        if (group->invited[i].has_joined || group->invited[i].has_declined) continue;
        group_slack_waited(group, i);
    }
}

void group_slack_vain(struct group *group)
{
    (void)charge_forming(group, group->proposer.id);
}

void group_slack_return(struct group *group, const struct message_form *start)
{
    uint64_t back = group_pace_ns(group) / BACK_SHARE;
    bool is_new_paid = false;

    for (uint32_t i = 0, at = 0; i < start->members_count; i++, at++) {
        struct peer_id id = start->members[i].id;
        struct group_debt *debt;

        while (!peer_id_is_equal(group->form.members[at].id, id)) {
            at++; /* START's list is FORM's, thinned out */
        }
        if (peer_id_is_equal(id, group->options.self)) continue; /* new to itself, and in time */
        if (group->invited[at].is_late || debt_seen(group, id) == 0) continue;
        if (is_new(group, id) && is_new_paid) continue; /* theirs is one */
        is_new_paid |= is_new(group, id);
        debt = debt_of(group, id);
        debt->ns -= least(debt->ns, back);
    }
}

/* We have waited for START since we joined. Who was late, and is in it, its proposer knows. */
void group_slack_started(struct group *group, const struct message_form *start)
{
    bool is_proven = !is_new(group, group->proposer.id);
    uint32_t at = 0;

    if (group->now_ns - group->form_ns <= group->grace_ns) {
        group_slack_return(group, start);
        return;
    }
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct peer_id id = group->form.members[i].id;

        if (at < start->members_count && peer_id_is_equal(start->members[at].id, id)) {
            at++;
        } else if (is_proven && group_is_linked(group, id)) {
            (void)charge_forming(group, id);
        }
    }
}

void group_slack_note(struct group *group)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        struct party *party = &group->parties[i];

        party->is_proven = !is_new(group, party->ref.id);
        party->slack_ns = group_slack_of(group, party->ref.id);
    }
}

/* Where training goes on nobody stands still for it. */
void group_slack_data(struct group *group, uint32_t index, uint64_t limit_ns)
{
    if (group->options.is_patient) return;
    if (charge(group, group->parties[index].ref.id, limit_ns)) group_slack_note(group);
}

/* ---- for how long ---- */

void group_forming_wait(struct group *group)
{
    uint64_t wait = group->grace_ns;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct peer_id id = group->form.members[i].id;
        uint64_t its;

        if (peer_id_is_equal(id, group->options.self) || !group_is_linked(group, id)) continue;
        if (group->invited[i].has_joined || group->invited[i].has_declined) continue;
        its = group_slack_of(group, id);
        if (wait < its) wait = its;
    }
    group->wait_until_ns = deadline_after(group->form_ns, wait);
}
