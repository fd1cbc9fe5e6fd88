/* Products with a packed factor: every instruction set against the twin and each other. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/sequence/recurrent.h"

#include <math.h>

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static float *values_of(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    return values;
}

static float *random_values(struct rng *rng, size_t count, float size)
{
    float *values = values_of(count);

    for (size_t i = 0; i < count; i++) {
        values[i] = size * (float)(rng_unit(rng) * 2.0 - 1.0);
    }
    return values;
}

static float *copy_of(const float *values, size_t count)
{
    float *copy = values_of(count);

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

/* C of a product by panels of the given form. */
static float *product_by(enum panels_form form, const struct gemm *g, size_t rotation, bool adds)
{
    struct panels panels;
    size_t count = g->rows * g->c_stride;
    float *c = adds ? copy_of(g->c, count) : values_of(count);
    struct panels_source source = {.b = g->b,
                                   .stride = g->b_stride,
                                   .is_transposed = g->is_b_transposed,
                                   .rotation = rotation};
    struct panels_product product = {.rows = g->rows,
                                     .a = g->a,
                                     .a_stride = g->a_stride,
                                     .c = c,
                                     .c_stride = g->c_stride,
                                     .adds = adds};

    for (size_t i = 0; !adds && i < count; i++) {
        c[i] = g->c[i]; /* between the rows it must stay so */
    }
    for (size_t r = 0; !adds && r < g->rows; r++) {
        for (size_t i = 0; i < g->columns; i++) {
            c[r * g->c_stride + i] = NAN;
        }
    }
    assert_int_equal(panels_init(&panels, form, g->inner, g->columns), RC_OK);
    panels_pack(&panels, &source);
    panels_multiply(&panels, &product);
    panels_deinit(&panels);
    return c;
}

static void packed_products_equal_their_twin_and_each_other_to_the_bit(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        rng_init(&rng, seed, 90);
        struct gemm g = {.is_b_transposed = seed % 2 == 0,
                         .rows = between(&rng, 1, 30),
                         .columns = between(&rng, 1, 100),
                         .inner = between(&rng, 1, 60),
                         .alpha = 1.0F,
                         .beta = seed % 3 == 0 ? 1.0F : 0.0F};
        g.a_stride = g.inner + rng_below(&rng, 3);
        g.b_stride = (g.is_b_transposed ? g.inner : g.columns) + rng_below(&rng, 3);
        g.c_stride = g.columns + rng_below(&rng, 3);
        float *a = random_values(&rng, g.rows * g.a_stride, 1.0F);
        float *b =
            random_values(&rng, (g.is_b_transposed ? g.columns : g.inner) * g.b_stride, 1.0F);
        float *c = random_values(&rng, g.rows * g.c_stride, 1.0F);
        size_t count = g.rows * g.c_stride;
        float *first = NULL;

        g.a = a;
        g.b = b;
        g.c = c;
        for (int form = panels_best_form(); form >= PANELS_PLAIN; form--) {
            float *found = product_by((enum panels_form)form, &g, 0, g.beta != 0.0F);
            float *expected = copy_of(c, count);
            struct gemm twin = g;

            twin.c = expected;
            reference_gemm(&twin);
            check_seed(seed, distance(found, expected, count) < 1e-6);
            if (form != PANELS_PLAIN && first != NULL) {
                check_seed(seed, memcmp(found, first, count * sizeof(float)) == 0);
            }
            mem_free(expected);
            if (first == NULL) {
                first = found;
            } else {
                mem_free(found);
            }
        }
        mem_free(first);
        mem_free(a);
        mem_free(b);
        mem_free(c);
    }
}

static void rows_can_be_packed_from_the_middle_on(void **state)
{
    (void)state;
    const float b[4] = {1.0F, 2.0F, 3.0F, 4.0F}, a[4] = {1.0F, 10.0F, 100.0F, 1000.0F};
    float unused[1] = {0.0F};
    struct gemm g = {.rows = 1,
                     .columns = 1,
                     .inner = 4,
                     .a = a,
                     .a_stride = 4,
                     .b = b,
                     .b_stride = 1,
                     .c = unused,
                     .c_stride = 1};

    for (int form = PANELS_PLAIN; form <= (int)panels_best_form(); form++) {
        float *c = product_by((enum panels_form)form, &g, 3, false);
        assert_true(c[0] == 3214.0F); /* 4, 1, 2, 3 */
        mem_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_products_equal_their_twin_and_each_other_to_the_bit),
        cmocka_unit_test(rows_can_be_packed_from_the_middle_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
