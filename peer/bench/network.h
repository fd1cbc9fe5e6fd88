/*
 * bench_network: how fast frames travel between two envs of this machine over loopback TCP, plain
 * and sealed. The receiver has a thread of its own; sealing and opening happen on the loops.
 */
#ifndef GRAPEVINE_PEER_BENCH_NETWORK_H
#define GRAPEVINE_PEER_BENCH_NETWORK_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdint.h>

struct json;

struct bench_network_options {
    double seconds;           /* for all rows together; not above 0: 5 */
    uint32_t bytes_per_frame; /* payload; 0: 4 KiB, 64 KiB, 128 KiB and 1 MiB */
};

/** `rows` is a fresh array of {what, frame_bytes, gb_per_s, q1, q3}: what is "plain" or a cipher,
 *  gb_per_s the median over samples of 10^9 payload bytes a second, q1 and q3 the quartiles.
 * RC_USAGE when a frame would be too small or too large; RC_IO, RC_NOMEM. */
MUST_USE enum rc bench_network(const struct bench_network_options *options, struct json **rows,
                               struct fault *why);

#endif
