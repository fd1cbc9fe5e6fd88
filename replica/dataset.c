/*
 * Data sets behind one door. A set is a part of training and a part of testing, each a sequence of
 * images that can only be read from its start (gzip): loading is one pass that keeps the samples
 * which have a place in the result and skips the others, so memory follows the share.
 * Normalisation: fashion-mnist and digits by their measured mean and deviation; for idx:DIR, whose
 * images are not read before they are needed, 0.5 and 0.5, which maps bytes to [-1, 1]. Used by
 * jobs and commands.
 */
#include "replica/dataset.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/data_digits.h"
#include "replica/data_idx.h"

#include <stdio.h>
#include <string.h>

#define FASHION_FOLDER     "/usr/share/datasets/fashion-mnist"
#define PERMUTATION_STREAM UINT64_C(0x7065726d75746531) /* "permute1" */

enum { DIGITS_TEST_EVERY = 5, LABELS_START = 65536, CLASSES_MAX = 256 };

static const uint32_t NO_SLOT = UINT32_MAX;

struct dataset {
    struct dataset_info info;
    float mean, scale; /* of the one channel */
    uint64_t seed;
    uint8_t *labels;                       /* of the training part: [train_samples] */
    bool is_digits;                        /* else: files */
    char paths[IDX_FILES][IDX_PATH_BYTES]; /* of files */
};

/* One of the two parts, with what is needed to read it. */
struct part {
    struct dataset *dataset;
    uint64_t count;
    bool is_test;
};

static enum rc no_memory(struct fault *why, const char *doing)
{
    return fault_set(why, RC_NOMEM, "cannot %s: out of memory", doing);
}

static void set_shape(struct dataset_info *info, uint32_t height, uint32_t width)
{
    info->channels = 1;
    info->height = height;
    info->width = width;
}

/* What follows from the rest. */
static void complete_info(struct dataset *dataset)
{
    struct dataset_info *info = &dataset->info;
    uint64_t blocks = (info->train_samples + DATASET_BLOCK_SAMPLES - 1) / DATASET_BLOCK_SAMPLES;

    info->blocks = (uint32_t)blocks;
    info->has_bytes = true;
    info->outputs = info->classes;
    info->labels_per_sample = 1;
    info->mean = &dataset->mean;
    info->scale = &dataset->scale;
}

/* The digits, unpacked for the moment: values, then labels. */
static uint8_t *digits_create(void)
{
    uint8_t *all = mem_alloc(DIGITS_SAMPLES * (DIGITS_PIXELS + 1));

    if (all != NULL) digits_unpack(all, all + DIGITS_SAMPLES * DIGITS_PIXELS);
    return all;
}

static enum rc open_digits(struct dataset *dataset, struct fault *why)
{
    struct dataset_info *info = &dataset->info;
    uint8_t *all = digits_create();
    const uint8_t *labels;

    if (all == NULL) return no_memory(why, "unpack digits");
    labels = all + DIGITS_SAMPLES * DIGITS_PIXELS;
    snprintf(info->name, sizeof info->name, "digits");
    set_shape(info, DIGITS_SIDE, DIGITS_SIDE);
    info->classes = DIGITS_CLASSES;
    dataset->mean = 0.3053F;
    dataset->scale = 1.0F / 0.3760F;
    info->test_samples = (DIGITS_SAMPLES + DIGITS_TEST_EVERY - 1) / DIGITS_TEST_EVERY;
    info->train_samples = DIGITS_SAMPLES - info->test_samples;
    dataset->is_digits = true;
    dataset->labels = mem_alloc(info->train_samples);
    if (dataset->labels != NULL) {
        for (size_t i = 0, at = 0; i < DIGITS_SAMPLES; i++) {
            if (i % DIGITS_TEST_EVERY != 0) dataset->labels[at++] = labels[i];
        }
    }
    mem_free(all);
    return dataset->labels == NULL ? no_memory(why, "unpack digits") : RC_OK;
}

/* All labels of the training part. The buffer grows with what was really read. */
static enum rc read_labels(struct idx_stream *stream, size_t count, uint8_t **labels,
                           struct fault *why)
{
    size_t cap = count < LABELS_START ? count : LABELS_START, filled = 0;
    uint8_t *buffer = mem_alloc(cap);
    enum rc rc = RC_OK;

    if (buffer == NULL) return no_memory(why, "read labels");
    while (rc == RC_OK) {
        uint8_t *grown;

        rc = idx_read(stream, buffer + filled, cap - filled, why);
        if (rc != RC_OK || cap == count) break;
        filled = cap;
        cap = cap > count / 2 ? count : cap * 2;
        grown = mem_resize(buffer, cap);
        if (grown == NULL)
            rc = no_memory(why, "read labels");
        else
            buffer = grown;
    }
    if (rc == RC_OK) rc = idx_finish(stream, why);
    if (rc == RC_OK)
        *labels = buffer;
    else
        mem_free(buffer);
    return rc;
}

/* Headers of one part's images and labels, and that they fit each other. */
static enum rc open_part(struct dataset *dataset, enum idx_file images, enum idx_file labels,
                         struct idx_header *header, uint8_t **values, struct fault *why)
{
    struct idx_stream *stream = NULL;
    struct idx_header labels_header;
    enum rc rc;

    rc = idx_open(dataset->paths[images], images, &stream, header, why);
    if (rc != RC_OK) return rc;
    idx_close(stream);
    rc = idx_open(dataset->paths[labels], labels, &stream, &labels_header, why);
    if (rc != RC_OK) return rc;
    if (labels_header.count != header->count) {
        rc = fault_set(why, RC_FORMAT, "cannot use %s: it has %u labels, but %s has %u images",
                       dataset->paths[labels], labels_header.count, dataset->paths[images],
                       header->count);
    }
    if (rc == RC_OK && values != NULL) rc = read_labels(stream, header->count, values, why);
    idx_close(stream);
    return rc;
}

static uint32_t classes_of(const uint8_t *labels, uint64_t count)
{
    uint32_t classes = 0;

    for (uint64_t i = 0; i < count; i++) {
        if (labels[i] >= classes) classes = labels[i] + 1U;
    }
    return classes;
}

/* `classes`: what every label must be below; 0: take it from the labels. */
static enum rc open_files(struct dataset *dataset, const char *folder, uint32_t classes,
                          struct fault *why)
{
    struct dataset_info *info = &dataset->info;
    struct idx_header train, test;
    enum rc rc;

    for (int i = 0; i < IDX_FILES; i++) {
        rc = idx_find(folder, (enum idx_file)i, dataset->paths[i], why);
        if (rc != RC_OK) return rc;
    }
    rc = open_part(dataset, IDX_TRAIN_IMAGES, IDX_TRAIN_LABELS, &train, &dataset->labels, why);
    if (rc != RC_OK) return rc;
    rc = open_part(dataset, IDX_TEST_IMAGES, IDX_TEST_LABELS, &test, NULL, why);
    if (rc != RC_OK) return rc;
    if (train.height != test.height || train.width != test.width) {
        return fault_set(why, RC_FORMAT, "cannot use %s: images of %ux%u, but %ux%u in %s",
                         dataset->paths[IDX_TEST_IMAGES], test.height, test.width, train.height,
                         train.width, dataset->paths[IDX_TRAIN_IMAGES]);
    }
    set_shape(info, train.height, train.width);
    info->train_samples = train.count;
    info->test_samples = test.count;
    info->classes = classes_of(dataset->labels, train.count);
    if (classes != 0 && info->classes > classes) {
        return fault_set(why, RC_FORMAT, "cannot use %s: label %u, but there are %u classes",
                         dataset->paths[IDX_TRAIN_LABELS], info->classes - 1, classes);
    }
    if (classes != 0) info->classes = classes;
    CHECK(info->classes > 0 && info->classes <= CLASSES_MAX);
    return RC_OK;
}

static enum rc open_spec(struct dataset *dataset, const char *spec, struct fault *why)
{
    struct dataset_info *info = &dataset->info;

    if (strcmp(spec, "digits") == 0) return open_digits(dataset, why);
    if (strcmp(spec, "fashion-mnist") == 0) {
        snprintf(info->name, sizeof info->name, "fashion-mnist");
        dataset->mean = 0.2860F;
        dataset->scale = 1.0F / 0.3530F;
        return open_files(dataset, FASHION_FOLDER, 10, why);
    }
    if (strncmp(spec, "idx:", 4) == 0 && spec[4] != '\0') {
        snprintf(info->name, sizeof info->name, "idx");
        dataset->mean = 0.5F;
        dataset->scale = 2.0F;
        return open_files(dataset, spec + 4, 0, why);
    }
    if (strcmp(spec, "idx:") == 0) {
        return fault_set(why, RC_PARSE, "--data idx: column 5: the folder is missing");
    }
    return fault_set(why, RC_PARSE,
                     "--data %.100s: column 1: unknown data set; there are digits, fashion-mnist "
                     "and idx:DIR",
                     spec);
}

enum rc dataset_open(const char *spec, const struct dataset_options *options,
                     struct dataset **dataset, struct fault *why)
{
    struct dataset *opened;
    enum rc rc;

    CHECK(spec != NULL && dataset != NULL);
    opened = mem_alloc(sizeof *opened);
    if (opened == NULL) return no_memory(why, "open the data");
    opened->seed = options->seed;
    rc = open_spec(opened, spec, why);
    if (rc != RC_OK) {
        dataset_close(opened);
        return rc;
    }
    complete_info(opened);
    *dataset = opened;
    return RC_OK;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset == NULL) return;
    mem_free(dataset->labels);
    mem_free(dataset);
}

const struct dataset_info *dataset_info(const struct dataset *dataset)
{
    return &dataset->info;
}

enum rc dataset_load_labels(struct dataset *dataset, uint32_t **labels, struct fault *why)
{
    size_t count = (size_t)dataset->info.train_samples;
    uint32_t *made = mem_array(count, sizeof *made);

    if (made == NULL) return no_memory(why, "read labels");
    for (size_t i = 0; i < count; i++) {
        made[i] = dataset->labels[i];
    }
    *labels = made;
    return RC_OK;
}

/* slots[i]: where sample i of the part goes, or NO_SLOT. */
static enum rc load_digits(const struct part *part, const uint32_t *slots, struct samples *out,
                           struct fault *why)
{
    uint8_t *all = digits_create();

    if (all == NULL) return no_memory(why, "unpack digits");
    for (size_t i = 0, at = 0; i < DIGITS_SAMPLES && at < part->count; i++) {
        const uint8_t *image = all + i * DIGITS_PIXELS;
        uint32_t slot;

        if ((i % DIGITS_TEST_EVERY == 0) != part->is_test) continue;
        slot = slots[at++];
        if (slot == NO_SLOT) continue;
        for (size_t k = 0; k < DIGITS_PIXELS; k++) { /* 0..16 onto 0..255 */
            out->bytes[slot * DIGITS_PIXELS + k] = (uint8_t)((image[k] * 255 + 8) / 16);
        }
        samples_set_label(out, slot, all[DIGITS_SAMPLES * DIGITS_PIXELS + i]);
    }
    mem_free(all);
    return RC_OK;
}

/* Images of a part from its file. The files may have changed since they were opened. */
static enum rc load_images(const struct part *part, const uint32_t *slots, struct samples *out,
                           struct fault *why)
{
    const struct dataset_info *info = &part->dataset->info;
    enum idx_file file = part->is_test ? IDX_TEST_IMAGES : IDX_TRAIN_IMAGES;
    const char *path = part->dataset->paths[file];
    uint64_t total = part->is_test ? info->test_samples : info->train_samples;
    struct idx_stream *stream = NULL;
    struct idx_header header;
    enum rc rc;

    rc = idx_open(path, file, &stream, &header, why);
    if (rc != RC_OK) return rc;
    if (header.count != total || header.height != info->height || header.width != info->width) {
        rc = fault_set(why, RC_FORMAT, "cannot read %s: it has changed since the start", path);
    }
    for (uint64_t i = 0; i < part->count && rc == RC_OK; i++) {
        uint8_t *to = slots[i] == NO_SLOT ? NULL : out->bytes + slots[i] * out->stored;

        rc = idx_read(stream, to, out->stored, why);
    }
    if (rc == RC_OK && part->count == total) rc = idx_finish(stream, why);
    idx_close(stream);
    return rc;
}

/* Labels of the test part, in file order. */
static enum rc load_test_labels(const struct part *part, uint8_t *labels, struct fault *why)
{
    const struct dataset *dataset = part->dataset;
    const char *path = dataset->paths[IDX_TEST_LABELS];
    struct idx_stream *stream = NULL;
    struct idx_header header;
    enum rc rc;

    rc = idx_open(path, IDX_TEST_LABELS, &stream, &header, why);
    if (rc != RC_OK) return rc;
    rc = idx_read(stream, labels, part->count, why);
    if (rc == RC_OK && part->count == dataset->info.test_samples) rc = idx_finish(stream, why);
    idx_close(stream);
    for (uint64_t i = 0; i < part->count && rc == RC_OK; i++) {
        if (labels[i] < dataset->info.classes) continue;
        rc = fault_set(why, RC_FORMAT, "cannot use %s: label %u, but there are %u classes", path,
                       labels[i], dataset->info.classes);
    }
    return rc;
}

/* The samples of `part` that have a slot, `kept` of them. */
static enum rc load(const struct part *part, const uint32_t *slots, size_t kept,
                    struct samples *out, struct fault *why)
{
    const struct dataset_info *info = &part->dataset->info;
    struct samples loaded;
    enum rc rc;

    rc = samples_init(&loaded, info, kept);
    if (rc != RC_OK) return no_memory(why, "load the data");
    if (part->dataset->is_digits) {
        rc = load_digits(part, slots, &loaded, why);
    } else {
        rc = load_images(part, slots, &loaded, why);
        if (rc == RC_OK && part->is_test) rc = load_test_labels(part, loaded.small_labels, why);
        for (uint64_t i = 0; i < part->count && !part->is_test; i++) {
            if (slots[i] != NO_SLOT) samples_set_label(&loaded, slots[i], part->dataset->labels[i]);
        }
    }
    if (rc != RC_OK) {
        samples_deinit(&loaded);
        return rc;
    }
    samples_deinit(out);
    *out = loaded;
    return RC_OK;
}

/* Places of the wanted blocks' samples: position p of the permutation is in block p / 256. */
static enum rc place_blocks(const struct dataset *dataset, const bool *wanted, uint32_t *slots,
                            size_t *kept)
{
    size_t count = (size_t)dataset->info.train_samples, filled = 0;
    uint32_t *order = mem_array(count, sizeof *order);
    struct rng rng;

    if (order == NULL) return RC_NOMEM;
    for (size_t i = 0; i < count; i++) {
        order[i] = (uint32_t)i;
        slots[i] = NO_SLOT;
    }
    rng_init(&rng, dataset->seed, PERMUTATION_STREAM);
    rng_shuffle(&rng, order, count);
    for (size_t i = 0; i < count; i++) {
        if (wanted[i / DATASET_BLOCK_SAMPLES]) slots[order[i]] = (uint32_t)filled++;
    }
    mem_free(order);
    *kept = filled;
    return RC_OK;
}

enum rc dataset_load_blocks(struct dataset *dataset, const bool *wanted, struct samples *out,
                            struct fault *why)
{
    struct part part = {dataset, dataset->info.train_samples, false};
    uint32_t *slots = mem_array((size_t)part.count, sizeof *slots);
    size_t kept = 0;
    enum rc rc;

    CHECK(wanted != NULL && out != NULL);
    if (slots == NULL || place_blocks(dataset, wanted, slots, &kept) != RC_OK) {
        rc = no_memory(why, "load the data");
    } else {
        rc = load(&part, slots, kept, out, why);
    }
    mem_free(slots);
    return rc;
}

enum rc dataset_load_list(struct dataset *dataset, const uint32_t *indices, size_t count,
                          struct samples *out, struct fault *why)
{
    struct part part = {dataset, dataset->info.train_samples, false};
    uint32_t *slots = mem_array((size_t)part.count, sizeof *slots);
    enum rc rc;

    CHECK(out != NULL && (indices != NULL || count == 0));
    if (slots == NULL) return no_memory(why, "load the data");
    for (size_t i = 0; i < part.count; i++) {
        slots[i] = NO_SLOT;
    }
    for (size_t i = 0; i < count; i++) {
        CHECK(indices[i] < part.count && (i == 0 || indices[i - 1] < indices[i]));
        slots[indices[i]] = (uint32_t)i;
    }
    rc = load(&part, slots, count, out, why);
    mem_free(slots);
    return rc;
}

enum rc dataset_load_test(struct dataset *dataset, uint64_t samples_max, struct samples *out,
                          struct fault *why)
{
    struct part part = {dataset, dataset->info.test_samples, true};
    uint32_t *slots;
    enum rc rc;

    CHECK(out != NULL);
    if (samples_max != 0 && samples_max < part.count) part.count = samples_max;
    slots = mem_array((size_t)part.count, sizeof *slots);
    if (slots == NULL) return no_memory(why, "load the data");
    for (size_t i = 0; i < part.count; i++) {
        slots[i] = (uint32_t)i;
    }
    rc = load(&part, slots, (size_t)part.count, out, why);
    mem_free(slots);
    return rc;
}
