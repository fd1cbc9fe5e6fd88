/* What fuzzing of data formats shares: bytes as a file, and a data set read to its end. */
#ifndef GRAPEVINE_TESTS_DATA_FUZZ_H
#define GRAPEVINE_TESTS_DATA_FUZZ_H

#include "base/check.h"
#include "base/mem.h"
#include "replica/data/dataset.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { DATA_FUZZ_PATH_BYTES = 64, DATA_FUZZ_VALUES_MAX = 1 << 22 };

/* A file in memory; returns its descriptor. */
static inline int data_fuzz_file(const uint8_t *bytes, size_t count,
                                 char path[DATA_FUZZ_PATH_BYTES])
{
    int fd = memfd_create("fuzz", MFD_CLOEXEC);

    CHECK(fd >= 0 && write(fd, bytes, count) == (ssize_t)count);
    snprintf(path, DATA_FUZZ_PATH_BYTES, "/proc/self/fd/%d", fd);
    return fd;
}

/* Every number a model would get is finite and every label is below the classes. */
static inline void data_fuzz_check(struct dataset *dataset, const struct samples *samples)
{
    const struct dataset_info *info = dataset_info(dataset);
    struct batch batch;

    CHECK(batch_init(&batch, info, 1) == RC_OK);
    for (size_t i = 0; i < samples->count; i++) {
        if (samples_gather(samples, info, (struct pick){NULL, i, 1}, &batch) != RC_OK) {
            CHECK(info->is_in_files); /* a token too high: checked as it is read */
            continue;
        }
        for (size_t v = 0; v < dataset_values(info); v++) {
            CHECK(batch.values[v] - batch.values[v] == 0.0F); /* no NaN, no infinity */
        }
        for (uint32_t l = 0; l < info->labels_per_sample; l++) {
            CHECK(batch.labels[l] < info->classes);
        }
    }
    batch_deinit(&batch);
}

/* Open, load everything, look at everything. */
static inline void data_fuzz_read(const char *spec)
{
    struct dataset_options options = {.seed = 1};
    struct dataset *dataset = NULL;
    struct samples samples = {0};
    struct fault why = {""};
    uint32_t *labels = NULL;
    uint64_t before = mem_blocks();
    enum rc rc = dataset_open(spec, &options, &dataset, &why);

    if (rc == RC_OK) {
        const struct dataset_info *info = dataset_info(dataset);
        CHECK(info->train_samples > 0 && info->test_samples > 0 && dataset_values(info) > 0);
        if (dataset_values(info) * info->train_samples <= DATA_FUZZ_VALUES_MAX) {
            bool *wanted = mem_alloc(info->blocks);
            memset(wanted, true, info->blocks);
            rc = dataset_load_test(dataset, 0, &samples, &why);
            if (rc == RC_OK) data_fuzz_check(dataset, &samples);
            if (rc == RC_OK) rc = dataset_load_blocks(dataset, wanted, &samples, &why);
            if (rc == RC_OK) data_fuzz_check(dataset, &samples);
            if (rc == RC_OK && info->target == DATA_CLASS) {
                rc = dataset_load_labels(dataset, &labels, &why);
            }
            mem_free(wanted);
        }
    }
    CHECK(rc == RC_OK || (why.text[0] != '\0' && strchr(why.text, '\n') == NULL));
    mem_free(labels);
    samples_deinit(&samples);
    dataset_close(dataset);
    CHECK(mem_blocks() == before);
}

#endif
