/*
 * Vector operations of the CUDA backend. Most must give the same bits as the processor, because
 * peers compare what they averaged; sums are in float64 on both sides.
 */
#include "tests/cuda/parity.h"

#ifdef PARITY_IS_VIRTUAL
#include "kernels/cuda/internal.h"
#endif

#include "base/check.h"
#include "kernels/linear.h"

#include <float.h>

static const size_t sizes[] = {1, 2, 3, 4, 5, 31, 255, 1000, 4096, 4097, 100003};

/* A backend of the processor as peers run it, beside the plain twins. */
static struct backend *fast_processor(void)
{
    const struct cpu_backend_options options = {.threads = 1};
    struct backend *backend = cpu_backend_create(&options);

    assert_non_null(backend);
    return backend;
}

/* Values of all sizes: also denormal ones, infinities and zeros of both signs. */
static float *wild_values(struct parity *p, size_t n)
{
    static const float special[] = {0.0F,     -0.0F,   INFINITY, -INFINITY, FLT_MAX,
                                    -FLT_MAX, FLT_MIN, 1e-40F,   -3e-45F,   1.0F};
    float *values = parity_values(p, n, 1.0);

    for (size_t i = 0; i < n; i++) {
        uint64_t chance = rng_below(&p->rng, 16);
        if (chance == 0) values[i] = special[rng_below(&p->rng, ARRAY_COUNT(special))];
        if (chance == 1) values[i] *= 1e30F;
        if (chance == 2) values[i] *= 1e-30F;
    }
    return values;
}

/* A device copy that begins `offset` values behind an aligned address. */
static float *put_at(struct parity *p, const float *from, size_t n, size_t offset)
{
    float *block = parity_block(p, (n + offset) * sizeof(*from));

    parity_ok(p, p->device->ops->upload(p->device, block + offset, from, n * sizeof(*from)));
    return block + offset;
}

/* All NaNs count as one. */
static void check_bits(struct parity *p, uint64_t seed, const float *device, const float *wanted,
                       size_t n)
{
    const float *got = parity_get_values(p, device, n);

    p->checks++;
    for (size_t i = 0; i < n; i++) {
        bool are_equal = memcmp(&got[i], &wanted[i], sizeof(got[i])) == 0;
        check_seed(seed, are_equal || (isnan(got[i]) && isnan(wanted[i])));
    }
}

static void merge_on_both(struct parity *p, uint64_t seed, struct backend *fast, size_t n,
                          size_t offset)
{
    const struct backend_ops *ops = p->device->ops;
    float a = (float)rng_normal(&p->rng);
    const float *x = wild_values(p, n), *base = wild_values(p, n), *y = wild_values(p, n);
    float *wanted = parity_copy(p, y, n), *twin = parity_copy(p, y, n);
    float *on_x = put_at(p, x, n, offset), *on_base = put_at(p, base, n, offset / 2);
    float *on_y = put_at(p, y, n, offset);

    parity_ok(p, ops->axpy(p->device, a, on_x, on_y, n));
    assert_int_equal(fast->ops->axpy(fast, a, x, wanted, n), RC_OK);
    assert_int_equal(p->host->ops->axpy(p->host, a, x, twin, n), RC_OK);
    check_bits(p, seed, on_y, wanted, n);
    check_bits(p, seed, on_y, twin, n);

    parity_ok(p, ops->add_difference(p->device, a, on_x, on_base, on_y, n));
    assert_int_equal(fast->ops->add_difference(fast, a, x, base, wanted, n), RC_OK);
    assert_int_equal(p->host->ops->add_difference(p->host, a, x, base, twin, n), RC_OK);
    check_bits(p, seed, on_y, wanted, n);
    check_bits(p, seed, on_y, twin, n);

    parity_ok(p, ops->scale(p->device, a, on_x, n));
    wanted = parity_copy(p, x, n);
    assert_int_equal(fast->ops->scale(fast, a, wanted, n), RC_OK);
    check_bits(p, seed, on_x, wanted, n);
}

/* Merging differences gives the same bits wherever it is computed. */
static void merging_gives_the_same_bits_as_the_processor(bool is_bf16, uint64_t seed)
{
    struct backend *fast = fast_processor();

    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        for (size_t offset = 0; offset < 4; offset++) {
            merge_on_both(p, seed, fast, sizes[s], offset);
        }
        parity_end(p);
    }
    backend_destroy(fast);
}

/* Bytes become the values that the processor makes of them, however many there are. */
static void bytes_become_the_same_values(bool is_bf16, uint64_t seed)
{
    static const size_t counts[] = {1, 3, 4, 1023, 65536 + 5, (4 << 20) + 7};
    struct backend *fast = fast_processor();

    for (size_t s = 0; s < ARRAY_COUNT(counts); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        size_t n = counts[s], offset = (size_t)seed % 4;
        uint8_t *bytes = parity_host(p, n);
        float *wanted = parity_host(p, n * sizeof(*wanted));
        float *values = (float *)parity_block(p, (n + offset) * sizeof(*values)) + offset;

        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)rng_u64(&p->rng);
        }
        parity_ok(p, p->device->ops->from_bytes(p->device, bytes, 2.0F / 255.0F, -1.0F, values, n));
        assert_int_equal(fast->ops->from_bytes(fast, bytes, 2.0F / 255.0F, -1.0F, wanted, n),
                         RC_OK);
        check_bits(p, seed, values, wanted, n);
        parity_end(p);
    }
    backend_destroy(fast);
}

static double norm_of(struct parity *p, const float *x, size_t n)
{
    double sum = -1.0;

    parity_ok(p, p->device->ops->squared_norm(p->device, x, n, &sum));
    return sum;
}

/* A squared norm is the processor's up to the last digits of float64, and has the same bits
 * wherever in memory the vector lies. */
static void norms_are_exact_and_have_one_order(bool is_bf16, uint64_t seed)
{
    static const size_t counts[] = {0, 1, 3, 1000, 4099, 3000001};

    for (size_t s = 0; s < ARRAY_COUNT(counts); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        size_t n = counts[s];
        const float *x = parity_values(p, n, 1.0);
        double wanted = 0.0, got = norm_of(p, put_at(p, x, n, 0), n);

        assert_int_equal(p->host->ops->squared_norm(p->host, x, n, &wanted), RC_OK);
        check_seed(seed, fabs(got - wanted) <= 1e-12 * wanted);
        for (size_t offset = 0; offset < 4; offset++) {
            double again = norm_of(p, put_at(p, x, n, offset), n);
            check_seed(seed, memcmp(&again, &got, sizeof(got)) == 0);
        }
        p->checks += 5;
        parity_end(p);
    }
}

/* One NaN or infinity is found wherever it hides; the largest numbers are finite. */
static void whatever_is_not_finite_is_found(bool is_bf16, uint64_t seed)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    size_t n = 5000 + (size_t)rng_below(&p->rng, 5000);
    float *x = parity_values(p, n, 1e30), *on_x = put_at(p, x, n, (size_t)seed % 3);
    bool is_finite = false;

    for (size_t i = 0; i < 60; i++) {
        size_t at = i == 0 ? 0 : i == 1 ? n - 1 : (size_t)rng_below(&p->rng, n);
        float one = bad[i % 3], before = i % 2 == 0 ? FLT_MAX : -FLT_MAX;

        parity_ok(p, ops->upload(p->device, on_x + at, &one, sizeof(one)));
        parity_ok(p, ops->is_finite(p->device, on_x, n, &is_finite));
        check_seed(seed, !is_finite);
        parity_ok(p, ops->upload(p->device, on_x + at, &before, sizeof(before)));
        parity_ok(p, ops->is_finite(p->device, on_x, n, &is_finite));
        check_seed(seed, is_finite);
        p->checks += 2;
    }
    parity_end(p);
}

/* A gradient is shortened to the limit where it is longer, and keeps its bits where it is not. */
static void clipping_shortens_what_is_too_long(bool is_bf16, uint64_t seed)
{
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        size_t n = sizes[s], offset = (size_t)rng_below(&p->rng, 4);
        float *x = parity_values(p, n, 1.0), *on_x = put_at(p, x, n, offset), bad = NAN;
        double norm = 0.0;

        assert_int_equal(p->host->ops->squared_norm(p->host, x, n, &norm), RC_OK);
        norm = sqrt(norm);
        parity_ok(p, p->device->ops->clip(p->device, (float)(1.001 * norm), on_x, n));
        check_bits(p, seed, on_x, x, n);
        parity_ok(p, p->device->ops->clip(p->device, (float)(0.25 * norm), on_x, n));
        for (size_t i = 0; i < n; i++) {
            x[i] *= 0.25F;
        }
        parity_check_values(p, seed, "clip", on_x, x, n, 1e-6, 1e-6);
        parity_ok(p, p->device->ops->upload(p->device, on_x + n / 2, &bad, sizeof(bad)));
        parity_ok(p, p->device->ops->clip(p->device, 1e30F, on_x, n));
        for (size_t i = 0; i < n; i++) {
            x[i] = NAN;
        }
        check_bits(p, seed, on_x, x, n);
        parity_end(p);
    }
}

/* Activations are float32 values rounded to the nearest of their form. */
static void values_are_rounded_to_activations(bool is_bf16, uint64_t seed)
{
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        const struct backend_ops *ops = p->device->ops;
        size_t n = sizes[s], offset = (size_t)rng_below(&p->rng, 4);
        float *x = wild_values(p, n), *on_x = put_at(p, x, n, offset);
        float *room = backend_at(p->device, parity_room(p, n + 1), (size_t)rng_below(&p->rng, 2));

        parity_ok(p, ops->to_activations(p->device, on_x, room, n));
        for (size_t i = 0; is_bf16 && i < n; i++) {
            x[i] = parity_to_bf16(x[i]);
        }
        p->checks++;
        check_seed(seed, memcmp(parity_get_activations(p, room, n), x, n * sizeof(*x)) == 0);
        parity_end(p);
    }
}

/* Uploads of any size are there in the order of calls, however soon what was sent is changed. */
static void uploads_of_any_size_arrive(void **state)
{
    static const size_t counts[] = {1, 16384, 16385, 524288, 5242881, 17825793};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(counts); i++) {
        struct parity *p = parity_begin(false, i);
        size_t n = counts[i];
        uint32_t *values = parity_host(p, n * sizeof(*values)), *got;
        float *there[2] = {parity_room(p, n), parity_room(p, n)};

        for (uint32_t k = 0; k < 2; k++) {
            for (size_t v = 0; v < n; v++) {
                values[v] = (uint32_t)v * 2654435761u + k;
            }
            parity_ok(p, p->device->ops->upload(p->device, there[k], values, n * sizeof(float)));
        }
        for (uint32_t k = 0; k < 2; k++) {
            got = (uint32_t *)(void *)parity_get_values(p, there[k], n);
            for (size_t v = 0; v < n; v++) {
                assert_int_equal(got[v], (uint32_t)v * 2654435761u + k);
            }
        }
        p->checks++;
        parity_end(p);
    }
}

#ifdef PARITY_IS_VIRTUAL
/* A batch of 20 MiB goes up while the step before still computes: nothing waits for that. On a GPU
 * a step would have to be long enough. */
static void uploads_do_not_wait_for_the_step_before(void **state)
{
    struct parity *p = parity_begin(false, 1);
    struct cuda_backend *cuda = (struct cuda_backend *)p->device;
    size_t bytes = (size_t)20 << 20;
    float *x = parity_block(p, bytes), *y = parity_block(p, 64 * sizeof(float));
    void *batch = parity_host(p, bytes);
    uint32_t unfinished = 0;

    (void)state;
    parity_ok(p, p->device->ops->upload(p->device, x, batch, bytes)); /* takes its memory */
    for (int step = 0; step < 8; step++) {
        cudaEvent_t end;

        assert_int_equal(cudaEventCreate(&end), cudaSuccess);
        for (int k = 0; k < 400; k++) {
            parity_ok(p, p->device->ops->scale(p->device, 0.5F, y, 64));
        }
        assert_int_equal(cudaEventRecord(end, cuda->stream), cudaSuccess);
        parity_ok(p, p->device->ops->upload(p->device, x, batch, bytes));
        unfinished += cudaEventQuery(end) == cudaErrorNotReady;
        assert_int_equal(cudaEventSynchronize(end), cudaSuccess);
        assert_int_equal(cudaEventDestroy(end), cudaSuccess);
    }
    assert_true(unfinished > 0); /* stretches of the virtual device run ahead */
    p->checks++;
    parity_end(p);
}
#endif

/* A counter has the value that was stored last. */
static void counters_are_stored_in_order(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    uint64_t *counters = parity_block(p, 2 * sizeof(*counters)), got[2];

    parity_ok(p, p->device->ops->store(p->device, &counters[0], 7));
    parity_ok(p, p->device->ops->store(p->device, &counters[1], UINT64_MAX - seed));
    parity_ok(p, p->device->ops->store(p->device, &counters[0], seed << 40));
    parity_ok(p, p->device->ops->download(p->device, got, counters, sizeof(got)));
    check_seed(seed, got[0] == seed << 40 && got[1] == UINT64_MAX - seed);
    p->checks++;
    parity_end(p);
}

static void check_column_sums(struct parity *p, uint64_t seed, size_t rows, size_t columns)
{
    const struct linear_options options = {
        .in = 1, .out = columns, .rows_max = rows, .with_bias = true, .with_gradients = true};
    struct linear *linear = NULL;
    const float *x = parity_activations(p, rows, 1.0),
                *dy = parity_activations(p, rows * columns, 1);
    float *sums = parity_values(p, columns, 1.0), *again = NULL,
          *weight = parity_put_values(p, sums, columns);
    struct linear_backward pass = {
        .rows = rows,
        .x = parity_put_activations(p, x, rows),
        .dy = parity_put_activations(p, dy, rows * columns),
        .dweight = parity_block(p, columns * sizeof(float)),
        .is_first = true,
        .dbias = parity_block(p, columns * sizeof(float)),
    };

    parity_ok(p, p->device->ops->linear_create(p->device, &options, &linear));
    parity_ok(p, linear->ops->prepare(linear, weight, weight));
    for (int turn = 1; turn <= 2; turn++) { /* the second one is added */
        parity_ok(p, linear->ops->backward(linear, &pass));
        for (size_t c = 0; c < columns; c++) {
            double sum = 0.0;
            for (size_t r = 0; r < rows; r++) {
                sum += (double)dy[r * columns + c];
            }
            sums[c] = (float)(turn * sum);
        }
        parity_check_values(p, seed, "sums of columns", pass.dbias, sums, columns, 1e-6, 1e-6);
        pass.is_first = false;
    }
    again = parity_get_values(p, pass.dbias, columns);
    for (int turn = 1; turn <= 2; turn++) {
        pass.is_first = turn == 1;
        parity_ok(p, linear->ops->backward(linear, &pass));
    }
    check_bits(p, seed, pass.dbias, again, columns);
    linear->ops->destroy(linear);
}

/* Sums of columns (the gradient of a bias) are right for tall, wide and odd matrices, and have the
 * same bits each time. */
static void columns_are_summed_whatever_the_shape(bool is_bf16, uint64_t seed)
{
    static const size_t shapes[][2] = {{1, 1},    {1, 5000}, {3, 17},   {64, 256},   {65, 10},
                                       {2000, 1}, {1000, 7}, {777, 96}, {130, 1003}, {4100, 40}};

    for (size_t s = 0; s < ARRAY_COUNT(shapes); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        check_column_sums(p, seed, shapes[s][0], shapes[s][1]);
        parity_end(p);
    }
}

PARITY_TEST(merging_gives_the_same_bits_as_the_processor)
PARITY_TEST(bytes_become_the_same_values)
PARITY_TEST(norms_are_exact_and_have_one_order)
PARITY_TEST(whatever_is_not_finite_is_found)
PARITY_TEST(clipping_shortens_what_is_too_long)
PARITY_TEST(values_are_rounded_to_activations)
PARITY_TEST(counters_are_stored_in_order)
PARITY_TEST(columns_are_summed_whatever_the_shape)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(merging_gives_the_same_bits_as_the_processor),
    PARITY_BOTH(bytes_become_the_same_values),
    PARITY_BOTH(norms_are_exact_and_have_one_order),
    PARITY_BOTH(whatever_is_not_finite_is_found),
    PARITY_BOTH(clipping_shortens_what_is_too_long),
    PARITY_BOTH(values_are_rounded_to_activations),
    cmocka_unit_test(uploads_of_any_size_arrive),
#ifdef PARITY_IS_VIRTUAL
    cmocka_unit_test(uploads_do_not_wait_for_the_step_before),
#endif
    PARITY_BOTH(counters_are_stored_in_order),
    PARITY_BOTH(columns_are_summed_whatever_the_shape),
};

PARITY_MAIN("vector", tests)
