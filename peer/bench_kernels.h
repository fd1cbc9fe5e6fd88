/* bench_kernels: the speed of single operations on this machine, in the shapes of a training step.
 */
#ifndef GRAPEVINE_PEER_BENCH_KERNELS_H
#define GRAPEVINE_PEER_BENCH_KERNELS_H

#include "peer/bench_train.h"

struct bench_kernels_options {
    struct bench_clock clock;
    uint32_t threads; /* 0: 1 */
    double seconds;   /* for all rows together; not above 0: 5 */
};

/** `rows` is a fresh array of {kernel, shape, by, threads, unit, per_s, q1, q3}: unit "GFLOP" for
 *  products and convolutions, "GB" for passes over vectors. RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc bench_kernels(const struct bench_kernels_options *options, struct json **rows,
                               struct fault *why);

#endif
