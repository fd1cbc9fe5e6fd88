/*
 * How a pair round begins: whom a peer offers to, which offers it accepts, and with what weight.
 * The picture is in pair.c. Loop thread; pure.
 */
#include "averaging/pair/pair.h"

#include "base/bytes.h"
#include "base/check.h"

#include <string.h>

static float most_weight(const struct pair *pair)
{
    return pair->options.alpha == NULL ? 0.5f : *pair->options.alpha;
}

static void round_reset(struct pair *pair, bool is_initiator, struct member_ref partner,
                        const struct round_key *key)
{
    uint64_t stream = exchange_stream(key);

    pair->begun_ns = pair->now_ns;
    pair->swap = (struct swap){.other = partner, .key = *key, .is_decider = is_initiator};
    transfer_out_begin(&pair->swap.out, partner.id, stream, pair->options.chunks);
    transfer_in_begin(&pair->swap.in, partner.id, stream, pair->options.chunks, pair->chunks);
}

static void take_snapshot(struct pair *pair, struct commands *out)
{
    struct command *snapshot;

    pair_become(pair, PAIR_SNAPSHOT);
    snapshot = commands_add(out, COMMAND_SNAPSHOT);
    if (snapshot != NULL) snapshot->key = pair->swap.key;
}

enum rc pair_begin(struct exchange *exchange, const struct round_members *members, uint64_t samples,
                   uint64_t now_ns, struct commands *out)
{
    static const struct digest none;
    struct pair *pair = (struct pair *)(void *)exchange;
    struct round_key key = {pair->options.self, pair->options.boot, pair->counter + 1};
    struct member_ref partner;
    struct message_offer *offer;
    struct message *message;

    pair->now_ns = now_ns;
    if (pair->state != PAIR_IDLE) return RC_BUSY;
    if (members->count == 0 || digest_is_equal(pair->lineage, none)) return RC_NOT_FOUND;
    partner = (struct member_ref){members->ids[0], members->boots[0]};
    CHECK(members->count == 1 && !peer_id_is_equal(partner.id, pair->options.self));
    if (promise_is_in_doubt_with(&pair->promises, partner.id)) return RC_BUSY;
    message = commands_send(out, partner.id, MESSAGE_OFFER);
    if (message == NULL) return RC_NOMEM;
    pair->counter++;
    (void)roster_add(&pair->roster, partner);
    round_reset(pair, true, partner, &key);
    pair_become(pair, PAIR_OFFERED);
    pair->swap.weight = most_weight(pair);
    pair->swap.radius = exchange_radius(&pair->options, &pair->distances);
    pair->deadline_ns = deadline_after(now_ns, pair_answer_wait_ns(pair));
    offer = &message->as.offer;
    offer->key = key;
    offer->step = samples;
    offer->schema = pair->options.schema;
    offer->lineage = pair->lineage;
    memcpy(offer->codec, pair->options.codec, sizeof offer->codec);
    offer->chunks = pair->options.chunks;
    offer->alpha = pair->swap.weight;
    offer->deadline_ms = (uint32_t)(pair_round_wait_ns(pair, partner.id) / NS_PER_MS);
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
    if (promise_is_in_doubt_with(&pair->promises, from.id)) return REJECT_BUSY;
    if (promise_free(&pair->promises) == 0) return REJECT_BUSY;
    return 0;
}

enum rc pair_on_offer(struct pair *pair, struct member_ref from, const struct message_offer *offer,
                      struct commands *out)
{
    struct message *message;
    uint32_t objection;

    if (!peer_id_is_equal(offer->key.initiator, from.id) ||
        !boot_id_is_equal(offer->key.boot, from.boot)) {
        return RC_FORMAT;
    }
    if (!(offer->alpha > 0 && offer->alpha <= 0.5f)) return RC_FORMAT;
    if (!offer_is_new(pair, from, offer->key.counter)) return RC_REPLAY;
    objection = offer_objection(pair, from, offer);
    if (objection != REJECT_CODEC && pair->state == PAIR_OFFERED && pair_is_partner(pair, from) &&
        peer_id_compare(pair->options.self, from.id) < 0) {
        return RC_BUSY; /* it will accept ours */
    }
    message = commands_send(out, from.id, objection == 0 ? MESSAGE_ACCEPT : MESSAGE_REJECT);
    if (message == NULL) return RC_NOMEM;
    if (objection != 0) {
        message->as.reject.key = offer->key;
        message->as.reject.code = objection;
        message->as.reject.retry_ms = pair_retry_ms(pair);
        return objection == REJECT_BUSY ? RC_BUSY : RC_MISMATCH;
    }
    round_reset(pair, false, from, &offer->key);
    pair->swap.weight = offer->alpha < most_weight(pair) ? offer->alpha : most_weight(pair);
    pair->swap.radius = exchange_radius(&pair->options, &pair->distances);
    pair->deadline_ns =
        deadline_after(pair->now_ns, pair_offered_wait_ns(pair, from.id, offer->deadline_ms));
    message->as.accept.key = offer->key;
    message->as.accept.alpha = pair->swap.weight;
    message->as.accept.credit = 0; /* CREDIT follows when our snapshot is there */
    take_snapshot(pair, out);
    return RC_OK;
}

enum rc pair_on_accept(struct pair *pair, struct member_ref from,
                       const struct message_accept *accept, struct commands *out)
{
    if (pair->state != PAIR_OFFERED || !pair_is_running(pair, from, &accept->key)) return RC_STALE;
    if (!(accept->alpha > 0 && accept->alpha <= pair->swap.weight)) return RC_FORMAT;
    if (transfer_allow(&pair->swap.out, accept->credit) != RC_OK) return RC_FORMAT;
    pair->swap.weight = accept->alpha;
    pair->deadline_ns = deadline_after(pair->begun_ns, pair_round_wait_ns(pair, from.id));
    deadline_add(&pair->answers, pair->now_ns - pair->begun_ns);
    take_snapshot(pair, out);
    return RC_OK;
}

static void skip(struct pair *pair, const char *reason, struct commands *out)
{
    pair->counts.rounds_skipped++;
    pair->counts.last_abort = reason;
    pair_over(pair, OVER_ABORTED, 0, reason, out);
}

enum rc pair_on_reject(struct pair *pair, struct member_ref from,
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
    skip(pair, reasons[reject->code], out);
    return RC_OK;
}
