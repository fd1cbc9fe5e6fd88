/*
 * How long a round of neighbours waits, and for whom. Loop thread; pure.
 *
 * Where half of the neighbours have come, or are through with the round, the others have as long
 * again, and then their credit (patience.h): so one neighbour that is late, silent at any point, or
 * comes in the last moment, makes rounds longer once and not for ever. A neighbour that rests is
 * not waited for once all with credit have come. Before half is there nobody can say who is late:
 * waits are then what earlier rounds have taught (times.h):
 *
 *   open      from the begin to a neighbour's OPEN; one that did not come lately, half as long
 *   exchange  from then on until all is there
 *   decision  from our READY to the other end's word
 */
#include "averaging/edge/edges.h"

#include "averaging/core/times.h"

enum { MISSED_MAX = 16, TRIPS = 2 };

/* ---- what earlier rounds have taught ---- */

static uint64_t give_up_ns(const struct edges *edges, const struct edge *edge, uint32_t halved,
                           const struct awaited *awaited)
{
    uint64_t wait = exchange_wait_ns(&edges->options, edge->swap.other.id, awaited);

    return deadline_after(edges->now_ns, wait >> halved);
}

void edges_wait_open(struct edges *edges, struct edge *edge)
{
    const struct awaited open = {&times_open, &edges->opens, 1, 0};
    uint64_t missed = edges_link_find(edges, edge->swap.other.id)->missed;

    edge->deadline_ns =
        give_up_ns(edges, edge, (uint32_t)deadline_least(missed, MISSED_MAX), &open);
}

void edges_wait_data(struct edges *edges, struct edge *edge)
{
    const struct awaited whole = {&times_edge, &edges->exchanges, 0, edges->options.chunks};

    edge->open_ns = edges->now_ns;
    edge->deadline_ns = give_up_ns(edges, edge, 0, &whole);
}

void edges_wait_decision(struct edges *edges, struct edge *edge)
{
    const struct awaited decision = {&times_decision, &edges->decisions, 1, 0};

    edge->ready_ns = edges->now_ns;
    edge->deadline_ns = give_up_ns(edges, edge, 0, &decision);
}

/* ---- who has the others wait ---- */

void edges_wait_begin(struct edges *edges, uint64_t period_ns)
{
    struct peer_id peers[EDGES_MAX];

    patience_begin(&edges->patience, period_ns);
    edges->half_come_ns = edges->half_over_ns = 0;
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        peers[i] = edges->edges[i].swap.other.id;
    }
    edges->answer_ns = exchange_answer_ns(&edges->options, peers, edges->edges_count);
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        struct edge *edge = &edges->edges[i];

        edge->is_measure = !patience_rests(&edges->patience, edge->swap.other.id, edges->now_ns);
        edge->credit_ns = patience_left_ns(
            &edges->patience, edge->swap.other.id,
            !exchange_is_proven(&edges->options, edge->swap.other.id), edges->now_ns);
    }
}

static uint64_t half_ns(const struct edges *edges, const struct edge *edge)
{
    return edge->state == EDGE_WAITING ? edges->half_come_ns : edges->half_over_ns;
}

static uint64_t free_ns(const struct edges *edges, const struct edge *edge)
{
    uint64_t usual = deadline_lower(&edges->opens, 0) + edges->answer_ns;

    if (edge->state != EDGE_WAITING) usual += deadline_lower(&edges->exchanges, 0);
    if (edges->options.goes_on) usual = deadline_most(usual, edges->patience.pace_ns / 2);
    return patience_free_ns(&edges->patience, edges->begun_ns, half_ns(edges, edge), usual);
}

void edges_wait_note(struct edges *edges)
{
    uint32_t all = 0, come = 0, over = 0;

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        const struct edge *edge = &edges->edges[i];

        if (!edge->is_measure) continue;
        all++;
        come += edge->state != EDGE_WAITING;
        over += edge->state >= EDGE_COMMITTED;
    }
    /* Where we follow one of them, the others are late for our sake. */
    if (all < 2 || edges->is_catching_up || edges->is_ahead) return;
    if (edges->half_come_ns == 0 && 2 * come >= all) edges->half_come_ns = edges->now_ns;
    if (edges->half_over_ns == 0 && 2 * over >= all) edges->half_over_ns = edges->now_ns;
}

void edges_wait_over(struct edges *edges, struct edge *edge)
{
    const struct patience_wait wait = {
        .peer = edge->swap.other.id,
        .is_new = !exchange_is_proven(&edges->options, edge->swap.other.id),
        .has_come = edge->state != EDGE_WAITING,
        .free_ns = free_ns(edges, edge)};

    if (half_ns(edges, edge) == 0) return;
    patience_charge(&edges->patience, &wait, edges->now_ns);
}

/* The OPEN of a neighbour that has credit is still to come. */
static bool is_open_awaited(const struct edges *edges)
{
    for (uint32_t i = 0; i < edges->edges_count; i++) {
        const struct edge *edge = &edges->edges[i];

        if (edge->credit_ns > 0 && edge->state == EDGE_WAITING) return true;
    }
    return false;
}

/* Until when a decision usually is here, which spares a doubt. */
static uint64_t decided_ns(const struct edges *edges, const struct edge *edge)
{
    uint64_t usual = 2 * deadline_lower(&edges->decisions, 0) + TRIPS * edges->answer_ns;

    return deadline_after(edge->ready_ns, usual);
}

/* A neighbour without a slot (EDGE_OPEN) waits for us. */
uint64_t edges_wait_until_ns(const struct edges *edges, const struct edge *edge)
{
    uint64_t until_ns;

    if (edge->state == EDGE_OPEN) return edge->deadline_ns;
    if (edge->state == EDGE_WAITING && !edge->is_measure) {
        return is_open_awaited(edges) ? edge->deadline_ns : 0;
    }
    if (half_ns(edges, edge) == 0) return edge->deadline_ns;
    until_ns = deadline_after(free_ns(edges, edge), edge->credit_ns);
    if (edge->state == EDGE_PREPARED) until_ns = deadline_most(until_ns, decided_ns(edges, edge));
    return deadline_least(until_ns, edge->deadline_ns);
}
