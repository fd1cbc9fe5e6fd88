/*
 * How long a pair round waits, and for what: learned from rounds before (deadline.h), with floors
 * for partners that are proven and shorter ones for those that are not (exchange.h). Nobody can
 * configure any of it. Loop thread; pure.
 */
#include "averaging/exchange_pair.h"

#include "base/bytes.h"

static const uint64_t answer_first_ns = 5 * NS_PER_S; /* from OFFER to its answer */
static const uint64_t answer_floor_ns = 2 * NS_PER_S, answer_new_ns = 400 * NS_PER_MS;
static const uint64_t deadline_floor_ns = 5 * NS_PER_S, deadline_new_ns = NS_PER_S;
static const uint64_t decision_first_ns = 5 * NS_PER_S; /* from READY to COMMIT */
static const uint64_t decision_floor_ns = 2 * NS_PER_S, decision_new_ns = 400 * NS_PER_MS;
static const uint64_t deadline_cap_ns = 600 * NS_PER_S;
static const uint64_t first_deadline_ns = 30 * NS_PER_S;
static const uint64_t first_chunk_ns = 100 * NS_PER_MS; /* and this for each chunk: 10 Mbit/s */

enum {
    DEADLINE_SPREAD = 8,
    PATIENCE = 4, /* an initiator's deadline counts up to so many of our own */
    RETRY_LEAST_MS = 10,
    RETRY_MOST_MS = 1000
};

bool pair_is_proven(const struct pair *pair, struct peer_id id)
{
    const struct exchange_options *options = &pair->options;

    return options->standing == NULL || options->standing(options->context, id) == STANDING_PROVEN;
}

uint64_t pair_round_wait_ns(const struct pair *pair, struct peer_id partner)
{
    uint64_t first = first_deadline_ns + pair->options.chunks * first_chunk_ns;
    uint64_t most = first < deadline_cap_ns ? first : deadline_cap_ns; /* a floor is not capped */
    bool is_proven = pair_is_proven(pair, partner);
    uint64_t floor = is_proven ? deadline_floor_ns : deadline_new_ns;
    uint64_t twice = 2 * deadline_median(&pair->rounds, 0); /* the two ends take unlike times */
    uint64_t line = exchange_line_wait_ns(&pair->options, partner, pair->options.chunks,
                                          is_proven ? most : deadline_floor_ns);

    if (pair->rounds.count < DEADLINE_FEW) floor = deadline_floor_ns;
    if (floor < twice) floor = twice < deadline_cap_ns ? twice : deadline_cap_ns;
    if (floor < line) floor = line;
    return deadline_window(&pair->rounds, DEADLINE_SPREAD, first, floor, deadline_cap_ns);
}

/* A silent initiator must not hold us for long. */
uint64_t pair_offered_wait_ns(const struct pair *pair, struct peer_id from, uint32_t offered_ms)
{
    uint64_t patience = pair_round_wait_ns(pair, from), wait = offered_ms * NS_PER_MS;

    if (pair_is_proven(pair, from)) patience *= PATIENCE;
    if (wait > patience) wait = patience;
    return wait < deadline_cap_ns ? wait : deadline_cap_ns;
}

uint64_t pair_answer_wait_ns(const struct pair *pair)
{
    bool is_proven = pair_is_proven(pair, pair->partner.id);

    if (pair->answers.count < DEADLINE_FEW) return answer_first_ns;
    return deadline_window(&pair->answers, DEADLINE_SPREAD, answer_first_ns,
                           is_proven ? answer_floor_ns : answer_new_ns, answer_first_ns);
}

uint64_t pair_decision_wait_ns(const struct pair *pair)
{
    bool is_proven = pair_is_proven(pair, pair->partner.id);

    if (pair->decisions.count < DEADLINE_FEW) return decision_first_ns;
    return deadline_window(&pair->decisions, DEADLINE_SPREAD, decision_first_ns,
                           is_proven ? decision_floor_ns : decision_new_ns, decision_first_ns);
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
