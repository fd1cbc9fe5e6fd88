/* Activations, dropout, sums, copies, and the vectorised exp and its kin: each against its twin. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/reference/dense.h"

#include <math.h>

static struct backend *fast(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){.threads = 1});
}

static struct backend *plain(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){.threads = 1, .is_reference = true});
}

static float *values_of(struct rng *rng, size_t count, double size)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)((rng_unit(rng) * 2.0 - 1.0) * size);
    }
    return values;
}

static float *poisoned(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    return values;
}

static float *copy_of(const float *values, size_t count)
{
    float *copy = mem_aligned(count * sizeof(*copy) + 64);

    assert_non_null(copy);
    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

static struct activation activation_at(struct rng *rng, uint32_t kind)
{
    return (struct activation){(enum activation_kind)kind, (float)rng_unit(rng)};
}

static double relative(double is, double expected)
{
    return expected == 0.0 ? fabs(is) : fabs(is - expected) / fabs(expected);
}

static void the_elementary_functions_are_within_5e_7_of_the_library_s(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 5) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        for (int i = 0; i < 20000; i++) {
            /* All sizes from 1e-8 on, both signs. */
            float size = (float)pow(10.0, rng_unit(&rng) * 9.9 - 8.0);
            float x = rng_unit(&rng) < 0.5 ? size : -size;
            double wide = (double)x;

            if (fabsf(x) < 87.3F) {
                check_seed(seed, relative((double)cpu_exp(x), exp(wide)) < 5e-7);
                check_seed(seed, relative((double)cpu_sigmoid(x), 1.0 / (1.0 + exp(-wide))) < 5e-7);
            }
            check_seed(seed, relative((double)cpu_tanh(x), tanh(wide)) < 5e-7);
            check_seed(seed, relative((double)cpu_erf(x), erf(wide)) < 5e-7);
        }
    }
}

static void the_elementary_functions_keep_their_limits_signs_and_nans(void **state)
{
    (void)state;
    assert_true(cpu_exp(0.0F) == 1.0F);
    assert_true(cpu_exp(-INFINITY) == 0.0F && cpu_exp(-88.0F) == 0.0F && cpu_exp(-1e30F) == 0.0F);
    assert_true(isinf(cpu_exp(INFINITY)) && isinf(cpu_exp(89.0F)) && isinf(cpu_exp(1e30F)));
    assert_true(cpu_sigmoid(INFINITY) == 1.0F && cpu_sigmoid(-INFINITY) == 0.0F);
    assert_true(cpu_tanh(INFINITY) == 1.0F && cpu_tanh(-INFINITY) == -1.0F);
    assert_true(cpu_erf(INFINITY) == 1.0F && cpu_erf(-INFINITY) == -1.0F);
    assert_true(cpu_tanh(0.0F) == 0.0F && signbit(cpu_tanh(-0.0F)) && signbit(cpu_erf(-0.0F)));
    assert_true(isnan(cpu_exp(NAN)) && isnan(cpu_sigmoid(NAN)));
    assert_true(isnan(cpu_tanh(-NAN)) && isnan(cpu_erf(NAN)));
}

static void activations_equal_their_twins_and_may_run_in_place(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *twin = plain();
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 2);
        size_t n = (size_t)rng_below(&rng, 300);
        float *x = values_of(&rng, n, 8.0);
        for (uint32_t kind = 0; kind < ACTIVATION_COUNT; kind++) {
            struct activation f = activation_at(&rng, kind);
            float *y = poisoned(n), *expected = poisoned(n);

            assert_int_equal(cpu->ops->activation_forward(cpu, f, x, y, n), RC_OK);
            assert_int_equal(twin->ops->activation_forward(twin, f, x, expected, n), RC_OK);
            for (size_t i = 0; i < n; i++) {
                check_seed(seed, fabsf(y[i] - expected[i]) <= 1e-6F * (1.0F + fabsf(x[i])));
            }
            memcpy(expected, x, n * sizeof(*x));
            assert_int_equal(cpu->ops->activation_forward(cpu, f, expected, expected, n), RC_OK);
            check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
            mem_free(y);
            mem_free(expected);
        }
        mem_free(x);
    }
    backend_destroy(cpu);
    backend_destroy(twin);
}

static void gradients_of_activations_equal_their_twins_and_may_run_in_place(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *twin = plain();
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 3);
        size_t n = (size_t)rng_below(&rng, 300);
        float *x = values_of(&rng, n, 8.0), *dy = values_of(&rng, n, 1.0), *y = poisoned(n);
        for (uint32_t kind = 0; kind < ACTIVATION_COUNT; kind++) {
            struct activation f = activation_at(&rng, kind);
            const float *input = activation_needs_input(f.kind) ? x : NULL;
            float *dx = poisoned(n), *expected = poisoned(n);

            assert_int_equal(cpu->ops->activation_forward(cpu, f, x, y, n), RC_OK);
            assert_int_equal(cpu->ops->activation_backward(cpu, f, input, y, dy, dx, n), RC_OK);
            assert_int_equal(twin->ops->activation_backward(twin, f, input, y, dy, expected, n),
                             RC_OK);
            for (size_t i = 0; i < n; i++) {
                check_seed(seed, fabsf(dx[i] - expected[i]) <= 4e-6F);
            }
            memcpy(expected, dy, n * sizeof(*dy));
            assert_int_equal(cpu->ops->activation_backward(cpu, f, input, y, expected, expected, n),
                             RC_OK);
            check_seed(seed, memcmp(dx, expected, n * sizeof(*dx)) == 0);
            mem_free(dx);
            mem_free(expected);
        }
        mem_free(x);
        mem_free(dy);
        mem_free(y);
    }
    backend_destroy(cpu);
    backend_destroy(twin);
}

static void gradients_of_activations_are_finite_differences(void **state)
{
    (void)state;
    struct backend *twin = plain();
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 4);
        for (uint32_t kind = 0; kind < ACTIVATION_COUNT; kind++) {
            struct activation f = activation_at(&rng, kind);
            const double step = 1e-5;
            float x = (float)(rng_unit(&rng) * 8.0 - 4.0), y = 0.0F, dx = NAN;
            const float dy = 1.0F;
            double wide = (double)x, expected;

            if (fabsf(x) < 1e-3F) continue; /* a kink has no derivative */
            expected =
                (reference_activation(f, wide + step) - reference_activation(f, wide - step)) /
                (2.0 * step);
            check_seed(seed, fabs(reference_activation_slope(f, wide) - expected) < 1e-8);
            assert_int_equal(twin->ops->activation_forward(twin, f, &x, &y, 1), RC_OK);
            assert_int_equal(twin->ops->activation_backward(twin, f, &x, &y, &dy, &dx, 1), RC_OK);
            check_seed(seed, fabs((double)dx - expected) < 1e-6);
        }
    }
    backend_destroy(twin);
}

/* The kink itself: PyTorch has x > 0 ? dy : slope dy there, so that at 0, of either sign, leaky
 * relu's gradient is its slope and relu's is 0. */
static void at_exactly_0_leaky_relu_has_its_slope_below_0(void **state)
{
    (void)state;
    enum { COUNT = 35 }; /* whole vectors, and some values behind them */
    struct backend *backends[] = {fast(), plain()};

    for (size_t b = 0; b < ARRAY_COUNT(backends); b++) {
        for (int k = 0; k < 2; k++) {
            const struct activation f = {k == 0 ? ACTIVATION_LEAKY_RELU : ACTIVATION_RELU, 0.25F};
            const float expected = k == 0 ? 0.75F : 0.0F;
            float x[COUNT], y[COUNT], dy[COUNT], dx[COUNT];

            for (int i = 0; i < COUNT; i++) {
                x[i] = i % 2 == 0 ? 0.0F : -0.0F;
                dy[i] = 3.0F;
            }
            assert_int_equal(backends[b]->ops->activation_forward(backends[b], f, x, y, COUNT),
                             RC_OK);
            assert_int_equal(
                backends[b]->ops->activation_backward(backends[b], f, NULL, y, dy, dx, COUNT),
                RC_OK);
            for (int i = 0; i < COUNT; i++) {
                assert_true(y[i] == 0.0F && dx[i] == expected);
            }
        }
        backend_destroy(backends[b]);
    }
}

static void a_nan_stays_one_through_every_activation(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    for (uint32_t kind = 0; kind < ACTIVATION_COUNT; kind++) {
        struct activation f = {(enum activation_kind)kind, 0.1F};
        float x[20] = {0.0F};

        x[3] = NAN;
        x[19] = NAN;
        assert_int_equal(cpu->ops->activation_forward(cpu, f, x, x, ARRAY_COUNT(x)), RC_OK);
        assert_true(isnan(x[3]) && isnan(x[19]) && !isnan(x[4]));
    }
    backend_destroy(cpu);
}

static void sums_equal_their_twin_to_the_bit_over_either_operand(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *twin = plain();
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 5);
        size_t n = (size_t)rng_below(&rng, 200);
        bool with_relu = rng_unit(&rng) < 0.5;
        float *a = values_of(&rng, n, 1.0), *b = values_of(&rng, n, 1.0);
        float *y = poisoned(n), *expected = poisoned(n), *over = copy_of(b, n);

        assert_int_equal(twin->ops->add(twin, a, b, with_relu, expected, n), RC_OK);
        assert_int_equal(cpu->ops->add(cpu, a, b, with_relu, y, n), RC_OK);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        assert_int_equal(cpu->ops->add(cpu, a, over, with_relu, over, n), RC_OK);
        check_seed(seed, memcmp(over, expected, n * sizeof(*y)) == 0);
        assert_int_equal(cpu->ops->add(cpu, a, b, with_relu, a, n), RC_OK);
        check_seed(seed, memcmp(a, expected, n * sizeof(*y)) == 0);
        mem_free(a);
        mem_free(b);
        mem_free(y);
        mem_free(expected);
        mem_free(over);
    }
    backend_destroy(cpu);
    backend_destroy(twin);
}

static void rows_are_copied_or_added_between_strides_and_nothing_else_is_touched(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *twin = plain();
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 6);
        struct copy_rows copy = {.rows = (size_t)rng_below(&rng, 9),
                                 .count = (size_t)rng_below(&rng, 40),
                                 .adds = rng_unit(&rng) < 0.5};
        copy.x_stride = copy.count + (size_t)rng_below(&rng, 10);
        copy.y_stride = copy.count + (size_t)rng_below(&rng, 10);
        size_t n = copy.rows * copy.y_stride;
        float *x = values_of(&rng, copy.rows * copy.x_stride, 1.0);
        float *y = values_of(&rng, n, 1.0), *expected = copy_of(y, n);

        assert_int_equal(cpu->ops->copy_rows(cpu, &copy, x, y), RC_OK);
        assert_int_equal(twin->ops->copy_rows(twin, &copy, x, expected), RC_OK);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        mem_free(x);
        mem_free(y);
        mem_free(expected);
    }
    backend_destroy(cpu);
    backend_destroy(twin);
}

/* The known answers that Random123 1.09 ships for Philox4x32-10. */
static void philox_gives_the_known_answers_of_its_authors(void **state)
{
    (void)state;
    static const struct {
        uint32_t counter[4], key[2], answer[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
         {0xffffffff, 0xffffffff},
         {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        uint32_t out[4];
        reference_philox(known[i].counter, known[i].key, out);
        assert_memory_equal(out, known[i].answer, sizeof(out));
    }
}

static void dropout_equals_its_twin_to_the_bit_however_it_is_sliced(void **state)
{
    (void)state;
    struct backend *cpu = fast(), *twin = plain();
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 7);
        size_t n = 1 + (size_t)rng_below(&rng, 500), cut = (size_t)rng_below(&rng, n);
        struct dropout dropout = {.key = rng_u64(&rng),
                                  .pass = rng_u64(&rng) >> rng_below(&rng, 60),
                                  .first = rng_u64(&rng) >> (8 + rng_below(&rng, 50)),
                                  .rate = (float)rng_unit(&rng) * 0.99F};
        struct dropout rest = dropout;
        float *x = values_of(&rng, n, 1.0), *y = poisoned(n), *expected = poisoned(n);

        assert_int_equal(twin->ops->dropout(twin, &dropout, x, expected, n), RC_OK);
        assert_int_equal(cpu->ops->dropout(cpu, &dropout, x, y, n), RC_OK);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        rest.first += cut;
        assert_int_equal(cpu->ops->dropout(cpu, &dropout, x, x, cut), RC_OK);
        assert_int_equal(cpu->ops->dropout(cpu, &rest, x + cut, x + cut, n - cut), RC_OK);
        check_seed(seed, memcmp(x, expected, n * sizeof(*y)) == 0);
        mem_free(x);
        mem_free(y);
        mem_free(expected);
    }
    backend_destroy(cpu);
    backend_destroy(twin);
}

static void dropout_keeps_its_share_and_the_mean(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    enum { COUNT = 100000 };
    float *x = mem_aligned(COUNT * sizeof(*x));
    const float rates[] = {0.0F, 0.1F, 0.5F, 0.9F};

    assert_non_null(x);
    for (size_t r = 0; r < ARRAY_COUNT(rates); r++) {
        struct dropout dropout = {.key = 7, .pass = r, .rate = rates[r]};
        double sum = 0.0, kept = 0.0;

        for (size_t i = 0; i < COUNT; i++) {
            x[i] = 1.0F;
        }
        assert_int_equal(cpu->ops->dropout(cpu, &dropout, x, x, COUNT), RC_OK);
        for (size_t i = 0; i < COUNT; i++) {
            sum += (double)x[i];
            kept += x[i] != 0.0F ? 1.0 : 0.0;
        }
        /* Five standard deviations of a binomial are below 0.008 of the count. */
        assert_true(fabs(kept / COUNT - (1.0 - (double)rates[r])) < 0.008);
        assert_true(fabs(sum / COUNT - 1.0) < 0.08);
    }
    mem_free(x);
    backend_destroy(cpu);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_elementary_functions_are_within_5e_7_of_the_library_s),
        cmocka_unit_test(the_elementary_functions_keep_their_limits_signs_and_nans),
        cmocka_unit_test(activations_equal_their_twins_and_may_run_in_place),
        cmocka_unit_test(gradients_of_activations_equal_their_twins_and_may_run_in_place),
        cmocka_unit_test(gradients_of_activations_are_finite_differences),
        cmocka_unit_test(at_exactly_0_leaky_relu_has_its_slope_below_0),
        cmocka_unit_test(a_nan_stays_one_through_every_activation),
        cmocka_unit_test(sums_equal_their_twin_to_the_bit_over_either_operand),
        cmocka_unit_test(rows_are_copied_or_added_between_strides_and_nothing_else_is_touched),
        cmocka_unit_test(philox_gives_the_known_answers_of_its_authors),
        cmocka_unit_test(dropout_equals_its_twin_to_the_bit_however_it_is_sliced),
        cmocka_unit_test(dropout_keeps_its_share_and_the_mean),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
