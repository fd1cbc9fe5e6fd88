/*
 * weights: how much a member's model counts in the mean of a group, and how much of the plane is
 * its to reduce, by what the members said of themselves. By the samples a member trained on since
 * its last round (McMahan et al. 2017, arXiv:1602.05629, weigh by the samples behind an update), so
 * that a slow member, whose model is nearly as old as its last round, does not hold the mean back.
 * In powers of two, and within narrow limits of what the median member says: members that are about
 * as fast as each other count alike, to the bit, and one that claims too much gains little.
 *
 * Pure functions of the statements in START, in the order of its members: all compute the same, and
 * nobody, the proposer least of all, says what anybody else counts.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_WEIGHTS_H
#define GRAPEVINE_AVERAGING_CORE_WEIGHTS_H

#include <stddef.h>
#include <stdint.h>

/* WEIGHT_ONE is that of the median member. */
enum { WEIGHT_MIN = 1, WEIGHT_ONE = 16, WEIGHT_MAX = 32 };

/** `samples`: [count] since each one's last round, the proposer's first; weights: [count]. Those
 *  without any are alike where the median member has none. */
void weights_of_samples(const uint64_t *samples, size_t count, uint8_t *weights);
/** The same of rates, bytes a second; 0: not known, and then as that of the median member. */
void weights_of_rates(const uint64_t *rates, size_t count, uint8_t *weights);

#endif
