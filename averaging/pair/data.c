/*
 * The data of a pair round: chunks both ways under credit, READY and the decision. The picture is
 * in pair.c. Loop thread; pure.
 */
#include "averaging/pair/pair.h"

#include "base/bytes.h"
#include "base/check.h"

#include <math.h>
#include <string.h>

static const float norms_tolerance = 1e-3f;

enum { SCORE_MISS = -1, SCORE_FAR = -2, SCORE_NONFINITE = -50, SCORE_VIOLATION = -100 };
enum { CHUNK_NONE, CHUNK_CHECKING, CHUNK_STAGED };

static struct pair *pair_of(struct exchange *exchange)
{
    return (struct pair *)(void *)exchange;
}

static double squared_distance_of(const struct pair *pair)
{
    double squared = 0;

    for (uint32_t i = 0; i < pair->norms_count; i++) {
        squared += pair->norms[i];
    }
    return squared;
}

/* What the clip radius makes of the distance we measured. */
float pair_clip_scale(const struct pair *pair)
{
    return robust_scale(pair->tau, squared_distance_of(pair));
}

static void send_offers(struct pair *pair, struct commands *out)
{
    struct command *send;

    if (pair->sent >= pair->credit) return;
    send = commands_add(out, COMMAND_SEND_RANGE);
    if (send == NULL) return;
    send->to = pair->partner.id;
    send->buffer = DATA_OFFER;
    send->stream = pair->stream;
    send->first = pair->sent;
    send->count = pair->credit - pair->sent;
    pair->sent = pair->credit;
}

void pair_grant(struct pair *pair, struct commands *out)
{
    uint32_t wanted = pair->done + PAIR_CREDIT_CHUNKS, count = pair->options.chunks;
    struct message *message;

    if (wanted > count) wanted = count;
    if (wanted <= pair->granted) return;
    if (wanted < pair->granted + PAIR_CREDIT_CHUNKS / 2 && wanted != count) return;
    wanted = pair->granted +
             exchange_credit(&pair->options, pair->granted - pair->done, wanted - pair->granted);
    if (wanted == pair->granted) return;
    message = pair_send(pair->partner.id, MESSAGE_CREDIT, out);
    if (message == NULL) return;
    message->as.credit.stream = pair->stream;
    message->as.credit.chunks = wanted - pair->granted;
    pair->granted = wanted;
}

static void send_ready(struct pair *pair, struct commands *out)
{
    struct message *message = pair_send(pair->partner.id, MESSAGE_READY, out);

    for (uint32_t i = 0; i < pair->norms_count; i++) {
        float norm = (float)pair->norms[i];
        uint32_t bits;

        memcpy(&bits, &norm, sizeof bits);
        store_le32(pair->norms_sent + 4 * (size_t)i, bits);
    }
    pair->state = PAIR_PREPARED;
    pair->ready_ns = pair->now_ns;
    pair->deadline_ns = deadline_after(pair->now_ns, pair_decision_wait_ns(pair));
    if (message == NULL) return; /* then the deadline makes it a doubt, and the answer an abort */
    message->as.ready.key = pair->key;
    message->as.ready.bitmap = pair->bitmap;
    message->as.ready.bitmap_bytes = pair->bitmap_bytes;
    message->as.ready.norms = pair->norms_sent;
    message->as.ready.norms_bytes = 4 * pair->norms_count;
}

static bool norms_agree(const struct pair *pair)
{
    for (uint32_t i = 0; i < pair->norms_count; i++) {
        float ours = (float)pair->norms[i], theirs = pair->norms_heard[i];
        float larger = ours > theirs ? ours : theirs;

        if (!isfinite(ours) || fabsf(ours - theirs) > norms_tolerance * larger) return false;
    }
    return true;
}

/* The initiator has its staging and READY: from here on the round is decided. */
static void decide(struct pair *pair, struct commands *out)
{
    float scale = pair_clip_scale(pair);
    struct message *message;

    if (!norms_agree(pair)) {
        pair_score(pair->partner.id, SCORE_MISS, "measured another distance than we", out);
        pair_abort(pair, ABORT_NORMS, "the two ends measured different distances", out);
        return;
    }
    message = pair_send(pair->partner.id, MESSAGE_COMMIT, out);
    if (message != NULL) {
        message->as.commit.key = pair->key;
        message->as.commit.bitmap = pair->bitmap;
        message->as.commit.bitmap_bytes = pair->bitmap_bytes;
        message->as.commit.scale = scale;
    }
    pair_outcome_keep(pair, scale);
    pair_commit(pair, scale, out);
}

static void advance(struct pair *pair, struct commands *out)
{
    if (pair->state != PAIR_DATA || pair->done < pair->options.chunks) return;
    if (!pair->is_initiator) {
        robust_note(&pair->distances, pair->partner.id, (float)sqrt(squared_distance_of(pair)));
        send_ready(pair, out);
    } else if (pair->has_ready) {
        robust_note(&pair->distances, pair->partner.id, (float)sqrt(squared_distance_of(pair)));
        decide(pair, out);
    }
}

enum rc pair_on_credit(struct pair *pair, struct member_ref from,
                       const struct message_credit *credit, struct commands *out)
{
    if (!pair_is_partner(pair, from) || pair->state == PAIR_OFFERED) return RC_STALE;
    if (credit->stream != pair->stream) return RC_STALE;
    if (credit->chunks > pair->options.chunks - pair->credit) return RC_FORMAT;
    pair->credit += credit->chunks;
    if (pair->state != PAIR_SNAPSHOT) send_offers(pair, out);
    return RC_OK;
}

enum rc pair_on_ready(struct pair *pair, struct member_ref from, const struct message_ready *ready,
                      struct commands *out)
{
    if (!pair_is_running(pair, from, &ready->key) || !pair->is_initiator) return RC_STALE;
    if (pair->state != PAIR_SNAPSHOT && pair->state != PAIR_DATA) return RC_STALE;
    if (pair->has_ready) return RC_REPLAY;
    if (ready->bitmap_bytes != pair->bitmap_bytes || ready->norms_bytes != 4 * pair->norms_count ||
        (pair->bitmap_bytes > 0 && memcmp(ready->bitmap, pair->bitmap, pair->bitmap_bytes) != 0)) {
        pair_score(from.id, SCORE_VIOLATION, "promised other chunks than were offered", out);
        pair_abort(pair, ABORT_PROTOCOL, "the partner promised other chunks", out);
        return RC_FORMAT;
    }
    for (uint32_t i = 0; i < pair->norms_count; i++) {
        uint32_t bits = load_le32(ready->norms + 4 * (size_t)i);

        if (bits >= 0x7f800000u) return RC_NONFINITE; /* negative, infinite or NaN */
    }
    for (uint32_t i = 0; i < pair->norms_count; i++) {
        uint32_t bits = load_le32(ready->norms + 4 * (size_t)i);

        memcpy(&pair->norms_heard[i], &bits, sizeof bits);
    }
    pair->has_ready = true;
    advance(pair, out);
    return RC_OK;
}

enum rc pair_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk, float *weight)
{
    struct pair *pair = pair_of(exchange);

    if (pair->state != PAIR_DATA || !peer_id_is_equal(chunk->from, pair->partner.id) ||
        chunk->stream != pair->stream) {
        return RC_STALE;
    }
    if (chunk->kind != DATA_OFFER || chunk->chunk >= pair->options.chunks) return RC_FORMAT;
    if (pair->chunks[chunk->chunk] != CHUNK_NONE) return RC_REPLAY;
    if (pair->received >= pair->granted) return RC_LIMIT;
    pair->chunks[chunk->chunk] = CHUNK_CHECKING;
    pair->received++;
    *weight = 1;
    return RC_OK;
}

float pair_likely_scale(const struct exchange *exchange)
{
    const struct pair *pair = (const struct pair *)(const void *)exchange;

    return pair->tau > 0 ? 1 : pair->alpha;
}

void pair_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                           struct digest hash, float squared_distance, uint64_t now_ns,
                           struct commands *out)
{
    struct pair *pair = pair_of(exchange);

    (void)hash; /* the norms say whether both saw the same */
    pair->now_ns = now_ns;
    if (pair->state != PAIR_DATA || !peer_id_is_equal(chunk->from, pair->partner.id) ||
        chunk->stream != pair->stream || chunk->chunk >= pair->options.chunks ||
        pair->chunks[chunk->chunk] != CHUNK_CHECKING) {
        return;
    }
    if (rc == RC_NONFINITE) {
        pair_score(chunk->from, SCORE_NONFINITE, "sent a chunk that is not finite", out);
        pair_abort(pair, ABORT_NONFINITE, "the partner's model is not finite", out);
        return;
    }
    if (rc == RC_LIMIT) {
        pair_score(chunk->from, SCORE_FAR, "sent values too far from ours", out);
        pair_abort(pair, ABORT_FAR, "the partner's model is too far away", out);
        return;
    }
    if (rc != RC_OK) {
        pair_abort(pair, ABORT_LOCAL, "a chunk could not be taken in", out);
        return;
    }
    pair->chunks[chunk->chunk] = CHUNK_STAGED;
    pair->norms[chunk->chunk / pair->stride] += (double)squared_distance;
    pair->done++;
    pair_grant(pair, out);
    advance(pair, out);
}

void pair_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first, enum rc rc,
                      struct digest hash, uint64_t now_ns, struct commands *out)
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
        pair->state = PAIR_DATA;
        pair_grant(pair, out);
        send_offers(pair, out);
        advance(pair, out);
    }
}

enum rc pair_check_decision(const struct pair *pair, const uint8_t *bitmap, uint32_t bitmap_bytes,
                            float scale, float expected)
{
    if (bitmap_bytes != pair->bitmap_bytes) return RC_FORMAT;
    if (bitmap_bytes > 0 && memcmp(bitmap, pair->bitmap, bitmap_bytes) != 0) return RC_FORMAT;
    return robust_scale_agrees(scale, expected) ? RC_OK : RC_FORMAT;
}
