/*
 * share: the training samples of one replica, in memory, and the order in which batches take them:
 * one permutation an epoch, from a stream of its own; a batch may reach over the end of an epoch,
 * so every batch is full. Thread: the training lane's.
 */
#ifndef GRAPEVINE_REPLICA_DATA_SHARE_H
#define GRAPEVINE_REPLICA_DATA_SHARE_H

#include "base/fault.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "replica/data/augment.h"
#include "replica/data/dataset.h"
#include "replica/data/shard.h"

struct share;

enum { SHARE_STATE_WORDS = 8 };

struct share_options {
    struct shard_spec shard;
    uint64_t seed;        /* of the division into shares */
    uint64_t stream_seed; /* of the order of samples */
    uint32_t batch;       /* samples of every share_batch() */
    struct augment augment;
    bool with_prefetch;   /* make batches ahead of time, on a thread */
    uint64_t samples_max; /* the first so many, which `seed` draws; 0: all */
};

/** Keeps `dataset`. A fixed share is loaded at once, any other when it is known or first needed. */
MUST_USE enum rc share_create(struct dataset *dataset, const struct share_options *options,
                              struct share **share, struct fault *why);
void share_destroy(struct share *share);
/** See learner.h. A share that stays as it was keeps its place in the epoch. A peer that would get
 *  nothing, because there are more peers than blocks, shares the block it is nearest to. */
MUST_USE enum rc share_reshard(struct share *share, struct peer_id self,
                               const struct peer_id *members, size_t members_count,
                               struct fault *why);
/** Load everything unless a share is loaded already. */
MUST_USE enum rc share_ensure(struct share *share, struct fault *why);
/** The samples themselves, as they are until the share changes. Only when loaded. */
const struct samples *share_set(const struct share *share);
/** Samples in the share; before it is known, of the whole training part. */
uint64_t share_samples(const struct share *share);
/** Fill `batch` (made for this data by batch_init()) with the next samples, `rows_max` of them. Its
 * buffers may be exchanged for others of the same size. Only when loaded. */
void share_batch(struct share *share, struct batch *batch);
/** Fill `batch` with `rows` samples from number `first` on, as they lie in memory: for methods that
 *  read the whole share. The place in the epoch stays. Only when loaded. */
void share_gather(const struct share *share, size_t first, uint32_t rows, struct batch *batch);
/** Where in which epoch of which share (after the last share_batch(), however many batches are
 *  made ahead), and back; a state of another share starts an epoch. False
 *  for words that no share wrote. */
void share_save(const struct share *share, uint64_t words[SHARE_STATE_WORDS]);
bool share_load(struct share *share, const uint64_t words[SHARE_STATE_WORDS]);

#endif
