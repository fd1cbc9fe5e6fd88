/* Pooling on the device: every layout, windows that overlap, that leave gaps, that begin in the
 * padding. */
#include "tests/cuda/images.h"

static struct pool_options random_pool(struct parity *p, enum pool_kind kind)
{
    static const uint32_t channels[] = {1, 3, 8, 16, 24, 40, 64};
    struct pool_options o = {.kind = kind, .size = between(p, 2, 4)};
    uint32_t c = channels[rng_below(&p->rng, ARRAY_COUNT(channels))];

    o.stride = between(p, 0, 1) == 0 ? o.size : between(p, 1, 5);
    o.padding = between(p, 0, 1) == 0 ? 0 : between(p, 0, o.size / 2);
    if (between(p, 0, 9) == 0) o.size = POOL_SIZE_MAX;
    o.in = (struct image_shape){c, between(p, o.size - o.padding, o.size + 6),
                                between(p, o.size - o.padding, o.size + 9), random_block(p, c)};
    o.out =
        (struct image_shape){c, windows_fit(o.in.height, o.size, o.padding, o.stride, 1),
                             windows_fit(o.in.width, o.size, o.padding, o.stride, 1), o.in.block};
    if (between(p, 0, 3) == 0) o.out.block = random_block(p, c);
    o.with_relu = kind == POOL_MAX && between(p, 0, 1) == 0;
    return o;
}

/* A pooling of random values, there and back. */
struct pooled {
    struct pool_options options;
    uint32_t images;
    size_t offset, ins, outs;
    float *x, *dy, *y, *dx; /* of the twin */
    uint8_t *winner;        /* NULL: means */
    float *on_x, *on_dy;    /* on the device */
};

static struct pooled pooled_create(struct parity *p, enum pool_kind kind)
{
    struct pooled o = {.options = random_pool(p, kind), .images = between(p, 1, 3)};
    const struct backend_ops *ops = p->host->ops;

    o.offset = random_offset(p);
    o.ins = o.images * image_values(o.options.in);
    o.outs = o.images * image_values(o.options.out);
    o.x = parity_activations(p, o.ins, 1.0);
    o.dy = parity_activations(p, o.outs, 1.0);
    for (size_t i = 0; i < o.ins; i++) {
        if (rng_below(&p->rng, 4) == 0) o.x[i] = o.x[rng_below(&p->rng, o.ins)]; /* equal ones */
    }
    o.y = parity_host(p, o.outs * sizeof(*o.y));
    o.dx = parity_host(p, o.ins * sizeof(*o.dx));
    if (kind == POOL_MAX) o.winner = parity_host(p, o.outs);
    image_check_host(ops->pool_forward(p->host, &o.options, o.images, o.x, o.y, o.winner));
    image_check_host(ops->pool_backward(p->host, &o.options, o.images, o.dy, o.winner, o.dx));
    o.on_x = image_put(p, o.offset, o.x, o.ins);
    o.on_dy = image_put(p, o.offset, o.dy, o.outs);
    return o;
}

/* Results are those of the twin, maxima and their winners to the bit, and the same when repeated.
 */
static void check_pool(struct parity *p, uint64_t seed, enum pool_kind kind)
{
    struct pooled o = pooled_create(p, kind);
    const struct backend_ops *ops = p->device->ops;
    bool is_exact = kind == POOL_MAX && o.options.stride >= o.options.size;
    float *y[2], *dx[2];
    uint8_t *winner[2] = {NULL, NULL};

    for (int i = 0; i < 2; i++) {
        y[i] = image_room(p, o.offset, o.outs);
        dx[i] = image_room(p, o.offset, o.ins);
        if (kind == POOL_MAX) winner[i] = parity_block(p, o.outs);
        parity_ok(p, ops->pool_forward(p->device, &o.options, o.images, o.on_x, y[i], winner[i]));
        parity_ok(p,
                  ops->pool_backward(p->device, &o.options, o.images, o.on_dy, winner[i], dx[i]));
    }
    if (kind == POOL_MAX) {
        parity_check_activations(p, seed, "maxima", y[0], o.y, o.outs, 0.0, 0.0);
        check_seed(seed, memcmp(image_get(p, winner[0], o.outs), o.winner, o.outs) == 0);
        parity_ok(p, ops->pool_forward(p->device, &o.options, o.images, o.on_x, y[0], NULL));
    } else {
        parity_check_activations(p, seed, "means", y[0], o.y, o.outs, 1e-6, 4e-3);
    }
    parity_check_activations(p, seed, "dx", dx[0], o.dx, o.ins, is_exact ? 0.0 : 1e-6,
                             is_exact ? 0.0 : 4e-3);
    image_check_bits(p, seed, y[0], y[1], o.outs * p->device->value_bytes);
    image_check_bits(p, seed, dx[0], dx[1], o.ins * p->device->value_bytes);
}

static void maxima_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 16; i++) {
        check_pool(p, seed, POOL_MAX);
        image_clear(p);
    }
    parity_end(p);
}

static void means_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 16; i++) {
        check_pool(p, seed, POOL_AVERAGE);
        image_clear(p);
    }
    parity_end(p);
}

/* A NaN that comes first in its window reaches the output, with relu and without. */
static void a_nan_reaches_the_output(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct pool_options o = {.in = {16, 2, 2, 16}, .out = {16, 1, 1, 16}, .size = 2, .stride = 2};
    float x[64];

    for (int i = 0; i < 64; i++) {
        x[i] = i < 16 ? NAN : 1.0F;
    }
    for (int with_relu = 0; with_relu < 2; with_relu++) {
        float *y = image_room(p, 0, 16), *got;
        o.with_relu = with_relu == 1;
        parity_ok(p,
                  p->device->ops->pool_forward(p->device, &o, 1, image_put(p, 0, x, 64), y, NULL));
        got = parity_get_activations(p, y, 16);
        for (int c = 0; c < 16; c++) {
            check_seed(seed, isnan(got[c]));
        }
        p->checks++;
    }
    parity_end(p);
}

PARITY_TEST(maxima_equal_their_twins)
PARITY_TEST(means_equal_their_twins)
PARITY_TEST(a_nan_reaches_the_output)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(maxima_equal_their_twins),
    PARITY_BOTH(means_equal_their_twins),
    PARITY_BOTH(a_nan_reaches_the_output),
};

PARITY_MAIN("pool", tests)
