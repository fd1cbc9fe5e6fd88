/*
 * How a round of neighbours begins: its number and generation, whom it is with, how long each is
 * waited for. The picture is in edges.c. Loop thread; pure.
 */
#include "averaging/edge/edges.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"

#include <string.h>

enum {
    RAISES_MAX = 32,   /* in a row: when a swarm forms, or a part of it comes back, all may do so */
    RAISES_EPOCH = 8,  /* and when members came or went, which some see before others ... */
    EPOCH_REST = 1024, /* ... once in RAISE_ROUNDS, then in twice as many, up to this */
    RAISE_ROUNDS = 32, /* of ours until one more, then twice as many, ... */
    RAISE_REST = 4096, /* ... up to this; and for one more of RAISES_MAX */
    LEADS_MAX = 32,    /* in a row: to a later round, though others are still with us */
    LEAD_ROUNDS = 64,  /* of ours, for one more */
    IDLE_MAX = 1024    /* so many rounds without an edge, and it is taken to have been in one */
};

static void sort_edges(struct edges *edges)
{
    for (uint32_t i = 1; i < edges->edges_count; i++) {
        struct edge edge = edges->edges[i];
        uint32_t j = i;

        for (; j > 0 && peer_id_compare(edges->edges[j - 1].swap.other.id, edge.swap.other.id) > 0;
             j--) {
            edges->edges[j] = edges->edges[j - 1];
        }
        edges->edges[j] = edge;
    }
}

/* ---- its number ---- */

/* With the table full, the one that may most often gives way. */
static struct edge_leader *leader_of(struct edges *edges, struct peer_id peer)
{
    struct edge_leader *other = &edges->leaders[0];

    for (uint32_t i = 0; i < ARRAY_COUNT(edges->leaders); i++) {
        struct edge_leader *leader = &edges->leaders[i];

        if (leader->is_used && peer_id_is_equal(leader->peer, peer)) return leader;
        if (!other->is_used) continue;
        if (!leader->is_used || leader->left > other->left) other = leader;
    }
    *other = (struct edge_leader){
        .is_used = true, .peer = peer, .left = LEADS_MAX, .since = edges->begins};
    return other;
}

/* Who goes to a later round than another neighbour that is still with us makes us leave that one
 * behind, and it its others. It happens after a disturbance; one that does so in every round would
 * cost the whole graph a part of its rounds. So it is followed for a while, and then now and again;
 * in between there is no edge with it. */
static bool may_lead(struct edges *edges, struct peer_id peer)
{
    struct edge_leader *leader = leader_of(edges, peer);
    uint64_t earned = (edges->begins - leader->since) / LEAD_ROUNDS;

    leader->since += earned * LEAD_ROUNDS;
    if (earned > LEADS_MAX - leader->left) earned = LEADS_MAX - leader->left;
    leader->left += (uint32_t)earned;
    if (leader->left == 0) return false;
    leader->left--;
    return true;
}

/* Where the graph is split into matchings, most rounds are without some of its edges. */
static bool is_in(const struct edges *edges, const struct edge *edge, uint64_t round)
{
    return edges->matchings.count == 0 ||
           matching_is_active(&edges->matchings, round, edge->matched.matching);
}

/* There is a round of [from, to) that the edge is in. */
static bool has_round(const struct edges *edges, const struct edge *edge, uint64_t from,
                      uint64_t to)
{
    if (to > from && to - from > IDLE_MAX) return true;
    for (; from < to; from++) {
        if (is_in(edges, edge, from)) return true;
    }
    return false;
}

/* It was in our last round or is in this one, and no further: of the rounds of its edge. */
static bool is_with_us(const struct edges *edges, const struct edge *edge,
                       const struct edge_link *link)
{
    uint64_t round = edges->counts.next_round;

    return link->has_open && link->missed == 0 && link->round <= round &&
           !has_round(edges, edge, link->round + 1, round);
}

/* The neighbour that is furthest, of those not in `passed`; NULL: none is further than we. One that
 * had no round with us on its way there only waits for us. */
static const struct edge_link *furthest(struct edges *edges, const bool passed[EDGES_MAX],
                                        uint32_t *which)
{
    const struct edge_link *most = NULL;

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        const struct edge *edge = &edges->edges[i];
        const struct edge_link *link = edges_link_find(edges, edge->swap.other.id);

        if (passed[i] || !link->has_open || link->round <= edges->counts.next_round) continue;
        if (most != NULL && link->round <= most->round) continue;
        if (!has_round(edges, edge, edges->counts.next_round, link->round)) continue;
        most = link;
        *which = i;
    }
    return most;
}

/* The number of this round: ours, unless neighbours are further: see edges.c. */
static uint64_t choose_round(struct edges *edges)
{
    uint64_t round = edges->counts.next_round;
    bool passed[EDGES_MAX] = {false}, leaves_others = false;
    const struct edge_link *first;
    uint32_t which = 0;

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        const struct edge *edge = &edges->edges[i];

        leaves_others |= is_with_us(edges, edge, edges_link_find(edges, edge->swap.other.id));
    }
    while ((first = furthest(edges, passed, &which)) != NULL && leaves_others &&
           !may_lead(edges, edges->edges[which].swap.other.id)) {
        passed[which] = true;
    }
    edges->is_catching_up = first != NULL && !edges->goes_ahead;
    edges->is_ahead = first != NULL && edges->goes_ahead;
    if (first == NULL) return round;
    if (first->round - round > EDGES_ROUND_LEAP) return round + EDGES_ROUND_LEAP;
    return edges->is_ahead ? first->round + 1 : first->round;
}

static struct digest graph_of(const struct edges *edges)
{
    struct hash hash;

    hash_init(&hash);
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        const struct edge *edge = &edges->edges[i];

        hash_update(&hash, edge->swap.other.id.bytes, PEER_ID_BYTES);
        hash_update(&hash, edge->swap.other.boot.bytes, BOOT_ID_BYTES);
        hash_update(&hash, &edge->swap.weight, sizeof edge->swap.weight);
    }
    return hash_final(&hash);
}

/* With the table full, the one that may most often gives way. */
static struct edge_raiser *raiser_of(struct edges *edges, struct peer_id peer)
{
    struct edge_raiser *other = &edges->raisers[0];

    for (uint32_t i = 0; i < EDGES_RAISERS_MAX; i++) {
        struct edge_raiser *raiser = &edges->raisers[i];

        if (raiser->is_used && peer_id_is_equal(raiser->peer, peer)) return raiser;
        if (!other->is_used) continue;
        if (!raiser->is_used || raiser->left > other->left) other = raiser;
    }
    *other = (struct edge_raiser){.is_used = true,
                                  .peer = peer,
                                  .left = RAISES_MAX,
                                  .since = edges->begins,
                                  .wait = RAISE_ROUNDS,
                                  .epoch = edges->epoch,
                                  .epoch_wait = RAISE_ROUNDS};
    return other;
}

/* Members came or went since it was last allowed more for that. Whoever tells of invented ones
 * makes it seem so in every round, so it is allowed ever more seldom, and what came of it meanwhile
 * counts once, later. */
static void raiser_earn_by_epoch(const struct edges *edges, struct edge_raiser *raiser)
{
    if (digest_is_equal(raiser->epoch, edges->epoch) || edges->begins < raiser->epoch_next) return;
    raiser->epoch = edges->epoch;
    raiser->epoch_next = edges->begins + raiser->epoch_wait;
    raiser->epoch_wait = raiser->epoch_wait < EPOCH_REST / 2 ? 2 * raiser->epoch_wait : EPOCH_REST;
    raiser->wait = RAISE_ROUNDS;
    raiser->is_scored = false;
    if (raiser->left < RAISES_EPOCH) raiser->left = RAISES_EPOCH;
}

/* What it may do by now. */
static void raiser_earn(struct edges *edges, struct edge_raiser *raiser)
{
    uint64_t rested = (edges->begins - raiser->since) / RAISE_REST;

    raiser->since += rested * RAISE_REST;
    if (rested > 0 && raiser->epoch_wait > RAISE_ROUNDS) raiser->epoch_wait /= 2;
    if (rested > RAISES_MAX - raiser->left) rested = RAISES_MAX - raiser->left;
    raiser->left += (uint32_t)rested;
    raiser_earn_by_epoch(edges, raiser);
    if (raiser->left > 0 || edges->begins < raiser->last + raiser->wait) return;
    raiser->left = 1;
    raiser->is_scored = false;
    raiser->wait = 2 * raiser->wait < RAISE_REST ? 2 * raiser->wait : RAISE_REST;
}

/* Whoever says that it began anew makes us lose what we keep. One that says so in every round would
 * leave nobody any memory, so that is allowed for a while, some times more when members come or
 * go, as we reckon, and without that ever more seldom; in between there is no edge with it, and
 * what others keep stays. An honest one that had reason to more often is met again later. */
static bool may_raise(struct edges *edges, struct peer_id peer, struct commands *out)
{
    struct edge_raiser *raiser = raiser_of(edges, peer);

    raiser_earn(edges, raiser);
    if (raiser->left > 0) {
        raiser->left--;
        raiser->last = edges->begins;
        return true;
    }
    if (!raiser->is_scored) {
        commands_score(out, peer, SCORE_LATE, "begins a new generation again and again");
    }
    raiser->is_scored = true;
    return false;
}

static void choose_generation(struct edges *edges, struct commands *out)
{
    uint64_t highest = edges->generation;
    struct digest graph = graph_of(edges);

    edges->begins++;
    if (!edges->options.has_memory) return;
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        struct peer_id peer = edges->edges[i].swap.other.id;
        const struct edge_link *link = edges_link_find(edges, peer);

        if (!link->has_open || link->generation <= highest) continue;
        if (may_raise(edges, peer, out)) highest = link->generation;
    }
    if (highest - edges->generation > EDGES_ROUND_LEAP) {
        highest = edges->generation + EDGES_ROUND_LEAP;
    }
    if (edges->has_graph && !digest_is_equal(graph, edges->graph)) edges->wants_restart = true;
    edges->graph = graph;
    edges->has_graph = true;
    if (edges->wants_restart) highest++;
    edges->wants_restart = false;
    if (highest == edges->generation) return;
    edges->generation = highest;
    (void)commands_add(out, COMMAND_FORGET);
}

/* It was given up only for not being there in time. Not where edges take turns: it would be out of
 * its turn, see grant_slots(). */
bool edges_may_reopen(const struct edges *edges, const struct edge *edge)
{
    return edge->state == EDGE_DROPPED && edge->is_late && edges->edges_count <= EDGES_SLOTS;
}

/* If its neighbour has come to this round: both are in it. */
void edges_open(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct edge_link *link = edges_link_find(edges, edge->swap.other.id);

    if (link == NULL || !link->has_open || link->round != edges->round) return;
    if (edge->state != EDGE_WAITING && !edges_may_reopen(edges, edge)) return;
    if (promise_is_in_doubt_with(&edges->promises, edge->swap.other.id))
        return; /* first what was before */
    edge->is_late = false;
    link->is_answered = true;
    if (edges->options.has_memory && link->generation != edges->generation) {
        edges_become(edge, EDGE_WAITING);
        edges_drop(edges, edge, ABORT_PROTOCOL, "a neighbour began its generation at another time",
                   true, out);
        return;
    }
    if (link->weight < edge->swap.weight) edge->swap.weight = link->weight;
    edge->swap.radius_kept = link->radius < edge->swap.radius ? link->radius : edge->swap.radius;
    edges_wait_over(edges, edge);
    edges_become(edge, EDGE_OPEN);
    edges_wait_data(edges, edge);
}

static void send_open(struct edges *edges, const struct edge *edge, struct commands *out)
{
    struct message *message = commands_send(out, edge->swap.other.id, MESSAGE_EDGE_OPEN);
    struct message_edge_open *open;

    if (message == NULL) return;
    open = &message->as.edge_open;
    open->round = edges->round;
    open->weight = edge->swap.weight;
    open->radius = edge->swap.radius;
    open->generation = edges->generation;
    open->chunks = edges->options.chunks;
    open->schema = edges->options.schema;
    open->lineage = edges->lineage;
    memcpy(open->codec, edges->options.codec, sizeof open->codec);
}

static void edge_begin(struct edges *edges, struct edge *edge, struct commands *out)
{
    struct swap *swap = &edge->swap;
    struct edge_link *link = edges_link_find(edges, swap->other.id);

    swap->key = edges_key_with(edges, swap->other, edges->round);
    swap->is_decider = peer_id_is_equal(swap->key.initiator, edges->options.self);
    transfer_out_begin(&swap->out, swap->other.id, edges->stream, edges->options.chunks);
    edges_wait_open(edges, edge);
    if (patience_bars(&edges->patience, edge->swap.other.id, edges->now_ns)) {
        edges_drop(edges, edge, ABORT_PROTOCOL, "a neighbour is left out for a while", true, out);
        return;
    }
    send_open(edges, edge, out);
    edges_mirror_say(edges, edge, out);
    if (link->has_open && link->round == edges->round) deadline_add(&edges->opens, 0);
    if (!link->has_open || link->round <= edges->round) return;
    edge->is_late = true; /* this round was skipped: it was not followed */
    edge->is_measure = false;
    edges_drop(edges, edge, ABORT_DEADLINE, "a neighbour is further", false, out);
}

/* Who has come to this round before us and is no neighbour in it as we see the graph: while news of
 * members spreads, two may see it unlike. It is not to wait for us. */
static void refuse_strangers(struct edges *edges, struct commands *out)
{
    for (uint32_t i = 0; i < edges->roster.count; i++) {
        struct edge_link *link = &edges->links[i];
        struct member_ref peer = edges->roster.refs[i];
        struct round_key key = edges_key_with(edges, peer, link->round);

        if (!link->has_open || link->is_answered || link->round > edges->round) continue;
        if (edges_find(edges, peer.id) != NULL) continue;
        link->is_answered = true;
        commands_abort(out, peer.id, &key, ABORT_PROTOCOL);
    }
}

/* Leave the edges that are in this round, each by what it weighs there. */
static void keep_active(struct edges *edges)
{
    uint32_t kept = 0;

    if (edges->matchings.count == 0) return;
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        struct edge *edge = &edges->edges[i];

        if (!is_in(edges, edge, edges->round)) continue;
        edge->swap.weight = matching_weight(&edges->matchings, edges->round, &edge->matched);
        edges->edges[kept++] = *edge;
    }
    edges->edges_count = kept;
}

enum rc edges_begin(struct exchange *exchange, const struct round_members *members,
                    uint64_t samples, uint64_t now_ns, struct commands *out)
{
    static const struct digest none;
    struct edges *edges = (struct edges *)(void *)exchange;
    float radius = exchange_radius(&edges->options, &edges->distances);

    (void)samples; /* weights are the graph's */
    edges->now_ns = now_ns;
    if (edges->is_active) return RC_BUSY;
    if (members->count == 0 || digest_is_equal(edges->lineage, none)) return RC_NOT_FOUND;
    CHECK(members->count <= EDGES_MAX && members->weights != NULL);
    edges->edges_count = 0;
    edges->epoch = members->epoch;
    edges->matchings =
        members->matchings != NULL ? *members->matchings : (struct matchings){.count = 0};
    for (uint32_t i = 0; i < members->count; i++) {
        struct member_ref ref = {members->ids[i], members->boots[i]};

        CHECK(!peer_id_is_equal(ref.id, edges->options.self));
        CHECK(members->weights[i] > 0 && members->weights[i] <= 1);
        if (edges_link_add(edges, ref) == NULL) continue;
        edges->edges[edges->edges_count++] =
            (struct edge){.swap = {.other = ref,
                                   .weight = members->weights[i],
                                   .radius = radius,
                                   .keeps = edges->options.has_memory},
                          .slot = EDGES_NO_SLOT};
        if (edges->matchings.count > 0) {
            edges->edges[edges->edges_count - 1].matched = members->matched[i];
        }
    }
    if (edges->edges_count == 0) return RC_NOT_FOUND;
    sort_edges(edges);
    edges->wants_restart |= members->begins_anew;
    choose_generation(edges, out);
    edges->round = choose_round(edges);
    edges->stream = exchange_stream(
        &(struct round_key){edges->options.self, edges->options.boot, edges->round});
    edges->counts.next_round = edges->round + 1;
    keep_active(edges);
    if (edges->edges_count == 0) { /* it is over: the next one may have some */
        edges->counts.rounds_idle++;
        refuse_strangers(edges, out);
        return RC_NOT_FOUND;
    }
    edges->is_active = true;
    edges->has_snapshot = false;
    edges->last_drop = NULL;
    edges->begun_ns = now_ns;
    edges_wait_begin(edges, members->period_ns);
    edges_mirror_begin(edges);
    (void)commands_add(out, COMMAND_SNAPSHOT);
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        edge_begin(edges, &edges->edges[i], out);
    }
    refuse_strangers(edges, out);
    edges_advance(edges, out);
    return RC_OK;
}
