/*
 * The mean over all pixels, and the parameter-free shortcut of residual nets: every stride-th
 * pixel, more channels. Means accumulate in float64, so that a large image loses nothing.
 */
#include "kernels/cpu/image/image_tile.h"

#include "base/check.h"
#include "kernels/cpu/internal.h"
#include "kernels/cpu/reference/reference.h"

/* Channels [first, first + lanes) side by side, `step` values from pixel to pixel. */
TILE_INLINE void lanes_mean(const float *x, size_t pixels, size_t step, uint32_t lanes, float *y)
{
    double sums[TILE] = {0.0};

    for (size_t i = 0; i < pixels; i++) {
        for (uint32_t l = 0; l < lanes; l++) {
            sums[l] += (double)x[i * step + l];
        }
    }
    for (uint32_t l = 0; l < lanes; l++) {
        y[l] = (float)(sums[l] / (double)pixels);
    }
}

/* One plain channel, in TILE interleaved sums: a single one would wait for itself. */
TILE_INLINE void plain_mean(const float *x, size_t pixels, float *y)
{
    double sums[TILE] = {0.0}, sum = 0.0;
    size_t whole = pixels / TILE * TILE;

    for (size_t i = 0; i < whole; i += TILE) {
        for (uint32_t l = 0; l < TILE; l++) {
            sums[l] += (double)x[i + l];
        }
    }
    for (size_t i = whole; i < pixels; i++) {
        sums[i - whole] += (double)x[i];
    }
    for (uint32_t l = 0; l < TILE; l++) {
        sum += sums[l];
    }
    *y = (float)(sum / (double)pixels);
}

FOR_EACH_CPU(static, void, image_mean, (struct image_shape in, const float *x, float *y),
             (in, x, y))
{
    size_t pixels = (size_t)in.height * in.width;
    uint32_t lanes;

    for (uint32_t c = 0; c < in.channels; c += lanes) {
        const float *from = x + (size_t)(c / in.block) * pixels * in.block + c % in.block;
        lanes = in.block - c % in.block < TILE ? in.block - c % in.block : TILE;
        if (in.block == 1) {
            plain_mean(from, pixels, y + c);
        } else if (lanes == TILE) {
            lanes_mean(from, pixels, in.block, TILE, y + c);
        } else {
            lanes_mean(from, pixels, in.block, lanes, y + c);
        }
    }
}

FOR_EACH_CPU(static, void, image_spread, (struct image_shape in, const float *dy, float *dx),
             (in, dy, dx))
{
    size_t pixels = (size_t)in.height * in.width;

    for (uint32_t c = 0; c < in.channels; c += in.block) {
        float *to = dx + c * pixels;
        for (size_t i = 0; i < pixels * in.block; i += in.block) {
            for (uint32_t l = 0; l < in.block; l++) {
                to[i + l] = dy[c + l] / (float)pixels;
            }
        }
    }
}

enum rc cpu_global_average_forward(struct backend *backend, struct image_shape in, uint32_t images,
                                   const void *x, void *y)
{
    CHECK(in.channels % in.block == 0 && image_values(in) > 0);
    if (cpu_of(backend)->options.is_reference) {
        reference_global_average_forward(in, images, x, y);
        return RC_OK;
    }
    for (uint32_t n = 0; n < images; n++) {
        image_mean(in, (const float *)x + n * image_values(in),
                   (float *)y + (size_t)n * in.channels);
    }
    return RC_OK;
}

enum rc cpu_global_average_backward(struct backend *backend, struct image_shape in, uint32_t images,
                                    const void *dy, void *dx)
{
    CHECK(in.channels % in.block == 0 && image_values(in) > 0);
    if (cpu_of(backend)->options.is_reference) {
        reference_global_average_backward(in, images, dy, dx);
        return RC_OK;
    }
    for (uint32_t n = 0; n < images; n++) {
        image_spread(in, (const float *)dy + (size_t)n * in.channels,
                     (float *)dx + n * image_values(in));
    }
    return RC_OK;
}

/* The pixels that input and output share, in the order of the input's channels. */
static struct image_shape shared_of(const struct subsample *o)
{
    return (struct image_shape){o->in.channels, o->out.height, o->out.width, o->in.block};
}

static void subsample_check(const struct subsample *o)
{
    CHECK(o->stride > 0 && o->out.channels >= o->in.channels && image_values(o->out) > 0);
    CHECK(o->out.height == (o->in.height - 1) / o->stride + 1);
    CHECK(o->out.width == (o->in.width - 1) / o->stride + 1);
    CHECK(o->in.channels % o->in.block == 0 && o->out.channels % o->out.block == 0);
}

FOR_EACH_CPU(static, void, image_copy,
             (struct image_shape shape, const struct tile_side *from, const struct tile_side *to,
              const float *x, float *y),
             (shape, from, to, x, y))
{
    struct image_tile tile = {0};

    while (image_tile_next(&tile, shape)) {
        float values[TILE][TILE];
        image_tile_load(&tile, from, x, values);
        image_tile_store(&tile, to, values, y);
    }
}

enum rc cpu_subsample_forward(struct backend *backend, const struct subsample *options,
                              uint32_t images, const void *x, void *y)
{
    struct tile_side in = {options->in, options->stride}, out = {options->out, 1};
    size_t ins = image_values(options->in), outs = image_values(options->out);

    subsample_check(options);
    if (cpu_of(backend)->options.is_reference) {
        reference_subsample_forward(options, images, x, y);
        return RC_OK;
    }
    if (options->out.channels > options->in.channels) memset(y, 0, images * outs * sizeof(float));
    for (uint32_t n = 0; n < images; n++) {
        image_copy(shared_of(options), &in, &out, (const float *)x + n * ins,
                   (float *)y + n * outs);
    }
    return RC_OK;
}

enum rc cpu_subsample_backward(struct backend *backend, const struct subsample *options,
                               uint32_t images, const void *dy, void *dx)
{
    struct tile_side in = {options->in, options->stride}, out = {options->out, 1};
    size_t ins = image_values(options->in), outs = image_values(options->out);

    subsample_check(options);
    if (cpu_of(backend)->options.is_reference) {
        reference_subsample_backward(options, images, dy, dx);
        return RC_OK;
    }
    if (options->stride > 1) memset(dx, 0, images * ins * sizeof(float));
    for (uint32_t n = 0; n < images; n++) {
        image_copy(shared_of(options), &out, &in, (const float *)dy + n * outs,
                   (float *)dx + n * ins);
    }
    return RC_OK;
}
