/* embeddings and positions on the CPU: against their twins to the bit, and tokens that are none. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/reference/sequence.h"

#include <math.h>

static struct backend *backend_of(bool is_reference)
{
    struct backend *backend = cpu_backend_create(
        &(struct cpu_backend_options){.threads = 1, .is_reference = is_reference});

    assert_non_null(backend);
    return backend;
}

static float *random_values(struct rng *rng, size_t count)
{
    float *values = mem_aligned(count * sizeof(*values));

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(rng_unit(rng) * 2.0 - 1.0);
    }
    return values;
}

static float *copy_of(const float *values, size_t count)
{
    float *copy = mem_aligned(count * sizeof(*copy));

    assert_non_null(copy);
    memcpy(copy, values, count * sizeof(*copy));
    return copy;
}

static void rows_are_looked_up_and_their_gradients_added(void **state)
{
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);
    FOR_EACH_SEED (seed, 40) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        struct embedding embedding = {.symbols = 1 + (uint32_t)rng_below(&rng, 70),
                                      .width = 1 + (uint32_t)rng_below(&rng, 40)};
        size_t rows = (size_t)rng_below(&rng, 100), width = embedding.width;
        size_t entries = embedding.symbols * width;
        float *table = random_values(&rng, entries), *tokens = random_values(&rng, rows);
        float *y = random_values(&rng, rows * width), *y2 = random_values(&rng, rows * width);
        float *dtable = random_values(&rng, entries), *dtable2 = copy_of(dtable, entries);
        float *before = copy_of(dtable, entries);

        for (size_t r = 0; r < rows; r++) {
            tokens[r] = (float)rng_below(&rng, embedding.symbols);
        }
        assert_int_equal(fast->ops->embedding_forward(fast, &embedding, rows, tokens, table, y),
                         RC_OK);
        assert_int_equal(plain->ops->embedding_forward(plain, &embedding, rows, tokens, table, y2),
                         RC_OK);
        check_seed(seed, memcmp(y, y2, rows * width * sizeof(*y)) == 0);
        for (size_t r = 0; r < rows; r++) {
            check_seed(seed, y[r * width] == table[(size_t)tokens[r] * width]);
        }
        assert_int_equal(fast->ops->embedding_backward(fast, &embedding, rows, tokens, y, dtable),
                         RC_OK);
        assert_int_equal(
            plain->ops->embedding_backward(plain, &embedding, rows, tokens, y, dtable2), RC_OK);
        check_seed(seed, memcmp(dtable, dtable2, entries * sizeof(*y)) == 0);
        check_seed(seed, rows == 0 || memcmp(dtable, before, entries * sizeof(*y)) != 0);
        mem_free(table);
        mem_free(tokens);
        mem_free(y);
        mem_free(y2);
        mem_free(dtable);
        mem_free(dtable2);
        mem_free(before);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

static void a_token_that_is_none_is_refused_before_anything_is_written(void **state)
{
    const float bad[] = {NAN, -1.0F, 5.0F, 1.5F, INFINITY, -INFINITY, 1e30F, 4294967296.0F, 1e-40F};
    const float table[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, dy[6] = {1, 1, 1, 1, 1, 1};
    const struct embedding embedding = {.symbols = 5, .width = 2};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct backend *backend = backend_of(i == 1);
        for (size_t b = 0; b < ARRAY_COUNT(bad); b++) {
            float tokens[3] = {4.0F, 0.0F, bad[b]};
            float y[6] = {7, 7, 7, 7, 7, 7}, dtable[10] = {0};
            const float y_before[6] = {7, 7, 7, 7, 7, 7}, dtable_before[10] = {0};

            assert_int_equal(
                backend->ops->embedding_forward(backend, &embedding, 3, tokens, table, y),
                RC_NONFINITE);
            assert_memory_equal(y, y_before, sizeof(y));
            assert_int_equal(
                backend->ops->embedding_backward(backend, &embedding, 3, tokens, dy, dtable),
                RC_NONFINITE);
            assert_memory_equal(dtable, dtable_before, sizeof(dtable));
        }
        backend_destroy(backend);
    }
}

static void a_token_met_twice_gets_both_gradients_and_minus_zero_is_zero(void **state)
{
    const struct embedding embedding = {.symbols = 3, .width = 1};
    const float tokens[4] = {2, -0.0F, 2, 2}, dy[4] = {1, 10, 100, 1000};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct backend *backend = backend_of(i == 1);
        float dtable[3] = {5, 5, 5};
        assert_int_equal(
            backend->ops->embedding_backward(backend, &embedding, 4, tokens, dy, dtable), RC_OK);
        assert_float_equal(dtable[0], 15, 0);
        assert_float_equal(dtable[1], 5, 0);
        assert_float_equal(dtable[2], 1106, 0);
        backend_destroy(backend);
    }
}

static void positions_are_added_to_every_sample_and_gradients_over_samples(void **state)
{
    (void)state;
    struct backend *fast = backend_of(false), *plain = backend_of(true);
    FOR_EACH_SEED (seed, 20) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        struct positions positions = {.samples = 1 + (uint32_t)rng_below(&rng, 4),
                                      .steps = 1 + (uint32_t)rng_below(&rng, 20),
                                      .width = 1 + (uint32_t)rng_below(&rng, 20)};
        size_t span = (size_t)positions.steps * positions.width, all = positions.samples * span;
        float *x = random_values(&rng, all), *table = random_values(&rng, span);
        float *y = random_values(&rng, all);
        float *dtable = random_values(&rng, span), *dtable2 = copy_of(dtable, span);

        assert_int_equal(fast->ops->positions_forward(fast, &positions, x, table, y), RC_OK);
        for (size_t i = 0; i < all; i++) {
            float expected = x[i] + table[i % span];
            check_seed(seed, y[i] == expected);
        }
        assert_int_equal(plain->ops->positions_forward(plain, &positions, x, table, x), RC_OK);
        check_seed(seed, memcmp(x, y, all * sizeof(*y)) == 0);
        assert_int_equal(fast->ops->positions_backward(fast, &positions, y, dtable), RC_OK);
        assert_int_equal(plain->ops->positions_backward(plain, &positions, y, dtable2), RC_OK);
        check_seed(seed, memcmp(dtable, dtable2, span * sizeof(*y)) == 0);
        mem_free(x);
        mem_free(table);
        mem_free(y);
        mem_free(dtable);
        mem_free(dtable2);
    }
    backend_destroy(fast);
    backend_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_are_looked_up_and_their_gradients_added),
        cmocka_unit_test(a_token_that_is_none_is_refused_before_anything_is_written),
        cmocka_unit_test(a_token_met_twice_gets_both_gradients_and_minus_zero_is_zero),
        cmocka_unit_test(positions_are_added_to_every_sample_and_gradients_over_samples),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
