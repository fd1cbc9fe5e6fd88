/*
 * Who has which START. Loop thread; pure.
 *
 * Nobody can tell whether a proposer says the same to all, but the members to each other: CREDIT
 * carries the digest of the START that its sender has. Two with unlike ones say so (CANCEL), do not
 * exchange in this round, and neither is charged for it, unless it becomes a habit (conduct.h). A
 * member that owns nothing, and so allows nothing, shows its digest to those that own a part with a
 * CREDIT of no chunks, or it would wait for one that was told of another round. The same says a
 * member that is allowed chunks and has no START at all, a moment later: so it is not taken for one
 * that is late. That is as much as a word of one member is worth. Where more than half of the
 * others, and two at least, have another START, or the proposer itself contradicts what it told us,
 * it is charged; and who was told nothing charges it when its wait for START is over.
 */
#include "averaging/group/group.h"

#include "averaging/core/times.h"
#include "base/check.h"

#include <string.h>

/* ---- its words ---- */

uint64_t group_stream(struct member_ref proposer, uint64_t round)
{
    const struct round_key key = {proposer.id, proposer.boot, round};

    return exchange_stream(&key);
}

struct statement group_statement(const struct message_form *start, uint32_t index)
{
    const uint8_t *bytes = start->statements + (size_t)index * STATEMENT_BYTES;

    return (struct statement){load_le64(bytes), load_le64(bytes + 8)};
}

struct digest group_start_digest(const struct message_form *start)
{
    enum { HEAD = 14, EACH = PEER_ID_BYTES + BOOT_ID_BYTES + STATEMENT_BYTES };
    uint8_t bytes[HEAD + GROUP_MEMBERS_MAX * EACH], *at = bytes + HEAD;

    store_le64(bytes, start->round);
    store_le32(bytes + 8, start->ballot);
    bytes[12] = start->schedule;
    bytes[13] = (uint8_t)start->members_count;
    for (uint32_t i = 0; i < start->members_count; i++) {
        memcpy(at, start->members[i].id.bytes, PEER_ID_BYTES);
        memcpy(at + PEER_ID_BYTES, start->members[i].boot.bytes, BOOT_ID_BYTES);
        memcpy(at + PEER_ID_BYTES + BOOT_ID_BYTES, start->statements + (size_t)i * STATEMENT_BYTES,
               STATEMENT_BYTES);
        at += EACH;
    }
    return hash_of(bytes, (size_t)(at - bytes));
}

static bool is_as_stated(const struct group *group, const struct message_form *start)
{
    for (uint32_t i = 0; i < start->members_count; i++) {
        struct statement said = group_statement(start, i);

        if (!peer_id_is_equal(start->members[i].id, group->options.self)) continue;
        return said.samples == group->stated.samples && said.rate == group->stated.rate;
    }
    return false;
}

/* START's list must be FORM's, thinned out: parts are counted along it. */
static bool is_thinned(const struct message_form *start, const struct message_form *form)
{
    uint32_t at = 0;

    for (uint32_t i = 0; i < start->members_count; i++) {
        while (at < form->members_count &&
               !peer_id_is_equal(form->members[at].id, start->members[i].id)) {
            at++;
        }
        if (at == form->members_count ||
            !boot_id_is_equal(form->members[at].boot, start->members[i].boot)) {
            return false;
        }
        at++;
    }
    return true;
}

enum rc group_start_check(struct group *group, const struct message_form *start,
                          struct commands *out)
{
    enum rc rc = is_thinned(start, &group->form) ? group_plan_check(group, start) : RC_FORMAT;

    if (rc != RC_OK || is_as_stated(group, start)) return rc;
    commands_score(out, group->proposer.id, SCORE_LATE, "says of us in START what we never said");
    return RC_FORMAT;
}

void group_start_refuse(const struct group *group, struct member_ref from,
                        const struct message_form *start, bool is_unlike, struct commands *out)
{
    for (uint32_t i = 0; i < start->members_count; i++) {
        struct peer_id id = start->members[i].id;

        if (!roster_has(&group->roster, id)) continue;
        if (is_unlike) {
            group_send_cancel(id, group_stream(from, start->round), out);
        } else {
            group_send_abort(id, from, start->round, ABORT_PROTOCOL, out);
        }
    }
}

/* ---- before ours comes ---- */

static struct invited *invited_find(struct group *group, struct member_ref ref)
{
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        const struct member_ref *member = &group->form.members[i];

        if (!peer_id_is_equal(member->id, ref.id)) continue;
        return boot_id_is_equal(member->boot, ref.boot) ? &group->invited[i] : NULL;
    }
    return NULL;
}

/* From one that has START already. It is kept until ours comes. */
enum rc group_form_on_credit(struct group *group, struct member_ref from,
                             const struct message_credit *credit)
{
    struct invited *invited = invited_find(group, from);

    if (invited == NULL) return RC_STALE;
    if (credit->chunks > group->options.chunks - invited->credit) return RC_FORMAT;
    if (invited->credit_ns == 0) {
        invited->credit_ns = group->now_ns;
        invited->start = credit->start;
    } else if (!digest_is_equal(invited->start, credit->start)) {
        return RC_FORMAT;
    }
    invited->credit += credit->chunks;
    return RC_OK;
}

enum rc group_form_on_cancel(struct group *group, struct member_ref from,
                             const struct message_cancel *cancel)
{
    struct invited *invited = invited_find(group, from);

    if (group->state != GROUP_JOINED || invited == NULL || cancel->stream != group->stream) {
        return RC_STALE;
    }
    invited->has_aborted = invited->is_unlike = true;
    return RC_OK;
}

/* Whoever allows us chunks has START. Ours comes from another, and may be a little later. */
static uint64_t start_due_ns(const struct group *group, uint32_t index)
{
    const struct invited *invited = &group->invited[index];
    uint64_t line_ns;

    if (invited->credit_ns == 0 || invited->has_aborted) return UINT64_MAX;
    line_ns = exchange_trips_ns(&group->options, group->proposer.id, 1, ANSWER_MOST_NS);
    return deadline_after(invited->credit_ns, deadline_most(START_LATE_NS, line_ns));
}

/* We wait on: START may yet come, and that the other has one is no more than its word. */
void group_start_say_missing(struct group *group, struct commands *out)
{
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        if (group->now_ns < start_due_ns(group, i)) continue;
        group->invited[i].has_aborted = true;
        group_send_cancel(group->form.members[i].id, group->stream, out);
    }
}

uint64_t group_start_next_ns(const struct group *group)
{
    uint64_t next = UINT64_MAX;

    for (uint32_t i = 0; i < group->form.members_count; i++) {
        uint64_t due_ns = start_due_ns(group, i);

        if (due_ns < next) next = due_ns;
    }
    return next;
}

void group_send_cancel(struct peer_id to, uint64_t stream, struct commands *out)
{
    struct message *message = commands_send(out, to, MESSAGE_CANCEL);

    if (message == NULL) return;
    message->as.cancel.stream = stream;
    message->as.cancel.code = CANCEL_START;
}

/* If the round is over here, its owner was too slow for us, and waits in vain for all we had; if we
 * turned from it, it waits as well. */
void group_refuse_credit(const struct group *group, struct member_ref from,
                         const struct message_credit *credit, struct commands *out)
{
    for (uint32_t i = 0; i < GROUP_PAST_MAX; i++) {
        const struct group_past *past = &group->past[i];

        if (!past->is_used || credit->stream != past->stream) continue;
        group_send_abort(from.id, past->proposer, past->round, ABORT_DEADLINE, out);
        return;
    }
    for (uint32_t i = 0; i < GROUP_LEFT_MAX; i++) {
        const struct group_left *left = &group->left[i];

        if (credit->stream != left->stream) continue;
        group_send_abort(from.id, left->proposer, left->round, ABORT_PROTOCOL, out);
        return;
    }
    group_send_cancel(from.id, credit->stream, out);
}

/* ---- who has another ---- */

/* Most others have another START, or none: then we, or they, were told apart by its proposer. One
 * or two may say so of any proposer. */
static void charge_for_unlike(struct group *group, uint32_t latest, struct commands *out)
{
    struct peer_id proposer = group->proposer.id;
    uint32_t unlike = 0, others = group->parties_count - 2; /* neither it nor we */
    bool is_its_own_word = peer_id_is_equal(group->parties[latest].ref.id, proposer);

    if (group->has_charged || peer_id_is_equal(proposer, group->options.self)) return;
    for (uint32_t i = 0; i < group->parties_count; i++) {
        unlike += group->parties[i].is_unlike;
    }
    if (!is_its_own_word && (unlike < 2 || 2 * unlike <= others)) return;
    group->has_charged = true;
    commands_score(out, proposer, SCORE_LATE, "told the members of its round different things");
}

void group_part_ways(struct group *group, uint32_t index, struct commands *out)
{
    if (group->parties[index].is_unlike) return;
    group->parties[index].is_unlike = true;
    group_party_left(group, index, out);
    charge_for_unlike(group, index, out);
}

void group_start_heard(struct group *group, struct commands *out)
{
    for (uint32_t i = 0; i < group->form.members_count; i++) {
        const struct invited *invited = &group->invited[i];
        int index = group_party_find(group, group->form.members[i].id);

        if (index < 0) continue;
        group->parties[index].credit = invited->credit;
        if (invited->credit_ns != 0 && !digest_is_equal(invited->start, group->start)) {
            group_send_cancel(group->form.members[i].id, group->stream, out);
            group_part_ways(group, (uint32_t)index, out);
        } else if (invited->is_unlike) {
            group_part_ways(group, (uint32_t)index, out);
        } else if (invited->has_aborted) {
            group_party_left(group, (uint32_t)index, out);
        }
    }
}

enum rc group_on_cancel(struct group *group, struct member_ref from,
                        const struct message_cancel *cancel, struct commands *out)
{
    int index = group_party_of(group, from);

    if (index < 0 || cancel->stream != group->stream) return RC_STALE;
    group_part_ways(group, (uint32_t)index, out);
    group_data_advance(group, out);
    return RC_OK;
}
