/*
 * schedule: along which ways the parts of a group's plane travel. A round adds each part up along a
 * tree whose root owns the part, and gives the mean back along the same tree; a schedule says what
 * the trees look like, and that is all that tells them apart:
 *
 *   direct   each member owns a part, sized by its rate; everyone is a child of the owner (the
 *            part-owner reduce of Moshpit SGD: Ryabinin et al. 2021, arXiv:2103.03239)
 *   ring     n equal parts, each along the chain of all members that ends at its owner (Patarasuk
 *            and Yuan 2009, JPDC 69: the bandwidth-optimal ring all-reduce)
 *   halving  2^k equal parts, each along a binomial tree (recursive halving and doubling with the
 *            members beyond 2^k folded in: Thakur, Rabenseifner and Gropp 2005, IJHPCA 19)
 *   tree     n equal parts, each along a binary tree with its owner at the top: the same heap over
 *            the members, turned for each
 *
 * No schedule gives a member more than two of n equal parts of the plane (a chunk where there are
 * fewer chunks): whoever reduces a part says what its mean is.
 * Chunks flow on their own, so every one of these is a pipeline and no member waits for a step of
 * the others. Everything here is a pure function of what START says, in whole numbers: all members
 * compute the same.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_SCHEDULE_H
#define GRAPEVINE_AVERAGING_CORE_SCHEDULE_H

#include "gossip/wire/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum schedule {
    SCHEDULE_DIRECT,
    SCHEDULE_RING,
    SCHEDULE_HALVING,
    SCHEDULE_TREE,
    SCHEDULE_COUNT,
    SCHEDULE_AUTO = SCHEDULE_COUNT /* the cheapest, by schedule_choose() */
};

/* "direct", ..., "auto". */
const char *schedule_name(enum schedule schedule);

/* Members are counted as START lists them; a part has the number of its owner. */
struct schedule_plan {
    enum schedule schedule;
    uint32_t members, chunks;
    uint8_t place[GROUP_MEMBERS_MAX];  /* of each member, the fastest first, else in order */
    uint8_t member[GROUP_MEMBERS_MAX]; /* at each place */
    uint32_t first[GROUP_MEMBERS_MAX], count[GROUP_MEMBERS_MAX]; /* chunks of each part */
};

/** `members`: 1 to GROUP_MEMBERS_MAX; `rates`: [members] relative, above zero (see weights.h);
 * NULL: all alike. Parts follow each other in the order of their owners and cover all chunks. */
void schedule_make(struct schedule_plan *plan, enum schedule schedule, uint32_t members,
                   uint32_t chunks, const uint8_t *rates);
/** Whom `member` gives its sum of `part`, and has the mean from; the owner itself. */
uint32_t schedule_parent(const struct schedule_plan *plan, uint32_t part, uint32_t member);
/** Who gives `member` its sum of `part`: one bit a member. */
uint64_t schedule_children(const struct schedule_plan *plan, uint32_t part, uint32_t member);
/** `member` and all whose values are in the sum that it gives. */
uint64_t schedule_below(const struct schedule_plan *plan, uint32_t part, uint32_t member);
/** The part that a chunk lies in. */
uint32_t schedule_part(const struct schedule_plan *plan, uint32_t chunk);

/**
 * How long a round takes, by the latency-bandwidth model (Hockney 1994; for all-reduces Thakur et
 * al. 2005):
 *   T = max over members of max(chunks in, chunks out) * beta_m + 2 C - children(root) * beta
 * alpha: `latency_ns`, of one message; beta_m: `chunk_ns`, for one chunk to pass member m, beta the
 * largest of those who pass anything on. C: how long one chunk alone climbs the largest part's
 * tree, where a member begins to send when its children's sums are in, one after the other; it
 * comes back in the same time. That is what a pipeline needs to fill and to drain; the root's share
 * of it is in the first term already.
 */
uint64_t schedule_cost_ns(const struct schedule_plan *plan, uint64_t latency_ns,
                          const uint64_t *chunk_ns);
/** The cheapest schedule; direct unless another takes less than four fifths of its time, for it
 *  alone loses no more than a part with a member. */
enum schedule schedule_choose(uint32_t members, uint32_t chunks, const uint8_t *rates,
                              uint64_t latency_ns, const uint64_t *chunk_ns);

#endif
