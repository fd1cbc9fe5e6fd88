/* Tests of distill/statistics: running statistics as plain averages over training data. */
#include "tests/unit/distill/models.h"

#include "distill/statistics.h"

#include <math.h>

static struct dataset *opened(const char *data)
{
    struct dataset *dataset = NULL;

    assert_int_equal(dataset_open(data, &(struct dataset_options){.seed = 1}, &dataset, NULL),
                     RC_OK);
    return dataset;
}

/* The training samples in the data's order. */
static void load(struct dataset *dataset, struct samples *samples)
{
    bool wanted[2 * DATASET_SMALL_BLOCKS];

    for (size_t i = 0; i < 2 * DATASET_SMALL_BLOCKS; i++) {
        wanted[i] = true;
    }
    assert_int_equal(dataset_load_blocks(dataset, wanted, samples, NULL), RC_OK);
}

static void statistics_are_plain_averages_over_full_batches(void **state)
{
    /* Proves: for normalisation of the input itself mean and unbiased variance are those of each
     * batch, counted by hand in float64, averaged over the full batches; what was there before has
     * no say, and parameters stay as they were. */
    struct world *world = *state;
    static const char data[] = "synthetic:spirals,samples=300";
    struct model_card card;
    struct model *model = world_model_of(world, "bn linear:classes", data, 0, 1, true, &card);
    struct dataset *dataset = opened(data);
    const struct dataset_info *info = dataset_info(dataset);
    const size_t parameters = model_schema(model)->values[SECTION_PARAMETERS];
    float *buffers = model_plane(model, SECTION_BUFFERS), before[16];
    double mean[2] = {0, 0}, variance[2] = {0, 0};
    struct samples samples = {0};
    struct batch batch;

    assert_true(parameters <= 16);
    memcpy(before, model_plane(model, SECTION_PARAMETERS), parameters * sizeof(float));
    for (int i = 0; i < 4; i++) {
        buffers[i] = 1e6F;
    }
    assert_int_equal(statistics_estimate(model, dataset, NULL, NULL), RC_OK);
    load(dataset, &samples);
    assert_int_equal(batch_init(&batch, info, STATISTICS_BATCH), RC_OK);
    for (size_t k = 0; k < 300 / STATISTICS_BATCH; k++) {
        assert_int_equal(samples_gather(&samples, info,
                                        (struct pick){NULL, k * STATISTICS_BATCH, STATISTICS_BATCH},
                                        &batch),
                         RC_OK);
        for (int c = 0; c < 2; c++) {
            double sum = 0, squares = 0;
            for (int i = 0; i < STATISTICS_BATCH; i++) {
                sum += (double)batch.values[2 * i + c];
            }
            sum /= STATISTICS_BATCH;
            for (int i = 0; i < STATISTICS_BATCH; i++) {
                squares += pow((double)batch.values[2 * i + c] - sum, 2);
            }
            mean[c] += sum / (300 / STATISTICS_BATCH);
            variance[c] += squares / (STATISTICS_BATCH - 1) / (300 / STATISTICS_BATCH);
        }
    }
    for (int c = 0; c < 2; c++) {
        assert_true(fabs(buffers[c] - mean[c]) < 1e-5);
        assert_true(fabs(buffers[2 + c] - variance[c]) < 1e-5 * variance[c]);
    }
    assert_memory_equal(before, model_plane(model, SECTION_PARAMETERS), parameters * sizeof(float));
    samples_deinit(&samples);
    batch_deinit(&batch);
    dataset_close(dataset);
    model_destroy(model);
}

static void ghost_batches_and_short_data_count_too(void **state)
{
    /* Proves: with ghost batches each weighs alike, so statistics hardly differ from those without;
     * data of less than a batch is one batch; both are repeatable to the bit. */
    struct world *world = *state;
    static const char data[] = "synthetic:spirals,samples=50";
    struct dataset *dataset = opened(data);
    float first[2][4];

    for (int k = 0; k < 4; k++) {
        struct model_card card;
        struct model *model =
            world_model_of(world, k < 2 ? "bn linear:classes" : "bn:25 dropout:0.5 linear:classes",
                           data, 0, 1, true, &card);
        const float *buffers = model_plane(model, SECTION_BUFFERS);
        assert_int_equal(statistics_estimate(model, dataset, NULL, NULL), RC_OK);
        if (k % 2 == 0) memcpy(first[k / 2], buffers, sizeof first[0]);
        assert_memory_equal(first[k / 2], buffers, sizeof first[0]);
        model_destroy(model);
    }
    for (int i = 0; i < 4; i++) {
        assert_true(fabsf(first[0][i] - first[1][i]) < 0.2F);
        assert_true(i >= 2 || fabsf(first[0][i] - first[1][i]) < 1e-5F); /* means of means */
    }
    dataset_close(dataset);
}

static void training_goes_on_with_moving_averages(void **state)
{
    /* Proves: after an estimate a training pass moves statistics by a tenth, as before one. */
    struct world *world = *state;
    static const char data[] = "synthetic:spirals,samples=64";
    struct model_card card;
    struct model *model = world_model_of(world, "bn linear:classes", data, 0, 1, true, &card);
    struct dataset *dataset = opened(data);
    float *buffers = model_plane(model, SECTION_BUFFERS), logits[64 * 2], estimated;
    struct samples samples = {0};
    struct batch batch;

    assert_int_equal(statistics_estimate(model, dataset, NULL, NULL), RC_OK);
    estimated = buffers[2];
    buffers[2] = 11 * estimated;
    load(dataset, &samples);
    assert_int_equal(batch_init(&batch, dataset_info(dataset), 64), RC_OK);
    assert_int_equal(
        samples_gather(&samples, dataset_info(dataset), (struct pick){NULL, 0, 64}, &batch), RC_OK);
    assert_int_equal(model_forward(model, batch.values, 64, true, logits), RC_OK);
    assert_true(fabsf(buffers[2] - 10 * estimated) < 1e-4F * estimated);
    samples_deinit(&samples);
    batch_deinit(&batch);
    dataset_close(dataset);
    model_destroy(model);
}

static void models_without_statistics_are_left_alone(void **state)
{
    /* Proves: no data is read for them. */
    struct world *world = *state;
    struct model_card card;
    struct model *model = world_model(world, "linear:classes", 1, &card);

    assert_int_equal(statistics_estimate(model, NULL, NULL, NULL), RC_OK);
    model_destroy(model);
}

static void statistics_that_are_no_numbers_are_an_error(void **state)
{
    /* Proves: a model whose activations overflow is RC_NONFINITE, with what could not be done. */
    struct world *world = *state;
    static const char data[] = "synthetic:spirals,samples=64";
    struct model_card card;
    struct model *model =
        world_model_of(world, "linear:4 bn linear:classes", data, 0, 1, true, &card);
    struct dataset *dataset = opened(data);
    struct fault why = {""};

    model_plane(model, SECTION_PARAMETERS)[0] = 3e38F;
    model_plane(model, SECTION_PARAMETERS)[1] = 3e38F;
    assert_int_equal(statistics_estimate(model, dataset, NULL, &why), RC_NONFINITE);
    assert_non_null(strstr(why.text, "statistics"));
    dataset_close(dataset);
    model_destroy(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statistics_are_plain_averages_over_full_batches),
        cmocka_unit_test(ghost_batches_and_short_data_count_too),
        cmocka_unit_test(training_goes_on_with_moving_averages),
        cmocka_unit_test(models_without_statistics_are_left_alone),
        cmocka_unit_test(statistics_that_are_no_numbers_are_an_error),
    };
    return cmocka_run_group_tests(tests, world_set_up, world_tear_down);
}
