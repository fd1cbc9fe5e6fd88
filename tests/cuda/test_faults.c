/*
 * faults: what goes wrong around a replica on a device is told by its own code and in words, and
 * leaves nothing behind: numbers that are none, a device that is lost in the middle of training,
 * memory that is short, no device at all. The last three need a device that fails on demand, which
 * only the virtual one does.
 */
#include "tests/cuda/models.h"

#include "replica/model/model.h"

#define SMALL "conv3x3:8 bn relu maxpool2 dropout:0.2 linear:classes"

enum { BATCH = 16 };

static struct replica_options options_of(const char *model)
{
    return (struct replica_options){.model = model,
                                    .data = "digits",
                                    .batch = BATCH,
                                    .shard = "all",
                                    .seed = 6,
                                    .stream_seed = 7};
}

static enum rc trained(struct learner *learner, uint32_t steps)
{
    struct train_report report = {0};

    parity_checks++;
    return learner->ops->train(learner, steps, NULL, &report);
}

/* --- numbers
 * ------------------------------------------------------------------------------------*/

/* The device finds it when the losses are read; the caller rolls back, and the device goes on. */
static void a_model_that_is_no_longer_finite_is_told(void **state)
{
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        struct backend *backend = side_open(ON_DEVICE, is_bf16);
        struct replica_options options = options_of("mlp");
        struct learner *learner = make(backend, &options);
        size_t count = count_of(learner, SECTION_PARAMETERS);
        float *good = values_of(learner, SECTION_PARAMETERS);
        float *bad = mem_array(count, sizeof(float));

        memcpy(bad, good, count * sizeof(float));
        bad[count - 1] = NAN;
        assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, bad, count),
                         RC_OK);
        assert_int_equal(trained(learner, 4), RC_NONFINITE);
        assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, good, count),
                         RC_OK);
        memset(bad, 0, count * sizeof(float));
        assert_int_equal(learner->ops->assign_section(learner, SECTION_MOMENTS, bad, count), RC_OK);
        assert_int_equal(trained(learner, 4), RC_OK);
        learner->ops->destroy(learner);
        options.lr = 1e5; /* runs away by itself */
        learner = make(backend, &options);
        assert_int_equal(trained(learner, 200), RC_NONFINITE);
        learner->ops->destroy(learner);
        mem_free(good);
        mem_free(bad);
        backend_destroy(backend);
    }
    (void)state;
}

/* As on the processor. What is behind the table is never read. */
static void a_token_that_is_none_is_refused(void **state)
{
    static const float wrong[] = {9.0F, -1.0F, 2.5F, 1e30F, NAN};
    const struct model_options options = {.spec = "embed:8 linear:classes",
                                          .channels = 1,
                                          .height = 1,
                                          .width = 4,
                                          .classes = 9,
                                          .batch_max = 2,
                                          .seed = 1,
                                          .input = MODEL_INPUT_TOKENS};
    struct backend *backend = side_open(ON_DEVICE, false);
    struct model *model = NULL;
    struct fault why = {""};
    float logits[2 * 4 * 9];

    (void)state;
    assert_int_equal(model_create(backend, &options, &model, &why), RC_OK);
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        float tokens[8] = {0.0F, 8.0F, 3.0F, 1.0F, 4.0F, 1.0F, 5.0F, 2.0F};
        assert_int_equal(model_forward(model, tokens, 2, false, logits), RC_OK);
        for (size_t j = 0; j < ARRAY_COUNT(logits); j++) {
            assert_true(isfinite(logits[j]));
        }
        tokens[6] = wrong[i];
        assert_int_equal(model_forward(model, tokens, 2, false, logits), RC_NONFINITE);
        parity_checks++;
    }
    model_destroy(model);
    backend_destroy(backend);
}

/* --- devices that fail on demand
 * ----------------------------------------------------------------*/

static void configure(uint64_t lost_after, size_t memory_bytes, uint64_t fail_allocation)
{
    struct virtual_options options = virtual_options_default();

    options.lost_after = lost_after;
    if (memory_bytes > 0) options.memory_bytes = memory_bytes;
    options.fail_allocation = fail_allocation;
    virtual_configure(&options);
}

static int found_again(void **state)
{
    (void)state;
    if (virtual_configure != NULL) configure(0, 0, 0);
    return 0;
}

/* At any moment, also while passes are recorded: RC_DEVICE and a reason, at once from then on, and
 * everything can be released. */
static void a_lost_device_is_told_whenever_it_happens(void **state)
{
    struct replica_options options = options_of(SMALL);

    (void)state;
    if (virtual_configure == NULL) parity_leave_out("only the virtual device fails on request");
    options.optimizer = "adamw";
    options.clip = 0.5;
    for (uint64_t calls = 1; calls < 700; calls += calls < 40 ? 7 : 83) {
        struct backend *backend = side_open(ON_DEVICE, false);
        struct learner *learner = make(backend, &options);
        float *values = mem_array(count_of(learner, SECTION_PARAMETERS), sizeof(float));
        struct evaluation evaluation;
        enum rc rc = trained(learner, 1);

        assert_int_equal(rc, RC_OK);
        configure(calls, 0, 0);
        for (int i = 0; rc == RC_OK && i < 100; i++) {
            rc = trained(learner, 5);
        }
        assert_int_equal(rc, RC_DEVICE);
        assert_non_null(strstr(learner->ops->why(learner), "GPU 0: "));
        assert_int_equal(trained(learner, 1), RC_DEVICE);
        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_DEVICE);
        assert_int_equal(learner->ops->export_section(learner, SECTION_PARAMETERS, values,
                                                      count_of(learner, SECTION_PARAMETERS)),
                         RC_DEVICE);
        learner->ops->destroy(learner);
        backend_destroy(backend);
        configure(0, 0, 0);
        assert_int_equal(virtual_memory_used(), 0);
        mem_free(values);
    }
}

/* Each allocation in turn, of the backend's making and the replica's; and of the first passes,
 * which may take memory, too. */
static void memory_that_is_short_is_told_and_nothing_is_kept(void **state)
{
    struct replica_options options = options_of(SMALL);
    uint64_t blocks = mem_blocks(), failures = 0;
    bool is_done = false;

    (void)state;
    if (virtual_configure == NULL) parity_leave_out("only the virtual device fails on request");
    options.optimizer = "muon";
    options.accumulate = 2;
    for (uint64_t n = 1; !is_done && n < 400; n++) {
        struct fault why = {""};
        struct learner *learner = NULL;
        struct backend *backend;
        enum rc rc = RC_NOMEM;

        configure(0, 0, n);
        backend = parity_device(1, false, &why);
        if (backend != NULL) rc = replica_create(backend, &options, &learner, &why);
        if (rc == RC_OK) {
            rc = trained(learner, 3);
            if (rc != RC_OK) fault_set(&why, rc, "%s", learner->ops->why(learner));
            learner->ops->destroy(learner);
        }
        is_done = rc == RC_OK;
        if (!is_done) {
            failures++;
            assert_int_equal(rc, RC_NOMEM);
            if (strstr(why.text, "memory") == NULL) fail_msg("%u: '%s'", (unsigned)n, why.text);
        }
        backend_destroy(backend);
        configure(0, 0, 0);
        assert_int_equal(virtual_memory_used(), 0);
        assert_int_equal(mem_blocks(), blocks);
    }
    assert_true(is_done && failures > 20);
    parity_checks += failures;
}

/* Asks both devices, and waits for what they have yet to do. */
static void settle(struct learner *learner)
{
    struct evaluation evaluation;

    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    for (int device = 2; device-- > 0;) {
        assert_int_equal(cudaSetDevice(device), cudaSuccess);
        assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
    }
}

static void configure_two(uint64_t lost_after)
{
    struct virtual_options options = virtual_options_default();

    options.devices = 2;
    options.lost_after = lost_after;
    virtual_configure(&options);
}

/* Whichever of them notices first, and wherever: none waits for the others for ever. */
static void of_two_devices_none_waits_for_one_that_is_lost(void **state)
{
    struct replica_options options = options_of(SMALL);

    (void)state;
    if (virtual_configure == NULL) parity_leave_out("only the virtual device fails on request");
    options.accumulate = 2;
    for (uint64_t calls = 1; calls < 900; calls += calls < 60 ? 5 : 61) {
        struct fault why = {""};
        struct backend *pair;
        struct learner *learner;
        enum rc rc = RC_OK;

        configure_two(0);
        pair = parity_device(2, false, &why);
        assert_non_null(pair);
        learner = make(pair, &options);
        assert_int_equal(trained(learner, 3), RC_OK);
        settle(learner);
        configure_two(calls);
        for (int i = 0; rc == RC_OK && i < 100; i++) {
            rc = trained(learner, 2);
        }
        assert_int_equal(rc, RC_DEVICE);
        assert_non_null(strstr(learner->ops->why(learner), "GPU "));
        assert_int_equal(trained(learner, 1), RC_DEVICE);
        learner->ops->destroy(learner);
        backend_destroy(pair);
    }
}

static void a_model_larger_than_the_device_is_refused_when_it_is_made(void **state)
{
    struct replica_options options = options_of("linear:4000 relu linear:4000 relu linear:classes");
    struct learner *learner = NULL;
    struct fault why = {""};
    struct backend *backend;

    (void)state;
    if (virtual_configure == NULL) parity_leave_out("only the virtual device fails on request");
    configure(0, (size_t)120 << 20, 0);
    backend = side_open(ON_DEVICE, false);
    assert_int_equal(replica_create(backend, &options, &learner, &why), RC_NOMEM);
    assert_null(learner);
    assert_non_null(strstr(why.text, "out of memory"));
    options.model = "mlp"; /* the device is none the worse */
    learner = make(backend, &options);
    assert_int_equal(trained(learner, 4), RC_OK);
    learner->ops->destroy(learner);
    backend_destroy(backend);
    parity_checks++;
}

static void what_is_no_device_is_told(void **state)
{
    struct virtual_options options;
    struct fault why = {""};

    (void)state;
    if (virtual_configure == NULL) parity_leave_out("only the virtual device fails on request");
    options = virtual_options_default();
    options.has_no_driver = true;
    virtual_configure(&options);
    assert_null(parity_device(1, false, &why));
    assert_non_null(strstr(why.text, "driver"));
    options.has_no_driver = false;
    options.devices = 0;
    virtual_configure(&options);
    assert_null(parity_device(1, false, &why));
    assert_non_null(strstr(why.text, "no GPU"));
    options.devices = 1;
    virtual_configure(&options);
    assert_null(parity_device(2, false, &why));
    assert_non_null(strstr(why.text, "there is no GPU 1"));
    options.capability = 75;
    virtual_configure(&options);
    assert_null(parity_device(1, false, &why));
    assert_non_null(strstr(why.text, "8.0"));
    parity_checks += 4;
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(a_model_that_is_no_longer_finite_is_told),
    cmocka_unit_test(a_token_that_is_none_is_refused),
    cmocka_unit_test_teardown(a_lost_device_is_told_whenever_it_happens, found_again),
    cmocka_unit_test_teardown(memory_that_is_short_is_told_and_nothing_is_kept, found_again),
    cmocka_unit_test_teardown(of_two_devices_none_waits_for_one_that_is_lost, found_again),
    cmocka_unit_test_teardown(a_model_larger_than_the_device_is_refused_when_it_is_made,
                              found_again),
    cmocka_unit_test_teardown(what_is_no_device_is_told, found_again),
};

PARITY_MAIN("faults", tests)
