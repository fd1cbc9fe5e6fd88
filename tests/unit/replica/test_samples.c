/* Samples in memory and the batches made of them. */
#include "tests/check.h"

#include "base/mem.h"
#include "replica/data/dataset.h"

static const float means[2] = {0.5F, 0.25F}, scales[2] = {2.0F, 4.0F};

static struct dataset_info images(bool has_bytes, uint32_t classes)
{
    return (struct dataset_info){.input = DATA_IMAGES,
                                 .target = DATA_CLASS,
                                 .has_bytes = has_bytes,
                                 .channels = 2,
                                 .height = 1,
                                 .width = 3,
                                 .classes = classes,
                                 .outputs = classes,
                                 .labels_per_sample = 1,
                                 .mean = means,
                                 .scale = scales};
}

/* Bytes are shares of 255, then each channel has its own mean and scale; floats have them at once;
 * the order decides which sample comes where. */
static void batches_are_normalised_by_channel(void **state)
{
    const uint32_t order[] = {9, 2, 0, 1};

    (void)state;
    for (int k = 0; k < 2; k++) {
        struct dataset_info info = images(k == 0, 10);
        struct samples samples;
        struct batch batch;

        assert_int_equal(samples_init(&samples, &info, 3), RC_OK);
        assert_int_equal(batch_init(&batch, &info, 4), RC_OK);
        for (uint32_t i = 0; i < 18; i++) {
            if (k == 0)
                samples.bytes[i] = (uint8_t)(10 * i);
            else
                samples.floats[i] = (float)i;
        }
        for (uint32_t i = 0; i < 3; i++) {
            samples_set_label(&samples, i, 7 + i);
        }
        assert_int_equal(samples_gather(&samples, &info, (struct pick){order, 1, 3}, &batch),
                         RC_OK);
        assert_int_equal(batch.rows, 3);
        for (uint32_t i = 0; i < 18; i++) {
            uint32_t from = order[1 + i / 6] * 6 + i % 6, c = i % 6 / 3;
            float raw = k == 0 ? (float)(10 * from) / 255.0F : (float)from;
            assert_float_equal(batch.values[i], (raw - means[c]) * scales[c], 1e-5F);
        }
        for (uint32_t i = 0; i < 3; i++) {
            assert_int_equal(batch.labels[i], 7 + order[1 + i]);
        }
        assert_int_equal(samples_gather(&samples, &info, (struct pick){NULL, 2, 1}, &batch), RC_OK);
        assert_int_equal(batch.rows, 1);
        assert_int_equal(batch.labels[0], 9);
        batch_deinit(&batch);
        samples_deinit(&samples);
    }
}

/* Up to 256 classes a label takes a byte; above, four, and no number is lost. */
static void labels_take_what_they_need(void **state)
{
    struct dataset_info small = images(true, 256), large = images(true, 257);
    struct samples samples;
    struct batch batch;

    (void)state;
    assert_int_equal(samples_init(&samples, &small, 2), RC_OK);
    assert_non_null(samples.small_labels);
    assert_null(samples.large_labels);
    samples_deinit(&samples);
    assert_int_equal(samples_init(&samples, &large, 2), RC_OK);
    assert_null(samples.small_labels);
    samples_set_label(&samples, 1, 65535);
    assert_int_equal(batch_init(&batch, &large, 2), RC_OK);
    assert_int_equal(samples_gather(&samples, &large, (struct pick){NULL, 0, 2}, &batch), RC_OK);
    assert_int_equal(batch.labels[1], 65535);
    assert_int_equal(batch.picked[1], 1);
    batch_deinit(&batch);
    samples_deinit(&samples);
}

/* A batch without values or labels gets only what it has room for. */
static void what_is_not_wanted_is_not_made(void **state)
{
    struct dataset_info info = images(true, 10);
    uint32_t label = 99;
    struct batch only_labels = {.rows_max = 1, .labels = &label};
    struct samples samples;

    (void)state;
    assert_int_equal(samples_init(&samples, &info, 1), RC_OK);
    samples_set_label(&samples, 0, 4);
    assert_int_equal(samples_gather(&samples, &info, (struct pick){NULL, 0, 1}, &only_labels),
                     RC_OK);
    assert_int_equal(label, 4);
    samples_deinit(&samples);
}

/* Each failed allocation is reported, and an empty result is left behind. */
static void short_memory_leaves_nothing(void **state)
{
    struct dataset_info kinds[4] = {images(true, 10), images(false, 1000), images(false, 0)};

    (void)state;
    kinds[2].target = DATA_REALS;
    kinds[2].outputs = 3;
    kinds[2].labels_per_sample = 0;
    kinds[3] = (struct dataset_info){.input = DATA_TOKENS,
                                     .target = DATA_NEXT_TOKEN,
                                     .has_bytes = true,
                                     .channels = 1,
                                     .height = 1,
                                     .width = 5,
                                     .labels_per_sample = 5};
    for (int k = 0; k < 4; k++) {
        uint64_t before = mem_blocks();
        int refusals = 0;
        for (uint64_t n = 0; n < 3; n++) {
            struct samples samples;
            struct batch batch;
            mem_fail_after(n);
            if (samples_init(&samples, &kinds[k], 7) == RC_NOMEM) refusals++;
            mem_fail_after(n);
            if (batch_init(&batch, &kinds[k], 7) == RC_NOMEM) refusals++;
            mem_fail_after(UINT64_MAX);
            samples_deinit(&samples);
            batch_deinit(&batch);
            assert_int_equal(mem_blocks(), before);
        }
        assert_int_equal(refusals, k == 3 ? 4 : 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_normalised_by_channel),
        cmocka_unit_test(labels_take_what_they_need),
        cmocka_unit_test(what_is_not_wanted_is_not_made),
        cmocka_unit_test(short_memory_leaves_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
