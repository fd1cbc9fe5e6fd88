/*
 * `--data cifar10:DIR`: the binary version of CIFAR-10 (A. Krizhevsky, "Learning Multiple Layers of
 * Features from Tiny Images", 2009): data_batch_1.bin to data_batch_5.bin and test_batch.bin, each
 * a row of records: a label, then 32x32 red, green and blue bytes. Each file may be gzipped, and
 * DIR may be the folder that the archive unpacks to or the one above. Normalised channel by channel
 * with the usual means and deviations of the training part. Used by jobs and commands.
 */
#include "replica/data/source.h"
#include "replica/readers/stream.h"

#include "base/check.h"
#include "base/file.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

enum {
    CIFAR_SIDE = 32,
    CIFAR_VALUES = 3 * CIFAR_SIDE * CIFAR_SIDE,
    CIFAR_CLASSES = 10,
    CIFAR_FILES = 6,            /* the last one is for testing */
    CIFAR_RECORDS_MAX = 1 << 20 /* in a file */
};

struct cifar {
    struct data_source base; /* first: a source is cast back to this */
    uint64_t counts[CIFAR_FILES];
    char paths[CIFAR_FILES][DATA_PATH_BYTES];
};

static const char advice[] =
    "unpack cifar-10-binary.tar.gz and pass its folder, --data cifar10:DIR";

static const char *const names[CIFAR_FILES] = {
    "data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin",
};

static void cifar_destroy(struct data_source *source)
{
    mem_free(source);
}

static enum rc find_file(const char *folder, int file, char path[DATA_PATH_BYTES],
                         struct fault *why)
{
    static const char *const folders[] = {"", "", "/cifar-10-batches-bin", "/cifar-10-batches-bin"};
    static const char *const endings[] = {"", ".gz", "", ".gz"};

    for (size_t i = 0; i <= ARRAY_COUNT(endings); i++) {
        size_t form = i % ARRAY_COUNT(endings); /* none is there: the first again, for messages */
        int length = snprintf(path, DATA_PATH_BYTES, "%s%s/%s%s", folder, folders[form],
                              names[file], endings[form]);

        if (length < 0 || length >= DATA_PATH_BYTES) {
            return fault_set(why, RC_LIMIT, "cannot read data: the folder's name is too long");
        }
        if (i < ARRAY_COUNT(endings) && file_is_there(path)) return RC_OK;
    }
    return RC_OK;
}

/* Records of a file: from its size or, compressed, by reading it. */
static enum rc count_records(const char *path, uint64_t *count, struct fault *why)
{
    uint8_t record[CIFAR_VALUES + 1];
    struct data_stream *stream = NULL;
    uint64_t bytes = 0;
    size_t got = sizeof record;
    enum rc rc = data_stream_open(path, advice, &stream, why);

    if (rc != RC_OK) return rc;
    if (!data_stream_is_compressed(stream)) {
        bytes = data_stream_bytes_max(stream);
        got = 0;
    }
    while (rc == RC_OK && got > 0 && bytes / sizeof record <= CIFAR_RECORDS_MAX) {
        rc = data_stream_some(stream, record, sizeof record, &got, why);
        bytes += got;
    }
    if (rc == RC_OK && (bytes == 0 || bytes % sizeof record != 0)) {
        rc = data_stream_malformed(stream, why, "it does not consist of records of %zu bytes",
                                   sizeof record);
    } else if (rc == RC_OK && bytes / sizeof record > CIFAR_RECORDS_MAX) {
        rc = data_stream_malformed(stream, why, "it has more than %d records", CIFAR_RECORDS_MAX);
    }
    data_stream_close(stream);
    if (rc == RC_OK) *count = bytes / sizeof record;
    return rc;
}

static enum rc read_record(struct data_stream *stream, uint32_t slot, struct samples *out,
                           struct fault *why)
{
    uint8_t label, *to = NULL;
    enum rc rc = data_stream_read(stream, &label, 1, why);

    if (rc != RC_OK) return rc;
    if (label >= CIFAR_CLASSES) {
        return data_stream_malformed(stream, why, "it has label %u, but there are %d classes",
                                     label, CIFAR_CLASSES);
    }
    if (slot != DATA_NO_SLOT) {
        samples_set_label(out, slot, label);
        if (out->bytes != NULL) to = out->bytes + slot * out->stored;
    }
    return data_stream_read(stream, to, CIFAR_VALUES, why);
}

static enum rc cifar_load(struct data_source *source, const struct data_part *part,
                          struct samples *out, struct fault *why)
{
    const struct cifar *cifar = (const struct cifar *)source;
    int first = part->is_test ? CIFAR_FILES - 1 : 0;
    int end = part->is_test ? CIFAR_FILES : CIFAR_FILES - 1;
    size_t at = 0;
    enum rc rc = RC_OK;

    for (int file = first; rc == RC_OK && file < end && at < part->count; file++) {
        struct data_stream *stream = NULL;
        uint64_t left = cifar->counts[file];

        rc = data_stream_open(cifar->paths[file], advice, &stream, why);
        for (; rc == RC_OK && left > 0 && at < part->count; left--) {
            rc = read_record(stream, part->slots[at++], out, why);
        }
        if (rc == RC_OK && left == 0) rc = data_stream_finish(stream, why);
        data_stream_close(stream);
    }
    return rc;
}

static const struct data_source_ops cifar_ops = {.destroy = cifar_destroy, .load = cifar_load};

static enum rc open_files(struct cifar *cifar, const char *folder, struct dataset_info *info,
                          struct fault *why)
{
    enum rc rc = RC_OK;

    for (int i = 0; rc == RC_OK && i < CIFAR_FILES; i++) {
        rc = find_file(folder, i, cifar->paths[i], why);
        if (rc == RC_OK) rc = count_records(cifar->paths[i], &cifar->counts[i], why);
        if (rc == RC_OK && i + 1 < CIFAR_FILES) info->train_samples += cifar->counts[i];
    }
    info->test_samples = cifar->counts[CIFAR_FILES - 1];
    return rc;
}

enum rc cifar_open_source(const struct data_spec *spec, const struct dataset_options *options,
                          struct dataset_info *info, struct data_source **source, struct fault *why)
{
    static const float normal[2][3] = {{0.4914F, 0.4822F, 0.4465F},
                                       {1 / 0.2470F, 1 / 0.2435F, 1 / 0.2616F}};
    struct cifar *cifar;
    enum rc rc;

    (void)options;
    if (spec->rest == NULL || spec->rest[0] == '\0') {
        return data_spec_fault(spec, strlen(spec->kind) + 2, why, "the folder is missing");
    }
    cifar = mem_alloc(sizeof *cifar);
    if (cifar == NULL) return data_no_memory(why, "open the data");
    cifar->base.ops = &cifar_ops;
    snprintf(info->name, sizeof info->name, "cifar10");
    info->has_bytes = true;
    info->channels = 3;
    info->height = info->width = CIFAR_SIDE;
    info->classes = CIFAR_CLASSES;
    rc = open_files(cifar, spec->rest, info, why);
    if (rc == RC_OK) rc = data_source_normal(&cifar->base, info, why);
    if (rc != RC_OK) {
        data_source_destroy(&cifar->base);
        return rc;
    }
    memcpy(cifar->base.normal, normal, sizeof normal);
    *source = &cifar->base;
    return RC_OK;
}
