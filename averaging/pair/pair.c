/*
 * exchange pair: two peers swap their planes (core/swap.h) and move towards each other by exactly
 * opposite differences, both or neither: the half-way step of AD-PSGD (Lian et al. 2018,
 * arXiv:1710.06952). The initiator decides.
 *
 *  initiator   IDLE --begin: OFFER--> OFFERED --ACCEPT--> SNAPSHOT --done--> DATA --all staged, and
 *                                                              READY heard: COMMIT--> IDLE
 *  participant IDLE --OFFER: ACCEPT--> SNAPSHOT --done--> DATA --all staged: READY--> PREPARED
 *              PREPARED --COMMIT--> IDLE                PREPARED --link lost, deadline--> in doubt
 *
 *  Any state but PREPARED --ABORT, link lost, deadline, NaN--> IDLE, nothing changed.
 *
 * From READY on the participant may not abort by itself. In doubt the peer is free for another
 * round: differences add up, so this one can be applied whenever the outcome is learned
 * (core/promise.h). Chunks are allowed once the own snapshot is there. Loop thread; pure.
 */
#include "averaging/pair/pair.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

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
    mem_free(pair->seen);
    mem_free(pair);
}

static struct exchange *pair_create(const struct exchange_options *options)
{
    struct pair *pair = mem_alloc(sizeof *pair);

    if (pair == NULL) return NULL;
    CHECK(options->chunks <= CHUNKS_MAX);
    pair->base.ops = &exchange_pair;
    pair->options = *options;
    pair->promises.options = &pair->options;
    pair->promises.roster = &pair->roster;
    pair->promises.counts = &pair->counts;
    pair->chunks = mem_alloc(options->chunks);
    pair->seen = mem_array(PAIR_SEEN_MAX, sizeof *pair->seen);
    if (pair->chunks == NULL || pair->seen == NULL) {
        pair_destroy(&pair->base);
        return NULL;
    }
    return &pair->base;
}

/* ---- small things ---- */

#define TO(state) (1u << PAIR_##state)
static const unsigned may_become[PAIR_PREPARED + 1] = {
    [PAIR_IDLE] = TO(OFFERED) | TO(SNAPSHOT),
    [PAIR_OFFERED] = TO(SNAPSHOT) | TO(IDLE),
    [PAIR_SNAPSHOT] = TO(DATA) | TO(IDLE),
    [PAIR_DATA] = TO(PREPARED) | TO(IDLE),
    [PAIR_PREPARED] = TO(IDLE),
};

void pair_become(struct pair *pair, enum pair_state next)
{
    CHECK((may_become[pair->state] & (1u << next)) != 0);
    pair->state = next;
}

bool pair_is_partner(const struct pair *pair, struct member_ref from)
{
    return pair->state != PAIR_IDLE && peer_id_is_equal(pair->swap.other.id, from.id) &&
           boot_id_is_equal(pair->swap.other.boot, from.boot);
}

bool pair_is_running(const struct pair *pair, struct member_ref from, const struct round_key *key)
{
    return pair_is_partner(pair, from) && swap_is(&pair->swap, key);
}

/* Of the round that runs, if it is ours to decide. */
static const struct round_key *undecided(const struct pair *pair)
{
    return pair->state == PAIR_IDLE ? NULL : &pair->swap.key;
}

/* ---- the end of a round ---- */

void pair_over(struct pair *pair, enum over_result result, float scale, const char *reason,
               struct commands *out)
{
    struct command *over = commands_add(out, COMMAND_OVER);

    pair_become(pair, PAIR_IDLE);
    if (over == NULL) return;
    over->over.result = result;
    over->over.key = pair->swap.key;
    over->over.scale = scale;
    over->over.members = result == OVER_ABORTED ? 0 : 2;
    over->over.reason = reason;
}

static void aborted(struct pair *pair, const char *reason, struct commands *out)
{
    pair->counts.rounds_aborted++;
    pair->counts.last_abort = reason;
    pair_over(pair, OVER_ABORTED, 0, reason, out);
}

static void pair_abort(struct pair *pair, enum abort_code code, const char *reason,
                       struct commands *out)
{
    CHECK(pair->state != PAIR_PREPARED || !pair->swap.is_decider);
    if (roster_has(&pair->roster, pair->swap.other.id)) {
        commands_abort(out, pair->swap.other.id, &pair->swap.key, code);
    }
    if (code == ABORT_DEADLINE) { /* it takes longer than thought */
        deadline_add(&pair->rounds, 2 * (pair->now_ns - pair->begun_ns));
    }
    aborted(pair, reason, out);
}

static void pair_commit(struct pair *pair, struct commands *out)
{
    float scale = swap_scale(&pair->swap);

    commands_score(out, pair->swap.other.id, SCORE_COMMITTED, NULL);
    pair->counts.rounds_ok++;
    pair->counts.judged++;
    pair->counts.clipped += scale < 1;
    deadline_add(&pair->rounds, pair->now_ns - pair->begun_ns);
    pair_over(pair, OVER_COMMITTED, pair->swap.weight * scale, NULL, out);
}

static void enter_doubt(struct pair *pair, struct commands *out)
{
    CHECK(pair->state == PAIR_PREPARED);
    swap_doubt(&pair->swap, &pair->promises, pair->now_ns, out);
    pair_over(pair, OVER_IN_DOUBT, 1, NULL, out);
}

/* ---- chunks both ways, READY and the decision ---- */

static void advance(struct pair *pair, struct commands *out)
{
    struct swap *swap = &pair->swap;

    if (pair->state != PAIR_DATA || !transfer_is_whole(&swap->in)) return;
    if (swap->is_decider && !swap->has_ready) return;
    robust_note(&pair->distances, swap->other.id, sqrtf(swap_squared(swap)));
    if (!swap->is_decider) {
        pair_become(pair, PAIR_PREPARED);
        pair->ready_ns = pair->now_ns;
        pair->deadline_ns = deadline_after(pair->now_ns, pair_decision_wait_ns(pair));
        swap_promise(swap, out);
    } else if (swap_decide(swap, &pair->promises, out)) {
        pair_commit(pair, out);
    } else {
        pair_abort(pair, ABORT_NORMS, "the two ends measured different distances", out);
    }
}

static enum rc on_credit(struct pair *pair, struct member_ref from,
                         const struct message_credit *credit, struct commands *out)
{
    struct transfer_out *sent = &pair->swap.out;

    if (!pair_is_partner(pair, from) || pair->state == PAIR_OFFERED) return RC_STALE;
    if (credit->stream != sent->stream) return RC_STALE;
    if (transfer_allow(sent, credit->chunks) != RC_OK) return RC_FORMAT;
    if (pair->state != PAIR_SNAPSHOT) transfer_send(sent, DATA_OFFER, out);
    return RC_OK;
}

static enum rc on_ready(struct pair *pair, struct member_ref from,
                        const struct message_ready *ready, struct commands *out)
{
    enum rc rc;

    if (!pair_is_running(pair, from, &ready->key)) return RC_STALE;
    if (pair->state != PAIR_SNAPSHOT && pair->state != PAIR_DATA) return RC_STALE;
    rc = swap_on_ready(&pair->swap, ready);
    if (rc == RC_OK) advance(pair, out);
    return rc;
}

static enum rc pair_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                             struct chunk_use *use)
{
    struct pair *pair = pair_of(exchange);
    enum rc rc = pair->state == PAIR_DATA ? transfer_receive(&pair->swap.in, chunk) : RC_STALE;

    if (rc == RC_OK && chunk->kind != DATA_OFFER) rc = RC_FORMAT;
    if (rc != RC_OK) return rc;
    transfer_received(&pair->swap.in, chunk);
    *use = (struct chunk_use){.weight = 1,
                              .likely_scale = pair->options.clips ? 1 : pair->swap.weight};
    return RC_OK;
}

static void pair_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk,
                                  enum rc rc, struct digest hash, float squared_distance,
                                  uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);
    const struct transfer_fault *fault;

    (void)hash; /* the distances say whether both saw the same */
    pair->now_ns = now_ns;
    if (pair->state != PAIR_DATA) return;
    if (!transfer_checked(&pair->swap.in, chunk, rc, squared_distance)) return;
    if (rc != RC_OK) {
        fault = transfer_fault(rc, chunk->from, out);
        pair_abort(pair, fault->code, fault->reason, out);
        return;
    }
    (void)transfer_grant(&pair->swap.in, &pair->options, out);
    advance(pair, out);
}

static void pair_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first,
                             enum rc rc, struct digest hash, uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    (void)first;
    (void)hash;
    pair->now_ns = now_ns;
    if (job != JOB_SNAPSHOT || pair->state != PAIR_SNAPSHOT) return;
    if (rc == RC_NONFINITE) {
        pair_abort(pair, ABORT_NONFINITE, "the local model is not finite", out);
    } else if (rc != RC_OK) {
        pair_abort(pair, ABORT_LOCAL, "the snapshot failed", out);
    } else {
        pair_become(pair, PAIR_DATA);
        (void)transfer_grant(&pair->swap.in, &pair->options, out);
        transfer_send(&pair->swap.out, DATA_OFFER, out);
        advance(pair, out);
    }
}

/* ---- decisions of the other end ---- */

/* Of the round that runs, or of an earlier one that we are in doubt about. */
static enum rc on_decided(struct pair *pair, struct member_ref from, const struct round_key *key,
                          enum outcome_state state, struct commands *out)
{
    enum rc rc;

    if (!peer_id_is_equal(key->initiator, from.id)) return RC_FORMAT;
    if (!pair_is_running(pair, from, key)) {
        rc = promise_resolve(&pair->promises, from.id, key, state, out);
        if (rc == RC_OK && state == OUTCOME_COMMITTED) pair->counts.rounds_ok++;
        if (rc == RC_OK && state == OUTCOME_ABORTED) pair->counts.rounds_aborted++;
        return rc;
    }
    if (state == OUTCOME_UNKNOWN) return RC_STALE;
    if (state == OUTCOME_ABORTED) {
        aborted(pair, "the partner aborted", out);
        return RC_OK;
    }
    if (pair->state != PAIR_PREPARED) return RC_FORMAT; /* nothing was promised */
    deadline_add(&pair->decisions, pair->now_ns - pair->ready_ns);
    pair_commit(pair, out);
    return RC_OK;
}

/* Either end of the round that runs may abort it; of an earlier one its initiator alone. */
static enum rc on_abort(struct pair *pair, struct member_ref from,
                        const struct message_abort *abort, struct commands *out)
{
    if (!pair_is_running(pair, from, &abort->key)) {
        if (!peer_id_is_equal(abort->key.initiator, from.id)) return RC_STALE;
        return on_decided(pair, from, &abort->key, OUTCOME_ABORTED, out);
    }
    swap_on_abort(&pair->swap, (enum abort_code)abort->code, pair->state != PAIR_OFFERED, out);
    aborted(pair, "the partner aborted", out);
    return RC_OK;
}

static enum rc pair_told(struct exchange *exchange, const struct round_key *key,
                         enum outcome_state state, uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);
    struct member_ref initiator = {key->initiator, key->boot};

    pair->now_ns = now_ns;
    return on_decided(pair, initiator, key, state, out);
}

static bool pair_outcome(const struct exchange *exchange, const struct round_key *key,
                         struct peer_id participant, enum outcome_state *state)
{
    const struct pair *pair = pair_seen_of(exchange);

    return promise_outcome(&pair->promises, participant, key, undecided(pair), pair->counter + 1,
                           state);
}

/* ---- the contract ---- */

static enum rc pair_on_message(struct exchange *exchange, struct peer_id from, struct boot_id boot,
                               const struct message *message, uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);
    struct member_ref ref = {from, boot};

    pair->now_ns = now_ns;
    if (peer_id_is_equal(from, pair->options.self)) return RC_FORMAT;
    (void)roster_add(&pair->roster, ref);
    switch (message->type) {
    case MESSAGE_OFFER:
        return pair_on_offer(pair, ref, &message->as.offer, out);
    case MESSAGE_ACCEPT:
        return pair_on_accept(pair, ref, &message->as.accept, out);
    case MESSAGE_REJECT:
        return pair_on_reject(pair, ref, &message->as.reject, out);
    case MESSAGE_CREDIT:
        return on_credit(pair, ref, &message->as.credit, out);
    case MESSAGE_READY:
        return on_ready(pair, ref, &message->as.ready, out);
    case MESSAGE_COMMIT:
        return on_decided(pair, ref, &message->as.commit.key, OUTCOME_COMMITTED, out);
    case MESSAGE_ABORT:
        return on_abort(pair, ref, &message->as.abort, out);
    case MESSAGE_OUTCOME_REQ:
        return promise_on_req(&pair->promises, from, &message->as.outcome_req.key, undecided(pair),
                              out);
    case MESSAGE_OUTCOME:
        return on_decided(pair, ref, &message->as.outcome.key,
                          (enum outcome_state)message->as.outcome.state, out);
    default:
        return RC_FORMAT;
    }
}

static void pair_on_link_up(struct exchange *exchange, struct peer_id peer, struct boot_id boot,
                            uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    (void)roster_add(&pair->roster, (struct member_ref){peer, boot});
    promise_ask(&pair->promises, peer, now_ns, out);
}

static void pair_on_link_lost(struct exchange *exchange, struct peer_id peer, uint64_t now_ns,
                              struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    (void)roster_remove(&pair->roster, peer);
    if (pair->state == PAIR_IDLE || !peer_id_is_equal(pair->swap.other.id, peer)) return;
    if (pair->state == PAIR_PREPARED) {
        enter_doubt(pair, out);
    } else {
        pair_abort(pair, ABORT_LINK, "the link to the partner was lost", out);
    }
}

static void pair_tick(struct exchange *exchange, uint64_t now_ns, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    if (pair->state != PAIR_IDLE && now_ns >= pair->deadline_ns) {
        struct peer_id partner = pair->swap.other.id;

        if (pair->state == PAIR_PREPARED) {
            enter_doubt(pair, out);
        } else {
            bool is_offered = pair->state == PAIR_OFFERED;

            if (is_offered) deadline_add(&pair->answers, 2 * (now_ns - pair->begun_ns));
            commands_score(out, partner, SCORE_LATE, "missed the deadline of a round");
            pair_abort(pair, is_offered ? ABORT_LOCAL : ABORT_DEADLINE,
                       is_offered ? "the partner did not answer" : "the deadline passed", out);
        }
    }
    if (pair->state == PAIR_DATA) { /* what was refused */
        (void)transfer_grant(&pair->swap.in, &pair->options, out);
    }
    (void)promise_tick(&pair->promises, now_ns, out);
}

static void pair_allowed(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams)
{
    const struct pair *pair = pair_seen_of(exchange);

    *streams = pair->state == PAIR_DATA;
    *chunks = pair->state == PAIR_DATA ? transfer_open(&pair->swap.in) : 0;
}

static uint64_t pair_next_ns(const struct exchange *exchange)
{
    const struct pair *pair = pair_seen_of(exchange);
    uint64_t next = promise_next_ns(&pair->promises);

    if (pair->state != PAIR_IDLE && pair->deadline_ns < next) next = pair->deadline_ns;
    return next;
}

static void pair_cancel(struct exchange *exchange, const char *reason, uint64_t now_ns,
                        struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    pair->now_ns = now_ns;
    if (pair->state == PAIR_PREPARED) {
        enter_doubt(pair, out);
    } else if (pair->state != PAIR_IDLE) {
        pair_abort(pair, ABORT_LOCAL, reason, out);
    }
}

static void pair_set_lineage(struct exchange *exchange, struct digest lineage, struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    if (digest_is_equal(pair->lineage, lineage)) return;
    pair_cancel(exchange, "the model was replaced", pair->now_ns, out);
    (void)promise_give_up(&pair->promises, out);
    pair->lineage = lineage;
}

static enum exchange_state pair_state(const struct exchange *exchange)
{
    return pair_seen_of(exchange)->state == PAIR_IDLE ? EXCHANGE_IDLE : EXCHANGE_RUNS;
}

static void pair_counts(const struct exchange *exchange, struct exchange_counts *counts)
{
    *counts = pair_seen_of(exchange)->counts;
}

static enum rc pair_save(const struct exchange *exchange, uint8_t **bytes, size_t *count)
{
    const struct pair *pair = pair_seen_of(exchange);

    return promise_save(&pair->promises, (uint64_t[2]){pair->counter}, bytes, count);
}

static enum rc pair_load(struct exchange *exchange, const uint8_t *bytes, size_t count)
{
    struct pair *pair = pair_of(exchange);
    uint64_t numbers[2];
    enum rc rc = promise_load(&pair->promises, bytes, count, numbers);

    if (rc == RC_OK && numbers[0] > pair->counter) pair->counter = numbers[0];
    return rc;
}

const struct exchange_ops exchange_pair = {
    .name = "pair",
    .is_of_two = true,
    .promises_max = 1,
    .create = pair_create,
    .destroy = pair_destroy,
    .set_lineage = pair_set_lineage,
    .begin = pair_begin,
    .on_message = pair_on_message,
    .on_chunk = pair_on_chunk,
    .on_chunk_checked = pair_on_chunk_checked,
    .on_job_done = pair_on_job_done,
    .on_link_up = pair_on_link_up,
    .on_link_lost = pair_on_link_lost,
    .tick = pair_tick,
    .next_ns = pair_next_ns,
    .cancel = pair_cancel,
    .state = pair_state,
    .counts = pair_counts,
    .allowed = pair_allowed,
    .outcome = pair_outcome,
    .told = pair_told,
    .save = pair_save,
    .load = pair_load,
};
