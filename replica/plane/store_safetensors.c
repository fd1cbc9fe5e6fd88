/*
 * Files of named tensors. Reading treats every byte as hostile: the header is bounded before it is
 * parsed, tensors must tile the value bytes exactly (no overlap, no gap, nothing left over), each
 * aligned to its element, and the digest must fit when there is one. Writing puts tensors of wide
 * elements first, so that all of them are aligned. Format: https://github.com/huggingface/
 * safetensors; stricter in that unknown keys and rank above 8 are refused. Jobs and commands.
 */
#include "replica/plane/store_safetensors.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/plain.h"

#include <stdlib.h>

enum {
    HEADER_BYTES_MAX = 16 << 20,
    TENSORS_MAX = 65536,
    METADATA_MAX = 65536,
    LENGTH_BYTES = 8,
    RANK_MAX = TENSOR_RANK_MAX + 4
};
#define FILE_BYTES_MAX ((size_t)64 << 30)

static const char metadata_key[] = "__metadata__";
static const char digest_key[] = "digest";

struct dtype {
    const char *name;
    size_t bytes; /* of one value */
};

static const struct dtype dtypes[] = {
    {"BOOL", 1}, {"U8", 1},  {"I8", 1},  {"F8_E5M2", 1}, {"F8_E4M3", 1},
    {"I16", 2},  {"U16", 2}, {"F16", 2}, {"BF16", 2},    {"I32", 4},
    {"U32", 4},  {"F32", 4}, {"I64", 8}, {"U64", 8},     {"F64", 8},
};

struct entry {
    struct tensor_view view; /* view.name is `name`, view.dtype one of the table's */
    char *name;
    void *copy;         /* values of the _copy form, or NULL */
    uint64_t name_hash; /* compared before the names are */
    size_t width;       /* bytes of one value */
    size_t begin;       /* offset in the value bytes of a decoded file */
};

struct metadata {
    char *key, *value;
};

struct tensor_file {
    struct entry *entries;
    size_t entries_count, entries_max;
    struct metadata *metadata;
    size_t metadata_count, metadata_max;
    void *bytes;          /* of a decoded file */
    uint8_t *header;      /* of the last encode: length and JSON */
    struct piece *pieces; /* of the last encode */
};

struct tensor_file *tensor_file_create(void)
{
    return mem_alloc(sizeof(struct tensor_file));
}

void tensor_file_destroy(struct tensor_file *file)
{
    if (file == NULL) return;
    for (size_t i = 0; i < file->entries_count; i++) {
        mem_free(file->entries[i].name);
        mem_free(file->entries[i].copy);
    }
    for (size_t i = 0; i < file->metadata_count; i++) {
        mem_free(file->metadata[i].key);
        mem_free(file->metadata[i].value);
    }
    mem_free(file->entries);
    mem_free(file->metadata);
    mem_free(file->bytes);
    mem_free(file->header);
    mem_free(file->pieces);
    mem_free(file);
}

static const struct dtype *dtype_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_COUNT(dtypes); i++) {
        if (strcmp(dtypes[i].name, name) == 0) return &dtypes[i];
    }
    return NULL;
}

/* FNV-1a: names are short and the hash only saves string comparisons. */
static uint64_t hash_name(const char *name)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);

    for (; *name != '\0'; name++) {
        hash = (hash ^ (uint8_t)*name) * UINT64_C(0x100000001b3);
    }
    return hash;
}

/* Product of the shape times the width; false on overflow. A scalar has rank 0 and one value. */
static bool bytes_of_shape(const uint64_t *shape, uint32_t rank, size_t width, size_t *bytes)
{
    size_t total = width;

    for (uint32_t i = 0; i < rank; i++) {
        if (__builtin_mul_overflow(total, shape[i], &total)) return false;
    }
    *bytes = total;
    return true;
}

/* A place for one more entry or pair in a doubling array. */
static enum rc make_room(void **items, size_t count, size_t *max, size_t bytes, size_t limit)
{
    size_t wider = *max == 0 ? 16 : *max * 2;
    void *grown;

    if (count >= limit) return RC_LIMIT;
    if (count < *max) return RC_OK;
    grown = mem_resize(*items, wider * bytes);
    if (grown == NULL) return RC_NOMEM;
    *items = grown;
    *max = wider;
    return RC_OK;
}

/* Append without looking for a twin. */
static enum rc append(struct tensor_file *file, const struct tensor_view *view, size_t width,
                      size_t begin)
{
    struct entry entry = {.view = *view, .width = width, .begin = begin};
    void *items = file->entries;
    enum rc rc;

    rc = make_room(&items, file->entries_count, &file->entries_max, sizeof entry, TENSORS_MAX);
    file->entries = items;
    if (rc != RC_OK) return rc;
    entry.name = mem_string(view->name);
    if (entry.name == NULL) return RC_NOMEM;
    entry.view.name = entry.name;
    entry.name_hash = hash_name(entry.name);
    file->entries[file->entries_count++] = entry;
    return RC_OK;
}

enum rc tensor_file_add(struct tensor_file *file, const struct tensor_view *view)
{
    const struct dtype *dtype;
    struct tensor_view owned;
    size_t bytes;

    CHECK(file != NULL && view != NULL && view->name != NULL && view->dtype != NULL);
    CHECK(strcmp(view->name, metadata_key) != 0 && view->rank <= RANK_MAX);
    dtype = dtype_find(view->dtype);
    CHECK(dtype != NULL);
    CHECK(bytes_of_shape(view->shape, view->rank, dtype->bytes, &bytes));
    CHECK(bytes == view->bytes_count && (view->bytes != NULL || bytes == 0));
    if (tensor_file_find(file, view->name) != NULL) return RC_MISMATCH;
    owned = *view;
    owned.dtype = dtype->name;
    return append(file, &owned, dtype->bytes, 0);
}

enum rc tensor_file_add_f32(struct tensor_file *file, const char *name, const float *values,
                            size_t count)
{
    struct tensor_view view = {.name = name, .dtype = "F32", .rank = 1};

    view.shape[0] = count;
    view.bytes = values;
    view.bytes_count = count * sizeof *values;
    return tensor_file_add(file, &view);
}

enum rc tensor_file_add_copy(struct tensor_file *file, const struct tensor_view *view)
{
    struct tensor_view owned = *view;
    void *copy = mem_alloc(view->bytes_count > 0 ? view->bytes_count : 1);
    enum rc rc;

    if (copy == NULL) return RC_NOMEM;
    if (view->bytes_count > 0) memcpy(copy, view->bytes, view->bytes_count);
    owned.bytes = copy;
    rc = tensor_file_add(file, &owned);
    if (rc == RC_OK)
        file->entries[file->entries_count - 1].copy = copy;
    else
        mem_free(copy);
    return rc;
}

enum rc tensor_file_add_u64_copy(struct tensor_file *file, const char *name, const uint64_t *values,
                                 size_t count)
{
    struct tensor_view view = {.name = name, .dtype = "U64", .rank = 1};

    view.shape[0] = count;
    view.bytes = values;
    view.bytes_count = count * sizeof *values;
    return tensor_file_add_copy(file, &view);
}

/* Append without looking for a twin. */
static enum rc append_metadata(struct tensor_file *file, const char *key, const char *value)
{
    struct metadata pair = {NULL, NULL};
    void *items = file->metadata;
    enum rc rc;

    rc = make_room(&items, file->metadata_count, &file->metadata_max, sizeof pair, METADATA_MAX);
    file->metadata = items;
    if (rc != RC_OK) return rc;
    pair.key = mem_string(key);
    pair.value = mem_string(value);
    if (pair.key == NULL || pair.value == NULL) {
        mem_free(pair.key);
        mem_free(pair.value);
        return RC_NOMEM;
    }
    file->metadata[file->metadata_count++] = pair;
    return RC_OK;
}

enum rc tensor_file_set(struct tensor_file *file, const char *key, const char *value)
{
    CHECK(file != NULL && key != NULL && value != NULL);
    for (size_t i = 0; i < file->metadata_count; i++) {
        char *copy;

        if (strcmp(file->metadata[i].key, key) != 0) continue;
        copy = mem_string(value);
        if (copy == NULL) return RC_NOMEM;
        mem_free(file->metadata[i].value);
        file->metadata[i].value = copy;
        return RC_OK;
    }
    return append_metadata(file, key, value);
}

const char *tensor_file_get(const struct tensor_file *file, const char *key)
{
    for (size_t i = 0; i < file->metadata_count; i++) {
        if (strcmp(file->metadata[i].key, key) == 0) return file->metadata[i].value;
    }
    return NULL;
}

const struct tensor_view *tensor_file_find(const struct tensor_file *file, const char *name)
{
    uint64_t hash = hash_name(name);

    for (size_t i = 0; i < file->entries_count; i++) {
        const struct entry *entry = &file->entries[i];

        if (entry->name_hash == hash && strcmp(entry->name, name) == 0) return &entry->view;
    }
    return NULL;
}

size_t tensor_file_count(const struct tensor_file *file)
{
    return file->entries_count;
}

const struct tensor_view *tensor_file_at(const struct tensor_file *file, size_t index)
{
    CHECK(index < file->entries_count);
    return &file->entries[index].view;
}

bool tensor_file_metadata_at(const struct tensor_file *file, size_t index, const char **key,
                             const char **value)
{
    if (index >= file->metadata_count) return false;
    *key = file->metadata[index].key;
    *value = file->metadata[index].value;
    return true;
}

/* Wide elements first; order of insertion among equals. */
static void order_pieces(const struct tensor_file *file, struct piece *pieces, size_t *order)
{
    size_t filled = 0;

    for (size_t width = 8; width > 0; width /= 2) {
        for (size_t i = 0; i < file->entries_count; i++) {
            if (file->entries[i].width != width) continue;
            pieces[filled] =
                (struct piece){file->entries[i].view.bytes, file->entries[i].view.bytes_count};
            order[filled++] = i;
        }
    }
    CHECK(filled == file->entries_count);
}

/* The header's JSON; `order` is the order of the values in the file. mem_free() it. */
static char *format_header(const struct tensor_file *file, const size_t *order)
{
    struct json *root = json_object_create();
    struct json *metadata = json_object_create();
    uint64_t begin = 0;
    char *text;

    for (size_t i = 0; i < file->metadata_count; i++) {
        json_set_text(metadata, file->metadata[i].key, file->metadata[i].value);
    }
    json_set(root, metadata_key, metadata);
    for (size_t i = 0; i < file->entries_count; i++) {
        const struct tensor_view *view = &file->entries[order[i]].view;
        struct json *tensor = json_object_create();
        struct json *shape = json_array_create();
        struct json *offsets = json_array_create();

        for (uint32_t k = 0; k < view->rank; k++) {
            json_append_count(shape, view->shape[k]);
        }
        json_append_count(offsets, begin);
        begin += view->bytes_count;
        json_append_count(offsets, begin);
        json_set_text(tensor, "dtype", view->dtype);
        json_set(tensor, "shape", shape);
        json_set(tensor, "data_offsets", offsets);
        json_set(root, view->name, tensor);
    }
    text = json_format(root);
    json_destroy(root);
    return text;
}

/* Put the digest of the value bytes into the metadata. */
static enum rc set_digest(struct tensor_file *file, const struct piece *pieces, size_t count)
{
    char text[DIGEST_TEXT];
    struct hash hash;

    hash_init(&hash);
    for (size_t i = 0; i < count; i++) {
        hash_update(&hash, pieces[i].bytes, pieces[i].count);
    }
    digest_format(hash_final(&hash), text);
    return tensor_file_set(file, digest_key, text);
}

enum rc tensor_file_encode(struct tensor_file *file, const struct piece **pieces,
                           size_t *pieces_count)
{
    size_t count = file->entries_count, json_bytes, padded;
    struct piece *list = mem_array(count + 1, sizeof *list);
    size_t *order = mem_array(count, sizeof *order);
    uint8_t *header = NULL;
    char *text = NULL;
    enum rc rc = RC_NOMEM;

    if (list == NULL || order == NULL) goto out;
    order_pieces(file, list + 1, order);
    rc = set_digest(file, list + 1, count);
    if (rc != RC_OK) goto out;
    text = format_header(file, order);
    json_bytes = strlen(text);
    padded = (json_bytes + 7) / 8 * 8;
    rc = RC_LIMIT;
    if (padded > HEADER_BYTES_MAX) goto out;
    rc = RC_NOMEM;
    header = mem_alloc(LENGTH_BYTES + padded);
    if (header == NULL) goto out;
    store_le64(header, padded);
    memset(header + LENGTH_BYTES, ' ', padded);
    memcpy(header + LENGTH_BYTES, text, json_bytes);
    list[0] = (struct piece){header, LENGTH_BYTES + padded};
    mem_free(file->header);
    mem_free(file->pieces);
    file->header = header;
    file->pieces = list;
    *pieces = list;
    *pieces_count = count + 1;
    list = NULL;
    rc = RC_OK;
out:
    mem_free(text);
    mem_free(order);
    mem_free(list);
    return rc;
}

/* What a file under inspection is made of. */
struct reader {
    const char *name; /* for messages */
    const uint8_t *values;
    size_t values_bytes;
    struct tensor_file *file;
    struct fault *why;
};

static enum rc damaged(const struct reader *reader, const char *what)
{
    return fault_set(reader->why, RC_FORMAT, "cannot read %s: not a sound safetensors file: %s",
                     reader->name, what);
}

static enum rc read_metadata(struct reader *reader, const struct json *json)
{
    const char *key;
    void *cursor;

    if (!json_is_an_object(json)) return damaged(reader, "__metadata__ is not a map");
    for (const struct json *value = json_member_first(json, &key, &cursor); value != NULL;
         value = json_member_next(json, &key, &cursor)) {
        enum rc rc;

        if (json_text_of(value) == NULL || !plain_is_so(key)) {
            return damaged(reader, "__metadata__ holds something other than text");
        }
        rc = append_metadata(reader->file, key, json_text_of(value));
        if (rc == RC_LIMIT) return damaged(reader, "too many metadata entries");
        if (rc != RC_OK)
            return fault_set(reader->why, rc, "cannot read %s: out of memory", reader->name);
    }
    return RC_OK;
}

/* Shape into `view`; false unless it is an array of at most RANK_MAX counts. */
static bool read_shape(const struct json *json, struct tensor_view *view)
{
    if (!json_is_an_array(json) || json_count(json) > RANK_MAX) return false;
    view->rank = (uint32_t)json_count(json);
    for (uint32_t i = 0; i < view->rank; i++) {
        if (!json_count_of(json_at(json, i), &view->shape[i])) return false;
    }
    return true;
}

static enum rc read_tensor(struct reader *reader, const char *name, const struct json *json)
{
    struct tensor_view view = {.name = name};
    const struct json *offsets = json_get(json, "data_offsets");
    const char *dtype_name = json_get_text(json, "dtype"), *key;
    const struct dtype *dtype = dtype_name == NULL ? NULL : dtype_find(dtype_name);
    const struct json *ignored;
    uint64_t begin, end;
    size_t bytes;
    enum rc rc;

    if (!plain_is_so(name)) return damaged(reader, "a tensor's name is not printable");
    if (json_member_at(json, 3, &key, &ignored)) return damaged(reader, "unknown key of a tensor");
    if (dtype == NULL) return damaged(reader, "a tensor's dtype is missing or unknown");
    if (!read_shape(json_get(json, "shape"), &view)) {
        return damaged(reader, "a tensor's shape is missing or wrong");
    }
    if (json_count(offsets) != 2 || !json_count_of(json_at(offsets, 0), &begin) ||
        !json_count_of(json_at(offsets, 1), &end) || begin > end || end > reader->values_bytes) {
        return damaged(reader, "a tensor's data_offsets are missing or outside the file");
    }
    if (!bytes_of_shape(view.shape, view.rank, dtype->bytes, &bytes) || bytes != end - begin) {
        return damaged(reader, "a tensor's shape does not fit its data_offsets");
    }
    if (begin % dtype->bytes != 0) return damaged(reader, "a tensor is not aligned to its dtype");
    view.dtype = dtype->name;
    view.bytes_count = bytes;
    rc = append(reader->file, &view, dtype->bytes, (size_t)begin);
    if (rc == RC_LIMIT) return damaged(reader, "too many tensors");
    if (rc != RC_OK) {
        return fault_set(reader->why, rc, "cannot read %s: out of memory", reader->name);
    }
    return RC_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;

    if (x->begin != y->begin) return x->begin < y->begin ? -1 : 1;
    if (x->view.bytes_count != y->view.bytes_count) {
        return x->view.bytes_count < y->view.bytes_count ? -1 : 1;
    }
    return strcmp(x->name, y->name);
}

/* Order of the values, and that they tile the file exactly. */
static enum rc check_tiling(struct reader *reader)
{
    struct tensor_file *file = reader->file;
    size_t at = 0;

    if (file->entries_count > 0) {
        qsort(file->entries, file->entries_count, sizeof *file->entries, compare_entries);
    }
    for (size_t i = 0; i < file->entries_count; i++) {
        if (file->entries[i].begin != at) return damaged(reader, "tensors overlap or leave a gap");
        at += file->entries[i].view.bytes_count;
    }
    if (at != reader->values_bytes) return damaged(reader, "bytes are left over at the end");
    return RC_OK;
}

static enum rc check_digest(struct reader *reader)
{
    const char *text = tensor_file_get(reader->file, digest_key);
    struct digest promised;

    if (text == NULL) return RC_OK;
    if (!digest_parse(text, &promised)) return damaged(reader, "its digest is malformed");
    if (digest_is_equal(promised, hash_of(reader->values, reader->values_bytes))) return RC_OK;
    return fault_set(reader->why, RC_MISMATCH,
                     "cannot read %s: its digest does not match its values; the file is damaged",
                     reader->name);
}

static enum rc read_header(struct reader *reader, const char *text, size_t bytes)
{
    struct json *root = NULL;
    struct fault cause = {""};
    const char *key;
    void *cursor;
    enum rc rc;

    rc = json_parse(text, bytes, &root, &cause);
    if (rc != RC_OK) return damaged(reader, cause.text);
    if (!json_is_an_object(root)) rc = damaged(reader, "its header is not a map");
    for (const struct json *value = json_member_first(root, &key, &cursor);
         rc == RC_OK && value != NULL; value = json_member_next(root, &key, &cursor)) {
        if (strcmp(key, metadata_key) == 0)
            rc = read_metadata(reader, value);
        else
            rc = read_tensor(reader, key, value);
    }
    json_destroy(root);
    if (rc == RC_OK) rc = check_tiling(reader);
    if (rc == RC_OK) rc = check_digest(reader);
    return rc;
}

/* Take over `bytes`. A foreign header may end anywhere; values are moved down over its end so that
 * they start at a multiple of 8 and can be read in place. */
static void adopt(struct tensor_file *file, uint8_t *bytes, size_t values_at, size_t values_bytes)
{
    size_t aligned_at = values_at / 8 * 8;

    if (aligned_at != values_at) memmove(bytes + aligned_at, bytes + values_at, values_bytes);
    for (size_t i = 0; i < file->entries_count; i++) {
        file->entries[i].view.bytes = bytes + aligned_at + file->entries[i].begin;
    }
    file->bytes = bytes;
}

enum rc tensor_file_decode(const char *name, void *bytes, size_t count, struct tensor_file **file,
                           struct fault *why)
{
    struct reader reader = {.name = name, .why = why};
    uint8_t *start = bytes;
    uint64_t header_bytes;
    enum rc rc;

    CHECK(name != NULL && bytes != NULL && file != NULL);
    if (count < LENGTH_BYTES) return damaged(&reader, "it is shorter than a header");
    header_bytes = load_le64(start);
    if (header_bytes > count - LENGTH_BYTES) {
        return damaged(&reader, "its header claims more bytes than the file has");
    }
    if (header_bytes > HEADER_BYTES_MAX) return damaged(&reader, "its header is above 16 MiB");
    reader.values = start + LENGTH_BYTES + header_bytes;
    reader.values_bytes = count - LENGTH_BYTES - (size_t)header_bytes;
    reader.file = tensor_file_create();
    if (reader.file == NULL) return fault_set(why, RC_NOMEM, "cannot read %s: out of memory", name);
    rc = read_header(&reader, (const char *)start + LENGTH_BYTES, (size_t)header_bytes);
    if (rc != RC_OK) {
        tensor_file_destroy(reader.file);
        return rc;
    }
    adopt(reader.file, start, LENGTH_BYTES + (size_t)header_bytes, reader.values_bytes);
    *file = reader.file;
    return RC_OK;
}

enum rc tensor_file_save(struct tensor_file *file, const char *path, struct fault *why)
{
    const struct piece *pieces;
    size_t pieces_count;
    enum rc rc = tensor_file_encode(file, &pieces, &pieces_count);

    if (rc != RC_OK) return fault_set(why, rc, "cannot write %s: %s", path, rc_text(rc));
    return file_replace(path, pieces, pieces_count, 0644, why);
}

enum rc tensor_file_load(const char *path, struct tensor_file **file, struct fault *why)
{
    void *bytes;
    size_t count;
    enum rc rc = file_read(path, FILE_BYTES_MAX, &bytes, &count, why);

    if (rc != RC_OK) return rc;
    rc = tensor_file_decode(path, bytes, count, file, why);
    if (rc != RC_OK) mem_free(bytes);
    return rc;
}
