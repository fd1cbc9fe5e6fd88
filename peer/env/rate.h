/*
 * rate: a token bucket. Pure: it knows no clock. Tokens are bytes; they come in at a fixed rate, up
 * to `burst` of them wait, and a taker may go below zero, after which nobody gets any until the
 * debt is paid. Over any time T at most rate * T + burst + debt bytes pass.
 */
#ifndef GRAPEVINE_PEER_ENV_RATE_H
#define GRAPEVINE_PEER_ENV_RATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RATE_BURST_BYTES_MIN = 2048 };               /* a small message always fits */
#define RATE_BYTES_PER_S_MAX UINT64_C(100000000000) /* above it: no limit */

struct rate {
    uint64_t bytes_per_s; /* 0: no limit */
    int64_t burst;        /* 50 ms worth, and at least RATE_BURST_BYTES_MIN */
    int64_t level;        /* bytes that may pass now; below zero: debt */
    uint64_t at_ns;       /* what came in until then is in `level` */
};

/** Begins full. */
void rate_init(struct rate *rate, uint64_t bytes_per_s, uint64_t now_ns);
static inline bool rate_is_limited(const struct rate *rate)
{
    return rate->bytes_per_s > 0;
}
/** How much may pass at `now_ns` without going below `floor` (0, or -burst for what goes first).
 *  SIZE_MAX without a limit. */
size_t rate_allows(struct rate *rate, uint64_t now_ns, int64_t floor);
/** Bytes have passed. */
void rate_take(struct rate *rate, size_t bytes);
/** When `bytes` (at most the burst) more than `floor` will be there, if nobody takes any. */
uint64_t rate_ready_ns(const struct rate *rate, int64_t floor, int64_t bytes);
/** What one taker gets at a time, so that others have their turn: 10 ms worth, 1 to 64 KiB. */
size_t rate_portion(const struct rate *rate);

#endif
