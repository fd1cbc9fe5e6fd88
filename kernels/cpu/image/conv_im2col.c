/*
 * Convolution as a matrix product: the windows of one image become the columns of a matrix
 * (Chellapilla, Puri, Simard 2006), in scratch memory shared by all layers; each group multiplies
 * its own rows. The way where oneDNN is absent or has no fast form. Outputs are plain; inputs may
 * have any block.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

struct conv_columns {
    struct conv base;
    struct cpu_backend *backend;
    struct conv_options options;
    const float *weight, *bias; /* borrowed from prepare() */
};

static struct conv_columns *columns_of(struct conv *conv)
{
    return (struct conv_columns *)conv;
}

/* Rows of the matrix: a group's follow those of the group before it. */
static uint32_t rows_of(const struct conv_options *o)
{
    return o->in.channels * o->kernel_height * o->kernel_width;
}

/* For one row of the matrix and one output row: which output columns [first, last) see the input,
 * and where the first of them reads. False: the whole row is padding. */
struct span {
    uint32_t first, last;
    size_t at; /* of the input value under `first` */
};

static bool span_of(const struct conv_columns *conv, uint32_t f, uint32_t row, struct span *span)
{
    const struct conv_options *o = &conv->options;
    struct image_shape in = o->in;
    uint32_t taps = o->kernel_height * o->kernel_width, channel = f / taps, tap = f % taps;
    int64_t y = (int64_t)row * o->stride + (int64_t)(tap / o->kernel_width) * o->dilation -
                o->padding_height;
    int64_t shift = (int64_t)(tap % o->kernel_width) * o->dilation - o->padding_width;
    int64_t last = (in.width - shift + o->stride - 1) / o->stride; /* shift: input - output */

    if (y < 0 || y >= in.height || shift >= in.width) return false;
    if (last > conv->base.out.width) last = conv->base.out.width;
    span->first = shift < 0 ? (uint32_t)((-shift + o->stride - 1) / o->stride) : 0;
    if (last <= (int64_t)span->first) return false;
    span->last = (uint32_t)last;
    span->at = ((size_t)(channel / in.block) * in.height + (size_t)y) * in.width * in.block +
               (size_t)((int64_t)span->first * o->stride + shift) * in.block + channel % in.block;
    return true;
}

/* Values `step` apart become neighbours. Plain images have them so already. */
static inline void pick(const float *from, size_t step, uint32_t count, float *to)
{
    if (step == 1) {
        memcpy(to, from, count * sizeof(*to));
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        to[i] = from[i * step];
    }
}

/* The transpose of pick(). */
static inline void give(const float *from, size_t step, uint32_t count, float *to)
{
    if (step == 1) {
        for (uint32_t i = 0; i < count; i++) {
            to[i] += from[i];
        }
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        to[i * step] += from[i];
    }
}

/* columns[channel, tap][pixel] = the input under that tap, 0 in the padding. */
FOR_EACH_CPU(static, void, gather,
             (const struct conv_columns *conv, const float *image, float *columns),
             (conv, image, columns))
{
    const struct conv_options *o = &conv->options;
    struct image_shape out = conv->base.out;
    size_t step = (size_t)o->stride * o->in.block;

    for (uint32_t f = 0; f < rows_of(o); f++) {
        for (uint32_t row = 0; row < out.height; row++) {
            float *to = columns + ((size_t)f * out.height + row) * out.width;
            struct span span = {0};
            if (!span_of(conv, f, row, &span)) {
                memset(to, 0, out.width * sizeof(*to));
                continue;
            }
            memset(to, 0, span.first * sizeof(*to));
            pick(image + span.at, step, span.last - span.first, to + span.first);
            memset(to + span.last, 0, (out.width - span.last) * sizeof(*to));
        }
    }
}

/* The transpose of gather(): every input value collects from the windows that saw it. */
FOR_EACH_CPU(static, void, scatter,
             (const struct conv_columns *conv, const float *columns, float *image),
             (conv, columns, image))
{
    const struct conv_options *o = &conv->options;
    struct image_shape out = conv->base.out;
    size_t step = (size_t)o->stride * o->in.block;

    memset(image, 0, image_values(o->in) * sizeof(*image));
    for (uint32_t f = 0; f < rows_of(o); f++) {
        for (uint32_t row = 0; row < out.height; row++) {
            const float *from = columns + ((size_t)f * out.height + row) * out.width;
            struct span span = {0};
            if (!span_of(conv, f, row, &span)) continue;
            give(from + span.first, step, span.last - span.first, image + span.at);
        }
    }
}

static void columns_destroy(struct conv *conv)
{
    mem_free(conv);
}

static enum rc columns_prepare(struct conv *conv, const float *weight, const float *bias)
{
    columns_of(conv)->weight = weight;
    columns_of(conv)->bias = bias;
    return RC_OK;
}

FOR_EACH_CPU(static, void, bias_relu, (float *plane, size_t pixels, float bias, bool with_relu),
             (plane, pixels, bias, with_relu))
{
    for (size_t i = 0; i < pixels; i++) {
        float value = plane[i] + bias;
        plane[i] = with_relu && value < 0.0F ? 0.0F : value;
    }
}

/* The operands of one group's products: weights [filters][filter], columns [filter][pixels],
 * outputs [filters][pixels]. */
struct group {
    size_t filters, filter, pixels;
    const float *weight;
    float *columns;
    size_t at; /* of its first output value in an image, and of its first filter */
    size_t first;
};

static struct group group_of(const struct conv_columns *conv, uint32_t index)
{
    const struct conv_options *o = &conv->options;
    struct group g = {
        .filters = o->out_channels / o->groups,
        .filter = conv_filter_values(o),
        .pixels = (size_t)conv->base.out.height * conv->base.out.width,
    };

    g.first = index * g.filters;
    g.at = g.first * g.pixels;
    g.weight = conv->weight + g.first * g.filter;
    g.columns = conv->backend->scratch + index * g.filter * g.pixels;
    return g;
}

static enum rc columns_forward(struct conv *conv, const void *x, void *y)
{
    struct conv_columns *self = columns_of(conv);
    const struct conv_options *o = &self->options;
    size_t pixels = (size_t)conv->out.height * conv->out.width;

    for (uint32_t n = 0; n < o->images; n++) {
        float *image = (float *)y + n * image_values(conv->out);
        gather(self, (const float *)x + n * image_values(o->in), self->backend->scratch);
        for (uint32_t i = 0; i < o->groups; i++) {
            struct group g = group_of(self, i);
            struct gemm product = {
                .rows = g.filters,
                .columns = g.pixels,
                .inner = g.filter,
                .alpha = 1.0F,
                .a = g.weight,
                .a_stride = g.filter,
                .b = g.columns,
                .b_stride = g.pixels,
                .c = image + g.at,
                .c_stride = g.pixels,
            };
            enum rc rc = cpu_gemm(&self->backend->base, &product);
            if (rc != RC_OK) return rc;
        }
        for (uint32_t c = 0; c < o->out_channels && (o->with_bias || o->with_relu); c++) {
            bias_relu(image + c * pixels, pixels, o->with_bias ? self->bias[c] : 0.0F,
                      o->with_relu);
        }
    }
    return RC_OK;
}

static enum rc columns_backward_data(struct conv *conv, const void *dy, void *dx)
{
    struct conv_columns *self = columns_of(conv);
    const struct conv_options *o = &self->options;

    for (uint32_t n = 0; n < o->images; n++) {
        for (uint32_t i = 0; i < o->groups; i++) {
            struct group g = group_of(self, i);
            struct gemm product = {
                .is_a_transposed = true,
                .rows = g.filter,
                .columns = g.pixels,
                .inner = g.filters,
                .alpha = 1.0F,
                .a = g.weight,
                .a_stride = g.filter,
                .b = (const float *)dy + n * image_values(conv->out) + g.at,
                .b_stride = g.pixels,
                .c = g.columns,
                .c_stride = g.pixels,
            };
            enum rc rc = cpu_gemm(&self->backend->base, &product);
            if (rc != RC_OK) return rc;
        }
        scatter(self, self->backend->scratch, (float *)dx + n * image_values(o->in));
    }
    return RC_OK;
}

static void bias_gradient(const struct conv_columns *self, const float *image, bool is_fresh,
                          float *dbias)
{
    size_t pixels = (size_t)self->base.out.height * self->base.out.width;

    for (uint32_t c = 0; c < self->options.out_channels; c++) {
        double sum = is_fresh ? 0.0 : (double)dbias[c];
        for (size_t i = 0; i < pixels; i++) {
            sum += (double)image[c * pixels + i];
        }
        dbias[c] = (float)sum;
    }
}

static enum rc columns_backward_weights(struct conv *conv, const void *x, const void *dy,
                                        bool is_first, float *dweight, float *dbias)
{
    struct conv_columns *self = columns_of(conv);
    const struct conv_options *o = &self->options;

    for (uint32_t n = 0; n < o->images; n++) {
        const float *image = (const float *)dy + n * image_values(conv->out);
        bool is_fresh = is_first && n == 0;
        gather(self, (const float *)x + n * image_values(o->in), self->backend->scratch);
        for (uint32_t i = 0; i < o->groups; i++) {
            struct group g = group_of(self, i);
            struct gemm product = {
                .is_b_transposed = true,
                .rows = g.filters,
                .columns = g.filter,
                .inner = g.pixels,
                .alpha = 1.0F,
                .beta = is_fresh ? 0.0F : 1.0F,
                .a = image + g.at,
                .a_stride = g.pixels,
                .b = g.columns,
                .b_stride = g.pixels,
                .c = dweight + g.first * g.filter,
                .c_stride = g.filter,
            };
            enum rc rc = cpu_gemm(&self->backend->base, &product);
            if (rc != RC_OK) return rc;
        }
        if (o->with_bias) bias_gradient(self, image, is_fresh, dbias);
    }
    return RC_OK;
}

static const struct conv_ops columns_ops = {
    .name = "im2col",
    .destroy = columns_destroy,
    .prepare = columns_prepare,
    .forward = columns_forward,
    .backward_data = columns_backward_data,
    .backward_weights = columns_backward_weights,
};

enum rc conv_im2col_create(struct cpu_backend *backend, const struct conv_options *options,
                           struct conv **conv)
{
    struct conv_columns *self = mem_alloc(sizeof(*self));
    size_t pixels, bytes;
    enum rc rc;

    CHECK(!options->is_local);
    if (self == NULL) return RC_NOMEM;
    self->backend = backend;
    self->options = *options;
    self->base.ops = &columns_ops;
    self->base.out = conv_out_shape(options);
    pixels = (size_t)self->base.out.height * self->base.out.width;
    rc = __builtin_mul_overflow(pixels * sizeof(float), rows_of(options), &bytes)
             ? RC_NOMEM
             : cpu_scratch_reserve(backend, bytes);
    if (rc != RC_OK) {
        mem_free(self);
        return rc;
    }
    *conv = &self->base;
    return RC_OK;
}
