/* bench_kernels: the speed of single operations on this machine, in the shapes of a training step.
 */
#ifndef GRAPEVINE_PEER_BENCH_KERNELS_H
#define GRAPEVINE_PEER_BENCH_KERNELS_H

#include "peer/bench/train.h"

struct bench_kernels_options {
    struct bench_clock clock;
    struct backend *backend; /* borrowed; of the processor only the number of threads matters */
    const char *device;      /* what rows call it; NULL: cpu */
    double seconds;          /* for all rows together; not above 0: 5 */
    uint32_t shrink;         /* divides the sizes of a device's rows, for tests; 0: 1 */
};

/** `rows` is a fresh array of {kernel, shape, by, threads, device, unit, per_s, q1, q3}: unit
 *  "GFLOP" for products, convolutions and attention, "GB" for what moves memory. The shapes are
 *  those that the processor is for, or a device; what a device has no memory for is left out.
 *  RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc bench_kernels(const struct bench_kernels_options *options, struct json **rows,
                               struct fault *why);

#endif
