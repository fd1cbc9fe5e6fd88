/*
 * shard: the training samples of one replica, in memory, and the order in which batches take them:
 * one permutation an epoch, from a stream of its own; a batch may reach over the end of an epoch,
 * so every batch is full. Thread: the training lane's.
 */
#ifndef GRAPEVINE_REPLICA_DATA_SHARD_H
#define GRAPEVINE_REPLICA_DATA_SHARD_H

#include "base/fault.h"
#include "base/peer_id.h"
#include "base/rc.h"
#include "replica/data/augment.h"
#include "replica/data/dataset.h"
#include "replica/data/shard_spec.h"

struct shard;

enum { SHARD_STATE_WORDS = 8 };

struct shard_options {
    struct shard_spec shard;
    uint64_t seed;        /* of the division into shards */
    uint64_t stream_seed; /* of the order of samples */
    uint32_t batch;       /* samples of every shard_batch() */
    struct augment augment;
    bool with_prefetch;   /* make batches ahead of time, on a thread */
    uint64_t samples_max; /* the first so many, which `seed` draws; 0: all */
    uint32_t blocks_held; /* the last so many of the data's are in no shard */
};

/** Keeps `dataset`. A fixed shard is loaded at once, any other when it is known or first needed. */
MUST_USE enum rc shard_create(struct dataset *dataset, const struct shard_options *options,
                              struct shard **shard, struct fault *why);
void shard_destroy(struct shard *shard);
/** See learner.h. A shard that stays as it was keeps its place in the epoch. A peer that would get
 *  nothing, because there are more peers than blocks, shards the block it is nearest to. */
MUST_USE enum rc shard_reshard(struct shard *shard, struct peer_id self,
                               const struct peer_id *members, size_t members_count,
                               struct fault *why);
/** Load everything unless a shard is loaded already. */
MUST_USE enum rc shard_ensure(struct shard *shard, struct fault *why);
/** The samples themselves, as they are until the shard changes. Only when loaded. */
const struct samples *shard_set(const struct shard *shard);
/** Samples in the shard; before it is known, of the whole training part. */
uint64_t shard_samples(const struct shard *shard);
/** Batches that were made ahead are made anew, of the same samples. */
void shard_redo(struct shard *shard);
/** Fill `batch` (made for this data by batch_init()) with the next samples, `rows_max` of them. Its
 * buffers may be exchanged for others of the same size. Only when loaded. Fails as
 * samples_gather() does. */
MUST_USE enum rc shard_batch(struct shard *shard, struct batch *batch);
/** Fill `batch` with `rows` samples from number `first` on, as they lie in memory: for methods that
 *  read the whole shard. The place in the epoch stays. Only when loaded. */
MUST_USE enum rc shard_gather(const struct shard *shard, size_t first, uint32_t rows,
                              struct batch *batch);
/** Where in which epoch of which shard (after the last shard_batch(), however many batches are
 *  made ahead), and back; a state of another shard starts an epoch. False
 *  for words that no shard wrote. */
void shard_save(const struct shard *shard, uint64_t words[SHARD_STATE_WORDS]);
bool shard_load(struct shard *shard, const uint64_t words[SHARD_STATE_WORDS]);
/** Numbers in file order of the samples that shard_batch() took between two places that
 *  shard_save() wrote, `from` first: at most `most`. RC_STALE: one of them is in another shard than
 *  this one; RC_LIMIT: they are more, or `to` is before `from`. RC_NOMEM. */
MUST_USE enum rc shard_between(const struct shard *shard, const uint64_t from[SHARD_STATE_WORDS],
                               const uint64_t to[SHARD_STATE_WORDS], uint32_t *numbers,
                               uint32_t most, uint32_t *count);
/** Where samples lie in shard_set(), from 1: places[number in file order] is written for those that
 *  are in it. Only when loaded. */
void shard_places(const struct shard *shard, uint32_t *places);
/** Samples are changed at random before they are trained on, and are not what the data hold. */
bool shard_augments(const struct shard *shard);

#endif
