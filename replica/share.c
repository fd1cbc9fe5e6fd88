/* The share of the data: see share.h. */
#include "replica/share.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <string.h>

enum { PURPOSE_ORDER = 0x6f726465 };

struct share {
    struct dataset *dataset;
    struct shard_spec spec;
    uint64_t seed;
    struct samples samples;
    bool is_loaded;
    uint64_t id;      /* of the set of samples: equal ids, equal samples in equal order */
    uint32_t *order;  /* this epoch's permutation of samples */
    uint32_t *picked; /* of a batch */
    uint32_t batch;
    size_t cursor;   /* next entry of `order` */
    uint64_t epochs; /* begun */
    struct rng rng;  /* after drawing `order` */
    struct rng rng_before;
    uint64_t pending[SHARE_STATE_WORDS]; /* state of a share that is not loaded yet */
    bool has_pending;
};

static void begin_epoch(struct share *share)
{
    share->rng_before = share->rng;
    for (size_t i = 0; i < share->samples.count; i++) {
        share->order[i] = (uint32_t)i;
    }
    rng_shuffle(&share->rng, share->order, share->samples.count);
    share->cursor = 0;
    share->epochs++;
}

/* Go on where `words` were written. */
static void continue_epoch(struct share *share, const uint64_t words[SHARE_STATE_WORDS])
{
    memcpy(share->rng.state, words + 3, sizeof(share->rng.state));
    begin_epoch(share);
    share->epochs = words[1];
    share->cursor = (size_t)words[2];
}

static bool is_of_this_share(const struct share *share, const uint64_t words[SHARE_STATE_WORDS])
{
    return share->is_loaded && words[0] == share->id && words[2] <= share->samples.count;
}

/* Commit freshly loaded samples. On failure they are released. */
static enum rc adopt(struct share *share, struct samples *samples, uint64_t id, struct fault *why)
{
    uint32_t *order = mem_array(samples->count, sizeof(*order));

    if (order == NULL || samples->count == 0) {
        mem_free(order);
        samples_deinit(samples);
        if (order == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
        return fault_set(why, RC_NOT_FOUND,
                         "this peer's share of the data is empty: use fewer shares or --shard all");
    }
    mem_free(share->order);
    samples_deinit(&share->samples);
    share->samples = *samples;
    share->order = order;
    share->is_loaded = true;
    share->id = id;
    if (share->has_pending && is_of_this_share(share, share->pending)) {
        continue_epoch(share, share->pending);
    } else {
        begin_epoch(share);
    }
    share->has_pending = false;
    return RC_OK;
}

static enum rc load_blocks(struct share *share, const bool *wanted, struct fault *why)
{
    uint32_t blocks = dataset_info(share->dataset)->blocks;
    struct samples samples = {0};
    uint64_t id = rng_mix(share->seed, blocks);
    enum rc rc;

    for (uint32_t b = 0; b < blocks; b++) {
        if (wanted[b]) id = rng_mix(id, b);
    }
    if (share->is_loaded && id == share->id) return RC_OK;
    rc = dataset_load_blocks(share->dataset, wanted, &samples, why);
    return rc == RC_OK ? adopt(share, &samples, id, why) : rc;
}

static enum rc load_dirichlet(struct share *share, struct fault *why)
{
    const struct dataset_info *info = dataset_info(share->dataset);
    const struct shard_spec *spec = &share->spec;
    uint32_t *indices = NULL;
    size_t count = 0;
    struct samples samples = {0};
    uint64_t alpha, id;
    uint32_t *labels = NULL;
    enum rc rc = dataset_load_labels(share->dataset, &labels, why);

    if (rc != RC_OK) return rc;
    rc = shard_dirichlet(spec, share->seed, labels, (size_t)info->train_samples, info->classes,
                         &indices, &count);
    mem_free(labels);
    if (rc != RC_OK) return fault_set(why, rc, "cannot divide the data: %s", rc_text(rc));
    memcpy(&alpha, &spec->alpha, sizeof(alpha));
    id = rng_mix(rng_mix(share->seed, alpha), (uint64_t)spec->index << 32 | spec->count);
    rc = dataset_load_list(share->dataset, indices, count, &samples, why);
    mem_free(indices);
    return rc == RC_OK ? adopt(share, &samples, id, why) : rc;
}

/* The blocks that `choose` marks. */
static enum rc load_chosen(struct share *share, struct peer_id self, const struct peer_id *members,
                           size_t members_count, struct fault *why)
{
    uint32_t blocks = dataset_info(share->dataset)->blocks;
    bool *wanted = mem_array(blocks, sizeof(*wanted));
    uint64_t key;
    size_t held = 0;
    enum rc rc;

    if (wanted == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
    if (share->spec.kind == SHARD_ALL || (members == NULL && !share->spec.is_fixed)) {
        memset(wanted, true, blocks * sizeof(*wanted));
    } else if (share->spec.is_fixed) {
        shard_fixed(&share->spec, blocks, wanted);
    } else {
        shard_rendezvous(self, members, members_count, blocks, wanted);
    }
    for (uint32_t b = 0; b < blocks; b++) {
        held += wanted[b];
    }
    if (held == 0 && members != NULL && blocks > 0) {
        memcpy(&key, self.bytes, sizeof(key));
        wanted[rng_mix(share->seed, key) % blocks] = true;
    }
    rc = load_blocks(share, wanted, why);
    mem_free(wanted);
    return rc;
}

enum rc share_ensure(struct share *share, struct fault *why)
{
    if (share->is_loaded) return RC_OK;
    return load_chosen(share, (struct peer_id){{0}}, NULL, 0, why);
}

enum rc share_reshard(struct share *share, struct peer_id self, const struct peer_id *members,
                      size_t members_count, struct fault *why)
{
    CHECK(members != NULL && members_count > 0);
    if (share->spec.is_fixed || share->spec.kind == SHARD_ALL) return share_ensure(share, why);
    return load_chosen(share, self, members, members_count, why);
}

enum rc share_create(struct dataset *dataset, const struct share_options *options,
                     struct share **share, struct fault *why)
{
    struct share *created = mem_alloc(sizeof(*created));
    enum rc rc = RC_OK;

    if (created == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
    created->dataset = dataset;
    created->spec = options->shard;
    created->seed = options->seed;
    created->batch = options->batch;
    rng_init(&created->rng, options->stream_seed, PURPOSE_ORDER);
    created->picked = mem_array(options->batch, sizeof(*created->picked));
    if (created->picked == NULL) {
        rc = fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
    } else if (options->shard.kind == SHARD_DIRICHLET) {
        rc = load_dirichlet(created, why);
    } else if (options->shard.is_fixed) {
        rc = share_ensure(created, why);
    }
    if (rc != RC_OK) {
        share_destroy(created);
        return rc;
    }
    *share = created;
    return RC_OK;
}

void share_destroy(struct share *share)
{
    if (share == NULL) return;
    samples_deinit(&share->samples);
    mem_free(share->order);
    mem_free(share->picked);
    mem_free(share);
}

uint64_t share_samples(const struct share *share)
{
    return share->is_loaded ? share->samples.count : dataset_info(share->dataset)->train_samples;
}

void share_batch(struct share *share, struct batch *batch)
{
    CHECK(share->is_loaded && batch->rows_max == share->batch);
    for (uint32_t i = 0; i < batch->rows_max; i++) {
        if (share->cursor == share->samples.count) begin_epoch(share);
        share->picked[i] = share->order[share->cursor++];
    }
    samples_gather(&share->samples, dataset_info(share->dataset),
                   (struct pick){share->picked, 0, batch->rows_max}, batch);
}

void share_save(const struct share *share, uint64_t words[SHARE_STATE_WORDS])
{
    if (!share->is_loaded && share->has_pending) {
        memcpy(words, share->pending, sizeof(share->pending));
        return;
    }
    words[0] = share->is_loaded ? share->id : 0;
    words[1] = share->epochs;
    words[2] = share->cursor;
    memcpy(words + 3, share->is_loaded ? share->rng_before.state : share->rng.state,
           sizeof(share->rng.state));
    words[7] = 0;
}

bool share_load(struct share *share, const uint64_t words[SHARE_STATE_WORDS])
{
    if ((words[3] | words[4] | words[5] | words[6]) == 0 || words[7] != 0) return false;
    if (words[2] > dataset_info(share->dataset)->train_samples) return false;
    if (is_of_this_share(share, words)) {
        continue_epoch(share, words);
        return true;
    }
    memcpy(share->pending, words, sizeof(share->pending));
    share->has_pending = true;
    memcpy(share->rng.state, words + 3, sizeof(share->rng.state));
    share->epochs = words[1];
    if (share->is_loaded) begin_epoch(share);
    return true;
}
