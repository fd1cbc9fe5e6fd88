/*
 * partners: to whom a peer offers a pair round, in which order. In each period of its pace it ranks
 * all whom it may average with by a number drawn for the two of them, the same from both ends
 * (topology_edge()), and offers along the list until somebody takes part: who is busy, gone or out
 * costs one question, not the period. Since both ends of an edge rank it alike, offers never wait
 * for each other in a circle: the two of the smallest edge want each other. Every partner is as
 * likely as any other, unless lines are unlike (peer/node/preference.h): then the number is drawn
 * from an exponential distribution whose mean is longer for who is rarer, so that the smallest is
 * each one's as often as wanted. Two ends that measured the same still agree.
 *
 * After a few refusals in a row it waits until one of those who refused may be free, and longer
 * each time until it has met somebody. Loop thread; pure.
 */
#ifndef GRAPEVINE_PEER_NODE_PARTNERS_H
#define GRAPEVINE_PEER_NODE_PARTNERS_H

#include "base/hash.h"
#include "base/peer_id.h"
#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct partners {
    uint64_t period;
    struct peer_id tried[LINKS_MAX]; /* in this period, since all had been */
    uint32_t tried_count;
    uint32_t failures;   /* in a row, since it last waited */
    uint32_t waits;      /* in a row: each at least twice as long as the one before */
    uint64_t soonest_ns; /* when the first of these may be free */
    uint64_t wait_ns;    /* no offer before */
    uint64_t spread;     /* a number of this peer's, another one at each draw: waits differ by it */
};

/* Those to draw from; borrowed. */
struct partner_list {
    struct digest run_id;
    struct peer_id self;
    const struct peer_id *ids; /* [count], may hold self */
    const uint8_t *rarity;     /* [count], see preference.h; NULL: all alike */
    size_t count;
};

/** The next one to offer to in `period`; each comes once before any comes again. False: wait until
 *  wait_ns, or nobody is there. */
bool partners_draw(struct partners *partners, const struct partner_list *list, uint64_t period,
                   uint64_t now_ns, struct peer_id *partner);
/** It came to nothing; worth another try from `retry_ns` on. Waits are 10 ms to 2 s. */
void partners_failed(struct partners *partners, uint64_t retry_ns, uint64_t now_ns);
/** Somebody took part. */
void partners_met(struct partners *partners);

#endif
