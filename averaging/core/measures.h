/*
 * measures: how a swarm whose members each have their own table agrees on one normalisation of the
 * inputs. Each member tells, for every channel, the mean and the deviation of its own training
 * samples, and how many these are; of those numbers all compute the same mean and scale, to the
 * bit, in whatever order they came.
 *
 * Nothing that is told can be checked, so no member may decide. It counts by its samples, but for
 * at most MEASURES_WEIGHT_MAX times the median member; its mean is moved to within MEASURES_FAR
 * spreads of the median one, its deviation to at most MEASURES_WIDE times the median one, and the
 * merged deviation is at least the MEASURES_NARROWth part of the median one. A spread is the larger
 * of the median deviation and the median distance of the means from their median (the clipped mean
 * with a robust scale: Huber 1964). Where a channel is constant at most members, what the others
 * say can make its scale smaller than 1 and never larger. While more than half of the members are
 * honest, so are the medians; of two members neither can be told from a liar. Pure.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_MEASURES_H
#define GRAPEVINE_AVERAGING_CORE_MEASURES_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { MEASURES_WEIGHT_MAX = 2, MEASURES_FAR = 1, MEASURES_WIDE = 2, MEASURES_NARROW = 8 };

#define MEASURES_SAMPLES_MAX (UINT64_C(1) << 40)
#define MEASURES_VALUE_MAX   1e18F

struct measures {
    uint64_t samples;
    const float *values; /* [2][channels]: means, deviations */
};

/** Numbers that data can have: samples, finite means, deviations of at least 0, none absurd. */
bool measures_are_sound(const struct measures *member, size_t channels);
/** Of `count` members, all sound: mean and scale (1 / deviation, 1 where that is 0), [channels]
 *  each. RC_NOMEM. */
MUST_USE enum rc measures_merge(const struct measures *members, size_t count, size_t channels,
                                float *mean, float *scale);
/** Could it be the merge of these members, and of some that lie? RC_AUTH: it could not. RC_NOMEM.
 */
MUST_USE enum rc measures_allow(const struct measures *members, size_t count, size_t channels,
                                const float *mean, const float *scale);

#endif
