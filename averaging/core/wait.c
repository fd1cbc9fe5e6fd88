/*
 * How long exchanges wait for one peer: as rounds before have taught (deadline.h), and at least
 * what is known of its line. Pure.
 */
#include "averaging/core/exchange.h"

#include "averaging/core/times.h"

uint64_t exchange_trips_ns(const struct exchange_options *options, struct peer_id peer,
                           uint32_t trips, uint64_t most_ns)
{
    uint64_t answer = options->answer_ns == NULL ? 0 : options->answer_ns(options->context, peer);

    if (answer > most_ns) return most_ns;
    return answer * trips < most_ns ? answer * trips : most_ns;
}

uint64_t exchange_answer_ns(const struct exchange_options *options, const struct peer_id *peers,
                            uint32_t count)
{
    uint64_t answers[GROUP_MEMBERS_MAX];
    uint32_t known = 0;

    for (uint32_t i = 0; i < count; i++) {
        answers[known] = exchange_trips_ns(options, peers[i], 1, ANSWER_MOST_NS);
        known += answers[known] != 0;
    }
    deadline_sort(answers, known);
    return known == 0 ? 0 : answers[known / 2];
}

uint64_t exchange_line_wait_ns(const struct exchange_options *options, struct peer_id peer,
                               uint32_t chunks, uint64_t most_ns)
{
    enum { TIMES = 4 };
    uint64_t rate = options->line == NULL ? 0 : options->line(options->context, peer);
    double bytes = (double)chunks * options->chunk_bytes, wait_ns;

    if (rate == 0) return 0;
    wait_ns = TIMES * bytes * (double)NS_PER_S / (double)rate;
    return wait_ns < (double)most_ns ? (uint64_t)wait_ns : most_ns;
}

uint64_t exchange_slow_ns(const struct exchange_options *options, uint32_t chunks)
{
    return (uint64_t)chunks * options->chunk_bytes * SLOW_LINE_NS;
}

uint64_t exchange_wait_ns(const struct exchange_options *options, struct peer_id peer,
                          const struct awaited *awaited)
{
    struct deadline_bounds bounds = *awaited->bounds;
    bool is_proven = exchange_is_proven(options, peer);
    uint64_t most, line;

    bounds.first_ns =
        deadline_least(bounds.first_ns + exchange_slow_ns(options, awaited->chunks), bounds.cap_ns);
    most = is_proven ? bounds.first_ns : bounds.floor_ns;
    line = deadline_most(exchange_line_wait_ns(options, peer, awaited->chunks, most),
                         exchange_trips_ns(options, peer, awaited->trips, most));
    return deadline_wait_ns(awaited->usual, &bounds, is_proven, line);
}
