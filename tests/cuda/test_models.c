/*
 * models: fifty steps of five presets on the device and on the processor, from the same seed and
 * the same data. Presets are as they are but for their batch, which is small.
 *
 * How close is close? On the processor itself, another order of sums (the plain C twins, or another
 * convolution) parts two courses of 50 steps, float32, two seeds each, by this much; `way` is what
 * lies between the parameters before and after:
 *
 *   mlp       loss 1e-7, parameters 3e-7 of the way
 *   cnn       loss 1e-7 or 2e-4, parameters 4e-7 or 2e-3: now and then a value next to zero, or two
 *             equal ones in a window, go another way in relu or maxpool
 *   lstm      loss 3e-8, parameters 8e-7
 *   gpt-nano  loss 6e-7, parameters 4e-4: Adam's first steps have the size of the rate wherever a
 *             gradient is not zero, and some gradients are nothing but rounding
 *   resnet20  loss 0.4, parameters 0.7: with 8 samples in batch normalisation each step makes the
 *             difference grow by half. Step by step from equal states it is: loss 1e-6, half of the
 *             steps below 3e-6 of their way, the largest 1e-2 (relu), statistics 7e-8
 *
 * The limits below are several times that. In bfloat16 it is the course of the loss that counts,
 * in means of ten steps. The virtual device is slow and makes twenty of the steps unless LONG=1:
 * what a kernel does wrong shows in the first ones.
 */
#include "tests/cuda/models.h"

enum { STEPS_MOST = 50, STEPS_VIRTUAL = 20, MEAN_OF = 10 };

static uint32_t steps_made(void)
{
#ifdef PARITY_IS_VIRTUAL
    if (getenv("LONG") == NULL) return STEPS_VIRTUAL;
#endif
    return STEPS_MOST;
}

struct preset {
    const char *model;
    const char *context; /* of a text; NULL: the digits */
    uint32_t batch;
    const char *optimizer; /* NULL: the preset's */
    double loss, parameters;
};

static const struct preset mlp = {"mlp", NULL, 16, NULL, 1e-5, 1e-4};
static const struct preset cnn = {"cnn", NULL, 8, NULL, 2e-3, 2e-2};
static const struct preset lstm = {"lstm", ",context=32", 2, NULL, 1e-5, 1e-4};
static const struct preset gpt_nano = {"gpt-nano", "", 1, NULL, 1e-4, 1e-2};
static const struct preset resnet20 = {"resnet20", NULL, 8, "momentum:lr=0.001,wd=1e-4", 1e-5, 0};

static struct replica_options options_of(const struct preset *preset, const char *text, char *data,
                                         size_t cap)
{
    if (preset->context == NULL) {
        snprintf(data, cap, "digits");
    } else {
        snprintf(data, cap, "text:%s%s", text, preset->context);
    }
    return (struct replica_options){.model = preset->model,
                                    .data = data,
                                    .batch = preset->batch,
                                    .optimizer = preset->optimizer,
                                    .shard = "all",
                                    .seed = 1,
                                    .stream_seed = 1};
}

static void check_below(const char *model, const char *what, double error, double limit)
{
    parity_checks++;
    if (error <= limit) return; /* NaN is not */
    fail_msg("%s: %s: %.3g is above %.3g", model, what, error, limit);
}

static void check_float32(const struct preset *preset)
{
    const uint32_t steps = steps_made();
    struct scratch scratch;
    struct replica_options options;
    struct course got, wanted;
    struct apart apart;
    char data[512];

    scratch_init(&scratch);
    options = options_of(preset, text_made(&scratch), data, sizeof(data));
    got = course_on(ON_DEVICE, false, &options, steps);
    wanted = course_on(ON_PROCESSOR, false, &options, steps);
    apart = courses_apart(&got, &wanted);
    printf("%s: loss %.4f to %.4f, apart by %.1e of it; parameters by %.1e of their way\n",
           preset->model, wanted.loss[0], wanted.loss[steps - 1], apart.loss, apart.parameters);
    check_below(preset->model, "loss", apart.loss, preset->loss);
    check_below(preset->model, "parameters", apart.parameters, preset->parameters);
    course_end(&got);
    course_end(&wanted);
    scratch_deinit(&scratch);
}

static double mean_loss(const struct course *course, uint32_t first)
{
    double sum = 0.0;

    for (uint32_t i = 0; i < MEAN_OF; i++) {
        sum += course->loss[first + i];
    }
    return sum / MEAN_OF;
}

/* Masters are float32 on both sides, so that a course in bfloat16 is one with noise. */
static void check_bf16(const struct preset *preset, double limit)
{
    const uint32_t steps = steps_made();
    struct scratch scratch;
    struct replica_options options;
    struct course got, wanted;
    double most = 0.0;
    char data[512];

    scratch_init(&scratch);
    options = options_of(preset, text_made(&scratch), data, sizeof(data));
    got = course_on(ON_DEVICE, true, &options, steps);
    wanted = course_on(ON_PROCESSOR, false, &options, steps);
    assert_memory_equal(got.start, wanted.start, got.parameters * sizeof(float));
    for (uint32_t i = 0; i < steps; i += MEAN_OF) {
        double a = mean_loss(&got, i), b = mean_loss(&wanted, i);
        check_below(preset->model, "loss in bfloat16", fabs(a - b) / b, limit);
        most = fmax(most, fabs(a - b) / b);
    }
    printf("%s, bf16: loss %.4f to %.4f, means of ten apart by at most %.1e of them\n",
           preset->model, got.loss[0], mean_loss(&got, steps - MEAN_OF), most);
    assert_true(mean_loss(&got, steps - MEAN_OF) < got.loss[0]); /* it learns */
    course_end(&got);
    course_end(&wanted);
    scratch_deinit(&scratch);
}

static void an_mlp_learns_on_the_device_what_it_learns_on_the_processor(void **state)
{
    (void)state;
    check_float32(&mlp);
    check_bf16(&mlp, 0.04);
}

static void a_cnn_learns_on_the_device_what_it_learns_on_the_processor(void **state)
{
    (void)state;
    check_float32(&cnn);
    check_bf16(&cnn, 0.04);
}

static void an_lstm_learns_on_the_device_what_it_learns_on_the_processor(void **state)
{
    (void)state;
    check_float32(&lstm);
    check_bf16(&lstm, 0.02);
}

static void a_language_model_learns_on_the_device_what_it_learns_on_the_processor(void **state)
{
    (void)state;
    check_float32(&gpt_nano);
    check_bf16(&gpt_nano, 0.02);
}

/* From equal states, as the head of this file says; what they are apart is of each step's own. */
static void each_step_of_a_residual_net_is_the_processors(void **state)
{
    char data[16];
    struct replica_options options = options_of(&resnet20, NULL, data, sizeof(data));
    struct step_errors apart = steps_apart(ON_DEVICE, &options, steps_made());

    (void)state;
    printf("resnet20: each step apart by at most: loss %.1e, parameters %.1e (half of them %.1e), "
           "statistics %.1e\n",
           apart.loss, apart.parameters, apart.half_within, apart.statistics);
    check_below("resnet20", "loss", apart.loss, resnet20.loss);
    check_below("resnet20", "parameters of any step", apart.parameters, 5e-2);
    check_below("resnet20", "parameters of half the steps", apart.half_within, 1e-4);
    check_below("resnet20", "statistics", apart.statistics, 1e-6);
    check_bf16(&resnet20, 0.1);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(an_mlp_learns_on_the_device_what_it_learns_on_the_processor),
    cmocka_unit_test(a_cnn_learns_on_the_device_what_it_learns_on_the_processor),
    cmocka_unit_test(an_lstm_learns_on_the_device_what_it_learns_on_the_processor),
    cmocka_unit_test(a_language_model_learns_on_the_device_what_it_learns_on_the_processor),
    cmocka_unit_test(each_step_of_a_residual_net_is_the_processors),
};

PARITY_MAIN("models", tests)
