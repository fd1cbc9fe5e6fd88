/*
 * bench_train: how fast this machine trains a model: whole steps (forward, loss, backward, update)
 * on made-up data, timed in chunks so that a busy machine shows as spread and not as a mean.
 */
#ifndef GRAPEVINE_PEER_BENCH_TRAIN_H
#define GRAPEVINE_PEER_BENCH_TRAIN_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdint.h>

struct json;
struct log;

/* Where a benchmark has the time from: nanoseconds that never go back. */
struct bench_clock {
    uint64_t (*now_ns)(void *context);
    void *context;
};

struct bench_train_options {
    struct bench_clock clock;
    uint64_t (*now_ns)(void); /* for choosing a precision; NULL: as on a machine without a clock */
    const struct log *log;    /* hears what precision is used; NULL: nobody */
    const char *model;        /* NULL: cnn */
    const char *precision;    /* NULL, f32 or bf16 */
    const char *device;       /* NULL, auto or cpu */
    uint32_t batch;           /* 0: 64 */
    uint32_t threads;         /* 0: 1 */
    double seconds;           /* not above 0: 5 */
    uint32_t channels, height, width, classes; /* 0: 1 x 28 x 28, 10 */
    struct json **profile;                     /* gets model_profiler_rows(); NULL: not wanted */
};

/** `row` is fresh: {model, batch, threads, precision, device, unit, per_s, q1, q3, parameters,
 *  rss_bytes}; precision is the one used. per_s is the median over chunks, q1 and q3 the quartiles.
 * RC_UNSUPPORTED names the precision or device that is not there; RC_USAGE; what model_create()
 * returns. */
MUST_USE enum rc bench_train(const struct bench_train_options *options, struct json **row,
                             struct fault *why);

/* Sort `values` and write the quartiles (linear between neighbours). count > 0. */
struct bench_spread {
    double q1, median, q3;
};
struct bench_spread bench_spread_of(double *values, uint32_t count);

#endif
