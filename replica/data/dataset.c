/*
 * Data sets behind one door. A set is a part of training and a part of testing, each a sequence of
 * samples that can only be read from its start: loading is one pass that keeps the samples which
 * have a place in the result and skips the others, so memory follows the shard. Used by jobs and
 * commands.
 */
#include "replica/data/dataset.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/words.h"
#include "replica/data/source.h"

#include <stdio.h>
#include <string.h>

#define PERMUTATION_STREAM UINT64_C(0x7065726d75746531) /* "permute1" */

struct dataset {
    struct dataset_info info;
    uint32_t own_classes; /* > 0: of its samples, whose labels are forgotten once they are read */
    uint64_t seed;
    struct data_source *source;
};

static const struct {
    const char *kind, *form; /* as people write it */
    data_source_open open;
} kinds[] = {
    {"digits", "digits", digits_open_source},
    {"fashion-mnist", "fashion-mnist", fashion_open_source},
    {"idx", "idx:DIR", idx_open_source},
    {"cifar10", "cifar10:DIR", cifar_open_source},
    {"csv", "csv:FILE,label=COLUMN", csv_open_source},
    {"npy", "npy:X.npy,Y.npy", npy_open_source},
    {"text", "text:FILE", text_open_source},
    {"tokens", "tokens:FILE", tokens_open_source},
    {"synthetic", "synthetic:FAMILY", synthetic_open_source},
};

/* What follows from what the source said. */
static void complete_info(struct dataset_info *info)
{
    uint64_t samples = info->train_samples, size = DATASET_BLOCK_SAMPLES;

    if (samples < DATASET_SMALL_SAMPLES) size = samples / DATASET_SMALL_BLOCKS;
    if (size == 0) size = 1;
    CHECK(info->train_samples <= DATA_SAMPLES_MAX && info->test_samples <= DATA_SAMPLES_MAX);
    CHECK(dataset_values(info) > 0 && dataset_values(info) <= DATA_VALUES_MAX);
    CHECK(info->mean != NULL && info->scale != NULL);
    info->block_samples = (uint32_t)size;
    info->blocks = (uint32_t)((samples + size - 1) / size);
    if (info->target == DATA_REALS) {
        CHECK(info->outputs > 0 && info->classes == 0);
        return;
    }
    CHECK(info->classes > 0);
    CHECK(info->classes <= (info->target == DATA_CLASS ? DATA_CLASSES_MAX : DATA_SYMBOLS_MAX));
    info->outputs = info->classes;
    info->labels_per_sample = info->target == DATA_NEXT_TOKEN ? info->width : 1;
}

static enum rc open_kind(struct dataset *dataset, const struct data_spec *spec,
                         const struct dataset_options *options, struct fault *why)
{
    static const struct word_synonym synonyms[] = {
        {"mnist", "idx:DIR, a folder with MNIST's four files"},
        {"emnist", "idx:DIR, a folder with four files named as MNIST's"},
        {"fashion", "fashion-mnist"},
        {"fashion_mnist", "fashion-mnist"},
        {"fashionmnist", "fashion-mnist"},
        {"fmnist", "fashion-mnist"},
        {"cifar", "cifar10:DIR"},
        {"cifar-10", "cifar10:DIR"},
        {"numpy", "npy:X.npy,Y.npy"},
        {"txt", "text:FILE"},
        {"bin", "tokens:FILE"},
        {NULL, NULL},
    };
    char known[256] = "";
    const char *ours;

    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        if (strcmp(spec->kind, kinds[i].kind) == 0) {
            return kinds[i].open(spec, options, &dataset->info, &dataset->source, why);
        }
    }
    for (size_t i = 0, at = 0; i < ARRAY_COUNT(kinds) && at < sizeof known; i++) {
        const char *between = i == 0 ? "" : i + 1 < ARRAY_COUNT(kinds) ? ", " : " and ";
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", between, kinds[i].form);
    }
    ours = word_synonym(spec->kind, synonyms);
    return data_spec_fault(spec, 1, why, "unknown data set; %s%s%sthere are %s",
                           ours != NULL ? "write " : "", ours != NULL ? ours : "",
                           ours != NULL ? "; " : "", known);
}

enum rc dataset_open(const char *spec, const struct dataset_options *options,
                     struct dataset **dataset, struct fault *why)
{
    struct dataset *opened;
    struct data_spec parsed;
    enum rc rc;

    CHECK(spec != NULL && dataset != NULL);
    rc = data_spec_parse(spec, &parsed, why);
    if (rc != RC_OK) return rc;
    opened = mem_alloc(sizeof *opened);
    rc = opened == NULL ? data_no_memory(why, "open the data")
                        : open_kind(opened, &parsed, options, why);
    data_spec_deinit(&parsed);
    if (rc != RC_OK) {
        mem_free(opened);
        return rc;
    }
    opened->seed = options->seed;
    complete_info(&opened->info);
    if (options->unlabelled > 0 && opened->info.target == DATA_CLASS) {
        opened->own_classes = opened->info.classes;
        opened->info.classes = opened->info.outputs = options->unlabelled;
        opened->info.class_words = NULL;
    }
    *dataset = opened;
    return RC_OK;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL) return;
    data_source_destroy(dataset->source);
    mem_free(dataset);
}

const struct dataset_info *dataset_info(const struct dataset *dataset)
{
    return &dataset->info;
}

void dataset_set_normal(struct dataset *dataset, const float *mean, const float *scale)
{
    const size_t channels = dataset->info.channels;

    CHECK(dataset->info.measured != NULL);
    memcpy(dataset->source->normal, mean, channels * sizeof *mean);
    memcpy(dataset->source->normal + channels, scale, channels * sizeof *scale);
}

/* Slots that are all empty. */
static uint32_t *slots_create(size_t count)
{
    uint32_t *slots = mem_array(count, sizeof *slots);

    for (size_t i = 0; slots != NULL && i < count; i++) {
        slots[i] = DATA_NO_SLOT;
    }
    return slots;
}

/* The samples of `part` that have a slot, `kept` of them. */
static enum rc load(struct dataset *dataset, const struct data_part *part, size_t kept,
                    struct samples *out, struct fault *why)
{
    struct dataset_info own = dataset->info;
    struct samples loaded;
    enum rc rc;

    if (dataset->own_classes > 0) own.classes = dataset->own_classes;
    rc = samples_init(&loaded, &own, kept);
    if (rc != RC_OK) return data_no_memory(why, "load the data");
    rc = dataset->source->ops->load(dataset->source, part, &loaded, why);
    if (rc != RC_OK) {
        samples_deinit(&loaded);
        return rc;
    }
    for (size_t i = 0; dataset->own_classes > 0 && i < kept; i++) {
        samples_set_label(&loaded, i, 0);
    }
    samples_deinit(out);
    *out = loaded;
    return RC_OK;
}

void dataset_order(uint64_t seed, uint32_t *order, size_t count)
{
    struct rng rng;

    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)i;
    }
    rng_init(&rng, seed, PERMUTATION_STREAM);
    rng_shuffle(&rng, order, count);
}

/* The permutation behind the blocks: position p is in block p / size. */
static uint32_t *order_create(const struct dataset *dataset)
{
    size_t count = (size_t)dataset->info.train_samples;
    uint32_t *order = mem_array(count, sizeof *order);

    if (order != NULL) dataset_order(dataset->seed, order, count);
    return order;
}

/* Places of the wanted blocks' samples. */
static enum rc place_blocks(const struct dataset *dataset, const bool *wanted, uint32_t *slots,
                            size_t *kept)
{
    size_t count = (size_t)dataset->info.train_samples, filled = 0;
    uint32_t *order = order_create(dataset);

    if (order == NULL) return RC_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (wanted[i / dataset->info.block_samples]) slots[order[i]] = (uint32_t)filled++;
    }
    mem_free(order);
    *kept = filled;
    return RC_OK;
}

enum rc dataset_load_blocks(struct dataset *dataset, const bool *wanted, struct samples *out,
                            struct fault *why)
{
    size_t count = (size_t)dataset->info.train_samples, kept = 0;
    uint32_t *slots = slots_create(count);
    struct data_part part = {false, count, slots};
    enum rc rc;

    CHECK(wanted != NULL && out != NULL);
    if (slots == NULL || place_blocks(dataset, wanted, slots, &kept) != RC_OK) {
        rc = data_no_memory(why, "load the data");
    } else {
        rc = load(dataset, &part, kept, out, why);
    }
    mem_free(slots);
    return rc;
}

enum rc dataset_block_numbers(const struct dataset *dataset, const bool *wanted, uint32_t **numbers)
{
    const size_t count = (size_t)dataset->info.train_samples;
    uint32_t *order = order_create(dataset);
    size_t kept = 0;

    if (order == NULL) return RC_NOMEM;
    for (size_t i = 0; i < count; i++) {
        if (wanted[i / dataset->info.block_samples]) order[kept++] = order[i];
    }
    *numbers = order;
    return RC_OK;
}

enum rc dataset_without_blocks(const struct dataset *dataset, uint32_t first, uint32_t *indices,
                               size_t *count)
{
    const size_t all = (size_t)dataset->info.train_samples;
    uint32_t *order = order_create(dataset);
    bool *is_out = mem_array(all, sizeof *is_out);
    size_t kept = 0;
    const enum rc rc = order == NULL || is_out == NULL ? RC_NOMEM : RC_OK;

    for (size_t p = (size_t)first * dataset->info.block_samples; rc == RC_OK && p < all; p++) {
        is_out[order[p]] = true;
    }
    for (size_t i = 0; rc == RC_OK && i < *count; i++) {
        if (!is_out[indices[i]]) indices[kept++] = indices[i];
    }
    if (rc == RC_OK) *count = kept;
    mem_free(order);
    mem_free(is_out);
    return rc;
}

enum rc dataset_load_list(struct dataset *dataset, const uint32_t *indices, size_t count,
                          struct samples *out, struct fault *why)
{
    size_t there = (size_t)dataset->info.train_samples;
    uint32_t *slots = slots_create(there);
    struct data_part part = {false, there, slots};
    enum rc rc;

    CHECK(out != NULL && (indices != NULL || count == 0));
    if (slots == NULL) return data_no_memory(why, "load the data");
    for (size_t i = 0; i < count; i++) {
        if (indices[i] >= there || slots[indices[i]] != DATA_NO_SLOT) {
            mem_free(slots);
            return fault_set(why, RC_FORMAT, "sample %u is not one of %s, or listed twice",
                             indices[i], dataset->info.name);
        }
        slots[indices[i]] = (uint32_t)i;
    }
    rc = load(dataset, &part, count, out, why);
    mem_free(slots);
    return rc;
}

uint32_t dataset_last_blocks(const struct dataset_info *info, uint64_t samples)
{
    uint32_t first = info->blocks;

    while (first > 0 && ((uint64_t)first * info->block_samples >= info->train_samples ||
                         info->train_samples - (uint64_t)first * info->block_samples < samples)) {
        first--;
    }
    return info->blocks - first;
}

enum rc dataset_load_test(struct dataset *dataset, uint64_t samples_max, struct samples *out,
                          struct fault *why)
{
    size_t count = (size_t)dataset->info.test_samples;
    struct data_part part = {.is_test = true};
    uint32_t *slots;
    enum rc rc;

    CHECK(out != NULL);
    if (samples_max != 0 && samples_max < count) count = (size_t)samples_max;
    slots = slots_create(count);
    if (slots == NULL) return data_no_memory(why, "load the data");
    for (size_t i = 0; i < count; i++) {
        slots[i] = (uint32_t)i;
    }
    part.count = count;
    part.slots = slots;
    rc = load(dataset, &part, count, out, why);
    mem_free(slots);
    return rc;
}

enum rc dataset_load_labels(struct dataset *dataset, uint32_t **labels, struct fault *why)
{
    size_t count = (size_t)dataset->info.train_samples;
    struct samples only = {.count = count};
    struct data_part part = {false, count, NULL};
    uint32_t *slots;
    enum rc rc;

    if (dataset->info.target != DATA_CLASS) {
        return fault_set(why, RC_USAGE, "the samples of %s have no class", dataset->info.name);
    }
    slots = slots_create(count);
    only.large_labels = mem_array(count, sizeof(uint32_t));
    if (slots == NULL || only.large_labels == NULL) {
        rc = data_no_memory(why, "read labels");
    } else {
        for (size_t i = 0; i < count; i++) {
            slots[i] = (uint32_t)i;
        }
        part.slots = slots;
        rc = dataset->source->ops->load(dataset->source, &part, &only, why);
    }
    mem_free(slots);
    if (rc == RC_OK)
        *labels = only.large_labels;
    else
        mem_free(only.large_labels);
    return rc;
}
