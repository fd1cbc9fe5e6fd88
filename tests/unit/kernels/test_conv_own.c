/* Convolutions of our own, by Winograd's algorithm and of first layers: against the plain C twin,
 * in slices and with threads, and which shapes they serve. */
#include "tests/unit/kernels/conv_cases.h"

#include "kernels/cpu/internal.h"

/* What serves a convolution; forgets it. */
static bool is_winograd(struct backend *backend, const struct conv_options *o)
{
    struct conv *conv;
    bool is;

    assert_int_equal(backend->ops->conv_create(backend, o, &conv), RC_OK);
    is = strcmp(conv->ops->name, "winograd") == 0;
    conv->ops->destroy(conv);
    return is;
}

/* Sides from one tile to several, paddings to two, any layout of whole blocks. */
static struct conv_options random_winograd(struct rng *rng)
{
    struct conv_options o = usual(16 * between(rng, 1, 3), 16 * between(rng, 1, 4), 1, 1);

    o.in.block = (uint32_t[]){8, 16, 16, o.in.channels}[rng_below(rng, 4)];
    o.padding_height = between(rng, 0, 2);
    o.padding_width = between(rng, 0, 2);
    o.in.height = between(rng, 3, 18);
    o.in.width = between(rng, 3, 18);
    o.images = between(rng, 1, 20);
    o.with_bias = rng_below(rng, 3) != 0;
    o.with_relu = rng_below(rng, 2) == 0;
    o.with_input_gradient = rng_below(rng, 5) != 0;
    return o;
}

/* What an operation leaves in scratch memory, or finds there, means nothing to the next. */
static void poison_scratch(struct backend *backend)
{
    struct cpu_backend *cpu = cpu_of(backend);

    memset(cpu->scratch, 0xff, cpu->scratch_bytes); /* NaN */
}

static void winograd_convolutions_equal_their_twin(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *oracle = plain();
    uint64_t served = 0, all = 0;

    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 15);
        struct conv_options options = random_winograd(&rng);
        served += is_winograd(cpu, &options);
        all++;
        if (cpu_of(cpu)->scratch != NULL) poison_scratch(cpu);
        check_random_values(cpu, oracle, &options, 3e-6, seed);
    }
    assert_true(!cpu_has(CPU_AVX2) || 4 * served > all); /* the others are too small */
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void winograd_serves_what_it_can_and_what_pays(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *other = columns();
    struct conv_options o = usual(32, 64, 28, 8), changed;

    assert_int_equal(is_winograd(cpu, &o), cpu_has(CPU_AVX2));
    assert_false(is_winograd(other, &o)); /* im2col was asked for */
    changed = o, changed.in.block = 1;
    assert_false(is_winograd(cpu, &changed));
    changed = o, changed.stride = 2;
    assert_false(is_winograd(cpu, &changed));
    changed = o, changed.dilation = 2;
    assert_false(is_winograd(cpu, &changed));
    changed = o, changed.groups = 2;
    assert_false(is_winograd(cpu, &changed));
    changed = o, changed.kernel_width = 5;
    assert_false(is_winograd(cpu, &changed));
    changed = o, changed.padding_width = 3;
    assert_false(is_winograd(cpu, &changed));
    changed = o, changed.out_channels = 24;
    assert_false(is_winograd(cpu, &changed));
    changed = usual(64, 64, 7, 3); /* 12 tiles */
    assert_false(is_winograd(cpu, &changed));
    changed = usual(16, 16, 5, 64); /* most of a tile hangs over */
    assert_false(is_winograd(cpu, &changed));
    backend_destroy(cpu);
    backend_destroy(other);
}

/* A batch in slices is the batch: images do not see each other, whichever block of tiles they
 * share. */
static void slices_of_a_winograd_batch_give_the_same_bits(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    struct conv_options whole = usual(32, 16, 15, 6), part = whole;
    struct rng rng;
    struct conv_case c, of_part;
    struct conv_results all, slice;

    rng_init(&rng, 5, 16);
    c = case_create(&whole, &rng);
    all = convolve(cpu, &c);
    part.images = 2;
    of_part = c;
    of_part.options = part;
    for (uint32_t first = 0; cpu_has(CPU_AVX2) && first < whole.images; first += part.images) {
        of_part.x = c.x + first * image_values(whole.in);
        of_part.dy = c.dy + first * image_values(conv_out_shape(&whole));
        slice = convolve(cpu, &of_part);
        assert_string_equal(slice.by, "winograd");
        assert_memory_equal(slice.y, all.y + first * image_values(conv_out_shape(&whole)),
                            outs_of(&part) * sizeof(float));
        assert_memory_equal(slice.dx, all.dx + first * image_values(whole.in),
                            ins_of(&part) * sizeof(float));
        results_destroy(&slice);
    }
    results_destroy(&all);
    case_destroy(&c);
    backend_destroy(cpu);
}

/* One to four plain channels, any window: the weights' gradient of a first layer has a way of its
 * own. */
static struct conv_options random_first(struct rng *rng)
{
    struct conv_options o = usual(between(rng, 1, 4), 8 * between(rng, 1, 5), 1, 1);

    o.kernel_height = between(rng, 1, 5);
    o.kernel_width = between(rng, 1, 5);
    o.padding_height = between(rng, 0, o.kernel_height);
    o.padding_width = between(rng, 0, o.kernel_width);
    o.stride = between(rng, 1, 3);
    o.dilation = between(rng, 1, 2);
    o.in.height = between(rng, 1, 9) + o.dilation * (o.kernel_height - 1);
    o.in.width = between(rng, 1, 9) + o.dilation * (o.kernel_width - 1);
    o.images = between(rng, 1, 4);
    o.with_bias = rng_below(rng, 3) != 0;
    o.with_input_gradient = false;
    return o;
}

static void first_layers_equal_their_twin(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *oracle = plain();
    FOR_EACH_SEED (seed, 30) {
        struct rng rng;
        rng_init(&rng, seed, 18);
        struct conv_options options = random_first(&rng);
        check_random_values(cpu, oracle, &options, 3e-6, seed);
    }
    backend_destroy(cpu);
    backend_destroy(oracle);
}

static void check_threads(const struct conv_options *o)
{
    struct conv_results by[3];
    struct rng rng;
    struct conv_case c;

    rng_init(&rng, 4, 17);
    c = case_create(o, &rng);
    for (uint32_t i = 0; i < ARRAY_COUNT(by); i++) {
        struct backend *cpu = cpu_backend_create(&(struct cpu_backend_options){.threads = i + 1});
        backend_bind_thread(cpu);
        by[i] = convolve(cpu, &c);
        backend_destroy(cpu);
    }
    for (uint32_t i = 1; i < ARRAY_COUNT(by); i++) {
        check_equal_bits(o, &by[0], &by[i]);
        results_destroy(&by[i]);
    }
    results_destroy(&by[0]);
    case_destroy(&c);
}

static void threads_of_our_own_convolutions_do_not_change_their_bits(void **state)
{
    (void)state;
    struct conv_options winograd = usual(48, 32, 13, 9), first = usual(1, 32, 13, 5);
    struct backend *one;

    if (cpu_has(CPU_AVX2)) check_threads(&winograd);
    if (cpu_has(CPU_AVX2) && !cpu_has(CPU_AVX512)) check_threads(&first); /* else oneDNN's */
    one = fast(); /* the thread's pool as the other tests expect it */
    backend_bind_thread(one);
    backend_destroy(one);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(winograd_convolutions_equal_their_twin),
        cmocka_unit_test(winograd_serves_what_it_can_and_what_pays),
        cmocka_unit_test(slices_of_a_winograd_batch_give_the_same_bits),
        cmocka_unit_test(first_layers_equal_their_twin),
        cmocka_unit_test(threads_of_our_own_convolutions_do_not_change_their_bits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
