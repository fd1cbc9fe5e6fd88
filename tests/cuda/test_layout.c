/* Layouts, means over images and shortcuts on the device: between any blocks. */
#include "tests/cuda/images.h"

/* Rewriting is exact, by tiles and one by one, and twice gives what there was. */
static void check_relayout(struct parity *p, uint64_t seed, struct image_shape from,
                           uint32_t images)
{
    struct image_shape to = from;
    size_t n = images * image_values(from), offset = random_offset(p);
    float *x = parity_activations(p, n, 1.0), *wanted = parity_host(p, n * sizeof(*wanted));
    float *on_x = image_put(p, offset, x, n), *there = image_room(p, offset, n),
          *back = image_room(p, offset, n);
    const struct backend_ops *ops = p->device->ops;

    to.block = random_block(p, from.channels);
    image_check_host(p->host->ops->relayout(p->host, from, to.block, images, x, wanted));
    parity_ok(p, ops->relayout(p->device, from, to.block, images, on_x, there));
    parity_ok(p, ops->relayout(p->device, to, from.block, images, there, back));
    parity_check_activations(p, seed, "relayout", there, wanted, n, 0.0, 0.0);
    image_check_bits(p, seed, back, on_x, n * p->device->value_bytes);
}

static void layouts_change_nothing_but_places(bool is_bf16, uint64_t seed)
{
    static const struct image_shape large[] = {
        {64, 13, 11, 1}, {64, 13, 11, 64}, {33, 7, 9, 1}, {17, 16, 1, 17}, {128, 1, 40, 16}};

    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 16; i++) {
        check_relayout(p, seed, random_image(p), between(p, 1, 3));
        if (i < ARRAY_COUNT(large)) check_relayout(p, seed, large[i], between(p, 1, 3));
        image_clear(p);
    }
    parity_end(p);
}

static void check_average(struct parity *p, uint64_t seed)
{
    struct image_shape in = random_image(p);
    uint32_t images = between(p, 1, 4);
    size_t ins = images * image_values(in), outs = (size_t)images * in.channels;
    size_t offset = random_offset(p);
    float *x = parity_activations(p, ins, 1.0), *dy = parity_activations(p, outs, 1.0);
    float *y = parity_host(p, outs * sizeof(*y)), *dx = parity_host(p, ins * sizeof(*dx));
    float *on_x, *on_dy = image_put(p, offset, dy, outs), *on_y[2], *on_dx[2];
    const struct backend_ops *ops = p->device->ops;

    for (size_t i = 0; i < ins; i++) {
        x[i] = fabsf(x[i]); /* a mean near zero is mostly rounding */
    }
    on_x = image_put(p, offset, x, ins);
    image_check_host(p->host->ops->global_average_forward(p->host, in, images, x, y));
    image_check_host(p->host->ops->global_average_backward(p->host, in, images, dy, dx));
    for (int i = 0; i < 2; i++) {
        on_y[i] = image_room(p, offset, outs);
        on_dx[i] = image_room(p, offset, ins);
        parity_ok(p, ops->global_average_forward(p->device, in, images, on_x, on_y[i]));
        parity_ok(p, ops->global_average_backward(p->device, in, images, on_dy, on_dx[i]));
    }
    parity_check_activations(p, seed, "mean", on_y[0], y, outs, 1e-6, 4e-3);
    parity_check_activations(p, seed, "dx", on_dx[0], dx, ins, 1e-6, 4e-3);
    image_check_bits(p, seed, on_dx[0], on_dx[1], ins * p->device->value_bytes);
}

static void means_over_images_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 16; i++) {
        check_average(p, seed);
        image_clear(p);
    }
    parity_end(p);
}

/* Pixels are copied exactly, and all others, and channels that are new, are zeros. */
static void check_subsample(struct parity *p, uint64_t seed)
{
    struct subsample o = {.in = random_image(p), .stride = between(p, 1, 3)};
    uint32_t images = between(p, 1, 3), channels = o.in.channels * between(p, 1, 2);
    size_t ins, outs, offset = random_offset(p);

    o.out = (struct image_shape){channels, (o.in.height - 1) / o.stride + 1,
                                 (o.in.width - 1) / o.stride + 1, random_block(p, channels)};
    if (o.in.block == o.in.channels && between(p, 0, 1) == 0) o.out.block = channels;
    ins = images * image_values(o.in);
    outs = images * image_values(o.out);
    float *x = parity_activations(p, ins, 1.0), *dy = parity_activations(p, outs, 1.0);
    float *y = parity_host(p, outs * sizeof(*y)), *dx = parity_host(p, ins * sizeof(*dx));
    float *on_y = image_room(p, offset, outs), *on_dx = image_room(p, offset, ins);
    const struct backend_ops *ops = p->device->ops;

    image_check_host(p->host->ops->subsample_forward(p->host, &o, images, x, y));
    image_check_host(p->host->ops->subsample_backward(p->host, &o, images, dy, dx));
    parity_ok(p, ops->subsample_forward(p->device, &o, images, image_put(p, offset, x, ins), on_y));
    parity_ok(
        p, ops->subsample_backward(p->device, &o, images, image_put(p, offset, dy, outs), on_dx));
    parity_check_activations(p, seed, "y", on_y, y, outs, 0.0, 0.0);
    parity_check_activations(p, seed, "dx", on_dx, dx, ins, 0.0, 0.0);
}

static void shortcuts_equal_their_twins(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);

    for (size_t i = 0; i < 16; i++) {
        check_subsample(p, seed);
        image_clear(p);
    }
    parity_end(p);
}

PARITY_TEST(layouts_change_nothing_but_places)
PARITY_TEST(means_over_images_equal_their_twins)
PARITY_TEST(shortcuts_equal_their_twins)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(layouts_change_nothing_but_places),
    PARITY_BOTH(means_over_images_equal_their_twins),
    PARITY_BOTH(shortcuts_equal_their_twins),
};

PARITY_MAIN("layout", tests)
