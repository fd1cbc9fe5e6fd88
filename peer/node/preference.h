/*
 * preference: how much rarer a peer meets those behind slow lines, where it chooses whom to meet:
 * partners of pair rounds, receivers of gosgd's shares. Pure; from what this peer measured itself
 * (gossip/flow/rate_meter.h), never from what others say.
 *
 * Rates count in steps of four, and a line changes its step only when it is half as much again
 * beyond it; from 2^24 bytes a second (134 Mbit/s) on all are alike, since a chunk is then there in
 * 8 ms. A line of which only little was seen is as good as the best of the others: it is soon
 * measured. One of which nothing was seen is as usual, and counts for nothing else: who claims to
 * serve and never does moves no measure. What three quarters of the others do not exceed is the
 * measure: who is a step
 * below it is met a quarter as often, two steps or more a sixteenth, and who is above it four times
 * as often, not more, so that a quick stranger draws few to itself. Nothing is preferred where all
 * are alike.
 *
 * In one of PREFERENCE_PAIRS periods all are equally likely, whatever was measured. So anybody is
 * met at least a quarter as often as without preference: with W the expected mixing matrix of equal
 * draws and V that of the preferred ones, W / 4 + 3 V / 4 is symmetric and doubly stochastic as
 * both are, and its spectral gap at least a quarter of that of W (Weyl: eigenvalues of sums; all of
 * V's are at most 1). Pairs gain by it, as a slow round holds both ends; who pushes is not held,
 * and spares the slow line alone, so of pushes every second is drawn equally.
 */
#ifndef GRAPEVINE_PEER_NODE_PREFERENCE_H
#define GRAPEVINE_PEER_NODE_PREFERENCE_H

#include "base/hash.h"
#include "base/rng.h"
#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PREFERENCE_PAIRS = 4, /* one period in so many is drawn equally */
    PREFERENCE_PUSH = 2,
    PREFERENCE_LINES_MAX = LINKS_MAX + 1,
    PREFERENCE_RAREST = 3
};

struct preference_line {
    uint64_t rate; /* bytes a second; 0: not known */
    bool is_least; /* at least that */
    uint8_t step;  /* in: of the last time, 0: there was none; out: now */
};

/** How often each is met: 4^-rarity[i] of one another, 0 to PREFERENCE_RAREST. `count` is at most
 *  PREFERENCE_LINES_MAX. False: all alike, and rarity was not written. */
bool preference_weigh(struct preference_line *lines, size_t count, uint8_t *rarity);
/** In this period, one of `one_in`, all are equally likely. */
bool preference_is_off(struct digest run_id, uint64_t period, uint64_t one_in);
/** One of `count` >= 1 by these odds. */
size_t preference_pick(const uint8_t *rarity, size_t count, struct rng *rng);

#endif
