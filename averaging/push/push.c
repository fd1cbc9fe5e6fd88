/*
 * exchange push: a peer gives a part of its weight and of its model to another and keeps the rest.
 * Push-sum (Kempe, Dobra, Gehrke 2003; for training SGP, Assran et al. 2018, arXiv:1811.10792, and
 * GoSGD, Blot et al. 2016, arXiv:1611.09726) with custody: what was sent and not acknowledged
 * belongs to nobody, is kept, in checkpoints too, and comes back or is dropped once it is known
 * what became of it.
 *
 *  out   NONE --begin: SHARE--> OFFERED --ACCEPT--> ACCEPTED --snapshot: weight leaves--> SENDING
 *        SENDING --all chunks queued--> SENT --SHARE_ACK--> ACKED
 *        custody: the round ends while SENT
 *  in    NONE --SHARE: ACCEPT--> OPEN --all chunks staged--> DONE
 *        NONE --a share came back from custody--> RETURN --absorbed--> DONE
 *        any of them --deadline, link lost, ABORT, NaN--> FAILED
 *
 * A round has one snapshot, of which one share goes out and against which one share that comes in
 * is settled; it ends when neither is under way. Then, in one instant, the share that came in
 * counts (weight, mark, SHARE_ACK, difference), and the one that left goes into custody. Nobody
 * waits for an acknowledgement, so rings of peers that push to each other cannot wait in a circle.
 *
 * The live model is z = x / omega. Halving x and omega leaves z as it is, so a sender's model does
 * not change, and a share of weight w that holds y moves the receiver by w / (omega + w) (y - z).
 * Until the last chunk is queued the receiver cannot have applied the share, so a failure before
 * that gives the weight back at once. Afterwards only the receiver knows. Loop thread; pure.
 */
#include "averaging/push/push.h"

#include "averaging/core/times.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* A share may weigh at most so much more than what the receiver has, and who has so much less than
 * the receiver keeps it: no one is overrun by one share, and none gives away the last it has. */
#define GAIN_MAX   4.0
#define UPHILL_MAX 32.0
/* A share of which less than this part may be taken is left with its sender. */
#define TAKEN_LEAST 0.125
/* Who has less gives none away, see WEIGHT_MOST. */
#define WEIGHT_LEAST (1.0 / (1 << 20))

struct push *push_of(struct exchange *exchange)
{
    return (struct push *)(void *)exchange;
}

const struct push *push_seen_of(const struct exchange *exchange)
{
    return (const struct push *)(const void *)exchange;
}

static void push_destroy(struct exchange *exchange)
{
    struct push *push = push_of(exchange);

    if (push == NULL) return;
    mem_free(push->chunks);
    mem_free(push->empty);
    mem_free(push->marks);
    mem_free(push);
}

static struct exchange *push_create(const struct exchange_options *options)
{
    struct push *push = mem_alloc(sizeof *push);

    if (push == NULL) return NULL;
    CHECK(options->chunks <= CHUNKS_MAX);
    push->base.ops = &exchange_push;
    push->options = *options;
    push->weight = 1.0;
    push->empty_bytes = (options->chunks + 7) / 8;
    push->chunks = mem_alloc(options->chunks);
    push->empty = mem_alloc(push->empty_bytes);
    push->marks = mem_array(PUSH_MARKS_MAX, sizeof *push->marks);
    if (push->chunks == NULL || push->empty == NULL || push->marks == NULL) {
        push_destroy(&push->base);
        return NULL;
    }
    return &push->base;
}

static void send_abort(struct push *push, struct peer_id to, const struct round_key *key,
                       enum abort_code code, struct commands *out)
{
    if (roster_has(&push->roster, to)) commands_abort(out, to, key, code);
}

/* ---- a round ---- */

#define TO(state) (1u << (state))

/* What leaves or comes makes a round, which lasts until over_add(). */
void push_out_become(struct push *push, enum push_out next)
{
    static const unsigned may_become[OUT_ACKED + 1] = {
        [OUT_NONE] = TO(OUT_NONE) | TO(OUT_OFFERED),
        [OUT_OFFERED] = TO(OUT_ACCEPTED) | TO(OUT_NONE),
        [OUT_ACCEPTED] = TO(OUT_SENDING) | TO(OUT_NONE),
        [OUT_SENDING] = TO(OUT_SENT) | TO(OUT_NONE),
        [OUT_SENT] = TO(OUT_ACKED) | TO(OUT_NONE),
        [OUT_ACKED] = TO(OUT_NONE),
    };

    CHECK((may_become[push->out] & TO(next)) != 0);
    push->out = next;
    push->is_running |= next != OUT_NONE;
}

void push_in_become(struct push *push, enum push_in next)
{
    static const unsigned may_become[IN_FAILED + 1] = {
        [IN_NONE] = TO(IN_NONE) | TO(IN_OPEN) | TO(IN_RETURN),
        [IN_OPEN] = TO(IN_DONE) | TO(IN_FAILED),
        [IN_RETURN] = TO(IN_DONE) | TO(IN_FAILED) | TO(IN_NONE),
        [IN_DONE] = TO(IN_FAILED) | TO(IN_NONE),
        [IN_FAILED] = TO(IN_NONE),
    };

    CHECK((may_become[push->in] & TO(next)) != 0);
    push->in = next;
    push->is_running |= next != IN_NONE;
}

void push_snapshot_become(struct push *push, enum push_snapshot next)
{
    static const unsigned may_become[SNAPSHOT_HERE + 1] = {
        [SNAPSHOT_NONE] = TO(SNAPSHOT_NONE) | TO(SNAPSHOT_WANTED),
        [SNAPSHOT_WANTED] = TO(SNAPSHOT_HERE) | TO(SNAPSHOT_NONE),
        [SNAPSHOT_HERE] = TO(SNAPSHOT_NONE),
    };

    CHECK((may_become[push->snapshot] & TO(next)) != 0);
    push->snapshot = next;
}

void push_snapshot_want(struct push *push, struct commands *out)
{
    if (push->snapshot != SNAPSHOT_NONE) return;
    push_snapshot_become(push, SNAPSHOT_WANTED);
    (void)commands_add(out, COMMAND_SNAPSHOT);
}

static void over_add(struct push *push, enum over_result result, bool has_in, float scale,
                     float sent, struct commands *out)
{
    struct command *over = commands_add(out, COMMAND_OVER);

    push_out_become(push, OUT_NONE);
    push_in_become(push, IN_NONE);
    push_snapshot_become(push, SNAPSHOT_NONE);
    push->is_running = false;
    if (over == NULL) return;
    over->over.result = result;
    if (result != OVER_ABORTED) over->over.key = has_in ? push->in_key : push->out_key;
    if (!has_in) {
        over->over.bitmap = push->empty;
        over->over.bitmap_bytes = push->empty_bytes;
    }
    over->over.scale = scale;
    over->over.sent = sent;
    over->over.members = result == OVER_ABORTED ? 0 : 2;
    over->over.reason = result == OVER_ABORTED ? push->counts.last_abort : NULL;
}

/* What came in is part of our model from here on. */
static void take_in(struct push *push, struct commands *out)
{
    struct message *message;

    push->weight += (double)push->in_weight;
    if (peer_id_is_equal(push->in_key.initiator, push->options.self)) {
        struct push_custody *custody = push_custody_find(push, &push->in_key);

        CHECK(custody != NULL && custody->is_returned);
        push->counts.returned++;
        push_custody_drop(push, custody, out);
        return;
    }
    push->counts.received++;
    push_account_given(push, push->from.id, (double)push->in_weight);
    push_mark_applied(push, &push->in_key);
    push_has_come(push);
    commands_score(out, push->from.id, SCORE_COMMITTED, NULL);
    message = commands_send(out, push->from.id, MESSAGE_SHARE_ACK);
    if (message != NULL) message->as.outcome_req.key = push->in_key;
}

void push_advance(struct push *push, struct commands *out)
{
    bool has_in = push->in == IN_DONE, has_out = push->out >= OUT_SENT;

    if (!push->is_running) return;
    if ((!has_out && push->out != OUT_NONE) || push->in == IN_OPEN || push->in == IN_RETURN) {
        return;
    }
    if (push->out == OUT_SENT) push_custody_keep(push, out);
    if (has_in) take_in(push, out);
    if (!has_in && !has_out) {
        over_add(push, OVER_ABORTED, false, 0, 0, out);
        return;
    }
    push->counts.rounds_ok++;
    over_add(push, OVER_COMMITTED, has_in,
             has_in ? (float)((double)push->in_weight / push->weight) : 0,
             has_out ? (float)((double)push->out_weight / push->weight) : 0, out);
    if (has_in) push_account_weigh(push);
}

void push_out_fail(struct push *push, enum abort_code code, const char *reason,
                   struct commands *out)
{
    if (push->out == OUT_SENDING || push->out == OUT_SENT) {
        push->weight += (double)push->out_weight;
        push_stop_sending(push, out);
    }
    if (code != 0) send_abort(push, push->to.id, &push->out_key, code, out);
    push_out_become(push, OUT_NONE);
    push->counts.rounds_aborted++;
    push->counts.last_abort = reason;
}

void push_in_fail(struct push *push, enum abort_code code, const char *reason, struct commands *out)
{
    if (code != 0) send_abort(push, push->from.id, &push->in_key, code, out);
    push_in_become(push, IN_FAILED);
    push->counts.rounds_aborted++;
    push->counts.last_abort = reason;
}

/* ---- out ---- */

static enum rc push_begin(struct exchange *exchange, const struct round_members *members,
                          uint64_t samples, uint64_t now_ns, struct commands *out)
{
    static const struct digest none;
    struct push *push = push_of(exchange);
    struct message *message;
    float weight = (float)(push->weight / 2);

    push->now_ns = now_ns;
    if (members->count == 0 || digest_is_equal(push->lineage, none)) return RC_NOT_FOUND;
    if (push->out != OUT_NONE) return RC_BUSY;
    CHECK(members->count == 1 && !peer_id_is_equal(members->ids[0], push->options.self));
    if (push->weight < WEIGHT_LEAST) return RC_BUSY;
    if (push_is_put_off(push, members->ids[0])) { /* whom we do not hear we do not feed */
        push->counts.rounds_skipped++;
        push->counts.retry_ns = 0;
        push->counts.last_abort = "the receiver broke its word as a sender";
        return RC_BUSY;
    }
    if (push_custody_free(push, members->ids[0], out) == NULL) return RC_BUSY;
    message = commands_send(out, members->ids[0], MESSAGE_SHARE);
    if (message == NULL) return RC_NOMEM;
    push->counter++;
    push_out_become(push, OUT_OFFERED);
    push->out_key = (struct round_key){push->options.self, push->options.boot, push->counter};
    push->to = (struct member_ref){members->ids[0], members->boots[0]};
    push->out_weight = weight;
    transfer_out_begin(&push->sending, push->to.id, exchange_stream(&push->out_key),
                       push->options.chunks);
    push->out_begun_ns = now_ns;
    push->out_deadline_ns = deadline_after(now_ns, push_answer_wait_ns(push, push->to.id));
    message->as.share.key = push->out_key;
    message->as.share.step = samples;
    message->as.share.schema = push->options.schema;
    message->as.share.lineage = push->lineage;
    memcpy(message->as.share.codec, push->options.codec, sizeof message->as.share.codec);
    message->as.share.chunks = push->options.chunks;
    message->as.share.weight = weight;
    return RC_OK;
}

/* Its receiver cannot have it yet. */
static bool is_leaving(const struct push *push)
{
    return push->out > OUT_NONE && push->out < OUT_SENT;
}

static bool is_out_to(const struct push *push, struct member_ref from, const struct round_key *key)
{
    return push->out != OUT_NONE && peer_id_is_equal(push->to.id, from.id) &&
           boot_id_is_equal(push->to.boot, from.boot) && round_key_is_equal(&push->out_key, key);
}

/* What the receiver takes of the weight that was offered; the same bits at both ends. */
static float weight_taken(float offered, float alpha)
{
    return alpha >= 0.5f ? offered : 2 * alpha * offered;
}

static enum rc on_accept(struct push *push, struct member_ref from,
                         const struct message_accept *accept, struct commands *out)
{
    float taken;

    if (push->out != OUT_OFFERED || !is_out_to(push, from, &accept->key)) return RC_STALE;
    taken = weight_taken(push->out_weight, accept->alpha);
    if (!(taken > 0) || transfer_allow(&push->sending, accept->credit) != RC_OK) return RC_FORMAT;
    push->out_weight = taken;
    deadline_add(&push->answers, push->now_ns - push->out_begun_ns);
    push_out_become(push, OUT_ACCEPTED);
    push->out_deadline_ns = deadline_after(push->now_ns, push_share_wait_ns(push, from.id));
    if (push->snapshot == SNAPSHOT_HERE) {
        push_start_sending(push, out);
        push_advance(push, out);
    } else {
        push_snapshot_want(push, out);
    }
    return RC_OK;
}

static enum rc on_reject(struct push *push, struct member_ref from,
                         const struct message_reject *reject, struct commands *out)
{
    static const char *const reasons[] = {
        [REJECT_BUSY] = "the receiver was busy",
        [REJECT_STALE] = "the receiver has far more weight than this peer",
        [REJECT_SCHEMA] = "the receiver trains another model",
        [REJECT_LINEAGE] = "the receiver's model has another origin",
        [REJECT_NOT_READY] = "the receiver has no model yet",
        [REJECT_CODEC] = "the receiver has another codec or rule",
    };

    if (push->out != OUT_OFFERED || !is_out_to(push, from, &reject->key)) return RC_STALE;
    if (reject->code == 0 || reject->code >= ARRAY_COUNT(reasons)) return RC_FORMAT;
    deadline_add(&push->answers, push->now_ns - push->out_begun_ns);
    push_out_become(push, OUT_NONE);
    push->counts.rounds_skipped++;
    push->counts.retry_ns = reject->code == REJECT_BUSY
                                ? deadline_after(push->now_ns, reject->retry_ms * NS_PER_MS)
                                : 0;
    push->counts.last_abort = reasons[reject->code];
    push_advance(push, out);
    return RC_OK;
}

/* ---- in ---- */

/* 0: fine. */
static uint32_t share_objection(const struct push *push, const struct message_share *share)
{
    static const struct digest none;

    if (digest_is_equal(push->lineage, none)) return REJECT_NOT_READY;
    if (share->chunks != push->options.chunks ||
        !digest_is_equal(share->schema, push->options.schema)) {
        return REJECT_SCHEMA;
    }
    if (!digest_is_equal(share->lineage, push->lineage)) return REJECT_LINEAGE;
    if (strncmp(share->codec, push->options.codec, sizeof share->codec) != 0) return REJECT_CODEC;
    if (push->in != IN_NONE) return REJECT_BUSY;
    if (push_is_put_off(push, share->key.initiator)) return REJECT_BUSY;
    if ((double)share->weight * UPHILL_MAX < push->weight) return REJECT_STALE;
    return 0;
}

/* Of its weight, by what we have ourselves. */
static double gain_part(const struct push *push, const struct message_share *share)
{
    double part = GAIN_MAX * push->weight / (double)share->weight;

    return part < 1 ? part : 1;
}

/* And by what it has given before. */
static double part_taken(const struct push *push, const struct message_share *share)
{
    double part = push_account_allows(push, share->key.initiator) / (double)share->weight;
    double most = gain_part(push, share);

    return part < most ? part : most;
}

static enum rc on_share(struct push *push, struct member_ref from,
                        const struct message_share *share, struct commands *out)
{
    struct message *message;
    uint32_t objection;
    double part = part_taken(push, share);
    float alpha = part < 1 ? (float)(part / 2) : 0.5f;
    double taken;

    if (!peer_id_is_equal(share->key.initiator, from.id) ||
        !boot_id_is_equal(share->key.boot, from.boot)) {
        return RC_FORMAT;
    }
    if (!(share->weight > 0) || !((double)share->weight <= WEIGHT_MOST)) return RC_FORMAT;
    if (push_mark_is_old(push, &share->key)) return RC_REPLAY;
    push_account_claimed(push, from.id, 2 * (double)share->weight);
    objection = share_objection(push, share);
    if (objection == 0 && part < TAKEN_LEAST * gain_part(push, share)) objection = REJECT_BUSY;
    taken = objection == 0 ? (double)weight_taken(share->weight, alpha) : 0;
    if (objection == 0 && !(taken > 0)) objection = REJECT_STALE;
    if (objection == 0 && push_held_weight(push) + taken > WEIGHT_MOST) objection = REJECT_BUSY;
    message = commands_send(out, from.id, objection == 0 ? MESSAGE_ACCEPT : MESSAGE_REJECT);
    if (message == NULL) return RC_NOMEM;
    if (objection != 0) {
        message->as.reject.key = share->key;
        message->as.reject.code = objection;
        message->as.reject.retry_ms = (uint32_t)(RETRY_SHARE_NS / NS_PER_MS);
        return objection == REJECT_BUSY || objection == REJECT_STALE ? RC_BUSY : RC_MISMATCH;
    }
    message->as.accept.key = share->key;
    message->as.accept.alpha = alpha;
    message->as.accept.credit = 0; /* CREDIT follows when our snapshot is there */
    push_in_become(push, IN_OPEN);
    push->in_key = share->key;
    push->from = from;
    push->in_weight = (float)taken;
    transfer_in_begin(&push->receiving, from.id, exchange_stream(&share->key), push->options.chunks,
                      push->chunks);
    push->in_begun_ns = push->now_ns;
    push->in_granted_ns = UINT64_MAX;
    push->in_deadline_ns = deadline_after(push->now_ns, push_share_wait_ns(push, from.id));
    if (push->snapshot == SNAPSHOT_HERE) {
        push_grant(push, out);
    } else {
        push_snapshot_want(push, out);
    }
    return RC_OK;
}

static enum rc on_aborted(struct push *push, struct member_ref from, const struct round_key *key,
                          enum abort_code code, struct commands *out)
{
    if (is_out_to(push, from, key)) {
        if (push->out == OUT_ACKED) return RC_STALE;
        if (code == ABORT_FAR) commands_score(out, from.id, SCORE_NO_FAULT, EXCHANGE_SAYS_FAR);
        push_out_fail(push, 0, "the receiver gave up", out);
    } else if (push->in == IN_OPEN && peer_id_is_equal(push->from.id, from.id) &&
               round_key_is_equal(&push->in_key, key)) {
        push_in_fail(push, 0, "the sender gave up", out);
    } else {
        return push_custody_refused(push, from.id, key) ? RC_OK : RC_STALE;
    }
    push_advance(push, out);
    return RC_OK;
}

/* ---- the contract ---- */

static enum rc push_on_message(struct exchange *exchange, struct peer_id from, struct boot_id boot,
                               const struct message *message, uint64_t now_ns, struct commands *out)
{
    struct push *push = push_of(exchange);
    struct member_ref ref = {from, boot};

    push->now_ns = now_ns;
    if (peer_id_is_equal(from, push->options.self)) return RC_FORMAT;
    (void)roster_add(&push->roster, ref);
    switch (message->type) {
    case MESSAGE_SHARE:
        return on_share(push, ref, &message->as.share, out);
    case MESSAGE_ACCEPT:
        return on_accept(push, ref, &message->as.accept, out);
    case MESSAGE_REJECT:
        return on_reject(push, ref, &message->as.reject, out);
    case MESSAGE_CREDIT:
        return push_on_credit(push, ref, &message->as.credit, out);
    case MESSAGE_ABORT:
        return on_aborted(push, ref, &message->as.abort.key,
                          (enum abort_code)message->as.abort.code, out);
    case MESSAGE_SHARE_ACK:
        return push_on_ack(push, from, &message->as.outcome_req.key, out);
    case MESSAGE_APPLIED_REQ:
        return push_on_applied_req(push, ref, &message->as.outcome_req.key, out);
    case MESSAGE_APPLIED:
        return push_on_applied(push, from, &message->as.applied, out);
    default:
        return RC_FORMAT;
    }
}

static void push_on_link_up(struct exchange *exchange, struct peer_id peer, struct boot_id boot,
                            uint64_t now_ns, struct commands *out)
{
    struct push *push = push_of(exchange);

    push->now_ns = now_ns;
    (void)roster_add(&push->roster, (struct member_ref){peer, boot});
    push_custody_on_link_up(push, peer, out);
}

static void push_on_link_lost(struct exchange *exchange, struct peer_id peer, uint64_t now_ns,
                              struct commands *out)
{
    struct push *push = push_of(exchange);

    push->now_ns = now_ns;
    (void)roster_remove(&push->roster, peer);
    if (!push->is_running) return;
    if (is_leaving(push) && peer_id_is_equal(push->to.id, peer)) {
        push_out_fail(push, 0, "the link to the receiver was lost", out);
    }
    if (push->in == IN_OPEN && peer_id_is_equal(push->from.id, peer)) {
        push_in_fail(push, 0, "the link to the sender was lost", out);
    }
    push_advance(push, out);
}

static void round_tick(struct push *push, struct commands *out)
{
    if (is_leaving(push) && push->now_ns >= push->out_deadline_ns) {
        bool is_offered = push->out == OUT_OFFERED;

        if (is_offered) deadline_add(&push->answers, 2 * (push->now_ns - push->out_begun_ns));
        commands_score(out, push->to.id, SCORE_LATE, "did not take a share in time");
        push_out_fail(push, is_offered ? ABORT_LOCAL : ABORT_DEADLINE,
                      is_offered ? "the receiver did not answer" : "the deadline passed", out);
    }
    if (push->in == IN_OPEN && push->now_ns >= push_in_deadline_ns(push)) {
        push_kept_waiting(push);
        commands_score(out, push->from.id, SCORE_LATE, "did not send a share in time");
        push_in_fail(push, ABORT_DEADLINE, "the deadline passed", out);
    }
    push_advance(push, out);
}

static void push_tick(struct exchange *exchange, uint64_t now_ns, struct commands *out)
{
    struct push *push = push_of(exchange);

    push->now_ns = now_ns;
    if (push->is_running) round_tick(push, out);
    if (push->in == IN_OPEN && push->snapshot == SNAPSHOT_HERE) {
        push_grant(push, out); /* what was refused */
    }
    push_custody_tick(push, out);
}

static void push_allowed(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams)
{
    const struct push *push = push_seen_of(exchange);

    *streams = push->in == IN_OPEN;
    *chunks = *streams > 0 ? transfer_open(&push->receiving) : 0;
}

static uint64_t push_next_ns(const struct exchange *exchange)
{
    const struct push *push = push_seen_of(exchange);
    uint64_t next = push_custody_next_ns(push);

    if (is_leaving(push) && push->out_deadline_ns < next) next = push->out_deadline_ns;
    if (push->in == IN_OPEN && push_in_deadline_ns(push) < next) next = push_in_deadline_ns(push);
    return next;
}

/* A share that was sent stays sent. One that came in and was not settled goes back. */
static void push_cancel(struct exchange *exchange, const char *reason, uint64_t now_ns,
                        struct commands *out)
{
    struct push *push = push_of(exchange);
    bool is_returning;

    push->now_ns = now_ns;
    if (!push->is_running) return;
    is_returning =
        push->in == IN_RETURN ||
        (push->in == IN_DONE && peer_id_is_equal(push->in_key.initiator, push->options.self));
    if (is_returning) push_in_become(push, IN_NONE);
    if (push->in == IN_OPEN || push->in == IN_DONE) push_in_fail(push, ABORT_LOCAL, reason, out);
    if (push->out == OUT_SENT) push_custody_keep(push, out);
    if (is_leaving(push)) push_out_fail(push, ABORT_LOCAL, reason, out);
    push->counts.last_abort = reason;
    over_add(push, OVER_ABORTED, false, 0, 0, out);
}

/* Another model: what we hold of the old one is worth nothing to it. */
static void push_set_lineage(struct exchange *exchange, struct digest lineage, struct commands *out)
{
    static const struct digest none;
    struct push *push = push_of(exchange);

    if (digest_is_equal(push->lineage, lineage)) return;
    push_cancel(exchange, "the model was replaced", push->now_ns, out);
    if (!digest_is_equal(push->lineage, none)) {
        push_custody_lose_all(push, out);
        push->weight = 1.0;
    }
    push->lineage = lineage;
}

static enum exchange_state push_state(const struct exchange *exchange)
{
    const struct push *push = push_seen_of(exchange);

    if (!push->is_running) return EXCHANGE_IDLE;
    return push->out == OUT_NONE ? EXCHANGE_OPEN : EXCHANGE_RUNS;
}

static void push_counts(const struct exchange *exchange, struct exchange_counts *counts)
{
    const struct push *push = push_seen_of(exchange);

    *counts = push->counts;
    counts->has_weight = true;
    counts->weight = push->weight;
    push_custody_count(push, counts);
}

const struct exchange_ops exchange_push = {
    .name = "push",
    .clips_chunks = true,
    .promises_max = 1,
    .create = push_create,
    .destroy = push_destroy,
    .set_lineage = push_set_lineage,
    .begin = push_begin,
    .on_message = push_on_message,
    .on_chunk = push_on_chunk,
    .on_chunk_checked = push_on_chunk_checked,
    .on_job_done = push_on_job_done,
    .on_link_up = push_on_link_up,
    .on_link_lost = push_on_link_lost,
    .tick = push_tick,
    .next_ns = push_next_ns,
    .cancel = push_cancel,
    .state = push_state,
    .counts = push_counts,
    .allowed = push_allowed,
    .save = push_save,
    .load = push_load,
};
