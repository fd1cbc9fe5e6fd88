/*
 * bench_averaging: rounds of a swarm of real processes on loopback: sealed, decoded, reduced as in
 * training, only that nothing is learnt. The children are this executable again, told by
 * BENCH_PEER_VARIABLE in their environment which of them they are.
 *
 *  parent                                     child
 *  spawn the first  ---------------------->   listen, "address HOST:PORT"
 *  spawn the others with that address ---->   join; linked with all: "formed"
 *  make the file `go` -------------------->   take its own random plane, begin rounds
 *                   <----------------------   "round NS" at the end of each, "done {...}" at last
 */
#ifndef GRAPEVINE_PEER_BENCH_AVERAGING_H
#define GRAPEVINE_PEER_BENCH_AVERAGING_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stdint.h>

struct json;

/* Not GRAPEVINE_*: those are options. Value "NUMBER FOLDER ADDRESS"; ADDRESS "-": be the first. */
#define BENCH_PEER_VARIABLE "BENCH_GRAPEVINE_PEER"

struct bench_averaging_options {
    uint32_t peers, group, rounds;
    uint64_t values;      /* of the plane; 0: 2,373,888 */
    const char *codec;    /* NULL: f32 */
    const char *exchange; /* group (NULL) or pair */
    bool is_grid;         /* groups are lines of a grid, another dimension each round */
    bool is_clear;        /* what is averaged travels unsealed */
};

/** `result` is a fresh object {peers, group, values, codec, exchange, sealed, total_s, p50_s,
 * p99_s, round_p50_s, round_p99_s, rounds_ok, rounds_aborted, max_error, bytes_per_peer,
 * rss_bytes}. total_s: from the first round's begin to the last one's end; p50_s, p99_s: of the
 * time from one round's end to the next one's, over all peers; round_*: from a round's snapshot
 * until its result is applied, the first two of each peer left out; max_error: after the last
 * round, of any value against the float64 mean of all starts (one group, or a whole grid and rounds
 * in each of its dimensions), else how far the mean of all values drifted; bytes_per_peer: sent,
 * the handshakes not counted; rss_bytes: the largest peak of a peer. RC_IO, RC_TIMEOUT. */
MUST_USE enum rc bench_averaging(const struct bench_averaging_options *options,
                                 struct json **result, struct fault *why);
/** The child's whole life, until it is killed. `role`: the variable's value. */
MUST_USE enum rc bench_averaging_peer(const struct bench_averaging_options *options,
                                      const char *role, struct fault *why);

#endif
