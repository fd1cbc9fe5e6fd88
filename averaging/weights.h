/*
 * weights: how much a member's model counts in the mean of a group: by the samples it trained on
 * since its last round (McMahan et al. 2017, arXiv:1602.05629, weigh by the samples behind an
 * update), so that a slow member, whose model is nearly as old as its last round, does not hold the
 * mean back. In powers of two, and within narrow limits: members that are about as fast as each
 * other count alike, to the bit, and one that claims too much gains little.
 */
#ifndef GRAPEVINE_AVERAGING_WEIGHTS_H
#define GRAPEVINE_AVERAGING_WEIGHTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* On the wire; WEIGHT_ONE is that of the median member. */
enum { WEIGHT_MIN = 1, WEIGHT_ONE = 16, WEIGHT_MAX = 64 };

/** `samples`: [count] since each one's last round; weights: [count]. False: all are alike, and need
 *  not be told. */
bool weights_of_samples(const uint64_t *samples, size_t count, uint8_t *weights);

#endif
