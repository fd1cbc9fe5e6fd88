/*
 * How long a pair round waits, and for what (times.h). Loop thread; pure.
 */
#include "averaging/pair/pair.h"

#include "averaging/core/times.h"

enum {
    ROUND_TRIPS = 5, /* OFFER, CREDIT, READY; and two to make a bulk connection */
    PATIENCE = 4     /* an initiator's deadline counts up to so many of our own */
};

uint64_t pair_round_wait_ns(const struct pair *pair, struct peer_id partner)
{
    const struct awaited round = {&times_plane, &pair->rounds, ROUND_TRIPS, pair->options.chunks};

    return exchange_wait_ns(&pair->options, partner, &round);
}

/* A silent initiator must not hold us for long. */
uint64_t pair_offered_wait_ns(const struct pair *pair, struct peer_id from, uint32_t offered_ms)
{
    uint64_t patience = pair_round_wait_ns(pair, from), wait = offered_ms * NS_PER_MS;

    if (exchange_is_proven(&pair->options, from)) patience *= PATIENCE;
    return deadline_least(deadline_least(wait, patience), times_plane.cap_ns);
}

uint64_t pair_answer_wait_ns(const struct pair *pair)
{
    const struct awaited answer = {&times_answer, &pair->answers, 1, 0};

    return exchange_wait_ns(&pair->options, pair->swap.other.id, &answer);
}

uint64_t pair_decision_wait_ns(const struct pair *pair)
{
    const struct awaited decision = {&times_decision, &pair->decisions, 1, 0};

    return exchange_wait_ns(&pair->options, pair->swap.other.id, &decision);
}

/* Who has only offered knows in one answer's time; a round takes as long as rounds do. */
uint32_t pair_retry_ms(const struct pair *pair)
{
    const struct deadline *usual = pair->state == PAIR_OFFERED ? &pair->answers : &pair->rounds;
    uint64_t whole = deadline_median(usual, 0), spent = pair->now_ns - pair->begun_ns;
    uint64_t left = whole > spent ? whole - spent : 0;

    if (pair->state == PAIR_IDLE) left = RETRY_MOST_NS; /* it is a doubt that is in the way */
    left = deadline_least(deadline_most(left, RETRY_LEAST_NS), RETRY_MOST_NS);
    return (uint32_t)(left / NS_PER_MS);
}
