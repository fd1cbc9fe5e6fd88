/* bench: quartiles, the promised keys, refusals; time comes from a clock of the test. */
#include "tests/check.h"

#include "base/check.h"
#include "base/json.h"
#include "kernels/cpu/cpu_backend.h"
#include "peer/bench/kernels.h"
#include "peer/bench/train.h"

#include <math.h>

/* Every look at it is 10 ms later. */
static uint64_t tick(void *context)
{
    uint64_t *now_ns = context;

    *now_ns += 10 * 1000 * 1000;
    return *now_ns;
}

static void quartiles_lie_between_neighbours(void **state)
{
    double values[5] = {5.0, 1.0, 4.0, 2.0, 3.0}, two[2] = {2.0, 1.0};
    struct bench_spread spread = bench_spread_of(values, 5);

    (void)state;
    assert_true(spread.q1 == 2.0 && spread.median == 3.0 && spread.q3 == 4.0);
    spread = bench_spread_of(two, 2);
    assert_true(spread.q1 == 1.25 && spread.median == 1.5 && spread.q3 == 1.75);
    spread = bench_spread_of(two, 1);
    assert_true(spread.q1 == 1.0 && spread.median == 1.0 && spread.q3 == 1.0);
}

static void a_training_row_has_the_promised_keys(void **state)
{
    uint64_t now_ns = 0, count = 0;
    struct bench_train_options options = {.clock = {tick, &now_ns},
                                          .backend = *state,
                                          .model = "linear:classes",
                                          .batch = 8,
                                          .seconds = 0.2};
    struct json *row = NULL;
    struct fault why = {""};
    double real = 0.0;

    assert_int_equal(bench_train(&options, &row, &why), RC_OK);
    assert_string_equal(json_get_text(row, "model"), "linear:classes");
    assert_string_equal(json_get_text(row, "precision"), "f32");
    assert_string_equal(json_get_text(row, "device"), "cpu");
    assert_string_equal(json_get_text(row, "unit"), "samples");
    assert_true(json_get_count(row, "batch", &count) && count == 8);
    assert_true(json_get_count(row, "threads", &count) && count == 1);
    assert_true(json_get_count(row, "parameters", &count) && count == 7850);
    assert_true(json_get_count(row, "rss_bytes", &count) && count > 0);
    assert_true(json_get_real(row, "per_s", &real) && real == 800.0); /* 8 samples in 10 ms */
    assert_true(json_get_real(row, "q1", &real) && real == 800.0);
    assert_true(json_get_real(row, "q3", &real) && real == 800.0);
    json_destroy(row);
}

/* A row for each layer and for the rest; with a clock that ticks at every look, parts add up to all
 * but what lies between them. */
static void a_profile_adds_up_to_the_time_that_passed(void **state)
{
    uint64_t now_ns = 0;
    struct json *row = NULL, *profile = NULL;
    struct bench_train_options options = {.clock = {tick, &now_ns},
                                          .backend = *state,
                                          .model = "linear:8 relu linear:classes",
                                          .batch = 8,
                                          .seconds = 1.0,
                                          .profile = &profile};
    double sum = 0.0, total = 0.0, wall = 0.0, real = 0.0;
    struct fault why = {""};
    size_t rows;

    assert_int_equal(bench_train(&options, &row, &why), RC_OK);
    assert_non_null(profile);
    rows = json_count(profile);
    assert_string_equal(json_get_text(json_at(profile, 0), "layer"), "dense1");
    assert_string_equal(json_get_text(json_at(profile, 1), "spec"), "linear:classes");
    for (size_t i = 0; i < rows; i++) {
        const struct json *at = json_at(profile, i);
        const char *name = json_get_text(at, "layer");
        assert_true(json_get_real(at, "us", &real));
        if (strcmp(name, "sum") == 0) {
            total = real;
        } else if (strcmp(name, "wall") == 0) {
            wall = real;
        } else {
            sum += real;
        }
        if (i < 2) assert_true(json_get_real(at, "gflops", &real) && real > 0.0);
    }
    assert_true(fabs(sum - total) < 1e-6 * total && total <= wall && total > 0.5 * wall);
    json_destroy(row);
    json_destroy(profile);
}

/* The precision of a row is the one used, which need not be the one asked for. */
static void a_row_says_what_precision_was_used(void **state)
{
    const struct cpu_backend_options half = {
        .threads = 1, .precision = PRECISION_BF16, .forces_bf16 = true};
    struct backend *backend = cpu_backend_create(&half);
    uint64_t now_ns = 0;
    struct bench_train_options options = {.clock = {tick, &now_ns},
                                          .backend = backend,
                                          .device = "this one",
                                          .model = "linear:classes",
                                          .batch = 8,
                                          .seconds = 0.05};
    struct json *row = NULL;
    struct fault why = {""};

    (void)state;
    assert_non_null(backend);
    assert_int_equal(bench_train(&options, &row, &why), RC_OK);
    assert_string_equal(json_get_text(row, "precision"),
                        cpu_backend_is_bf16(backend) ? "bf16" : "f32");
    assert_string_equal(json_get_text(row, "device"), "this one");
    json_destroy(row);
    backend_destroy(backend);
}

/* Residual nets of CIFAR get its images, GPT-2 its vocabulary. */
static void models_get_the_data_they_were_made_for(void **state)
{
    uint64_t now_ns = 0, parameters = 0;
    struct bench_train_options options = {.clock = {tick, &now_ns},
                                          .backend = *state,
                                          .model = "resnet20",
                                          .batch = 1,
                                          .seconds = 0.01};
    struct json *row = NULL;
    struct fault why = {""};

    assert_int_equal(bench_train(&options, &row, &why), RC_OK);
    assert_true(json_get_count(row, "parameters", &parameters));
    assert_int_equal(parameters, 269434 + 2 * 9 * 16); /* docs/training.md, and three channels */
    json_destroy(row);
}

static void what_cannot_be_measured_is_told(void **state)
{
    uint64_t now_ns = 0;
    struct bench_train_options options = {
        .clock = {tick, &now_ns}, .backend = *state, .model = "cnnn"};
    struct json *row = NULL;
    struct fault why = {""};

    assert_int_equal(bench_train(&options, &row, &why), RC_PARSE);
    assert_non_null(strstr(why.text, "did you mean 'cnn'"));
    assert_null(row);
}

static void kernel_rows_have_finite_speeds(void **state)
{
    uint64_t now_ns = 0;
    struct bench_kernels_options options = {
        .clock = {tick, &now_ns}, .backend = *state, .seconds = 0.1};
    struct json *rows = NULL;
    struct fault why = {""};

    assert_int_equal(bench_kernels(&options, &rows, &why), RC_OK);
    assert_true(json_count(rows) > 8);
    for (size_t i = 0; i < json_count(rows); i++) {
        const struct json *row = json_at(rows, i);
        double real = 0.0;
        assert_non_null(json_get_text(row, "kernel"));
        assert_non_null(json_get_text(row, "shape"));
        assert_non_null(json_get_text(row, "by"));
        assert_string_equal(json_get_text(row, "device"), "cpu");
        assert_true(json_get_real(row, "per_s", &real) && isfinite(real) && real > 0.0);
    }
    json_destroy(rows);
}

static int make_backend(void **state)
{
    const struct cpu_backend_options options = {.threads = 1};

    *state = cpu_backend_create(&options);
    return *state == NULL;
}

static int drop_backend(void **state)
{
    backend_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quartiles_lie_between_neighbours),
        cmocka_unit_test(a_training_row_has_the_promised_keys),
        cmocka_unit_test(a_profile_adds_up_to_the_time_that_passed),
        cmocka_unit_test(a_row_says_what_precision_was_used),
        cmocka_unit_test(models_get_the_data_they_were_made_for),
        cmocka_unit_test(what_cannot_be_measured_is_told),
        cmocka_unit_test(kernel_rows_have_finite_speeds),
    };

    return cmocka_run_group_tests(tests, make_backend, drop_backend);
}
