/*
 * prune: which weights of a model are worth least, and a mask that keeps them 0. Weights are the
 * parameters of two or more extents (packed.h); biases and normalisations are never pruned.
 *
 * By magnitude, globally: the score of a weight is its square over the sum of the squares of those
 * of its tensor that are no smaller (LAMP: Lee, Park, Mo, Ahn, Shin 2021, arXiv:2010.07611), which
 * makes magnitudes of unlike layers comparable and cannot remove a whole tensor before others:
 * the score of the largest is 1. Equal scores go by their place. Pure.
 */
#ifndef GRAPEVINE_DISTILL_PRUNE_H
#define GRAPEVINE_DISTILL_PRUNE_H

#include "base/rc.h"
#include "replica/plane/plane.h"

/** How many of the parameters are weights. */
uint64_t prune_weights(const struct schema *schema);
/** keeps[PARAMETERS' values] = 0 for the share (in [0, 1)) of the weights that score least, rounded
 *  down, and 1 for all else. RC_NOMEM. */
MUST_USE enum rc prune_choose(const struct schema *schema, const float *parameters, double share,
                              uint8_t *keeps);
/** Zero what is not kept. */
void prune_apply(const uint8_t *keeps, float *parameters, size_t count);
/** What share is gone at `at` in [0, 1] of the time in which `share` is reached, slower towards the
 *  end (Zhu, Gupta 2017, arXiv:1710.01878). */
double prune_share(double share, double at);

#endif
