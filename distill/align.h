/*
 * align: bring the hidden channels of a model into the order of another one's, so that their
 * average makes sense although they did not start together: weight matching of Ainsworth, Hayase,
 * Srinivasa 2022 (Git Re-Basin, arXiv:2209.04836, algorithm 1). Group by group (symmetry.h) the
 * assignment is solved that brings the parameters nearest to the other model's, all other groups as
 * they stand, until no group gains anything: a local optimum. Groups are taken in the order of
 * layers rather than at random: the same files give the same average, and a layer finds its inputs
 * matched already. What the model computes stays, up to rounding.
 */
#ifndef GRAPEVINE_DISTILL_ALIGN_H
#define GRAPEVINE_DISTILL_ALIGN_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/model/model.h"
#include "replica/model/symmetry.h"

/* Channels of a group: n takes 8 n^2 bytes, and time with n^3. */
enum { ALIGN_WIDTH_MAX = 4096, ALIGN_SWEEPS_MAX = 100 };

/** Permute parameters and running statistics of `model` towards `anchor`, the parameters of a model
 *  of the same layers. RC_UNSUPPORTED names a layer that has no such symmetry, RC_LIMIT: one
 *  has more channels, RC_NONFINITE; the model is then unchanged. RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc align_model(struct model *model, const float *anchor, struct fault *why);

/** `from`, of a section of `schema`, with the members of a group permuted: place r gets what member
 *  order[r] had. The planes do not overlap. RC_NOMEM. */
MUST_USE enum rc align_permute(const struct symmetry *symmetry, const struct schema *schema,
                               enum section section, uint32_t group, const uint32_t *order,
                               const float *from, float *to);

#endif
