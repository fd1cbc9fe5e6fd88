/*
 * The exchange of neighbours: all edges of a fixed graph at once, in rounds that are numbered alike
 * everywhere (D-PSGD: Lian et al. 2017, arXiv:1705.09056). A round takes one snapshot, encoded once
 * and sent to every neighbour. An edge counts if both ends have all of the other's plane, or not at
 * all: the end with the smaller id decides, as the initiator of a pair round does, so that what the
 * two ends add are exact negatives and the mean over all peers stays. An edge that does not come
 * about costs its weight alone, which stays with the own values at both ends: the weights of what
 * was committed are symmetric, and rows add up to one.
 *
 * one edge:
 *  WAITING --its OPEN--> OPEN --slot--> DATA --all here--> STAGED --READY: COMMIT--> COMMITTED
 *                                                             '--READY--> PREPARED --COMMIT--'
 *  any but PREPARED --deadline, link lost--> DROPPED       PREPARED --the same--> IN_DOUBT
 *  any of them --ABORT--> DROPPED
 *
 * Round numbers: who hears of a later round than its own goes there. If that was over already (who
 * is told of a round it has left says ABORT), it goes to the one after the latest from then on, and
 * waits for the others there: so a peer much slower than its neighbours meets them.
 *
 * generation: rules that keep a sum which is zero over the swarm (exact diffusion) may only mix
 * with peers that began with zero as they did. Whoever sees the graph change, or loses what it
 * keeps, begins anew under a number one higher, and everyone who hears a higher number does. Edges
 * between unlike numbers are dropped, so among peers of one number the sum is zero, always. How
 * often one neighbour can make us do so is bounded: may_raise() in begin.c.
 *
 * How a round begins is in begin.c, its data in data.c, how long it waits in wait.c. Loop thread;
 * pure.
 */
#include "averaging/edge/edges.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static struct edges *edges_of(struct exchange *exchange)
{
    return (struct edges *)(void *)exchange;
}

static const struct edges *edges_seen(const struct exchange *exchange)
{
    return (const struct edges *)(const void *)exchange;
}

static void exchange_destroy(struct exchange *exchange)
{
    struct edges *edges = edges_of(exchange);

    if (edges == NULL) return;
    for (uint32_t i = 0; i < EDGES_SLOTS; i++) {
        mem_free(edges->chunks[i]);
        mem_free(edges->hashes[i]);
    }
    mem_free(edges);
}

static struct exchange *exchange_create(const struct exchange_options *options)
{
    struct edges *edges = mem_alloc(sizeof *edges);
    bool is_short = false;

    if (edges == NULL) return NULL;
    CHECK(options->chunks <= CHUNKS_MAX);
    edges->base.ops = options->mirror != NULL ? &exchange_mirror : &exchange_edges;
    edges->options = *options;
    edges->promises.options = &edges->options;
    edges->promises.roster = &edges->roster;
    edges->promises.counts = &edges->counts;
    for (uint32_t i = 0; i < EDGES_SLOTS; i++) {
        edges->chunks[i] = mem_alloc(options->chunks);
        is_short |= edges->chunks[i] == NULL;
        if (options->mirror == NULL) continue;
        edges->hashes[i] = mem_array(options->chunks, sizeof *edges->hashes[i]);
        is_short |= edges->hashes[i] == NULL;
    }
    if (is_short) {
        exchange_destroy(&edges->base);
        return NULL;
    }
    return &edges->base;
}

/* ---- small things ---- */

#define TO(state) (1u << EDGE_##state)
static const unsigned may_become[EDGE_IN_DOUBT + 1] = {
    [EDGE_WAITING] = TO(WAITING) | TO(OPEN) | TO(DROPPED),
    [EDGE_OPEN] = TO(DATA) | TO(DROPPED),
    [EDGE_DATA] = TO(STAGED) | TO(DROPPED),
    [EDGE_STAGED] = TO(PREPARED) | TO(COMMITTED) | TO(DROPPED),
    [EDGE_PREPARED] = TO(COMMITTED) | TO(DROPPED) | TO(IN_DOUBT),
    [EDGE_DROPPED] = TO(WAITING) | TO(OPEN), /* it comes after all */
};

void edges_become(struct edge *edge, enum edge_state next)
{
    CHECK((may_become[edge->state] & (1u << next)) != 0);
    edge->state = next;
}

struct edge *edges_find(struct edges *edges, struct peer_id id)
{
    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        if (peer_id_is_equal(edges->edges[i].swap.other.id, id)) return &edges->edges[i];
    }
    return NULL;
}

struct edge_link *edges_link_find(struct edges *edges, struct peer_id id)
{
    uint32_t place = roster_find(&edges->roster, id);

    return place == ROSTER_NONE ? NULL : &edges->links[place];
}

struct edge_link *edges_link_add(struct edges *edges, struct member_ref ref)
{
    uint32_t place = roster_find(&edges->roster, ref.id);

    if (place != ROSTER_NONE && boot_id_is_equal(edges->roster.refs[place].boot, ref.boot)) {
        return &edges->links[place];
    }
    place = roster_add(&edges->roster, ref);
    if (place == ROSTER_NONE) return NULL;
    edges->links[place] = (struct edge_link){.has_open = false};
    return &edges->links[place];
}

static void link_remove(struct edges *edges, struct peer_id id)
{
    uint32_t place = roster_remove(&edges->roster, id);

    if (place != ROSTER_NONE) edges->links[place] = edges->links[edges->roster.count];
}

/* ---- the end of an edge, and of a round ---- */

void edges_drop(struct edges *edges, struct edge *edge, enum abort_code code, const char *reason,
                bool tells, struct commands *out)
{
    const struct swap *swap = &edge->swap;

    CHECK(edge->state != EDGE_PREPARED || !tells); /* it is not for us to decide */
    if (tells && roster_has(&edges->roster, swap->other.id)) {
        commands_abort(out, swap->other.id, &swap->key, code);
    }
    edges_slot_free(edges, edge);
    if (code != ABORT_LOCAL || !tells) edges_wait_over(edges, edge); /* else it was for us */
    edges_become(edge, EDGE_DROPPED);
    edges->last_drop = reason;
}

/* A promise is not decided in time: the edge is over for this round. */
static void enter_doubt(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct command *keep = commands_add(out, COMMAND_EDGE);

    if (keep != NULL) {
        keep->to = edge->swap.other.id;
        keep->edge = (struct command_edge){
            .slot = edge->slot, .weight = 1, .is_in_doubt = true, .key = edge->swap.key};
    }
    edges_slot_free(edges, edge);
    edges_wait_over(edges, edge);
    edges_become(edge, EDGE_IN_DOUBT);
    edges->last_drop = "a neighbour did not say what it decided";
    swap_doubt(&edge->swap, &edges->promises, edges->now_ns, out);
}

static uint32_t edges_in(const struct edges *edges, enum edge_state state)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        count += edges->edges[i].state == state;
    }
    return count;
}

static void round_over(struct edges *edges, struct commands *out)
{
    uint32_t committed = edges_in(edges, EDGE_COMMITTED);
    uint32_t late = 0;
    const char *reason = edges->last_drop != NULL ? edges->last_drop : "no neighbour was there";
    /* What the rule keeps counts even when nobody was there. */
    bool settles = committed > 0 || (edges->options.has_memory && edges->has_snapshot);
    struct command *over = commands_add(out, COMMAND_OVER);

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        late += edges->edges[i].is_late;
    }
    if (committed > 0) {
        edges->counts.rounds_ok++;
    } else {
        if (edges->is_ahead) edges->goes_ahead = false;
        edges->counts.last_abort = reason;
        edges->counts.rounds_skipped += late == edges->edges_count;
        edges->counts.rounds_aborted += late < edges->edges_count;
    }
    edges->is_active = false;
    if (over == NULL) return;
    over->over.result = settles ? OVER_COMMITTED : OVER_ABORTED;
    over->over.round = edges->round;
    over->over.scale = 1;
    over->over.drops_queued = true; /* all neighbours that count have it */
    over->over.members = settles ? committed + 1 : 0;
    over->over.reason = settles ? NULL : reason;
}

void edges_finish(struct edges *edges, struct commands *out)
{
    if (!edges->is_active) return;
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        if (edges->edges[i].state < EDGE_COMMITTED) return;
    }
    if (!edges->has_snapshot && edges->options.has_memory) return;
    round_over(edges, out);
}

/* ---- what others say ---- */

static bool open_fits(const struct edges *edges, const struct message_edge_open *open)
{
    const struct exchange_options *options = &edges->options;

    return open->chunks == options->chunks && digest_is_equal(open->schema, options->schema) &&
           digest_is_equal(open->lineage, edges->lineage) &&
           strncmp(open->codec, options->codec, sizeof open->codec) == 0;
}

struct round_key edges_key_with(const struct edges *edges, struct member_ref from, uint64_t round)
{
    if (peer_id_compare(edges->options.self, from.id) < 0) {
        return (struct round_key){edges->options.self, edges->options.boot, round};
    }
    return (struct round_key){from.id, from.boot, round};
}

/* An OPEN that is of no use in the round that runs. */
static enum rc open_elsewhere(struct edges *edges, struct member_ref from, struct edge *edge,
                              uint64_t round, struct commands *out)
{
    bool is_past = edges->is_active
                       ? round < edges->round || (edge == NULL && round == edges->round)
                       : round < edges->counts.next_round;

    if (is_past) { /* so that it does not wait */
        struct round_key key = edges_key_with(edges, from, round);
        bool is_stranger = edges->is_active && round == edges->round;

        edges_link_find(edges, from.id)->is_answered = true;
        commands_abort(out, from.id, &key, is_stranger ? ABORT_PROTOCOL : ABORT_DEADLINE);
        return RC_STALE;
    }
    if (edge != NULL && edge->state < EDGE_COMMITTED) { /* it has left our round, in some way */
        if (edge->state == EDGE_PREPARED) {
            enter_doubt(edges, edge, out);
        } else {
            edges_drop(edges, edge, ABORT_DEADLINE, "a neighbour is further", false, out);
        }
        edges_advance(edges, out);
    }
    return RC_OK;
}

static enum rc on_open(struct edges *edges, struct member_ref from,
                       const struct message_edge_open *open, struct commands *out)
{
    struct edge_link *link = edges_link_find(edges, from.id);
    struct edge *edge = edges_find(edges, from.id);

    if (link == NULL || open->round > UINT64_MAX / 2 || open->generation > UINT64_MAX / 2) {
        return RC_LIMIT;
    }
    if (!(open->weight > 0 && open->weight <= 1)) return RC_FORMAT;
    if (!(open->radius >= 0) || !isfinite(open->radius)) return RC_FORMAT;
    if (link->has_open && open->round <= link->round) return RC_REPLAY;
    if (!open_fits(edges, open)) {
        struct round_key key = edges_key_with(edges, from, open->round);

        commands_abort(out, from.id, &key, ABORT_PROTOCOL);
        return RC_MISMATCH;
    }
    link->has_open = true;
    link->is_answered = false;
    link->missed = 0;
    link->round = open->round;
    link->generation = open->generation;
    link->weight = open->weight;
    link->radius = open->radius;
    promise_ask(&edges->promises, from.id, edges->now_ns, out); /* it is there, and can be asked */
    if (edge == NULL || open->round != edges->round) {
        return open_elsewhere(edges, from, edge, open->round, out);
    }
    deadline_add(&edges->opens, edges->now_ns - edges->begun_ns);
    if (edge->state >= EDGE_COMMITTED && !edges_may_reopen(edges, edge)) {
        commands_abort(out, from.id, &edge->swap.key, ABORT_DEADLINE);
        return RC_STALE;
    }
    edges_advance(edges, out);
    return RC_OK;
}

static enum rc on_abort(struct edges *edges, struct member_ref from,
                        const struct message_abort *abort, struct commands *out)
{
    struct edge *edge = edges_find(edges, from.id);

    if (edge == NULL || edge->state >= EDGE_COMMITTED || !swap_is(&edge->swap, &abort->key)) {
        if (!peer_id_is_equal(abort->key.initiator, from.id)) return RC_STALE;
        return edges_on_decided(edges, from.id, &abort->key, OUTCOME_ABORTED, out);
    }
    if (edge->state == EDGE_WAITING) {
        edge->is_late = true;
        if (edges->is_catching_up && abort->code == ABORT_DEADLINE) edges->goes_ahead = true;
    }
    swap_on_abort(&edge->swap, (enum abort_code)abort->code, edge->state != EDGE_WAITING, out);
    edges_drop(edges, edge, ABORT_LOCAL, "a neighbour aborted", false, out);
    edges_advance(edges, out);
    return RC_OK;
}

/* The key of an edge of this round that may still be committed with `from`. */
static const struct round_key *undecided(const struct edges *edges, struct peer_id from)
{
    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        const struct edge *edge = &edges->edges[i];

        if (edge->state < EDGE_COMMITTED && peer_id_is_equal(edge->swap.other.id, from)) {
            return &edge->swap.key;
        }
    }
    return NULL;
}

static enum rc exchange_on_message(struct exchange *exchange, struct peer_id from,
                                   struct boot_id boot, const struct message *message,
                                   uint64_t now_ns, struct commands *out)
{
    struct edges *edges = edges_of(exchange);
    struct member_ref ref = {from, boot};

    edges->now_ns = now_ns;
    if (peer_id_is_equal(from, edges->options.self)) return RC_FORMAT;
    if (edges_link_add(edges, ref) == NULL) return RC_LIMIT;
    switch (message->type) {
    case MESSAGE_EDGE_OPEN:
        return on_open(edges, ref, &message->as.edge_open, out);
    case MESSAGE_CREDIT:
        return edges_on_credit(edges, from, &message->as.credit, out);
    case MESSAGE_READY:
        return edges_on_ready(edges, from, &message->as.ready, out);
    case MESSAGE_COMMIT:
        return edges_on_decided(edges, from, &message->as.commit.key, OUTCOME_COMMITTED, out);
    case MESSAGE_ABORT:
        return on_abort(edges, ref, &message->as.abort, out);
    case MESSAGE_OUTCOME_REQ:
        return promise_on_req(&edges->promises, from, &message->as.outcome_req.key,
                              undecided(edges, from), out);
    case MESSAGE_OUTCOME:
        return edges_on_decided(edges, from, &message->as.outcome.key,
                                (enum outcome_state)message->as.outcome.state, out);
    case MESSAGE_MIRROR:
        return edges_on_mirror(edges, from, &message->as.mirror);
    default:
        return RC_FORMAT;
    }
}

/* ---- links and time ---- */

static void exchange_on_link_up(struct exchange *exchange, struct peer_id peer, struct boot_id boot,
                                uint64_t now_ns, struct commands *out)
{
    struct edges *edges = edges_of(exchange);

    edges->now_ns = now_ns;
    if (edges_link_add(edges, (struct member_ref){peer, boot}) == NULL) return;
    promise_ask(&edges->promises, peer, now_ns, out);
}

static void exchange_on_link_lost(struct exchange *exchange, struct peer_id peer, uint64_t now_ns,
                                  struct commands *out)
{
    struct edges *edges = edges_of(exchange);
    struct edge *edge = edges_find(edges, peer);

    edges->now_ns = now_ns;
    link_remove(edges, peer);
    if (edge == NULL || edge->state >= EDGE_COMMITTED) {
        if (edge != NULL) edge->is_late = false; /* it is gone: it cannot come any more */
        return;
    }
    if (edge->state == EDGE_PREPARED) {
        enter_doubt(edges, edge, out);
    } else {
        edges_drop(edges, edge, ABORT_LINK, "the link to a neighbour was lost", false, out);
    }
    edges_advance(edges, out);
}

static void edge_tick(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct edge_link *link = edges_link_find(edges, edge->swap.other.id);
    bool is_over = edges->now_ns >= edge->deadline_ns; /* else it is late, beside the others */

    if (edge->state >= EDGE_COMMITTED) return;
    if (edges->now_ns < edges_wait_until_ns(edges, edge)) return;
    if (edge->state == EDGE_PREPARED) {
        enter_doubt(edges, edge, out);
    } else if (edge->state == EDGE_WAITING) {
        if (is_over && link != NULL && link->missed == 0) { /* it takes longer than thought */
            deadline_add(&edges->opens, 2 * (edges->now_ns - edges->begun_ns));
        }
        if (link != NULL) link->missed++;
        edge->is_late = true;
        /* It may be there, while we are in doubt about an earlier edge: then it is told. */
        edges_drop(edges, edge, ABORT_DEADLINE, "a neighbour was not there in time",
                   link != NULL && link->has_open && link->round == edges->round, out);
    } else {
        if (is_over) {
            deadline_add(&edges->exchanges, 2 * (edges->now_ns - edge->open_ns));
            commands_score(out, edge->swap.other.id, SCORE_LATE, "missed the deadline of a round");
        }
        edges_drop(edges, edge, ABORT_DEADLINE, "the deadline passed", true, out);
    }
    edges_advance(edges, out);
}

static void exchange_tick(struct exchange *exchange, uint64_t now_ns, struct commands *out)
{
    struct edges *edges = edges_of(exchange);

    edges->now_ns = now_ns;
    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        edge_tick(edges, &edges->edges[i], out);
    }
    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        edges_grant(edges, &edges->edges[i], out); /* what was refused */
    }
    if (!promise_tick(&edges->promises, now_ns, out)) return;
    edges->wants_restart = true; /* the other end may have what we have not */
    edges_advance(edges, out);   /* its edge of this round may open */
}

static void exchange_allowed(const struct exchange *exchange, uint32_t *chunks, uint32_t *streams)
{
    const struct edges *edges = edges_seen(exchange);

    *chunks = *streams = 0;
    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        const struct edge *edge = &edges->edges[i];

        if (edge->state != EDGE_DATA) continue;
        *streams += 1;
        *chunks += transfer_open(&edge->swap.in);
    }
}

static uint64_t exchange_next_ns(const struct exchange *exchange)
{
    const struct edges *edges = edges_seen(exchange);
    uint64_t next = promise_next_ns(&edges->promises);

    for (uint32_t i = 0; i < edges->edges_count && edges->is_active; i++) {
        const struct edge *edge = &edges->edges[i];

        if (edge->state >= EDGE_COMMITTED) continue;
        if (edges_wait_until_ns(edges, edge) < next) next = edges_wait_until_ns(edges, edge);
    }
    return next;
}

/* ---- the contract ---- */

static void exchange_cancel(struct exchange *exchange, const char *reason, uint64_t now_ns,
                            struct commands *out)
{
    struct edges *edges = edges_of(exchange);

    edges->now_ns = now_ns;
    if (!edges->is_active) return;
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        struct edge *edge = &edges->edges[i];

        if (edge->state >= EDGE_COMMITTED) continue;
        if (edge->state == EDGE_PREPARED) {
            enter_doubt(edges, edge, out);
        } else {
            edges_drop(edges, edge, ABORT_LOCAL, reason, true, out);
        }
    }
    edges->last_drop = reason;
    round_over(edges, out);
}

static void exchange_set_lineage(struct exchange *exchange, struct digest lineage,
                                 struct commands *out)
{
    struct edges *edges = edges_of(exchange);

    if (digest_is_equal(edges->lineage, lineage)) return;
    exchange_cancel(exchange, "the model was replaced", edges->now_ns, out);
    if (promise_give_up(&edges->promises, out)) edges->wants_restart = true;
    edges->lineage = lineage;
}

static enum exchange_state exchange_state(const struct exchange *exchange)
{
    return edges_seen(exchange)->is_active ? EXCHANGE_RUNS : EXCHANGE_IDLE;
}

static void exchange_counts(const struct exchange *exchange, struct exchange_counts *counts)
{
    *counts = edges_seen(exchange)->counts;
}

/* Only who has taken part in no round yet: the others go by what their neighbours say, for peers
 * far away in the graph may be some rounds ahead. */
static void exchange_set_round(struct exchange *exchange, uint64_t round)
{
    struct edges *edges = edges_of(exchange);

    if (edges->begun_ns != 0 || round > UINT64_MAX / 2) return;
    if (round > edges->counts.next_round) edges->counts.next_round = round;
}

static bool exchange_outcome(const struct exchange *exchange, const struct round_key *key,
                             struct peer_id participant, enum outcome_state *state)
{
    const struct edges *edges = edges_seen(exchange);

    return promise_outcome(&edges->promises, participant, key, undecided(edges, participant),
                           edges->counts.next_round, state);
}

static enum rc exchange_told(struct exchange *exchange, const struct round_key *key,
                             enum outcome_state state, uint64_t now_ns, struct commands *out)
{
    struct edges *edges = edges_of(exchange);

    edges->now_ns = now_ns;
    return edges_on_decided(edges, key->initiator, key, state, out);
}

static enum rc exchange_save(const struct exchange *exchange, uint8_t **bytes, size_t *count)
{
    const struct edges *edges = edges_seen(exchange);
    uint64_t numbers[2] = {edges->counts.next_round, edges->generation};

    return promise_save(&edges->promises, numbers, bytes, count);
}

static enum rc exchange_load(struct exchange *exchange, const uint8_t *bytes, size_t count)
{
    struct edges *edges = edges_of(exchange);
    uint64_t numbers[2];
    enum rc rc = promise_load(&edges->promises, bytes, count, numbers);

    if (rc != RC_OK) return rc;
    if (numbers[0] > edges->counts.next_round) edges->counts.next_round = numbers[0];
    edges->generation = numbers[1];
    edges->wants_restart = true; /* the others have gone on since */
    return RC_OK;
}

#define EDGES_OPS(name_, has_mirrors_)                                                             \
    {                                                                                              \
        .name = (name_), .is_graph = true, .has_mirrors = (has_mirrors_),                          \
        .promises_max = EDGES_MAX, .create = exchange_create, .destroy = exchange_destroy,         \
        .set_lineage = exchange_set_lineage, .begin = edges_begin,                                 \
        .on_message = exchange_on_message, .on_chunk = edges_on_chunk,                             \
        .on_chunk_checked = edges_on_chunk_checked, .on_job_done = edges_on_job_done,              \
        .on_link_up = exchange_on_link_up, .on_link_lost = exchange_on_link_lost,                  \
        .tick = exchange_tick, .next_ns = exchange_next_ns, .cancel = exchange_cancel,             \
        .state = exchange_state, .counts = exchange_counts, .allowed = exchange_allowed,           \
        .set_round = exchange_set_round, .outcome = exchange_outcome, .told = exchange_told,       \
        .save = exchange_save, .load = exchange_load                                               \
    }

const struct exchange_ops exchange_edges = EDGES_OPS("edges", false);
const struct exchange_ops exchange_mirror = EDGES_OPS("mirror", true);
