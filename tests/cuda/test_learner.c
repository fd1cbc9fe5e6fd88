/*
 * learner: what others ask of a replica on a device: evaluation, answers, checkpoints that go on
 * where another device or none is, rounds of averaging, the last good state, steps of several
 * batches, two devices in one replica.
 */
#include "tests/cuda/models.h"

#include "replica/formats/model_file.h"
#include "replica/model/plan.h"

#define WITH_STATISTICS                                                                            \
    "conv3x3:8 bn relu maxpool2 dropout:0.2 linear:24 bn gelu dropout:0.1 linear:classes"

enum { BATCH = 16 };

static struct replica_options options_of(const char *model, const char *data)
{
    return (struct replica_options){
        .model = model, .data = data, .batch = BATCH, .shard = "all", .seed = 4, .stream_seed = 5};
}

/* A replica and its backend. */
struct seat {
    struct backend *backend;
    struct learner *learner;
};

static struct seat sit(enum side side, bool is_bf16, const struct replica_options *options)
{
    struct seat seat = {side_open(side, is_bf16), NULL};

    seat.learner = make(seat.backend, options);
    return seat;
}

static void leave(struct seat *seat)
{
    seat->learner->ops->destroy(seat->learner);
    backend_destroy(seat->backend);
}

static double apart(struct learner *a, struct learner *b, enum section section)
{
    size_t count = count_of(a, section);
    float *x = values_of(a, section), *y = values_of(b, section);
    double error = parity_error(x, y, count);

    parity_checks++;
    mem_free(x);
    mem_free(y);
    return error;
}

/* --- what it says
 * -------------------------------------------------------------------------------*/

static struct evaluation judged(struct learner *learner, uint64_t samples)
{
    struct evaluation evaluation = {0};

    assert_int_equal(learner->ops->evaluate(learner, samples, &evaluation), RC_OK);
    parity_checks++;
    return evaluation;
}

/* Running statistics, the last batch smaller than the others, merged heads, no gradient kept. */
static void equal_models_are_judged_equally(void **state)
{
    static const char *const models[] = {WITH_STATISTICS, "mlp", "treenet"};

    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_COUNT(models); i++) {
        struct replica_options options = options_of(models[i / 2], "digits");
        struct seat device = sit(ON_DEVICE, i % 2 == 1, &options);
        struct seat host = sit(ON_PROCESSOR, false, &options);
        struct evaluation got, wanted;
        double limit = i % 2 == 1 ? 2e-2 : 1e-5;

        train(host.learner, 15);
        take_over(device.learner, host.learner);
        wanted = judged(host.learner, 0);
        got = judged(device.learner, 0);
        assert_int_equal(got.samples, wanted.samples);
        assert_true(wanted.samples % BATCH != 0);
        assert_true(fabs(got.loss - wanted.loss) <= limit * wanted.loss);
        assert_true(fabs(got.accuracy - wanted.accuracy) <= (i % 2 == 1 ? 0.02 : 0.003));
        train(device.learner, 1); /* goes on */
        leave(&device);
        leave(&host);
    }
}

/* Lengths of weight-normalised rows are no activations: in bfloat16 they begin as elsewhere. */
static void normalised_weights_begin_with_their_own_lengths(void **state)
{
    struct replica_options options =
        options_of("conv3x3:7,wn=1 relu maxpool2 linear:24,wn=1 relu linear:classes", "digits");

    (void)state;
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        struct seat device = sit(ON_DEVICE, is_bf16 == 1, &options);
        struct seat host = sit(ON_PROCESSOR, false, &options);

        assert_true(apart(device.learner, host.learner, SECTION_PARAMETERS) < 1e-6);
        leave(&device);
        leave(&host);
    }
}

/* What `generate` and `predict` do: a model from a file, on shorter sequences than it learned. */
static void a_saved_model_answers_the_same_on_both_sides(void **state)
{
    struct scratch scratch;
    char data[512];
    struct replica_options options =
        options_of("embed:32 positions:16 [ ln attention:4 ]+ [ ln linear:64 gelu linear:32 ]+ ln "
                   "linear:classes,tied=1,bias=0",
                   data);
    struct tensor_file *file = tensor_file_create();
    struct model_card card;
    struct fault why = {""};
    struct seat device;

    (void)state;
    scratch_init(&scratch);
    snprintf(data, sizeof(data), "text:%s", text_made(&scratch));
    device = sit(ON_DEVICE, false, &options);
    train(device.learner, 10);
    replica_card(device.learner, &card);
    assert_int_equal(model_save(replica_model(device.learner), &card, file), RC_OK);
    for (uint32_t steps = 5; steps <= 16; steps += 11) {
        const struct model_load_options load = {.batch_max = 2, .steps = steps};
        float input[2 * 16], *logits[2];
        for (uint32_t i = 0; i < 2 * steps; i++) {
            input[i] = (float)(i * 7 % card.symbols);
        }
        for (int on_device = 0; on_device < 2; on_device++) {
            struct backend *backend = side_open(on_device ? ON_DEVICE : ON_PROCESSOR, false);
            struct model *model = NULL;
            logits[on_device] = mem_array(2 * (size_t)steps * card.symbols, sizeof(float));
            if (model_load_with(backend, file, "file", &load, &model, &card, &why) != RC_OK) {
                fail_msg("%s", why.text);
            }
            assert_int_equal(model_forward(model, input, 2, false, logits[on_device]), RC_OK);
            model_destroy(model);
            backend_destroy(backend);
        }
        assert_true(parity_error(logits[1], logits[0], 2 * (size_t)steps * card.symbols) < 1e-5);
        parity_checks++;
        mem_free(logits[0]);
        mem_free(logits[1]);
    }
    tensor_file_destroy(file);
    leave(&device);
    scratch_deinit(&scratch);
}

/* --- checkpoints
 * --------------------------------------------------------------------------------*/

static struct tensor_file *kept_of(struct learner *learner, float **parameters, float **buffers)
{
    *parameters = values_of(learner, SECTION_PARAMETERS);
    *buffers = values_of(learner, SECTION_BUFFERS);
    return saved(learner);
}

static struct seat went_on(enum side side, bool is_bf16, const struct replica_options *options,
                           const struct tensor_file *file, const float *parameters,
                           const float *buffers)
{
    struct seat seat = {side_open(side, is_bf16), NULL};

    seat.learner = resumed(seat.backend, options, parameters, file);
    assert_int_equal(seat.learner->ops->assign_section(seat.learner, SECTION_BUFFERS, buffers,
                                                       count_of(seat.learner, SECTION_BUFFERS)),
                     RC_OK);
    return seat;
}

/* To the other side: the next steps are those of a learner that never left, each from its state. A
 * value next to zero may go another way in relu, so the largest error of a step has more room than
 * that of half the steps: see the head of test_models.c. */
static void check_same_steps(const struct seat *rest, const struct seat *stayed)
{
    struct step_errors apart = learners_apart(rest->learner, stayed->learner, 8);

    printf("each step apart by at most: loss %.1e, parameters %.1e (half of them %.1e), "
           "statistics %.1e\n",
           apart.loss, apart.parameters, apart.half_within, apart.statistics);
    assert_true(apart.loss < 1e-5);
    assert_true(apart.parameters < 5e-2);
    assert_true(apart.half_within < 1e-4);
    assert_true(apart.statistics < 1e-5);
}

/* From each side to each: to its own the same bits, to the other one the same steps. */
static void a_checkpoint_goes_on_on_either_side(void **state)
{
    struct replica_options options = options_of(WITH_STATISTICS, "digits");

    (void)state;
    options.optimizer = "adamw:wd=0.05";
    options.schedule = "cosine:warmup=5%,min=0.1";
    options.steps_total = 40;
    options.accumulate = 2;
    options.clip = 0.7;
    options.augment = "crop:1";
    for (int from_device = 0; from_device < 2; from_device++) {
        enum side from = from_device ? ON_DEVICE : ON_PROCESSOR;
        struct seat whole = sit(from, false, &options);
        float *parameters, *buffers;
        struct tensor_file *file;
        train(whole.learner, 9);
        file = kept_of(whole.learner, &parameters, &buffers);
        train(whole.learner, 8);
        for (int to_device = 0; to_device < 2; to_device++) {
            enum side to = to_device ? ON_DEVICE : ON_PROCESSOR;
            struct seat rest = went_on(to, false, &options, file, parameters, buffers);
            if (from == to) {
                assert_int_equal(train(rest.learner, 8).samples, 17 * 2 * BATCH);
                check_equal(whole.learner, rest.learner);
                assert_true(apart(rest.learner, whole.learner, SECTION_BUFFERS) == 0.0);
                assert_true(apart(rest.learner, whole.learner, SECTION_MOMENTS) == 0.0);
            } else {
                struct seat stayed = went_on(from, false, &options, file, parameters, buffers);
                check_same_steps(&rest, &stayed);
                check_equal(whole.learner, stayed.learner);
                leave(&stayed);
            }
            leave(&rest);
        }
        mem_free(parameters);
        mem_free(buffers);
        tensor_file_destroy(file);
        leave(&whole);
    }
}

static void in_bfloat16_too_a_run_goes_on_to_the_bit(void **state)
{
    struct replica_options options = options_of(WITH_STATISTICS, "digits");
    struct seat whole = sit(ON_DEVICE, true, &options), rest;
    float *parameters, *buffers;
    struct tensor_file *file;

    (void)state;
    train(whole.learner, 5);
    file = kept_of(whole.learner, &parameters, &buffers);
    rest = went_on(ON_DEVICE, true, &options, file, parameters, buffers);
    train(whole.learner, 6);
    train(rest.learner, 6);
    check_equal(whole.learner, rest.learner);
    assert_true(apart(rest.learner, whole.learner, SECTION_BUFFERS) == 0.0);
    mem_free(parameters);
    mem_free(buffers);
    tensor_file_destroy(file);
    leave(&rest);
    leave(&whole);
}

/* --- averaging
 * ----------------------------------------------------------------------------------*/

/* Bytes that leave the device while it goes on training are those of the moment of the snapshot. */
static void a_snapshot_is_of_its_moment_and_a_difference_is_added(void **state)
{
    struct replica_options options = options_of(WITH_STATISTICS, "digits");
    struct seat device = sit(ON_DEVICE, false, &options), host = sit(ON_PROCESSOR, false, &options);
    struct snapshot *snapshot = NULL;
    size_t count = count_of(device.learner, SECTION_MIXED), each = 1000, seen = 0;
    float *before, *difference = mem_array(count, sizeof(float));

    (void)state;
    assert_int_equal(
        device.learner->ops->snapshot_create(device.learner, CODEC_F32, each, &snapshot), RC_OK);
    train(device.learner, 3);
    before = values_of(device.learner, SECTION_MIXED);
    assert_int_equal(device.learner->ops->snapshot_take(device.learner, snapshot), RC_OK);
    train(device.learner, 3);
    assert_int_equal(snapshot->ops->fetch(snapshot), RC_OK);
    for (size_t i = 0; seen < count; i++) {
        size_t bytes = 0;
        const uint8_t *chunk = snapshot->ops->chunk(snapshot, i, &bytes);
        assert_memory_equal(chunk, before + seen, bytes);
        seen += bytes / sizeof(float);
    }
    assert_int_equal(seen, count);
    for (size_t i = 0; i < count; i++) {
        difference[i] = 0.001F * (float)(i % 7);
    }
    take_over(host.learner, device.learner);
    assert_int_equal(snapshot->ops->put(snapshot, difference, count), RC_OK);
    assert_int_equal(device.learner->ops->snapshot_apply(device.learner, snapshot, difference),
                     RC_OK);
    assert_int_equal(
        host.learner->ops->import_section(host.learner, SECTION_MIXED, difference, count), RC_OK);
    check_equal(device.learner, host.learner); /* bit by bit */
    assert_true(apart(device.learner, host.learner, SECTION_BUFFERS) < 1e-6);
    train(device.learner, 1);
    snapshot->ops->destroy(snapshot);
    mem_free(before);
    mem_free(difference);
    leave(&device);
    leave(&host);
}

static void the_last_good_state_comes_back(void **state)
{
    struct replica_options options = options_of(WITH_STATISTICS, "digits");
    struct seat seat;
    size_t count;
    float *good, *now, *bad;
    double most = 0;

    (void)state;
    options.optimizer = "adam:lr=0.001";
    seat = sit(ON_DEVICE, false, &options);
    count = count_of(seat.learner, SECTION_PARAMETERS);
    bad = mem_array(count, sizeof(float));
    train(seat.learner, 30);
    assert_int_equal(seat.learner->ops->keep(seat.learner), RC_OK);
    good = values_of(seat.learner, SECTION_PARAMETERS);
    bad[5] = NAN;
    assert_int_equal(
        seat.learner->ops->assign_section(seat.learner, SECTION_PARAMETERS, bad, count), RC_OK);
    assert_int_equal(seat.learner->ops->keep(seat.learner), RC_NONFINITE);
    assert_int_equal(seat.learner->ops->restore(seat.learner), RC_OK);
    now = values_of(seat.learner, SECTION_PARAMETERS);
    assert_memory_equal(now, good, count * sizeof(float));
    mem_free(now);
    train(seat.learner, 1);
    now = values_of(seat.learner, SECTION_PARAMETERS);
    for (size_t i = 0; i < count; i++) {
        most = fmax(most, fabs((double)now[i] - (double)good[i]));
    }
    assert_true(most > 0.999e-3 && most < 1.001e-3); /* Adam's first step, not its 31st */
    train(seat.learner, 2);
    mem_free(good);
    mem_free(now);
    mem_free(bad);
    leave(&seat);
}

/* --- steps of several batches
 * -------------------------------------------------------------------*/

static size_t memory_of(const struct replica_options *options)
{
    struct seat seat = sit(ON_DEVICE, false, options);
    size_t bytes;

    train(seat.learner, 1);
    bytes = virtual_memory_used();
    leave(&seat);
    return bytes;
}

/* Passes after the first add to the gradients that are there, directly and recorded (from the third
 * of their kind on), whatever kind of parameters they are of, and take no memory for it. */
static void batches_of_a_step_add_up(void **state)
{
    static const char *const models[] = {
        "conv3x3:8,wn=1 bn relu maxpool2 linear:24,wn=1 bn gelu linear:classes",
        "embed:16 positions:16 [ ln attention:2 ]+ lstm:16 ln linear:classes,tied=1",
    };
    struct scratch scratch;
    char text[512];

    (void)state;
    scratch_init(&scratch);
    snprintf(text, sizeof(text), "text:%s", text_made(&scratch));
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        struct replica_options options = options_of(models[i], i == 0 ? "digits" : text);
        struct step_errors apart;
        size_t bytes;

        options.batch = 4;
        options.optimizer = "momentum:lr=0.02";
        if (virtual_memory_used != NULL) bytes = memory_of(&options);
        options.accumulate = 3;
        if (virtual_memory_used != NULL) assert_int_equal(memory_of(&options), bytes);
        apart = steps_apart(ON_DEVICE, &options, 6);
        printf("%s: each step apart by at most: loss %.1e, parameters %.1e\n", models[i],
               apart.loss, apart.parameters);
        assert_true(apart.loss < 1e-5 && apart.parameters < 1e-3);
        parity_checks++;
    }
    scratch_deinit(&scratch);
}

/* The layer behind a gelu of GPT-2's kind goes back through it, once: not where something else
 * stands between the two or reads it, too. */
static void dense_layers_go_back_through_a_gelu(void **state)
{
    static const char spec[] = "linear:40 gelu-tanh linear:24 gelu-tanh "
                               "[ linear:16 gelu-tanh dropout:0.1 linear:24 gelu-tanh ]+ "
                               "linear:classes";
    static const bool wanted[] = {false, true, false, false, false};
    struct replica_options options = options_of(spec, "digits");
    struct seat seat = sit(ON_DEVICE, true, &options);
    const struct model *model = replica_model(seat.learner);
    struct course got, host;
    struct step_errors apart;
    uint32_t dense = 0;

    (void)state;
    options.optimizer = "momentum:lr=0.02";
    for (uint32_t s = 0; s < model->stages_count; s++) {
        const struct stage *stage = &model->stages[s];
        if (stage->ops != &stage_linear_ops) continue;
        assert_int_equal(stage->joins != NO_STAGE, wanted[dense]);
        dense++;
    }
    assert_int_equal(dense, ARRAY_COUNT(wanted));
    apart = steps_apart(ON_DEVICE, &options, 6);
    assert_true(apart.loss < 1e-5 && apart.parameters < 1e-4);
    got = course_on(ON_DEVICE, true, &options, 8);
    host = course_on(ON_PROCESSOR, false, &options, 8);
    printf("bfloat16: parameters %.1e of their way apart\n", courses_apart(&got, &host).parameters);
    assert_true(courses_apart(&got, &host).parameters < 3e-2);
    parity_checks += 2;
    course_end(&got);
    course_end(&host);
    leave(&seat);
}

/* --- several devices
 * ----------------------------------------------------------------------------*/

/* A real machine has those that it has. */
static int make_two_devices(void **state)
{
    struct virtual_options options;

    (void)state;
    if (virtual_configure == NULL) return 0;
    options = virtual_options_default();
    options.devices = 2;
    virtual_configure(&options);
    return 0;
}

static int make_one_device(void **state)
{
    struct virtual_options options;

    (void)state;
    if (virtual_configure == NULL) return 0;
    options = virtual_options_default();
    virtual_configure(&options);
    return 0;
}

static void check_two_devices(const struct replica_options *options, const char *what)
{
    struct fault why = {""};
    struct backend *pair = parity_device(2, false, &why);
    struct seat one, two = {pair, NULL};
    struct train_report a, b;

    if (pair == NULL) {
        print_message("%s: one device only: %s\n", what, why.text);
        return;
    }
    one = sit(ON_DEVICE, false, options);
    two.learner = make(pair, options);
    a = train(one.learner, 10);
    b = train(two.learner, 10);
    assert_int_equal(a.samples, b.samples);
    assert_true(fabs(a.loss_sum - b.loss_sum) < 1e-4 * a.loss_sum);
    assert_true(fabs(a.correct_share - b.correct_share) < 1e-9);
    if (!(apart(two.learner, one.learner, SECTION_PARAMETERS) < 1e-4)) {
        fail_msg("%s: parameters apart by %g", what,
                 apart(two.learner, one.learner, SECTION_PARAMETERS));
    }
    assert_true(fabs(judged(two.learner, 0).loss - judged(one.learner, 0).loss) < 1e-3);
    take_over(two.learner, one.learner); /* to both */
    train(one.learner, 3);
    train(two.learner, 3);
    assert_true(apart(two.learner, one.learner, SECTION_PARAMETERS) < 1e-4);
    leave(&one);
    leave(&two);
}

/* Odd batches, clipping by the norm of the whole gradient, masks by the sample's place, moments. */
static void two_devices_take_the_steps_of_one(void **state)
{
    struct replica_options options =
        options_of("conv3x3:8 relu maxpool2 dropout:0.2 linear:24 tanh linear:classes", "digits");

    (void)state;
    check_two_devices(&options, "plain");
    options.batch = 7;
    options.accumulate = 2;
    options.clip = 0.5;
    options.optimizer = "adamw:wd=0.1";
    check_two_devices(&options, "accumulated and clipped");
    options.optimizer = "muon";
    check_two_devices(&options, "muon");
    options.accumulate = 3; /* sums up in the second pass that adds, not in the first */
    options.optimizer = NULL;
    options.model = "linear:60 relu linear:300,wn=1 relu linear:120 gelu linear:classes";
    check_two_devices(&options, "in several parts, and lengths of rows last");
}

/* Statistics of batch normalisation are those of each device's part: `bn:8` on one device. */
static void two_devices_normalise_their_parts(void **state)
{
    struct fault why = {""};
    struct backend *pair = parity_device(2, false, &why);
    struct replica_options options =
        options_of("conv3x3:8 bn relu globalpool linear:classes", "digits");
    struct seat one, two = {pair, NULL};
    float *statistics;

    (void)state;
    if (pair == NULL) parity_leave_out("two devices: there is one");
    two.learner = make(pair, &options);
    options.model = "conv3x3:8 bn:8 relu globalpool linear:classes";
    one = sit(ON_DEVICE, false, &options);
    take_over(one.learner, two.learner);
    train(one.learner, 5);
    train(two.learner, 5);
    assert_true(apart(two.learner, one.learner, SECTION_PARAMETERS) < 1e-4);
    statistics = values_of(two.learner, SECTION_BUFFERS);
    for (size_t i = 0; i < count_of(two.learner, SECTION_BUFFERS); i++) {
        assert_true(isfinite(statistics[i]));
    }
    mem_free(statistics);
    leave(&one);
    leave(&two);
}

/* What one device has gathered alone would be judged with by it alone. */
static void a_gradient_leaves_two_devices_with_equal_statistics(void **state)
{
    struct fault why = {""};
    struct backend *pair = parity_device(2, false, &why);
    struct replica_options options =
        options_of("conv3x3:8 bn relu globalpool linear:classes", "digits");
    struct seat two = {pair, NULL};
    struct evaluation before;
    struct train_report report;
    float *gradient, *statistics;
    size_t count;

    (void)state;
    if (pair == NULL) parity_leave_out("two devices: there is one");
    two.learner = make(pair, &options);
    count = count_of(two.learner, SECTION_BUFFERS);
    gradient = values_of(two.learner, SECTION_PARAMETERS);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(two.learner->ops->gradient(two.learner, gradient, &report), RC_OK);
        assert_int_equal(two.learner->ops->step(two.learner, gradient), RC_OK);
    }
    before = judged(two.learner, 0);
    statistics = values_of(two.learner, SECTION_BUFFERS);
    assert_int_equal(
        two.learner->ops->assign_section(two.learner, SECTION_BUFFERS, statistics, count), RC_OK);
    assert_true(judged(two.learner, 0).loss == before.loss);
    mem_free(gradient);
    mem_free(statistics);
    leave(&two);
}

/* It would be missed at every sum. */
static void a_device_without_a_part_of_the_batch_is_refused(void **state)
{
    static const char *const models[] = {"mlp", "conv3x3:8 bn:32 relu globalpool linear:classes"};
    static const uint32_t batches[] = {1, 32};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        struct replica_options options = options_of(models[i], "digits");
        struct fault why = {""};
        struct backend *pair = parity_device(2, false, &why);
        struct learner *learner = NULL;

        if (pair == NULL) parity_leave_out("two devices: there is one");
        options.batch = batches[i];
        assert_int_equal(replica_create(pair, &options, &learner, &why), RC_USAGE);
        assert_non_null(strstr(why.text, "2 GPUs"));
        parity_checks++;
        backend_destroy(pair);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(equal_models_are_judged_equally),
    cmocka_unit_test(normalised_weights_begin_with_their_own_lengths),
    cmocka_unit_test(a_saved_model_answers_the_same_on_both_sides),
    cmocka_unit_test(a_checkpoint_goes_on_on_either_side),
    cmocka_unit_test(in_bfloat16_too_a_run_goes_on_to_the_bit),
    cmocka_unit_test(a_snapshot_is_of_its_moment_and_a_difference_is_added),
    cmocka_unit_test(the_last_good_state_comes_back),
    cmocka_unit_test(batches_of_a_step_add_up),
    cmocka_unit_test(dense_layers_go_back_through_a_gelu),
    cmocka_unit_test_setup_teardown(two_devices_take_the_steps_of_one, make_two_devices,
                                    make_one_device),
    cmocka_unit_test_setup_teardown(two_devices_normalise_their_parts, make_two_devices,
                                    make_one_device),
    cmocka_unit_test_setup_teardown(a_gradient_leaves_two_devices_with_equal_statistics,
                                    make_two_devices, make_one_device),
    cmocka_unit_test_setup_teardown(a_device_without_a_part_of_the_batch_is_refused,
                                    make_two_devices, make_one_device),
};

PARITY_MAIN("learner", tests)
