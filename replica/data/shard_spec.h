/*
 * shard_spec: which training samples are whose. `iid`: blocks by rendezvous (highest random weight)
 * hashing over the live members (Thaler, Ravishankar 1998), or every N-th block under a fixed
 * shard I/N; `dirichlet:A`: label skew drawn from (seed, I of N) (Hsu, Qi, Brown 2019,
 * arXiv:1909.06335); `all`: everything.
 */
#ifndef GRAPEVINE_REPLICA_DATA_SHARD_SPEC_H
#define GRAPEVINE_REPLICA_DATA_SHARD_SPEC_H

#include "base/fault.h"
#include "base/peer_id.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum shard_kind { SHARD_IID, SHARD_DIRICHLET, SHARD_ALL };

struct shard_spec {
    enum shard_kind kind;
    double alpha;          /* of Dirichlet */
    bool is_fixed;         /* --shard-of given */
    uint32_t index, count; /* I of N, index from 0 */
};

/** Parse `--shard` and `--shard-of` (NULL: not given; "I/N" with I from 1? no: 0 <= I < N).
 *  Dirichlet without a fixed shard is RC_USAGE. Errors point at the column. */
MUST_USE enum rc shard_spec_parse(const char *shard, const char *shard_of, struct shard_spec *spec,
                                  struct fault *why);
/** Mark the blocks of `self` among `members` (sorted). IID without a fixed shard. Every block has
 *  exactly one owner; if a member leaves, only its blocks move. */
void shard_spec_rendezvous(struct peer_id self, const struct peer_id *members, size_t members_count,
                           uint32_t blocks, bool *wanted);
/** Mark the blocks of a fixed shard: disjoint over I, sizes differ by at most one block. */
void shard_spec_fixed(const struct shard_spec *spec, uint32_t blocks, bool *wanted);
/** Indices (ascending, file order) of a Dirichlet shard; disjoint over I and complete together.
 *  `*indices` is fresh memory. */
MUST_USE enum rc shard_spec_dirichlet(const struct shard_spec *spec, uint64_t seed,
                                      const uint32_t *labels, size_t labels_count, uint32_t classes,
                                      uint32_t **indices, size_t *count);

#endif
