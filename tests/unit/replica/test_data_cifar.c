/* CIFAR-10: six files of records, plain or gzipped, and what is refused. */
#include "tests/unit/replica/data_files.h"

enum { RECORD = 3073, RECORDS = 3 };

static const char *const names[6] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                     "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

/* Record r of file f has label (f + r) % 10, and its channels are full of f, r and 255. */
static void write_file(struct scratch *scratch, const char *name, int f)
{
    uint8_t bytes[RECORDS * RECORD];

    for (int r = 0; r < RECORDS; r++) {
        uint8_t *record = bytes + r * RECORD;
        record[0] = (uint8_t)((f + r) % 10);
        memset(record + 1, f, 1024);
        memset(record + 1 + 1024, r, 1024);
        memset(record + 1 + 2048, 255, 1024);
    }
    scratch_write(scratch, name, bytes, sizeof bytes);
}

static void write_all(struct scratch *scratch, const char *folder)
{
    char name[64];

    for (int f = 0; f < 6; f++) {
        snprintf(name, sizeof name, "%s%s", folder, names[f]);
        write_file(scratch, name, f);
    }
}

static void check_contents(struct scratch *scratch)
{
    struct dataset *dataset = opened(scratch, "cifar10:@");
    const struct dataset_info *info = dataset_info(dataset);
    struct batch train = part_of(dataset, false), test = part_of(dataset, true);

    assert_int_equal(info->train_samples, 15);
    assert_int_equal(info->test_samples, 3);
    assert_int_equal(info->classes, 10);
    assert_int_equal(info->channels, 3);
    assert_int_equal(info->height, 32);
    for (uint32_t i = 0; i < 15; i++) {
        const float *image = train.values + i * 3072;
        assert_int_equal(train.labels[i], i / 3 + i % 3);
        assert_float_equal(image[1023], ((float)(i / 3) / 255 - 0.4914F) / 0.2470F, 1e-5);
        assert_float_equal(image[1024], ((float)(i % 3) / 255 - 0.4822F) / 0.2435F, 1e-5);
        assert_float_equal(image[3071], (1 - 0.4465F) / 0.2616F, 1e-5);
    }
    assert_int_equal(test.labels[2], 7);
    batch_deinit(&train);
    batch_deinit(&test);
    dataset_close(dataset);
}

/* The same samples come from plain files, gzipped ones, and the folder inside the folder. */
static void all_forms_of_the_folder_are_read(void **state)
{
    struct scratch scratch;
    char inner[128];

    (void)state;
    scratch_init(&scratch);
    write_all(&scratch, "");
    check_contents(&scratch);
    for (int f = 0; f < 6; f++) {
        scratch_gzip(&scratch, names[f]);
    }
    check_contents(&scratch);
    scratch_deinit(&scratch);
    scratch_init(&scratch);
    snprintf(inner, sizeof inner, "%s/cifar-10-batches-bin", scratch.folder);
    assert_int_equal(mkdir(inner, 0700), 0);
    write_all(&scratch, "cifar-10-batches-bin/");
    check_contents(&scratch);
    survive_short_memory(&scratch, "cifar10:@");
    scratch_deinit(&scratch);
}

/* Files that are missing, cut off or hold other classes are refused. */
static void bad_files_are_refused(void **state)
{
    struct samples samples = {0};
    struct dataset *dataset;
    struct scratch scratch;
    struct fault why = {""};
    uint8_t record[RECORD] = {10};

    (void)state;
    scratch_init(&scratch);
    refused(&scratch, "cifar10:", RC_PARSE, "column 9: the folder is missing");
    refused(&scratch, "cifar10:@", RC_NOT_FOUND, "unpack cifar-10-binary.tar.gz");
    write_all(&scratch, "");
    scratch_write(&scratch, names[2], record, RECORD - 1);
    refused(&scratch, "cifar10:@", RC_FORMAT, "data_batch_3.bin: it does not consist of records");
    scratch_write(&scratch, names[2], record, 0);
    refused(&scratch, "cifar10:@", RC_FORMAT, "it does not consist of records");
    scratch_write(&scratch, names[2], record, RECORD);
    dataset = opened(&scratch, "cifar10:@");
    assert_int_equal(dataset_load_list(dataset, (uint32_t[]){0}, 1, &samples, &why), RC_FORMAT);
    assert_non_null(strstr(why.text, "it has label 10, but there are 10 classes"));
    assert_int_equal(dataset_load_test(dataset, 2, &samples, &why), RC_OK);
    scratch_write(&scratch, names[5], record, 100);
    assert_int_equal(dataset_load_test(dataset, 2, &samples, &why), RC_FORMAT);
    samples_deinit(&samples);
    dataset_close(dataset);
    scratch_deinit(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_forms_of_the_folder_are_read),
        cmocka_unit_test(bad_files_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
