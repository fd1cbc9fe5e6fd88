/* The CPU backend: every operation against its plain C twin on random shapes, outputs poisoned. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/reference/reference.h"

#include <math.h>

#define POISON NAN

static struct backend *fast(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){.threads = 1});
}

static struct backend *plain(void)
{
    return cpu_backend_create(&(struct cpu_backend_options){.threads = 1, .is_reference = true});
}

static float *random_values(struct rng *rng, size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(rng_unit(rng) * 2.0 - 1.0);
    }
    return values;
}

/* Filled with NaN, so that a value nobody writes is found. */
static float *poisoned(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = POISON;
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

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static void vector_operations_equal_their_twins_to_the_bit(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        size_t n = between(&rng, 0, 300);
        float a = (float)rng_unit(&rng);
        float *x = random_values(&rng, n), *base = random_values(&rng, n);
        float *y = random_values(&rng, n), *expected = copy_of(y, n);

        assert_int_equal(cpu->ops->axpy(cpu, a, x, y, n), RC_OK);
        reference_axpy(a, x, expected, n);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        assert_int_equal(cpu->ops->scale(cpu, a, y, n), RC_OK);
        reference_scale(a, expected, n);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        assert_int_equal(cpu->ops->add_difference(cpu, a, x, base, y, n), RC_OK);
        reference_add_difference(a, x, base, expected, n);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        assert_int_equal(cpu->ops->relu_backward(cpu, x, y, n), RC_OK);
        reference_relu_backward(x, expected, n);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        assert_int_equal(cpu->ops->relu_forward(cpu, y, n), RC_OK);
        reference_relu_forward(expected, n);
        check_seed(seed, memcmp(y, expected, n * sizeof(*y)) == 0);
        mem_free(x);
        mem_free(base);
        mem_free(y);
        mem_free(expected);
    }
    backend_destroy(cpu);
}

static void the_norm_is_a_sum_of_squares_and_one_bad_value_is_found_anywhere(void **state)
{
    (void)state;
    struct backend *both[] = {fast(), plain()};
    FOR_EACH_SEED (seed, 30) {
        struct rng rng;
        rng_init(&rng, seed, 2);
        size_t n = between(&rng, 1, 200), at = (size_t)rng_below(&rng, n);
        float *x = random_values(&rng, n);
        const float bad[] = {NAN, INFINITY, -INFINITY};

        for (size_t b = 0; b < ARRAY_COUNT(both); b++) {
            double norm = 0.0;
            bool is_finite = false;
            float kept = x[at];
            assert_int_equal(both[b]->ops->squared_norm(both[b], x, n, &norm), RC_OK);
            check_seed(seed, fabs(norm - reference_squared_norm(x, n)) <= 1e-12 * norm);
            assert_int_equal(both[b]->ops->is_finite(both[b], x, n, &is_finite), RC_OK);
            check_seed(seed, is_finite);
            x[at] = bad[seed % 3];
            assert_int_equal(both[b]->ops->is_finite(both[b], x, n, &is_finite), RC_OK);
            check_seed(seed, !is_finite);
            x[at] = kept;
        }
        mem_free(x);
    }
    backend_destroy(both[0]);
    backend_destroy(both[1]);
}

static void bytes_become_normalised_values(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    uint8_t bytes[256];
    float values[256];

    for (int i = 0; i < 256; i++) {
        bytes[i] = (uint8_t)i;
    }
    assert_int_equal(cpu->ops->from_bytes(cpu, bytes, 2.0F / 255.0F, -1.0F, values, 256), RC_OK);
    for (int i = 0; i < 256; i++) {
        assert_float_equal(values[i], 2.0F * (float)i / 255.0F - 1.0F, 1e-6F);
    }
    backend_destroy(cpu);
}

static void relu_keeps_a_nan_for_others_to_find(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    float x[3] = {-1.0F, NAN, 2.0F};

    assert_int_equal(cpu->ops->relu_forward(cpu, x, 3), RC_OK);
    assert_true(x[0] == 0.0F && isnan(x[1]) && x[2] == 2.0F);
    backend_destroy(cpu);
}

static void products_equal_their_twin_for_every_transposition(void **state)
{
    (void)state;
    struct backend *cpu = fast();
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 3);
        bool is_narrow = seed % 3 == 0;
        struct gemm g = {.is_a_transposed = seed % 2 == 0,
                         .is_b_transposed = seed / 2 % 2 == 0,
                         .rows = between(&rng, 1, 70),
                         .columns = between(&rng, 1, is_narrow ? 12 : 70),
                         .inner = between(&rng, 1, 70),
                         .alpha = 0.5F,
                         .beta = seed % 5 == 0 ? 1.0F : 0.0F};
        g.a_stride = (g.is_a_transposed ? g.rows : g.inner) + rng_below(&rng, 3);
        g.b_stride = (g.is_b_transposed ? g.inner : g.columns) + rng_below(&rng, 3);
        g.c_stride = g.columns;
        float *a = random_values(&rng, (g.is_a_transposed ? g.inner : g.rows) * g.a_stride);
        float *b = random_values(&rng, (g.is_b_transposed ? g.columns : g.inner) * g.b_stride);
        size_t count = g.rows * g.columns;
        float *c = g.beta == 0.0F ? poisoned(count) : random_values(&rng, count);
        float *expected = copy_of(c, count);

        g.a = a;
        g.b = b;
        g.c = c;
        assert_int_equal(cpu->ops->gemm(cpu, &g), RC_OK);
        g.c = expected;
        reference_gemm(&g);
        check_seed(seed, distance(c, expected, count) < 1e-5);
        mem_free(a);
        mem_free(b);
        mem_free(c);
        mem_free(expected);
    }
    backend_destroy(cpu);
}

static void check_update(uint64_t seed, enum update_kind kind, struct backend *both[2])
{
    struct rng rng;
    rng_init(&rng, seed, 5 + (uint64_t)kind);
    size_t rows = between(&rng, 1, 40), n = rows * between(&rng, 1, 40), gap = seed % 3;
    struct update update = {.kind = kind,
                            .rate = 0.1F,
                            .beta = 0.9F,
                            .beta2 = 0.99F,
                            .epsilon = 1e-8F,
                            .decay = seed % 2 == 0 ? 0.01F : 0.0F,
                            .correction = 0.5F,
                            .trust = seed % 4 < 2 ? 0.02F : 0.0F,
                            .plane = gap == 0 ? 0 : n + gap,
                            .rows = rows};
    size_t moments = 2 * n + gap, scratch = update_workspace(rows, n / rows);
    float *g = random_values(&rng, n), *x = random_values(&rng, n), *x2 = copy_of(x, n);
    float *m = mem_aligned(moments * sizeof(*m)), *m2 = mem_aligned(moments * sizeof(*m2));
    float *space = mem_aligned(scratch * sizeof(*space));

    for (int step = 0; step < 3; step++) {
        for (int b = 0; b < 2; b++) { /* whatever lies in the workspace must not matter */
            memset(space, 0xff, scratch * sizeof(*space));
            update.workspace = space;
            assert_int_equal(
                both[b]->ops->update(both[b], &update, g, b == 0 ? m : m2, b == 0 ? x : x2, n),
                RC_OK);
        }
    }
    if (kind < UPDATE_LARS) { /* the others sum in another order */
        check_seed(seed, memcmp(x, x2, n * sizeof(*x)) == 0);
        check_seed(seed, memcmp(m, m2, moments * sizeof(*m)) == 0);
    }
    check_seed(seed, distance(x, x2, n) < (kind == UPDATE_MUON ? 1e-3 : 1e-6));
    check_seed(seed, distance(m, m2, moments) < 1e-6);
    for (size_t i = 0; i < gap; i++) { /* nor may what lies between two planes be touched */
        check_seed(seed, m[n + i] == 0.0F);
    }
    mem_free(g);
    mem_free(x);
    mem_free(x2);
    mem_free(m);
    mem_free(m2);
    mem_free(space);
}

static void updates_equal_their_twins(void **state)
{
    (void)state;
    struct backend *both[] = {fast(), plain()};
    for (int kind = 0; kind < UPDATE_COUNT; kind++) {
        FOR_EACH_SEED (seed, 12) {
            check_update(seed, (enum update_kind)kind, both);
        }
    }
    backend_destroy(both[0]);
    backend_destroy(both[1]);
}

static void a_backend_without_memory_is_none(void **state)
{
    (void)state;
    mem_fail_after(0);
    assert_null(fast());
    mem_fail_after(UINT64_MAX);
    backend_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(vector_operations_equal_their_twins_to_the_bit),
        cmocka_unit_test(the_norm_is_a_sum_of_squares_and_one_bad_value_is_found_anywhere),
        cmocka_unit_test(bytes_become_normalised_values),
        cmocka_unit_test(relu_keeps_a_nan_for_others_to_find),
        cmocka_unit_test(products_equal_their_twin_for_every_transposition),
        cmocka_unit_test(updates_equal_their_twins),
        cmocka_unit_test(a_backend_without_memory_is_none),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
