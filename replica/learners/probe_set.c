/* probe_set: see probe_set.h. */
#include "replica/learners/probe_set.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

enum { PURPOSE_DRAW = 0x70726f62 };

/* ---- which samples ---- */

static bool are_alike(const struct dataset_info *a, const struct dataset_info *b)
{
    return a->input == b->input && a->channels == b->channels && a->height == b->height &&
           a->width == b->width && a->symbols == b->symbols && a->has_bytes == b->has_bytes &&
           a->target == b->target && a->labels_per_sample == b->labels_per_sample &&
           (a->target != DATA_REALS || a->outputs == b->outputs);
}

static enum rc open_other(struct probe_set *set, const struct probe_set_options *options,
                          struct fault *why)
{
    enum rc rc = dataset_open(options->other, options->opening, &set->foreign, why);

    if (rc != RC_OK) return rc;
    if (are_alike(dataset_info(set->foreign), dataset_info(options->dataset))) return RC_OK;
    return fault_set(why, RC_MISMATCH,
                     "--probe %s: its samples are of another form than those of --data; take data "
                     "of the same size, channels and kind of target",
                     options->other);
}

/* The first of an order that follows from the seed, and is none by which shards are made. */
static enum rc load(struct probe_set *set, const struct probe_set_options *options,
                    struct fault *why)
{
    struct dataset *from = set->foreign != NULL ? set->foreign : options->dataset;
    const size_t all = (size_t)dataset_info(from)->train_samples;
    const size_t count = options->samples < all ? (size_t)options->samples : all;
    uint32_t *order = mem_array(all, sizeof *order);
    enum rc rc;

    if (order == NULL) return fault_set(why, RC_NOMEM, "cannot load the probe set: out of memory");
    dataset_order(rng_mix(options->seed, PURPOSE_DRAW), order, all);
    rc = dataset_load_list(from, order, count, &set->samples, why);
    mem_free(order);
    if (rc != RC_OK) return rc;
    rc = samples_digest(&set->samples, dataset_info(options->dataset), &set->digest);
    return rc == RC_OK ? rc : fault_set(why, rc, "cannot read the probe set: %s", rc_text(rc));
}

/* ---- by their bytes ---- */

/* The part of memory that is a sample's input; NULL: it lies in a file. A sample of a text is known
 * by its input, too: what follows is a label. */
static const void *bytes_of(const struct samples *samples, const struct dataset_info *info,
                            size_t sample, size_t *count)
{
    const size_t at = sample * samples->stored, values = dataset_values(info);

    *count = values * sizeof(float);
    if (samples->floats != NULL) return samples->floats + at;
    if (samples->tokens != NULL) return samples->tokens + at;
    *count = values;
    return samples->bytes != NULL ? samples->bytes + at : NULL;
}

/* Windows into a file are known by where they lie in it. */
static uint64_t key_of(const struct samples *samples, const struct dataset_info *info,
                       size_t sample)
{
    size_t count;
    const void *bytes = bytes_of(samples, info, sample, &count);

    if (bytes == NULL) return rng_mix(PURPOSE_DRAW, samples->windows[sample]);
    return load_le64(hash_of(bytes, count).bytes);
}

static enum rc make_table(struct probe_set *set, const struct dataset_info *info)
{
    const size_t count = set->samples.count;
    size_t mask;

    while ((UINT64_C(1) << set->bits) < 2 * count) {
        set->bits++;
    }
    mask = ((size_t)1 << set->bits) - 1;
    set->keys = mem_array(mask + 1, sizeof *set->keys);
    set->places = mem_array(mask + 1, sizeof *set->places);
    if (set->keys == NULL || set->places == NULL) return RC_NOMEM;
    memset(set->places, 0xff, (mask + 1) * sizeof *set->places);
    for (size_t i = 0; i < count; i++) {
        const uint64_t key = key_of(&set->samples, info, i);
        size_t at = (size_t)key & mask;

        while (set->places[at] != PROBE_NONE && set->keys[at] != key) {
            at = (at + 1) & mask;
        }
        set->keys[at] = key; /* of equal samples the last one: they have equal answers */
        set->places[at] = (uint32_t)i;
    }
    return RC_OK;
}

uint32_t probe_set_find(const struct probe_set *set, const struct dataset_info *info,
                        const struct samples *samples, size_t sample)
{
    const uint64_t key = key_of(samples, info, sample);
    const size_t mask = ((size_t)1 << set->bits) - 1;
    size_t at = (size_t)key & mask;

    CHECK(set->keys != NULL);
    while (set->places[at] != PROBE_NONE && set->keys[at] != key) {
        at = (at + 1) & mask;
    }
    return set->places[at];
}

/* ---- life ---- */

enum rc probe_set_init(struct probe_set *set, const struct probe_set_options *options,
                       struct fault *why)
{
    const struct dataset_info *info = dataset_info(options->dataset);
    enum rc rc = RC_OK;

    CHECK(options->samples > 0);
    *set = (struct probe_set){0};
    if (options->other != NULL) rc = open_other(set, options, why);
    if (rc == RC_OK) rc = load(set, options, why);
    if (rc == RC_OK && options->finds) {
        rc = make_table(set, info);
        if (rc != RC_OK) fault_set(why, rc, "cannot load the probe set: out of memory");
    }
    if (rc != RC_OK) probe_set_deinit(set);
    return rc;
}

void probe_set_deinit(struct probe_set *set)
{
    samples_deinit(&set->samples);
    dataset_close(set->foreign);
    mem_free(set->keys);
    mem_free(set->places);
    *set = (struct probe_set){0};
}
