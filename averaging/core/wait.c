/*
 * How long exchanges wait by what is known of a line, and for a plane: learned from rounds before
 * (deadline.h), with floors for peers that are proven and shorter ones for those that are not.
 * Nobody can configure any of it. Pure.
 */
#include "averaging/core/exchange.h"

#include "averaging/core/deadline.h"
#include "base/bytes.h"

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
    static const uint64_t most_ns = 3 * NS_PER_S;
    uint64_t answers[GROUP_MEMBERS_MAX];
    uint32_t known = 0;

    for (uint32_t i = 0; i < count; i++) {
        answers[known] = exchange_trips_ns(options, peers[i], 1, most_ns);
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

uint64_t exchange_plane_wait_ns(const struct exchange_options *options,
                                const struct deadline *usual, struct peer_id peer, uint32_t trips)
{
    enum { SPREAD = 8 };
    static const uint64_t floor_ns = 5 * NS_PER_S, new_ns = NS_PER_S;
    static const uint64_t cap_ns = 600 * NS_PER_S;
    static const uint64_t first_ns = 30 * NS_PER_S;
    static const uint64_t chunk_ns = 100 * NS_PER_MS; /* and this for each chunk: 10 Mbit/s */
    uint64_t first = first_ns + options->chunks * chunk_ns;
    bool is_proven = exchange_is_proven(options, peer);
    uint64_t most = deadline_least(first, cap_ns); /* a floor is not capped */
    uint64_t line_most = is_proven ? most : floor_ns;
    uint64_t floor = is_proven || usual->count < DEADLINE_FEW ? floor_ns : new_ns;
    uint64_t twice = 2 * deadline_median(usual, 0); /* the two ends take unlike times */

    floor = deadline_most(floor, deadline_least(twice, cap_ns));
    floor = deadline_most(floor, exchange_line_wait_ns(options, peer, options->chunks, line_most));
    floor = deadline_most(floor, exchange_trips_ns(options, peer, trips, line_most));
    return deadline_window(usual, SPREAD, first, floor, cap_ns);
}
