/*
 * exchange group: several peers average, each reducing one part of the plane (part-owner reduce, as
 * in the butterfly all-reduce of Moshpit SGD: Ryabinin et al. 2021, arXiv:2103.03239). There is no
 * coordinator: who proposes is a function of the round, and a silent one is replaced.
 *
 *          .---------------------------- no START, or without us -----------------.
 *          v                                                                      |
 *  IDLE --begin--> READY --FORM--> JOINED ----START----> SNAPSHOT --done--> DATA  |
 *   ^               |  '----------^  |  '-------------------^  '--failed----. |   |
 *   |               '--our turn--> FORMING --all joined, or window over-----' |   |
 *   |                                |  '--another FORM: *_turn.c--> JOINED -+---'
 *   '---------- nobody joined -------'        IDLE <--- all parts ended ------'
 *
 * Forming. FORM{round, ballot, invited} goes to all; who is ready answers JOIN, who is not yet
 * remembers it and answers when its own round begins. START{who joined} goes to all invited when
 * everyone linked has answered or the window (deadline.h) closes. The n-th in the order waits n
 * windows and then proposes with a higher ballot. Where training goes on meanwhile, a proposal that
 * nobody has joined when its window is over stays open (form_wait.c). A member joins at
 * most one FORM per (round, ballot), and only rising ones; one that is listed by a START it has
 * turned from says ABORT at once, so nobody waits for it. A round number is used up when a START
 * was sent.
 *
 * Data. Chunks are split into contiguous parts, one per member in START's order, by the rates that
 * START tells. Everyone snapshots, then grants CREDIT for its own part: a chunk therefore never
 * arrives where it cannot be absorbed yet, and little is under way. The owner reduces a chunk when
 * each member's contribution is in or the member was dropped (link, NaN, deadline), and sends the
 * mean on; MEAN with a hash over all chunk hashes closes the part. In direct rounds the
 * connection vouches for what the owner itself sends, and these hashes are zeros.
 *
 * START may say another schedule (schedule.h): values and means of a part then go along a tree,
 * whose inner members add up what their children give before they pass it on, and pass means back.
 * MEAN still comes from the owner itself, so who passes a mean on cannot change it. A sum stands
 * for all below it, so nobody can be dropped: with the first that fails, all parts still open come
 * to nothing, everyone is told, and for some rounds proposals are direct.
 *
 * Safety is per part: it ends as the owner's mean, complete and checked, or as our own values.
 * Nothing a single member does can make a part half applied. Loop thread; pure.
 */
#include "averaging/group/group.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <string.h>

enum { SAVE_VERSION = 1, SAVE_BYTES = 12 };

static struct group *group_of(struct exchange *exchange)
{
    return (struct group *)(void *)exchange;
}

static const struct group *group_seen(const struct exchange *exchange)
{
    return (const struct group *)(const void *)exchange;
}

static void group_destroy(struct exchange *exchange)
{
    struct group *group = group_of(exchange);

    if (group == NULL) return;
    mem_free(group->arrived);
    mem_free(group->absorbed);
    mem_free(group->partials);
    mem_free(group->means);
    mem_free(group->hashes);
    mem_free(group->bitmap);
    mem_free(group);
}

static struct exchange *group_create(const struct exchange_options *options)
{
    struct group *group = mem_alloc(sizeof *group);

    if (group == NULL) return NULL;
    CHECK(options->chunks <= CHUNKS_MAX);
    group->base.ops = &exchange_group;
    group->options = *options;
    group->ahead_left = GROUP_ROUND_NEAR;
    patience_begin(&group->patience, 0);
    group->bitmap_bytes = (options->chunks + 7) / 8;
    group->arrived = mem_array(options->chunks, sizeof *group->arrived);
    group->absorbed = mem_array(options->chunks, sizeof *group->absorbed);
    group->partials = mem_alloc(options->chunks);
    group->means = mem_alloc(options->chunks);
    group->hashes = mem_array(options->chunks, sizeof *group->hashes);
    group->bitmap = mem_alloc(group->bitmap_bytes);
    if (group->arrived == NULL || group->absorbed == NULL || group->partials == NULL ||
        group->means == NULL || group->hashes == NULL || group->bitmap == NULL) {
        group_destroy(&group->base);
        return NULL;
    }
    return &group->base;
}

/* ---- links ---- */

static void link_add(struct group *group, struct member_ref ref)
{
    (void)roster_add(&group->roster, ref); /* if it is full: as if out of reach */
}

/* ---- shared by both phases ---- */

#define TO(state) (1u << GROUP_##state)
static const unsigned may_become[GROUP_DATA + 1] = {
    [GROUP_IDLE] = TO(READY),
    [GROUP_READY] = TO(READY) | TO(FORMING) | TO(JOINED) | TO(IDLE),
    [GROUP_FORMING] = TO(READY) | TO(JOINED) | TO(SNAPSHOT) | TO(IDLE),
    [GROUP_JOINED] = TO(READY) | TO(JOINED) | TO(SNAPSHOT) | TO(IDLE),
    [GROUP_SNAPSHOT] = TO(DATA) | TO(IDLE),
    [GROUP_DATA] = TO(IDLE),
};

void group_become(struct group *group, enum group_state next)
{
    CHECK((may_become[group->state] & (1u << next)) != 0);
    group->state = next;
}

void group_send_abort(struct peer_id to, struct member_ref proposer, uint64_t round,
                      enum abort_code code, struct commands *out)
{
    commands_abort(out, to, &(struct round_key){proposer.id, proposer.boot, round}, code);
}

bool group_abort_fits(const struct group *group, const struct message_abort *abort)
{
    return abort->key.counter == group->round &&
           peer_id_is_equal(abort->key.initiator, group->proposer.id) &&
           boot_id_is_equal(abort->key.boot, group->proposer.boot);
}

int group_party_find(const struct group *group, struct peer_id id)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        if (peer_id_is_equal(group->parties[i].ref.id, id)) return (int)i;
    }
    return -1;
}

static uint32_t parties_alive(const struct group *group)
{
    uint32_t alive = 0;

    if (group_relays(group)) return group->parties_count; /* in what is complete */
    for (uint32_t i = 0; i < group->parties_count; i++) {
        alive += i == group->self || (group->parties[i].is_linked && !group->parties[i].is_dropped);
    }
    return alive;
}

/* Who gave both its contribution and its part has kept its word. */
static void score_the_faithful(struct group *group, struct commands *out)
{
    for (uint32_t i = 0; i < group->parties_count; i++) {
        const struct party *party = &group->parties[i];

        if (i == group->self || party->is_dropped || party->part != PART_COMMITTED) continue;
        commands_score(out, party->ref.id, SCORE_COMMITTED, NULL);
        if (party->count > 0) conduct_returned(&group->conduct, party->ref.id);
    }
}

void group_over(struct group *group, enum over_result result, const char *reason, bool is_skipped,
                struct commands *out)
{
    bool has_started = group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA;
    struct command *over = commands_add(out, COMMAND_OVER);

    if (has_started) group_plan_learn(group, result == OVER_COMMITTED);
    if (result == OVER_COMMITTED) {
        group->counts.rounds_ok++;
        group_ahead_earn(group, GROUP_AHEAD_ROUND);
    } else {
        group->counts.rounds_aborted += !is_skipped;
        group->counts.rounds_skipped += is_skipped;
        group->counts.last_abort = reason;
    }
    if (over != NULL) {
        over->over.result = result;
        over->over.round = group->round;
        over->over.bitmap = group->bitmap;
        over->over.bitmap_bytes = group->bitmap_bytes;
        over->over.scale = 1;
        over->over.members = has_started ? parties_alive(group) : 0;
        over->over.reason = reason;
    }
    if (result == OVER_COMMITTED) score_the_faithful(group, out); /* `over` may move */
    if (has_started) {
        group->past[group->past_next] =
            (struct group_past){group->proposer, group->round, group->stream, true};
        group->past_next = (group->past_next + 1) % GROUP_PAST_MAX;
    }
    if (has_started || group->promised.next > GROUP_BALLOT_MAX) {
        group_set_next(group, group->round + 1);
    }
    group_become(group, GROUP_IDLE);
}

/* ---- the contract ---- */

static void group_cancel(struct exchange *exchange, const char *reason, uint64_t now_ns,
                         struct commands *out)
{
    struct group *group = group_of(exchange);

    group->now_ns = now_ns;
    if (group->state == GROUP_IDLE) return;
    if (group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA) {
        group_data_cancel(group, ABORT_LOCAL, out);
    } else {
        group_form_cancel(group, out);
    }
    group_over(group, OVER_ABORTED, reason, false, out);
}

static void group_set_lineage(struct exchange *exchange, struct digest lineage,
                              struct commands *out)
{
    struct group *group = group_of(exchange);

    if (digest_is_equal(group->lineage, lineage)) return;
    group_cancel(exchange, "the model was replaced", group->now_ns, out);
    group->lineage = lineage;
    group->has_heard = false;
}

static enum rc group_begin(struct exchange *exchange, const struct round_members *members,
                           uint64_t samples, uint64_t now_ns, struct commands *out)
{
    static const struct digest none;
    struct group *group = group_of(exchange);
    bool has_self = false;

    group->now_ns = now_ns;
    if (group->state != GROUP_IDLE) return RC_BUSY;
    if (members->count < 2 || digest_is_equal(group->lineage, none)) return RC_NOT_FOUND;
    CHECK(members->count <= GROUP_MEMBERS_MAX);
    for (uint32_t i = 0; i < members->count; i++) {
        group->order[i] = (struct member_ref){members->ids[i], members->boots[i]};
        if (peer_id_is_equal(members->ids[i], group->options.self)) {
            has_self = true;
            group->order_self = i;
        } else {
            link_add(group, group->order[i]);
        }
    }
    CHECK(has_self);
    group->order_count = members->count;
    group->samples = samples;
    patience_begin(&group->patience, members->period_ns);
    group->round = group->counts.next_round;
    group->attempts = 0;
    group_lines_learn(group);
    group_form_begin(group, out);
    return RC_OK;
}

static enum rc on_credit(struct group *group, struct member_ref from,
                         const struct message_credit *credit, struct commands *out)
{
    bool has_started = group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA;
    bool is_ours = has_started || group->state == GROUP_JOINED;

    if (!is_ours || credit->stream != group->stream) {
        group_refuse_credit(group, from, credit, out);
        return RC_STALE;
    }
    if (!group_form_has(&group->form, from)) { /* it was told that we are in its round */
        group_send_cancel(from.id, credit->stream, out);
        return RC_MISMATCH;
    }
    return has_started ? group_on_credit(group, from, credit, out)
                       : group_form_on_credit(group, from, credit);
}

static enum rc group_on_message(struct exchange *exchange, struct peer_id from, struct boot_id boot,
                                const struct message *message, uint64_t now_ns,
                                struct commands *out)
{
    struct group *group = group_of(exchange);
    struct member_ref ref = {from, boot};
    bool has_started = group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA;

    group->now_ns = now_ns;
    if (peer_id_is_equal(from, group->options.self)) return RC_FORMAT;
    link_add(group, ref);
    group_ahead_refill(group);
    switch (message->type) {
    case MESSAGE_FORM:
        return group_on_form(group, ref, &message->as.form, out);
    case MESSAGE_JOIN:
        return group_on_join(group, ref, &message->as.join, out);
    case MESSAGE_START:
        return group_on_start(group, ref, &message->as.form, out);
    case MESSAGE_MEAN:
        return group_on_mean(group, ref, &message->as.mean, out);
    case MESSAGE_CREDIT:
        return on_credit(group, ref, &message->as.credit, out);
    case MESSAGE_CANCEL:
        return has_started ? group_on_cancel(group, ref, &message->as.cancel, out)
                           : group_form_on_cancel(group, ref, &message->as.cancel);
    case MESSAGE_ABORT:
        return has_started ? group_on_abort(group, ref, &message->as.abort, out)
                           : group_form_on_abort(group, ref, &message->as.abort, out);
    default:
        return RC_FORMAT;
    }
}

static enum rc group_ops_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                                  struct chunk_use *use)
{
    return group_on_chunk(group_of(exchange), chunk, use);
}

static void group_ops_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk,
                                       enum rc rc, struct digest hash, float squared_distance,
                                       uint64_t now_ns, struct commands *out)
{
    (void)squared_distance; /* only pairs agree on norms */
    group_of(exchange)->now_ns = now_ns;
    group_on_chunk_checked(group_of(exchange), chunk, rc, hash, out);
}

static void group_ops_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first,
                                  enum rc rc, struct digest hash, uint64_t now_ns,
                                  struct commands *out)
{
    group_of(exchange)->now_ns = now_ns;
    group_on_job_done(group_of(exchange), job, first, rc, hash, out);
}

static void group_on_link_up(struct exchange *exchange, struct peer_id peer, struct boot_id boot,
                             uint64_t now_ns, struct commands *out)
{
    struct group *group = group_of(exchange);
    struct member_ref ref = {peer, boot};

    group->now_ns = now_ns;
    link_add(group, ref);
    group_form_on_link_up(group, ref, out);
}

static void group_on_link_lost(struct exchange *exchange, struct peer_id peer, uint64_t now_ns,
                               struct commands *out)
{
    struct group *group = group_of(exchange);

    group->now_ns = now_ns;
    (void)roster_remove(&group->roster, peer);
    if (group->state == GROUP_SNAPSHOT || group->state == GROUP_DATA) {
        group_data_on_link_lost(group, peer, out);
    } else {
        group_form_on_link_lost(group, peer, out);
    }
}

bool group_is_busy(const struct group *group)
{
    return group->options.is_busy != NULL && *group->options.is_busy;
}

/* Nobody is to wait for us: neither who has proposed something, nor who may join what we did. */
static void decline(struct group *group, struct commands *out)
{
    group_form_decline(group, out);
    if (!group_lingers(group)) return;
    group_form_cancel(group, out);
    group_over(group, OVER_ABORTED, "nobody else was ready", true, out);
}

static void group_tick(struct exchange *exchange, uint64_t now_ns, struct commands *out)
{
    struct group *group = group_of(exchange);

    group->now_ns = now_ns;
    if (group_is_busy(group)) decline(group, out);
    if (group->state == GROUP_DATA) {
        group_grant_all(group, out); /* what was refused */
        group_data_tick(group, out);
    } else {
        group_form_tick(group, out);
    }
}

static uint64_t group_next_ns(const struct exchange *exchange)
{
    const struct group *group = group_seen(exchange);

    return group->state == GROUP_DATA ? group_data_next_ns(group) : group_form_next_ns(group);
}

static enum exchange_state group_state(const struct exchange *exchange)
{
    const struct group *group = group_seen(exchange);

    if (group->state == GROUP_IDLE) return EXCHANGE_IDLE;
    return group_lingers(group) ? EXCHANGE_LINGERS : EXCHANGE_RUNS;
}

static void group_counts(const struct exchange *exchange, struct exchange_counts *counts)
{
    *counts = group_seen(exchange)->counts;
    counts->rate = group_rate(group_seen(exchange));
    counts->invited_until_ns = group_invited_until_ns(group_seen(exchange));
    counts->inviter = group_seen(exchange)->heard_from.id;
}

static void group_set_round(struct exchange *exchange, uint64_t round)
{
    group_set_next(group_of(exchange), round);
}

static enum rc group_save(const struct exchange *exchange, uint8_t **bytes, size_t *count)
{
    uint8_t *saved = mem_alloc(SAVE_BYTES);

    if (saved == NULL) return RC_NOMEM;
    store_le32(saved, SAVE_VERSION);
    store_le64(saved + 4, group_seen(exchange)->counts.next_round);
    *bytes = saved;
    *count = SAVE_BYTES;
    return RC_OK;
}

static enum rc group_load(struct exchange *exchange, const uint8_t *bytes, size_t count)
{
    if (count != SAVE_BYTES || load_le32(bytes) != SAVE_VERSION) return RC_FORMAT;
    if (load_le64(bytes + 4) > UINT64_MAX / 2) return RC_FORMAT;
    group_set_round(exchange, load_le64(bytes + 4));
    return RC_OK;
}

const struct exchange_ops exchange_group = {
    .name = "group",
    .is_group = true,
    .has_mean = true,
    .clips_chunks = true,
    .create = group_create,
    .destroy = group_destroy,
    .set_lineage = group_set_lineage,
    .begin = group_begin,
    .on_message = group_on_message,
    .on_chunk = group_ops_on_chunk,
    .on_chunk_checked = group_ops_on_chunk_checked,
    .on_job_done = group_ops_on_job_done,
    .on_link_up = group_on_link_up,
    .on_link_lost = group_on_link_lost,
    .tick = group_tick,
    .next_ns = group_next_ns,
    .cancel = group_cancel,
    .state = group_state,
    .counts = group_counts,
    .allowed = group_allowed,
    .set_round = group_set_round,
    .save = group_save,
    .load = group_load,
};
