/*
 * The data of a round of neighbours: who may send when, chunks under credit, READY and decisions.
 * The picture is in edges.c. Loop thread; pure.
 */
#include "averaging/edge/edges.h"

#include "base/bytes.h"
#include "base/check.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const float norms_tolerance = 1e-3f;

enum {
    SCORE_KEPT = 1,
    SCORE_MISS = -1,
    SCORE_FAR = -2,
    SCORE_NONFINITE = -50,
    SCORE_VIOLATION = -100
};
enum { CHUNK_NONE, CHUNK_CHECKING, CHUNK_STAGED };

static struct edges *edges_of(struct exchange *exchange)
{
    return (struct edges *)(void *)exchange;
}

static bool is_running(const struct edge *edge)
{
    return edge->state >= EDGE_OPEN && edge->state <= EDGE_PREPARED;
}

/* ---- slots ---- */

void edges_slot_free(struct edges *edges, struct edge *edge)
{
    if (edge->slot == EDGES_NO_SLOT) return;
    edges->slot_used[edge->slot] = false;
    edge->slot = EDGES_NO_SLOT;
}

static uint32_t slot_take(struct edges *edges)
{
    for (uint32_t i = 0; i < EDGES_SLOTS; i++) {
        if (edges->slot_used[i]) continue;
        edges->slot_used[i] = true;
        memset(edges->chunks[i], CHUNK_NONE, edges->options.chunks);
        return i;
    }
    return EDGES_NO_SLOT;
}

/* With more neighbours than slots the edges take turns, sorted by their ends' ids: of all edges of
 * the graph not yet done the first in that order has its turn at both ends, so nobody waits in a
 * circle. For that to hold everyone must have come who will. */
static void grant_slots(struct edges *edges)
{
    bool is_crowded = edges->edges_count > EDGES_SLOTS;

    if (!edges->has_snapshot) return;
    for (uint32_t i = 0; i < edges->edges_count && is_crowded; i++) {
        if (edges->edges[i].state == EDGE_WAITING) return;
    }
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        struct edge *edge = &edges->edges[i];

        if (edge->state != EDGE_OPEN) continue;
        edge->slot = slot_take(edges);
        if (edge->slot == EDGES_NO_SLOT) return;
        edge->state = EDGE_DATA;
    }
}

/* ---- chunks both ways ---- */

void edges_grant(struct edges *edges, struct edge *edge, struct commands *out)
{
    uint32_t wanted = edge->done + EDGES_CREDIT_CHUNKS, count = edges->options.chunks;
    struct message *message;

    if (edge->state != EDGE_DATA) return;
    if (wanted > count) wanted = count;
    if (wanted <= edge->granted) return;
    if (wanted < edge->granted + EDGES_CREDIT_CHUNKS / 2 && wanted != count) return;
    wanted = edge->granted +
             exchange_credit(&edges->options, edge->granted - edge->done, wanted - edge->granted);
    if (wanted == edge->granted) return;
    message = edges_send(edge->ref.id, MESSAGE_CREDIT, out);
    if (message == NULL) return;
    message->as.credit.stream = edge->stream;
    message->as.credit.chunks = wanted - edge->granted;
    edge->granted = wanted;
}

static void send_offers(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct command *send;

    if (!edges->has_snapshot || !is_running(edge) || edge->sent >= edge->credit) return;
    send = commands_add(out, COMMAND_SEND_RANGE);
    if (send == NULL) return;
    send->to = edge->ref.id;
    send->buffer = edges_mirror_kind(edges, edge->ref.id);
    send->stream = edges->stream;
    send->first = edge->sent;
    send->count = edge->credit - edge->sent;
    edge->sent = edge->credit;
}

enum rc edges_on_credit(struct edges *edges, struct peer_id from,
                        const struct message_credit *credit, struct commands *out)
{
    struct edge *edge = edges_find(edges, from);
    const struct edge_link *link = edges_link_find(edges, from);
    bool has_come =
        edge != NULL && (is_running(edge) || (edge->state == EDGE_WAITING && link->has_open &&
                                              link->round == edges->round));

    if (!has_come || credit->stream != edges->stream) return RC_STALE;
    if (credit->chunks > edges->options.chunks - edge->credit) return RC_FORMAT;
    edge->credit += credit->chunks;
    send_offers(edges, edge, out);
    return RC_OK;
}

enum rc edges_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk, float *weight)
{
    struct edges *edges = edges_of(exchange);
    struct edge *edge = edges_find(edges, chunk->from);
    uint8_t *state;

    if (edge == NULL || edge->state != EDGE_DATA || chunk->stream != edge->stream) {
        return RC_STALE;
    }
    if (chunk->kind != DATA_OFFER && !(edges->options.mirrors && chunk->kind == DATA_FULL)) {
        return RC_FORMAT;
    }
    if (chunk->chunk >= edges->options.chunks) return RC_FORMAT;
    state = &edges->chunks[edge->slot][chunk->chunk];
    if (*state != CHUNK_NONE) return RC_REPLAY;
    if (edge->received >= edge->granted) return RC_LIMIT;
    if (edges->options.mirrors) {
        enum rc rc = edges_mirror_receive(edges, edge, chunk);

        if (rc != RC_OK) return rc;
    }
    *state = CHUNK_CHECKING;
    edge->received++;
    *weight = 1;
    return RC_OK;
}

uint32_t edges_slot(const struct exchange *exchange, struct peer_id from)
{
    const struct edges *edges = (const struct edges *)(const void *)exchange;

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        if (peer_id_is_equal(edges->edges[i].ref.id, from)) return edges->edges[i].slot;
    }
    return EDGES_NO_SLOT;
}

void edges_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                            struct digest hash, float squared_distance, uint64_t now_ns,
                            struct commands *out)
{
    struct edges *edges = edges_of(exchange);
    struct edge *edge = edges_find(edges, chunk->from);

    edges->now_ns = now_ns;
    if (edge == NULL || edge->state != EDGE_DATA || chunk->stream != edge->stream ||
        chunk->chunk >= edges->options.chunks ||
        edges->chunks[edge->slot][chunk->chunk] != CHUNK_CHECKING) {
        return;
    }
    if (rc == RC_NONFINITE) {
        edges_score(chunk->from, SCORE_NONFINITE, "sent a chunk that is not finite", out);
        edges_drop(edges, edge, ABORT_NONFINITE, "a neighbour's model is not finite", true, out);
    } else if (rc == RC_LIMIT) {
        edges_score(chunk->from, SCORE_FAR, "sent values too far from ours", out);
        edges_drop(edges, edge, ABORT_FAR, "a neighbour's model is too far away", true, out);
    } else if (rc != RC_OK) {
        edges_drop(edges, edge, ABORT_LOCAL, "a chunk could not be taken in", true, out);
    } else {
        edges->chunks[edge->slot][chunk->chunk] = CHUNK_STAGED;
        edge->squared += (double)squared_distance;
        edge->done++;
        edges_mirror_checked(edges, edge, chunk->chunk, hash);
    }
    edges_advance(edges, out);
}

void edges_on_job_done(struct exchange *exchange, enum exchange_job job, uint32_t first, enum rc rc,
                       struct digest hash, uint64_t now_ns, struct commands *out)
{
    struct edges *edges = edges_of(exchange);

    (void)first;
    (void)hash;
    edges->now_ns = now_ns;
    if (job != JOB_SNAPSHOT || !edges->is_active || edges->has_snapshot) return;
    if (rc != RC_OK) {
        exchange->ops->cancel(
            exchange, rc == RC_NONFINITE ? "the local model is not finite" : "the snapshot failed",
            now_ns, out);
        return;
    }
    edges->has_snapshot = true;
    edges_advance(edges, out);
}

/* ---- promises and decisions ---- */

static float squared_of(const struct edge *edge)
{
    return edge->squared < (double)FLT_MAX ? (float)edge->squared : FLT_MAX;
}

static void send_ready(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct message *message;

    if (edges_doubts_free(edges) == 0) return; /* a promise must have where to go */
    message = edges_send(edge->ref.id, MESSAGE_EDGE_READY, out);
    edge->state = EDGE_PREPARED;
    edges_wait_decision(edges, edge);
    if (message == NULL) return; /* then the deadline makes it a doubt, and the answer an abort */
    message->as.edge_ready.key = edges_key(edges, edge);
    message->as.edge_ready.squared = squared_of(edge);
}

static void commit(struct edges *edges, struct edge *edge, float scale, struct commands *out)
{
    struct command *take = commands_add(out, COMMAND_EDGE);

    if (take != NULL) {
        take->to = edge->ref.id;
        take->edge.slot = edge->slot;
        take->edge.weight = edge->weight * scale;
        take->edge.key = edges_key(edges, edge);
    }
    if (scale < 1) edges->counts.rounds_clipped++;
    deadline_add(&edges->exchanges, edges->now_ns - edge->open_ns);
    edges_score(edge->ref.id, SCORE_KEPT, NULL, out);
    edges_slot_free(edges, edge);
    edges_wait_over(edges, edge);
    edge->state = EDGE_COMMITTED;
}

float edges_clip_scale(const struct edge *edge)
{
    return robust_scale(edge->tau, edge->squared);
}

/* This end has its staging and READY: from here on the edge counts. */
static void decide(struct edges *edges, struct edge *edge, struct commands *out)
{
    float ours = squared_of(edge), theirs = edge->squared_heard;
    float larger = ours > theirs ? ours : theirs, scale = edges_clip_scale(edge);
    struct message *message;

    if (!(fabsf(ours - theirs) <= norms_tolerance * larger)) {
        edges_score(edge->ref.id, SCORE_MISS, "measured another distance than we", out);
        edges_drop(edges, edge, ABORT_NORMS, "the two ends measured different distances", true,
                   out);
        return;
    }
    message = edges_send(edge->ref.id, MESSAGE_EDGE_COMMIT, out);
    if (message != NULL) {
        message->as.edge_commit.key = edges_key(edges, edge);
        message->as.edge_commit.scale = scale;
    }
    edges_outcome_keep(edges, edge->ref.id, scale);
    commit(edges, edge, scale, out);
}

enum rc edges_on_ready(struct edges *edges, struct peer_id from,
                       const struct message_edge_ready *ready, struct commands *out)
{
    struct edge *edge = edges_find(edges, from);
    struct round_key key;

    if (edge == NULL || !is_running(edge)) return RC_STALE;
    key = edges_key(edges, edge);
    if (!edge_key_is_equal(&key, &ready->key)) return RC_STALE;
    if (!edge->is_decider || edge->has_ready || edge->sent < edges->options.chunks) {
        return RC_FORMAT;
    }
    edge->has_ready = true;
    edge->squared_heard = ready->squared;
    edges_advance(edges, out);
    return RC_OK;
}

enum rc edges_on_commit(struct edges *edges, struct peer_id from,
                        const struct message_edge_commit *said, struct commands *out)
{
    const struct round_key *key = &said->key;
    struct edge *edge = edges_find(edges, from);
    struct round_key ours;

    if (!peer_id_is_equal(key->initiator, from)) return RC_FORMAT;
    if (edge != NULL) ours = edges_key(edges, edge);
    if (edge == NULL || !edge_key_is_equal(&ours, key) || edge->state == EDGE_IN_DOUBT) {
        return edges_doubt_resolve(edges, from, key, OUTCOME_COMMITTED, said->scale, out);
    }
    if (edge->state != EDGE_PREPARED) return is_running(edge) ? RC_FORMAT : RC_STALE;
    if (!robust_scale_agrees(said->scale, edges_clip_scale(edge))) {
        edges_score(from, SCORE_VIOLATION, "decided what was not agreed", out);
        return RC_FORMAT;
    }
    deadline_add(&edges->decisions, edges->now_ns - edge->ready_ns);
    commit(edges, edge, said->scale, out);
    edges_advance(edges, out);
    return RC_OK;
}

/* ---- all of it ---- */

static void edge_advance(struct edges *edges, struct edge *edge, struct commands *out)
{
    edges_grant(edges, edge, out);
    send_offers(edges, edge, out);
    if (edge->state == EDGE_DATA && edge->done == edges->options.chunks) {
        edge->state = EDGE_STAGED;
        robust_note(&edges->distances, edge->ref.id, sqrtf(squared_of(edge)));
    }
    if (edge->state != EDGE_STAGED) return;
    if (!edge->is_decider) {
        send_ready(edges, edge, out);
    } else if (edge->has_ready) {
        decide(edges, edge, out);
    }
}

void edges_advance(struct edges *edges, struct commands *out)
{
    if (!edges->is_active) return;
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        edges_open(edges, &edges->edges[i], out);
    }
    edges_wait_note(edges);
    /* Twice: an edge that is done leaves its slot to another, which is to have its credit now. */
    for (int i = 0; i < 2; i++) {
        grant_slots(edges);
        for (uint32_t j = 0; j < edges->edges_count; j++) {
            edge_advance(edges, &edges->edges[j], out);
        }
    }
    edges_wait_note(edges);
    edges_finish(edges, out);
}
