/*
 * symmetry: which channels of a model may change places without changing what it computes. The
 * hidden values of a layer are in no order of their own: permute the rows of its weights, and the
 * columns of the next layer's alike, and the function stays (Hecht-Nielsen 1990). What is added
 * channel by channel, as along a residual stream, keeps one order in all layers that write to it or
 * read it; a dense layer that reads an image keeps each channel's pixels together.
 *
 * Channels that may be exchanged form a group. A group's members are numbered from 0; every axis of
 * a tensor that they lie on says which of its slots belongs to which member. Pure; any thread.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_SYMMETRY_H
#define GRAPEVINE_REPLICA_MODEL_SYMMETRY_H

#include "base/fault.h"
#include "base/rc.h"
#include "replica/model/model.h"

enum { SYMMETRY_FIXED = UINT32_MAX };

struct symmetry_slot {
    uint32_t group;  /* SYMMETRY_FIXED: stays where it is */
    uint32_t member; /* of the group */
};

/* An axis of a tensor that permutations reach. A member may have several slots on it (pixels of a
 * channel, a value that is read twice), in every member's case equally many. */
struct symmetry_axis {
    uint32_t tensor, axis;
    uint32_t slots_count;
    struct symmetry_slot *slots;
};

struct symmetry {
    uint32_t *groups; /* [groups_count] members of each, in the order of layers */
    uint32_t groups_count;
    struct symmetry_axis *axes;
    uint32_t axes_count;
};

/** For nets of convolutions, dense layers, batch normalisation, pooling, and blocks of these.
 *  RC_UNSUPPORTED names the layer that is none of them; RC_NOMEM. */
MUST_USE enum rc symmetry_create(const struct model *model, struct symmetry **symmetry,
                                 struct fault *why);
void symmetry_destroy(struct symmetry *symmetry);

#endif
