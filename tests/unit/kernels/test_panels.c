/* Products with a packed factor: every instruction set against the twin and each other. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/dense/panels.h"
#include "kernels/cpu/reference/reference.h"

#include <math.h>

static size_t between(struct rng *rng, size_t low, size_t high)
{
    return low + (size_t)rng_below(rng, high - low + 1);
}

static float *values_of(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values) + 64);

    assert_non_null(values);
    return values;
}

static float *random_values(struct rng *rng, size_t count)
{
    float *values = values_of(count);

    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(rng_unit(rng) * 2.0 - 1.0);
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

/* A product and what to do with it. `cut`: the panels are packed and multiplied in two parts, the
 * rows as well. */
struct scene {
    struct gemm gemm;
    size_t rotation;
    const float *bias;
    bool with_relu, is_cut, is_once;
};

enum { INNER_BLOCK = 256 /* of panels.c */ };

static void scene_shape(struct scene *s, struct rng *rng, size_t most)
{
    struct gemm *g = &s->gemm;

    *s = (struct scene){.with_relu = rng_below(rng, 3) == 0, .is_cut = rng_below(rng, 2) == 0};
    *g =
        (struct gemm){.is_a_transposed = rng_below(rng, 2) == 0,
                      .is_b_transposed = rng_below(rng, 2) == 0,
                      .rows = between(rng, 1, most),
                      .columns = between(rng, 1, 3 * most),
                      .inner = between(rng, most > INNER_BLOCK / 2 ? INNER_BLOCK + 1 : 1, 2 * most),
                      .alpha = 1.0F,
                      .beta = rng_below(rng, 3) == 0 ? 1.0F : 0.0F};
    g->a_stride = (g->is_a_transposed ? g->rows : g->inner) + rng_below(rng, 3);
    g->b_stride = (g->is_b_transposed ? g->inner : g->columns) + rng_below(rng, 3);
    g->c_stride = g->columns + rng_below(rng, 3);
    g->a = random_values(rng, (g->is_a_transposed ? g->inner : g->rows) * g->a_stride);
    g->b = random_values(rng, (g->is_b_transposed ? g->columns : g->inner) * g->b_stride);
    g->c = random_values(rng, g->rows * g->c_stride);
    if (g->beta == 0.0F && rng_below(rng, 2) == 0) s->bias = random_values(rng, g->columns);
}

static void scene_clear(struct scene *s)
{
    mem_free((float *)s->gemm.a);
    mem_free((float *)s->gemm.b);
    mem_free(s->gemm.c);
    mem_free((float *)s->bias);
}

/* The same with B packed for this once, in two parts or one. */
static void multiply_once(enum panels_form form, const struct scene *s,
                          const struct panels_source *source, const struct panels_product *product)
{
    const struct gemm *g = &s->gemm;
    size_t values = panels_once_values(form, g->inner, g->columns);
    size_t half = s->is_cut ? g->columns / 2 : 0;
    float *scratch = values_of(values);
    struct panels_source right = *source;
    struct panels_product part = *product;

    for (size_t i = 0; i < values; i++) {
        scratch[i] = NAN;
    }
    right.b += half * (g->is_b_transposed ? g->b_stride : 1);
    part.c += half;
    if (part.bias != NULL) part.bias += half;
    panels_multiply_once(form, &right, g->inner, g->columns - half, &part, scratch);
    if (half > 0) panels_multiply_once(form, source, g->inner, half, product, scratch);
    mem_free(scratch);
}

/* C by panels of the given form, everything that is to be written poisoned before. */
static float *product_by(enum panels_form form, const struct scene *s)
{
    const struct gemm *g = &s->gemm;
    float *c = copy_of(g->c, g->rows * g->c_stride); /* between the rows it must stay so */
    struct panels panels;
    struct panels_source source = {g->b, g->b_stride, g->is_b_transposed, s->rotation};
    struct panels_product product = {g->rows,     g->a,        g->a_stride,     g->is_a_transposed,
                                     c,           g->c_stride, g->beta != 0.0F, s->bias,
                                     s->with_relu};
    size_t count, half;

    for (size_t r = 0; !product.adds && r < g->rows; r++) {
        for (size_t i = 0; i < g->columns; i++) {
            c[r * g->c_stride + i] = NAN;
        }
    }
    if (s->is_once) {
        multiply_once(form, s, &source, &product);
        return c;
    }
    assert_int_equal(panels_init(&panels, form, g->inner, g->columns), RC_OK);
    for (size_t i = 0; i < panels_values(form, g->inner, g->columns); i++) {
        panels.values[i] = NAN;
    }
    count = panels_count(&panels);
    half = s->is_cut ? count / 2 : 0;
    panels_pack(&panels, &source, half, count);
    panels_pack(&panels, &source, 0, half);
    for (size_t row = 0, rows = s->is_cut ? g->rows / 3 + 1 : g->rows; row < g->rows; row += rows) {
        struct panels_product part = product;

        part.rows = g->rows - row < rows ? g->rows - row : rows;
        part.a += row * (g->is_a_transposed ? 1 : g->a_stride);
        part.c += row * g->c_stride;
        panels_multiply(&panels, &part, half, count);
        panels_multiply(&panels, &part, 0, half);
    }
    panels_deinit(&panels);
    return c;
}

static float *product_by_twin(const struct scene *s)
{
    struct gemm g = s->gemm;
    float *c = copy_of(g.c, g.rows * g.c_stride);

    g.c = c;
    reference_gemm(&g);
    for (size_t r = 0; r < g.rows; r++) {
        for (size_t i = 0; i < g.columns; i++) {
            float *value = &c[r * g.c_stride + i];

            if (s->bias != NULL) *value += s->bias[i];
            if (s->with_relu && *value < 0.0F) *value = 0.0F;
        }
    }
    return c;
}

static void check_scene(const struct scene *s, uint64_t seed)
{
    size_t count = s->gemm.rows * s->gemm.c_stride;
    float *expected = product_by_twin(s), *first = NULL;
    struct scene other = *s;

    for (int form = (int)panels_best_form(); form >= PANELS_PLAIN; form--) {
        float *found = product_by((enum panels_form)form, &other);

        check_seed(seed, distance(found, expected, count) < 2e-6);
        if (form != PANELS_PLAIN && first != NULL) {
            check_seed(seed, memcmp(found, first, count * sizeof(float)) == 0);
        }
        other.is_cut = !other.is_cut;
        if (first == NULL) {
            first = found;
        } else {
            mem_free(found);
        }
    }
    for (int way = 0; panels_best_form() != PANELS_PLAIN && way < 4; way++) {
        float *found = NULL;

        other.is_cut = way % 2 != 0;
        other.is_once = way / 2 != 0;
        found = product_by(panels_best_form(), &other);
        check_seed(seed, memcmp(found, first, count * sizeof(float)) == 0);
        mem_free(found);
    }
    other.is_once = true;
    mem_free(product_by(PANELS_PLAIN, &other));
    mem_free(first);
    mem_free(expected);
}

static void packed_products_equal_their_twin_and_each_other_to_the_bit(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 120) {
        struct scene s;
        struct rng rng;

        rng_init(&rng, seed, 90);
        scene_shape(&s, &rng, seed % 10 == 1 ? 200 : 30); /* and such as fill several blocks */
        check_scene(&s, seed);
        scene_clear(&s);
    }
}

static void rows_can_be_packed_from_the_middle_on(void **state)
{
    (void)state;
    const float b[4] = {1.0F, 2.0F, 3.0F, 4.0F}, a[4] = {1.0F, 10.0F, 100.0F, 1000.0F};
    float unused[1] = {0.0F};
    struct scene s = {.gemm = {.rows = 1,
                               .columns = 1,
                               .inner = 4,
                               .a = a,
                               .a_stride = 4,
                               .b = b,
                               .b_stride = 1,
                               .c = unused,
                               .c_stride = 1},
                      .rotation = 3};

    for (int form = PANELS_PLAIN; form <= (int)panels_best_form(); form++) {
        float *c = product_by((enum panels_form)form, &s);
        assert_true(c[0] == 3214.0F); /* 4, 1, 2, 3 */
        mem_free(c);
    }
}

static void relu_lets_what_is_not_a_number_through(void **state)
{
    (void)state;
    const float a[2] = {NAN, -1.0F}, b[1] = {1.0F};
    float unused[2] = {0.0F};
    struct scene s = {.gemm = {.rows = 2,
                               .columns = 1,
                               .inner = 1,
                               .a = a,
                               .a_stride = 1,
                               .b = b,
                               .b_stride = 1,
                               .c = unused,
                               .c_stride = 1},
                      .with_relu = true};

    for (int form = PANELS_PLAIN; form <= (int)panels_best_form(); form++) {
        float *c = product_by((enum panels_form)form, &s);
        assert_true(isnan(c[0]) && c[1] == 0.0F);
        mem_free(c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(packed_products_equal_their_twin_and_each_other_to_the_bit),
        cmocka_unit_test(rows_can_be_packed_from_the_middle_on),
        cmocka_unit_test(relu_lets_what_is_not_a_number_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
