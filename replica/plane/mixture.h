/*
 * mixture: running statistics in a form of which means make sense, so that whoever averages models
 * need not know what batch normalisation is. The variance of several sets of samples together is
 * the mean of their variances plus the variance of their means; that is pooled as
 *
 *   v = mean(v_i) + max(0, mean(m_i^2) - mean(m_i)^2)
 *
 * SECTION_MIXED therefore holds PARAMETERS, BUFFERS, and the squares of those buffers that are
 * running means, all of which may be averaged with any weights that sum to 1. Rounding, and steps
 * taken while a round ran, can only make a variance a little larger than pooled, never as small as
 * to blow up what it divides. A model without buffers mixes its parameters alone, to the bit.
 *
 * Pure; host memory; any thread.
 */
#ifndef GRAPEVINE_REPLICA_PLANE_MIXTURE_H
#define GRAPEVINE_REPLICA_PLANE_MIXTURE_H

#include "replica/plane/plane.h"

/** `mixed` [SECTION_MIXED] holds PARAMETERS and BUFFERS: add the squares behind them. */
void mixture_fill(const struct schema *schema, float *mixed);
/** The apply step for BUFFERS, in place: `difference` [SECTION_MIXED] is what a round makes of the
 *  exported form minus that form. */
void mixture_apply(const struct schema *schema, const float *difference, float *buffers);
/** The variance of the whole out of mean variance, mean of means, mean of squared means. */
static inline double mixture_pool(double variance, double mean, double square)
{
    double between = square - mean * mean, pooled = between > 0 ? variance + between : variance;

    return pooled > 0 ? pooled : 0;
}

#endif
