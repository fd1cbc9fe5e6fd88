/*
 * edge_sum: the weighted sum of neighbours' differences, for the rules of rounds of neighbours.
 * What arrives of a neighbour is staged in a slot and added once it counts; the memory is that of
 * the slots in use and one sum, whatever the number of neighbours. Jobs of the exchange lane.
 */
#ifndef GRAPEVINE_AVERAGING_RULE_EDGE_SUM_H
#define GRAPEVINE_AVERAGING_RULE_EDGE_SUM_H

#include "averaging/rule/rule.h"

struct edge_sum {
    size_t values;
    const float *own;             /* NULL between rounds; borrowed */
    float *slots[RULE_SLOTS_MAX]; /* [values] each, made when first used */
    double *sum;                  /* [values], made when first used */
    bool has_sum;                 /* something was taken in this round */
};

/** Nothing is allocated before a neighbour is staged. */
void edge_sum_init(struct edge_sum *edges, size_t values);
void edge_sum_deinit(struct edge_sum *edges);
/** A round over `own`: [values], which stays valid until the next begin. */
void edge_sum_begin(struct edge_sum *edges, const float *own);
/** See rule.h: stage, take (of a range), keep. */
MUST_USE enum rc edge_sum_stage(struct edge_sum *edges, uint32_t slot, struct range range,
                                const float *in, float *squared);
void edge_sum_take(struct edge_sum *edges, uint32_t slot, struct range range, float weight);
/** What take() would add to the sum, to `to`: [values]. */
void edge_sum_add(const struct edge_sum *edges, uint32_t slot, float weight, float *to);
void edge_sum_keep(const struct edge_sum *edges, uint32_t slot, float weight, float *difference);
/** The sum of what was taken, into difference: [values]. False: nothing was, and `difference` is
 *  as it was. */
bool edge_sum_settle(const struct edge_sum *edges, float *difference);

#endif
