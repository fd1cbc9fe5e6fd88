/* Files of named tensors: exact round trips, other people's files, damaged and lying ones. */
#include "tests/scratch.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "base/rng.h"
#include "replica/plane/store_safetensors.h"

static const float weights[] = {1.0F, -2.5F, 3.0F, 0.0F, 1e-30F, 7.0F};
static const uint8_t pixels[] = {1, 2, 3};

/* Three tensors of different widths, the narrow ones first, and two texts. */
static struct tensor_file *example_create(void)
{
    struct tensor_view view = {.name = "pixels", .dtype = "U8", .rank = 1, .shape = {3}};
    struct tensor_file *file = tensor_file_create();
    uint64_t state[] = {UINT64_MAX, 42};

    assert_non_null(file);
    view.bytes = pixels;
    view.bytes_count = 3;
    assert_int_equal(tensor_file_add(file, &view), RC_OK);
    view = (struct tensor_view){.name = "dense.weight", .dtype = "F32", .rank = 2, .shape = {2, 3}};
    view.bytes = weights;
    view.bytes_count = sizeof weights;
    assert_int_equal(tensor_file_add(file, &view), RC_OK);
    assert_int_equal(tensor_file_add_u64_copy(file, "state", state, 2), RC_OK);
    memset(state, 0, sizeof state); /* it was copied */
    assert_int_equal(tensor_file_set(file, "spec", "linear:3"), RC_OK);
    assert_int_equal(tensor_file_set(file, "note", "old"), RC_OK);
    assert_int_equal(tensor_file_set(file, "note", "quotes \" and \n lines"), RC_OK);
    return file;
}

/* All pieces in one block from mem_alloc(). */
static uint8_t *flatten(struct tensor_file *file, size_t *count)
{
    const struct piece *pieces;
    size_t pieces_count, at = 0;
    uint8_t *bytes;

    assert_int_equal(tensor_file_encode(file, &pieces, &pieces_count), RC_OK);
    *count = 0;
    for (size_t i = 0; i < pieces_count; i++) {
        *count += pieces[i].count;
    }
    bytes = mem_alloc(*count);
    for (size_t i = 0; i < pieces_count; i++) {
        if (pieces[i].count > 0) memcpy(bytes + at, pieces[i].bytes, pieces[i].count);
        at += pieces[i].count;
    }
    return bytes;
}

static void check_example(const struct tensor_file *file)
{
    const struct tensor_view *view = tensor_file_find(file, "dense.weight");
    const char *key, *value;

    assert_int_equal(tensor_file_count(file), 3);
    assert_non_null(view);
    assert_string_equal(view->dtype, "F32");
    assert_int_equal(view->rank, 2);
    assert_int_equal(view->shape[0], 2);
    assert_int_equal(view->shape[1], 3);
    assert_int_equal((uintptr_t)view->bytes % 4, 0);
    assert_memory_equal(view->bytes, weights, sizeof weights);
    view = tensor_file_find(file, "state");
    assert_string_equal(view->dtype, "U64");
    assert_int_equal((uintptr_t)view->bytes % 8, 0);
    assert_true(load_le64(view->bytes) == UINT64_MAX);
    assert_memory_equal(tensor_file_find(file, "pixels")->bytes, pixels, 3);
    assert_null(tensor_file_find(file, "other"));
    assert_string_equal(tensor_file_get(file, "note"), "quotes \" and \n lines");
    assert_null(tensor_file_get(file, "other"));
    assert_true(tensor_file_metadata_at(file, 0, &key, &value));
    assert_string_equal(key, "spec");
    assert_false(tensor_file_metadata_at(file, 3, &key, &value)); /* spec, note, digest */
}

/* What is encoded decodes to the same tensors and texts, aligned, with the header padded to 8. */
static void a_file_reads_back(void **state)
{
    uint64_t before = mem_blocks();
    struct tensor_file *file = example_create(), *read;
    size_t count;
    uint8_t *bytes = flatten(file, &count);

    (void)state;
    assert_int_equal(load_le64(bytes) % 8, 0);
    assert_int_equal(tensor_file_decode("x", bytes, count, &read, NULL), RC_OK);
    check_example(read);
    tensor_file_destroy(read);
    tensor_file_destroy(file);
    tensor_file_destroy(NULL);
    assert_int_equal(mem_blocks(), before);
}

/* Changed values and texts show in the next encoding, digest included. */
static void encoding_again_follows_changes(void **state)
{
    float value = 1.0F;
    struct tensor_file *file = tensor_file_create(), *read;
    size_t count;
    char *first;
    uint8_t *bytes;

    (void)state;
    assert_int_equal(tensor_file_add_f32(file, "x", &value, 1), RC_OK);
    mem_free(flatten(file, &count));
    first = mem_string(tensor_file_get(file, "digest"));
    value = 2.0F;
    bytes = flatten(file, &count);
    assert_string_not_equal(first, tensor_file_get(file, "digest"));
    assert_int_equal(tensor_file_decode("x", bytes, count, &read, NULL), RC_OK);
    assert_memory_equal(tensor_file_find(read, "x")->bytes, &value, sizeof value);
    mem_free(first);
    tensor_file_destroy(read);
    tensor_file_destroy(file);
}

/* A file goes to disk and comes back; one that is not there or not one says so. */
static void files_are_saved_and_loaded(void **state)
{
    struct tensor_file *file = example_create(), *read;
    struct scratch scratch;
    struct stat status;
    struct fault why;

    (void)state;
    scratch_init(&scratch);
    assert_int_equal(tensor_file_save(file, scratch_path(&scratch, "m"), &why), RC_OK);
    assert_int_equal(stat(scratch_path(&scratch, "m"), &status), 0);
    assert_int_equal(status.st_mode & 0777, 0644);
    assert_int_equal(tensor_file_load(scratch_path(&scratch, "m"), &read, &why), RC_OK);
    check_example(read);
    tensor_file_destroy(read);
    assert_int_equal(tensor_file_load(scratch_path(&scratch, "n"), &read, &why), RC_NOT_FOUND);
    assert_int_equal(tensor_file_save(file, scratch_path(&scratch, "n/m"), &why), RC_NOT_FOUND);
    scratch_write(&scratch, "text", "hello, this is a text and no model", 34);
    assert_int_equal(tensor_file_load(scratch_path(&scratch, "text"), &read, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "/text: not a sound safetensors file: "));
    scratch_deinit(&scratch);
    tensor_file_destroy(file);
}

/* One name is one tensor; an empty tensor and an empty file are fine. */
static void names_are_unique_and_empty_is_fine(void **state)
{
    struct tensor_file *file = tensor_file_create(), *read;
    size_t count;
    uint8_t *bytes = flatten(file, &count);
    uint64_t number = 1;

    (void)state;
    assert_int_equal(tensor_file_decode("x", bytes, count, &read, NULL), RC_OK);
    assert_int_equal(tensor_file_count(read), 0);
    tensor_file_destroy(read);
    assert_int_equal(tensor_file_add_f32(file, "x", weights, 0), RC_OK);
    assert_int_equal(tensor_file_add_f32(file, "x", weights, 1), RC_MISMATCH);
    assert_int_equal(tensor_file_add_u64_copy(file, "x", &number, 1), RC_MISMATCH);
    assert_int_equal(tensor_file_add_f32(file, "y", weights, 2), RC_OK);
    bytes = flatten(file, &count);
    assert_int_equal(tensor_file_decode("x", bytes, count, &read, NULL), RC_OK);
    assert_int_equal(tensor_file_find(read, "x")->bytes_count, 0);
    assert_string_equal(tensor_file_at(read, 1)->name, "y");
    tensor_file_destroy(read);
    tensor_file_destroy(file);
}

/* Length, JSON and `values` bytes of zeros (or 1, 2, 3, ...) in one block. */
static uint8_t *compose(const char *json, size_t values, size_t *count)
{
    size_t length = strlen(json);
    uint8_t *bytes = mem_alloc(8 + length + values);

    store_le64(bytes, length);
    memcpy(bytes + 8, json, length);
    for (size_t i = 0; i < values; i++) {
        bytes[8 + length + i] = (uint8_t)(i + 1);
    }
    *count = 8 + length + values;
    return bytes;
}

/* A file as Hugging Face's library writes it: no digest, a scalar, types we do not use, and a
 * header of any length. */
static void foreign_files_are_read(void **state)
{
    static const char json[] = "{\"__metadata__\":{\"format\":\"pt\"},"
                               "\"a\":{\"dtype\":\"F64\",\"shape\":[],\"data_offsets\":[0,8]},"
                               "\"b\":{\"dtype\":\"BF16\",\"shape\":[1,2],\"data_offsets\":[8,12]},"
                               "\"c\":{\"shape\":[0],\"data_offsets\":[12,12],\"dtype\":\"BOOL\"}}";

    (void)state;
    for (size_t padding = 0; padding < 8; padding++) {
        char padded[sizeof json + 8];
        struct tensor_file *file;
        size_t count;
        uint8_t *bytes;

        snprintf(padded, sizeof padded, "%s%*s", json, (int)padding, "");
        bytes = compose(padded, 12, &count);
        assert_int_equal(tensor_file_decode("x", bytes, count, &file, NULL), RC_OK);
        assert_int_equal(tensor_file_find(file, "a")->rank, 0);
        assert_int_equal((uintptr_t)tensor_file_find(file, "a")->bytes % 8, 0);
        assert_true(load_le64(tensor_file_find(file, "a")->bytes) == UINT64_C(0x0807060504030201));
        assert_int_equal(load_le16(tensor_file_find(file, "b")->bytes), 0x0a09);
        assert_int_equal(tensor_file_find(file, "c")->bytes_count, 0);
        assert_string_equal(tensor_file_get(file, "format"), "pt");
        tensor_file_destroy(file);
    }
}

static void refuse_json(const char *json, size_t values, const char *reason)
{
    struct tensor_file *file = NULL;
    struct fault why = {""};
    size_t count;
    uint8_t *bytes = compose(json, values, &count);

    if (tensor_file_decode("x", bytes, count, &file, &why) != RC_FORMAT) {
        fail_msg("judged wrongly: %s", json);
    }
    if (strstr(why.text, reason) == NULL) fail_msg("%s: says %s", json, why.text);
    assert_null(file);
    mem_free(bytes); /* it is still ours */
}

#define TENSOR(dtype, shape, offsets)                                                              \
    "{\"t\":{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}}"

/* Headers that lie about tensors are refused, each with its reason. */
static void lying_headers_are_refused(void **state)
{
    static const char pair[] = "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
                               "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[%d,%d]}}";
    char text[256];

    (void)state;
    refuse_json("[]", 0, "header is not a map");
    refuse_json("{\"a\":", 0, "not valid JSON");
    refuse_json("{\"t\":1}", 0, "dtype is missing");
    refuse_json(TENSOR("\"F31\"", "[1]", "[0,4]"), 4, "dtype is missing or unknown");
    refuse_json(TENSOR("7", "[1]", "[0,4]"), 4, "dtype is missing or unknown");
    refuse_json(TENSOR("\"F32\"", "1", "[0,4]"), 4, "shape is missing or wrong");
    refuse_json(TENSOR("\"F32\"", "[-1]", "[0,4]"), 4, "shape is missing or wrong");
    refuse_json(TENSOR("\"F32\"", "[1.0]", "[0,4]"), 4, "shape is missing or wrong");
    refuse_json(TENSOR("\"F32\"", "[1,1,1,1,1,1,1,1,1]", "[0,4]"), 4, "shape is missing or wrong");
    refuse_json(TENSOR("\"F32\"", "[1]", "[0]"), 4, "data_offsets are missing");
    refuse_json(TENSOR("\"F32\"", "[1]", "[0,4,8]"), 8, "data_offsets are missing");
    refuse_json(TENSOR("\"F32\"", "[1]", "[4,0]"), 4, "data_offsets are missing or outside");
    refuse_json(TENSOR("\"F32\"", "[2]", "[0,8]"), 4, "data_offsets are missing or outside");
    refuse_json(TENSOR("\"F32\"", "[2]", "[0,4]"), 4, "does not fit its data_offsets");
    refuse_json(TENSOR("\"F32\"", "[4611686018427387905]", "[0,4]"), 4, "does not fit");
    refuse_json(TENSOR("\"F32\"", "[4294967296,4294967296]", "[0,0]"), 0, "does not fit");
    refuse_json(TENSOR("\"F32\"", "[1]", "[0,4]"), 8, "left over");
    refuse_json(TENSOR("\"F32\"", "[1]", "[4,8]"), 8, "overlap or leave a gap");
    refuse_json(TENSOR("\"F32\"", "[1]", "[2,6]"), 6, "not aligned");
    refuse_json("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"x\":1}}", 1,
                "unknown key");
    refuse_json("{\"t\\n\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                "not printable");
    refuse_json("{\"t\\u009b2J\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
                "not printable"); /* C1 */
    refuse_json("{\"__metadata__\":{\"\\u009b\":\"1\"}}", 0, "something other than text");
    refuse_json("{\"__metadata__\":[]}", 0, "not a map");
    refuse_json("{\"__metadata__\":{\"a\":1}}", 0, "something other than text");
    refuse_json("{\"__metadata__\":{\"digest\":\"abc\"}}", 0, "digest is malformed");
    snprintf(text, sizeof text, pair, 2, 6);
    refuse_json(text, 6, "overlap or leave a gap");
    snprintf(text, sizeof text, pair, 5, 9);
    refuse_json(text, 9, "overlap or leave a gap");
    snprintf(text, sizeof text, pair, 0, 4);
    refuse_json(text, 4, "overlap or leave a gap");
}

/* A length that claims more than the file or more than the limit is refused before parsing. */
static void lying_lengths_are_refused(void **state)
{
    uint8_t *bytes = mem_alloc(32 << 20);
    struct tensor_file *file = NULL;
    struct fault why;

    (void)state;
    for (size_t count = 0; count < 8; count++) {
        assert_int_equal(tensor_file_decode("x", bytes, count, &file, &why), RC_FORMAT);
    }
    store_le64(bytes, UINT64_MAX);
    assert_int_equal(tensor_file_decode("x", bytes, 100, &file, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "claims more bytes"));
    store_le64(bytes, 93);
    assert_int_equal(tensor_file_decode("x", bytes, 100, &file, &why), RC_FORMAT);
    store_le64(bytes, (16 << 20) + 1);
    assert_int_equal(tensor_file_decode("x", bytes, 32 << 20, &file, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "16 MiB"));
    mem_free(bytes);
}

/* One flipped bit among the values is noticed by the digest. */
static void damaged_values_are_noticed(void **state)
{
    struct tensor_file *file = example_create(), *read = NULL;
    struct fault why;
    size_t count;
    uint8_t *bytes = flatten(file, &count);

    (void)state;
    for (size_t at = 8 + (size_t)load_le64(bytes); at < count; at++) {
        bytes[at] ^= 4;
        assert_int_equal(tensor_file_decode("x", bytes, count, &read, &why), RC_MISMATCH);
        assert_non_null(strstr(why.text, "the file is damaged"));
        bytes[at] ^= 4;
    }
    for (size_t shorter = 0; shorter < count; shorter++) {
        assert_int_not_equal(tensor_file_decode("x", bytes, shorter, &read, NULL), RC_OK);
    }
    mem_free(bytes);
    tensor_file_destroy(file);
}

/* Whatever byte of a file is changed at random, reading ends in an answer and leaks nothing. */
static void random_damage_is_survived(void **state)
{
    struct tensor_file *file = example_create();
    uint64_t before;
    size_t ignored;

    (void)state;
    mem_free(flatten(file, &ignored)); /* from now on the file holds its header and digest */
    before = mem_blocks();
    FOR_EACH_SEED (seed, 3000) {
        struct tensor_file *read = NULL;
        struct rng rng;
        size_t count;
        uint8_t *bytes = flatten(file, &count);

        rng_init(&rng, seed, 1);
        for (int i = 0; i < 3; i++) {
            bytes[rng_below(&rng, count)] = (uint8_t)rng_u64(&rng);
        }
        if (tensor_file_decode("x", bytes, count, &read, NULL) == RC_OK)
            tensor_file_destroy(read);
        else
            mem_free(bytes);
        check_seed(seed, mem_blocks() == before);
    }
    tensor_file_destroy(file);
}

/* Whichever allocation fails, building, encoding and decoding say RC_NOMEM and leak nothing. */
static void short_memory_is_survived(void **state)
{
    uint64_t before = mem_blocks();
    struct tensor_file *file = example_create(), *read = NULL;
    const struct piece *pieces;
    size_t count, pieces_count;
    uint8_t *bytes = flatten(file, &count);
    uint64_t number = 1;
    bool is_done = false;

    (void)state;
    for (uint64_t n = 0; !is_done; n++) {
        enum rc rc;

        mem_fail_after(n);
        rc = tensor_file_decode("x", bytes, count, &read, NULL);
        is_done = rc == RC_OK;
        assert_true(is_done || rc == RC_NOMEM);
    }
    for (uint64_t n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_int_equal(tensor_file_add_u64_copy(file, "more", &number, 1), RC_NOMEM);
        mem_fail_after(n);
        assert_int_equal(tensor_file_set(file, "more", "x"), RC_NOMEM);
        mem_fail_after(n);
        assert_int_equal(tensor_file_encode(file, &pieces, &pieces_count), RC_NOMEM);
    }
    mem_fail_after(0);
    assert_int_equal(tensor_file_set(file, "note", "x"), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    assert_string_equal(tensor_file_get(file, "note"), "quotes \" and \n lines");
    assert_int_equal(tensor_file_count(file), 3);
    tensor_file_destroy(read);
    tensor_file_destroy(file);
    assert_int_equal(mem_blocks(), before);
}

/* The table of tensors ends at 65,536. */
static void too_many_tensors_are_refused(void **state)
{
    enum { LIMIT = 65536, ENTRY_BYTES = 64 };
    char *json = malloc((LIMIT + 2) * ENTRY_BYTES);
    size_t at = 1;

    (void)state;
    json[0] = '{';
    for (unsigned i = 0; i <= LIMIT; i++) {
        at += (size_t)snprintf(json + at, ENTRY_BYTES,
                               "%s\"%u\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}",
                               i == 0 ? "" : ",", i);
    }
    memcpy(json + at, "}", 2);
    refuse_json(json, 0, "too many");
    free(json);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_file_reads_back),
        cmocka_unit_test(encoding_again_follows_changes),
        cmocka_unit_test(files_are_saved_and_loaded),
        cmocka_unit_test(names_are_unique_and_empty_is_fine),
        cmocka_unit_test(foreign_files_are_read),
        cmocka_unit_test(lying_headers_are_refused),
        cmocka_unit_test(lying_lengths_are_refused),
        cmocka_unit_test(damaged_values_are_noticed),
        cmocka_unit_test(random_damage_is_survived),
        cmocka_unit_test(short_memory_is_survived),
        cmocka_unit_test(too_many_tensors_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
