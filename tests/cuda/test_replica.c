/*
 * replica: steps on the device and on the processor: every kind of layer and task, every optimizer,
 * schedules, accumulation and clipping, masks, and steps in any portions.
 *
 * Limits: two orders of sums part twelve float32 steps of the small models here by 1e-6 of their
 * way (measured on the processor, see test_models.c); relu and maxima may part them by 1e-3, now
 * and then, and steps whose size does not follow from the gradient's (Adam, Muon) by as much.
 */
#include "tests/cuda/models.h"

#include <stdatomic.h>

enum { STEPS = 12, BATCH = 16 };
static const double WAY = 1e-2, LOSS = 1e-4;

static struct replica_options options_of(const char *model, const char *data)
{
    return (struct replica_options){
        .model = model, .data = data, .batch = BATCH, .shard = "all", .seed = 2, .stream_seed = 3};
}

static void check(const char *what, const struct apart *apart)
{
    parity_checks++;
    if (apart->loss <= LOSS && apart->parameters <= WAY && apart->statistics <= 1e-4) return;
    fail_msg("%s: apart by %.3g (loss), %.3g (parameters), %.3g (statistics)", what, apart->loss,
             apart->parameters, apart->statistics);
}

/* Twelve steps on both sides. */
static void check_both(const struct replica_options *options, const char *what)
{
    struct course got = course_on(ON_DEVICE, false, options, STEPS);
    struct course wanted = course_on(ON_PROCESSOR, false, options, STEPS);
    struct apart apart = courses_apart(&got, &wanted);

    check(what, &apart);
    assert_true(fabs(got.correct_share - wanted.correct_share) < 1e-9);
    course_end(&got);
    course_end(&wanted);
}

/* --- layers and tasks --------------------------------------------------------------------------*/

static void every_kind_of_layer_trains_as_on_the_processor(void **state)
{
    static const char *const images[] = {
        "conv3x3:8 bn relu conv3x3:8,stride=2 bn:8 silu globalpool linear:classes",
        "conv3x3:16 gn:4 silu conv3x3:16,groups=16 conv1x1:32 gelu avgpool2 linear:classes",
        "conv3x3:8,wn=1 leaky:0.1 maxpool3,stride=2,pad=1 linear:24,wn=1 gelu-tanh ln "
        "linear:classes",
        "conv3x3:8,dilation=2 sigmoid local3x3:4 tanh linear:classes",
        "[ conv1x1:8 | conv3x3:8 | conv5x5:8 ]concat bn relu globalpool linear:classes",
        "conv3x3:8 bn relu [ conv3x3:16,stride=2 bn relu conv3x3:16 bn | shortcut:16,stride=2 ]+ "
        "relu globalpool linear:classes",
        "rows gru:24 rnn:16,truncate=3 last linear:classes",
        "rows lstm:24,truncate=4 ln last linear:classes",
        "linear:classes",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(images); i++) {
        struct replica_options options = options_of(images[i], "digits");
        options.optimizer = "momentum:lr=0.01";
        check_both(&options, images[i]);
    }
}

static void language_models_train_as_on_the_processor(void **state)
{
    static const char *const models[] = {
        "embed:32 positions:16 ( [ ln attention:4 ]+ [ ln linear:64 gelu linear:32 ]+ )*2 ln "
        "linear:classes,tied=1,bias=0",
        "embed:32 [ ln attention:2,rotary=1,causal=0 ]+ ln linear:classes",
        "embed:16 lstm:32 gru:16 linear:classes",
    };
    struct scratch scratch;
    char data[512];

    (void)state;
    scratch_init(&scratch);
    snprintf(data, sizeof(data), "text:%s,context=16", text_made(&scratch));
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        struct replica_options options = options_of(models[i], data);
        options.batch = 4;
        options.optimizer = "momentum:lr=0.1";
        check_both(&options, models[i]);
    }
    scratch_deinit(&scratch);
}

static void heads_real_values_and_single_answers_train_as_on_the_processor(void **state)
{
    static const char *const models[][2] = {
        {"treenet", "digits"},
        {"conv3x3:8 relu maxpool2 [ linear:16 relu linear:classes ]*3", "digits"},
        {"linear:16 tanh linear:classes", "synthetic:least-squares,features=8,outputs=3"},
        {"linear:classes", "synthetic:least-squares,features=8"},
        {"linear:32 relu linear:classes", "synthetic:spirals"},
        {"embed:8 lstm:12 last linear:classes", "synthetic:parity,length=6"},
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(models); i++) {
        struct replica_options options = options_of(models[i][0], models[i][1]);
        struct course got = course_on(ON_DEVICE, false, &options, STEPS);
        struct course wanted = course_on(ON_PROCESSOR, false, &options, STEPS);
        struct apart apart = courses_apart(&got, &wanted);
        check(models[i][0], &apart);
        assert_int_equal(isnan(got.correct_share) != 0, isnan(wanted.correct_share) != 0);
        course_end(&got);
        course_end(&wanted);
    }
}

/* Dropout draws from the seed, the pass and the place alone: with other masks the courses would be
 * far apart, as they are with another stream. */
static void masks_are_the_processors(void **state)
{
    const char *model = "dropout:0.3 linear:32 dropout:0.5 relu linear:classes";
    struct replica_options options = options_of(model, "digits");
    struct course got = course_on(ON_DEVICE, false, &options, STEPS), wanted, other;
    struct apart apart;

    (void)state;
    wanted = course_on(ON_PROCESSOR, false, &options, STEPS);
    apart = courses_apart(&got, &wanted);
    check("dropout", &apart);
    options.stream_seed++;
    other = course_on(ON_PROCESSOR, false, &options, STEPS);
    apart = courses_apart(&got, &other);
    assert_true(apart.parameters > 0.1);
    course_end(&got);
    course_end(&wanted);
    course_end(&other);
}

/* --- steps -------------------------------------------------------------------------------------*/

static void every_optimizer_takes_the_processors_steps(void **state)
{
    static const char *const optimizers[] = {
        "sgd:wd=1e-3",      "momentum:lr=0.05,wd=1e-4",
        "nesterov:lr=0.01", "adagrad",
        "rmsprop",          "adam",
        "adamw:wd=0.1",     "lars:wd=1e-4",
        "lamb:wd=0.01",     "muon:wd=0.01",
    };

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(optimizers); i++) {
        struct replica_options options = options_of("linear:24 tanh linear:classes", "digits");
        options.optimizer = optimizers[i];
        options.schedule = "cosine:warmup=3,min=0.1";
        options.steps_total = 20;
        check_both(&options, optimizers[i]);
    }
}

static void accumulation_clipping_and_growing_batches_are_the_processors(void **state)
{
    struct replica_options options = options_of("linear:24 tanh linear:classes", "digits");

    (void)state;
    options.accumulate = 3;
    check_both(&options, "accumulated");
    options.clip = 0.05; /* always too long */
    check_both(&options, "accumulated and clipped");
    options.accumulate = 1;
    options.optimizer = "muon";
    check_both(&options, "clipped, whole tensors");
    options.clip = 1e6; /* never */
    options.optimizer = "adamw";
    options.schedule = "grow:every=4,factor=2,max=3";
    check_both(&options, "growing");
}

static void a_clipped_step_is_as_long_as_the_limit(void **state)
{
    struct replica_options options = options_of("mlp", "digits");
    struct course course;

    (void)state;
    options.optimizer = "sgd:lr=1";
    options.clip = 0.01;
    course = course_on(ON_DEVICE, false, &options, 1);
    assert_float_equal(way_of(&course), 0.01, 1e-5);
    course_end(&course);
}

/* What a peer multiplies its rate with, as it adapts to the swarm. */
static void the_rate_is_multiplied(void **state)
{
    struct replica_options options = options_of("mlp", "digits");
    struct backend *backend = side_open(ON_DEVICE, false);
    struct learner *learner;
    struct course course;

    (void)state;
    options.optimizer = "sgd:lr=1";
    options.clip = 0.01;
    learner = make(backend, &options);
    learner->ops->set_rate_factor(learner, 0.5);
    course = course_of(learner, 1);
    assert_float_equal(way_of(&course), 0.005, 1e-5);
    course_end(&course);
    learner->ops->destroy(learner);
    backend_destroy(backend);
}

/* Portions end with an answer from the device; passes are recorded from the third on. Equal calls
 * give equal bits, so neither may show. */
static void steps_in_any_portions_are_the_same_steps(void **state)
{
    for (int is_bf16 = 0; is_bf16 < 2; is_bf16++) {
        struct replica_options options =
            options_of("conv3x3:8 bn relu maxpool2 dropout:0.2 linear:classes", "digits");
        struct backend *backends[2] = {side_open(ON_DEVICE, is_bf16),
                                       side_open(ON_DEVICE, is_bf16)};
        struct learner *a = make(backends[0], &options), *b = make(backends[1], &options);
        double sum = 0.0;

        for (int i = 0; i < 10; i++) {
            sum += train(a, 1).loss_sum;
        }
        sum -= train(b, 7).loss_sum;
        sum -= train(b, 3).loss_sum;
        assert_true(fabs(sum) < 1e-9);
        check_equal(a, b);
        a->ops->destroy(a);
        b->ops->destroy(b);
        backend_destroy(backends[0]);
        backend_destroy(backends[1]);
    }
    (void)state;
}

static void a_gradient_and_a_step_are_a_training_step(void **state)
{
    struct replica_options options = options_of("mlp", "digits");
    struct backend *backends[2] = {side_open(ON_DEVICE, false), side_open(ON_DEVICE, false)};
    struct learner *a = make(backends[0], &options), *b = make(backends[1], &options);
    float *gradient = mem_array(count_of(a, SECTION_GRADIENT), sizeof(float));
    struct train_report report;

    (void)state;
    for (int i = 0; i < 3; i++) {
        train(a, 1);
        assert_int_equal(b->ops->gradient(b, gradient, &report), RC_OK);
        assert_int_equal(b->ops->step(b, gradient), RC_OK);
    }
    assert_int_equal(report.samples, 3 * BATCH);
    check_equal(a, b);
    mem_free(gradient);
    a->ops->destroy(a);
    b->ops->destroy(b);
    backend_destroy(backends[0]);
    backend_destroy(backends[1]);
}

static void stop_is_honoured_between_steps(void **state)
{
    struct replica_options options = options_of("mlp", "digits");
    struct backend *backend = side_open(ON_DEVICE, false);
    struct learner *learner = make(backend, &options);
    atomic_bool stop = true;
    struct train_report report = {.steps = 9};

    (void)state;
    assert_int_equal(learner->ops->train(learner, 5, &stop, &report), RC_OK);
    assert_int_equal(report.steps, 0);
    atomic_store(&stop, false);
    assert_int_equal(learner->ops->train(learner, 5, &stop, &report), RC_OK);
    assert_int_equal(report.steps, 5);
    learner->ops->destroy(learner);
    backend_destroy(backend);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(every_kind_of_layer_trains_as_on_the_processor),
    cmocka_unit_test(language_models_train_as_on_the_processor),
    cmocka_unit_test(heads_real_values_and_single_answers_train_as_on_the_processor),
    cmocka_unit_test(masks_are_the_processors),
    cmocka_unit_test(every_optimizer_takes_the_processors_steps),
    cmocka_unit_test(accumulation_clipping_and_growing_batches_are_the_processors),
    cmocka_unit_test(a_clipped_step_is_as_long_as_the_limit),
    cmocka_unit_test(the_rate_is_multiplied),
    cmocka_unit_test(steps_in_any_portions_are_the_same_steps),
    cmocka_unit_test(a_gradient_and_a_step_are_a_training_step),
    cmocka_unit_test(stop_is_honoured_between_steps),
};

PARITY_MAIN("replica", tests)
