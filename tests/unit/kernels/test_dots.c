/* Products of very few rows equal their twin, and their columns may be shared by any threads. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/dense/dots.h"
#include "kernels/cpu/reference/reference.h"

#include <math.h>

static float *random_values(struct rng *rng, size_t count)
{
    float *values = mem_array(count, sizeof(*values)); /* exactly: a sanitizer sees one more read */

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(rng_unit(rng) * 2.0 - 1.0);
    }
    return values;
}

static float *copy_of(const float *values, size_t count)
{
    float *copy = mem_array(count, sizeof(*copy));

    assert_non_null(copy);
    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

static size_t between(struct rng *rng, size_t low, size_t high)
{
    return low + (size_t)rng_below(rng, high - low + 1);
}

/* Multiplied at once, and in two parts, beside the twin. */
static void check_product(uint64_t seed, struct gemm *g, struct rng *rng)
{
    size_t values = (g->rows - 1) * g->c_stride + g->columns, cut;
    float *c = random_values(rng, values), *expected = copy_of(c, values), *parts;
    double largest = 0.0;

    parts = copy_of(c, values);
    cut = between(rng, 0, g->columns);
    g->c = expected;
    reference_gemm(g);
    g->c = parts;
    dots_multiply(g, 0, cut);
    dots_multiply(g, cut, g->columns);
    g->c = c;
    dots_multiply(g, 0, g->columns);
    assert_memory_equal(c, parts,
                        values * sizeof(*c)); /* and what is between rows is not touched */
    for (size_t i = 0; i < values; i++) {
        largest = fmax(largest, fabs((double)c[i] - (double)expected[i]));
    }
    check_seed(seed, largest <= 1e-6 * (double)(g->inner + 4));
    mem_free(c);
    mem_free(parts);
    mem_free(expected);
}

static void few_rows_equal_their_twin_however_columns_are_cut(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 200) {
        struct rng rng;
        struct gemm g = {.is_b_transposed = true, .alpha = 1.0F};
        float *a, *b;

        rng_init(&rng, seed, 1);
        g.rows = between(&rng, 1, DOTS_ROWS_MAX);
        g.columns = between(&rng, 1, 40);
        g.inner = between(&rng, 1, seed % 8 == 0 ? 700 : 50);
        g.a_stride = g.inner + between(&rng, 0, 3);
        g.b_stride = g.inner + between(&rng, 0, 3);
        g.c_stride = g.columns + between(&rng, 0, 3);
        g.beta = rng_below(&rng, 2) == 0 ? 0.0F : 1.0F;
        if (!dots_serve(&g)) skip(); /* the instruction set is a lesser one */
        a = random_values(&rng, (g.rows - 1) * g.a_stride + g.inner);
        b = random_values(&rng, (g.columns - 1) * g.b_stride + g.inner);
        g.a = a;
        g.b = b;
        check_product(seed, &g, &rng);
        mem_free(a);
        mem_free(b);
    }
}

static void other_products_are_not_served(void **state)
{
    (void)state;
    struct gemm g = {.is_b_transposed = true, .rows = 1, .columns = 1, .inner = 1, .alpha = 1.0F};
    struct gemm many = g, plain = g, turned = g, scaled = g, faded = g;

    many.rows = DOTS_ROWS_MAX + 1;
    plain.is_b_transposed = false;
    turned.is_a_transposed = true;
    scaled.alpha = 2.0F;
    faded.beta = 0.5F;
    assert_false(dots_serve(&many) || dots_serve(&plain) || dots_serve(&turned));
    assert_false(dots_serve(&scaled) || dots_serve(&faded));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(few_rows_equal_their_twin_however_columns_are_cut),
        cmocka_unit_test(other_products_are_not_served),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
