/* Files of tokens: forms, windows, parts, and numbers that are checked as they are read. */
#include "tests/unit/replica/data_files.h"

#include "base/bytes.h"
#include "replica/readers/token_file.h"

enum { TOKENS = 1000 };

/* 0, 1, 2, ... in files of either width, with or without a header. */
static void write_tokens(struct scratch *scratch, const char *name, uint32_t width, bool has_header,
                         uint32_t first, uint32_t count)
{
    static uint8_t bytes[TOKEN_HEADER_BYTES + 4 * TOKENS];
    struct token_form form = {.width = width, .symbols = 5000, .tokens = count};
    size_t at = has_header ? TOKEN_HEADER_BYTES : 0;

    token_form_write(&form, bytes);
    for (uint32_t i = 0; i < count; i++, at += width) {
        if (width == 2)
            store_le16(bytes + at, (uint16_t)(first + i));
        else
            store_le32(bytes + at, first + i);
    }
    scratch_write(scratch, name, bytes, at);
}

static void check_part(struct dataset *dataset, bool is_test, uint32_t first)
{
    struct batch batch = part_of(dataset, is_test);
    uint32_t width = dataset_info(dataset)->width;

    for (uint32_t i = 0; i < batch.rows * width; i++) {
        assert_int_equal((uint32_t)batch.values[i], first + i);
        assert_int_equal(batch.labels[i], first + i + 1);
    }
    batch_deinit(&batch);
}

/* Each form gives the same windows, the last tenth of which is for validation. */
static void every_form_is_cut_into_windows(void **state)
{
    static const struct {
        const char *spec;
        uint32_t width;
        bool has_header;
    } forms[] = {{"tokens:@/t,context=8", 2, true},
                 {"tokens:@/t,context=8", 4, true},
                 {"tokens:@/t,context=8,symbols=1000", 2, false},
                 {"tokens:@/t,context=8,symbols=1000,bits=32", 4, false}};
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
        struct dataset *dataset;
        write_tokens(&scratch, "t", forms[i].width, forms[i].has_header, 0, TOKENS);
        dataset = opened(&scratch, forms[i].spec);
        assert_int_equal(dataset_info(dataset)->symbols, forms[i].has_header ? 5000 : 1000);
        assert_int_equal(dataset_info(dataset)->train_samples, 111);
        assert_int_equal(dataset_info(dataset)->test_samples, 13);
        check_part(dataset, false, 0);
        check_part(dataset, true, 111 * 8);
        dataset_close(dataset);
    }
    scratch_deinit(&scratch);
}

/* A folder's files one after another by name, those for validation apart; windows stay in a file.
 */
static void a_folder_is_many_files(void **state)
{
    struct scratch scratch;
    struct dataset *dataset;
    struct batch batch;

    (void)state;
    scratch_init(&scratch);
    write_tokens(&scratch, "train_2.bin", 4, true, 1000, 21);
    write_tokens(&scratch, "train_1.bin", 2, true, 0, 18);
    write_tokens(&scratch, "val.bin", 2, true, 500, 11);
    write_tokens(&scratch, "else.txt", 2, true, 0, 11);
    dataset = opened(&scratch, "tokens:@,context=10");
    assert_int_equal(dataset_info(dataset)->train_samples, 3);
    assert_int_equal(dataset_info(dataset)->test_samples, 1);
    check_part(dataset, true, 500);
    batch = part_of(dataset, false);
    assert_int_equal((int)batch.values[0], 0);
    assert_int_equal((int)batch.values[10], 1000);
    assert_int_equal((int)batch.values[20], 1010);
    assert_int_equal(batch.labels[29], 1020);
    batch_deinit(&batch);
    dataset_close(dataset);
    dataset = opened(&scratch, "tokens:@/train_2.bin,context=10,test=@/val.bin");
    assert_int_equal(dataset_info(dataset)->train_samples, 2);
    check_part(dataset, true, 500);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

/* Windows longer than what is read at once. */
static void long_windows_are_whole(void **state)
{
    enum { LONG = 2500 };
    static uint8_t bytes[2 * 10 * LONG + 2];
    struct scratch scratch;
    struct dataset *dataset;

    (void)state;
    scratch_init(&scratch);
    for (uint32_t i = 0; i < sizeof bytes / 2; i++) {
        store_le16(bytes + 2 * (size_t)i, (uint16_t)i);
    }
    scratch_write(&scratch, "t", bytes, sizeof bytes);
    dataset = opened(&scratch, "tokens:@/t,context=2500,symbols=30000");
    check_part(dataset, false, 0);
    check_part(dataset, true, 9 * LONG);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

static enum rc gather_first(struct dataset *dataset)
{
    struct samples samples = {0};
    struct batch batch;
    struct fault why = {""};
    enum rc rc;

    assert_int_equal(dataset_load_test(dataset, 1, &samples, &why), RC_OK);
    assert_int_equal(batch_init(&batch, dataset_info(dataset), 1), RC_OK);
    rc = samples_gather(&samples, dataset_info(dataset), (struct pick){NULL, 0, 1}, &batch);
    batch_deinit(&batch);
    samples_deinit(&samples);
    return rc;
}

/* A number that is no token, and a file cut short while it is used, are errors of the batch. */
static void bad_numbers_are_noticed_as_they_are_read(void **state)
{
    struct scratch scratch;
    struct dataset *dataset;

    (void)state;
    scratch_init(&scratch);
    write_tokens(&scratch, "t", 2, false, 0, TOKENS);
    dataset = opened(&scratch, "tokens:@/t,context=8,symbols=999");
    assert_int_equal(gather_first(dataset), RC_OK);
    dataset_close(dataset);
    dataset = opened(&scratch, "tokens:@/t,context=8,symbols=890");
    assert_int_equal(gather_first(dataset), RC_FORMAT);
    dataset_close(dataset);
    dataset = opened(&scratch, "tokens:@/t,context=8,symbols=1000");
    assert_int_equal(truncate(scratch_path(&scratch, "t"), 100), 0);
    assert_int_equal(gather_first(dataset), RC_FORMAT);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

static void bad_files_are_refused(void **state)
{
    struct scratch scratch;

    (void)state;
    scratch_init(&scratch);
    write_tokens(&scratch, "t", 2, false, 0, TOKENS);
    write_tokens(&scratch, "cut", 2, true, 0, TOKENS);
    assert_int_equal(truncate(scratch_path(&scratch, "cut"), 1500), 0);
    write_tokens(&scratch, "old", 2, true, 0, TOKENS);
    write_tokens(&scratch, "short", 2, true, 0, 9);
    scratch_text(&scratch, "odd", "abc");
    refused(&scratch, "tokens:@/none", RC_NOT_FOUND, "no such file");
    refused(&scratch, "tokens:@", RC_NOT_FOUND, "no *.bin files");
    refused(&scratch, "tokens:@/t", RC_USAGE, "add symbols=N");
    refused(&scratch, "tokens:@/cut", RC_FORMAT, "it is not whole");
    refused(&scratch, "tokens:@/short,context=8", RC_FORMAT, "too few tokens");
    refused(&scratch, "tokens:@/odd,symbols=9", RC_FORMAT, "are no numbers of 16 bits");
    refused(&scratch, "tokens:@/old,symbols=9", RC_MISMATCH, "numbers below 5000, not 9");
    refused(&scratch, "tokens:@/t,symbols=0", RC_PARSE, "symbols must be a whole number from 1");
    refused(&scratch, "tokens:@/t,bits=17", RC_PARSE, "bits must be 16 or 32");
    refused(&scratch, "tokens", RC_PARSE, "the file is missing");
    refused(&scratch, "tokens:@,test=@/t", RC_PARSE, "test= is for a file");
    assert_int_equal(mkfifo(scratch_path(&scratch, "pipe.bin"), 0600), 0);
    refused(&scratch, "tokens:@/pipe.bin", RC_FORMAT,
            "no regular file"); /* and is not waited for */
    refused(&scratch, "tokens:@", RC_FORMAT, "no regular file");
    assert_int_equal(chmod(scratch.folder, 0), 0);
    if (geteuid() != 0) refused(&scratch, "tokens:@", RC_IO, "permission denied");
    assert_int_equal(chmod(scratch.folder, 0700), 0);
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_form_is_cut_into_windows),
        cmocka_unit_test(a_folder_is_many_files),
        cmocka_unit_test(long_windows_are_whole),
        cmocka_unit_test(bad_numbers_are_noticed_as_they_are_read),
        cmocka_unit_test(bad_files_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
