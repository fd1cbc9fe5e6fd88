/*
 * mask: which values of the plane a round carries, where it carries a part of them. What travels is
 * the gathered values, a smaller plane; what is agreed is scattered back. All members derive the
 * mask of a round from what they have in common: how the plane is divided, the seed of the run, and
 * the round's key. No index is sent.
 *
 *   fragments  Whole layers, in turn: the fragment of round r is r mod P. Layers go in their order
 *              to the fragment that has the least so far, so equal layers end p, p + P, ... apart
 *              (strided, as in Streaming DiLoCo: Douillard et al. 2025, arXiv:2501.18512). One that
 *              is larger than a fragment is cut. Statistics stay together.
 *   slots      One value of each block of B: in B rounds each value is carried once, in an order
 *              drawn anew for each block and each B rounds (shuffled partitions, as in SPARTA:
 *              Beton et al. 2025, OpenReview stFPf3gzq1). A generator that counts gives the place
 *              in a block, so a mask takes no memory and may be begun anywhere. Statistics are
 *              carried together, in one round of the B: a mean without its variance would be wrong.
 *   tails      All of the model in every round, and what lies behind it (the optimizer's
 *              moments) in every so manieth: round r carries a tail of period k where k divides
 *              r (DES-LOC: Iacob et al. 2025, arXiv:2505.22549).
 *
 * Chunks are as many in every round, as exchanges want it, and all rounds' are as long as they have
 * to be for that; a few zeros may fill up the last one. Pure; any thread.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_MASK_H
#define GRAPEVINE_AVERAGING_CODEC_MASK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct masks; /* how a plane is divided */

enum { MASK_SLOTS_MAX = 10000, MASK_FRAGMENTS_MAX = 1000, MASK_TAILS_MAX = 2 };

/* Values at the end of the plane, from where the one before it ends, or the model. */
struct mask_tail {
    size_t count;
    uint32_t period; /* in rounds; at least 1 */
};

struct masks_options {
    size_t values;      /* of the plane */
    size_t parameters;  /* of these, in front; the rest is statistics */
    const size_t *ends; /* [ends_count] of the layers among the parameters, ascending; the last is
                           `parameters`. Borrowed for the call */
    size_t ends_count;
    uint32_t fragments; /* P, up to MASK_FRAGMENTS_MAX; or 0, and then */
    uint32_t slots;     /* B, up to MASK_SLOTS_MAX; or 0, and then */
    /* what the end of the plane is divided into, together at most `values`; what lies before it is
       in every round */
    struct mask_tail tails[MASK_TAILS_MAX];
    uint32_t tails_count;
    uint64_t seed; /* the same at all members */
};

/* Which values: of one round. */
struct mask {
    uint32_t part; /* of masks_parts() */
    uint32_t slot;
    uint64_t seed;
};

/* The plane of a round. */
struct mask_layout {
    size_t values;       /* with what fills up the last chunk */
    size_t parameters;   /* of these, in front */
    size_t chunk_values; /* of each chunk but the last */
};

/** NULL when out of memory. */
struct masks *masks_create(const struct masks_options *options);
void masks_destroy(struct masks *masks);
/** Of round `number` of those that `origin` counts: 0, or a hash of who begins it. */
struct mask masks_of(const struct masks *masks, uint64_t origin, uint64_t number);
/** Parts that are the same values again and again: what is usual of each is learned apart. */
uint32_t masks_parts(const struct masks *masks);
/** The most values that a round's plane has. */
size_t masks_values(const struct masks *masks);
/** Chunks of every round. */
uint32_t masks_chunks(const struct masks *masks);
struct mask_layout masks_layout(const struct masks *masks, struct mask mask);

/** Into plane [layout.values]: value i of the whole is front[i] for i < count, else behind[i]. */
void masks_gather(const struct masks *masks, struct mask mask, const float *front, size_t count,
                  const float *behind, float *plane);
/** The other way round, into whole [values]; what the mask does not hold stays as it is. */
void masks_scatter(const struct masks *masks, struct mask mask, const float *plane, float *whole);
/** Each value of whole [values] that the mask holds becomes `value`. */
void masks_fill(const struct masks *masks, struct mask mask, float value, float *whole);

#endif
