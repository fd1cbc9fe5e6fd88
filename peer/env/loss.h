/*
 * loss: what lost segments cost a TCP connection, for networks that are made up (sim/path.c,
 * uv/proxy.c). TCP repeats what was lost, so the stream above it sees delay: a loss in the middle
 * of much data costs a round trip (duplicate acknowledgements tell of it), one at the end costs a
 * retransmission time-out of 200 ms and a round trip, doubled each time the repetition is lost too
 * (RFC 6298, RFC 5681). And the rate falls to about 1.22 MSS / (RTT sqrt(p)) (Mathis et al. 1997,
 * "The macroscopic behavior of the TCP congestion avoidance algorithm"). Pure.
 */
#ifndef GRAPEVINE_PEER_ENV_LOSS_H
#define GRAPEVINE_PEER_ENV_LOSS_H

#include "base/bytes.h"
#include "base/rng.h"
#include "peer/env/times.h"

#include <math.h>
#include <stddef.h>
#include <stdint.h>

enum { LOSS_SEGMENT_BYTES = 1448, LOSS_TAIL_SEGMENTS = 3, LOSS_REPEATS_MAX = 7 };

/** How much later `count` bytes arrive where a segment is lost with probability `loss`. */
static inline uint64_t loss_draw_ns(struct rng *rng, double loss, uint64_t round_ns, size_t count)
{
    double segments = (double)(count / LOSS_SEGMENT_BYTES + 1);
    uint64_t timeout_ns = LOSS_TIMEOUT_NS + round_ns, late_ns;

    if (loss <= 0.0 || rng_unit(rng) < pow(1.0 - loss, segments)) return 0;
    late_ns = segments > LOSS_TAIL_SEGMENTS ? round_ns : timeout_ns;
    for (int i = 0; i < LOSS_REPEATS_MAX && rng_unit(rng) < loss; i++) {
        late_ns += timeout_ns;
        timeout_ns *= 2;
    }
    return late_ns;
}

/** Bytes a second of one connection. */
static inline double loss_rate(double loss, double round_s)
{
    return 1.22 * LOSS_SEGMENT_BYTES / (round_s * sqrt(loss));
}

#endif
