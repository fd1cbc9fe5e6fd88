/*
 * schedule: the learning rate at a step of the shared counter: `constant`, `step:every=,gamma=`,
 * `linear:min=`, `cosine:min=`, and `grow:every=,factor=,max=`, which lets the batch grow where
 * `step` would lower the rate; each with `warmup=`. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_OPTIMIZER_SCHEDULE_H
#define GRAPEVINE_REPLICA_OPTIMIZER_SCHEDULE_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdint.h>

enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_GROW,
    SCHEDULE_COUNT
};

struct schedule {
    enum schedule_kind kind;
    uint64_t steps_total;  /* linear, cosine: where it reaches the minimum; it stays there after */
    uint64_t warmup_steps; /* the rate climbs linearly over these */
    uint64_t every_steps;  /* step, grow: what changes does so after so many, from step 0 */
    double gamma;          /* step: by this the rate is multiplied */
    double min_share;      /* linear, cosine: of the base rate */
    double factor;         /* grow: by this the number of batches is */
    double batches_max;    /* grow: a step is made of no more */
};

enum { SCHEDULE_BATCHES_MAX = 4096 };

/** NULL or "": constant. `warmup` and `every` below 1 are shares of `steps_total`, otherwise steps.
 *  RC_PARSE with the column; RC_USAGE when an end is needed and `steps_total` is 0. */
MUST_USE enum rc schedule_parse(const char *text, uint64_t steps_total, struct schedule *schedule,
                                struct fault *why);
/** The same where the end is known in batches: the schedule ends with the step that reads the last
 *  of them. But for `grow` that is one batch a step. `batches` above 0. */
MUST_USE enum rc schedule_parse_batches(const char *text, uint64_t batches,
                                        struct schedule *schedule, struct fault *why);
/** How many batches make step `step`: from 1 to SCHEDULE_BATCHES_MAX. */
uint32_t schedule_batches(const struct schedule *schedule, uint64_t step);
/** How many steps, the first one of all included, read so many batches. */
uint64_t schedule_steps(const struct schedule *schedule, uint64_t batches);
/** Factor of the base rate at `step` (from 0), in [0, 1]. */
double schedule_factor(const struct schedule *schedule, uint64_t step);

#endif
