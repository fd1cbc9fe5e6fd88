/*
 * Convolution as its definition reads, and the `struct conv` around it: the oracle of conv_im2col
 * and conv_onednn.
 */
#include "kernels/cpu/internal.h"

#include "base/mem.h"
#include "kernels/cpu/reference.h"

#include <string.h>

struct conv_plain {
    struct conv base;
    struct conv_options options;
    const float *weight, *bias; /* borrowed from prepare() */
};

/* The product of one output value's window: sum over inputs of x * weight. */
static double window_sum(const struct conv_options *o, const float *x, const float *filter,
                         uint32_t row, uint32_t column)
{
    double sum = 0.0;

    for (uint32_t c = 0; c < o->in.channels; c++) {
        for (uint32_t k = 0; k < o->kernel_height * o->kernel_height; k++) {
            int64_t y = (int64_t)row + k / o->kernel_height - o->padding_height;
            int64_t z = (int64_t)column + k % o->kernel_height - o->padding_height;
            if (y < 0 || z < 0 || y >= o->in.height || z >= o->in.width) continue;
            sum += (double)x[reference_index(o->in, c, (uint32_t)y, (uint32_t)z)] *
                   (double)filter[c * o->kernel_height * o->kernel_height + k];
        }
    }
    return sum;
}

static uint32_t out_extent(uint32_t in, const struct conv_options *o)
{
    return in + 2 * o->padding_height - o->kernel_height + 1;
}

void reference_conv_forward(const struct conv_options *o, const float *x, const float *weight,
                            const float *bias, float *y)
{
    uint32_t height = out_extent(o->in.height, o), width = out_extent(o->in.width, o);
    size_t in = image_values(o->in), filter = (size_t)o->in.channels * o->kernel_height * o->kernel_height;

    for (uint32_t n = 0; n < o->images; n++) {
        for (uint32_t c = 0; c < o->out_channels; c++) {
            for (uint32_t i = 0; i < height * width; i++) {
                double sum = (double)bias[c] +
                             window_sum(o, x + n * in, weight + c * filter, i / width, i % width);
                if (o->with_relu && sum < 0.0) sum = 0.0;
                y[((size_t)n * o->out_channels + c) * height * width + i] = (float)sum;
            }
        }
    }
}

/* d(loss)/d(x) at one input value: every output whose window holds it. */
static double input_gradient(const struct conv_options *o, const float *weight, const float *dy,
                             uint32_t c, uint32_t row, uint32_t column)
{
    uint32_t height = out_extent(o->in.height, o), width = out_extent(o->in.width, o);
    double sum = 0.0;

    for (uint32_t out = 0; out < o->out_channels; out++) {
        const float *filter = weight + ((size_t)out * o->in.channels + c) * o->kernel_height * o->kernel_height;
        for (uint32_t k = 0; k < o->kernel_height * o->kernel_height; k++) {
            int64_t y = (int64_t)row + o->padding_height - k / o->kernel_height;
            int64_t z = (int64_t)column + o->padding_height - k % o->kernel_height;
            if (y < 0 || z < 0 || y >= height || z >= width) continue;
            sum += (double)filter[k] *
                   (double)dy[((size_t)out * height + (size_t)y) * width + (size_t)z];
        }
    }
    return sum;
}

void reference_conv_backward_data(const struct conv_options *o, const float *weight,
                                  const float *dy, float *dx)
{
    size_t in = image_values(o->in);
    size_t out = (size_t)o->out_channels * out_extent(o->in.height, o) * out_extent(o->in.width, o);

    for (uint32_t n = 0; n < o->images; n++) {
        for (uint32_t c = 0; c < o->in.channels; c++) {
            for (uint32_t i = 0; i < o->in.height * o->in.width; i++) {
                uint32_t row = i / o->in.width, column = i % o->in.width;
                dx[n * in + reference_index(o->in, c, row, column)] =
                    (float)input_gradient(o, weight, dy + n * out, c, row, column);
            }
        }
    }
}

/* d(loss)/d(weight) of one filter value. */
static double weight_gradient(const struct conv_options *o, const float *x, const float *dy,
                              uint32_t c, uint32_t k)
{
    uint32_t height = out_extent(o->in.height, o), width = out_extent(o->in.width, o);
    double sum = 0.0;

    for (uint32_t i = 0; i < height * width; i++) {
        int64_t y = (int64_t)(i / width) + k / o->kernel_height - o->padding_height;
        int64_t z = (int64_t)(i % width) + k % o->kernel_height - o->padding_height;
        if (y < 0 || z < 0 || y >= o->in.height || z >= o->in.width) continue;
        sum += (double)dy[i] * (double)x[reference_index(o->in, c, (uint32_t)y, (uint32_t)z)];
    }
    return sum;
}

void reference_conv_backward_weights(const struct conv_options *o, const float *x, const float *dy,
                                     bool is_first, float *dweight, float *dbias)
{
    size_t in = image_values(o->in), taps = (size_t)o->kernel_height * o->kernel_height;
    size_t pixels = (size_t)out_extent(o->in.height, o) * out_extent(o->in.width, o);

    for (uint32_t out = 0; out < o->out_channels; out++) {
        const float *planes = dy + out * pixels;
        double sum = is_first ? 0.0 : (double)dbias[out];

        for (size_t i = 0; i < o->images * pixels; i++) {
            sum += (double)planes[i / pixels * o->out_channels * pixels + i % pixels];
        }
        dbias[out] = (float)sum;
        for (size_t f = 0; f < o->in.channels * taps; f++) {
            float *value = &dweight[out * o->in.channels * taps + f];
            sum = is_first ? 0.0 : (double)*value;
            for (uint32_t n = 0; n < o->images; n++) {
                sum += weight_gradient(o, x + n * in, planes + n * o->out_channels * pixels,
                                       (uint32_t)(f / taps), (uint32_t)(f % taps));
            }
            *value = (float)sum;
        }
    }
}

static void plain_destroy(struct conv *conv)
{
    mem_free(conv);
}

static enum rc plain_prepare(struct conv *conv, const float *weight, const float *bias)
{
    struct conv_plain *plain = (struct conv_plain *)conv;

    plain->weight = weight;
    plain->bias = bias;
    return RC_OK;
}

static enum rc plain_forward(struct conv *conv, const float *x, float *y)
{
    const struct conv_plain *plain = (const struct conv_plain *)conv;

    reference_conv_forward(&plain->options, x, plain->weight, plain->bias, y);
    return RC_OK;
}

static enum rc plain_backward_data(struct conv *conv, const float *dy, float *dx)
{
    const struct conv_plain *plain = (const struct conv_plain *)conv;

    reference_conv_backward_data(&plain->options, plain->weight, dy, dx);
    return RC_OK;
}

static enum rc plain_backward_weights(struct conv *conv, const float *x, const float *dy,
                                      bool is_first, float *dweight, float *dbias)
{
    const struct conv_plain *plain = (const struct conv_plain *)conv;

    reference_conv_backward_weights(&plain->options, x, dy, is_first, dweight, dbias);
    return RC_OK;
}

static const struct conv_ops plain_ops = {
    .name = "reference",
    .destroy = plain_destroy,
    .prepare = plain_prepare,
    .forward = plain_forward,
    .backward_data = plain_backward_data,
    .backward_weights = plain_backward_weights,
};

enum rc conv_reference_create(struct cpu_backend *backend, const struct conv_options *options,
                              struct conv **conv)
{
    struct conv_plain *plain = mem_alloc(sizeof(*plain));

    (void)backend;
    if (plain == NULL) return RC_NOMEM;
    plain->options = *options;
    plain->base.ops = &plain_ops;
    plain->base.out = (struct image_shape){.channels = options->out_channels,
                                           .height = out_extent(options->in.height, options),
                                           .width = out_extent(options->in.width, options),
                                           .block = 1};
    *conv = &plain->base;
    return RC_OK;
}
