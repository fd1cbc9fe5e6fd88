/*
 * Dense layers and products of matrices. Limits: float32 sums differ in their order only, 1e-5.
 * With bfloat16, weights and outputs are rounded (each an error of 1.1e-3, in norm), and biases:
 * 8e-3. What a pass back begins with, outputs and values before the activation, is the device's on
 * both sides: near a kink of the activation a rounded value may be on its other side.
 */
#include "tests/cuda/parity.h"
#include "tests/cuda/virtual/runtime.h"

#include "base/check.h"

/* What only the virtual device knows. */
#pragma weak virtual_kernels

#define LIMIT      1e-5
#define LIMIT_BF16 1.5e-2

static size_t between(struct rng *rng, size_t low, size_t high)
{
    return low + (size_t)rng_below(rng, high - low + 1);
}

static bool is_one_in(struct rng *rng, uint64_t n)
{
    return rng_below(rng, n) == 0;
}

static double norm(const float *values, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)values[i] * (double)values[i];
    }
    return sqrt(sum);
}

/* How much more than the limit is allowed of a result that is usually of this `size`. */
static double allowance(const float *wanted, size_t n, double size)
{
    double is = norm(wanted, n);

    return is >= size || is == 0.0 ? 1.0 : size / is;
}

/* A layer on both sides, and where what it reads and writes begins in memory. */
struct scene {
    struct linear_options options;
    size_t x_shift, weight_shift; /* values before the first */
    struct linear *device, *host;
    float *weight, *bias;
    double weight_size; /* its norm */
};

static void scene_choose(struct parity *p, struct scene *s)
{
    static const size_t edges[] = {1, 2, 3, 7, 8, 16, 32, 33, 64, 128, 257};
    size_t *sizes[] = {&s->options.in, &s->options.out, &s->options.rows_max};

    *s = (struct scene){
        .options =
            {
                .with_bias = !is_one_in(&p->rng, 4),
                .activation = {(enum activation_kind)rng_below(&p->rng, ACTIVATION_COUNT), 0.1F},
                .with_gradients = true,
                .with_input_gradient = true,
            },
        .x_shift = is_one_in(&p->rng, 3) ? between(&p->rng, 1, 9) : 0,
        .weight_shift = is_one_in(&p->rng, 2) ? between(&p->rng, 1, 5) : 0,
    };
    for (size_t i = 0; i < ARRAY_COUNT(sizes); i++) {
        *sizes[i] = is_one_in(&p->rng, 2) ? edges[rng_below(&p->rng, ARRAY_COUNT(edges))]
                                          : between(&p->rng, 1, 70);
    }
}

/* n parameters of the device, `shift` values into their memory. */
static float *put_shifted(struct parity *p, const float *values, size_t n, size_t shift)
{
    float *block = parity_put_values(p, values, n + shift);

    return block + shift;
}

static void scene_prepare(struct parity *p, struct scene *s)
{
    const struct linear_options *o = &s->options;
    size_t shift = s->weight_shift, in = o->in, out = o->out;
    float *bias = NULL;

    s->weight = parity_values(p, in * out + shift, 1.0 / sqrt((double)in));
    s->weight_size = norm(s->weight + shift, in * out);
    s->bias = o->with_bias ? parity_values(p, out + shift, 0.5) : NULL;
    if (s->bias != NULL) bias = put_shifted(p, s->bias, out, shift);
    parity_ok(p,
              s->device->ops->prepare(s->device, put_shifted(p, s->weight, in * out, shift), bias));
    parity_ok(p, s->host->ops->prepare(s->host, s->weight + shift,
                                       s->bias != NULL ? s->bias + shift : NULL));
}

static void scene_create(struct parity *p, struct scene *s)
{
    struct linear_options host = s->options;

    parity_ok(p, p->device->ops->linear_create(p->device, &s->options, &s->device));
    host.y_stride = 0;
    parity_ok(p, p->host->ops->linear_create(p->host, &host, &s->host));
    scene_prepare(p, s);
}

static void scene_destroy(struct scene *s)
{
    s->device->ops->destroy(s->device);
    s->host->ops->destroy(s->host);
}

/* n activations on both sides, shifted there. */
static float *put_activations(struct parity *p, const float *values, size_t n, size_t shift)
{
    float *padded = parity_activations(p, n + shift, 1.0);

    memcpy(padded + shift, values, n * sizeof(float));
    return backend_at(p->device, parity_put_activations(p, padded, n + shift), shift);
}

/* What a forward pass leaves, on both sides. */
struct outputs {
    float *x, *pre, *y; /* of the host; pre NULL: not wanted */
    float *x_there, *pre_there, *y_there;
};

static void check_forward(struct parity *p, uint64_t seed, struct scene *s, size_t rows,
                          struct outputs *o)
{
    size_t in = rows * s->options.in, out = rows * s->options.out;
    bool has_pre = activation_needs_input(s->options.activation.kind) && !is_one_in(&p->rng, 4);
    double x_size, more;

    o->x = parity_activations(p, in, 1.0);
    x_size = norm(o->x, in);
    o->x_there = put_activations(p, o->x, in, s->x_shift);
    o->y = parity_host(p, out * sizeof(float));
    o->y_there = parity_room(p, out);
    o->pre = has_pre ? parity_host(p, out * sizeof(float)) : NULL;
    o->pre_there = has_pre ? parity_room(p, out) : NULL;
    parity_ok(p, s->device->ops->forward(s->device, rows, o->x_there, o->pre_there, o->y_there));
    parity_ok(p, s->host->ops->forward(s->host, rows, o->x, o->pre, o->y));
    if (has_pre) {
        more = allowance(o->pre, out, x_size * s->weight_size / sqrt((double)s->options.in));
        parity_check_activations(p, seed, "pre", o->pre_there, o->pre, out, more * LIMIT,
                                 more * LIMIT_BF16);
    }
    more = allowance(o->y, out, x_size * s->weight_size / sqrt((double)s->options.in));
    parity_check_activations(p, seed, "y", o->y_there, o->y, out, more * LIMIT, more * LIMIT_BF16);
}

static const struct activation gelu = {ACTIVATION_GELU_TANH, 0.0F};

/* What is added to on both sides, or on the device what is overwritten. */
static void put_gradients(struct parity *p, const struct scene *s,
                          const struct linear_backward *host, struct linear_backward *device)
{
    size_t out = s->options.out, weights = s->options.in * out, shift = s->weight_shift;

    if (!host->is_first) {
        device->dweight = put_shifted(p, host->dweight - shift, weights, shift);
        if (s->options.with_bias) {
            device->dbias = put_shifted(p, host->dbias - shift, out, shift);
        }
        return;
    }
    device->dweight = (float *)parity_block(p, (weights + shift) * sizeof(float)) + shift;
    if (s->options.with_bias) {
        device->dbias = (float *)parity_block(p, (out + shift) * sizeof(float)) + shift;
    }
}

static void check_backward(struct parity *p, uint64_t seed, struct scene *s, size_t rows,
                           const struct outputs *o)
{
    size_t in = s->options.in, out = s->options.out, shift = s->weight_shift;
    bool with_bias = s->options.with_bias, adds = is_one_in(&p->rng, 2);
    bool dx_is_x = !adds && is_one_in(&p->rng, 3), wants_dx = !is_one_in(&p->rng, 5);
    bool joins = wants_dx && !adds && is_one_in(&p->rng, 2);
    float *x_pre = joins ? parity_activations(p, rows * in, 1.0) : NULL;
    float *weight = parity_values(p, in * out + shift, 1.0);
    float *bias = parity_values(p, out + shift, 1.0);
    float *dy = parity_activations(p, rows * out, 1.0);
    float *dx = dx_is_x ? o->x : parity_activations(p, rows * in, 1.0);
    struct linear_backward host = {
        .rows = rows,
        .x = o->x,
        .pre = o->pre != NULL ? parity_get_activations(p, o->pre_there, rows * out) : NULL,
        .y = parity_get_activations(p, o->y_there, rows * out),
        .dy = dy,
        .dx = wants_dx ? dx : NULL,
        .adds_to_dx = adds,
        .is_first = is_one_in(&p->rng, 2),
        .dweight = weight + shift,
        .dbias = with_bias ? bias + shift : NULL,
    };
    struct linear_backward device = host;
    double x_size = norm(o->x, rows * in), dy_size, more;

    device.x = o->x_there;
    device.pre = o->pre_there;
    device.y = o->y_there;
    device.dy = parity_put_activations(p, dy, rows * out);
    if (wants_dx) device.dx = dx_is_x ? o->x_there : parity_put_activations(p, dx, rows * in);
    put_gradients(p, s, &host, &device);
    if (joins) device.x_pre = parity_put_activations(p, x_pre, rows * in);
    parity_ok(p, s->device->ops->backward(s->device, &device));
    parity_ok(p, s->host->ops->backward(s->host, &host));
    if (joins) {
        parity_ok(p,
                  p->host->ops->activation_backward(p->host, gelu, x_pre, NULL, dx, dx, rows * in));
    }
    parity_check_activations(p, seed, "dy", device.dy, dy, rows * out, LIMIT, LIMIT_BF16);
    dy_size = norm(dy, rows * out); /* before the activation, by now */
    more = allowance(host.dweight, in * out, dy_size * x_size / sqrt((double)rows));
    parity_check_values(p, seed, "dweight", device.dweight, host.dweight, in * out, more * LIMIT,
                        more * LIMIT_BF16);
    if (with_bias) {
        more = allowance(host.dbias, out, dy_size);
        parity_check_values(p, seed, "dbias", device.dbias, host.dbias, out, more * LIMIT,
                            more * LIMIT_BF16);
    }
    if (!wants_dx) return;
    more = allowance(dx, rows * in, dy_size * s->weight_size / sqrt((double)out));
    parity_check_activations(p, seed, "dx", device.dx, dx, rows * in, more * LIMIT,
                             more * LIMIT_BF16);
}

/* Layers of all shapes, activations and alignments compute what the twin does, with full batches
 * and with fewer rows. */
static void layers_are_as_their_twins(bool is_bf16, uint64_t seed)
{
    for (uint64_t i = 0; i < 16; i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        struct outputs outputs;
        struct scene s;

        scene_choose(p, &s);
        scene_create(p, &s);
        for (int k = 0; k < 2; k++) {
            size_t most = s.options.rows_max, rows = k == 0 ? most : between(&p->rng, 1, most);
            bool needs_pre = activation_needs_input(s.options.activation.kind);

            check_forward(p, seed, &s, rows, &outputs);
            if (needs_pre && outputs.pre == NULL) continue;
            check_backward(p, seed, &s, rows, &outputs);
        }
        scene_destroy(&s);
        parity_end(p);
    }
}
PARITY_TEST(layers_are_as_their_twins)

/* More counts of rows than a layer remembers are no matter, and new weights are taken. */
static void any_count_of_rows_will_do(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct scene s = {.options = {.in = 24,
                                  .out = 17,
                                  .rows_max = 40,
                                  .with_bias = true,
                                  .activation = {ACTIVATION_RELU, 0.0F}}};
    struct outputs outputs;

    scene_create(p, &s);
    for (size_t rows = 1; rows <= 20; rows++) {
        check_forward(p, seed, &s, rows, &outputs);
    }
    scene_prepare(p, &s);
    check_forward(p, seed, &s, 1, &outputs);
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(any_count_of_rows_will_do)

/* What is no number comes out as such, whatever follows the product: libraries' relu makes 0 of it.
 */
static void no_nan_is_hidden(bool is_bf16, uint64_t seed)
{
    for (int kind = 0; kind < ACTIVATION_COUNT; kind++) {
        struct parity *p = parity_begin(is_bf16, seed);
        struct scene s = {.options = {.in = 32,
                                      .out = 16,
                                      .rows_max = 8,
                                      .with_bias = seed % 2 == 0,
                                      .activation = {(enum activation_kind)kind, 0.1F}}};
        float *x = parity_activations(p, 8 * 32, 1.0), *y = parity_room(p, 8 * 16), *got;

        scene_create(p, &s);
        x[3 * 32 + 5] = NAN;
        parity_ok(
            p, s.device->ops->forward(s.device, 8, parity_put_activations(p, x, 8 * 32), NULL, y));
        got = parity_get_activations(p, y, 8 * 16);
        for (size_t i = 0; i < 8 * 16; i++) {
            check_seed(seed, isnan(got[i]) == (i / 16 == 3));
        }
        p->checks++;
        scene_destroy(&s);
        parity_end(p);
    }
}
PARITY_TEST(no_nan_is_hidden)

/* `rows` rows of `count` activations, `stride` apart with zeros between. */
static float *put_apart(struct parity *p, const float *values, size_t rows, size_t count,
                        size_t stride)
{
    float *apart = parity_host(p, rows * stride * sizeof(float));

    memset(apart, 0, rows * stride * sizeof(float));
    for (size_t r = 0; r < rows; r++) {
        memcpy(apart + r * stride, values + r * count, count * sizeof(float));
    }
    return parity_put_activations(p, apart, rows * stride);
}

/* Rows of outputs that are further apart than they are long hold the same, and zeros between; so do
 * gradients. */
static void rows_may_be_apart(void **state)
{
    static const size_t shapes[][3] = {{24, 10, 16}, {16, 73, 128}, {1, 5, 8}, {40, 1, 8}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(shapes); i++) {
        struct parity *p = parity_begin(true, i);
        size_t in = shapes[i][0], out = shapes[i][1], stride = shapes[i][2], rows = 9;
        struct scene s = {.options = {.in = in,
                                      .out = out,
                                      .rows_max = rows,
                                      .y_stride = stride,
                                      .with_bias = i % 2 == 0,
                                      .with_gradients = true,
                                      .with_input_gradient = true}};
        float *x = parity_activations(p, rows * in, 1.0), *got, *wanted;
        float *dy = parity_activations(p, rows * out, 1.0), *dx, *dweight, *dbias;
        struct linear_backward back = {.rows = rows, .x = x, .dy = dy, .is_first = true}, there;

        scene_create(p, &s);
        wanted = parity_host(p, rows * out * sizeof(float));
        back.y = wanted;
        back.dx = dx = parity_host(p, rows * in * sizeof(float));
        back.dweight = dweight = parity_host(p, in * out * sizeof(float));
        back.dbias = dbias = s.options.with_bias ? parity_host(p, out * sizeof(float)) : NULL;
        there = back;
        there.x = parity_put_activations(p, x, rows * in);
        there.y = parity_room(p, rows * stride);
        there.dy = put_apart(p, dy, rows, out, stride);
        there.dx = parity_room(p, rows * in);
        there.dweight = parity_block(p, in * out * sizeof(float));
        if (dbias != NULL) there.dbias = parity_block(p, out * sizeof(float));
        parity_ok(p, s.device->ops->forward(s.device, rows, there.x, NULL,
                                            backend_at(p->device, there.y, 0)));
        parity_ok(p, s.host->ops->forward(s.host, rows, x, NULL, wanted));
        got = parity_get_activations(p, there.y, rows * stride);
        for (size_t r = 0; r < rows; r++) {
            for (size_t c = out; c < stride; c++) {
                assert_true(got[r * stride + c] == 0.0F);
            }
            memmove(got + r * out, got + r * stride, out * sizeof(*got));
        }
        parity_compare(p, i, "y", got, wanted, rows * out, LIMIT_BF16);
        parity_ok(p, s.device->ops->backward(s.device, &there));
        parity_ok(p, s.host->ops->backward(s.host, &back));
        parity_check_activations(p, i, "dx", there.dx, dx, rows * in, LIMIT, LIMIT_BF16);
        parity_check_values(p, i, "dweight", there.dweight, dweight, in * out, LIMIT, LIMIT_BF16);
        if (dbias != NULL) {
            parity_check_values(p, i, "dbias", there.dbias, dbias, out, LIMIT, LIMIT_BF16);
        }
        scene_destroy(&s);
        parity_end(p);
    }
}

/* In bfloat16 bias, gelu, the gradients of both and sums with those of earlier batches ride on the
 * products: no kernel of ours runs, but one for a bias whose gradients add up. */
static void count_kernels(struct parity *p)
{
    const struct backend_ops *ops = p->device->ops;
    struct scene s = {.options = {.in = 64,
                                  .out = 24,
                                  .rows_max = 16,
                                  .with_bias = true,
                                  .activation = gelu,
                                  .with_gradients = true,
                                  .with_input_gradient = true}};
    struct linear_backward pass = {
        .rows = 16,
        .x = parity_put_activations(p, parity_activations(p, 16 * 64, 1.0), 16 * 64),
        .pre = parity_room(p, 16 * 24),
        .y = parity_room(p, 16 * 24),
        .dy = parity_put_activations(p, parity_activations(p, 16 * 24, 1.0), 16 * 24),
        .is_joined = true,
        .x_pre = parity_put_activations(p, parity_activations(p, 16 * 64, 1.0), 16 * 64),
        .dx = parity_room(p, 16 * 64),
        .dweight = parity_block(p, 24 * 64 * sizeof(float)),
        .dbias = parity_block(p, 24 * sizeof(float)),
    };
    float once[24], *twice;
    uint64_t before;

    scene_create(p, &s);
    parity_ok(p, ops->download(p->device, once, pass.dbias, sizeof(once)));
    before = virtual_kernels();
    parity_ok(p, s.device->ops->forward(s.device, 16, pass.x, backend_at(p->device, pass.pre, 0),
                                        backend_at(p->device, pass.y, 0)));
    for (int k = 0; k < 2; k++) {
        pass.is_first = k == 0;
        parity_ok(p, s.device->ops->backward(s.device, &pass));
        if (k == 0) parity_ok(p, ops->download(p->device, once, pass.dbias, sizeof(once)));
        if (k == 0) assert_int_equal(virtual_kernels(), before);
    }
    twice = parity_get_values(p, pass.dbias, 24);
    assert_int_equal(virtual_kernels(), before + 1);
    for (int i = 0; i < 24; i++) {
        assert_true(twice[i] == 2.0F * once[i]);
    }
    p->checks++;
    scene_destroy(&s);
    parity_end(p);
}

static void what_rides_on_products_takes_no_kernel(void **state)
{
    (void)state;
    if (virtual_kernels == NULL) parity_leave_out("kernels are counted on the virtual device");
    count_kernels(parity_begin(true, 1));
}

/* Recorded passes, run again on other inputs, give the bits that direct calls give. */
static void recordings_repeat_the_calls(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    struct scene s = {.options = {.in = 40,
                                  .out = 24,
                                  .rows_max = 32,
                                  .with_bias = true,
                                  .activation = {ACTIVATION_GELU, 0.0F},
                                  .with_gradients = true,
                                  .with_input_gradient = true}};
    size_t in = 32 * 40, out = 32 * 24, weights = 40 * 24, bytes = p->device->value_bytes;
    float *x = parity_room(p, in), *dy = parity_room(p, out);
    struct linear_backward pass = {
        .rows = 32,
        .x = x,
        .pre = parity_room(p, out),
        .y = parity_room(p, out),
        .dy = parity_room(p, out),
        .dx = parity_room(p, in),
        .is_first = true,
        .dweight = parity_block(p, weights * sizeof(float)),
        .dbias = parity_block(p, 24 * sizeof(float)),
    };
    float *pre = backend_at(p->device, pass.pre, 0), *y = backend_at(p->device, pass.y, 0);
    struct recording *recording = NULL;
    float *direct = NULL;

    scene_create(p, &s);
    for (int run = 0; run < 3; run++) { /* directly; recorded and replayed; directly again */
        const float *values = parity_put_activations(p, parity_activations(p, in, 1.0), in);
        const float *gradients = parity_put_activations(p, parity_activations(p, out, 1.0), out);

        if (run < 2) { /* the last run repeats the second's inputs */
            parity_ok(p, ops->copy(p->device, x, values, in * bytes));
            parity_ok(p, ops->copy(p->device, dy, gradients, out * bytes));
        }
        if (run == 1) parity_ok(p, ops->record_begin(p->device));
        parity_ok(p, ops->copy(p->device, pass.dy, dy, out * bytes));
        parity_ok(p, s.device->ops->forward(s.device, 32, x, pre, y));
        parity_ok(p, s.device->ops->backward(s.device, &pass));
        if (run == 1) {
            parity_ok(p, ops->record_end(p->device, &recording));
            parity_ok(p, ops->replay(p->device, recording));
            direct = parity_get_values(p, pass.dweight, weights);
        }
    }
    assert_memory_equal(direct, parity_get_values(p, pass.dweight, weights),
                        weights * sizeof(float));
    p->checks++;
    ops->recording_destroy(p->device, recording);
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(recordings_repeat_the_calls)

/* Products of float32 matrices in all forms, with strides, alpha and beta. */
static void products_are_as_their_twins(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 8) {
        struct parity *p = parity_begin(seed % 2 == 0, seed);
        struct gemm g = {
            .is_a_transposed = is_one_in(&p->rng, 2),
            .is_b_transposed = is_one_in(&p->rng, 2),
            .rows = between(&p->rng, 1, 60),
            .columns = between(&p->rng, 1, 60),
            .inner = between(&p->rng, 1, 90),
            .alpha = (float)rng_normal(&p->rng),
            .beta = is_one_in(&p->rng, 2) ? 0.0F : (float)rng_normal(&p->rng),
        };
        size_t a_columns = g.is_a_transposed ? g.rows : g.inner;
        size_t b_columns = g.is_b_transposed ? g.inner : g.columns;
        size_t a_rows = g.is_a_transposed ? g.inner : g.rows;
        size_t b_rows = g.is_b_transposed ? g.columns : g.inner;
        struct gemm there = g;

        g.a_stride = a_columns + between(&p->rng, 0, 3);
        g.b_stride = b_columns + between(&p->rng, 0, 3);
        g.c_stride = g.columns + between(&p->rng, 0, 3);
        g.a = parity_values(p, a_rows * g.a_stride, 1.0);
        g.b = parity_values(p, b_rows * g.b_stride, 1.0);
        g.c = parity_values(p, g.rows * g.c_stride, 1.0);
        there = g;
        there.a = parity_put_values(p, g.a, a_rows * g.a_stride);
        there.b = parity_put_values(p, g.b, b_rows * g.b_stride);
        there.c = parity_put_values(p, g.c, g.rows * g.c_stride);
        parity_ok(p, p->device->ops->gemm(p->device, &there));
        parity_ok(p, p->host->ops->gemm(p->host, &g));
        parity_compare(p, seed, "c", parity_get_values(p, there.c, g.rows * g.c_stride), g.c,
                       g.rows * g.c_stride, LIMIT);
        parity_end(p);
    }
}

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(layers_are_as_their_twins),
    PARITY_BOTH(any_count_of_rows_will_do),
    PARITY_BOTH(no_nan_is_hidden),
    cmocka_unit_test(rows_may_be_apart),
    cmocka_unit_test(what_rides_on_products_takes_no_kernel),
    PARITY_BOTH(recordings_repeat_the_calls),
    cmocka_unit_test(products_are_as_their_twins),
};

PARITY_MAIN("linear", tests)
