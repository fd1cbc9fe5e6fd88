/* Texts: symbols, windows, parts, and what is refused. */
#include "tests/unit/replica/data_files.h"

enum { LETTERS = 1000 };

/* abcdefghij abcdefghij... */
static void write_alphabet(struct scratch *scratch, const char *name)
{
    char text[LETTERS];

    for (int i = 0; i < LETTERS; i++) {
        text[i] = (char)(i % 11 == 10 ? ' ' : 'a' + i % 11);
    }
    scratch_write(scratch, name, text, sizeof text);
}

/* A text becomes windows that do not overlap; the label of each symbol is its successor, symbols
 * are the sorted bytes of the file, and the last tenth is for validation. */
static void a_text_is_cut_into_windows_of_symbols(void **state)
{
    struct scratch scratch;
    struct dataset *dataset;
    const struct dataset_info *info;

    (void)state;
    scratch_init(&scratch);
    write_alphabet(&scratch, "t");
    dataset = opened(&scratch, "text:@/t,context=8");
    info = dataset_info(dataset);
    assert_int_equal(info->symbols, 11);
    assert_int_equal(info->classes, 11);
    assert_int_equal(info->outputs, 11);
    assert_int_equal(info->width, 8);
    assert_int_equal(info->labels_per_sample, 8);
    assert_int_equal(info->input, DATA_TOKENS);
    assert_int_equal(info->target, DATA_NEXT_TOKEN);
    assert_memory_equal(info->symbol_bytes, " abcdefghij", 11);
    assert_int_equal(info->train_samples, (900 - 1) / 8);
    assert_int_equal(info->test_samples, (100 - 1) / 8);
    for (int is_test = 0; is_test < 2; is_test++) {
        struct batch batch = part_of(dataset, is_test == 1);
        for (uint32_t i = 0; i < batch.rows * 8; i++) {
            uint32_t at = i + (is_test == 1 ? 900 : 0);
            assert_int_equal((int)batch.values[i], at % 11 == 10 ? 0 : at % 11 + 1);
            assert_int_equal(batch.labels[i], (at + 1) % 11 == 10 ? 0 : (at + 1) % 11 + 1);
        }
        batch_deinit(&batch);
    }
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* a shard of blocks holds just its windows, and a compressed text the same as a plain one. */
static void a_compressed_text_gives_the_same_blocks(void **state)
{
    enum { WINDOWS = (27000 - 1) / 64 };
    bool wanted[WINDOWS] = {false};
    struct samples samples[2] = {{0}};
    struct scratch scratch;
    char *text = calloc(1, 30000);

    (void)state;
    memset(wanted + 256, true, WINDOWS - 256);
    scratch_init(&scratch);
    for (int i = 0; i < 30000; i++) {
        text[i] = (char)('A' + i * i % 23);
    }
    scratch_write(&scratch, "t", text, 30000);
    scratch_write(&scratch, "u", text, 30000);
    scratch_gzip(&scratch, "u");
    for (int i = 0; i < 2; i++) {
        struct dataset *dataset =
            opened(&scratch, i == 0 ? "text:@/t,context=64" : "text:@/u.gz,context=64");
        assert_int_equal(dataset_info(dataset)->blocks, WINDOWS);
        assert_int_equal(dataset_load_blocks(dataset, wanted, &samples[i], NULL), RC_OK);
        assert_int_equal(samples[i].count, WINDOWS - 256);
        dataset_close(dataset);
    }
    assert_memory_equal(samples[0].bytes, samples[1].bytes, samples[0].count * 65);
    samples_deinit(&samples[0]);
    samples_deinit(&samples[1]);
    free(text);
    scratch_deinit(&scratch);
}

/* The window is the model's or the spec's, the two must agree, and without either it is 128. */
static void the_window_is_the_one_both_want(void **state)
{
    struct dataset_options options = {.seed = 1, .context = 16};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why = {""};
    char *text = calloc(1, 4000);

    (void)state;
    scratch_init(&scratch);
    memset(text, 'x', 4000);
    scratch_write(&scratch, "t", text, 4000);
    free(text);
    assert_int_equal(open_spec(&scratch, "text:@/t", &options, &dataset, &why), RC_OK);
    assert_int_equal(dataset_info(dataset)->width, 16);
    dataset_close(dataset);
    assert_int_equal(open_spec(&scratch, "text:@/t,context=16", &options, &dataset, &why), RC_OK);
    dataset_close(dataset);
    assert_int_equal(open_spec(&scratch, "text:@/t,context=17", &options, &dataset, &why),
                     RC_USAGE);
    assert_non_null(strstr(why.text, "the model reads 16 tokens at a time"));
    dataset = opened(&scratch, "text:@/t");
    assert_int_equal(dataset_info(dataset)->width, 128);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* What cannot be a text is refused in one line that says why. */
static void bad_texts_are_refused(void **state)
{
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_alphabet(&scratch, "t");
    scratch_text(&scratch, "empty", "");
    scratch_text(&scratch, "fake.gz", "plain");
    refused(&scratch, "text:@/none", RC_NOT_FOUND, "no such file; pass --data text:FILE");
    refused(&scratch, "text:@", RC_FORMAT, "it is a folder");
    refused(&scratch, "text:@/empty", RC_FORMAT, "its 0 bytes are too few for windows of 128");
    refused(&scratch, "text:@/t,context=100", RC_FORMAT, "it takes 1010");
    refused(&scratch, "text:@/fake.gz", RC_FORMAT, "it is not gzip data");
    refused(&scratch, "text", RC_PARSE, "column 5: the file is missing");
    refused(&scratch, "text:", RC_PARSE, "column 6: the file is missing");
    refused(&scratch, "text:@/t,contxt=3", RC_PARSE, "did you mean context?");
    refused(&scratch, "text:@/t,context=0", RC_PARSE, "context must be a whole number from 1");
    refused(&scratch, "text:@/t,context=4,context=4", RC_PARSE, "'context' is given twice");
    refused(&scratch, "text:@/t,context", RC_PARSE, "expected key=value, not 'context'");
    refused(&scratch, "text:@/t,context=", RC_PARSE, "expected key=value");
    scratch_deinit(&scratch);
}

/* A text that changes under us is an error, never a wrong sample: shorter, other bytes, damaged. */
static void a_text_that_changes_is_noticed(void **state)
{
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why = {""};

    (void)state;
    scratch_init(&scratch);
    write_alphabet(&scratch, "t");
    dataset = opened(&scratch, "text:@/t,context=8");
    scratch_text(&scratch, "t", "abc");
    assert_int_equal(dataset_load_test(dataset, 0, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "ends too early"));
    scratch_text(&scratch, "t", "ABCDEFGHIJKLMNOPQRSTUVWXYZ");
    assert_int_equal(dataset_load_list(dataset, (uint32_t[]){0}, 1, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "it has changed since the start"));
    assert_int_equal(dataset_load_labels(dataset, (uint32_t *[]){NULL}, &why), RC_USAGE);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

static void short_memory_is_reported_and_leaks_nothing(void **state)
{
    /* Proves: every failed allocation ends in RC_NOMEM and nothing is left behind. */
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_alphabet(&scratch, "t");
    survive_short_memory(&scratch, "text:@/t,context=8");
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_cut_into_windows_of_symbols),
        cmocka_unit_test(a_compressed_text_gives_the_same_blocks),
        cmocka_unit_test(the_window_is_the_one_both_want),
        cmocka_unit_test(bad_texts_are_refused),
        cmocka_unit_test(a_text_that_changes_is_noticed),
        cmocka_unit_test(short_memory_is_reported_and_leaks_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
