/*
 * Convolution as its definition reads, and the `struct conv` around it: the oracle of the other
 * implementations. Every sum is gathered by the value it belongs to, in float64.
 */
#include "kernels/cpu/internal.h"

#include "base/mem.h"
#include "kernels/cpu/reference/reference.h"

struct conv_plain {
    struct conv base;
    struct conv_options options;
    const float *weight, *bias; /* borrowed from prepare() */
};

/* Where in the input output pixel `at` has tap `tap`; false in the padding. */
static bool input_under(uint32_t at, uint32_t tap, const struct conv_options *o, bool is_row,
                        uint32_t *under)
{
    uint32_t padding = is_row ? o->padding_height : o->padding_width;
    int64_t position = (int64_t)at * o->stride + (int64_t)tap * o->dilation - padding;

    *under = (uint32_t)position;
    return position >= 0 && position < (is_row ? o->in.height : o->in.width);
}

/* Which output pixel has `at` of the input under its tap `tap`; false if none has. */
static bool output_over(uint32_t at, uint32_t tap, const struct conv_options *o, bool is_row,
                        uint32_t *over)
{
    struct image_shape out = conv_out_shape(o);
    uint32_t padding = is_row ? o->padding_height : o->padding_width;
    int64_t position = (int64_t)at + padding - (int64_t)tap * o->dilation;

    *over = (uint32_t)(position / o->stride);
    return position >= 0 && position % o->stride == 0 && *over < (is_row ? out.height : out.width);
}

/* The first weight of an output channel at a pixel. */
static size_t filter_at(const struct conv_options *o, uint32_t channel, size_t pixel)
{
    size_t filters = o->is_local ? pixel * o->out_channels + channel : channel;

    return filters * conv_filter_values(o);
}

/* The first input channel that an output channel reads. */
static uint32_t first_input(const struct conv_options *o, uint32_t channel)
{
    return channel / (o->out_channels / o->groups) * (o->in.channels / o->groups);
}

/* The product of one output value's window: sum over inputs of x * weight. */
static double window_sum(const struct conv_options *o, const float *x, const float *filter,
                         uint32_t first, uint32_t row, uint32_t column)
{
    uint32_t taps = o->kernel_height * o->kernel_width, y, z;
    double sum = 0.0;

    for (uint32_t c = 0; c < o->in.channels / o->groups; c++, filter += taps) {
        const float *channel = x + reference_index(o->in, first + c, 0, 0);
        for (uint32_t tap = 0; tap < taps; tap++) {
            if (!input_under(row, tap / o->kernel_width, o, true, &y)) continue;
            if (!input_under(column, tap % o->kernel_width, o, false, &z)) continue;
            sum +=
                (double)channel[((size_t)y * o->in.width + z) * o->in.block] * (double)filter[tap];
        }
    }
    return sum;
}

void reference_conv_forward(const struct conv_options *o, const float *x, const float *weight,
                            const float *bias, float *y)
{
    struct image_shape out = conv_out_shape(o);
    size_t pixels = (size_t)out.height * out.width;

    for (size_t i = 0; i < o->images * image_values(out); i++) {
        uint32_t c = (uint32_t)(i / pixels % out.channels);
        size_t pixel = i % pixels;
        double sum = window_sum(o, x + i / image_values(out) * image_values(o->in),
                                weight + filter_at(o, c, pixel), first_input(o, c),
                                (uint32_t)(pixel / out.width), (uint32_t)(pixel % out.width));
        if (bias != NULL) sum += (double)bias[o->is_local ? pixel * out.channels + c : c];
        y[i] = (float)(o->with_relu && sum < 0.0 ? 0.0 : sum);
    }
}

/* d(loss)/d(x) at one input value: every output whose window holds it. */
static double input_gradient(const struct conv_options *o, const float *weight, const float *dy,
                             uint32_t c, uint32_t row, uint32_t column)
{
    struct image_shape out = conv_out_shape(o);
    uint32_t each = o->in.channels / o->groups, taps = o->kernel_height * o->kernel_width;
    double sum = 0.0;

    for (uint32_t channel = 0; channel < out.channels; channel++) {
        uint32_t first = first_input(o, channel);
        if (c < first || c - first >= each) continue;
        for (uint32_t tap = 0; tap < taps; tap++) {
            uint32_t y, z;
            if (!output_over(row, tap / o->kernel_width, o, true, &y)) continue;
            if (!output_over(column, tap % o->kernel_width, o, false, &z)) continue;
            size_t pixel = (size_t)y * out.width + z;
            size_t at = filter_at(o, channel, pixel) + (size_t)(c - first) * taps + tap;
            sum += (double)weight[at] * (double)dy[reference_index(out, channel, y, z)];
        }
    }
    return sum;
}

void reference_conv_backward_data(const struct conv_options *o, const float *weight,
                                  const float *dy, float *dx)
{
    struct image_shape plain = o->in;
    size_t pixels = (size_t)o->in.height * o->in.width;

    plain.block = 1;
    for (size_t i = 0; i < o->images * image_values(plain); i++) {
        size_t image = i / image_values(plain), pixel = i % pixels;
        uint32_t c = (uint32_t)(i / pixels % plain.channels);
        uint32_t row = (uint32_t)(pixel / plain.width), column = (uint32_t)(pixel % plain.width);

        dx[image * image_values(plain) + reference_index(o->in, c, row, column)] =
            (float)input_gradient(o, weight, dy + image * image_values(conv_out_shape(o)), c, row,
                                  column);
    }
}

/* d(loss)/d(weight) of filter value `f` from one output pixel of all images. */
static double weight_gradient(const struct conv_options *o, const float *x, const float *dy,
                              uint32_t channel, size_t f, size_t pixel)
{
    struct image_shape out = conv_out_shape(o);
    uint32_t taps = o->kernel_height * o->kernel_width, tap = (uint32_t)(f % taps);
    uint32_t row = (uint32_t)(pixel / out.width), column = (uint32_t)(pixel % out.width), y, z;
    double sum = 0.0;

    if (!input_under(row, tap / o->kernel_width, o, true, &y)) return 0.0;
    if (!input_under(column, tap % o->kernel_width, o, false, &z)) return 0.0;
    for (uint32_t n = 0; n < o->images; n++) {
        uint32_t c = first_input(o, channel) + (uint32_t)(f / taps);
        sum += (double)dy[n * image_values(out) + reference_index(out, channel, row, column)] *
               (double)x[n * image_values(o->in) + reference_index(o->in, c, y, z)];
    }
    return sum;
}

static double bias_gradient(const struct conv_options *o, const float *dy, uint32_t channel,
                            size_t pixel)
{
    struct image_shape out = conv_out_shape(o);
    size_t pixels = (size_t)out.height * out.width;
    double sum = 0.0;

    for (uint32_t n = 0; n < o->images; n++) {
        sum += (double)dy[n * image_values(out) + channel * pixels + pixel];
    }
    return sum;
}

void reference_conv_backward_weights(const struct conv_options *o, const float *x, const float *dy,
                                     bool is_first, float *dweight, float *dbias)
{
    struct image_shape out = conv_out_shape(o);
    size_t pixels = (size_t)out.height * out.width, filter = conv_filter_values(o);

    for (size_t i = 0; i < conv_filters(o); i++) {
        uint32_t channel = (uint32_t)(i % out.channels);
        size_t begin = o->is_local ? i / out.channels : 0;
        size_t end = o->is_local ? begin + 1 : pixels;

        for (size_t f = 0; f < filter; f++) {
            double sum = is_first ? 0.0 : (double)dweight[i * filter + f];
            for (size_t pixel = begin; pixel < end; pixel++) {
                sum += weight_gradient(o, x, dy, channel, f, pixel);
            }
            dweight[i * filter + f] = (float)sum;
        }
        if (dbias == NULL) continue;
        double sum = is_first ? 0.0 : (double)dbias[i];
        for (size_t pixel = begin; pixel < end; pixel++) {
            sum += bias_gradient(o, dy, channel, pixel);
        }
        dbias[i] = (float)sum;
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

static enum rc plain_forward(struct conv *conv, const void *x, void *y)
{
    const struct conv_plain *plain = (const struct conv_plain *)conv;

    reference_conv_forward(&plain->options, x, plain->weight, plain->bias, y);
    return RC_OK;
}

static enum rc plain_backward_data(struct conv *conv, const void *dy, void *dx)
{
    const struct conv_plain *plain = (const struct conv_plain *)conv;

    reference_conv_backward_data(&plain->options, plain->weight, dy, dx);
    return RC_OK;
}

static enum rc plain_backward_weights(struct conv *conv, const void *x, const void *dy,
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
    plain->base.out = conv_out_shape(options);
    *conv = &plain->base;
    return RC_OK;
}
