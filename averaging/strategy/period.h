/*
 * period: how many steps there are from one round to the next, where that follows the loss
 * (AdaComm: Wang and Joshi 2018, arXiv:1810.08313) and nobody is in the middle. Long periods are
 * cheap and fast while the loss is high; where it stops to fall, what peers have drifted apart
 * keeps it up, and rounds become more frequent. After each block of steps
 *
 *   H = ceil(H_0 sqrt(F / F_0)),  and if that is no less than before, half of what it was,
 *
 * at least 1, with F_0 the loss at the start and F that of the block, the mean over its steps: that
 * of one batch would have H jump. This is the form for a constant learning rate.
 *
 * All members are to come to the same H, and no one of them is to decide what it is. So each says
 * three numbers of its own, F, F_0 and the H that it takes to be right, and goes by the medians of
 * what all say, its own among them (of two the lower): one liar moves a median by one place. Three
 * periods follow each other:
 *
 *   the block is over     F is said
 *   the next one begins   F of all is known: what H should be follows from it, and is said
 *   the next one begins   H of all is known: that is its length
 *
 * Who comes late says of F_0 and H what the others say. Where members see unlike others, as in
 * groups of a large swarm, their H may differ for a while: then who is first waits.
 * Pure; no allocation.
 */
#ifndef GRAPEVINE_AVERAGING_STRATEGY_PERIOD_H
#define GRAPEVINE_AVERAGING_STRATEGY_PERIOD_H

#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a member says; losses as float32 has them, or members would not agree to the last step. */
struct period_told {
    double loss, first; /* of the last block, at the start; below 0 or not finite: not known */
    uint64_t steps;     /* H that is right by it; 0: what it is now */
};

/* Zeroed and given to period_init(); in checkpoints as it is, see peer/files/checkpoint.h. */
struct period {
    uint64_t first_steps, block_steps; /* H_0 > 0; steps of a block > 0 */
    uint64_t steps;                    /* H of the period that runs */
    struct period_told own;
    double loss_sum; /* since the block began, of so many steps */
    uint64_t loss_steps;
    bool is_owed; /* F was said: what follows from it is to be said next */
    bool is_late; /* others have begun before: F_0 is what they say */
};

void period_init(struct period *period, uint64_t first_steps, uint64_t block_steps);
/** Another model was taken, of which the others know more. */
void period_join(struct period *period);
/** Go on from what a checkpoint says, with the settings of now. False: it is not sound. */
bool period_resume(struct period *period, const struct period *kept);
/** So many steps were taken. */
void period_stepped(struct period *period, double loss_sum, uint64_t steps);
/** One begins, with what `others` [count, LINKS_MAX at most] said last, all 0: nothing. True: `own`
 * is to be said (again), as period_may_say() allows. */
bool period_turn(struct period *period, const struct period_told *others, size_t count);
/** There is something to say. */
bool period_may_say(const struct period *period);

#endif
