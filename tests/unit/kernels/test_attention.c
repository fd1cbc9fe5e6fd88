/* attention on the CPU: against its plain C twin, finite differences, limits and repeats. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/reference/sequence.h"

#include <math.h>

/* Tensors of one pass. */
struct pass {
    struct attention attention;
    size_t rows, values; /* values: of y */
    float *qkv, *y, *statistics, *dy, *dqkv;
};

static struct backend *backend_of(bool is_reference)
{
    struct backend *backend = cpu_backend_create(
        &(struct cpu_backend_options){.threads = 1, .is_reference = is_reference});

    assert_non_null(backend);
    return backend;
}

/* Filled with NaN, so that a value nobody writes is found. */
static float *poisoned(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values));

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    return values;
}

static void randomise(struct rng *rng, float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(rng_normal(rng) * size);
    }
}

static struct pass pass_of(struct attention attention, uint64_t seed)
{
    struct pass pass = {.attention = attention};
    struct rng rng;

    rng_init(&rng, seed, 2);
    pass.rows = (size_t)attention.samples * attention.steps;
    pass.values = pass.rows * attention.width;
    pass.qkv = poisoned(3 * pass.values);
    pass.y = poisoned(pass.values);
    pass.statistics = poisoned(attention_statistics(&attention));
    pass.dy = poisoned(pass.values);
    pass.dqkv = poisoned(3 * pass.values);
    randomise(&rng, pass.qkv, 3 * pass.values, 1.0);
    randomise(&rng, pass.dy, pass.values, 1.0);
    return pass;
}

static void pass_free(struct pass *pass)
{
    mem_free(pass->qkv);
    mem_free(pass->y);
    mem_free(pass->statistics);
    mem_free(pass->dy);
    mem_free(pass->dqkv);
}

static void forward(struct backend *backend, const struct pass *pass)
{
    assert_int_equal(backend->ops->attention_reserve(backend, &pass->attention), RC_OK);
    assert_int_equal(backend->ops->attention_forward(backend, &pass->attention, pass->qkv, pass->y,
                                                     pass->statistics),
                     RC_OK);
}

static void backward(struct backend *backend, const struct pass *pass)
{
    struct attention_backward arguments = {.qkv = pass->qkv,
                                           .y = pass->y,
                                           .dy = pass->dy,
                                           .statistics = pass->statistics,
                                           .dqkv = pass->dqkv};
    assert_int_equal(backend->ops->attention_backward(backend, &pass->attention, &arguments),
                     RC_OK);
}

/* |a - b| over |b|, in the 2-norm; NaN if either holds one. */
static double distance(const float *a, const float *b, size_t count)
{
    double difference = 0.0, size = 0.0;

    for (size_t i = 0; i < count; i++) {
        double d = (double)a[i] - (double)b[i];
        difference += d * d;
        size += (double)b[i] * (double)b[i];
    }
    return size == 0.0 ? sqrt(difference) : sqrt(difference / size);
}

/* Steps around panels, blocks and tiles; head widths that fill vectors, and that do not. */
static struct attention random_shape(struct rng *rng)
{
    static const uint32_t steps[] = {1,  2,  3,  6,  7,  15, 16, 17,  33,
                                     47, 48, 49, 64, 95, 96, 97, 130, 257};
    static const uint32_t widths[] = {1, 2, 3, 8, 16, 18, 32, 40, 64};
    uint32_t length = steps[rng_below(rng, ARRAY_COUNT(steps))];
    /* The twins of long and wide ones take too long. */
    uint32_t width = widths[rng_below(rng, ARRAY_COUNT(widths) - (length > 130 ? 3 : 0))];
    struct attention attention = {
        .samples = 1 + (uint32_t)rng_below(rng, 2),
        .steps = length,
        .heads = 1 + (uint32_t)rng_below(rng, 3),
        .is_causal = rng_below(rng, 2) == 0,
        .is_rotary = width % 2 == 0 && rng_below(rng, 2) == 0,
    };

    attention.width = attention.heads * width;
    return attention;
}

/* A pass over NaNs leaves them wherever scratch memory is written. */
static void spoil_scratch(struct backend *backend, struct attention attention)
{
    struct pass pass = pass_of(attention, 1);

    for (size_t i = 0; i < 3 * pass.values; i++) {
        pass.qkv[i] = NAN;
    }
    forward(backend, &pass);
    backward(backend, &pass);
    assert_true(isnan(pass.y[0]) && isnan(pass.dqkv[0]));
    pass_free(&pass);
}

static void any_shape_equals_its_twin_whatever_scratch_memory_held(void **state)
{
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        struct attention attention = random_shape(&rng);
        struct pass tiled = pass_of(attention, seed), whole = pass_of(attention, seed);

        spoil_scratch(fast, attention);
        forward(fast, &tiled);
        forward(plain, &whole);
        check_seed(seed, distance(tiled.y, whole.y, whole.values) < 1e-6);
        check_seed(seed, distance(tiled.statistics, whole.statistics,
                                  attention_statistics(&attention)) < 1e-6);
        backward(fast, &tiled);
        backward(plain, &whole);
        check_seed(seed, distance(tiled.dqkv, whole.dqkv, 3 * whole.values) < 2e-6);
        pass_free(&tiled);
        pass_free(&whole);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static double product(const struct pass *pass)
{
    double sum = 0.0;

    for (size_t i = 0; i < pass->values; i++) {
        sum += (double)pass->y[i] * (double)pass->dy[i];
    }
    return sum;
}

static void gradients_are_those_of_finite_differences(void **state)
{
    const float step = 1.0F / 64;

    (void)state;
    struct backend *backends[] = {backend_of(false), backend_of(true)};
    for (int i = 0; i < 8; i++) {
        struct backend *backend = backends[i % 2];
        struct attention attention = {.samples = 1, .steps = 9, .width = 12, .heads = 3};
        attention.is_causal = i & 2;
        attention.is_rotary = i & 4;
        struct pass pass = pass_of(attention, 7);

        forward(backend, &pass);
        backward(backend, &pass);
        for (size_t at = 0; at < 3 * pass.values; at++) {
            float value = pass.qkv[at];
            double above, below;
            pass.qkv[at] = value + step;
            forward(backend, &pass);
            above = product(&pass);
            pass.qkv[at] = value - step;
            forward(backend, &pass);
            below = product(&pass);
            pass.qkv[at] = value;
            assert_float_equal((float)((above - below) / (2.0 * (double)step)), pass.dqkv[at],
                               3e-3F);
        }
        pass_free(&pass);
    }
    backend_destroy(backends[0]);
    backend_destroy(backends[1]);
}

/* Two steps, one head of two values: the second key is turned by one radian against the first. */
static void rotary_positions_turn_by_the_distance_of_two_steps(void **state)
{
    const float qkv[12] = {1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 0, 1};
    struct attention attention = {.samples = 1, .steps = 2, .width = 2, .heads = 1};

    (void)state;
    attention.is_rotary = true;
    for (int i = 0; i < 2; i++) {
        struct backend *backend = backend_of(i == 1);
        struct pass pass = pass_of(attention, 1);
        double own = exp(1.0 / sqrt(2.0)), other = exp(cos(1.0) / sqrt(2.0));

        memcpy(pass.qkv, qkv, sizeof(qkv));
        forward(backend, &pass);
        assert_float_equal(pass.y[0], (float)(own / (own + other)), 1e-6F);
        assert_float_equal(pass.y[1], (float)(other / (own + other)), 1e-6F);
        assert_float_equal(pass.y[2], (float)(other / (own + other)), 1e-6F);
        assert_float_equal(pass.statistics[0], (float)log(own + other), 1e-6F);
        pass_free(&pass);
        backend_destroy(backend);
    }
}

static void what_comes_later_changes_no_bit_of_a_causal_row(void **state)
{
    (void)state;
    struct backend *backend = backend_of(false);
    struct attention attention = {.samples = 1, .steps = 90, .width = 32, .heads = 2};
    attention.is_causal = true;
    for (size_t seen = 1; seen < 90; seen += 11) {
        struct pass pass = pass_of(attention, 3), other = pass_of(attention, 3);

        for (size_t i = seen * 96; i < 3 * pass.values; i++) {
            other.qkv[i] = -5.0F * pass.qkv[i] + 40.0F;
        }
        forward(backend, &pass);
        forward(backend, &other);
        assert_memory_equal(pass.y, other.y, seen * 32 * sizeof(float));
        assert_memory_not_equal(pass.y, other.y, (seen + 1) * 32 * sizeof(float));
        pass_free(&pass);
        pass_free(&other);
    }
    backend_destroy(backend);
}

static void equal_calls_give_equal_bits_with_and_without_statistics(void **state)
{
    (void)state;
    struct backend *backend = backend_of(false);
    struct backend *threads = cpu_backend_create(&(struct cpu_backend_options){.threads = 3});
    struct attention attention = {.samples = 2, .steps = 100, .width = 96, .heads = 3};
    attention.is_causal = attention.is_rotary = true;
    struct pass one = pass_of(attention, 5), two = pass_of(attention, 5);
    float *y = poisoned(one.values);

    forward(backend, &one);
    backward(backend, &one);
    spoil_scratch(threads, attention);
    forward(threads, &two);
    backward(threads, &two);
    assert_memory_equal(one.y, two.y, one.values * sizeof(float));
    assert_memory_equal(one.dqkv, two.dqkv, 3 * one.values * sizeof(float));
    assert_int_equal(backend->ops->attention_forward(backend, &attention, one.qkv, y, NULL), RC_OK);
    assert_memory_equal(one.y, y, one.values * sizeof(float));
    mem_free(y);
    pass_free(&one);
    pass_free(&two);
    backend_destroy(backend);
    backend_destroy(threads);
}

/* Scores of 1e6 and 1e34: one key takes all, nothing overflows on the way. */
static void huge_scores_choose_one_key_and_stay_finite(void **state)
{
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);
    for (int i = 0; i < 4; i++) {
        struct attention attention = {.samples = 1, .steps = 300, .width = 32, .heads = 2};
        attention.is_causal = i & 1;
        struct pass tiled = pass_of(attention, 9), whole = pass_of(attention, 9);

        for (size_t at = 0; at < 3 * tiled.values; at++) {
            bool is_value = at % 96 >= 64;
            if (!is_value) tiled.qkv[at] *= i & 2 ? 1e17F : 1e3F;
        }
        memcpy(whole.qkv, tiled.qkv, 3 * tiled.values * sizeof(float));
        forward(fast, &tiled);
        forward(plain, &whole);
        assert_true(distance(tiled.y, whole.y, whole.values) < 1e-2); /* a tie may fall otherwise */
        backward(fast, &tiled);
        for (size_t at = 0; at < 3 * tiled.values; at++) {
            assert_true(isfinite(tiled.dqkv[at]));
        }
        pass_free(&tiled);
        pass_free(&whole);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

/* exp(-1e5) of all but one key is 0, and the statistics keep what exp could not hold. */
static void a_hopeless_key_gets_no_weight_and_no_gradient(void **state)
{
    (void)state;
    struct backend *backend = backend_of(false);
    struct attention attention = {.samples = 1, .steps = 20, .width = 1, .heads = 1};
    struct pass pass = pass_of(attention, 1);

    for (size_t t = 0; t < 20; t++) {
        pass.qkv[3 * t] = 1e3F;
        pass.qkv[3 * t + 1] = t == 7 ? 1e2F : -1e2F;
        pass.qkv[3 * t + 2] = t == 7 ? 3.0F : 4.0F;
    }
    forward(backend, &pass);
    backward(backend, &pass);
    for (size_t t = 0; t < 20; t++) {
        assert_float_equal(pass.y[t], 3.0F, 0.0);
        assert_float_equal(pass.statistics[t], 1e5F, 0.0);
        if (t != 7) assert_float_equal(pass.dqkv[3 * t + 2], 0.0F, 0.0);
    }
    pass_free(&pass);
    backend_destroy(backend);
}

static void a_nan_and_an_infinite_score_show_in_the_result(void **state)
{
    (void)state;
    struct backend *backend = backend_of(false);
    struct attention attention = {.samples = 1, .steps = 40, .width = 8, .heads = 1};
    for (int i = 0; i < 3; i++) {
        struct pass pass = pass_of(attention, 2);

        pass.qkv[24 * 30 + 8] = i == 0 ? NAN : INFINITY; /* a key */
        pass.qkv[24 * 5] = i == 2 ? -1.0F : 1.0F;        /* score: +inf or -inf */
        forward(backend, &pass);
        if (i < 2) assert_true(isnan(pass.y[8 * 5]));
        /* of minus infinity: no weight */
        if (i == 2) assert_true(isfinite(pass.y[8 * 5]));
        pass_free(&pass);
    }
    backend_destroy(backend);
}

static void memory_is_asked_for_at_creation_and_never_again(void **state)
{
    (void)state;
    struct backend *backend = backend_of(false);
    struct attention attention = {.samples = 2, .steps = 50, .width = 24, .heads = 2};
    struct pass pass = pass_of(attention, 4);

    mem_fail_after(0);
    assert_int_equal(backend->ops->attention_reserve(backend, &attention), RC_NOMEM);
    forward(backend, &pass);
    mem_fail_after(0);
    assert_int_equal(
        backend->ops->attention_forward(backend, &attention, pass.qkv, pass.y, pass.statistics),
        RC_OK);
    backward(backend, &pass);
    assert_null(mem_alloc(1)); /* nobody has used the failure up */
    backend_destroy(backend);

    backend = backend_of(true); /* the twins allocate as they go, and say so */
    mem_fail_after(0);
    assert_int_equal(backend->ops->attention_forward(backend, &attention, pass.qkv, pass.y, NULL),
                     RC_NOMEM);
    mem_fail_after(0);
    assert_int_equal(reference_attention_backward(
                         &attention, &(struct attention_backward){.qkv = pass.qkv, .dy = pass.dy}),
                     RC_NOMEM);
    pass_free(&pass);
    backend_destroy(backend);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_shape_equals_its_twin_whatever_scratch_memory_held),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(rotary_positions_turn_by_the_distance_of_two_steps),
        cmocka_unit_test(what_comes_later_changes_no_bit_of_a_causal_row),
        cmocka_unit_test(equal_calls_give_equal_bits_with_and_without_statistics),
        cmocka_unit_test(huge_scores_choose_one_key_and_stay_finite),
        cmocka_unit_test(a_hopeless_key_gets_no_weight_and_no_gradient),
        cmocka_unit_test(a_nan_and_an_infinite_score_show_in_the_result),
        cmocka_unit_test(memory_is_asked_for_at_creation_and_never_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
