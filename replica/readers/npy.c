/*
 * `--data npy:X.npy,Y.npy`: arrays as NumPy saves them. X holds vectors [N, D] or images [N, H, W]
 * or [N, C, H, W]; Y holds classes, [N] whole numbers from 0, or real values to predict, [N] or
 * [N, K] floats. Every fifth sample is for testing. Bytes stay bytes (b / 255); other types become
 * float32. Vectors are standardised number by number, images channel by channel, with the means and
 * deviations of the training samples, for which X is read once at the start; loading a shard skips
 * over the samples of others. Used by jobs and commands.
 */
#include "replica/readers/npy.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/data/source.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum array { ARRAY_X, ARRAY_Y, ARRAYS };

struct npy {
    struct data_source base; /* first: a source is cast back to this */
    struct npy_header headers[ARRAYS];
    bool has_classes;
    uint64_t counts[2];    /* training, testing */
    size_t widths[ARRAYS]; /* values of a sample */
    uint32_t classes;
    char paths[ARRAYS][DATA_PATH_BYTES];
};

/* One array being read, sample by sample. */
struct reader {
    const struct npy *npy;
    enum array array;
    struct data_stream *stream;
    uint8_t *raw; /* a sample as it stands in the file */
};

static const char advice[] = "pass --data npy:X.npy,Y.npy";

static void npy_destroy(struct data_source *source)
{
    mem_free(source);
}

static void reader_close(struct reader *reader)
{
    data_stream_close(reader->stream);
    mem_free(reader->raw);
    reader->stream = NULL;
    reader->raw = NULL;
}

/* The array again; it must still be what it was. */
static enum rc reader_open(struct reader *reader, const struct npy *npy, enum array array,
                           struct fault *why)
{
    struct npy_header header = {.dimensions = 0};
    enum rc rc;

    *reader = (struct reader){.npy = npy, .array = array};
    rc = data_stream_open(npy->paths[array], advice, &reader->stream, why);
    if (rc == RC_OK) rc = npy_read_header(reader->stream, &header, why);
    if (rc == RC_OK && (memcmp(header.shape, npy->headers[array].shape, sizeof header.shape) != 0 ||
                        header.type != npy->headers[array].type)) {
        rc = data_stream_malformed(reader->stream, why, "it has changed since the start");
    }
    if (rc == RC_OK) {
        reader->raw = mem_array(npy->widths[array], header.item_bytes);
        if (reader->raw == NULL) rc = data_no_memory(why, "read the data");
    }
    if (rc != RC_OK) reader_close(reader);
    return rc;
}

static enum rc reader_next(struct reader *reader, bool is_wanted, struct fault *why)
{
    size_t bytes =
        reader->npy->widths[reader->array] * reader->npy->headers[reader->array].item_bytes;

    return data_stream_read(reader->stream, is_wanted ? reader->raw : NULL, bytes, why);
}

/* One of the values in hand; finite as float32. */
static enum rc reader_value(const struct reader *reader, uint64_t sample, size_t i, double *value,
                            struct fault *why)
{
    double read = npy_value(&reader->npy->headers[reader->array], reader->raw, i);

    if (!(fabs(read) <= DATA_NUMBER_MAX)) {
        return data_stream_malformed(reader->stream, why,
                                     "sample %llu holds a NaN or a number above 1e18",
                                     (unsigned long long)sample);
    }
    *value = read;
    return RC_OK;
}

/* The class of the sample in hand. */
static enum rc reader_class(const struct reader *reader, uint64_t sample, uint32_t classes,
                            uint32_t *class, struct fault *why)
{
    double value = npy_value(&reader->npy->headers[ARRAY_Y], reader->raw, 0);

    if (value < 0.0 || value >= (double)classes) {
        return data_stream_malformed(reader->stream, why,
                                     "sample %llu has label %.0f; labels run from 0 to %u",
                                     (unsigned long long)sample, value, classes - 1);
    }
    *class = (uint32_t)value;
    return RC_OK;
}

static enum rc take_input(const struct reader *reader, uint64_t sample, uint32_t slot,
                          struct samples *out, struct fault *why)
{
    enum rc rc = RC_OK;

    if (out->bytes != NULL) {
        memcpy(out->bytes + slot * out->stored, reader->raw, out->stored);
        return RC_OK;
    }
    for (size_t i = 0; rc == RC_OK && i < out->stored; i++) {
        double value = 0.0;
        rc = reader_value(reader, sample, i, &value, why);
        out->floats[slot * out->stored + i] = (float)value;
    }
    return rc;
}

static enum rc take_target(const struct reader *reader, uint64_t sample, uint32_t slot,
                           struct samples *out, struct fault *why)
{
    size_t width = reader->npy->widths[ARRAY_Y];
    enum rc rc = RC_OK;

    if (reader->npy->has_classes) {
        uint32_t class = 0;
        rc = reader_class(reader, sample, reader->npy->classes, &class, why);
        if (rc == RC_OK) samples_set_label(out, slot, class);
        return rc;
    }
    for (size_t i = 0; rc == RC_OK && i < width; i++) {
        double value = 0.0;
        rc = reader_value(reader, sample, i, &value, why);
        out->targets[slot * width + i] = (float)value;
    }
    return rc;
}

/* One array's side of the wanted samples. */
static enum rc load_array(const struct npy *npy, enum array array, const struct data_part *part,
                          struct samples *out, struct fault *why)
{
    uint64_t total = npy->counts[0] + npy->counts[1], sample = 0;
    struct reader reader;
    size_t at = 0;
    enum rc rc = reader_open(&reader, npy, array, why);

    for (; rc == RC_OK && sample < total && at < part->count; sample++) {
        uint32_t slot = data_is_test(sample) == part->is_test ? part->slots[at++] : DATA_NO_SLOT;
        rc = reader_next(&reader, slot != DATA_NO_SLOT, why);
        if (rc != RC_OK || slot == DATA_NO_SLOT) continue;
        rc = array == ARRAY_X ? take_input(&reader, sample, slot, out, why)
                              : take_target(&reader, sample, slot, out, why);
    }
    reader_close(&reader);
    return rc;
}

static enum rc npy_load(struct data_source *source, const struct data_part *part,
                        struct samples *out, struct fault *why)
{
    const struct npy *npy = (const struct npy *)source;
    enum rc rc = RC_OK;

    if (out->bytes != NULL || out->floats != NULL) rc = load_array(npy, ARRAY_X, part, out, why);
    return rc == RC_OK ? load_array(npy, ARRAY_Y, part, out, why) : rc;
}

static const struct data_source_ops npy_ops = {.destroy = npy_destroy, .load = npy_load};

/* ---- opening ---- */

static enum rc open_array(struct npy *npy, enum array array, const char *path, struct fault *why)
{
    struct npy_header *header = &npy->headers[array];
    struct data_stream *stream = NULL;
    uint64_t values;
    enum rc rc = data_stream_open(path, advice, &stream, why);

    if (rc == RC_OK) rc = npy_read_header(stream, header, why);
    values =
        header->shape[1] * header->shape[2] * header->shape[3]; /* checked: the file has them */
    if (rc == RC_OK && header->shape[0] > DATA_SAMPLES_MAX) {
        rc = data_stream_malformed(stream, why, "it has more than %d samples", DATA_SAMPLES_MAX);
    }
    if (rc == RC_OK && values > (array == ARRAY_X ? DATA_VALUES_MAX : DATA_OUTPUTS_MAX)) {
        rc = data_stream_malformed(stream, why, "a sample of %llu values is too large",
                                   (unsigned long long)values);
    }
    data_stream_close(stream);
    npy->widths[array] = (size_t)values;
    snprintf(npy->paths[array], sizeof npy->paths[array], "%s", path);
    return rc;
}

/* Shapes and types that fit each other. */
static enum rc check_arrays(struct npy *npy, struct fault *why)
{
    const struct npy_header *x = &npy->headers[ARRAY_X], *y = &npy->headers[ARRAY_Y];

    npy->has_classes = y->type != NPY_F32 && y->type != NPY_F64;
    if (x->dimensions < 2) {
        return fault_set(why, RC_SHAPE,
                         "cannot use %.200s: it has 1 dimension; it takes [N, D], [N, H, W] or "
                         "[N, C, H, W]",
                         npy->paths[ARRAY_X]);
    }
    if (y->dimensions > 2 || (npy->has_classes && npy->widths[ARRAY_Y] != 1)) {
        return fault_set(why, RC_SHAPE,
                         "cannot use %.200s: labels are [N] whole numbers, or [N, K] floats to "
                         "predict numbers",
                         npy->paths[ARRAY_Y]);
    }
    if (x->shape[0] != y->shape[0]) {
        return fault_set(why, RC_SHAPE, "cannot use %.180s: it has %llu samples, but %.180s %llu",
                         npy->paths[ARRAY_Y], (unsigned long long)y->shape[0], npy->paths[ARRAY_X],
                         (unsigned long long)x->shape[0]);
    }
    if (x->shape[0] < 2) {
        return fault_set(why, RC_SHAPE, "cannot use %.200s: it has too few samples",
                         npy->paths[ARRAY_X]);
    }
    return RC_OK;
}

static void describe(struct npy *npy, struct dataset_info *info)
{
    const struct npy_header *x = &npy->headers[ARRAY_X];

    snprintf(info->name, sizeof info->name, "npy");
    info->input = x->dimensions == 2 ? DATA_VECTORS : DATA_IMAGES;
    info->has_bytes = x->type == NPY_U8;
    info->channels = x->dimensions == 3 ? 1 : (uint32_t)x->shape[1];
    info->height = x->dimensions == 2 ? 1 : (uint32_t)x->shape[x->dimensions - 2];
    info->width = x->dimensions == 2 ? 1 : (uint32_t)x->shape[x->dimensions - 1];
    if (!npy->has_classes) {
        info->target = DATA_REALS;
        info->outputs = (uint32_t)npy->widths[ARRAY_Y];
    }
    data_split(info, x->shape[0]);
    npy->counts[0] = info->train_samples;
    npy->counts[1] = info->test_samples;
}

/* Means and deviations of the training samples' channels. */
static enum rc measure(struct npy *npy, struct dataset_info *info, struct fault *why)
{
    struct data_moments *moments = mem_array(info->channels, sizeof *moments);
    size_t area = (size_t)info->height * info->width;
    double unit = info->has_bytes ? 1.0 / 255.0 : 1.0;
    struct reader reader;
    enum rc rc;

    if (moments == NULL) return data_no_memory(why, "open the data");
    rc = reader_open(&reader, npy, ARRAY_X, why);
    for (uint64_t sample = 0; rc == RC_OK && sample < npy->headers[ARRAY_X].shape[0]; sample++) {
        rc = reader_next(&reader, !data_is_test(sample), why);
        if (data_is_test(sample)) continue;
        for (size_t i = 0; rc == RC_OK && i < npy->widths[ARRAY_X]; i++) {
            double value = 0.0;
            rc = reader_value(&reader, sample, i, &value, why);
            data_moments_add(&moments[i / area], value * unit);
        }
    }
    if (rc == RC_OK) rc = data_stream_finish(reader.stream, why);
    if (rc == RC_OK) rc = data_source_measured(&npy->base, info, moments, why);
    reader_close(&reader);
    mem_free(moments);
    return rc;
}

/* The number of classes: the largest label of all samples, and 1. */
static enum rc count_classes(struct npy *npy, struct fault *why)
{
    struct reader reader;
    enum rc rc = reader_open(&reader, npy, ARRAY_Y, why);

    for (uint64_t sample = 0; rc == RC_OK && sample < npy->headers[ARRAY_Y].shape[0]; sample++) {
        uint32_t class = 0;
        rc = reader_next(&reader, true, why);
        if (rc == RC_OK && npy->has_classes) {
            rc = reader_class(&reader, sample, DATA_CLASSES_MAX, &class, why);
        }
        if (class >= npy->classes) npy->classes = class + 1;
    }
    if (rc == RC_OK) rc = data_stream_finish(reader.stream, why);
    reader_close(&reader);
    return rc;
}

enum rc npy_open_source(const struct data_spec *spec, const struct dataset_options *options,
                        struct dataset_info *info, struct data_source **source, struct fault *why)
{
    struct npy *npy = mem_alloc(sizeof *npy);
    enum rc rc;

    (void)options;
    if (npy == NULL) return data_no_memory(why, "open the data");
    npy->base.ops = &npy_ops;
    rc = data_spec_check(spec, 2, "a file (X.npy,Y.npy)", NULL, 0, NULL, why);
    for (int i = 0; rc == RC_OK && i < ARRAYS; i++) {
        rc = open_array(npy, (enum array)i, spec->files[i], why);
    }
    if (rc == RC_OK) rc = check_arrays(npy, why);
    if (rc == RC_OK) {
        describe(npy, info);
        rc = data_source_normal(&npy->base, info, why);
    }
    if (rc == RC_OK) rc = measure(npy, info, why);
    if (rc == RC_OK) rc = count_classes(npy, why);
    if (rc != RC_OK) {
        data_source_destroy(&npy->base);
        return rc;
    }
    if (npy->has_classes) info->classes = npy->classes;
    *source = &npy->base;
    return RC_OK;
}
