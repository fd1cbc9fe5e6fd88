/*
 * Inputs for prediction, on top of the readers of training data. A first row of a CSV file whose
 * fields are not numbers is taken for a header. Commands.
 */
#include "replica/readers/input_rows.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/readers/csv_rows.h"
#include "replica/readers/idx.h"
#include "replica/readers/image_file.h"
#include "replica/readers/npy.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum form { FORM_IMAGE, FORM_CSV, FORM_NPY, FORM_IDX };

#define NUMBER_MAX 1e18 /* as of training data */

struct input_rows {
    enum form form;
    struct input_shape wanted;
    size_t values; /* of a row */
    struct image image;
    struct csv_rows *csv;
    bool is_begun;       /* the first row of the CSV was read */
    const char *columns; /* what they are called, each with '\n'; NULL: by place */
    uint32_t *map;       /* [values]: the fields of the CSV to take; NULL: all, as they stand */
    size_t fields;       /* that it has then */
    struct data_stream *stream;
    struct npy_header npy;
    uint64_t left, count; /* rows of a stream */
    uint8_t *raw;         /* one of them */
    char path[DATA_PATH_BYTES];
};

static bool ends_with(const char *path, const char *ending)
{
    size_t length = strlen(path), more = strlen(ending);

    return length > more && strcasecmp(path + length - more, ending) == 0;
}

static enum rc open_image(struct input_rows *rows, struct fault *why)
{
    struct input_shape wanted = rows->wanted;
    enum rc rc;

    if (wanted.channels != 1 && wanted.channels != 3) {
        return fault_set(why, RC_SHAPE, "cannot use %s: the model reads %u channels, no images",
                         rows->path, wanted.channels);
    }
    rc = image_read(rows->path, &rows->image, why);
    if (rc != RC_OK) return rc;
    rows->left = rows->count = 1;
    if (rows->image.height == wanted.height && rows->image.width == wanted.width) return RC_OK;
    return fault_set(
        why, RC_SHAPE, "cannot use %s: it is %ux%u pixels, the model reads %ux%u; scale it first",
        rows->path, rows->image.width, rows->image.height, wanted.width, wanted.height);
}

static enum rc take_raw(struct input_rows *rows, size_t item_bytes, struct fault *why)
{
    rows->raw = mem_array(rows->values, item_bytes);
    rows->left = rows->count;
    if (rows->raw != NULL) return RC_OK;
    return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", rows->path);
}

static enum rc open_npy(struct input_rows *rows, struct fault *why)
{
    const struct npy_header *npy = &rows->npy;
    uint64_t values = 1, each;
    enum rc rc = data_stream_open(rows->path, "pass a .npy file of samples", &rows->stream, why);

    if (rc == RC_OK) rc = npy_read_header(rows->stream, &rows->npy, why);
    if (rc != RC_OK) return rc;
    for (uint32_t d = 1; d < npy->dimensions; d++) {
        values *= npy->shape[d]; /* the file holds them all: no overflow */
    }
    each = values;
    rows->count = npy->shape[0];
    if (values != rows->values && npy->dimensions <= 3) { /* one sample, without a first axis? */
        values *= npy->shape[0];
        rows->count = 1;
    }
    if (values == rows->values) return take_raw(rows, npy->item_bytes, why);
    return fault_set(why, RC_SHAPE, "cannot use %s: its samples have %llu values, the model's %zu",
                     rows->path, (unsigned long long)each, rows->values);
}

static enum rc open_idx(struct input_rows *rows, struct fault *why)
{
    struct idx_header header;
    enum rc rc = idx_open(rows->path, IDX_TEST_IMAGES, &rows->stream, &header, why);

    if (rc != RC_OK) return rc;
    rows->count = header.count;
    if (rows->wanted.channels == 1 && header.height == rows->wanted.height &&
        header.width == rows->wanted.width) {
        return take_raw(rows, 1, why);
    }
    return fault_set(
        why, RC_SHAPE,
        "cannot use %s: its images are %ux%u in 1 channel, the model reads %ux%u in %u", rows->path,
        header.width, header.height, rows->wanted.width, rows->wanted.height,
        rows->wanted.channels);
}

enum rc input_rows_open(const char *path, struct input_shape wanted, struct input_rows **rows,
                        struct fault *why)
{
    struct input_rows *opened;
    enum rc rc;

    if (strlen(path) >= DATA_PATH_BYTES) {
        return fault_set(why, RC_LIMIT, "--input: the file's name is too long");
    }
    opened = mem_alloc(sizeof *opened);
    if (opened == NULL) return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", path);
    memcpy(opened->path, path, strlen(path) + 1);
    opened->wanted = wanted;
    opened->values = (size_t)wanted.channels * wanted.height * wanted.width;
    if (image_is_path(path)) {
        opened->form = FORM_IMAGE;
        rc = open_image(opened, why);
    } else if (ends_with(path, ".csv") || ends_with(path, ".csv.gz")) {
        opened->form = FORM_CSV;
        rc = csv_rows_open(path, &opened->csv, why);
    } else if (ends_with(path, ".npy") || ends_with(path, ".npy.gz")) {
        opened->form = FORM_NPY;
        rc = open_npy(opened, why);
    } else {
        opened->form = FORM_IDX;
        rc = open_idx(opened, why);
    }
    if (rc == RC_OK)
        *rows = opened;
    else
        input_rows_close(opened);
    return rc;
}

void input_rows_close(struct input_rows *rows)
{
    if (rows == NULL) return;
    image_deinit(&rows->image);
    csv_rows_close(rows->csv);
    data_stream_close(rows->stream);
    mem_free(rows->map);
    mem_free(rows->raw);
    mem_free(rows);
}

void input_rows_name(struct input_rows *rows, const char *columns)
{
    rows->columns = columns[0] == '\0' ? NULL : columns;
}

/* ---- rows ---- */

static bool parse_number(const char *text, float *value)
{
    char *end = NULL;
    double read;

    if (text[0] == '\0' || strspn(text, "0123456789.eE+- ") != strlen(text)) return false;
    read = strtod(text, &end);
    end += strspn(end, " ");
    *value = (float)read;
    return *end == '\0' && fabs(read) <= NUMBER_MAX;
}

static size_t field_of(const struct input_rows *rows, size_t value)
{
    return rows->map == NULL ? value : rows->map[value];
}

/* `*bad`: the first value that is no number, or `rows->values`. */
static void parse_row(const struct input_rows *rows, const struct csv_row *row, float *values,
                      size_t *bad)
{
    for (*bad = 0; *bad < rows->values; ++*bad) {
        if (!parse_number(csv_field(row, field_of(rows, *bad)), &values[*bad])) return;
    }
}

static bool is_header(const struct csv_row *row)
{
    float value;

    for (size_t i = 0; i < row->fields; i++) {
        if (!parse_number(csv_field(row, i), &value)) return true;
    }
    return false;
}

static enum rc look_up(struct input_rows *rows, const struct csv_row *header, struct fault *why)
{
    const char *name = rows->columns;

    rows->map = mem_array(rows->values, sizeof *rows->map);
    if (rows->map == NULL)
        return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", rows->path);
    for (size_t i = 0; i < rows->values && *name != '\0'; i++) {
        const size_t length = strcspn(name, "\n");
        uint32_t field = 0;

        while (field < header->fields && (strlen(csv_field(header, field)) != length ||
                                          memcmp(csv_field(header, field), name, length) != 0)) {
            field++;
        }
        if (field == header->fields) {
            return fault_set(why, RC_MISMATCH,
                             "cannot use %s: it has no column called '%.*s', which the model reads",
                             rows->path, length > 60 ? 60 : (int)length, name);
        }
        rows->map[i] = field;
        name += length + 1;
    }
    rows->fields = header->fields;
    return RC_OK;
}

static enum rc next_of_csv(struct input_rows *rows, float *values, bool *is_there,
                           struct fault *why)
{
    struct csv_row row;
    size_t bad;
    enum rc rc;

    do {
        rc = csv_rows_next(rows->csv, &row, why);
        *is_there = rc == RC_OK && row.fields > 0;
        if (!*is_there) return rc;
        if (!rows->is_begun && rows->columns != NULL && is_header(&row)) {
            rc = look_up(rows, &row, why);
            if (rc != RC_OK) return rc;
            rows->is_begun = true;
            continue;
        }
        if (row.fields != (rows->map == NULL ? rows->values : rows->fields)) {
            return csv_fault(rows->csv, row.line, why,
                             "%zu fields, but the model reads %zu values a row%s", row.fields,
                             rows->values,
                             row.fields == rows->values + 1 ? "; take the label's column out" : "");
        }
        parse_row(rows, &row, values, &bad);
        if (bad == rows->values) {
            rows->is_begun = true;
            return RC_OK;
        }
        if (rows->is_begun) break;
        rows->is_begun = true; /* a header */
    } while (true);
    return csv_fault(rows->csv, row.line, why, "column %zu: '%.40s' is not a number",
                     field_of(rows, bad) + 1, csv_field(&row, field_of(rows, bad)));
}

static enum rc next_of_stream(struct input_rows *rows, float *values, struct fault *why)
{
    bool is_npy = rows->form == FORM_NPY;
    bool has_bytes = !is_npy || rows->npy.type == NPY_U8;
    size_t item_bytes = is_npy ? rows->npy.item_bytes : 1;
    enum rc rc = data_stream_read(rows->stream, rows->raw, rows->values * item_bytes, why);

    for (size_t i = 0; rc == RC_OK && i < rows->values; i++) {
        double value = is_npy ? npy_value(&rows->npy, rows->raw, i) : rows->raw[i];
        if (!(fabs(value) <= NUMBER_MAX)) {
            return data_stream_malformed(rows->stream, why,
                                         "sample %llu holds a NaN or a number above 1e18",
                                         (unsigned long long)(rows->count - rows->left - 1));
        }
        values[i] = (float)(has_bytes ? value / 255.0 : value);
    }
    return rc;
}

enum rc input_rows_next(struct input_rows *rows, float *values, bool *is_there, struct fault *why)
{
    enum rc rc = RC_OK;

    if (rows->form == FORM_CSV) return next_of_csv(rows, values, is_there, why);
    *is_there = rows->left > 0;
    if (!*is_there) return RC_OK;
    rows->left--;
    if (rows->form == FORM_IMAGE)
        image_values(&rows->image, rows->wanted.channels, values);
    else
        rc = next_of_stream(rows, values, why);
    return rc;
}

double input_rows_share(const struct input_rows *rows)
{
    if (rows->form == FORM_CSV) return csv_rows_share(rows->csv);
    return rows->form == FORM_IMAGE ? 1 : data_stream_share(rows->stream);
}
