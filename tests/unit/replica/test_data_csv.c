/* CSV: rows, roles of columns, classes, and what is refused. */
#include "tests/unit/replica/data_files.h"

#include "replica/readers/csv_rows.h"

#include <math.h>

/* Rows of the form a, b, class; row i is (i, 100 + 2 i, word i % 3). */
static void write_table(struct scratch *scratch, const char *name, const char *head, int rows,
                        const char *const words[3])
{
    char text[8192];
    size_t at = (size_t)snprintf(text, sizeof text, "%s", head);

    for (int i = 0; i < rows; i++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "%d,%d,%s\n", i, 100 + 2 * i,
                               words[i % 3]);
    }
    scratch_write(scratch, name, text, at);
}

static const char *const quoted[3] = {"setosa", "\"virginica\"", "\"iris, \"\"blue\"\"\""};
static const char *const numbers[3] = {"0", "3", "1"};

static enum rc open_labels(const struct scratch *scratch, const char *labels, const char *of,
                           struct dataset **dataset, struct fault *why)
{
    const struct dataset_options options = {.seed = 1, .labels = labels, .labels_of = of};

    return open_spec(scratch, "csv:@/t,label=kind", &options, dataset, why);
}

/* Classes that are said beforehand have that order, whichever of them the file has; a label that is
 * none of them is refused by its name, and so is a list that is none. */
static void labels_that_are_given_are_the_classes(void **state)
{
    static const char *const words[3] = {"b", "7", "b"};
    static const struct {
        const char *labels, *words;
        enum rc rc;
        const char *of;
    } bad[] = {
        {"b\na\n", "label '7' is none of the classes that were given: b,a", RC_MISMATCH, NULL},
        {"b\na\n", "label '7' is none of the model's classes: b,a", RC_MISMATCH,
         "the model's classes"},
        {"7\nb\n7\n", "'7' is there twice", RC_USAGE, NULL},
        {"7\n\nb\n", "one is empty", RC_USAGE, NULL},
    };
    struct scratch scratch;
    struct dataset *dataset = NULL;
    struct batch train;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t", "a,b,kind\n", 15, words);
    assert_int_equal(open_labels(&scratch, "z\nb\na\n7\n", NULL, &dataset, &why), RC_OK);
    assert_int_equal(dataset_info(dataset)->classes, 4);
    assert_string_equal(dataset_info(dataset)->class_words[0], "z");
    assert_string_equal(dataset_info(dataset)->class_words[3], "7");
    train = part_of(dataset, false);
    for (uint32_t i = 0, row = 0; row < 15; row++) { /* every fifth is for testing */
        if (row % 5 != 0) assert_int_equal(train.labels[i++], row % 3 == 1 ? 3 : 1);
    }
    batch_deinit(&train);
    dataset_close(dataset);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        uint64_t blocks = mem_blocks();

        assert_int_equal(open_labels(&scratch, bad[i].labels, bad[i].of, &dataset, &why),
                         bad[i].rc);
        if (strstr(why.text, bad[i].words) == NULL) fail_msg("%s", why.text);
        assert_int_equal(mem_blocks(), blocks);
    }
    scratch_deinit(&scratch);
}

/* Means and deviations of the file are told beside what it is normalised by, which can be set. */
static void what_was_measured_stays_when_the_normalisation_is_set(void **state)
{
    static const float mean[2] = {1, 2}, scale[2] = {0.5F, 4};
    struct scratch scratch;
    struct dataset *dataset;
    const struct dataset_info *info;
    struct batch train;
    float before, measured;

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t", "a,b,kind\n", 50, numbers);
    dataset = opened(&scratch, "csv:@/t,label=kind");
    info = dataset_info(dataset);
    measured = info->measured[0];
    assert_float_equal(info->measured[0], info->mean[0], 0);
    assert_float_equal(info->measured[2] * info->scale[0], 1.0, 1e-6);
    train = part_of(dataset, false);
    before = train.values[0] / info->scale[0] + info->mean[0];
    batch_deinit(&train);
    dataset_set_normal(dataset, mean, scale);
    train = part_of(dataset, false);
    assert_float_equal(train.values[0], (before - 1) / 2, 1e-4);
    assert_float_equal(info->measured[0], measured, 0);
    batch_deinit(&train);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Words are the classes in their sorted order; the header is found by its name; every fifth row is
 * for testing and the training rows' features have mean 0 and deviation 1. */
static void words_are_classes_and_features_are_standardised(void **state)
{
    static const uint32_t sorted[3] = {1, 2, 0};
    struct scratch scratch;
    struct dataset *dataset;
    struct batch train, test;
    double sum = 0.0, squares = 0.0;

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t",
                "\xEF\xBB\xBF"
                "a,b,kind\r\n\r\n",
                50, quoted);
    dataset = opened(&scratch, "csv:@/t,label=kind");
    assert_int_equal(dataset_info(dataset)->classes, 3);
    assert_int_equal(dataset_info(dataset)->input, DATA_VECTORS);
    assert_int_equal(dataset_info(dataset)->channels, 2);
    assert_int_equal(dataset_info(dataset)->train_samples, 40);
    assert_int_equal(dataset_info(dataset)->test_samples, 10);
    train = part_of(dataset, false);
    test = part_of(dataset, true);
    for (uint32_t i = 0; i < 10; i++) { /* row 5 i: iris < setosa < virginica */
        assert_int_equal(test.labels[i], sorted[5 * i % 3]);
    }
    for (uint32_t i = 0; i < 40; i++) {
        sum += (double)train.values[2 * i];
        squares += (double)train.values[2 * i] * (double)train.values[2 * i];
        assert_float_equal(train.values[2 * i], train.values[2 * i + 1], 1e-5);
    }
    assert_float_equal(sum / 40, 0.0, 1e-5);
    assert_float_equal(squares / 40, 1.0, 1e-5);
    batch_deinit(&train);
    batch_deinit(&test);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Without a header the column has a number; whole numbers are classes as they are. */
static void whole_numbers_are_their_own_classes(void **state)
{
    struct scratch scratch;
    struct dataset *dataset;
    uint32_t *labels = NULL;

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t", "", 20, numbers);
    dataset = opened(&scratch, "csv:@/t,label=3");
    assert_int_equal(dataset_info(dataset)->classes, 4);
    assert_int_equal(dataset_info(dataset)->train_samples, 16);
    assert_int_equal(dataset_load_labels(dataset, &labels, NULL), RC_OK);
    assert_int_equal(labels[0], 3); /* row 1 */
    assert_int_equal(labels[1], 1);
    assert_int_equal(labels[2], 0);
    mem_free(labels);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Target columns are real values, untouched, in the order of the spec; another file can hold the
 * rows for testing. */
static void targets_are_numbers_to_predict(void **state)
{
    struct scratch scratch;
    struct dataset *dataset;
    struct batch batch;

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t", "a,b,c\n", 20, numbers);
    write_table(&scratch, "u", "a,b,c\n", 3, numbers);
    dataset = opened(&scratch, "csv:@/t,target=b,target=1,test=@/u");
    assert_int_equal(dataset_info(dataset)->target, DATA_REALS);
    assert_int_equal(dataset_info(dataset)->outputs, 2);
    assert_int_equal(dataset_info(dataset)->classes, 0);
    assert_int_equal(dataset_info(dataset)->labels_per_sample, 0);
    assert_int_equal(dataset_info(dataset)->channels, 1);
    assert_int_equal(dataset_info(dataset)->train_samples, 20);
    assert_int_equal(dataset_info(dataset)->test_samples, 3);
    batch = part_of(dataset, true);
    assert_null(batch.labels);
    for (uint32_t i = 0; i < 3; i++) {
        assert_float_equal(batch.targets[2 * i], (float)(100 + 2 * i), 0.0);
        assert_float_equal(batch.targets[2 * i + 1], (float)i, 0.0);
    }
    batch_deinit(&batch);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Quotes, blanks and line ends are those of RFC 4180. */
static void rows_are_read_as_the_standard_says(void **state)
{
    static const char text[] = "a, \"b,\"\"c\" ,\r\n\n  \n\"two\nlines\",x y ,\"\"\nlast,1,2";
    struct csv_rows *rows = NULL;
    struct csv_row row;
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    scratch_text(&scratch, "t", text);
    assert_int_equal(csv_rows_open(scratch_path(&scratch, "t"), &rows, NULL), RC_OK);
    assert_int_equal(csv_rows_next(rows, &row, NULL), RC_OK);
    assert_int_equal(row.fields, 3);
    assert_int_equal(row.line, 1);
    assert_string_equal(csv_field(&row, 0), "a");
    assert_string_equal(csv_field(&row, 1), "b,\"c");
    assert_string_equal(csv_field(&row, 2), "");
    assert_int_equal(csv_rows_next(rows, &row, NULL), RC_OK);
    assert_int_equal(row.line, 4);
    assert_string_equal(csv_field(&row, 0), "two\nlines");
    assert_string_equal(csv_field(&row, 1), "x y");
    assert_string_equal(csv_field(&row, 2), "");
    assert_int_equal(csv_rows_next(rows, &row, NULL), RC_OK);
    assert_int_equal(row.line, 6);
    assert_string_equal(csv_field(&row, 2), "2");
    assert_int_equal(csv_rows_next(rows, &row, NULL), RC_OK);
    assert_int_equal(row.fields, 0);
    csv_rows_close(rows);
    scratch_deinit(&scratch);
}

struct bad {
    const char *text, *spec;
    enum rc rc;
    const char *words;
};

/* A table that cannot be used is refused with its line and column, and what to do. */
static void bad_tables_are_refused(void **state)
{
    static const struct bad all[] = {
        {"1,2,x\n3,oops,y\n", "csv:@/t,label=3", RC_FORMAT, "line 2: column 2: 'oops' is not a"},
        {"1,2,x\n3,\"a\nb\033\",y\n", "csv:@/t,label=3", RC_FORMAT, "'a?b?' is not a number"},
        {"1,2,x\n3,,y\n", "csv:@/t,label=3", RC_FORMAT, "line 2: column 2: empty"},
        {"1,nan,x\n3,1,y\n3,inf,y\n", "csv:@/t,label=3", RC_FORMAT, "line 3: column 2: 'inf'"},
        {"1,1e99,x\n3,1,y\n2,1e99,x\n", "csv:@/t,label=3", RC_FORMAT, "line 3: column 2: '1e99'"},
        {"1,2,x\n3,y\n", "csv:@/t,label=3", RC_FORMAT, "line 2: 2 fields, but there are 3"},
        {"1,2,x\n1,2,\n", "csv:@/t,label=3", RC_FORMAT, "line 2: the label is empty"},
        {"1,\"2,x\n", "csv:@/t,label=3", RC_FORMAT, "line 1: a quote opens here"},
        {"1,\"2\"2,x\n", "csv:@/t,label=3", RC_FORMAT, "line 1: text after a closing quote"},
        {"", "csv:@/t,label=3", RC_FORMAT, "it has no rows"},
        {"a,b,c\n", "csv:@/t,label=c", RC_FORMAT, "too few rows"},
        {"x\ny\n", "csv:@/t,label=1", RC_FORMAT, "no column is left to learn from"},
        {"1,2,x\n", "csv:@/t", RC_PARSE, "it takes label=COLUMN (classes) or target=COLUMN"},
        {"1,2,x\n", "csv:@/t,label=3,target=1", RC_PARSE, "it takes label=COLUMN (classes) or"},
        {"1,2,x\n", "csv:@/t,label=4", RC_PARSE, "there is no column 4; the file has 3"},
        {"1,2,x\n", "csv:@/t,label=0", RC_PARSE, "there is no column 0"},
        {"1,2,x\n", "csv:@/t,label=kind", RC_PARSE,
         "no column is called 'kind'; the first row is 1,2,x"},
        {"1,2,3\n", "csv:@/t,target=1,target=1", RC_PARSE, "the column is taken already"},
        {"1,2,x\n", "csv:@/t,label=3,header=maybe", RC_PARSE, "header is yes or no"},
        {"1,2,x\n", "csv:@/t,label=3,label=2", RC_PARSE, "'label' is given twice"},
        {"1,2,x\n", "csv:@/none,label=3", RC_NOT_FOUND, "no such file"},
        {"1,2,x\n1,2,y\n", "csv:@/t,label=3,test=@/none", RC_NOT_FOUND, "no such file"},
    };
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        scratch_text(&scratch, "t", all[i].text);
        refused(&scratch, all[i].spec, all[i].rc, all[i].words);
    }
    scratch_write(&scratch, "t", "1,2,x\n1,\0,y\n", 12);
    refused(&scratch, "csv:@/t,label=3", RC_FORMAT, "line 2: a byte of value 0");
    scratch_deinit(&scratch);
}

/* Rows, fields and labels have limits; reaching one is an error that names it. */
/* The same numbers, whatever the order of the columns: in the file for testing, and of a model that
 * says which it reads; one that lacks a column is refused by its name. */
static void columns_are_known_by_their_names(void **state)
{
    static const char train[] = "a,b,kind\n1,10,x\n2,20,y\n4,40,x\n5,50,y\n";
    static const char turned[] = "kind,b,a\nx,30,3\ny,60,6\n";
    static const char more[] = "extra,b,kind,a\n7,10,x,1\n7,20,y,2\n7,40,x,4\n7,50,y,5\n9,1,x,1\n";
    struct scratch scratch;
    struct dataset *dataset;
    struct batch test;
    struct fault why = {""};
    const struct dataset_options named = {.seed = 1, .columns = "a\nb\n"};
    const struct dataset_options missing = {.seed = 1, .columns = "a\nc\n"};

    (void)state;
    scratch_init(&scratch);
    scratch_text(&scratch, "t.csv", train);
    scratch_text(&scratch, "turned.csv", turned);
    scratch_text(&scratch, "more.csv", more);
    dataset = opened(&scratch, "csv:@/t.csv,label=kind,test=@/turned.csv");
    test = part_of(dataset, true);
    assert_int_equal(test.rows, 2);
    for (uint32_t i = 0; i < 2; i++) { /* b = 10 a: standardised they are equal */
        assert_float_equal(test.values[2 * i], test.values[2 * i + 1], 1e-5);
        assert_int_equal(test.labels[i], i);
    }
    assert_string_equal(dataset_info(dataset)->column_names[0], "a");
    batch_deinit(&test);
    dataset_close(dataset);
    assert_int_equal(open_spec(&scratch, "csv:@/more.csv,label=kind", &named, &dataset, &why),
                     RC_OK);
    assert_int_equal(dataset_info(dataset)->channels, 2);
    assert_string_equal(dataset_info(dataset)->column_names[0], "a");
    assert_true(dataset_info(dataset)->mean[0] < dataset_info(dataset)->mean[1]);
    dataset_close(dataset);
    assert_int_equal(open_spec(&scratch, "csv:@/t.csv,label=kind", &missing, &dataset, &why),
                     RC_MISMATCH);
    assert_non_null(strstr(why.text, "no column called 'c'"));
    refused(&scratch, "csv:@/t.csv,label=kind,test=@/other.csv", RC_NOT_FOUND, "other.csv");
    scratch_text(&scratch, "other.csv", "a,c,kind\n1,10,x\n");
    refused(&scratch, "csv:@/t.csv,label=kind,test=@/other.csv", RC_FORMAT, "'c'");
    scratch_deinit(&scratch);
}

static void endless_rows_are_refused(void **state)
{
    char *text = malloc(CSV_ROW_BYTES_MAX + 16);
    struct scratch scratch;
    size_t at = 0;

    (void)state;
    scratch_init(&scratch);
    memset(text, '1', CSV_ROW_BYTES_MAX + 1);
    scratch_write(&scratch, "t", text, CSV_ROW_BYTES_MAX + 1);
    refused(&scratch, "csv:@/t,label=1", RC_FORMAT, "a row of more than 1048576 bytes");
    memset(text, ',', CSV_FIELDS_MAX);
    scratch_write(&scratch, "t", text, CSV_FIELDS_MAX);
    refused(&scratch, "csv:@/t,label=1", RC_FORMAT, "more than 65536 fields");
    for (int i = 0; i < 5000; i++) {
        at += (size_t)sprintf(text + at, "1,w%d\n", i);
    }
    scratch_write(&scratch, "t", text, at);
    refused(&scratch, "csv:@/t,label=2", RC_FORMAT, "more than 4096 different labels");
    free(text);
    scratch_deinit(&scratch);
}

/* A table that changes under us is an error, never a wrong sample. */
static void a_table_that_changes_is_noticed(void **state)
{
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t", "", 20, numbers);
    dataset = opened(&scratch, "csv:@/t,label=3");
    write_table(&scratch, "t", "", 15, numbers);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "it has changed since the start"));
    write_table(&scratch, "t", "", 20, quoted);
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "line 1: label 'setosa' is new"));
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

static void short_memory_is_reported_and_leaks_nothing(void **state)
{
    /* Proves: every failed allocation ends in RC_NOMEM and nothing is left behind. */
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_table(&scratch, "t", "a,b,c\n", 20, quoted);
    survive_short_memory(&scratch, "csv:@/t,label=c");
    survive_short_memory(&scratch, "csv:@/t,label=c,test=@/t");
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(labels_that_are_given_are_the_classes),
        cmocka_unit_test(what_was_measured_stays_when_the_normalisation_is_set),
        cmocka_unit_test(words_are_classes_and_features_are_standardised),
        cmocka_unit_test(whole_numbers_are_their_own_classes),
        cmocka_unit_test(targets_are_numbers_to_predict),
        cmocka_unit_test(rows_are_read_as_the_standard_says),
        cmocka_unit_test(bad_tables_are_refused),
        cmocka_unit_test(columns_are_known_by_their_names),
        cmocka_unit_test(endless_rows_are_refused),
        cmocka_unit_test(a_table_that_changes_is_noticed),
        cmocka_unit_test(short_memory_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
