/* The samples of one peer in the order of its epochs: see shard.h. */
#include "replica/data/shard.h"

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

struct shard {
    struct dataset *dataset;
    struct shard_spec spec;
    uint64_t seed, samples_max;
    uint32_t blocks_held;
    struct samples samples;
    bool is_loaded;
    uint64_t id;       /* of the set of samples: equal ids, equal samples in equal order */
    uint32_t *order;   /* this epoch's permutation of samples */
    uint32_t *numbers; /* [samples.count]: in file order */
    size_t cursor;     /* next entry of `order` */
    uint64_t epochs;   /* begun */
    struct rng rng;    /* after drawing `order` */
    struct rng rng_before;
    uint64_t pending[SHARD_STATE_WORDS]; /* state of a shard that is not loaded yet */
    bool has_pending;
    struct augment augment;
    uint64_t augment_seed;
    struct prefetch_options options; /* how batches are made: here, or ahead of time */
    struct prefetch_order here;
    float *image;                        /* room for one while it is augmented here */
    struct prefetch *prefetch;           /* NULL: every batch is made when it is asked for */
    struct place places[PREFETCH_DEPTH]; /* before each batch that is outstanding, oldest first */
};

static void order_epoch(struct rng *rng, uint32_t *order, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)i;
    }
    rng_shuffle(rng, order, count);
}

static void begin_epoch(struct shard *shard)
{
    shard->rng_before = shard->rng;
    order_epoch(&shard->rng, shard->order, shard->samples.count);
    shard->cursor = 0;
    shard->epochs++;
}

/* Go on where `words` were written. */
static void continue_epoch(struct shard *shard, const uint64_t words[SHARD_STATE_WORDS])
{
    memcpy(shard->rng.state, words + 3, sizeof(shard->rng.state));
    begin_epoch(shard);
    shard->epochs = words[1];
    shard->cursor = (size_t)words[2];
}

static struct place place_of(const struct shard *shard)
{
    if (shard->prefetch != NULL && prefetch_outstanding(shard->prefetch) > 0) {
        return shard->places[0];
    }
    return (struct place){shard->epochs, shard->cursor, shard->rng_before};
}

static void go_back(struct shard *shard, struct place place)
{
    if (place.epochs != shard->epochs) {
        shard->rng = place.rng_before;
        begin_epoch(shard);
        shard->epochs = place.epochs;
    }
    shard->cursor = place.cursor;
}

/* Forget the batches that were made ahead: as if they had never been drawn. */
static void rewind_prefetched(struct shard *shard)
{
    struct place place = place_of(shard);

    if (shard->prefetch == NULL || prefetch_outstanding(shard->prefetch) == 0) return;
    prefetch_drain(shard->prefetch);
    go_back(shard, place);
}

void shard_redo(struct shard *shard)
{
    rewind_prefetched(shard);
}

static bool is_of_this_shard(const struct shard *shard, const uint64_t words[SHARD_STATE_WORDS])
{
    return shard->is_loaded && words[0] == shard->id && words[2] <= shard->samples.count;
}

/* Commit freshly loaded samples and their numbers. On failure they are released. */
static enum rc adopt(struct shard *shard, struct samples *samples, uint32_t *numbers, uint64_t id,
                     struct fault *why)
{
    uint32_t *order;

    if (samples->count > shard->samples_max) samples->count = (size_t)shard->samples_max;
    order = mem_array(samples->count, sizeof(*order));
    if (order == NULL || samples->count == 0) {
        mem_free(order);
        mem_free(numbers);
        samples_deinit(samples);
        if (order == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
        return fault_set(why, RC_NOT_FOUND,
                         "this peer's shard of the data is empty: use fewer shards or --shard all");
    }
    rewind_prefetched(shard);
    mem_free(shard->order);
    mem_free(shard->numbers);
    samples_deinit(&shard->samples);
    shard->samples = *samples;
    shard->order = order;
    shard->numbers = numbers;
    shard->is_loaded = true;
    shard->id = id;
    if (shard->has_pending && is_of_this_shard(shard, shard->pending)) {
        continue_epoch(shard, shard->pending);
    } else {
        begin_epoch(shard);
    }
    shard->has_pending = false;
    return RC_OK;
}

static enum rc load_blocks(struct shard *shard, const bool *wanted, struct fault *why)
{
    uint32_t blocks = dataset_info(shard->dataset)->blocks;
    struct samples samples = {0};
    uint32_t *numbers = NULL;
    uint64_t id = rng_mix(shard->seed, blocks);
    enum rc rc;

    for (uint32_t b = 0; b < blocks; b++) {
        if (wanted[b]) id = rng_mix(id, b);
    }
    if (shard->is_loaded && id == shard->id) return RC_OK;
    rc = dataset_block_numbers(shard->dataset, wanted, &numbers);
    if (rc != RC_OK) return fault_set(why, rc, "cannot load the data: out of memory");
    rc = dataset_load_blocks(shard->dataset, wanted, &samples, why);
    if (rc == RC_OK) return adopt(shard, &samples, numbers, id, why);
    mem_free(numbers);
    return rc;
}

/* Those that may be in a shard. */
static uint32_t blocks_of(const struct shard *shard)
{
    return dataset_info(shard->dataset)->blocks - shard->blocks_held;
}

static enum rc load_dirichlet(struct shard *shard, struct fault *why)
{
    const struct dataset_info *info = dataset_info(shard->dataset);
    const struct shard_spec *spec = &shard->spec;
    uint32_t *indices = NULL;
    size_t count = 0;
    struct samples samples = {0};
    uint64_t alpha, id;
    uint32_t *labels = NULL;
    enum rc rc = dataset_load_labels(shard->dataset, &labels, why);

    if (rc != RC_OK) return rc;
    rc = shard_spec_dirichlet(spec, shard->seed, labels, (size_t)info->train_samples, info->classes,
                              &indices, &count);
    mem_free(labels);
    if (rc != RC_OK) return fault_set(why, rc, "cannot divide the data: %s", rc_text(rc));
    memcpy(&alpha, &spec->alpha, sizeof(alpha));
    id = rng_mix(rng_mix(shard->seed, alpha), (uint64_t)spec->index << 32 | spec->count);
    if (shard->blocks_held > 0) {
        id = rng_mix(id, shard->blocks_held);
        rc = dataset_without_blocks(shard->dataset, blocks_of(shard), indices, &count);
    }
    if (rc == RC_OK) {
        rc = dataset_load_list(shard->dataset, indices, count, &samples, why);
    } else {
        fault_set(why, rc, "cannot divide the data: %s", rc_text(rc));
    }
    if (rc == RC_OK) return adopt(shard, &samples, indices, id, why);
    mem_free(indices);
    return rc;
}

/* The blocks that `choose` marks. */
static enum rc load_chosen(struct shard *shard, struct peer_id self, const struct peer_id *members,
                           size_t members_count, struct fault *why)
{
    const uint32_t blocks = blocks_of(shard);
    bool *wanted = mem_array(dataset_info(shard->dataset)->blocks, sizeof(*wanted));
    uint64_t key;
    size_t held = 0;
    enum rc rc;

    if (wanted == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
    if (shard->spec.kind == SHARD_ALL || (members == NULL && !shard->spec.is_fixed)) {
        uint64_t each = dataset_info(shard->dataset)->block_samples;
        for (uint32_t b = 0; b < blocks && b * each < shard->samples_max; b++) {
            wanted[b] = true;
        }
    } else if (shard->spec.is_fixed) {
        shard_spec_fixed(&shard->spec, blocks, wanted);
    } else {
        shard_spec_rendezvous(self, members, members_count, blocks, wanted);
    }
    for (uint32_t b = 0; b < blocks; b++) {
        held += wanted[b];
    }
    if (held == 0 && members != NULL && blocks > 0) {
        memcpy(&key, self.bytes, sizeof(key));
        wanted[rng_mix(shard->seed, key) % blocks] = true;
    }
    rc = load_blocks(shard, wanted, why);
    mem_free(wanted);
    return rc;
}

enum rc shard_ensure(struct shard *shard, struct fault *why)
{
    if (shard->is_loaded) return RC_OK;
    return load_chosen(shard, (struct peer_id){{0}}, NULL, 0, why);
}

enum rc shard_reshard(struct shard *shard, struct peer_id self, const struct peer_id *members,
                      size_t members_count, struct fault *why)
{
    CHECK(members != NULL && members_count > 0);
    if (shard->spec.is_fixed || shard->spec.kind == SHARD_ALL) return shard_ensure(shard, why);
    return load_chosen(shard, self, members, members_count, why);
}

/* Room to make batches here, or a thread that makes them ahead of time. */
static enum rc prepare_batches(struct shard *shard, bool with_prefetch, struct fault *why)
{
    enum rc rc;

    if (with_prefetch) return prefetch_create(&shard->options, &shard->prefetch, why);
    rc = prefetch_order_init(&shard->here, &shard->options);
    if (rc == RC_OK && !augment_is_empty(&shard->augment)) {
        shard->image = mem_array(dataset_values(shard->options.info), sizeof(*shard->image));
        if (shard->image == NULL) rc = RC_NOMEM;
    }
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot load the data: out of memory");
}

enum rc shard_create(struct dataset *dataset, const struct shard_options *options,
                     struct shard **shard, struct fault *why)
{
    struct shard *created = mem_alloc(sizeof(*created));
    enum rc rc = RC_OK;

    if (created == NULL) return fault_set(why, RC_NOMEM, "cannot load the data: out of memory");
    created->dataset = dataset;
    created->spec = options->shard;
    created->seed = options->seed;
    created->samples_max = options->samples_max > 0 ? options->samples_max : UINT64_MAX;
    created->blocks_held = options->blocks_held;
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
        shard_destroy(created);
        return rc;
    }
    if (options->shard.kind == SHARD_DIRICHLET) {
        rc = load_dirichlet(created, why);
    } else if (options->shard.is_fixed) {
        rc = shard_ensure(created, why);
    }
    if (rc != RC_OK) {
        shard_destroy(created);
        return rc;
    }
    *shard = created;
    return RC_OK;
}

void shard_destroy(struct shard *shard)
{
    if (shard == NULL) return;
    prefetch_destroy(shard->prefetch);
    prefetch_order_deinit(&shard->here);
    samples_deinit(&shard->samples);
    mem_free(shard->order);
    mem_free(shard->numbers);
    mem_free(shard->image);
    mem_free(shard);
}

const struct samples *shard_set(const struct shard *shard)
{
    CHECK(shard->is_loaded);
    return &shard->samples;
}

uint64_t shard_samples(const struct shard *shard)
{
    uint64_t all = dataset_info(shard->dataset)->train_samples;

    if (shard->is_loaded) return shard->samples.count;
    if (shard->blocks_held > 0) {
        all = (uint64_t)blocks_of(shard) * dataset_info(shard->dataset)->block_samples;
    }
    return all < shard->samples_max ? all : shard->samples_max;
}

/* The next samples in line. */
static void draw(struct shard *shard, struct prefetch_order *order)
{
    for (uint32_t i = 0; i < shard->options.rows; i++) {
        if (shard->cursor == shard->samples.count) begin_epoch(shard);
        if (order->keys != NULL) {
            order->keys[i] = augment_key(shard->augment_seed, shard->epochs, shard->cursor);
        }
        order->picked[i] = shard->order[shard->cursor++];
    }
}

static void order_ahead(struct shard *shard)
{
    struct place place = {shard->epochs, shard->cursor, shard->rng_before};

    shard->places[prefetch_outstanding(shard->prefetch)] = place;
    draw(shard, prefetch_next(shard->prefetch));
    prefetch_submit(shard->prefetch);
}

enum rc shard_batch(struct shard *shard, struct batch *batch)
{
    struct prefetch *prefetch = shard->prefetch;

    CHECK(shard->is_loaded && batch->rows_max == shard->options.rows);
    if (prefetch == NULL) {
        draw(shard, &shard->here);
        prefetch_fill(&shard->options, &shard->here, shard->image, batch);
        return batch->rc;
    }
    if (prefetch_outstanding(prefetch) == 0) order_ahead(shard);
    prefetch_take(prefetch, batch);
    memmove(shard->places, shard->places + 1, sizeof(shard->places) - sizeof(shard->places[0]));
    while (prefetch_outstanding(prefetch) < PREFETCH_DEPTH) {
        order_ahead(shard);
    }
    return batch->rc;
}

bool shard_augments(const struct shard *shard)
{
    return !augment_is_empty(&shard->augment);
}

enum rc shard_gather(const struct shard *shard, size_t first, uint32_t rows, struct batch *batch)
{
    CHECK(shard->is_loaded && first <= shard->samples.count);
    CHECK(rows <= shard->samples.count - first && rows <= batch->rows_max);
    return samples_gather(&shard->samples, dataset_info(shard->dataset),
                          (struct pick){NULL, first, rows}, batch);
}

void shard_save(const struct shard *shard, uint64_t words[SHARD_STATE_WORDS])
{
    struct place place = place_of(shard);

    if (!shard->is_loaded && shard->has_pending) {
        memcpy(words, shard->pending, sizeof(shard->pending));
        return;
    }
    words[0] = shard->is_loaded ? shard->id : 0;
    words[1] = place.epochs;
    words[2] = place.cursor;
    memcpy(words + 3, shard->is_loaded ? place.rng_before.state : shard->rng.state,
           sizeof(shard->rng.state));
    words[7] = 0;
}

bool shard_load(struct shard *shard, const uint64_t words[SHARD_STATE_WORDS])
{
    if ((words[3] | words[4] | words[5] | words[6]) == 0 || words[7] != 0) return false;
    if (words[2] > dataset_info(shard->dataset)->train_samples) return false;
    rewind_prefetched(shard);
    if (is_of_this_shard(shard, words)) {
        continue_epoch(shard, words);
        return true;
    }
    memcpy(shard->pending, words, sizeof(shard->pending));
    shard->has_pending = true;
    memcpy(shard->rng.state, words + 3, sizeof(shard->rng.state));
    shard->epochs = words[1];
    if (shard->is_loaded) begin_epoch(shard);
    return true;
}

void shard_places(const struct shard *shard, uint32_t *places)
{
    CHECK(shard->is_loaded);
    for (size_t i = 0; i < shard->samples.count; i++) {
        places[shard->numbers[i]] = (uint32_t)i + 1;
    }
}

enum rc shard_between(const struct shard *shard, const uint64_t from[SHARD_STATE_WORDS],
                      const uint64_t to[SHARD_STATE_WORDS], uint32_t *numbers, uint32_t most,
                      uint32_t *count)
{
    const size_t samples = shard->samples.count;
    uint64_t epoch = from[1], cursor = from[2];
    uint32_t *order, taken = 0;
    struct rng rng;
    enum rc rc = RC_OK;

    if (!is_of_this_shard(shard, from) || !is_of_this_shard(shard, to)) return RC_STALE;
    order = mem_array(samples, sizeof *order);
    if (order == NULL) return RC_NOMEM;
    memcpy(rng.state, from + 3, sizeof rng.state);
    order_epoch(&rng, order, samples);
    while (rc == RC_OK && (epoch != to[1] || cursor != to[2])) {
        if (taken == most || epoch > to[1]) {
            rc = RC_LIMIT;
        } else if (cursor == samples) {
            order_epoch(&rng, order, samples);
            epoch++;
            cursor = 0;
        } else {
            numbers[taken++] = shard->numbers[order[cursor++]];
        }
    }
    mem_free(order);
    if (rc == RC_OK) *count = taken;
    return rc;
}
