/*
 * What stands between the products of a model, on the device and by the plain twins. Sums, copies
 * and dropout are exact: their bits are those of the twin, rounded to the form of the activations.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"

static const size_t sizes[] = {1, 2, 7, 8, 9, 64, 1001, 4096, 70001};

static const struct activation activations[] = {
    {.kind = ACTIVATION_NONE},
    {.kind = ACTIVATION_RELU},
    {.kind = ACTIVATION_LEAKY_RELU, .slope = 0.01F},
    {.kind = ACTIVATION_GELU},
    {.kind = ACTIVATION_SILU},
    {.kind = ACTIVATION_SIGMOID},
    {.kind = ACTIVATION_TANH},
    {.kind = ACTIVATION_GELU_TANH},
};

/* Activations that begin `offset` values behind an aligned address. */
static float *put_at(struct parity *p, const float *from, size_t n, size_t offset)
{
    float *values = parity_put_values(p, from, n);
    float *to = backend_at(p->device, parity_room(p, n + offset), offset);

    parity_ok(p, p->device->ops->to_activations(p->device, values, to, n));
    return to;
}

/* The device's activations are `wanted`, rounded; all NaNs count as one. */
static void check_exactly(struct parity *p, uint64_t seed, const float *device, const float *wanted,
                          size_t n)
{
    const float *got = parity_get_activations(p, device, n);

    p->checks++;
    for (size_t i = 0; i < n; i++) {
        float rounded = p->is_bf16 ? parity_to_bf16(wanted[i]) : wanted[i];
        bool are_equal = memcmp(&got[i], &rounded, sizeof(rounded)) == 0;
        check_seed(seed, are_equal || (isnan(got[i]) && isnan(wanted[i])));
    }
}

/* Some zeros, some infinities and a few NaNs among normal values. */
static float *odd_activations(struct parity *p, size_t n, double size)
{
    float *values = parity_activations(p, n, size);

    for (size_t i = 0; i < n; i++) {
        uint64_t chance = rng_below(&p->rng, 32);
        if (chance == 0) values[i] = 0.0F;
        if (chance == 1) values[i] = chance % 2 == 0 ? INFINITY : -INFINITY;
        if (chance == 2) values[i] = NAN;
    }
    return values;
}

/* Rectifiers and sums are exact, and a NaN stays one. */
static void rectifiers_and_sums_are_exact(bool is_bf16, uint64_t seed)
{
    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        const struct backend_ops *ops = p->device->ops, *host = p->host->ops;
        size_t n = sizes[s], offset = (size_t)rng_below(&p->rng, 9);
        float *a = odd_activations(p, n, 1.0), *b = odd_activations(p, n, 1.0);
        float *wanted = parity_host(p, n * sizeof(*wanted));
        float *on_a = put_at(p, a, n, offset), *on_b = put_at(p, b, n, offset);
        float *on_y = backend_at(p->device, parity_room(p, n + 8), offset % 8);

        parity_ok(p, ops->add(p->device, on_a, on_b, false, on_y, n));
        assert_int_equal(host->add(p->host, a, b, false, wanted, n), RC_OK);
        check_exactly(p, seed, on_y, wanted, n);
        parity_ok(p, ops->relu_backward(p->device, on_a, on_y, n));
        for (size_t i = 0; is_bf16 && i < n; i++) {
            wanted[i] = parity_to_bf16(wanted[i]);
        }
        assert_int_equal(host->relu_backward(p->host, a, wanted, n), RC_OK);
        check_exactly(p, seed, on_y, wanted, n);
        parity_ok(p, ops->add(p->device, on_a, on_b, true, on_a, n));
        assert_int_equal(host->add(p->host, a, b, true, wanted, n), RC_OK);
        check_exactly(p, seed, on_a, wanted, n);
        parity_ok(p, ops->relu_forward(p->device, on_b, n));
        assert_int_equal(host->relu_forward(p->host, b, n), RC_OK);
        check_exactly(p, seed, on_b, b, n);
        parity_end(p);
    }
}

static void check_activation(struct parity *p, uint64_t seed, struct activation activation,
                             size_t n, double size)
{
    const struct backend_ops *ops = p->device->ops, *host = p->host->ops;
    size_t offset = (size_t)rng_below(&p->rng, 9);
    float *x = parity_activations(p, n, size), *dy = parity_activations(p, n, 1.0);
    float *y = parity_host(p, n * sizeof(*y)), *dx = parity_host(p, n * sizeof(*dx));
    float *on_x = put_at(p, x, n, offset), *on_dy = put_at(p, dy, n, offset);
    float *on_y = backend_at(p->device, parity_room(p, n + 8), offset % 8),
          *on_dx = parity_room(p, n);
    bool needs_input = activation_needs_input(activation.kind);
    double limit = n < 64 ? 1e-3 : 1e-6; /* one value alone may be the rest of a difference */

    parity_ok(p, ops->activation_forward(p->device, activation, on_x, on_y, n));
    assert_int_equal(host->activation_forward(p->host, activation, x, y, n), RC_OK);
    parity_check_activations(p, seed, "forward", on_y, y, n, limit, 4e-3);

    y = parity_get_activations(p, on_y, n); /* so that both go back from the same output */
    parity_ok(p, ops->activation_backward(p->device, activation, needs_input ? on_x : NULL, on_y,
                                          on_dy, on_dx, n));
    assert_int_equal(host->activation_backward(p->host, activation, x, y, dy, dx, n), RC_OK);
    parity_check_activations(p, seed, "backward", on_dx, dx, n, limit, 4e-3);
    parity_ok(p, ops->activation_backward(p->device, activation, needs_input ? on_x : NULL, on_y,
                                          on_dy, on_dy, n));
    check_exactly(p, seed, on_dy, parity_get_activations(p, on_dx, n), n);
    parity_ok(p, ops->activation_forward(p->device, activation, on_x, on_x, n));
    check_exactly(p, seed, on_x, y, n);
}

/* Every activation and its gradient are the twin's, in place or not, at all sizes of values. */
static void activations_are_those_of_the_twin(bool is_bf16, uint64_t seed)
{
    static const double spreads[] = {0.01, 1.0, 30.0};

    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        for (size_t k = 0; k < ARRAY_COUNT(activations); k++) {
            struct parity *p = parity_begin(is_bf16, seed);
            check_activation(p, seed, activations[k], sizes[s], spreads[(s + k) % 3]);
            parity_end(p);
        }
    }
}

/* Where a value is a NaN, all activations and their gradients are. */
static void what_is_not_a_number_stays_so(bool is_bf16, uint64_t seed)
{
    for (size_t k = 0; k < ARRAY_COUNT(activations); k++) {
        struct parity *p = parity_begin(is_bf16, seed);
        const struct backend_ops *ops = p->device->ops;
        const float bad[] = {NAN, NAN, NAN}, some[] = {1.0F, -1.0F, 0.5F};
        float *on_bad = put_at(p, bad, 3, 0), *on_some = put_at(p, some, 3, 0);
        float *on_y = parity_room(p, 3);
        bool is_step = activations[k].kind == ACTIVATION_RELU ||
                       activations[k].kind == ACTIVATION_LEAKY_RELU ||
                       activations[k].kind == ACTIVATION_NONE;

        parity_ok(p, ops->activation_forward(p->device, activations[k], on_bad, on_y, 3));
        check_exactly(p, seed, on_y, bad, 3);
        parity_ok(p, ops->activation_backward(p->device, activations[k], on_bad, on_bad, on_some,
                                              on_y, 3));
        if (!is_step) check_exactly(p, seed, on_y, bad, 3);
        parity_ok(p, ops->activation_backward(p->device, activations[k], on_some, on_some, on_bad,
                                              on_y, 1));
        check_exactly(p, seed, on_y, bad, 1);
        parity_end(p);
    }
}

static void check_dropout(struct parity *p, uint64_t seed, const struct dropout *dropout, size_t n)
{
    const struct backend_ops *ops = p->device->ops;
    struct dropout on_host = *dropout, on_device = *dropout;
    uint64_t passes = rng_u64(&p->rng);
    size_t offset = (size_t)rng_below(&p->rng, 9);
    float *x = parity_activations(p, n, 1.0), *wanted = parity_host(p, n * sizeof(*wanted));
    float *on_x = put_at(p, x, n, offset), *on_y = parity_room(p, n);
    uint64_t *counter = parity_put(p, &passes, sizeof(passes));

    parity_ok(p, ops->dropout(p->device, &on_device, on_x, on_y, n));
    assert_int_equal(p->host->ops->dropout(p->host, &on_host, x, wanted, n), RC_OK);
    check_exactly(p, seed, on_y, wanted, n);

    on_host.passes = &passes;
    on_device.passes = counter;
    parity_ok(p, ops->dropout(p->device, &on_device, on_x, on_x, n));
    assert_int_equal(p->host->ops->dropout(p->host, &on_host, x, wanted, n), RC_OK);
    check_exactly(p, seed, on_x, wanted, n);
}

/* The device drops the values that the processor drops, in any slice of the pass and by a counter
 * in its own memory. */
static void the_same_values_are_dropped(bool is_bf16, uint64_t seed)
{
    static const float rates[] = {0.0F, 0.1F, 0.5F, 0.999F};

    for (size_t s = 0; s < ARRAY_COUNT(sizes); s++) {
        struct parity *p = parity_begin(is_bf16, seed);
        for (size_t r = 0; r < ARRAY_COUNT(rates); r++) {
            struct dropout dropout = {.key = rng_u64(&p->rng),
                                      .pass = rng_u64(&p->rng),
                                      .first = rng_below(&p->rng, 100),
                                      .rate = rates[r]};
            if (r == 1) dropout.first = 4 * dropout.first + (UINT64_C(1) << 40);
            check_dropout(p, seed, &dropout, sizes[s]);
        }
        parity_end(p);
    }
}

/* Two slices of a pass drop what the whole pass drops. */
static void slices_drop_what_the_whole_drops(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    size_t n = 10000, cut = (size_t)rng_below(&p->rng, n);
    struct dropout dropout = {.key = seed, .pass = 3, .first = 8, .rate = 0.3F};
    float *x = parity_activations(p, n, 1.0), *on_x = put_at(p, x, n, 0);
    float *whole = parity_room(p, n), *parts = parity_room(p, n);

    parity_ok(p, ops->dropout(p->device, &dropout, on_x, whole, n));
    parity_ok(p, ops->dropout(p->device, &dropout, on_x, parts, cut));
    dropout.first += cut;
    parity_ok(p, ops->dropout(p->device, &dropout, backend_at(p->device, on_x, cut),
                              backend_at(p->device, parts, cut), n - cut));
    check_exactly(p, seed, parts, parity_get_activations(p, whole, n), n);
    parity_end(p);
}

static void check_copy(struct parity *p, uint64_t seed, const struct copy_rows *copy, size_t offset)
{
    size_t x_count = copy->rows * copy->x_stride, y_count = copy->rows * copy->y_stride;
    float *x = parity_activations(p, x_count, 1.0), *y = parity_activations(p, y_count, 1.0);
    float *on_x = put_at(p, x, x_count, offset), *on_y = put_at(p, y, y_count, offset);

    parity_ok(p, p->device->ops->copy_rows(p->device, copy, on_x, on_y));
    assert_int_equal(p->host->ops->copy_rows(p->host, copy, x, y), RC_OK);
    check_exactly(p, seed, on_y, y, y_count); /* and what lies between the rows is left alone */
}

/* Rows are copied or added between strides, and nothing else is touched. */
static void rows_are_copied_between_strides(bool is_bf16, uint64_t seed)
{
    static const struct copy_rows copies[] = {
        {.rows = 1, .count = 1, .x_stride = 1, .y_stride = 1},
        {.rows = 3, .count = 64, .x_stride = 64, .y_stride = 192},
        {.rows = 33, .count = 48, .x_stride = 80, .y_stride = 48},
        {.rows = 17, .count = 5, .x_stride = 7, .y_stride = 6},
        {.rows = 100, .count = 16, .x_stride = 17, .y_stride = 24},
        {.rows = 2, .count = 5000, .x_stride = 5008, .y_stride = 6000},
    };

    for (size_t i = 0; i < ARRAY_COUNT(copies); i++) {
        struct parity *p = parity_begin(is_bf16, seed);
        struct copy_rows copy = copies[i];
        check_copy(p, seed, &copy, 0);
        check_copy(p, seed, &copy, (size_t)rng_below(&p->rng, 9));
        copy.adds = true;
        check_copy(p, seed, &copy, 0);
        check_copy(p, seed, &copy, (size_t)rng_below(&p->rng, 9));
        parity_end(p);
    }
}

PARITY_TEST(rectifiers_and_sums_are_exact)
PARITY_TEST(activations_are_those_of_the_twin)
PARITY_TEST(what_is_not_a_number_stays_so)
PARITY_TEST(the_same_values_are_dropped)
PARITY_TEST(slices_drop_what_the_whole_drops)
PARITY_TEST(rows_are_copied_between_strides)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(rectifiers_and_sums_are_exact),    PARITY_BOTH(activations_are_those_of_the_twin),
    PARITY_BOTH(what_is_not_a_number_stays_so),    PARITY_BOTH(the_same_values_are_dropped),
    PARITY_BOTH(slices_drop_what_the_whole_drops), PARITY_BOTH(rows_are_copied_between_strides),
};

PARITY_MAIN("pointwise", tests)
