/*
 * exchange pair: two peers move towards each other by exactly opposite differences, both or
 * neither. Two-phase commit with the initiator as coordinator and presumed abort (Mohan, Lindsay
 * 1983), over the half-way step of AD-PSGD (Lian et al. 2018, arXiv:1710.06952).
 *
 *  initiator   IDLE --begin: OFFER--> OFFERED --ACCEPT--> SNAPSHOT --done--> DATA --all staged, and
 *                                                              READY heard: COMMIT--> IDLE
 *  participant IDLE --OFFER: ACCEPT--> SNAPSHOT --done--> DATA --all staged: READY--> PREPARED
 *              PREPARED --COMMIT: DONE--> IDLE          PREPARED --link lost, deadline--> in doubt
 *
 *  Any state but PREPARED --ABORT, link lost, deadline, NaN--> IDLE, nothing changed.
 *
 * From READY on the participant may not abort by itself. In doubt the round's slot is free again:
 * differences add up, so this one can be applied whenever the outcome is learned
 * (outcomes.c). Data goes both ways under credit, granted once the own snapshot is
 * there. READY carries squared norms per chunk (at most PAIR_NORMS_MAX of them), which the
 * initiator compares with its own before it decides: both must have seen the same two planes.
 * Rounds commit whole: the bitmap is full or the round aborts. Outcomes are asked of the initiator,
 * and where it does not answer through others, who pass on what it signed
 * (peer/node/rounds/outcome.c). Loop thread; pure.
 */
#include "averaging/pair/pair.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

enum { SCORE_KEPT = 1, SCORE_MISS = -1, SCORE_VIOLATION = -100 };

static struct pair *pair_of(struct exchange *exchange)
{
    return (struct pair *)(void *)exchange;
}

static const struct pair *pair_seen_of(const struct exchange *exchange)
{
    return (const struct pair *)(const void *)exchange;
}

static void pair_destroy(struct exchange *exchange)
{
    struct pair *pair = pair_of(exchange);

    if (pair == NULL) return;
    mem_free(pair->chunks);
    mem_free(pair->norms);
    mem_free(pair->norms_sent);
    mem_free(pair->norms_heard);
    mem_free(pair->bitmap);
    mem_free(pair->outcomes);
    mem_free(pair->seen);
    mem_free(pair);
}

static struct exchange *pair_create(const struct exchange_options *options)
{
    struct pair *pair = mem_alloc(sizeof *pair);

    if (pair == NULL) return NULL;
    CHECK(options->chunks <= CHUNKS_MAX);
    CHECK(options->alpha > 0 && options->alpha <= 0.5f);
    pair->base.ops = &exchange_pair;
    pair->options = *options;
    pair->stride = (options->chunks + PAIR_NORMS_MAX - 1) / PAIR_NORMS_MAX;
    if (pair->stride == 0) pair->stride = 1;
    pair->norms_count = (options->chunks + pair->stride - 1) / pair->stride;
    pair->bitmap_bytes = (options->chunks + 7) / 8;
    pair->chunks = mem_alloc(options->chunks);
    pair->norms = mem_array(pair->norms_count, sizeof *pair->norms);
    pair->norms_sent = mem_array(pair->norms_count, sizeof(float));
    pair->norms_heard = mem_array(pair->norms_count, sizeof(float));
    pair->bitmap = mem_alloc(pair->bitmap_bytes);
    pair->outcomes = mem_array(PAIR_OUTCOMES_MAX, sizeof *pair->outcomes);
    pair->seen = mem_array(PAIR_SEEN_MAX, sizeof *pair->seen);
    if (pair->chunks == NULL || pair->norms == NULL || pair->norms_sent == NULL ||
        pair->norms_heard == NULL || pair->bitmap == NULL || pair->outcomes == NULL ||
        pair->seen == NULL) {
        pair_destroy(&pair->base);
        return NULL;
    }
    for (uint32_t i = 0; i < options->chunks; i++) {
        pair->bitmap[i / 8] |= (uint8_t)(1u << i % 8);
    }
    return &pair->base;
}

/* ---- links ---- */

static struct member_ref *link_find(struct pair *pair, struct peer_id id)
{
    for (uint32_t i = 0; i < pair->links_count; i++) {
        if (peer_id_is_equal(pair->links[i].id, id)) return &pair->links[i];
    }
    return NULL;
}

static void link_add(struct pair *pair, struct peer_id id, struct boot_id boot)
{
    struct member_ref *link = link_find(pair, id);

    if (link == NULL) {
        if (pair->links_count == LINKS_MAX) return;
        link = &pair->links[pair->links_count++];
    }
    *link = (struct member_ref){id, boot};
}

bool pair_is_linked(const struct pair *pair, struct peer_id id)
{
    for (uint32_t i = 0; i < pair->links_count; i++) {
        if (peer_id_is_equal(pair->links[i].id, id)) return true;
    }
    return false;
}

/* ---- small things ---- */

bool round_key_is_equal(const struct round_key *a, const struct round_key *b)
{
    return a->counter == b->counter && peer_id_is_equal(a->initiator, b->initiator) &&
           boot_id_is_equal(a->boot, b->boot);
}

struct message *pair_send(struct peer_id to, enum message_type type, struct commands *out)
{
    struct command *send = commands_add(out, COMMAND_SEND);

    if (send == NULL) return NULL;
    send->to = to;
    send->message.type = type;
    return &send->message;
}

void pair_score(struct peer_id to, int32_t score, const char *reason, struct commands *out)
{
    struct command *command = commands_add(out, COMMAND_SCORE);

    if (command == NULL) return;
    command->to = to;
    command->score = score;
    command->reason = reason;
}

bool pair_is_partner(const struct pair *pair, struct member_ref from)
{
    return pair->state != PAIR_IDLE && peer_id_is_equal(pair->partner.id, from.id) &&
           boot_id_is_equal(pair->partner.boot, from.boot);
}

bool pair_is_running(const struct pair *pair, struct member_ref from, const struct round_key *key)
{
    return pair_is_partner(pair, from) && round_key_is_equal(&pair->key, key);
}

/* ---- the end of a round ---- */

static void over_add(struct pair *pair, enum over_result result, float scale, const char *reason,
                     struct commands *out)
{
    struct command *over = commands_add(out, COMMAND_OVER);

    pair->state = PAIR_IDLE;
    if (over == NULL) return;
    over->over.result = result;
    over->over.key = pair->key;
    over->over.bitmap = pair->bitmap;
    over->over.bitmap_bytes = pair->bitmap_bytes;
    over->over.scale = scale;
    over->over.members = result == OVER_ABORTED ? 0 : 2;
    over->over.reason = reason;
}

static void pair_skip(struct pair *pair, const char *reason, struct commands *out)
{
    pair->counts.rounds_skipped++;
    pair->counts.last_abort = reason;
    over_add(pair, OVER_ABORTED, 0, reason, out);
}

void pair_abort(struct pair *pair, enum abort_code code, const char *reason, struct commands *out)
{
    struct message *message = NULL;

    CHECK(pair->state != PAIR_PREPARED || !pair->is_initiator);
    if (pair_is_linked(pair, pair->partner.id)) {
        message = pair_send(pair->partner.id, MESSAGE_ABORT, out);
    }
    if (message != NULL) {
        message->as.abort.key = pair->key;
        message->as.abort.code = code;
    }
    if (code == ABORT_DEADLINE) { /* it takes longer than thought */
        deadline_add(&pair->rounds, 2 * (pair->now_ns - pair->begun_ns));
    }
    pair->counts.rounds_aborted++;
    pair->counts.last_abort = reason;
    over_add(pair, OVER_ABORTED, 0, reason, out);
}

void pair_commit(struct pair *pair, float scale, struct commands *out)
{
    pair_score(pair->partner.id, SCORE_KEPT, NULL, out);
    pair->counts.rounds_ok++;
    if (scale < 1) pair->counts.rounds_clipped++;
    deadline_add(&pair->rounds, pair->now_ns - pair->begun_ns);
    over_add(pair, OVER_COMMITTED, pair->alpha * scale, NULL, out);
}

static void pair_enter_doubt(struct pair *pair, struct commands *out)
{
    CHECK(pair->state == PAIR_PREPARED);
    pair_doubt_add(pair, pair_clip_scale(pair), out);
    over_add(pair, OVER_IN_DOUBT, 1, NULL, out);
}

/* ---- a round begins ---- */

static void round_reset(struct pair *pair, bool is_initiator, struct member_ref partner,
                        const struct round_key *key)
{
    pair->is_initiator = is_initiator;
    pair->partner = partner;
    pair->key = *key;
    pair->stream = exchange_stream(key);
    pair->begun_ns = pair->now_ns;
    pair->credit = pair->sent = pair->granted = pair->received = pair->done = 0;
    pair->has_ready = false;
    memset(pair->chunks, 0, pair->options.chunks);
    memset(pair->norms, 0, pair->norms_count * sizeof *pair->norms);
}

static void take_snapshot(struct pair *pair, struct commands *out)
{
    pair->state = PAIR_SNAPSHOT;
    (void)commands_add(out, COMMAND_SNAPSHOT);
}

static enum rc pair_begin(struct exchange *exchange, const struct round_members *members,
                          uint64_t samples, uint64_t now_ns, struct commands *out)
{
    static const struct digest none;
    struct pair *pair = pair_of(exchange);
    struct round_key key = {pair->options.self, pair->options.boot, pair->counter + 1};
    struct message_offer *offer;
    struct message *message;

    pair->now_ns = now_ns;
    if (pair->state != PAIR_IDLE) return RC_BUSY;
    if (members->count == 0 || digest_is_equal(pair->lineage, none)) return RC_NOT_FOUND;
    CHECK(members->count == 1 && !peer_id_is_equal(members->ids[0], pair->options.self));
    if (pair_is_in_doubt_with(pair, members->ids[0])) return RC_BUSY;
    if (pair->outcomes_count == PAIR_OUTCOMES_MAX) return RC_BUSY;
    message = pair_send(members->ids[0], MESSAGE_OFFER, out);
    if (message == NULL) return RC_NOMEM;
    pair->counter++;
    link_add(pair, members->ids[0], members->boots[0]);
    round_reset(pair, true, (struct member_ref){members->ids[0], members->boots[0]}, &key);
    pair->state = PAIR_OFFERED;
    pair->alpha = pair->options.alpha;
    pair->tau = exchange_radius(&pair->options, &pair->distances);
    pair->deadline_ns = deadline_after(now_ns, pair_answer_wait_ns(pair));
    offer = &message->as.offer;
    offer->key = key;
    offer->step = samples;
    offer->schema = pair->options.schema;
    offer->lineage = pair->lineage;
    memcpy(offer->codec, pair->options.codec, sizeof offer->codec);
    offer->chunks = pair->options.chunks;
    offer->alpha = pair->alpha;
    offer->tau = pair->tau;
    offer->deadline_ms = (uint32_t)(pair_round_wait_ns(pair, members->ids[0]) / NS_PER_MS);
    return RC_OK;
}

/* Offers of one start of a peer rise. The oldest entry gives way. */
static bool offer_is_new(struct pair *pair, struct member_ref from, uint64_t counter)
{
    for (uint32_t i = 0; i < pair->seen_count; i++) {
        struct pair_seen *seen = &pair->seen[i];

        if (!peer_id_is_equal(seen->id, from.id) || !boot_id_is_equal(seen->boot, from.boot)) {
            continue;
        }
        if (counter <= seen->counter) return false;
        seen->counter = counter;
        return true;
    }
    pair->seen[pair->seen_next] = (struct pair_seen){from.id, from.boot, counter};
    pair->seen_next = (pair->seen_next + 1) % PAIR_SEEN_MAX;
    if (pair->seen_count < PAIR_SEEN_MAX) pair->seen_count++;
    return true;
}

/* 0: fine. */
static uint32_t offer_objection(struct pair *pair, struct member_ref from,
                                const struct message_offer *offer)
{
    static const struct digest none;
    /* Both offered at once: the smaller id's round goes on. */
    bool is_crossed = pair->state == PAIR_OFFERED && pair_is_partner(pair, from);

    if (digest_is_equal(pair->lineage, none)) return REJECT_NOT_READY;
    if (offer->chunks != pair->options.chunks ||
        !digest_is_equal(offer->schema, pair->options.schema)) {
        return REJECT_SCHEMA;
    }
    if (!digest_is_equal(offer->lineage, pair->lineage)) return REJECT_LINEAGE;
    if (strncmp(offer->codec, pair->options.codec, sizeof offer->codec) != 0) return REJECT_CODEC;
    if (pair->state != PAIR_IDLE && !is_crossed) return REJECT_BUSY;
    if (pair_is_in_doubt_with(pair, from.id) || pair_doubt_free(pair) == NULL) return REJECT_BUSY;
    if (pair->outcomes_count == PAIR_OUTCOMES_MAX) return REJECT_BUSY;
    return 0;
}

static enum rc on_offer(struct pair *pair, struct member_ref from,
                        const struct message_offer *offer, struct commands *out)
{
    struct message *message;
    uint32_t objection;

    if (!peer_id_is_equal(offer->key.initiator, from.id) ||
        !boot_id_is_equal(offer->key.boot, from.boot)) {
        return RC_FORMAT;
    }
    if (!(offer->alpha > 0 && offer->alpha <= 0.5f) || !(offer->tau >= 0) ||
        !isfinite(offer->tau)) {
        return RC_FORMAT;
    }
    if (!offer_is_new(pair, from, offer->key.counter)) return RC_REPLAY;
    objection = offer_objection(pair, from, offer);
    if (objection != REJECT_CODEC && pair->state == PAIR_OFFERED && pair_is_partner(pair, from) &&
        peer_id_compare(pair->options.self, from.id) < 0) {
        return RC_BUSY; /* it will accept ours */
    }
    message = pair_send(from.id, objection == 0 ? MESSAGE_ACCEPT : MESSAGE_REJECT, out);
    if (message == NULL) return RC_NOMEM;
    if (objection != 0) {
        message->as.reject.key = offer->key;
        message->as.reject.code = objection;
        message->as.reject.retry_ms = pair_retry_ms(pair);
        return objection == REJECT_BUSY ? RC_BUSY : RC_MISMATCH;
    }
    round_reset(pair, false, from, &offer->key);
    pair->alpha = offer->alpha < pair->options.alpha ? offer->alpha : pair->options.alpha;
    pair->tau =
        robust_smaller_radius(offer->tau, exchange_radius(&pair->options, &pair->distances));
    pair->deadline_ns =
        deadline_after(pair->now_ns, pair_offered_wait_ns(pair, from.id, offer->deadline_ms));
    message->as.accept.key = offer->key;
    message->as.accept.alpha = pair->alpha;
    message->as.accept.tau = pair->tau;
    message->as.accept.credit = 0; /* CREDIT follows when our snapshot is there */
    take_snapshot(pair, out);
    return RC_OK;
}

static enum rc on_accept(struct pair *pair, struct member_ref from,
                         const struct message_accept *accept, struct commands *out)
{
    if (pair->state != PAIR_OFFERED || !pair_is_running(pair, from, &accept->key)) return RC_STALE;
    if (!(accept->alpha > 0 && accept->alpha <= pair->alpha)) return RC_FORMAT;
    if (!(accept->tau >= 0) || !isfinite(accept->tau)) return RC_FORMAT;
    if (accept->credit > pair->options.chunks) return RC_FORMAT;
    pair->alpha = accept->alpha;
    pair->tau = robust_smaller_radius(pair->tau, accept->tau);
    pair->credit = accept->credit;
    pair->deadline_ns = deadline_after(pair->begun_ns, pair_round_wait_ns(pair, from.id));
    deadline_add(&pair->answers, pair->now_ns - pair->begun_ns);
    take_snapshot(pair, out);
    return RC_OK;
}

static enum rc on_reject(struct pair *pair, struct member_ref from,
                         const struct message_reject *reject, struct commands *out)
{
    static const char *const reasons[] = {
        [REJECT_BUSY] = "the partner was busy",
        [REJECT_STALE] = "the partner says this model is too old",
        [REJECT_SCHEMA] = "the partner trains another model",
        [REJECT_LINEAGE] = "the partner's model has another origin",
        [REJECT_NOT_READY] = "the partner has no model yet",
        [REJECT_CODEC] = "the partner has another codec or rule",
    };

    if (pair->state != PAIR_OFFERED || !pair_is_running(pair, from, &reject->key)) return RC_STALE;
    if (reject->code == 0 || reject->code >= ARRAY_COUNT(reasons)) return RC_FORMAT;
    deadline_add(&pair->answers, pair->now_ns - pair->begun_ns);
    pair->counts.retry_ns = deadline_after(pair->now_ns, reject->retry_ms * NS_PER_MS);
    pair_skip(pair, reasons[reject->code], out);
    return RC_OK;
}

/* ---- decisions ---- */

static void send_done(struct peer_id to, const struct round_key *key, struct commands *out)
{
    struct message *message = pair_send(to, MESSAGE_DONE, out);

    if (message != NULL) message->as.outcome_req.key = *key;
}

/* COMMIT, or an OUTCOME that says committed: in time, late, or for the second time. */
static enum rc on_committed(struct pair *pair, struct member_ref from, const struct round_key *key,
                            const uint8_t *bitmap, uint32_t bitmap_bytes, float scale,
                            struct commands *out)
{
    const struct pair_doubt *doubt = pair_doubt_find(pair, key);
    bool is_now = pair->state == PAIR_PREPARED && pair_is_running(pair, from, key);
    enum rc rc;

    if (!peer_id_is_equal(key->initiator, from.id)) return RC_FORMAT;
    if (!is_now && doubt == NULL) {
        if (pair->state != PAIR_IDLE && pair_is_running(pair, from, key))
            return RC_FORMAT;         /* no READY */
        send_done(from.id, key, out); /* it may not have heard the first one */
        return RC_REPLAY;
    }
    rc = pair_check_decision(pair, bitmap, bitmap_bytes, scale,
                             is_now ? pair_clip_scale(pair) : doubt->expected_scale);
    if (rc != RC_OK) {
        pair_score(from.id, SCORE_VIOLATION, "decided what was not agreed", out);
        return rc;
    }
    send_done(from.id, key, out);
    if (is_now) {
        deadline_add(&pair->decisions, pair->now_ns - pair->ready_ns);
        pair_commit(pair, scale, out);
    } else {
        (void)pair_doubt_resolve(pair, from.id, key, OUTCOME_COMMITTED, scale, out);
    }
    return RC_OK;
}

static enum rc on_aborted(struct pair *pair, struct member_ref from, const struct round_key *key,
                          enum abort_code code, struct commands *out)
{
    if (pair_is_running(pair, from, key)) {
        if (code == ABORT_NORMS) { /* one of us lies, and it is not we */
            pair_score(from.id, SCORE_MISS, "says our distances differ", out);
        }
        if (code == ABORT_FAR && pair->state != PAIR_OFFERED) { /* it has seen values of ours */
            pair_score(from.id, 0, EXCHANGE_SAYS_FAR, out);
        }
        pair->counts.rounds_aborted++;
        pair->counts.last_abort = "the partner aborted";
        over_add(pair, OVER_ABORTED, 0, "the partner aborted", out);
        return RC_OK;
    }
    if (pair_doubt_resolve(pair, from.id, key, OUTCOME_ABORTED, 0, out)) return RC_OK;
    return RC_STALE;
}

static enum rc on_outcome(struct pair *pair, struct member_ref from,
                          const struct message_outcome *outcome, struct commands *out)
{
    bool is_same_life = boot_id_is_equal(outcome->key.boot, from.boot);

    if (!peer_id_is_equal(outcome->key.initiator, from.id)) return RC_FORMAT;
    if (outcome->state == OUTCOME_COMMITTED) {
        return on_committed(pair, from, &outcome->key, outcome->bitmap, outcome->bitmap_bytes,
                            outcome->scale, out);
    }
    if (pair_doubt_find(pair, &outcome->key) == NULL) return RC_STALE;
    /* One that started again and does not know the round came back without it. */
    if (outcome->state == OUTCOME_UNKNOWN && is_same_life) {
        (void)pair_doubt_resolve(pair, from.id, &outcome->key, OUTCOME_UNKNOWN, 0, out);
        return RC_OK;
    }
    return on_aborted(pair, from, &outcome->key, ABORT_PROTOCOL, out);
}

static enum rc pair_told(struct exchange *exchange, const struct round_key *key,
                         enum outcome_state state, float scale, uint64_t now_ns,
                         struct commands *out)
{
    struct pair *pair = pair_of(exchange);
    struct member_ref initiator = {key->initiator, key->boot};
    struct message_outcome outcome = {.key = *key,
                                      .state = state,
                                      .bitmap = pair->bitmap,
                                      .bitmap_bytes = pair->bitmap_bytes,
                                      .scale = scale};

    pair->now_ns = now_ns;
    return on_outcome(pair, initiator, &outcome, out);
}

/* ---- the contract ---- */

static enum rc pair_on_message(struct exchange *exchange, struct peer_id from, struct boot_id boot,
                               const struct message *message, uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);
    struct member_ref ref = {from, boot};

    pair->now_ns = now_ns;
    if (peer_id_is_equal(from, pair->options.self)) return RC_FORMAT;
    link_add(pair, from, boot);
    switch (message->type) {
    case MESSAGE_OFFER:
        return on_offer(pair, ref, &message->as.offer, out);
    case MESSAGE_ACCEPT:
        return on_accept(pair, ref, &message->as.accept, out);
    case MESSAGE_REJECT:
        return on_reject(pair, ref, &message->as.reject, out);
    case MESSAGE_CREDIT:
        return pair_on_credit(pair, ref, &message->as.credit, out);
    case MESSAGE_READY:
        return pair_on_ready(pair, ref, &message->as.ready, out);
    case MESSAGE_COMMIT:
        return on_committed(pair, ref, &message->as.commit.key, message->as.commit.bitmap,
                            message->as.commit.bitmap_bytes, message->as.commit.scale, out);
    case MESSAGE_ABORT:
        return on_aborted(pair, ref, &message->as.abort.key,
                          (enum abort_code)message->as.abort.code, out);
    case MESSAGE_OUTCOME_REQ:
        return pair_on_outcome_req(pair, from, &message->as.outcome_req.key, out);
    case MESSAGE_OUTCOME:
        return on_outcome(pair, ref, &message->as.outcome, out);
    case MESSAGE_DONE:
        return pair_on_done(pair, from, &message->as.outcome_req.key);
    default:
        return RC_FORMAT;
    }
}

static void pair_on_link_up(struct exchange *exchange, struct peer_id peer, struct boot_id boot,
                            uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    link_add(pair, peer, boot);
    pair_outcomes_on_link_up(pair, peer, out);
}

static void pair_on_link_lost(struct exchange *exchange, struct peer_id peer, uint64_t now_ns,
                              struct commands *out)
{
    struct pair *pair = pair_of(exchange);
    struct member_ref *link = link_find(pair, peer);

    pair->now_ns = now_ns;
    if (link != NULL) *link = pair->links[--pair->links_count];
    if (pair->state == PAIR_IDLE || !peer_id_is_equal(pair->partner.id, peer)) return;
    if (pair->state == PAIR_PREPARED) {
        pair_enter_doubt(pair, out);
    } else {
        pair_abort(pair, ABORT_LINK, "the link to the partner was lost", out);
    }
}

static void pair_tick(struct exchange *exchange, uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    if (pair->state != PAIR_IDLE && now_ns >= pair->deadline_ns) {
        struct peer_id partner = pair->partner.id;

        if (pair->state == PAIR_PREPARED) {
            pair_enter_doubt(pair, out);
        } else {
            bool is_offered = pair->state == PAIR_OFFERED;

            if (is_offered) deadline_add(&pair->answers, 2 * (now_ns - pair->begun_ns));
            pair_score(partner, SCORE_MISS, "missed the deadline of a round", out);
            pair_abort(pair, is_offered ? ABORT_LOCAL : ABORT_DEADLINE,
                       is_offered ? "the partner did not answer" : "the deadline passed", out);
        }
    }
    if (pair->state == PAIR_DATA) pair_grant(pair, out); /* what was refused */
    pair_outcomes_tick(pair, out);
}

static void pair_allowed(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams)
{
    const struct pair *pair = pair_seen_of(exchange);

    *streams = pair->state == PAIR_DATA;
    *chunks = pair->state == PAIR_DATA ? pair->granted - pair->done : 0;
}

static uint64_t pair_next_ns(const struct exchange *exchange)
{
    const struct pair *pair = pair_seen_of(exchange);
    uint64_t next = pair_outcomes_next_ns(pair);

    if (pair->state != PAIR_IDLE && pair->deadline_ns < next) next = pair->deadline_ns;
    return next;
}

static void pair_cancel(struct exchange *exchange, const char *reason, uint64_t now_ns,
                        struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    if (pair->state == PAIR_PREPARED) {
        pair_enter_doubt(pair, out);
    } else if (pair->state != PAIR_IDLE) {
        pair_abort(pair, ABORT_LOCAL, reason, out);
    }
}

static void pair_set_lineage(struct exchange *exchange, struct digest lineage, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    if (digest_is_equal(pair->lineage, lineage)) return;
    pair_cancel(exchange, "the model was replaced", pair->now_ns, out);
    pair_doubts_drop(pair, out);
    pair->lineage = lineage;
}

static bool pair_is_active(const struct exchange *exchange)
{
    return pair_seen_of(exchange)->state != PAIR_IDLE;
}

static void pair_counts(const struct exchange *exchange, struct exchange_counts *counts)
{
    *counts = pair_seen_of(exchange)->counts;
}

static void pair_set_round(struct exchange *exchange, uint64_t round)
{
    (void)exchange; /* pair rounds are numbered by their initiator alone */
    (void)round;
}

static bool pair_ops_outcome(const struct exchange *exchange, const struct round_key *key,
                             struct peer_id participant, enum outcome_state *state, float *scale)
{
    return pair_outcome(pair_seen_of(exchange), key, participant, state, scale);
}

static enum rc pair_ops_save(const struct exchange *exchange, uint8_t **bytes, size_t *count)
{
    return pair_save(pair_seen_of(exchange), bytes, count);
}

static enum rc pair_ops_load(struct exchange *exchange, const uint8_t *bytes, size_t count)
{
    return pair_load(pair_of(exchange), bytes, count);
}

static void pair_set_alpha(struct exchange *exchange, float alpha)
{
    CHECK(alpha > 0 && alpha <= 0.5f);
    pair_of(exchange)->options.alpha = alpha;
}

const struct exchange_ops exchange_pair = {
    .set_alpha = pair_set_alpha,
    .name = "pair",
    .is_group = false,
    .create = pair_create,
    .destroy = pair_destroy,
    .set_lineage = pair_set_lineage,
    .begin = pair_begin,
    .on_message = pair_on_message,
    .on_chunk = pair_on_chunk,
    .likely_scale = pair_likely_scale,
    .on_chunk_checked = pair_on_chunk_checked,
    .on_job_done = pair_on_job_done,
    .on_link_up = pair_on_link_up,
    .on_link_lost = pair_on_link_lost,
    .tick = pair_tick,
    .next_ns = pair_next_ns,
    .cancel = pair_cancel,
    .is_active = pair_is_active,
    .counts = pair_counts,
    .allowed = pair_allowed,
    .set_round = pair_set_round,
    .outcome = pair_ops_outcome,
    .told = pair_told,
    .save = pair_ops_save,
    .load = pair_ops_load,
};
