/* Synthetic data: its answers are the ones it promises. */
#include "tests/unit/replica/data_files.h"

#include "replica/readers/synthetic.h"

#include <math.h>

static const struct scratch nowhere; /* no file is needed */

/* Every target is the known weights times the input, and the noise has the size asked for. */
static void least_squares_have_the_known_optimum(void **state)
{
    static const char *const specs[] = {"synthetic:least-squares,features=5,outputs=3",
                                        "synthetic:least-squares,features=5,outputs=3,noise=0.5"};
    float weights[15];

    (void)state;
    synthetic_optimum(1, 5, 3, weights);
    for (int k = 0; k < 2; k++) {
        struct dataset *dataset = opened(&nowhere, specs[k]);
        struct batch batch = part_of(dataset, false);
        double squares = 0.0;

        assert_int_equal(dataset_info(dataset)->target, DATA_REALS);
        assert_int_equal(dataset_info(dataset)->outputs, 3);
        assert_int_equal(batch.rows, 4096);
        for (uint32_t i = 0; i < batch.rows * 3; i++) {
            const float *x = batch.values + i / 3 * 5, *w = weights + i % 3 * 5;
            double error = (double)batch.targets[i];
            for (int j = 0; j < 5; j++) {
                error -= (double)x[j] * (double)w[j];
            }
            squares += error * error;
        }
        assert_true(fabs(sqrt(squares / (batch.rows * 3)) - (k == 0 ? 0.0 : 0.5)) < 0.02);
        if (k == 0) assert_true(squares < 1e-6);
        batch_deinit(&batch);
        dataset_close(dataset);
    }
}

/* With `condition`, the inputs' variances go from 1 down to its inverse. */
static void the_condition_number_is_the_ratio_of_variances(void **state)
{
    struct dataset *dataset =
        opened(&nowhere, "synthetic:least-squares,features=3,condition=100,samples=20000");
    struct batch batch = part_of(dataset, false);
    double squares[3] = {0.0, 0.0, 0.0};

    (void)state;
    for (uint32_t i = 0; i < batch.rows * 3; i++) {
        squares[i % 3] += (double)batch.values[i] * (double)batch.values[i] / batch.rows;
    }
    assert_float_equal(squares[0], 1.0, 0.05);
    assert_float_equal(squares[1], 0.1, 0.005);
    assert_float_equal(squares[2], 0.01, 0.0005);
    batch_deinit(&batch);
    dataset_close(dataset);
}

/* A point of a spiral lies where its arm is at its distance from the middle. */
static void spirals_wind_around_the_origin(void **state)
{
    struct dataset *dataset = opened(&nowhere, "synthetic:spirals,arms=3,noise=0,samples=300");
    struct batch batch = part_of(dataset, false);
    const double turn = 2 * acos(-1.0);
    int seen[3] = {0};

    (void)state;
    assert_int_equal(dataset_info(dataset)->classes, 3);
    assert_int_equal(dataset_info(dataset)->channels, 2);
    for (uint32_t i = 0; i < batch.rows; i++) {
        double x = (double)batch.values[2 * i], y = (double)batch.values[2 * i + 1];
        double r = sqrt(x * x + y * y);
        double angle = turn * (1.5 * r + batch.labels[i] / 3.0);
        assert_true(fabs(x - r * cos(angle)) < 1e-4);
        assert_true(fabs(y - r * sin(angle)) < 1e-4);
        seen[batch.labels[i]]++;
    }
    for (int arm = 0; arm < 3; arm++) {
        assert_in_range(seen[arm], 70, 130);
    }
    batch_deinit(&batch);
    dataset_close(dataset);
}

/* The class of a bit sequence is the parity of its bits; the model's window is its length. */
static void parity_is_the_sum_of_the_bits(void **state)
{
    struct dataset_options options = {.seed = 1, .context = 70};
    struct dataset *dataset;
    struct batch batch;
    uint32_t odd = 0;

    (void)state;
    assert_int_equal(dataset_open("synthetic:parity,samples=500", &options, &dataset, NULL), RC_OK);
    assert_int_equal(dataset_info(dataset)->symbols, 2);
    assert_int_equal(dataset_info(dataset)->classes, 2);
    assert_int_equal(dataset_info(dataset)->labels_per_sample, 1);
    batch = part_of(dataset, false);
    for (uint32_t i = 0; i < batch.rows; i++) {
        int sum = 0;
        for (int k = 0; k < 70; k++) {
            sum += (int)batch.values[i * 70 + (uint32_t)k];
        }
        assert_int_equal(batch.labels[i], sum % 2);
        odd += batch.labels[i];
    }
    assert_in_range(odd, 200, 300);
    batch_deinit(&batch);
    dataset_close(dataset);
}

/* A sample depends on the seed and its place alone: the same whether all are loaded or a few, other
 * ones for testing, other ones for another seed. */
static void a_sample_is_a_function_of_seed_and_place(void **state)
{
    const uint32_t some[] = {3, 100, 4000};
    struct samples few = {0}, other = {0};
    struct dataset *dataset = opened(&nowhere, "synthetic:spirals"), *another;
    struct batch train = part_of(dataset, false), test = part_of(dataset, true);

    (void)state;
    assert_int_equal(dataset_load_list(dataset, some, 3, &few, NULL), RC_OK);
    for (int i = 0; i < 3; i++) {
        assert_memory_equal(few.floats + 2 * i, train.values + 2 * some[i], 2 * sizeof(float));
    }
    assert_memory_not_equal(test.values, train.values, 2 * sizeof(float));
    assert_int_equal(
        dataset_open("synthetic:spirals", &(struct dataset_options){.seed = 2}, &another, NULL),
        RC_OK);
    assert_int_equal(dataset_load_list(another, some, 3, &other, NULL), RC_OK);
    assert_memory_not_equal(few.floats, other.floats, 2 * sizeof(float));
    samples_deinit(&few);
    samples_deinit(&other);
    batch_deinit(&train);
    batch_deinit(&test);
    dataset_close(dataset);
    dataset_close(another);
}

/* Unknown families, keys and sizes are refused at their column; short memory leaks nothing. */
static void bad_families_are_refused(void **state)
{
    (void)state;
    refused(&nowhere, "synthetic", RC_PARSE, "there are least-squares, spirals and parity");
    refused(&nowhere, "synthetic:moons", RC_PARSE, "column 11: unknown family");
    refused(&nowhere, "synthetic:parity,noise=1", RC_PARSE, "column 18: unknown key 'noise'");
    refused(&nowhere, "synthetic:spirals,arms=1", RC_PARSE, "arms must be a whole number from 2");
    refused(&nowhere, "synthetic:spirals,noise=x", RC_PARSE, "noise must be a number from 0");
    refused(&nowhere, "synthetic:least-squares,features=1e9", RC_PARSE, "from 1 to 4096");
    refused(&nowhere, "synthetic:parity,samples=0", RC_PARSE, "samples must be");
    refused(&nowhere, "digits:x", RC_PARSE, "column 7: digits takes no settings");
    survive_short_memory(&nowhere, "synthetic:spirals,samples=300");
    survive_short_memory(&nowhere, "synthetic:parity,samples=300");
    survive_short_memory(&nowhere, "synthetic:least-squares,samples=300");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(least_squares_have_the_known_optimum),
        cmocka_unit_test(the_condition_number_is_the_ratio_of_variances),
        cmocka_unit_test(spirals_wind_around_the_origin),
        cmocka_unit_test(parity_is_the_sum_of_the_bits),
        cmocka_unit_test(a_sample_is_a_function_of_seed_and_place),
        cmocka_unit_test(bad_families_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
