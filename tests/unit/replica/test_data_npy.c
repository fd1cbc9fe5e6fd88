/* NumPy arrays: types, shapes, versions, and what is refused. */
#include "tests/unit/replica/data_files.h"

enum { ROWS = 20, BYTES_MAX = 8192 };

/* An array of `count` values of `item` bytes with the header's dictionary as given. */
static void write_array(struct scratch *scratch, const char *name, int version,
                        const char *dictionary, const void *values, size_t bytes)
{
    uint8_t file[BYTES_MAX];
    size_t length = strlen(dictionary), start = version == 1 ? 10 : 12;

    assert_true(start + length + bytes <= sizeof file);
    memcpy(file, "\x93NUMPY", 6);
    file[6] = (uint8_t)version;
    file[7] = 0;
    memset(file + 8, 0, 4);
    file[8] = (uint8_t)length;
    file[9] = (uint8_t)(length >> 8);
    memcpy(file + start, dictionary, length);
    memcpy(file + start + length, values, bytes);
    scratch_write(scratch, name, file, start + length + bytes);
}

#define DICTIONARY(type, shape)                                                                    \
    "{'descr': '" type "', 'fortran_order': False, 'shape': " shape ", }\n"

static void write_labels(struct scratch *scratch)
{
    int64_t labels[ROWS];

    for (int i = 0; i < ROWS; i++) {
        labels[i] = i % 3;
    }
    write_array(scratch, "y", 1, DICTIONARY("<i8", "(20,)"), labels, sizeof labels);
}

/* Vectors of every type are standardised number by number, whatever the version of the file, and
 * every fifth one is for testing. */
static void vectors_of_every_type_are_standardised(void **state)
{
    static const char *const dictionaries[] = {
        DICTIONARY("<f4", "(20, 2)"), DICTIONARY("<f8", "(20, 2)"), DICTIONARY("<i4", "(20, 2)"),
        DICTIONARY("<i8", "(20, 2)"),
        "{\"shape\":(20,2),\"descr\":\"<i8\",\"fortran_order\":False}"};
    float f4[ROWS * 2];
    double f8[ROWS * 2];
    int32_t i4[ROWS * 2];
    int64_t i8[ROWS * 2];
    const void *const values[] = {f4, f8, i4, i8, i8};
    const size_t bytes[] = {sizeof f4, sizeof f8, sizeof i4, sizeof i8, sizeof i8};
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_labels(&scratch);
    for (int i = 0; i < ROWS * 2; i++) {
        i4[i] = i % 2 == 0 ? i : 1000000 - i;
        f4[i] = (float)i4[i];
        f8[i] = (double)i4[i];
        i8[i] = i4[i];
    }
    for (size_t k = 0; k < 5; k++) {
        struct dataset *dataset;
        struct batch train, test;
        double sum = 0.0;

        write_array(&scratch, "x", (int)(k % 3) + 1, dictionaries[k], values[k], bytes[k]);
        dataset = opened(&scratch, "npy:@/x,@/y");
        assert_int_equal(dataset_info(dataset)->input, DATA_VECTORS);
        assert_int_equal(dataset_info(dataset)->channels, 2);
        assert_int_equal(dataset_info(dataset)->classes, 3);
        train = part_of(dataset, false);
        test = part_of(dataset, true);
        assert_int_equal(train.rows, 16);
        for (uint32_t i = 0; i < 16; i++) {
            sum += (double)train.values[2 * i];
            assert_float_equal(train.values[2 * i], -train.values[2 * i + 1], 1e-4);
        }
        assert_float_equal(sum, 0.0, 1e-4);
        for (uint32_t i = 0; i < 4; i++) {
            assert_int_equal(test.labels[i], 5 * i % 3);
        }
        batch_deinit(&train);
        batch_deinit(&test);
        dataset_close(dataset);
    }
    scratch_deinit(&scratch);
}

/* Byte images stay bytes in memory and are normalised channel by channel. */
static void byte_images_are_normalised_by_channel(void **state)
{
    uint8_t images[ROWS * 2 * 4];
    float targets[ROWS * 2];
    struct scratch scratch;
    struct dataset *dataset;
    struct batch batch;
    double sums[2] = {0.0, 0.0}, squares[2] = {0.0, 0.0};

    (void)state;
    scratch_init(&scratch);
    for (int i = 0; i < ROWS * 8; i++) {
        images[i] = (uint8_t)(i / 4 % 2 == 0 ? 7 * i % 50 : 200 + 3 * i % 50);
    }
    for (int i = 0; i < ROWS * 2; i++) {
        targets[i] = (float)i / 4;
    }
    write_array(&scratch, "x", 1, DICTIONARY("|u1", "(20, 2, 2, 2)"), images, sizeof images);
    write_array(&scratch, "y", 1, DICTIONARY("<f4", "(20, 2)"), targets, sizeof targets);
    dataset = opened(&scratch, "npy:@/x,@/y");
    assert_true(dataset_info(dataset)->has_bytes);
    assert_int_equal(dataset_info(dataset)->input, DATA_IMAGES);
    assert_int_equal(dataset_info(dataset)->channels, 2);
    assert_int_equal(dataset_info(dataset)->outputs, 2);
    assert_int_equal(dataset_info(dataset)->target, DATA_REALS);
    batch = part_of(dataset, false);
    assert_float_equal(batch.targets[0], 0.5, 0.0); /* row 1 */
    for (uint32_t i = 0; i < batch.rows * 8; i++) {
        sums[i / 4 % 2] += (double)batch.values[i];
        squares[i / 4 % 2] += (double)batch.values[i] * (double)batch.values[i];
    }
    for (int c = 0; c < 2; c++) {
        assert_float_equal(sums[c] / 64, 0.0, 1e-5);
        assert_float_equal(squares[c] / 64, 1.0, 1e-4);
    }
    batch_deinit(&batch);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

struct bad {
    const char *dictionary;
    size_t bytes;
    const char *words;
};

/* Headers that lie or hold what we do not read are refused, and the message says what to do. */
static void bad_headers_are_refused(void **state)
{
    static const struct bad all[] = {
        {DICTIONARY("<f2", "(20, 2)"), 80, "convert with astype()"},
        {DICTIONARY(">f4", "(20, 2)"), 160, "convert with astype()"},
        {"{'descr': '<f4', 'fortran_order': True, 'shape': (20, 2), }", 160, "ascontiguousarray"},
        {DICTIONARY("<f4", "(20, 2)"), 159, "more values than the file can hold"},
        {DICTIONARY("<f4", "(20, 2)"), 161, "more bytes than its header says"},
        {DICTIONARY("<f4", "(4294967296, 4294967296)"), 160, "more values than the file"},
        {DICTIONARY("<f4", "(99999999999999999999, 2)"), 160, "header is damaged"},
        {DICTIONARY("<f4", "()"), 4, "a single number"},
        {DICTIONARY("<f4", "(0, 2)"), 0, "it is empty"},
        {DICTIONARY("<f4", "(1, 1, 1, 1, 1)"), 4, "more than 4 dimensions"},
        {"{'descr': '<f4', 'shape': (20, 2), }", 160, "header is damaged"},
        {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (20, 2)}", 160,
         "header is damaged"},
        {"{'descr': '<f4", 160, "header is damaged"},
        {"", 160, "header is damaged"},
        {DICTIONARY("<f4", "(20,)"), 80, "it has 1 dimension; it takes [N, D]"},
        {DICTIONARY("<f4", "(19, 2)"), 152, "it has 20 samples, but"},
    };
    static const float values[200] = {1.0F};
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_labels(&scratch);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        write_array(&scratch, "x", 1, all[i].dictionary, values, all[i].bytes);
        refused(&scratch, "npy:@/x,@/y",
                strstr(all[i].words, "it has ") != NULL ? RC_SHAPE : RC_FORMAT, all[i].words);
    }
    write_array(&scratch, "x", 4, DICTIONARY("<f4", "(20, 2)"), values, 160);
    refused(&scratch, "npy:@/x,@/y", RC_FORMAT, "version 4 of .npy is unknown");
    scratch_text(&scratch, "x", "\x93NUMPX\1 and more");
    refused(&scratch, "npy:@/x,@/y", RC_FORMAT, "not a .npy file");
    scratch_text(&scratch, "x", "\x93NU");
    refused(&scratch, "npy:@/x,@/y", RC_FORMAT, "ends too early");
    refused(&scratch, "npy:@/none,@/y", RC_NOT_FOUND, "no such file");
    refused(&scratch, "npy:@/x", RC_PARSE, "a file (X.npy,Y.npy) is missing");
    refused(&scratch, "npy:@/x,@/y,@/z", RC_PARSE, "expected key=value");
    refused(&scratch, "npy:@/x,@/y,test=3", RC_PARSE, "unknown key 'test'");
    scratch_deinit(&scratch);
}

/* Values no model could learn from are refused by the number of their sample. */
static void bad_values_are_refused(void **state)
{
    float values[ROWS * 2] = {0.0F};
    int32_t labels[ROWS] = {0};
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_labels(&scratch);
    values[15] = strtof("nan", NULL);
    write_array(&scratch, "x", 1, DICTIONARY("<f4", "(20, 2)"), values, sizeof values);
    refused(&scratch, "npy:@/x,@/y", RC_FORMAT, "sample 7 holds a NaN");
    values[15] = 0.0F;
    write_array(&scratch, "x", 1, DICTIONARY("<f4", "(20, 2)"), values, sizeof values);
    labels[3] = -1;
    write_array(&scratch, "y", 1, DICTIONARY("<i4", "(20,)"), labels, sizeof labels);
    refused(&scratch, "npy:@/x,@/y", RC_FORMAT, "sample 3 has label -1");
    labels[3] = 70000;
    write_array(&scratch, "y", 1, DICTIONARY("<i4", "(20,)"), labels, sizeof labels);
    refused(&scratch, "npy:@/x,@/y", RC_FORMAT, "labels run from 0 to 65535");
    write_array(&scratch, "y", 1, DICTIONARY("<i4", "(10, 2)"), labels, sizeof labels);
    refused(&scratch, "npy:@/x,@/y", RC_SHAPE, "labels are [N] whole numbers");
    scratch_deinit(&scratch);
}

/* More than 256 classes keep their numbers, and an array that changes under us is noticed. */
static void many_classes_and_changed_files(void **state)
{
    static const float values[ROWS * 2] = {1.0F};
    struct samples samples = {0};
    int32_t labels[ROWS] = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why = {""};
    struct batch batch;

    (void)state;
    scratch_init(&scratch);
    labels[10] = 50000;
    write_array(&scratch, "x", 1, DICTIONARY("<f4", "(20, 2)"), values, sizeof values);
    write_array(&scratch, "y", 1, DICTIONARY("<i4", "(20, 1)"), labels, sizeof labels);
    dataset = opened(&scratch, "npy:@/x,@/y");
    assert_int_equal(dataset_info(dataset)->classes, 50001);
    batch = part_of(dataset, true);
    assert_int_equal(batch.labels[2], 50000);
    batch_deinit(&batch);
    labels[10] = 50001;
    write_array(&scratch, "y", 1, DICTIONARY("<i4", "(20, 1)"), labels, sizeof labels);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "sample 10 has label 50001"));
    write_array(&scratch, "x", 1, DICTIONARY("<f4", "(10, 4)"), values, sizeof values);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "it has changed since the start"));
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

static void short_memory_is_reported_and_leaks_nothing(void **state)
{
    /* Proves: every failed allocation ends in RC_NOMEM and nothing is left behind. */
    static const float values[ROWS * 2] = {1.0F};
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_labels(&scratch);
    write_array(&scratch, "x", 1, DICTIONARY("<f4", "(20, 2)"), values, sizeof values);
    survive_short_memory(&scratch, "npy:@/x,@/y");
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vectors_of_every_type_are_standardised),
        cmocka_unit_test(byte_images_are_normalised_by_channel),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(bad_values_are_refused),
        cmocka_unit_test(many_classes_and_changed_files),
        cmocka_unit_test(short_memory_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
