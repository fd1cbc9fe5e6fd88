/*
 * IDX files, and the data sources `idx:DIR` and `fashion-mnist`. Form: Y. LeCun, C. Cortes,
 * C. Burges, "The MNIST database of handwritten digits". What a header claims is held against the
 * size of the file before anybody allocates by it. A folder's images are only read when samples are
 * loaded, so idx:DIR is normalised by 0.5 and 0.5, which maps bytes to [-1, 1]; Fashion-MNIST by
 * its measured mean and deviation. Used by jobs and commands.
 */
#include "replica/readers/idx.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"
#include "replica/data/source.h"

#include <stdio.h>
#include <string.h>

#define FASHION_FOLDER "/usr/share/datasets/fashion-mnist"

enum { LABELS_START = 65536 };

static const char fashion_advice[] =
    "install the package dataset-fashion-mnist or pass --data idx:DIR";
static const char idx_advice[] = "pass another file or folder of IDX files";

static const char *const stems[IDX_FILES] = {
    [IDX_TRAIN_IMAGES] = "train-images",
    [IDX_TRAIN_LABELS] = "train-labels",
    [IDX_TEST_IMAGES] = "t10k-images",
    [IDX_TEST_LABELS] = "t10k-labels",
};

static bool is_labels(enum idx_file file)
{
    return file == IDX_TRAIN_LABELS || file == IDX_TEST_LABELS;
}

/* The path of `file` in `folder` under the first of its usual names that exists; if none does, the
 * usual name with `.gz`. RC_LIMIT: the path is too long. */
static enum rc idx_find(const char *folder, enum idx_file file, char path[IDX_PATH_BYTES],
                        struct fault *why)
{
    static const char *const separators[] = {"-", "-", ".", "."};
    static const char *const endings[] = {".gz", "", ".gz", ""};
    const char *kind = is_labels(file) ? "idx1" : "idx3";

    for (size_t i = 0; i <= ARRAY_COUNT(endings); i++) {
        size_t form = i % ARRAY_COUNT(endings); /* none is there: the first again, for messages */
        int length = snprintf(path, IDX_PATH_BYTES, "%s/%s%s%s-ubyte%s", folder, stems[file],
                              separators[form], kind, endings[form]);

        if (length < 0 || length >= IDX_PATH_BYTES) {
            return fault_set(why, RC_LIMIT, "cannot read data: the folder's name is too long");
        }
        if (i < ARRAY_COUNT(endings) && file_is_there(path)) return RC_OK;
    }
    return RC_OK;
}

static uint32_t load_be32(const uint8_t *b)
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

/* The header, and whether the file can hold what it claims. */
static enum rc read_header(struct data_stream *stream, bool labels, struct idx_header *header,
                           struct fault *why)
{
    uint8_t bytes[16] = {0};
    size_t header_bytes = labels ? 8 : 16;
    struct idx_header parsed = {0, 1, 1};
    uint64_t values;
    enum rc rc;

    rc = data_stream_read(stream, bytes, header_bytes, why);
    if (rc != RC_OK) return rc;
    if (bytes[0] != 0 || bytes[1] != 0 || bytes[2] != 8 || bytes[3] != (labels ? 1 : 3)) {
        return data_stream_malformed(stream, why,
                                     labels ? "not an IDX file of byte labels (magic number)"
                                            : "not an IDX file of byte images (magic number)");
    }
    parsed.count = load_be32(bytes + 4);
    if (!labels) {
        parsed.height = load_be32(bytes + 8);
        parsed.width = load_be32(bytes + 12);
    }
    if (parsed.count == 0 || parsed.count > IDX_SAMPLES_MAX) {
        return data_stream_malformed(stream, why, "its header claims an absurd count of samples");
    }
    if (parsed.height == 0 || parsed.height > IDX_SIDE_MAX || parsed.width == 0 ||
        parsed.width > IDX_SIDE_MAX) {
        return data_stream_malformed(stream, why, "its header claims images of an absurd size");
    }
    values = (uint64_t)parsed.count * parsed.height * parsed.width;
    if (values + header_bytes > data_stream_bytes_max(stream)) {
        return data_stream_malformed(stream, why,
                                     "its header claims more samples than the file can hold");
    }
    *header = parsed;
    return RC_OK;
}

enum rc idx_open(const char *path, enum idx_file file, struct data_stream **stream,
                 struct idx_header *header, struct fault *why)
{
    const size_t folder = strlen(FASHION_FOLDER);
    const bool is_fashion = strncmp(path, FASHION_FOLDER, folder) == 0 && path[folder] == '/';
    struct data_stream *opened = NULL;
    enum rc rc;

    CHECK((unsigned)file < IDX_FILES);
    rc = data_stream_open(path, is_fashion ? fashion_advice : idx_advice, &opened, why);
    if (rc == RC_OK) rc = read_header(opened, is_labels(file), header, why);
    if (rc == RC_OK)
        *stream = opened;
    else
        data_stream_close(opened);
    return rc;
}

/* ---- the data source ---- */

struct idx_source {
    struct data_source base; /* first: a source is cast back to this */
    uint64_t counts[2];      /* training, testing */
    uint32_t height, width, classes;
    uint8_t *labels; /* of the training part: [counts[0]] */
    char paths[IDX_FILES][IDX_PATH_BYTES];
};

static void idx_destroy(struct data_source *source)
{
    mem_free(((struct idx_source *)source)->labels);
    mem_free(source);
}

/* All labels of the training part. The buffer grows with what was really read. */
static enum rc read_labels(struct data_stream *stream, size_t count, uint8_t **labels,
                           struct fault *why)
{
    size_t cap = count < LABELS_START ? count : LABELS_START, filled = 0;
    uint8_t *buffer = mem_alloc(cap);
    enum rc rc = RC_OK;

    if (buffer == NULL) return data_no_memory(why, "read labels");
    while (rc == RC_OK) {
        uint8_t *grown;

        rc = data_stream_read(stream, buffer + filled, cap - filled, why);
        if (rc != RC_OK || cap == count) break;
        filled = cap;
        cap = cap > count / 2 ? count : cap * 2;
        grown = mem_resize(buffer, cap);
        if (grown == NULL)
            rc = data_no_memory(why, "read labels");
        else
            buffer = grown;
    }
    if (rc == RC_OK) rc = data_stream_finish(stream, why);
    if (rc == RC_OK)
        *labels = buffer;
    else
        mem_free(buffer);
    return rc;
}

/* Headers of one part's images and labels, and that they fit each other. */
static enum rc open_part(struct idx_source *idx, bool is_test, struct idx_header *header,
                         struct fault *why)
{
    enum idx_file images = is_test ? IDX_TEST_IMAGES : IDX_TRAIN_IMAGES;
    enum idx_file labels = is_test ? IDX_TEST_LABELS : IDX_TRAIN_LABELS;
    struct data_stream *stream = NULL;
    struct idx_header labels_header;
    enum rc rc;

    rc = idx_open(idx->paths[images], images, &stream, header, why);
    if (rc != RC_OK) return rc;
    data_stream_close(stream);
    rc = idx_open(idx->paths[labels], labels, &stream, &labels_header, why);
    if (rc != RC_OK) return rc;
    if (labels_header.count != header->count) {
        rc = fault_set(why, RC_FORMAT, "cannot use %s: it has %u labels, but %s has %u images",
                       idx->paths[labels], labels_header.count, idx->paths[images], header->count);
    }
    if (rc == RC_OK && !is_test) rc = read_labels(stream, header->count, &idx->labels, why);
    data_stream_close(stream);
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
static enum rc open_files(struct idx_source *idx, const char *folder, uint32_t classes,
                          struct fault *why)
{
    struct idx_header train = {0}, test = {0};
    enum rc rc = RC_OK;

    for (int i = 0; rc == RC_OK && i < IDX_FILES; i++) {
        rc = idx_find(folder, (enum idx_file)i, idx->paths[i], why);
    }
    if (rc == RC_OK) rc = open_part(idx, false, &train, why);
    if (rc == RC_OK) rc = open_part(idx, true, &test, why);
    if (rc != RC_OK) return rc;
    if (train.height != test.height || train.width != test.width) {
        return fault_set(why, RC_FORMAT, "cannot use %s: images of %ux%u, but %ux%u in %s",
                         idx->paths[IDX_TEST_IMAGES], test.height, test.width, train.height,
                         train.width, idx->paths[IDX_TRAIN_IMAGES]);
    }
    idx->height = train.height;
    idx->width = train.width;
    idx->counts[0] = train.count;
    idx->counts[1] = test.count;
    idx->classes = classes_of(idx->labels, train.count);
    if (classes != 0 && idx->classes > classes) {
        return fault_set(why, RC_FORMAT, "cannot use %s: label %u, but there are %u classes",
                         idx->paths[IDX_TRAIN_LABELS], idx->classes - 1, classes);
    }
    if (classes != 0) idx->classes = classes;
    return RC_OK;
}

/* Images of a part from its file. The files may have changed since they were opened. */
static enum rc load_images(struct idx_source *idx, const struct data_part *part,
                           struct samples *out, struct fault *why)
{
    enum idx_file file = part->is_test ? IDX_TEST_IMAGES : IDX_TRAIN_IMAGES;
    uint64_t total = idx->counts[part->is_test];
    struct data_stream *stream = NULL;
    struct idx_header header;
    enum rc rc;

    rc = idx_open(idx->paths[file], file, &stream, &header, why);
    if (rc != RC_OK) return rc;
    if (header.count != total || header.height != idx->height || header.width != idx->width) {
        rc = fault_set(why, RC_FORMAT, "cannot read %s: it has changed since the start",
                       idx->paths[file]);
    }
    for (size_t i = 0; i < part->count && rc == RC_OK; i++) {
        uint32_t slot = part->slots[i];
        uint8_t *to = slot == DATA_NO_SLOT ? NULL : out->bytes + slot * out->stored;

        rc = data_stream_read(stream, to, out->stored, why);
    }
    if (rc == RC_OK && part->count == total) rc = data_stream_finish(stream, why);
    data_stream_close(stream);
    return rc;
}

static enum rc load_test_labels(struct idx_source *idx, const struct data_part *part,
                                struct samples *out, struct fault *why)
{
    const char *path = idx->paths[IDX_TEST_LABELS];
    struct data_stream *stream = NULL;
    struct idx_header header;
    enum rc rc = idx_open(path, IDX_TEST_LABELS, &stream, &header, why);

    if (rc != RC_OK) return rc;
    for (size_t i = 0; rc == RC_OK && i < part->count; i++) {
        uint8_t label;

        rc = data_stream_read(stream, &label, 1, why);
        if (rc == RC_OK && label >= idx->classes) {
            rc = fault_set(why, RC_FORMAT, "cannot use %s: label %u, but there are %u classes",
                           path, label, idx->classes);
        }
        if (rc == RC_OK && part->slots[i] != DATA_NO_SLOT) {
            samples_set_label(out, part->slots[i], label);
        }
    }
    if (rc == RC_OK && part->count == idx->counts[1]) rc = data_stream_finish(stream, why);
    data_stream_close(stream);
    return rc;
}

static enum rc idx_load(struct data_source *source, const struct data_part *part,
                        struct samples *out, struct fault *why)
{
    struct idx_source *idx = (struct idx_source *)source;
    enum rc rc = RC_OK;

    if (out->bytes != NULL) rc = load_images(idx, part, out, why);
    if (rc == RC_OK && part->is_test) rc = load_test_labels(idx, part, out, why);
    for (size_t i = 0; !part->is_test && rc == RC_OK && i < part->count; i++) {
        if (part->slots[i] != DATA_NO_SLOT) samples_set_label(out, part->slots[i], idx->labels[i]);
    }
    return rc;
}

static const struct data_source_ops idx_ops = {.destroy = idx_destroy, .load = idx_load};

/* A folder, normalised by `mean` and `deviation`. */
static enum rc open_folder(const char *folder, uint32_t classes, float mean, float deviation,
                           struct dataset_info *info, struct data_source **source,
                           struct fault *why)
{
    struct idx_source *idx = mem_alloc(sizeof *idx);
    enum rc rc;

    if (idx == NULL) return data_no_memory(why, "open the data");
    idx->base.ops = &idx_ops;
    rc = open_files(idx, folder, classes, why);
    info->has_bytes = true;
    info->channels = 1;
    info->height = idx->height;
    info->width = idx->width;
    info->train_samples = idx->counts[0];
    info->test_samples = idx->counts[1];
    info->classes = idx->classes;
    if (rc == RC_OK) rc = data_source_normal(&idx->base, info, why);
    if (rc != RC_OK) {
        data_source_destroy(&idx->base);
        return rc;
    }
    idx->base.normal[0] = mean;
    idx->base.normal[1] = 1.0F / deviation;
    *source = &idx->base;
    return RC_OK;
}

enum rc fashion_open_source(const struct data_spec *spec, const struct dataset_options *options,
                            struct dataset_info *info, struct data_source **source,
                            struct fault *why)
{
    static const char *const words[] = {"T-shirt", "trouser", "pullover", "dress", "coat",
                                        "sandal",  "shirt",   "sneaker",  "bag",   "ankle boot"};

    (void)options;
    if (spec->rest != NULL) {
        return data_spec_fault(spec, strlen(spec->kind) + 1, why,
                               "fashion-mnist takes no settings");
    }
    snprintf(info->name, sizeof info->name, "fashion-mnist");
    info->class_words = words;
    return open_folder(FASHION_FOLDER, 10, 0.2860F, 0.3530F, info, source, why);
}

enum rc idx_open_source(const struct data_spec *spec, const struct dataset_options *options,
                        struct dataset_info *info, struct data_source **source, struct fault *why)
{
    (void)options;
    if (spec->rest == NULL || spec->rest[0] == '\0') {
        return data_spec_fault(spec, strlen(spec->kind) + 2, why, "the folder is missing");
    }
    snprintf(info->name, sizeof info->name, "idx");
    return open_folder(spec->rest, 0, 0.5F, 0.5F, info, source, why);
}
