/*
 * How long a pair round waits, and for what: learned from rounds before (deadline.h), with floors
 * for partners that are proven and shorter ones for those that are not (exchange.h). Nobody can
 * configure any of it. Loop thread; pure.
 */
#include "averaging/pair/pair.h"

#include "base/bytes.h"

/* For one answer: before anything is known, which is also the most; and the least, of who is proven
 * and of who is not. */
struct answer_waits {
    uint64_t first_ns, floor_ns, new_ns;
};

static const struct answer_waits answer_waits = {/* from OFFER to its answer */
                                                 5 * NS_PER_S, 2 * NS_PER_S, 400 * NS_PER_MS};
static const struct answer_waits decision_waits = {/* from READY to COMMIT */
                                                   5 * NS_PER_S, 2 * NS_PER_S, 400 * NS_PER_MS};
static const uint64_t deadline_cap_ns = 600 * NS_PER_S;

enum {
    DEADLINE_SPREAD = 8,
    ROUND_TRIPS = 5, /* OFFER, CREDIT, READY; and two to make a bulk connection */
    PATIENCE = 4,    /* an initiator's deadline counts up to so many of our own */
    RETRY_LEAST_MS = 10,
    RETRY_MOST_MS = 1000
};

uint64_t pair_round_wait_ns(const struct pair *pair, struct peer_id partner)
{
    return exchange_plane_wait_ns(&pair->options, &pair->rounds, partner, ROUND_TRIPS);
}

/* A silent initiator must not hold us for long. */
uint64_t pair_offered_wait_ns(const struct pair *pair, struct peer_id from, uint32_t offered_ms)
{
    uint64_t patience = pair_round_wait_ns(pair, from), wait = offered_ms * NS_PER_MS;

    if (exchange_is_proven(&pair->options, from)) patience *= PATIENCE;
    if (wait > patience) wait = patience;
    return wait < deadline_cap_ns ? wait : deadline_cap_ns;
}

/* For one answer of the partner. Where all take about as long, as over a long line, their spread
 * says nothing: half of them take longer than the median. */
static uint64_t one_answer_ns(const struct pair *pair, const struct deadline *usual,
                              const struct answer_waits *waits)
{
    bool is_proven = exchange_is_proven(&pair->options, pair->swap.other.id);
    uint64_t floor = is_proven ? waits->floor_ns : waits->new_ns;
    uint64_t trip = exchange_trips_ns(&pair->options, pair->swap.other.id, 1,
                                      is_proven ? waits->first_ns : waits->floor_ns);
    uint64_t twice = 2 * deadline_median(usual, 0);

    if (usual->count < DEADLINE_FEW) return waits->first_ns;
    if (floor < trip) floor = trip;
    if (floor < twice) floor = twice < waits->first_ns ? twice : waits->first_ns;
    return deadline_window(usual, DEADLINE_SPREAD, waits->first_ns, floor, waits->first_ns);
}

uint64_t pair_answer_wait_ns(const struct pair *pair)
{
    return one_answer_ns(pair, &pair->answers, &answer_waits);
}

uint64_t pair_decision_wait_ns(const struct pair *pair)
{
    return one_answer_ns(pair, &pair->decisions, &decision_waits);
}

/* Who has only offered knows in one answer's time; a round takes as long as rounds do. */
uint32_t pair_retry_ms(const struct pair *pair)
{
    const struct deadline *usual = pair->state == PAIR_OFFERED ? &pair->answers : &pair->rounds;
    uint64_t whole = deadline_median(usual, 0), spent = pair->now_ns - pair->begun_ns;
    uint64_t left_ms = whole > spent ? (whole - spent) / NS_PER_MS : 0;

    if (pair->state == PAIR_IDLE) return RETRY_MOST_MS; /* it is a doubt that is in the way */
    if (left_ms < RETRY_LEAST_MS) return RETRY_LEAST_MS;
    return left_ms > RETRY_MOST_MS ? RETRY_MOST_MS : (uint32_t)left_ms;
}
