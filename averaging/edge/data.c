/*
 * The data of a round of neighbours: who may send when, chunks under credit, READY and decisions.
 * The picture is in edges.c. Loop thread; pure.
 */
#include "averaging/edge/edges.h"

#include "base/check.h"

#include <math.h>

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
        return i;
    }
    return EDGES_NO_SLOT;
}

/* Of what it sends. */
static uint64_t stream_of(const struct edges *edges, const struct edge *edge)
{
    return exchange_stream(
        &(struct round_key){edge->swap.other.id, edge->swap.other.boot, edges->round});
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
        transfer_in_begin(&edge->swap.in, edge->swap.other.id, stream_of(edges, edge),
                          edges->options.chunks, edges->chunks[edge->slot]);
        edges_become(edge, EDGE_DATA);
    }
}

/* ---- chunks both ways ---- */

void edges_grant(struct edges *edges, struct edge *edge, struct commands *out)
{
    if (edge->state == EDGE_DATA) (void)transfer_grant(&edge->swap.in, &edges->options, out);
}

static void send_offers(struct edges *edges, struct edge *edge, struct commands *out)
{
    if (!edges->has_snapshot || !is_running(edge)) return;
    transfer_send(&edge->swap.out, edges_mirror_kind(edges, edge->swap.other.id), out);
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
    if (transfer_allow(&edge->swap.out, credit->chunks) != RC_OK) return RC_FORMAT;
    send_offers(edges, edge, out);
    return RC_OK;
}

enum rc edges_on_chunk(struct exchange *exchange, const struct chunk_ref *chunk,
                       struct chunk_use *use)
{
    struct edges *edges = edges_of(exchange);
    struct edge *edge = edges_find(edges, chunk->from);
    enum rc rc = edge == NULL || edge->state != EDGE_DATA ? RC_STALE
                                                          : transfer_receive(&edge->swap.in, chunk);

    if (rc != RC_OK) return rc;
    if (chunk->kind != DATA_OFFER && !(edges->options.mirror != NULL && chunk->kind == DATA_FULL)) {
        return RC_FORMAT;
    }
    if (edges->options.mirror != NULL) rc = edges_mirror_receive(edges, edge, chunk);
    if (rc != RC_OK) return rc;
    transfer_received(&edge->swap.in, chunk);
    *use = (struct chunk_use){
        .likely_scale = 1, .is_staged = true, .slot = edge->slot, .mirror = edge->mirror};
    return RC_OK;
}

void edges_on_chunk_checked(struct exchange *exchange, const struct chunk_ref *chunk, enum rc rc,
                            struct digest hash, float squared_distance, uint64_t now_ns,
                            struct commands *out)
{
    struct edges *edges = edges_of(exchange);
    struct edge *edge = edges_find(edges, chunk->from);
    const struct transfer_fault *fault;

    edges->now_ns = now_ns;
    if (edge == NULL || edge->state != EDGE_DATA) return;
    if (!transfer_checked(&edge->swap.in, chunk, rc, squared_distance)) return;
    if (rc == RC_OK) {
        edges_mirror_checked(edges, edge, chunk->chunk, hash);
    } else {
        fault = transfer_fault(rc, chunk->from, out);
        edges_drop(edges, edge, fault->code, fault->reason, true, out);
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

/* A promise must have where to go if it is not decided in time. */
static bool may_promise(const struct edges *edges)
{
    uint32_t left = promise_free(&edges->promises);

    for (uint32_t i = 0; i < edges->edges_count && left > 0; i++) {
        left -= edges->edges[i].state == EDGE_PREPARED;
    }
    return left > 0;
}

static void commit(struct edges *edges, struct edge *edge, struct commands *out)
{
    float scale = swap_scale(&edge->swap);
    struct command *take = commands_add(out, COMMAND_EDGE);

    if (take != NULL) {
        take->to = edge->swap.other.id;
        take->edge.slot = edge->slot;
        take->edge.weight = edge->swap.weight * scale;
        take->edge.whole = edge->swap.weight;
        take->edge.radius = edge->swap.radius;
        take->edge.passes = swap_passes(&edge->swap);
        take->edge.shared = edge->swap.weight * swap_shared(&edge->swap);
        take->edge.key = edge->swap.key;
    }
    edges->counts.judged++;
    edges->counts.clipped += scale < 1;
    deadline_add(&edges->exchanges, edges->now_ns - edge->open_ns);
    commands_score(out, edge->swap.other.id, SCORE_COMMITTED, NULL);
    edges_slot_free(edges, edge);
    edges_wait_over(edges, edge);
    edges_become(edge, EDGE_COMMITTED);
}

enum rc edges_on_ready(struct edges *edges, struct peer_id from, const struct message_ready *ready,
                       struct commands *out)
{
    struct edge *edge = edges_find(edges, from);
    enum rc rc;

    if (edge == NULL || !is_running(edge) || !swap_is(&edge->swap, &ready->key)) return RC_STALE;
    rc = swap_on_ready(&edge->swap, ready);
    if (rc == RC_OK) edges_advance(edges, out);
    return rc;
}

static enum rc on_commit(struct edges *edges, struct edge *edge, struct commands *out)
{
    if (edge->state != EDGE_PREPARED) return is_running(edge) ? RC_FORMAT : RC_STALE;
    deadline_add(&edges->decisions, edges->now_ns - edge->ready_ns);
    commit(edges, edge, out);
    return RC_OK;
}

enum rc edges_on_decided(struct edges *edges, struct peer_id from, const struct round_key *key,
                         enum outcome_state state, struct commands *out)
{
    struct edge *edge = edges_find(edges, from);
    enum rc rc;

    if (!peer_id_is_equal(key->initiator, from)) return RC_FORMAT;
    if (edge == NULL || edge->state == EDGE_IN_DOUBT || !swap_is(&edge->swap, key)) {
        rc = promise_resolve(&edges->promises, from, key, state, out);
    } else if (state == OUTCOME_COMMITTED) {
        rc = on_commit(edges, edge, out);
    } else {
        rc = RC_STALE; /* an edge of this round is aborted with ABORT */
    }
    if (rc == RC_OK) edges_advance(edges, out); /* its edge of this round may open */
    return rc;
}

/* ---- all of it ---- */

static void edge_advance(struct edges *edges, struct edge *edge, struct commands *out)
{
    edges_grant(edges, edge, out);
    send_offers(edges, edge, out);
    if (edge->state == EDGE_DATA && transfer_is_whole(&edge->swap.in)) {
        edges_become(edge, EDGE_STAGED);
        robust_note(&edges->distances, edge->swap.other.id, sqrtf(swap_squared(&edge->swap)));
    }
    if (edge->state != EDGE_STAGED) return;
    if (!edge->swap.is_decider) {
        if (!may_promise(edges)) return;
        edges_become(edge, EDGE_PREPARED);
        edges_wait_decision(edges, edge);
        swap_promise(&edge->swap, out);
    } else if (edge->swap.has_ready && swap_decide(&edge->swap, &edges->promises, out)) {
        commit(edges, edge, out);
    } else if (edge->swap.has_ready) {
        edges_drop(edges, edge, ABORT_NORMS, "the two ends measured different distances", true,
                   out);
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
