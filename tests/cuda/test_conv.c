/*
 * Convolutions and locally connected layers. Limits: float32 2e-5, as the library may transform its
 * operands (Winograd, FFT), which costs a digit. With bfloat16 weights, biases, outputs and
 * gradients of weights are rounded, each an error of 1.1e-3 in norm, and sums of few values whose
 * signs differ may multiply it: 1.5e-2.
 */
#include "tests/cuda/parity.h"

#include "base/check.h"

#define LIMIT      2e-5
#define LIMIT_BF16 1.5e-2

static uint32_t between(struct rng *rng, uint32_t low, uint32_t high)
{
    return low + (uint32_t)rng_below(rng, high - low + 1);
}

static bool is_one_in(struct rng *rng, uint64_t n)
{
    return rng_below(rng, n) == 0;
}

static uint32_t some_block(struct rng *rng, uint32_t channels)
{
    return is_one_in(rng, 2) ? 1 : channels;
}

/* A shape of any kind that has an output. */
static struct conv_options some_options(struct rng *rng, bool is_local)
{
    struct conv_options o;

    do {
        uint32_t groups = is_local || !is_one_in(rng, 3) ? 1 : between(rng, 2, 4);
        uint32_t each = groups > 1 && is_one_in(rng, 2) ? 1 : between(rng, 1, 6);

        o = (struct conv_options){
            .in = {.channels = groups * each,
                   .height = between(rng, 1, 11),
                   .width = between(rng, 1, 11)},
            .out_channels = groups * between(rng, 1, 5),
            .kernel_height = between(rng, 1, 4),
            .kernel_width = between(rng, 1, 4),
            .padding_height = between(rng, 0, 2),
            .padding_width = between(rng, 0, 2),
            .stride = between(rng, 1, 3),
            .dilation = between(rng, 1, 2),
            .groups = groups,
            .is_local = is_local,
            .images = between(rng, 1, 5),
            .with_bias = !is_one_in(rng, 3),
            .with_relu = is_one_in(rng, 2),
            .with_gradients = true,
            .with_input_gradient = true,
        };
        o.in.block = some_block(rng, o.in.channels);
    } while (image_values(conv_out_shape(&o)) == 0);
    return o;
}

/* Where value `i` of plain images is in images of a block. */
static size_t place_of(struct image_shape shape, size_t i)
{
    size_t pixels = (size_t)shape.height * shape.width, image = i / image_values(shape);
    size_t channel = i / pixels % shape.channels, pixel = i % pixels;

    return image * image_values(shape) + (channel / shape.block * pixels + pixel) * shape.block +
           channel % shape.block;
}

/* Plain images as those of a block, or (`is_back`) the other way round. */
static float *in_blocks(struct parity *p, struct image_shape shape, uint32_t images,
                        const float *values, bool is_back)
{
    size_t n = images * image_values(shape);
    float *to = parity_host(p, n * sizeof(float));

    for (size_t i = 0; i < n; i++) {
        size_t at = place_of(shape, i);
        to[is_back ? i : at] = values[is_back ? at : i];
    }
    return to;
}

static float *put_images(struct parity *p, struct image_shape shape, uint32_t images,
                         const float *plain)
{
    return parity_put_activations(p, in_blocks(p, shape, images, plain, false),
                                  images * image_values(shape));
}

static void check_images(struct parity *p, uint64_t seed, const char *what,
                         struct image_shape shape, uint32_t images, const float *there,
                         const float *wanted)
{
    size_t n = images * image_values(shape);
    const float *got = in_blocks(p, shape, images, parity_get_activations(p, there, n), true);

    parity_compare(p, seed, what, got, wanted, n, p->is_bf16 ? LIMIT_BF16 : LIMIT);
}

/* A layer on both sides; the twin has plain images. */
struct scene {
    struct conv_options options;
    struct conv *device, *host;
    size_t shift; /* of parameters in their plane */
    float *weight, *bias;
    float *x, *x_there;
};

static void scene_create(struct parity *p, struct scene *s)
{
    struct conv_options plain = s->options;
    const struct conv_options *o = &s->options;
    size_t weights = conv_weight_values(o), filters = conv_filters(o);
    float *bias = NULL;

    plain.in.block = 1;
    parity_ok(p, p->device->ops->conv_create(p->device, o, &s->device));
    parity_ok(p, p->host->ops->conv_create(p->host, &plain, &s->host));
    s->weight = parity_values(p, weights + s->shift, 1.0 / sqrt((double)conv_filter_values(o)));
    s->bias = o->with_bias ? parity_values(p, filters + s->shift, 0.5) : NULL;
    if (o->with_bias) bias = parity_put_values(p, s->bias, filters + s->shift) + s->shift;
    parity_ok(p,
              s->device->ops->prepare(
                  s->device, parity_put_values(p, s->weight, weights + s->shift) + s->shift, bias));
    parity_ok(p, s->host->ops->prepare(s->host, s->weight + s->shift,
                                       o->with_bias ? s->bias + s->shift : NULL));
    s->x = parity_activations(p, o->images * image_values(o->in), 1.0);
    s->x_there = put_images(p, o->in, o->images, s->x);
}

static void scene_destroy(struct scene *s)
{
    s->device->ops->destroy(s->device);
    s->host->ops->destroy(s->host);
}

static void check_forward(struct parity *p, uint64_t seed, struct scene *s)
{
    size_t n = s->options.images * image_values(s->host->out);
    float *y = parity_host(p, n * sizeof(float)), *y_there = parity_room(p, n);

    parity_ok(p, s->device->ops->forward(s->device, s->x_there, y_there));
    parity_ok(p, s->host->ops->forward(s->host, s->x, y));
    check_images(p, seed, "y", s->device->out, s->options.images, y_there, y);
}

static void check_backward(struct parity *p, uint64_t seed, struct scene *s, bool is_first)
{
    const struct conv_options *o = &s->options;
    size_t weights = conv_weight_values(o) + s->shift, filters = conv_filters(o);
    float *dweight = parity_values(p, weights, 1.0), *dbias = parity_values(p, filters, 1.0);
    float *dy = parity_activations(p, o->images * image_values(s->host->out), 1.0);
    float *dx = parity_host(p, o->images * image_values(o->in) * sizeof(float));
    float *dy_there = put_images(p, s->device->out, o->images, dy);
    float *dx_there = parity_room(p, o->images * image_values(o->in));
    float *dweight_there = is_first ? parity_block(p, weights * sizeof(float))
                                    : parity_put_values(p, dweight, weights);
    float *dbias_there =
        is_first ? parity_block(p, filters * sizeof(float)) : parity_put_values(p, dbias, filters);

    parity_ok(p, s->device->ops->backward_weights(s->device, s->x_there, dy_there, is_first,
                                                  dweight_there + s->shift,
                                                  o->with_bias ? dbias_there : NULL));
    parity_ok(p, s->host->ops->backward_weights(s->host, s->x, dy, is_first, dweight + s->shift,
                                                o->with_bias ? dbias : NULL));
    parity_ok(p, s->device->ops->backward_data(s->device, dy_there, dx_there));
    parity_ok(p, s->host->ops->backward_data(s->host, dy, dx));
    parity_check_values(p, seed, "dweight", dweight_there + s->shift, dweight + s->shift,
                        weights - s->shift, LIMIT, LIMIT_BF16);
    if (o->with_bias) {
        parity_check_values(p, seed, "dbias", dbias_there, dbias, filters, LIMIT, LIMIT_BF16);
    }
    check_images(p, seed, "dx", o->in, o->images, dx_there, dx);
}

static void check_layer(struct parity *p, uint64_t seed, const struct conv_options *options)
{
    struct scene s = {.options = *options, .shift = between(&p->rng, 0, 1) * 3};

    scene_create(p, &s);
    check_forward(p, seed, &s);
    check_backward(p, seed, &s, true);
    check_backward(p, seed, &s, false);
    scene_destroy(&s);
}

/* Convolutions of all shapes, layouts and groups compute what the twin does. */
static void convolutions_are_as_their_twins(bool is_bf16, uint64_t seed)
{
    for (uint64_t i = 0; i < 12; i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        struct conv_options options = some_options(&p->rng, false);

        check_layer(p, seed, &options);
        parity_end(p);
    }
}
PARITY_TEST(convolutions_are_as_their_twins)

/* And locally connected layers. */
static void local_layers_are_as_their_twins(bool is_bf16, uint64_t seed)
{
    for (uint64_t i = 0; i < 4; i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        struct conv_options options = some_options(&p->rng, true);

        check_layer(p, seed, &options);
        parity_end(p);
    }
}
PARITY_TEST(local_layers_are_as_their_twins)

/* The shapes that nets are made of: a first layer of three channels, 3 x 3, 1 x 1 with a stride,
 * depthwise, dilated, one pixel. */
static const struct conv_options common[] = {
    {.in = {3, 17, 15, 1},
     .out_channels = 8,
     .kernel_height = 5,
     .kernel_width = 5,
     .padding_height = 2,
     .padding_width = 2,
     .stride = 2,
     .dilation = 1,
     .groups = 1},
    {.in = {16, 9, 9, 16},
     .out_channels = 32,
     .kernel_height = 3,
     .kernel_width = 3,
     .padding_height = 1,
     .padding_width = 1,
     .stride = 1,
     .dilation = 1,
     .groups = 1},
    {.in = {32, 8, 8, 32},
     .out_channels = 16,
     .kernel_height = 1,
     .kernel_width = 1,
     .stride = 2,
     .dilation = 1,
     .groups = 1},
    {.in = {16, 10, 7, 1},
     .out_channels = 16,
     .kernel_height = 3,
     .kernel_width = 3,
     .padding_height = 1,
     .padding_width = 1,
     .stride = 1,
     .dilation = 1,
     .groups = 16},
    {.in = {8, 12, 12, 8},
     .out_channels = 8,
     .kernel_height = 3,
     .kernel_width = 3,
     .padding_height = 2,
     .padding_width = 2,
     .stride = 1,
     .dilation = 2,
     .groups = 2},
    {.in = {64, 1, 1, 1},
     .out_channels = 33,
     .kernel_height = 1,
     .kernel_width = 1,
     .stride = 1,
     .dilation = 1,
     .groups = 1},
};

static void common_layers_are_as_their_twins(bool is_bf16, uint64_t seed)
{
    for (size_t i = 0; i < ARRAY_COUNT(common); i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        struct conv_options options = common[i];

        options.images = 6;
        options.with_bias = options.with_relu = seed % 2 == 1;
        options.with_gradients = options.with_input_gradient = true;
        check_layer(p, seed, &options);
        parity_end(p);
    }
}
PARITY_TEST(common_layers_are_as_their_twins)

/* Layers without gradients need none of their memory, and compute the same. */
static void layers_for_inference_are_enough(bool is_bf16, uint64_t seed)
{
    for (uint64_t i = 0; i < 3; i++) {
        struct parity *p = parity_begin(is_bf16, 100 * seed + i);
        struct scene s = {.options = some_options(&p->rng, i == 2)};

        s.options.with_gradients = s.options.with_input_gradient = false;
        scene_create(p, &s);
        check_forward(p, seed, &s);
        scene_destroy(&s);
        parity_end(p);
    }
}
PARITY_TEST(layers_for_inference_are_enough)

/* Recorded passes, run again, give the bits that direct calls give. */
static void recordings_repeat_the_calls(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    const struct backend_ops *ops = p->device->ops;
    struct scene s = {.options = some_options(&p->rng, seed == 2)};
    size_t weights, x_count, y_count;
    float *y, *dy, *dx, *dweight, *dbias, *direct;
    struct recording *recording = NULL;

    scene_create(p, &s);
    weights = conv_weight_values(&s.options);
    x_count = s.options.images * image_values(s.options.in);
    y_count = s.options.images * image_values(s.device->out);
    y = parity_room(p, y_count);
    dy = parity_put_activations(p, parity_activations(p, y_count, 1.0), y_count);
    dx = parity_room(p, x_count);
    dweight = parity_block(p, weights * sizeof(float));
    dbias = parity_block(p, conv_filters(&s.options) * sizeof(float));
    if (!s.options.with_bias) dbias = NULL;
    for (int run = 0; run < 2; run++) {
        if (run == 1) parity_ok(p, ops->record_begin(p->device));
        parity_ok(p, s.device->ops->forward(s.device, s.x_there, y));
        parity_ok(p,
                  s.device->ops->backward_weights(s.device, s.x_there, dy, true, dweight, dbias));
        parity_ok(p, s.device->ops->backward_data(s.device, dy, dx));
        if (run == 0) {
            direct = parity_get_activations(p, dx, x_count);
            parity_ok(p, ops->zero(p->device, dx, x_count * p->device->value_bytes));
        }
    }
    parity_ok(p, ops->record_end(p->device, &recording));
    parity_ok(p, ops->replay(p->device, recording));
    assert_memory_equal(direct, parity_get_activations(p, dx, x_count), x_count * sizeof(float));
    p->checks++;
    ops->recording_destroy(p->device, recording);
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(recordings_repeat_the_calls)

/* What is no number comes out as such: the library's relu makes 0 of it. */
static void no_nan_is_hidden(bool is_bf16, uint64_t seed)
{
    struct parity *p = parity_begin(is_bf16, seed);
    struct scene s = {.options = {.in = {.channels = 8, .height = 5, .width = 5, .block = 1},
                                  .out_channels = 8,
                                  .kernel_height = 1,
                                  .kernel_width = 1,
                                  .stride = 1,
                                  .dilation = 1,
                                  .groups = 1,
                                  .images = 2,
                                  .with_bias = seed % 2 == 0,
                                  .with_relu = true}};
    size_t n = 2 * 8 * 25;
    float *x, *y = parity_room(p, n), *got;

    scene_create(p, &s);
    x = parity_activations(p, n, 1.0);
    x[7] = NAN;
    parity_ok(p, s.device->ops->forward(s.device, put_images(p, s.options.in, 2, x), y));
    got = in_blocks(p, s.device->out, 2, parity_get_activations(p, y, n), true);
    for (size_t i = 0; i < n; i++) {
        bool is_of_it = i < 8 * 25 && i % 25 == 7;
        check_seed(seed, isnan(got[i]) == is_of_it);
    }
    p->checks++;
    scene_destroy(&s);
    parity_end(p);
}
PARITY_TEST(no_nan_is_hidden)

static const struct CMUnitTest tests[] = {
    PARITY_BOTH(convolutions_are_as_their_twins),  PARITY_BOTH(local_layers_are_as_their_twins),
    PARITY_BOTH(common_layers_are_as_their_twins), PARITY_BOTH(layers_for_inference_are_enough),
    PARITY_BOTH(recordings_repeat_the_calls),      PARITY_BOTH(no_nan_is_hidden),
};

PARITY_MAIN("conv", tests)
