/*
 * schedule: the learning rate at a step of the shared counter: `constant`, `step:every=,gamma=`,
 * `linear:min=`, `cosine:min=`, each with `warmup=`. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_SCHEDULE_H
#define GRAPEVINE_REPLICA_SCHEDULE_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdint.h>

enum schedule_kind {
    SCHEDULE_CONSTANT,
    SCHEDULE_STEP,
    SCHEDULE_LINEAR,
    SCHEDULE_COSINE,
    SCHEDULE_COUNT
};

struct schedule {
    enum schedule_kind kind;
    uint64_t steps_total;  /* linear, cosine: where it reaches the minimum; it stays there after */
    uint64_t warmup_steps; /* the rate climbs linearly over these */
    uint64_t every_steps;  /* step: the rate is multiplied by gamma after so many, from step 0 */
    double gamma;
    double min_share; /* linear, cosine: of the base rate */
};

/** NULL or "": constant. `warmup` and `every` below 1 are shares of `steps_total`, otherwise steps.
 *  RC_PARSE with the column; RC_USAGE when an end is needed and `steps_total` is 0. */
MUST_USE enum rc schedule_parse(const char *text, uint64_t steps_total, struct schedule *schedule,
                                struct fault *why);
/** Factor of the base rate at `step` (from 0), in [0, 1]. */
double schedule_factor(const struct schedule *schedule, uint64_t step);

#endif
