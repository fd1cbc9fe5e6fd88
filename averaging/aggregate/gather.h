/*
 * gather: what an aggregate needs at once and comes one by one, kept until then. A part's owner
 * keeps what members contribute to a chunk of its part until all are in; a peer in a round of
 * neighbours keeps their planes until the round is over. Memory: a chunk for each contribution to a
 * chunk that is not reduced yet, so members times the own part at most; a plane for each neighbour
 * that counts and for each that is being staged.
 *
 * Of fewer than three contributions no aggregate can tell which one lies. Then each counts by its
 * samples and by what clip leaves of it (core/robust.h).
 *
 * Jobs of the exchange lane, one at a time.
 */
#ifndef GRAPEVINE_AVERAGING_AGGREGATE_GATHER_H
#define GRAPEVINE_AVERAGING_AGGREGATE_GATHER_H

#include "averaging/aggregate/aggregate.h"
#include "base/peer_id.h"

enum { GATHER_SLOTS_MAX = 8 };

struct gather;

/* Who contributes, and what that counts for. */
struct gather_member {
    struct peer_id id;
    float weight; /* > 0 */
    float share;  /* of 1, that clip leaves of it: of use where fewer than three are there */
};

/* What was done with contributions: how many there were, and of how many less than all counts. */
struct gather_count {
    uint32_t judged, reduced;
};

/** For planes of `chunks` chunks; where neighbours' planes are staged, of `values` each. NULL: no
 *  memory. */
struct gather *gather_create(const struct aggregate *aggregate, uint32_t chunks, size_t values);
void gather_destroy(struct gather *gather);
/** A round begins or is given up: nothing is here. */
void gather_begin(struct gather *gather);

/* ---- groups ---- */

/** `values` [count], finite, to chunk `chunk`. `stays`: they are there until the round is over, and
 *  are not copied. RC_NOMEM; RC_REPLAY: the member was heard already; RC_LIMIT: too many. */
MUST_USE enum rc gather_add(struct gather *gather, uint32_t chunk,
                            const struct gather_member *member, const float *values, size_t count,
                            bool stays);
/** The aggregate of all that was added to a chunk into out [count]; it is then forgotten. `centre`
 *  and `radius` as of struct aggregate_rows. RC_NOT_FOUND: nothing was; RC_NONFINITE. */
MUST_USE enum rc gather_reduce(struct gather *gather, uint32_t chunk, const float *centre,
                               float radius, size_t count, float *out, struct gather_count *done);

/* ---- neighbours ---- */

/** A part of the plane of the neighbour in `slot`: as stage() of rule.h. */
MUST_USE enum rc gather_stage(struct gather *gather, uint32_t slot, size_t first, const float *own,
                              const float *values, size_t count, float *squared);
/** All of it is here, and counts: its weight is the edge's, unclipped; `radius`: how far away it
 *  may be to count whole. */
void gather_take(struct gather *gather, uint32_t slot, const struct gather_member *member,
                 float radius);
/**
 * What the round changes: difference = s (A - own), A the aggregate of the planes taken and our
 * own. s is what makes it the neighbours' average again where A is the mean of all alike: with d
 * neighbours of weights w_j, s = sum w_j (d + 1) / d, at most 1. Zeros where nothing was taken, and
 * where it would not be finite.
 */
void gather_settle(struct gather *gather, struct peer_id self, const float *own, float *difference,
                   struct gather_count *done);

#endif
