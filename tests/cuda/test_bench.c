/*
 * bench: every operation that `bench kernels` measures on a device runs there, and `bench train`
 * trains there, on several devices, too. What the speeds are only a real one can say.
 */
#include "tests/cuda/models.h"

#include "base/json.h"
#include "peer/bench/kernels.h"
#include "peer/bench/train.h"

/* Every look at it is 10 ms later. */
static uint64_t tick(void *context)
{
    uint64_t *now_ns = context;

    *now_ns += 10 * 1000 * 1000;
    return *now_ns;
}

static void check_row(const struct json *row, const char *name)
{
    double per_s = 0.0;

    assert_non_null(json_get_text(row, "unit"));
    assert_string_equal(json_get_text(row, "device"), "the one");
    assert_true(json_get_real(row, "per_s", &per_s));
    if (!(isfinite(per_s) && per_s > 0.0)) fail_msg("%s: %g a second", name, per_s);
    parity_checks++;
}

static void every_operation_has_a_row(void **state)
{
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        struct backend *backend = side_open(ON_DEVICE, is_bf16);
        uint64_t now_ns = 0;
        const struct bench_kernels_options options = {.clock = {tick, &now_ns},
                                                      .backend = backend,
                                                      .device = "the one",
                                                      .seconds = 0.01,
                                                      .shrink = 4096};
        struct json *rows = NULL;
        struct fault why = {""};
        uint32_t snapshots = 0;

        if (bench_kernels(&options, &rows, &why) != RC_OK) fail_msg("%s", why.text);
        assert_true(json_count(rows) >= 30);
        for (size_t i = 0; i < json_count(rows); i++) {
            const char *name = json_get_text(json_at(rows, i), "kernel");
            check_row(json_at(rows, i), name);
            if (strcmp(name, "snapshot") == 0) snapshots++;
        }
        assert_int_equal(snapshots, 4);
        json_destroy(rows);
        backend_destroy(backend);
    }
    (void)state;
}

static void check_training(struct backend *backend, const char *model, const char *precision)
{
    uint64_t now_ns = 0, parameters = 0;
    const struct bench_train_options options = {.clock = {tick, &now_ns},
                                                .backend = backend,
                                                .device = "the one",
                                                .model = model,
                                                .batch = 4,
                                                .seconds = 0.05};
    struct json *row = NULL;
    struct fault why = {""};

    if (bench_train(&options, &row, &why) != RC_OK) fail_msg("%s", why.text);
    check_row(row, model);
    assert_string_equal(json_get_text(row, "precision"), precision);
    assert_true(json_get_count(row, "parameters", &parameters) && parameters > 0);
    json_destroy(row);
}

static void training_has_a_row(void **state)
{
    struct backend *single = side_open(ON_DEVICE, false), *half = side_open(ON_DEVICE, true);

    (void)state;
    check_training(single, "mlp", "f32");
    check_training(half, "linear:16 bn relu linear:classes", "bf16");
    check_training(half, "embed:8 lstm:8 linear:classes", "bf16");
    backend_destroy(single);
    backend_destroy(half);
}

static void training_on_two_devices_has_a_row(void **state)
{
    struct fault why = {""};
    struct backend *pair;

    (void)state;
    if (virtual_configure != NULL) {
        struct virtual_options options = virtual_options_default();
        options.devices = 2;
        virtual_configure(&options);
    }
    pair = parity_device(2, false, &why);
    if (pair == NULL) parity_leave_out("two devices: there is one");
    check_training(pair, "mlp", "f32");
    backend_destroy(pair);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_operation_has_a_row),
    cmocka_unit_test(training_has_a_row),
    cmocka_unit_test(training_on_two_devices_has_a_row),
};

PARITY_MAIN("bench", tests)
