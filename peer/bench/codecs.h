/* bench_codecs: how fast each codec of this build packs and unpacks, and what it costs in accuracy.
 */
#ifndef GRAPEVINE_PEER_BENCH_CODECS_H
#define GRAPEVINE_PEER_BENCH_CODECS_H

#include "peer/bench/train.h"

struct bench_codecs_options {
    struct bench_clock clock;
    uint64_t values; /* 0: 4,194,304: beyond the caches */
    uint32_t passes; /* 0: 15; the median counts */
};

/** `rows` is a fresh array of {codec, values, encode_gb_per_s, decode_gb_per_s (of float32), ratio,
 *  relative_error}. RC_NOMEM. */
MUST_USE enum rc bench_codecs(const struct bench_codecs_options *options, struct json **rows,
                              struct fault *why);

#endif
