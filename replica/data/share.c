/* The share of the data: see share.h. */
#include "replica/data/share.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/data/prefetch.h"

#include <string.h>

enum { PURPOSE_ORDER = 0x6f726465 };

/* Where in the data: before some sample of some epoch. */
struct place {
    uint64_t epochs;
    size_t cursor;
    struct rng rng_before; /* the epoch's order */
};

struct share {
    struct dataset *dataset;
    struct shard_spec spec;
    uint64_t seed, samples_max;
    struct samples samples;
    bool is_loaded;
    uint64_t id;     /* of the set of samples: equal ids, equal samples in equal order */
    uint32_t *order; /* this epoch's permutation of samples */
    size_t cursor;   /* next entry of `order` */
    uint64_t epochs; /* begun */
    struct rng rng;  /* after drawing `order` */
    struct rng rng_before;
    uint64_t pending[SHARE_STATE_WORDS]; /* state of a share that is not loaded yet */
    bool has_pending;
    struct augment augment;
    uint64_t augment_seed;
    struct prefetch_options options; /* how batches are made: here, or ahead of time */
    struct prefetch_order here;
    float *image;                        /* room for one while it is augmented here */
    struct prefetch *prefetch;           /* NULL: every batch is made when it is asked for */
    struct place places[PREFETCH_DEPTH]; /* before each batch that is outstanding, oldest first */
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

static struct place place_of(const struct share *share)
{
    if (share->prefetch != NULL && prefetch_outstanding(share->prefetch) > 0) {
        return share->places[0];
    }
    return (struct place){share->epochs, share->cursor, share->rng_before};
}

/* Forget the batches that were made ahead: as if they had never been drawn. */
static void rewind_prefetched(struct share *share)
{
    struct place place = place_of(share);

    if (share->prefetch == NULL || prefetch_outstanding(share->prefetch) == 0) return;
    prefetch_drain(share->prefetch);
    if (place.epochs != share->epochs) {
        share->rng = place.rng_before;
        begin_epoch(share);
        share->epochs = place.epochs;
    }
    share->cursor = place.cursor;
}

static bool is_of_this_share(const struct share *share, const uint64_t words[SHARE_STATE_WORDS])
{
    return share->is_loaded && words[0] == share->id && words[2] <= share->samples.count;
}

/* Commit freshly loaded samples. On failure they are released. */
static enum rc adopt(struct share *share, struct samples *samples, uint64_t id, struct fault *why)
{
    uint32_t *order;

    if (samples->count > share->samples_max) samples->count = (size_t)share->samples_max;
    order = mem_array(samples->count, sizeof(*order));
    if (order == NULL || samples->count == 0) {
        mem_free(order);
        samples_deinit(samples);
        if (order == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
        return fault_set(why, RC_NOT_FOUND,
                         "this peer's share of the data is empty: use fewer shares or --shard all");
    }
    rewind_prefetched(share);
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
        uint64_t each = dataset_info(share->dataset)->block_samples;
        for (uint32_t b = 0; b < blocks && b * each < share->samples_max; b++) {
            wanted[b] = true;
        }
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

/* Room to make batches here, or a thread that makes them ahead of time. */
static enum rc prepare_batches(struct share *share, bool with_prefetch, struct fault *why)
{
    enum rc rc;

    if (with_prefetch) return prefetch_create(&share->options, &share->prefetch, why);
    rc = prefetch_order_init(&share->here, &share->options);
    if (rc == RC_OK && !augment_is_empty(&share->augment)) {
        share->image = mem_array(dataset_values(share->options.info), sizeof(*share->image));
        if (share->image == NULL) rc = RC_NOMEM;
    }
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot load the data: out of memory");
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
    created->samples_max = options->samples_max > 0 ? options->samples_max : UINT64_MAX;
    created->augment = options->augment;
    created->augment_seed = options->stream_seed;
    created->options = (struct prefetch_options){.samples = &created->samples,
                                                 .info = dataset_info(dataset),
                                                 .augment = &created->augment,
                                                 .rows = options->batch};
    rng_init(&created->rng, options->stream_seed, PURPOSE_ORDER);
    rc = augment_check(&options->augment, dataset_info(dataset), why);
    if (rc == RC_OK) rc = prepare_batches(created, options->with_prefetch, why);
    if (rc != RC_OK) {
        share_destroy(created);
        return rc;
    }
    if (options->shard.kind == SHARD_DIRICHLET) {
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
    prefetch_destroy(share->prefetch);
    prefetch_order_deinit(&share->here);
    samples_deinit(&share->samples);
    mem_free(share->order);
    mem_free(share->image);
    mem_free(share);
}

const struct samples *share_set(const struct share *share)
{
    CHECK(share->is_loaded);
    return &share->samples;
}

uint64_t share_samples(const struct share *share)
{
    uint64_t all = dataset_info(share->dataset)->train_samples;

    if (share->is_loaded) return share->samples.count;
    return all < share->samples_max ? all : share->samples_max;
}

/* The next samples in line. */
static void draw(struct share *share, struct prefetch_order *order)
{
    for (uint32_t i = 0; i < share->options.rows; i++) {
        if (share->cursor == share->samples.count) begin_epoch(share);
        if (order->keys != NULL) {
            order->keys[i] = augment_key(share->augment_seed, share->epochs, share->cursor);
        }
        order->picked[i] = share->order[share->cursor++];
    }
}

static void order_ahead(struct share *share)
{
    struct place place = {share->epochs, share->cursor, share->rng_before};

    share->places[prefetch_outstanding(share->prefetch)] = place;
    draw(share, prefetch_next(share->prefetch));
    prefetch_submit(share->prefetch);
}

void share_batch(struct share *share, struct batch *batch)
{
    struct prefetch *prefetch = share->prefetch;

    CHECK(share->is_loaded && batch->rows_max == share->options.rows);
    if (prefetch == NULL) {
        draw(share, &share->here);
        prefetch_fill(&share->options, &share->here, share->image, batch);
        return;
    }
    if (prefetch_outstanding(prefetch) == 0) order_ahead(share);
    prefetch_take(prefetch, batch);
    memmove(share->places, share->places + 1, sizeof(share->places) - sizeof(share->places[0]));
    while (prefetch_outstanding(prefetch) < PREFETCH_DEPTH) {
        order_ahead(share);
    }
}

void share_gather(const struct share *share, size_t first, uint32_t rows, struct batch *batch)
{
    CHECK(share->is_loaded && first <= share->samples.count);
    CHECK(rows <= share->samples.count - first && rows <= batch->rows_max);
    samples_gather(&share->samples, dataset_info(share->dataset), (struct pick){NULL, first, rows},
                   batch);
}

void share_save(const struct share *share, uint64_t words[SHARE_STATE_WORDS])
{
    struct place place = place_of(share);

    if (!share->is_loaded && share->has_pending) {
        memcpy(words, share->pending, sizeof(share->pending));
        return;
    }
    words[0] = share->is_loaded ? share->id : 0;
    words[1] = place.epochs;
    words[2] = place.cursor;
    memcpy(words + 3, share->is_loaded ? place.rng_before.state : share->rng.state,
           sizeof(share->rng.state));
    words[7] = 0;
}

bool share_load(struct share *share, const uint64_t words[SHARE_STATE_WORDS])
{
    if ((words[3] | words[4] | words[5] | words[6]) == 0 || words[7] != 0) return false;
    if (words[2] > dataset_info(share->dataset)->train_samples) return false;
    rewind_prefetched(share);
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
