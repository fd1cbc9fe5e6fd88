/* Rows to predict from: images, CSV, .npy and IDX, each in the model's size or refused. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/readers/input_rows.h"
#include "tests/scratch.h"

#include <math.h>

static const struct input_shape vector = {3, 1, 1}, picture = {1, 2, 2};

/* All rows of a file, up to `max` values; the code and the words of what ended it. */
static enum rc read_all(const char *path, struct input_shape shape, float *values, size_t *rows,
                        struct fault *why)
{
    size_t each = (size_t)shape.channels * shape.height * shape.width;
    struct input_rows *input = NULL;
    bool is_there = true;
    enum rc rc = input_rows_open(path, shape, &input, why);

    *rows = 0;
    while (rc == RC_OK) {
        rc = input_rows_next(input, values + *rows * each, &is_there, why);
        if (rc != RC_OK || !is_there) break;
        ++*rows;
    }
    input_rows_close(input);
    return rc;
}

static enum rc read_bytes(const char *name, const void *bytes, size_t count,
                          struct input_shape shape, float *values, size_t *rows, struct fault *why)
{
    struct scratch scratch;
    enum rc rc;

    scratch_init(&scratch);
    scratch_write(&scratch, name, bytes, count);
    rc = read_all(scratch_path(&scratch, name), shape, values, rows, why);
    scratch_deinit(&scratch);
    return rc;
}

static enum rc read_text(const char *text, float *values, size_t *rows, struct fault *why)
{
    return read_bytes("x.csv", text, strlen(text), vector, values, rows, why);
}

static void columns_are_looked_up_by_name_where_there_are_names(void **state)
{
    /* In any order, among others; a missing one is told; rows without names are taken by place. */
    static const char *const texts[] = {"c,label,a,b\n3,x,1,2\n", "1,2,3\n", "a,b,z\n1,2,3\n"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(texts); i++) {
        struct scratch scratch;
        struct input_rows *rows = NULL;
        struct fault why = {""};
        float values[3] = {0};
        bool is_there = false;
        enum rc rc;

        scratch_init(&scratch);
        scratch_write(&scratch, "x.csv", texts[i], strlen(texts[i]));
        assert_int_equal(input_rows_open(scratch_path(&scratch, "x.csv"), vector, &rows, &why),
                         RC_OK);
        input_rows_name(rows, "a\nb\nc\n");
        rc = input_rows_next(rows, values, &is_there, &why);
        if (i < 2) {
            assert_int_equal(rc, RC_OK);
            assert_true(is_there && values[0] == 1 && values[1] == 2 && values[2] == 3);
        } else {
            assert_int_equal(rc, RC_MISMATCH);
            assert_non_null(strstr(why.text, "no column called 'c'"));
        }
        input_rows_close(rows);
        scratch_deinit(&scratch);
    }
}

static void rows_of_a_csv_are_numbers_with_or_without_a_header(void **state)
{
    /* A first row that is no numbers is skipped. */
    float values[16];
    size_t rows;
    struct fault why = {""};

    (void)state;
    assert_int_equal(read_text("1,2.5,-3e1\n4, 5,6\n", values, &rows, &why), RC_OK);
    assert_int_equal(rows, 2);
    assert_float_equal(values[2], -30.0F, 0);
    assert_float_equal(values[4], 5.0F, 0);
    assert_int_equal(read_text("a,b,c\n1,2,3\n", values, &rows, &why), RC_OK);
    assert_int_equal(rows, 1);
    assert_float_equal(values[0], 1.0F, 0);
}

static void a_csv_that_does_not_fit_is_told_by_line_and_column(void **state)
{
    /* Another number of fields, words, NaN, a number beyond float32. */
    static const struct {
        const char *text, *says;
    } rows[] = {
        {"1,2\n", "2 fields, but the model reads 3"},
        {"1,2,3,4\n", "take the label's column out"},
        {"1,2,3\n1,two,3\n", "line 2: column 2: 'two'"},
        {"a,b,c\nd,e,f\n", "line 2: column 1: 'd'"},
        {"1,2,3\n1,nan,3\n", "'nan' is not a number"},
        {"1,2,3\n1,2,1e30\n", "'1e30' is not a number"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(rows); i++) {
        float values[16];
        size_t count;
        struct fault why = {""};
        assert_int_equal(read_text(rows[i].text, values, &count, &why), RC_FORMAT);
        assert_non_null(strstr(why.text, rows[i].says));
    }
}

static void a_picture_is_one_row_of_the_models_size(void **state)
{
    /* The wanted size is named where it is another. */
    float values[16];
    size_t rows;
    struct fault why = {""};

    (void)state;
    assert_int_equal(
        read_bytes("x.pgm", "P5 2 2 255 \0\xff\0\xff", 15, picture, values, &rows, &why), RC_OK);
    assert_int_equal(rows, 1);
    assert_float_equal(values[1], 1.0F, 0);
    assert_int_equal(read_bytes("x.pgm", "P5 3 1 255 abc", 14, picture, values, &rows, &why),
                     RC_SHAPE);
    assert_non_null(strstr(why.text, "it is 3x1 pixels, the model reads 2x2; scale it first"));
    assert_int_equal(
        read_bytes("x.pgm", "P5 1 1 255 a", 12, (struct input_shape){2, 1, 1}, values, &rows, &why),
        RC_SHAPE);
}

static void idx_images_are_read_one_by_one(void **state)
{
    /* Two images of 2 x 2; cut short; of another size. */
    static const uint8_t file[] = {0, 0, 8, 3, 0, 0,  0,   2,   0,   0, 0, 2,
                                   0, 0, 0, 2, 0, 51, 102, 255, 255, 0, 0, 0};
    float values[16];
    size_t rows;
    struct fault why = {""};

    (void)state;
    assert_int_equal(read_bytes("x-ubyte", file, sizeof file, picture, values, &rows, &why), RC_OK);
    assert_int_equal(rows, 2);
    assert_float_equal(values[1], 0.2F, 1e-6F);
    assert_float_equal(values[4], 1.0F, 0);
    assert_int_equal(read_bytes("x-ubyte", file, sizeof file - 1, picture, values, &rows, &why),
                     RC_FORMAT);
    assert_int_equal(read_bytes("x-ubyte", file, sizeof file, vector, values, &rows, &why),
                     RC_SHAPE);
    assert_non_null(strstr(why.text, "2x2 in 1 channel"));
}

/* A .npy file of float32 values. */
static size_t npy_of(const char *shape, const float *values, size_t count, uint8_t *file)
{
    char header[128];
    int length = snprintf(header, sizeof header,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': %s, }", shape);

    memset(header + length, ' ', 117 - (size_t)length);
    header[117] = '\n';
    memcpy(file, "\x93NUMPY\x01\0\x76\0", 10);
    memcpy(file + 10, header, 118);
    memcpy(file + 128, values, count * sizeof *values);
    return 128 + count * sizeof *values;
}

static void arrays_hold_samples_on_their_first_axis_or_are_one(void **state)
{
    /* (2, 3), (3,) as one sample, NaN, another size. */
    const float good[] = {1, 2, 3, 4, 5, 6}, bad[] = {1, 2, 3, 4, NAN, 6};
    uint8_t file[256];
    float values[16];
    size_t rows, count;
    struct fault why = {""};

    (void)state;
    count = npy_of("(2, 3)", good, 6, file);
    assert_int_equal(read_bytes("x.npy", file, count, vector, values, &rows, &why), RC_OK);
    assert_int_equal(rows, 2);
    assert_float_equal(values[5], 6.0F, 0);
    count = npy_of("(3,)", good, 3, file);
    assert_int_equal(read_bytes("x.npy", file, count, vector, values, &rows, &why), RC_OK);
    assert_int_equal(rows, 1);
    count = npy_of("(2, 3)", bad, 6, file);
    assert_int_equal(read_bytes("x.npy", file, count, vector, values, &rows, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "sample 1 holds a NaN"));
    count = npy_of("(3, 2)", good, 6, file);
    assert_int_equal(read_bytes("x.npy", file, count, vector, values, &rows, &why), RC_SHAPE);
    assert_non_null(strstr(why.text, "its samples have 2 values, the model's 3"));
}

static void memory_that_is_short_leaks_nothing(void **state)
{
    /* Whichever allocation fails. */
    struct scratch scratch;
    const float good[] = {1, 2, 3};
    uint8_t file[256];
    enum rc rc = RC_NOMEM;

    (void)state;
    scratch_init(&scratch);
    scratch_write(&scratch, "x.npy", file, npy_of("(1, 3)", good, 3, file));
    for (uint64_t after = 0; rc == RC_NOMEM; after++) {
        const char *path = scratch_path(&scratch, "x.npy");
        uint64_t blocks = mem_blocks();
        float values[16];
        size_t rows;
        struct fault why = {""};
        mem_fail_after(after);
        rc = read_all(path, vector, values, &rows, &why);
        mem_fail_after(UINT64_MAX);
        assert_int_equal(mem_blocks(), blocks);
    }
    assert_int_equal(rc, RC_OK);
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_are_looked_up_by_name_where_there_are_names),
        cmocka_unit_test(rows_of_a_csv_are_numbers_with_or_without_a_header),
        cmocka_unit_test(a_csv_that_does_not_fit_is_told_by_line_and_column),
        cmocka_unit_test(a_picture_is_one_row_of_the_models_size),
        cmocka_unit_test(idx_images_are_read_one_by_one),
        cmocka_unit_test(arrays_hold_samples_on_their_first_axis_or_are_one),
        cmocka_unit_test(memory_that_is_short_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
