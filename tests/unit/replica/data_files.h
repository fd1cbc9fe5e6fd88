/* What tests of data formats share: a spec with the scratch folder in it, and refusals. */
#ifndef GRAPEVINE_TESTS_DATA_FILES_H
#define GRAPEVINE_TESTS_DATA_FILES_H

#include "tests/scratch.h"

#include "base/mem.h"
#include "replica/data/dataset.h"

/* Open a spec in which every @ stands for the scratch folder. */
static inline enum rc open_spec(const struct scratch *scratch, const char *spec,
                                const struct dataset_options *options, struct dataset **dataset,
                                struct fault *why)
{
    char text[1024] = "";
    size_t at = 0;

    for (; *spec != '\0'; spec++) {
        assert_true(at + sizeof scratch->folder < sizeof text);
        if (*spec == '@') {
            memcpy(text + at, scratch->folder, strlen(scratch->folder));
            at += strlen(scratch->folder);
        } else {
            text[at++] = *spec;
        }
    }
    return dataset_open(text, options, dataset, why);
}

static inline struct dataset *opened(const struct scratch *scratch, const char *spec)
{
    struct dataset *dataset = NULL;
    struct fault why = {""};

    if (open_spec(scratch, spec, &(struct dataset_options){.seed = 1}, &dataset, &why) != RC_OK) {
        fail_msg("%s", why.text);
    }
    return dataset;
}

/* That the spec is refused with this code, in one line that says `words`, leaking nothing. */
static inline void refused(const struct scratch *scratch, const char *spec, enum rc rc,
                           const char *words)
{
    struct dataset *dataset = NULL;
    struct fault why = {""};
    uint64_t blocks = mem_blocks();

    assert_int_equal(open_spec(scratch, spec, &(struct dataset_options){.seed = 1}, &dataset, &why),
                     rc);
    if (strstr(why.text, words) == NULL) fail_msg("'%s' does not say '%s'", why.text, words);
    assert_null(strchr(why.text, '\n'));
    assert_int_equal(mem_blocks(), blocks);
}

static inline void scratch_text(struct scratch *scratch, const char *name, const char *text)
{
    scratch_write(scratch, name, text, strlen(text));
}

/* Replace a file by NAME.gz. */
static inline void scratch_gzip(struct scratch *scratch, const char *name)
{
    char command[400];

    snprintf(command, sizeof command, "gzip -f '%s'", scratch_path(scratch, name));
    assert_int_equal(system(command), 0);
}

/* The samples of a part as one batch; release with batch_deinit(). */
static inline struct batch part_of(struct dataset *dataset, bool is_test)
{
    const struct dataset_info *info = dataset_info(dataset);
    struct samples samples = {0};
    struct batch batch;
    struct fault why = {""};
    uint32_t *all = mem_array(info->train_samples, sizeof *all);
    enum rc rc;

    assert_non_null(all);
    for (uint32_t i = 0; i < info->train_samples; i++) {
        all[i] = i;
    }
    rc = is_test ? dataset_load_test(dataset, 0, &samples, &why)
                 : dataset_load_list(dataset, all, info->train_samples, &samples, &why);
    if (rc != RC_OK) fail_msg("%s", why.text);
    assert_int_equal(samples.count, is_test ? info->test_samples : info->train_samples);
    assert_int_equal(batch_init(&batch, info, (uint32_t)samples.count), RC_OK);
    assert_int_equal(
        samples_gather(&samples, info, (struct pick){NULL, 0, (uint32_t)samples.count}, &batch),
        RC_OK);
    samples_deinit(&samples);
    mem_free(all);
    return batch;
}

/* Opening, loading blocks, tests and labels with the n-th allocation failing, for every n: nothing
 * but RC_NOMEM, and nothing leaks. */
static inline void survive_short_memory(const struct scratch *scratch, const char *spec)
{
    uint64_t before = mem_blocks();
    bool is_done = false;

    for (uint64_t n = 0; !is_done; n++) {
        struct dataset *dataset = NULL;
        struct samples samples = {0};
        uint32_t *labels = NULL;
        bool wanted[2 * DATASET_SMALL_BLOCKS] = {true};
        enum rc rc;

        mem_fail_after(n);
        rc = open_spec(scratch, spec, &(struct dataset_options){.seed = 1}, &dataset, NULL);
        if (rc == RC_OK) rc = dataset_load_blocks(dataset, wanted, &samples, NULL);
        if (rc == RC_OK) rc = dataset_load_test(dataset, 0, &samples, NULL);
        if (rc == RC_OK && dataset_info(dataset)->target == DATA_CLASS) {
            rc = dataset_load_labels(dataset, &labels, NULL);
        }
        mem_fail_after(UINT64_MAX);
        mem_free(labels);
        samples_deinit(&samples);
        dataset_close(dataset);
        assert_int_equal(mem_blocks(), before);
        assert_true(rc == RC_OK || rc == RC_NOMEM);
        is_done = rc == RC_OK;
        assert_true(n < 200);
    }
}

#endif
