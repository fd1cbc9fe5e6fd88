/*
 * Forming a group: who takes part in a round, agreed before anybody takes a snapshot. The picture
 * is in group.c. Loop thread; pure.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"

#include <string.h>

enum { BRIEF_SHARE = 4 };

static int form_find(const struct message_form *form, struct peer_id id)
{
    for (uint32_t i = 0; i < form->members_count; i++) {
        if (peer_id_is_equal(form->members[i].id, id)) return (int)i;
    }
    return -1;
}

bool group_form_has(const struct message_form *form, struct member_ref member)
{
    int found = form_find(form, member.id);

    return found >= 0 && boot_id_is_equal(form->members[found].boot, member.boot);
}

static struct member_ref self_of(const struct group *group)
{
    return (struct member_ref){group->options.self, group->options.boot};
}

/* What FORM and START must have in common with us, whatever our state. */
static enum rc form_check(struct group *group, struct member_ref from,
                          const struct message_form *form)
{
    uint32_t strangers = 0;

    if (form->members_count < 2 || form->members_count > GROUP_MEMBERS_MAX) return RC_FORMAT;
    if (form->round > UINT64_MAX / 2 || form->ballot > GROUP_BALLOT_MAX) return RC_FORMAT;
    if (form->round > group->counts.next_round + GROUP_ROUND_LEAP) return RC_FORMAT;
    /* First in its own list, its part of the plane is rounded down, and it owns none of few. */
    if (!member_ref_is_equal(form->members[0], from)) return RC_FORMAT;
    for (uint32_t i = 0; i < form->members_count; i++) {
        if (form_find(form, form->members[i].id) != (int)i) return RC_FORMAT; /* twice */
        strangers += !peer_id_is_equal(form->members[i].id, group->options.self) &&
                     !roster_has(&group->roster, form->members[i].id);
    }
    /* A few may be on their way to a link with us; with more the round would be in vain. */
    if (strangers > 1 + form->members_count / 4) return RC_MISMATCH;
    if (form->chunks != group->options.chunks ||
        !digest_is_equal(form->schema, group->options.schema) ||
        !digest_is_equal(form->lineage, group->lineage) ||
        strncmp(form->codec, group->options.codec, sizeof form->codec) != 0) {
        return RC_MISMATCH;
    }
    return RC_OK;
}

/* ---- proposing ---- */

static bool join(struct group *group, struct member_ref proposer, const struct message_form *form,
                 struct commands *out);

static void send_form(const struct message_form *form, enum message_type type, struct peer_id to,
                      struct commands *out)
{
    struct message *message = commands_send(out, to, type);

    if (message != NULL) message->as.form = *form;
}

/* To everyone listed who is linked, but us. */
static void send_form_to_all(const struct group *group, const struct message_form *form,
                             enum message_type type, const struct message_form *list,
                             struct commands *out)
{
    for (uint32_t i = 0; i < list->members_count; i++) {
        if (peer_id_is_equal(list->members[i].id, group->options.self)) continue;
        if (!roster_has(&group->roster, list->members[i].id)) continue;
        send_form(form, type, list->members[i].id, out);
    }
}

static void promise(struct group *group, uint64_t round, uint32_t ballot)
{
    group->promised = (struct promised){round, ballot + 1};
}

static void form_fill(const struct group *group, uint32_t ballot, struct message_form *form)
{
    memset(form, 0, sizeof *form);
    form->round = group->round;
    form->ballot = ballot;
    form->schema = group->options.schema;
    form->lineage = group->lineage;
    memcpy(form->codec, group->options.codec, sizeof form->codec);
    form->chunks = group->options.chunks;
    form->members[form->members_count++] = self_of(group);
    for (uint32_t i = 0; i < group->order_count; i++) {
        if (i == group->order_self || !roster_has(&group->roster, group->order[i].id)) continue;
        if (group_leaves_out(group, group->order[i].id)) continue;
        form->members[form->members_count++] = group->order[i];
    }
}

static void propose(struct group *group, struct commands *out)
{
    uint32_t ballot;

    group_charge_turn(group, group->options.self);
    if (group->counts.next_round > group->round) group->round = group->counts.next_round;
    ballot = group_next_ballot(group);
    if (ballot > GROUP_BALLOT_MAX) {
        group_over(group, OVER_ABORTED, "too many proposals failed", true, out);
        return;
    }
    form_fill(group, ballot, &group->form);
    if (group->form.members_count < 2) {
        group_over(group, OVER_ABORTED, "nobody else is linked", true, out);
        return;
    }
    promise(group, group->round, ballot);
    group_become(group, GROUP_FORMING);
    group->proposer = self_of(group);
    group->form_ns = group->now_ns;
    group->window_ns = group_window_ns(group);
    group->form_half_ns = 0;
    group->is_open = false;
    memset(group->invited, 0, sizeof group->invited);
    group_forming_wait(group);
    group->form.deadline_ms = (uint32_t)((group->wait_until_ns - group->form_ns) / NS_PER_MS) + 1;
    send_form_to_all(group, &group->form, MESSAGE_FORM, &group->form, out);
}

static void add_to_start(struct group *group, struct message_form *start, struct member_ref member,
                         const struct statement *stated)
{
    uint8_t *bytes = group->statements + (size_t)start->members_count * STATEMENT_BYTES;

    store_le64(bytes, stated->samples);
    store_le64(bytes + 8, stated->rate);
    start->members[start->members_count++] = member;
    start->statements = group->statements;
    start->statements_bytes += STATEMENT_BYTES;
}

/* Ours is given up: those who joined it, or still may, need not wait for it. */
static void forming_withdraw(struct group *group, struct commands *out)
{
    bool lingers = group_lingers(group);

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        if (!group->invited[i].has_joined && !lingers) continue;
        if (!roster_has(&group->roster, group->form.members[i].id)) continue;
        group_send_abort(group->form.members[i].id, group->proposer, group->form.round,
                         ABORT_PROTOCOL, out);
    }
}

/* The window closes: whoever joined takes part; the others learn from START that they do not. */
static void forming_close(struct group *group, struct commands *out)
{
    struct message_form start = group->form;
    uint64_t waited = group->now_ns - group->form_ns, window = group->window_ns;
    const struct statement own = {group->samples, group_rate(group)};
    bool only_direct = false, is_awaited = false;

    start.members_count = 0;
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        struct member_ref member = group->form.members[i];
        bool is_self = peer_id_is_equal(member.id, group->options.self);
        bool is_linked = is_self || roster_has(&group->roster, member.id);

        if (is_self || (is_linked && group->invited[i].has_joined)) {
            add_to_start(group, &start, member, is_self ? &own : &group->invited[i].stated);
            only_direct |= group->invited[i].only_direct;
        } else if (is_linked && !group->invited[i].has_declined) {
            is_awaited = true;
            if (group->is_open) continue; /* it counted when the window was over */
            deadline_add(&group->arrivals, 2 * deadline_least(waited, window));
        }
    }
    if (start.members_count < 2 || start.members_count < group->options.quorum) {
        if (group_hears_open(group) && group_is_above_promise(group, &group->heard)) {
            group->has_heard = false;
            if (join(group, group->heard_from, &group->heard, out)) return;
        }
        if (is_awaited && group_leave_open(group)) return;
        group_charge_missing(group);
        if (start.members_count > 1) forming_withdraw(group, out);
        group_over(group, OVER_ABORTED,
                   start.members_count > 1 ? "too few others were ready" : "nobody else was ready",
                   true, out);
        return;
    }
    group_plan_choose(group, &start);
    if (only_direct) start.schedule = SCHEDULE_DIRECT;
    send_form_to_all(group, &start, MESSAGE_START, &group->form, out);
    group_charge_missing(group);
    group_data_begin(group, &start, out);
}

static void forming_check(struct group *group, struct commands *out)
{
    group_forming_wait(group); /* for fewer, it may be shorter */
    if (group->now_ns >= group->wait_until_ns) forming_close(group, out);
}

/* ---- waiting for a proposal, and joining one ---- */

/* We turn from the proposal we joined, to that of `next` (NULL: to none). Its proposer is told at
 * once, the others when START comes. One that has proposed the round anew has left it itself, and
 * would take ABORT, which names no ballot, for an answer to the new one. */
static void leave(struct group *group, const struct member_ref *next, uint64_t round,
                  struct commands *out)
{
    bool is_anew = next != NULL && round == group->form.round &&
                   peer_id_is_equal(next->id, group->proposer.id) &&
                   boot_id_is_equal(next->boot, group->proposer.boot);

    if (is_anew) group_came_back(group, false);
    group->left[group->left_next] = (struct group_left){group->proposer, group->form.round,
                                                        group->stream, group->form.ballot, true};
    group->left_next = (group->left_next + 1) % GROUP_LEFT_MAX;
    if (is_anew || !roster_has(&group->roster, group->proposer.id)) return;
    group_send_abort(group->proposer.id, group->proposer, group->form.round, ABORT_PROTOCOL, out);
}

/* What we joined far ahead did not start: back to where we were. */
static void come_back(struct group *group)
{
    if (!group->is_far) return;
    group->is_far = false;
    group->round = group->counts.next_round;
    group->promised = group->near;
}

static void become_ready(struct group *group, struct commands *out)
{
    come_back(group);
    group_become(group, GROUP_READY);
    group->ready_ns = group->now_ns;
    if (++group->attempts > GROUP_ATTEMPTS_MAX) {
        group_over(group, OVER_ABORTED, "no proposal came to a start", true, out);
    } else if (group_hears_open(group) && group_is_above_promise(group, &group->heard)) {
        group->has_heard = false;
        (void)join(group, group->heard_from, &group->heard, out);
    }
}

/* Whose proposals we join for ever, and who never starts, would keep us from all other rounds. What
 * we decline keeps us from nothing: it may come as often as its proposer likes. */
static bool proposes_in_vain(struct group *group, struct peer_id proposer, struct commands *out)
{
    bool is_proven = exchange_is_proven(&group->options, proposer);

    if (!conduct_form(&group->conduct, proposer, is_proven, group->now_ns)) return false;
    commands_score(out, proposer, SCORE_LATE,
                   "proposes rounds and does not start them; averaging goes on with others");
    return true;
}

/* False: we do not, and are where we were. */
static bool join(struct group *group, struct member_ref proposer, const struct message_form *form,
                 struct commands *out)
{
    struct message *message;

    if (proposes_in_vain(group, proposer.id, out)) return false;
    if (group->state == GROUP_FORMING) forming_withdraw(group, out);
    if (group->state == GROUP_JOINED) leave(group, &proposer, form->round, out);
    group_charge_turn(group, proposer.id);
    come_back(group);
    group->is_far = group_is_far(group, form->round);
    group->near = group->promised;
    group_become(group, GROUP_JOINED);
    group->round = form->round;
    group->form = *form;
    group->form.statements = NULL; /* START's; these would not outlive the call */
    group->form.statements_bytes = 0;
    group->proposer = proposer;
    group->stream = group_stream(proposer, form->round);
    group->form_ns = group->now_ns;
    group->window_ns = group_window_ns(group);
    group->wait_until_ns = deadline_after(group->now_ns, group_join_wait_ns(group, form));
    memset(group->invited, 0, sizeof group->invited);
    group->stated = (struct statement){group->samples, group_rate(group)};
    promise(group, form->round, form->ballot);
    group_follow(group, form);
    group_hear_round(group, form->round);
    message = commands_send(out, proposer.id, MESSAGE_JOIN);
    if (message == NULL) return true;
    message->as.join.round = form->round;
    message->as.join.ballot = form->ballot;
    message->as.join.samples = group->stated.samples;
    message->as.join.rate = group->stated.rate;
    message->as.join.only_direct = !group->options.may_relay;
    return true;
}

/* Is it of the proposal we joined and whose START we wait for? */
static bool is_ours(const struct group *group, struct member_ref from,
                    const struct message_form *form)
{
    return group->state == GROUP_JOINED && peer_id_is_equal(from.id, group->proposer.id) &&
           form->round == group->form.round && form->ballot == group->form.ballot;
}

enum rc group_on_form(struct group *group, struct member_ref from, const struct message_form *form,
                      struct commands *out)
{
    bool has_started = group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA;
    bool is_waiting = !has_started && group->state != GROUP_IDLE;
    enum rc rc = form_check(group, from, form);

    if (rc == RC_OK && group_leaves_out(group, from.id)) rc = RC_MISMATCH;
    if (rc == RC_MISMATCH) { /* not waited for */
        group_send_abort(from.id, from, form->round, ABORT_PROTOCOL, out);
    }
    if (rc != RC_OK) return rc;
    if (is_ours(group, from, form)) return RC_REPLAY;
    if (!group_form_has(form, self_of(group)))
        return RC_MISMATCH; /* meant for an earlier life of ours */
    if ((group_is_leap(group, form->round) && group->ahead_left < GROUP_ROUND_NEAR / 2) ||
        form->round < (is_waiting ? group->round : group->counts.next_round) ||
        (has_started && form->round == group->round) || group_is_leaping_ballot(group, form) ||
        (!group_is_above_promise(group, form) && !group_gives_way(group, from, form))) {
        group_send_abort(from.id, from, form->round, ABORT_PROTOCOL, out); /* not waited for */
        /* ...but if what we joined is taken back, there is this one. */
        if (group->state == GROUP_JOINED && form->round == group->round && !group->has_heard &&
            !group_is_leaping_ballot(group, form)) {
            group_remember(group, from, form);
        }
        return RC_STALE;
    }
    /* Who joined keeps its word while a proposal of the same round may still start; a later round
     * is heard of. */
    if (is_waiting && (group->state != GROUP_JOINED || form->round == group->round) &&
        !group_has_window(group, from, form)) {
        return join(group, from, form, out) ? RC_OK : RC_LIMIT;
    }
    if (group_is_busy(group)) {
        group_send_abort(from.id, from, form->round, ABORT_LOCAL, out);
        group_hear_round(group, form->round);
        return RC_BUSY;
    }
    if (group_is_far(group, form->round) && group->has_heard) return RC_STALE;
    if (group->has_heard && !group_is_far(group, group->heard.round) &&
        (form->round < group->heard.round ||
         (form->round == group->heard.round && form->ballot <= group->heard.ballot))) {
        return RC_STALE;
    }
    group_remember(group, from, form);
    group_hear_round(group, form->round);
    return RC_OK;
}

void group_form_decline(struct group *group, struct commands *out)
{
    if (group_hears_open(group)) {
        group_send_abort(group->heard_from.id, group->heard_from, group->heard.round, ABORT_LOCAL,
                         out);
    }
    group->has_heard = false;
}

static bool is_before_us(const struct group *group, uint32_t place)
{
    struct peer_id id = group->order[place].id;

    return place < group->order_self && roster_has(&group->roster, id) &&
           !group_leaves_out(group, id);
}

/* Each before us has a window to propose in. One that rests has a quarter, and an answer at least:
 * if it is there it proposes at once, and where not all agree who rests they would propose beside
 * each other without. After a proposal that came to nothing even the first in the order lets one
 * window pass. */
static uint64_t own_turn_ns(const struct group *group)
{
    uint64_t window = group_window_ns(group);
    uint64_t brief = deadline_most(window / BRIEF_SHARE, group->answer_ns);
    uint64_t turn = deadline_after(group->ready_ns, group->attempts > 0 ? window : 0);

    for (uint32_t i = 0; i < group->order_self; i++) {
        if (!is_before_us(group, i)) continue;
        turn = deadline_after(turn, group_rests(group, group->order[i].id) ? brief : window);
    }
    return turn;
}

void group_form_begin(struct group *group, struct commands *out)
{
    bool is_open = group_hears_open(group) && group_is_above_promise(group, &group->heard);

    group_become(group, GROUP_READY);
    group->ready_ns = group->now_ns;
    group->vain_ns = 0;
    group->has_heard = false;
    if (is_open && join(group, group->heard_from, &group->heard, out)) return;
    if (own_turn_ns(group) <= group->now_ns) {
        propose(group, out);
    }
}

/* ---- answers ---- */

enum rc group_on_join(struct group *group, struct member_ref from, const struct message_join *join,
                      struct commands *out)
{
    bool has_started = group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA;
    int index = form_find(&group->form, from.id);
    bool is_told = has_started && join->round == group->round && /* by our START */
                   peer_id_is_equal(group->proposer.id, group->options.self);

    if (is_told) return RC_STALE;
    if (group->state != GROUP_FORMING || join->round != group->form.round ||
        join->ballot != group->form.ballot) {
        bool is_another = group->state != GROUP_FORMING || join->round != group->form.round;

        if (is_another) {
            group_send_abort(from.id, self_of(group), join->round, ABORT_PROTOCOL, out);
        }
        return RC_STALE;
    }
    if (index < 0 || !boot_id_is_equal(group->form.members[index].boot, from.boot)) {
        return RC_MISMATCH;
    }
    if (group->invited[index].has_joined) return RC_REPLAY;
    group_open_joined(group);
    group_follow(group, &group->form);
    group->invited[index].has_joined = true;
    group->invited[index].stated = (struct statement){join->samples, join->rate};
    group->invited[index].only_direct = join->only_direct != 0;
    group_charge_answer(group, (uint32_t)index);
    if (!group->is_open && !group->invited[index].has_declined) { /* one each: the first */
        deadline_add(&group->arrivals, group->now_ns - group->form_ns);
    }
    forming_check(group, out);
    return RC_OK;
}

/* The START of a proposal we joined and left counts on us: said at once, that spares all in it a
 * deadline. True once. */
static bool was_left(struct group *group, struct member_ref from, const struct message_form *start)
{
    for (uint32_t i = 0; i < GROUP_LEFT_MAX; i++) {
        struct group_left *left = &group->left[i];

        if (!left->is_used || left->round != start->round || left->ballot != start->ballot ||
            !peer_id_is_equal(left->proposer.id, from.id)) {
            continue;
        }
        left->is_used = false;
        return true;
    }
    return false;
}

/* The round goes on without us: ours will be a later one. */
static enum rc start_without_us(struct group *group, struct member_ref from,
                                const struct message_form *start, struct commands *out)
{
    bool is_idle = group->state == GROUP_IDLE;
    bool is_proven = exchange_is_proven(&group->options, from.id);

    if (start->round < (is_idle ? group->counts.next_round : group->round)) return RC_STALE;
    if (group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA) return RC_STALE;
    if (group->state == GROUP_FORMING && group_joined_count(group) > 0) return RC_STALE;
    if (is_ours(group, from, start) && conduct_vain(&group->conduct, from.id, is_proven)) {
        commands_score(out, from.id, SCORE_LATE, "invites and begins without us");
    }
    group_hear_round(group, start->round + 1);
    if (group->has_heard && group->heard.round <= start->round) group->has_heard = false;
    if (is_idle) return RC_OK;
    if (is_ours(group, from, start)) group_came_back(group, false);
    /* What we joined may still begin, and counts on us. */
    if (group->state == GROUP_JOINED && !is_ours(group, from, start)) return RC_OK;
    group->round = group->counts.next_round;
    group->attempts = 0; /* the swarm moves on: being slow is not failing */
    become_ready(group, out);
    return RC_OK;
}

enum rc group_on_start(struct group *group, struct member_ref from,
                       const struct message_form *start, struct commands *out)
{
    enum rc rc = form_check(group, from, start);

    if (rc != RC_OK) return rc;
    conduct_start(&group->conduct, from.id);
    if (member_ref_is_equal(from, group->heard_from) && group->heard.round <= start->round) {
        group->has_heard = false; /* it is open no longer */
    }
    if (!group_form_has(start, self_of(group))) return start_without_us(group, from, start, out);
    if (is_ours(group, from, start)) {
        rc = group_start_check(group, start, out);
        if (rc != RC_OK) {
            group_start_refuse(group, from, start, rc == RC_FORMAT, out);
            become_ready(group, out);
            return rc;
        }
        group_charge_absent(group, start);
        if (group_is_leap(group, start->round)) group->ahead_left = 0;
        group->is_far = false;
        group_data_begin(group, start, out);
        return RC_OK;
    }
    if (was_left(group, from, start)) group_start_refuse(group, from, start, false, out);
    return RC_STALE;
}

enum rc group_form_on_abort(struct group *group, struct member_ref from,
                            const struct message_abort *abort, struct commands *out)
{
    int index = form_find(&group->form, from.id);

    if (group->has_heard && abort->key.counter == group->heard.round &&
        peer_id_is_equal(from.id, group->heard_from.id) &&
        peer_id_is_equal(from.id, abort->key.initiator)) {
        group->has_heard = false; /* it is taken back */
        if (group->state != GROUP_JOINED && group->state != GROUP_FORMING) return RC_OK;
    }
    if (group->state != GROUP_JOINED && group->state != GROUP_FORMING) return RC_STALE;
    if (index < 0 || !group_abort_fits(group, abort) ||
        !boot_id_is_equal(group->form.members[index].boot, from.boot)) {
        return RC_STALE;
    }
    if (group->state == GROUP_FORMING) {
        if (!group->invited[index].has_joined) group_charge_answer(group, (uint32_t)index);
        group->invited[index].has_joined = false;
        group->invited[index].has_declined = true;
        forming_check(group, out);
    } else if (peer_id_is_equal(from.id, group->proposer.id)) {
        group_came_back(group, true);
        group->promised = group->near; /* it will not start */
        become_ready(group, out);
    } else {
        group->invited[index].has_aborted = true;
    }
    return RC_OK;
}

/* ---- links and time ---- */

void group_form_on_link_up(struct group *group, struct member_ref peer, struct commands *out)
{
    int index = form_find(&group->form, peer.id);

    if (group->state != GROUP_FORMING || index < 0 || group->invited[index].has_joined) return;
    if (!boot_id_is_equal(group->form.members[index].boot, peer.boot)) return;
    send_form(&group->form, MESSAGE_FORM, peer.id, out); /* the first may have been lost */
    group_forming_wait(group);
}

void group_form_on_link_lost(struct group *group, struct peer_id peer, struct commands *out)
{
    int index = form_find(&group->form, peer);

    if (group->state == GROUP_JOINED && peer_id_is_equal(peer, group->proposer.id)) {
        group_came_back(group, false);
        become_ready(group, out);
    } else if (group->state == GROUP_FORMING && index >= 0) {
        if (!group->invited[index].has_joined) group_charge_answer(group, (uint32_t)index);
        group->invited[index].has_joined = false;
        forming_check(group, out);
    }
}

static void turn_to_heard(struct group *group, struct commands *out)
{
    bool is_open = group_hears_open(group);

    group->has_heard = false;
    if (is_open) (void)join(group, group->heard_from, &group->heard, out);
}

void group_form_tick(struct group *group, struct commands *out)
{
    if (group->state == GROUP_JOINED) {
        group_start_say_missing(group, out);
        if (group->now_ns >= group_turn_ns(group)) turn_to_heard(group, out);
    }
    if (group->now_ns < group_form_next_ns(group)) return;
    if (group->state == GROUP_JOINED) {
        commands_score(out, group->proposer.id, SCORE_LATE,
                       "proposed a round and did not start it");
        group_came_back(group, false);
        leave(group, NULL, 0, out);
        become_ready(group, out);
    } else if (group->state == GROUP_READY) {
        propose(group, out);
    } else if (group->state == GROUP_FORMING) {
        forming_close(group, out);
    }
}

uint64_t group_form_next_ns(const struct group *group)
{
    uint64_t next;

    switch (group->state) {
    case GROUP_READY:
        return own_turn_ns(group);
    case GROUP_JOINED:
        next = group_start_next_ns(group);
        if (group_turn_ns(group) < next) next = group_turn_ns(group);
        return next < group->wait_until_ns ? next : group->wait_until_ns;
    case GROUP_FORMING:
        return group->wait_until_ns;
    case GROUP_IDLE:
    case GROUP_SNAPSHOT: /* only the own job is awaited, and jobs always end */
    case GROUP_DATA:
        break;
    }
    return UINT64_MAX;
}

void group_form_cancel(struct group *group, struct commands *out)
{
    if (group->state == GROUP_FORMING) {
        forming_withdraw(group, out);
    } else if (group->state == GROUP_JOINED) {
        group_send_abort(group->proposer.id, group->proposer, group->form.round, ABORT_LOCAL, out);
        come_back(group);
    }
}
