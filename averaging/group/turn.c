/*
 * Which of several proposals of one round. Loop thread; pure.
 *
 * Ballots only rise, so nobody is counted by two STARTs. A proposal that was joined, or is one's
 * own, has its window: whoever proposes the same round with a higher ballot meanwhile is heard, and
 * followed when the window is over and it has not started. Or one FORM with a high ballot would
 * have everybody turn to it at any time. Of two proposers whom nobody has joined yet the one with
 * the lower ballot goes on, who is earlier in the order; of equals the smaller id. No ballot is
 * more than GROUP_BALLOT_STEP above the last, so they cannot be used up. Who declines a proposal
 * unread, as it pauses its proposer, does not know its ballot: a proposer whom nobody follows goes
 * no higher, and proposes with the same ballot again, or nobody could follow it afterwards.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"

bool group_is_above_promise(const struct group *group, const struct message_form *form)
{
    if (form->round != group->promised.round) return form->round > group->promised.round;
    return form->ballot >= group->promised.next;
}

uint32_t group_joined_count(const struct group *group)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        count += group->invited[i].has_joined;
    }
    return count;
}

bool group_gives_way(const struct group *group, struct member_ref from,
                     const struct message_form *form)
{
    if (group->state != GROUP_FORMING || form->round != group->round) return false;
    if (group_joined_count(group) > 0 || form->ballot > group->form.ballot) return false;
    return form->ballot < group->form.ballot || peer_id_compare(from.id, group->options.self) < 0;
}

bool group_has_window(const struct group *group, struct member_ref from,
                      const struct message_form *form)
{
    if (group->now_ns >= deadline_after(group->form_ns, group->window_ns)) return false;
    if (group->state == GROUP_JOINED) return !member_ref_is_equal(from, group->proposer);
    if (group->state != GROUP_FORMING || group_gives_way(group, from, form)) return false;
    return form->round == group->round || group_joined_count(group) > 0;
}

void group_remember(struct group *group, struct member_ref from, const struct message_form *form)
{
    group->heard = *form;
    group->heard.statements = NULL; /* these would not outlive the call */
    group->heard.statements_bytes = 0;
    group->heard_from = from;
    group->heard_ns = group->now_ns;
    group->has_heard = true;
}

/* The highest ballot of a round for who knows `last`. */
static uint32_t highest(const struct promised *last, uint64_t round)
{
    bool is_known = last->next > 0 && last->round == round;

    return GROUP_BALLOT_STEP + (is_known ? last->next - 1 : 0);
}

bool group_is_leaping_ballot(const struct group *group, const struct message_form *form)
{
    return form->ballot > highest(&group->promised, form->round);
}

uint32_t group_next_ballot(const struct group *group)
{
    uint32_t ballot = group->order_self, most = highest(&group->followed, group->round);

    if (group->promised.round == group->round && group->promised.next > ballot) {
        ballot = group->promised.next;
    }
    return ballot < most ? ballot : most;
}

void group_follow(struct group *group, const struct message_form *form)
{
    if (form->round == group->followed.round && form->ballot < group->followed.next) return;
    group->followed = (struct promised){form->round, form->ballot + 1};
}

uint64_t group_turn_ns(const struct group *group)
{
    bool is_another = group->has_heard && group->heard.round == group->form.round;

    if (!is_another || !group_is_above_promise(group, &group->heard)) return UINT64_MAX;
    return deadline_after(group->form_ns, group->window_ns);
}
