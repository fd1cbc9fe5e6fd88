/* Convolutions: every implementation against the plain C twin on random shapes and options, with
 * poisoned outputs; the twin against finite differences. */
#include "tests/unit/kernels/conv_cases.h"

static struct backend *rounded(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){
        .threads = 1, .precision = PRECISION_BF16, .forces_bf16 = true});
}

/* Channels as nets have them: few, blocks, odd counts; one group, several, one a channel. */
static void random_channels(struct conv_options *o, struct rng *rng)
{
    static const uint32_t each[] = {1, 2, 3, 5, 8, 16, 20, 32};
    uint32_t ins = each[rng_below(rng, ARRAY_COUNT(each))];
    uint32_t outs = each[rng_below(rng, ARRAY_COUNT(each))];
    uint32_t blocks[3] = {1, 1, 1};

    o->groups = rng_below(rng, 3) == 0 ? between(rng, 2, 4) : 1;
    if (o->groups > 1 && rng_below(rng, 2) == 0) { /* depthwise */
        o->groups = ins;
        ins = 1;
        outs = between(rng, 1, 2);
    }
    o->in.channels = ins * o->groups;
    o->out_channels = outs * o->groups;
    blocks[1] = o->in.channels;
    if (o->in.channels % 16 == 0) blocks[2] = 16;
    o->in.block = blocks[rng_below(rng, ARRAY_COUNT(blocks))];
}

/* Any shape and option; kernels fit. */
static struct conv_options random_options(struct rng *rng)
{
    struct conv_options o = {
        .kernel_height = between(rng, 1, 5),
        .kernel_width = between(rng, 1, 5),
        .stride = between(rng, 1, 3),
        .dilation = between(rng, 1, 2),
        .images = between(rng, 1, 3),
        .with_bias = rng_below(rng, 3) != 0,
        .with_relu = rng_below(rng, 2) == 0,
        .with_gradients = rng_below(rng, 5) != 0,
        .with_input_gradient = rng_below(rng, 5) != 0,
    };

    if (rng_below(rng, 2) == 0) o.kernel_height = o.kernel_width = 3;
    o.padding_height = between(rng, 0, o.kernel_height / 2 + 1);
    o.padding_width = between(rng, 0, o.kernel_width / 2 + 1);
    random_channels(&o, rng);
    o.in.height = between(rng, 1, 12) + o.dilation * (o.kernel_height - 1);
    o.in.width = between(rng, 1, 12) + o.dilation * (o.kernel_width - 1);
    if (rng_below(rng, 2) == 0 && o.in.height > 2 * o.padding_height) {
        o.in.height -= 2 * o.padding_height; /* the kernel may hang over on both sides */
    }
    while (conv_out_shape(&o).height == 0) {
        o.in.height++;
    }
    return o;
}

static void convolutions_equal_their_twin_by_im2col(void **state)
{
    (void)state;
    struct backend *cpu = columns(), *oracle = plain();
    FOR_EACH_SEED (seed, 30) {
        struct rng rng;
        rng_init(&rng, seed, 8);
        struct conv_options options = random_options(&rng);
        check_random_values(cpu, oracle, &options, 1e-5, seed);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void convolutions_equal_their_twin_by_whatever_the_library_chooses(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *oracle = plain();
    FOR_EACH_SEED (seed, 30) {
        struct rng rng;
        rng_init(&rng, seed, 9);
        struct conv_options options = random_options(&rng);
        check_random_values(cpu, oracle, &options, 1e-5, seed);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void convolutions_of_rounded_values_stay_near_their_twin(void **state)
{
    (void)state;
    struct backend *cpu = rounded(), *oracle = plain();
    FOR_EACH_SEED (seed, 20) {
        struct rng rng;
        rng_init(&rng, seed, 10);
        struct conv_options options = random_options(&rng);
        check_random_values(cpu, oracle, &options, 1e-2, seed);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void locally_connected_layers_equal_their_twin(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *oracle = plain();
    FOR_EACH_SEED (seed, 15) {
        struct rng rng;
        rng_init(&rng, seed, 11);
        struct conv_options options = random_options(&rng);
        options.is_local = true;
        options.groups = 1;
        check_random_values(cpu, oracle, &options, 1e-5, seed);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void large_convolutions_agree_between_libraries(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *other = columns();
    struct conv_options cases[] = {
        usual(1, 32, 28, 16), usual(32, 64, 28, 8), usual(16, 16, 28, 8), usual(64, 64, 7, 16),
        usual(16, 32, 28, 8), usual(64, 64, 7, 3),  usual(32, 32, 14, 8),
    };

    cases[4].stride = 2;
    cases[6].in.block = 32; /* channels-last, as Winograd's algorithm does not have it */
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        check_random_values(cpu, other, &cases[i], 1e-5, i);
    }
    backend_destroy(cpu);
    backend_destroy(other);
}

/* sum(y dy) of the twin: its slopes are the gradients. */
struct twin_problem {
    struct conv_case *c;
    float *y;
};

static double twin_loss(void *problem)
{
    struct twin_problem *p = problem;
    const struct conv_options *o = &p->c->options;
    double sum = 0.0;

    reference_conv_forward(o, p->c->x, p->c->w, p->c->bias, p->y);
    for (size_t i = 0; i < outs_of(o); i++) {
        sum += (double)p->y[i] * (double)p->c->dy[i];
    }
    return sum;
}

static void gradients_of_the_twin_are_slopes_of_its_output(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 16) {
        struct rng rng;
        rng_init(&rng, seed, 12);
        struct conv_options o = {
            .in = {4, between(&rng, 4, 6), between(&rng, 4, 6), 1u << rng_below(&rng, 3)},
            .out_channels = 2 * between(&rng, 1, 2),
            .kernel_height = between(&rng, 1, 3),
            .kernel_width = between(&rng, 1, 3),
            .padding_height = between(&rng, 0, 1),
            .padding_width = between(&rng, 0, 1),
            .stride = between(&rng, 1, 2),
            .dilation = between(&rng, 1, 2),
            .groups = seed % 4 == 0 ? 2 : 1,
            .is_local = seed % 4 == 1,
            .images = between(&rng, 1, 2),
            .with_bias = true,
        };
        if (conv_out_shape(&o).height == 0 || conv_out_shape(&o).width == 0) continue;
        struct conv_case c = case_create(&o, &rng);
        float *dx = poisoned(ins_of(&o)), *dw = poisoned(conv_weight_values(&o));
        float *db = poisoned(conv_filters(&o));
        struct twin_problem problem = {&c, poisoned(outs_of(&o))};
        struct slope slope = {twin_loss, &problem};

        reference_conv_backward_data(&o, c.w, c.dy, dx);
        reference_conv_backward_weights(&o, c.x, c.dy, true, dw, db);
        check_seed(seed, slope_is(&slope, c.x, dx, ins_of(&o)));
        check_seed(seed, slope_is(&slope, c.w, dw, conv_weight_values(&o)));
        check_seed(seed, slope_is(&slope, c.bias, db, conv_filters(&o)));
        mem_free(dx);
        mem_free(dw);
        mem_free(db);
        mem_free(problem.y);
        case_destroy(&c);
    }
}

/* A depthwise filter by hand: each channel is its own, and dilation skips a pixel. */
static void a_depthwise_dilated_window_is_what_one_writes_by_hand(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    struct conv_options o = {.in = {2, 1, 3, 1},
                             .out_channels = 2,
                             .kernel_height = 1,
                             .kernel_width = 2,
                             .stride = 1,
                             .dilation = 2,
                             .groups = 2,
                             .images = 1};
    const float x[] = {1, 2, 3, 10, 20, 30}, w[] = {1, 2, 3, 4};
    float y[2] = {NAN, NAN};
    struct conv *conv;

    assert_int_equal(cpu->ops->conv_create(cpu, &o, &conv), RC_OK);
    assert_int_equal(image_values(conv->out), 2);
    assert_int_equal(conv->ops->prepare(conv, w, NULL), RC_OK);
    assert_int_equal(conv->ops->forward(conv, x, y), RC_OK);
    assert_float_equal(y[0], 1 * 1 + 3 * 2, 1e-5);
    assert_float_equal(y[1], 10 * 3 + 30 * 4, 1e-5);
    conv->ops->destroy(conv);
    backend_destroy(cpu);
}

static void check_allocations(struct backend *(*make)(void), const struct conv_options *options)
{
    uint64_t before = mem_blocks();
    bool is_done = false;

    for (uint64_t n = 0; !is_done && n < 100; n++) {
        struct backend *cpu = make();
        struct conv *conv = NULL;
        mem_fail_after(n);
        enum rc rc = cpu->ops->conv_create(cpu, options, &conv);
        mem_fail_after(UINT64_MAX);
        assert_true(rc == RC_OK || rc == RC_NOMEM);
        is_done = rc == RC_OK;
        if (is_done) conv->ops->destroy(conv);
        backend_destroy(cpu);
        assert_int_equal(mem_blocks(), before);
    }
    assert_true(is_done);
}

static void every_failed_allocation_is_reported_and_leaks_nothing(void **state)
{
    (void)state;
    struct backend *(*const makers[])(void) = {fast, columns, plain, rounded};
    struct conv_options local = usual(2, 3, 5, 2), depthwise = usual(32, 32, 14, 2);
    struct conv_options options = usual(16, 16, 16, 8);

    local.is_local = true;
    depthwise.groups = 32;
    for (size_t m = 0; m < ARRAY_COUNT(makers); m++) {
        check_allocations(makers[m], &options);
        check_allocations(makers[m], &local);
        check_allocations(makers[m], &depthwise);
    }
}

static void check_repeat(struct backend *cpu, const struct conv_options *o)
{
    struct rng rng;
    struct conv_case c;
    struct conv_results a, b;

    rng_init(&rng, 3, 13);
    c = case_create(o, &rng);
    a = convolve(cpu, &c);
    b = convolve(cpu, &c);
    check_equal_bits(o, &a, &b);
    results_destroy(&a);
    results_destroy(&b);
    case_destroy(&c);
}

static void equal_calls_give_equal_bits(void **state)
{
    (void)state;
    struct conv_options cases[] = {usual(32, 64, 28, 8), usual(32, 64, 28, 8), usual(48, 48, 9, 4),
                                   usual(20, 12, 9, 4), usual(4, 4, 6, 3)};

    cases[1].stride = 2;
    cases[2].groups = 48;
    cases[4].is_local = true;
    for (uint32_t threads = 1; threads <= 2; threads++) {
        for (int with_bf16 = 0; with_bf16 < 2; with_bf16++) {
            struct backend *cpu = cpu_backend_create(&(struct cpu_backend_options){
                .threads = threads,
                .precision = with_bf16 ? PRECISION_BF16 : PRECISION_F32,
                .forces_bf16 = true});
            backend_bind_thread(cpu);
            for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
                check_repeat(cpu, &cases[i]);
            }
            backend_destroy(cpu);
        }
    }
    struct backend *one = fast(); /* the thread's pool as the other tests expect it */
    backend_bind_thread(one);
    backend_destroy(one);
}

static void two_threads_give_what_one_gives(void **state)
{
    (void)state;
    struct backend *two = cpu_backend_create(&(struct cpu_backend_options){.threads = 2});
    struct backend *oracle = plain();

    FOR_EACH_SEED (seed, 10) {
        struct rng rng;
        rng_init(&rng, seed, 14);
        struct conv_options options = random_options(&rng);
        backend_bind_thread(two);
        check_random_values(two, oracle, &options, 1e-5, seed);
    }
    backend_bind_thread(oracle);
    backend_destroy(two);
    backend_destroy(oracle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_the_twin_are_slopes_of_its_output),
        cmocka_unit_test(a_depthwise_dilated_window_is_what_one_writes_by_hand),
        cmocka_unit_test(convolutions_equal_their_twin_by_im2col),
        cmocka_unit_test(convolutions_equal_their_twin_by_whatever_the_library_chooses),
        cmocka_unit_test(convolutions_of_rounded_values_stay_near_their_twin),
        cmocka_unit_test(locally_connected_layers_equal_their_twin),
        cmocka_unit_test(large_convolutions_agree_between_libraries),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
        cmocka_unit_test(equal_calls_give_equal_bits),
        cmocka_unit_test(two_threads_give_what_one_gives),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
