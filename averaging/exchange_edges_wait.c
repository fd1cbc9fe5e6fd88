/*
 * How long a round of neighbours waits, and for whom. What neighbours take is learned (deadline.h),
 * between a floor and a cap; but a window that is learned from few is up to each of them, and one
 * that always came in the last moment could hold each round for as long as the cap. So once half of
 * them have come, and half are done, the others have as long again, and what they usually need to
 * answer. What they take beyond that is charged to them: three paces of ours in one round (or their
 * plane over a slow line), and four times that in all. An eighth of a pace is forgiven in each
 * round. Who has used it up is not waited for beyond the others, and comes to later rounds, when it
 * can. A pace is what it takes us from round to round, without what the slower half of them had us
 * wait. With one neighbour there is nobody to compare it with. Loop thread; pure.
 */
#include "averaging/exchange_edges.h"

#include "base/bytes.h"

enum {
    DEADLINE_SPREAD = 6,
    CREDIT_ROOMS = 4,
    BACK_SHARE = 8, /* of a pace, each round */
    ROOM_PACES = 3,
    EASE_SHARE = 16, /* of a pace: nobody is late by less */
    TRIPS_OPEN = 1,
    TRIPS_DATA = 4 /* CREDIT, chunks, READY, COMMIT */
};

static const uint64_t open_first_ns = 5 * NS_PER_S;
static const uint64_t open_floor_ns = NS_PER_S;
static const uint64_t open_cap_ns = 30 * NS_PER_S;
static const uint64_t data_first_ns = 20 * NS_PER_S;
static const uint64_t data_chunk_ns = 50 * NS_PER_MS;
static const uint64_t data_floor_ns = 2500 * NS_PER_MS;
static const uint64_t data_cap_ns = 120 * NS_PER_S;
static const uint64_t pace_least_ns = 10 * NS_PER_MS;
static const uint64_t ns_per_byte = 800; /* 10 Mbit/s */

/* ---- as learned ---- */

uint64_t edges_open_wait_ns(const struct edges *edges, const struct edge_link *link)
{
    uint64_t wait = open_first_ns;

    if (edges->opens.count >= DEADLINE_FEW) {
        uint64_t floor = open_floor_ns, twice = 2 * deadline_median(&edges->opens, 0);

        if (floor < twice) floor = twice;
        wait = deadline_window(&edges->opens, DEADLINE_SPREAD, open_first_ns, floor, open_cap_ns);
    }
    return wait >> (link->missed < 16 ? link->missed : 16);
}

uint64_t edges_data_wait_ns(const struct edges *edges)
{
    uint64_t first = data_first_ns + edges->options.chunks * data_chunk_ns;
    uint64_t floor = data_floor_ns, twice = 2 * deadline_median(&edges->exchanges, 0);

    if (edges->exchanges.count < DEADLINE_FEW) return first;
    if (floor < twice) floor = twice;
    return deadline_window(&edges->exchanges, DEADLINE_SPREAD, first, floor, data_cap_ns);
}

/* ---- who has others wait ---- */

static uint64_t pace_ns(const struct edges *edges)
{
    uint64_t pace = deadline_median(&edges->paces, 0);

    return pace > pace_least_ns ? pace : pace_least_ns;
}

/* For one that is late in one round: a pace, or its plane over a slow line. */
static uint64_t room_ns(const struct edges *edges, const struct edge *edge)
{
    uint64_t bytes = (uint64_t)edges->options.chunks * edges->options.chunk_bytes;
    uint64_t line = edge->state == EDGE_WAITING ? 0 : bytes * ns_per_byte, pace = pace_ns(edges);

    return line > ROOM_PACES * pace ? line : ROOM_PACES * pace;
}

/* Where it is written; with the table full, in place of the smallest. */
static struct edge_debt *debt_of(struct edges *edges, struct peer_id peer)
{
    struct edge_debt *place = &edges->debts[0];

    for (uint32_t i = 0; i < EDGES_MAX; i++) {
        struct edge_debt *debt = &edges->debts[i];

        if (peer_id_is_equal(debt->peer, peer)) return debt;
        if (debt->ns < place->ns) place = debt;
    }
    *place = (struct edge_debt){.peer = peer};
    return place;
}

void edges_wait_begin(struct edges *edges)
{
    uint64_t back;

    if (edges->half_done_ns != 0) { /* without what the slower half had us wait */
        uint64_t held = edges->over_ns - edges->half_done_ns;

        deadline_add(&edges->paces, edges->now_ns - edges->begun_ns - held);
    }
    edges->half_open_ns = edges->half_done_ns = 0;
    back = pace_ns(edges) / BACK_SHARE;
    for (uint32_t i = 0; i < EDGES_MAX; i++) {
        struct edge_debt *debt = &edges->debts[i];

        debt->ns -= debt->ns < back ? debt->ns : back;
    }
}

void edges_wait_note(struct edges *edges)
{
    uint32_t come = 0, done = 0;

    for (uint32_t i = 0; i < edges->edges_count; i++) {
        come += edges->edges[i].state != EDGE_WAITING;
        done += edges->edges[i].state == EDGE_COMMITTED;
    }
    if (edges->half_open_ns == 0 && 2 * come >= edges->edges_count) {
        edges->half_open_ns = edges->now_ns;
    }
    if (edges->half_done_ns == 0 && 2 * done >= edges->edges_count) {
        edges->half_done_ns = edges->now_ns;
    }
}

/* From here on it is late; UINT64_MAX: nobody is yet, or nobody can say. */
static uint64_t late_ns(const struct edges *edges, const struct edge *edge)
{
    bool is_waiting = edge->state == EDGE_WAITING;
    uint64_t half = is_waiting ? edges->half_open_ns : edges->half_done_ns;
    uint64_t trips = exchange_trips_ns(&edges->options, edge->ref.id,
                                       is_waiting ? TRIPS_OPEN : TRIPS_DATA, open_floor_ns);

    if (half == 0 || edges->edges_count < 2 || edges->paces.count < DEADLINE_FEW) {
        return UINT64_MAX;
    }
    return deadline_after(half, half - edges->begun_ns + pace_ns(edges) / EASE_SHARE + trips);
}

uint64_t edges_edge_deadline_ns(const struct edges *edges, const struct edge *edge)
{
    uint64_t late = late_ns(edges, edge), room = room_ns(edges, edge), left = CREDIT_ROOMS * room;

    if (edge->state == EDGE_PREPARED || late == UINT64_MAX) return edge->deadline_ns;
    for (uint32_t i = 0; i < EDGES_MAX; i++) {
        const struct edge_debt *debt = &edges->debts[i];

        if (!peer_id_is_equal(debt->peer, edge->ref.id)) continue;
        left -= debt->ns < left ? debt->ns : left;
    }
    late = deadline_after(late, left < room ? left : room);
    return late < edge->deadline_ns ? late : edge->deadline_ns;
}

void edges_wait_over(struct edges *edges, const struct edge *edge)
{
    uint64_t late = late_ns(edges, edge), most = CREDIT_ROOMS * room_ns(edges, edge);
    struct edge_debt *debt;

    if (edges->now_ns <= late) return;
    debt = debt_of(edges, edge->ref.id);
    debt->ns += edges->now_ns - late;
    if (debt->ns > most) debt->ns = most;
}
