/*
 * bench_train: how fast this machine trains a model: whole steps (forward, loss, backward, update)
 * on made-up data, or passes forward alone, timed in chunks so that a busy machine shows as spread
 * and not as a mean.
 */
#ifndef GRAPEVINE_PEER_BENCH_TRAIN_H
#define GRAPEVINE_PEER_BENCH_TRAIN_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stdint.h>

struct backend;
struct json;

/* Where a benchmark has the time from: nanoseconds that never go back. */
struct bench_clock {
    uint64_t (*now_ns)(void *context);
    void *context;
};

struct bench_train_options {
    struct bench_clock clock;
    struct backend *backend;                   /* borrowed; its threads are used, or its devices */
    const char *device;                        /* what the row calls it; NULL: cpu */
    const char *model;                         /* NULL: cnn */
    uint32_t batch;                            /* 0: the model's */
    double seconds;                            /* not above 0: 5 */
    uint32_t channels, height, width, classes; /* 0: what the model was made for */
    bool forward_alone;                        /* in evaluation mode, as eval and predict run */
    struct json **profile;                     /* gets model_profiler_rows(); NULL: not wanted */
};

/** `row` is fresh: {model, batch, threads, precision, device, unit, per_s, q1, q3, parameters,
 *  rss_bytes}; precision is the one used. per_s is the median over chunks, q1 and q3 the quartiles.
 * RC_USAGE; RC_NOMEM and RC_DEVICE with the device's own words; what model_create() returns. */
MUST_USE enum rc bench_train(const struct bench_train_options *options, struct json **row,
                             struct fault *why);

/* Sort `values` and write the quartiles (linear between neighbours). count > 0. */
struct bench_spread {
    double q1, median, q3;
};
struct bench_spread bench_spread_of(double *values, uint32_t count);

#endif
