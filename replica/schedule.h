/*
 * schedule: the learning rate at a step of the shared counter: `constant`,
 * `cosine:warmup=SHARE|STEPS,min=SHARE`. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_SCHEDULE_H
#define GRAPEVINE_REPLICA_SCHEDULE_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdint.h>

enum schedule_kind { SCHEDULE_CONSTANT, SCHEDULE_COSINE };

struct schedule {
    enum schedule_kind kind;
    uint64_t steps_total;  /* cosine: where it reaches the minimum; the rate stays there after */
    uint64_t warmup_steps; /* the rate climbs linearly over these */
    double min_share;      /* of the base rate */
};

/** NULL or "": constant. `warmup` below 1 is a share of `steps_total`, otherwise steps. RC_PARSE
 *  with the column; RC_USAGE when cosine is asked for and `steps_total` is 0. */
MUST_USE enum rc schedule_parse(const char *text, uint64_t steps_total, struct schedule *schedule,
                                struct fault *why);
/** Factor of the base rate at `step` (from 0), in (0, 1]. */
double schedule_factor(const struct schedule *schedule, uint64_t step);

#endif
