/*
 * probe_set: the samples that all members of a swarm answer (mutual.h), whoever has them for
 * training: drawn from the training data by the swarm's seed, or from other data that all have.
 * A sample is known by its bytes, so members whose sets differ in one value are told apart, and the
 * samples of a shard are found again without any numbering in common. Training lane.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_PROBE_SET_H
#define GRAPEVINE_REPLICA_LEARNERS_PROBE_SET_H

#include "base/fault.h"
#include "base/hash.h"
#include "replica/data/dataset.h"

enum { PROBE_NONE = UINT32_MAX };

struct probe_set {
    struct samples samples;  /* in an order that is of the seed, too */
    struct digest digest;    /* samples_digest() */
    struct dataset *foreign; /* theirs, where it is not the training data */
    uint64_t *keys;          /* [2^bits] of samples, for probe_set_find(); NULL: not asked for */
    uint32_t *places;        /* [2^bits] which; PROBE_NONE: a free place */
    uint32_t bits;
};

struct probe_set_options {
    struct dataset *dataset; /* the training data */
    const char *other;       /* spec of other data; NULL: the training data themselves */
    const struct dataset_options *opening; /* of that */
    uint64_t samples;                      /* as many, or all there are; > 0 */
    uint64_t seed;
    bool finds; /* probe_set_find() is wanted */
};

/** RC_MISMATCH: the other data have no inputs such as the training data's. RC_NOMEM, and what
 *  opening and reading data fails with. On failure `set` is empty, and fine to deinit. */
MUST_USE enum rc probe_set_init(struct probe_set *set, const struct probe_set_options *options,
                                struct fault *why);
void probe_set_deinit(struct probe_set *set);
/** Which of the set is number `sample` of `samples`; PROBE_NONE: none of it. */
uint32_t probe_set_find(const struct probe_set *set, const struct dataset_info *info,
                        const struct samples *samples, size_t sample);

#endif
