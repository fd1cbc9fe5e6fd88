/*
 * Convolution as a matrix product: the windows of one image become the columns of a matrix
 * (Chellapilla, Puri, Simard 2006), in scratch memory shared by all layers. The way where oneDNN is
 * absent or has no fast form. Outputs are plain; inputs may have any block.
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

static size_t filter_values(const struct conv_options *o)
{
    return (size_t)o->in.channels * o->kernel_height * o->kernel_height;
}

/* For one filter tap and output row: which output columns [first, last) see the input, and where
 * the first of them reads. False: the whole row is padding. */
struct span {
    uint32_t first, last;
    size_t at; /* of the input value under `first` */
};

static bool span_of(const struct conv_columns *conv, uint32_t channel, uint32_t tap, uint32_t row,
                    struct span *span)
{
    const struct conv_options *o = &conv->options;
    struct image_shape in = o->in;
    int64_t y = (int64_t)row + tap / o->kernel_height - o->padding_height;
    int64_t shift = (int64_t)(tap % o->kernel_height) - o->padding_height; /* input column - output column */
    int64_t last = (int64_t)in.width - shift;

    if (y < 0 || y >= in.height) return false;
    if (last > conv->base.out.width) last = conv->base.out.width;
    span->first = shift < 0 ? (uint32_t)-shift : 0;
    if (last <= (int64_t)span->first) return false;
    span->last = (uint32_t)last;
    span->at = ((size_t)(channel / in.block) * in.height + (size_t)y) * in.width * in.block +
               (size_t)((int64_t)span->first + shift) * in.block + channel % in.block;
    return true;
}

/* columns[channel, tap][pixel] = the input under that tap, 0 in the padding. */
static void gather(const struct conv_columns *conv, const float *image, float *columns)
{
    const struct conv_options *o = &conv->options;
    struct image_shape out = conv->base.out;
    uint32_t taps = o->kernel_height * o->kernel_height;

    for (uint32_t f = 0; f < o->in.channels * taps; f++) {
        for (uint32_t row = 0; row < out.height; row++) {
            float *to = columns + ((size_t)f * out.height + row) * out.width;
            struct span span = {0};
            if (!span_of(conv, f / taps, f % taps, row, &span)) {
                memset(to, 0, out.width * sizeof(*to));
                continue;
            }
            memset(to, 0, span.first * sizeof(*to));
            for (uint32_t x = span.first; x < span.last; x++) {
                to[x] = image[span.at + (size_t)(x - span.first) * o->in.block];
            }
            memset(to + span.last, 0, (out.width - span.last) * sizeof(*to));
        }
    }
}

/* The transpose of gather(): every input value collects from the windows that saw it. */
static void scatter(const struct conv_columns *conv, const float *columns, float *image)
{
    const struct conv_options *o = &conv->options;
    struct image_shape out = conv->base.out;
    uint32_t taps = o->kernel_height * o->kernel_height;

    memset(image, 0, image_values(o->in) * sizeof(*image));
    for (uint32_t f = 0; f < o->in.channels * taps; f++) {
        for (uint32_t row = 0; row < out.height; row++) {
            const float *from = columns + ((size_t)f * out.height + row) * out.width;
            struct span span = {0};
            if (!span_of(conv, f / taps, f % taps, row, &span)) continue;
            for (uint32_t x = span.first; x < span.last; x++) {
                image[span.at + (size_t)(x - span.first) * o->in.block] += from[x];
            }
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

FOR_EACH_CPU static void bias_relu(float *plane, size_t pixels, float bias, bool with_relu)
{
    for (size_t i = 0; i < pixels; i++) {
        float value = plane[i] + bias;
        plane[i] = with_relu && value < 0.0F ? 0.0F : value;
    }
}

static enum rc columns_forward(struct conv *conv, const float *x, float *y)
{
    struct conv_columns *self = columns_of(conv);
    const struct conv_options *o = &self->options;
    size_t pixels = (size_t)conv->out.height * conv->out.width;
    enum rc rc = RC_OK;

    for (uint32_t n = 0; rc == RC_OK && n < o->images; n++) {
        float *image = y + n * o->out_channels * pixels;
        struct gemm product = {
            .rows = o->out_channels,
            .columns = pixels,
            .inner = filter_values(o),
            .alpha = 1.0F,
            .a = self->weight,
            .a_stride = filter_values(o),
            .b = self->backend->scratch,
            .b_stride = pixels,
            .c = image,
            .c_stride = pixels,
        };
        gather(self, x + n * image_values(o->in), self->backend->scratch);
        rc = cpu_gemm(&self->backend->base, &product);
        for (uint32_t c = 0; c < o->out_channels; c++) {
            bias_relu(image + c * pixels, pixels, self->bias[c], o->with_relu);
        }
    }
    return rc;
}

static enum rc columns_backward_data(struct conv *conv, const float *dy, float *dx)
{
    struct conv_columns *self = columns_of(conv);
    const struct conv_options *o = &self->options;
    size_t pixels = (size_t)conv->out.height * conv->out.width;
    enum rc rc = RC_OK;

    for (uint32_t n = 0; rc == RC_OK && n < o->images; n++) {
        struct gemm product = {
            .is_a_transposed = true,
            .rows = filter_values(o),
            .columns = pixels,
            .inner = o->out_channels,
            .alpha = 1.0F,
            .a = self->weight,
            .a_stride = filter_values(o),
            .b = dy + n * o->out_channels * pixels,
            .b_stride = pixels,
            .c = self->backend->scratch,
            .c_stride = pixels,
        };
        rc = cpu_gemm(&self->backend->base, &product);
        scatter(self, self->backend->scratch, dx + n * image_values(o->in));
    }
    return rc;
}

static enum rc columns_backward_weights(struct conv *conv, const float *x, const float *dy,
                                        bool is_first, float *dweight, float *dbias)
{
    struct conv_columns *self = columns_of(conv);
    const struct conv_options *o = &self->options;
    size_t pixels = (size_t)conv->out.height * conv->out.width;
    enum rc rc = RC_OK;

    for (uint32_t n = 0; rc == RC_OK && n < o->images; n++) {
        const float *image = dy + n * o->out_channels * pixels;
        bool is_fresh = is_first && n == 0;
        struct gemm product = {
            .is_b_transposed = true,
            .rows = o->out_channels,
            .columns = filter_values(o),
            .inner = pixels,
            .alpha = 1.0F,
            .beta = is_fresh ? 0.0F : 1.0F,
            .a = image,
            .a_stride = pixels,
            .b = self->backend->scratch,
            .b_stride = pixels,
            .c = dweight,
            .c_stride = filter_values(o),
        };
        gather(self, x + n * image_values(o->in), self->backend->scratch);
        rc = cpu_gemm(&self->backend->base, &product);
        for (uint32_t c = 0; c < o->out_channels; c++) {
            double sum = is_fresh ? 0.0 : (double)dbias[c];
            for (size_t i = 0; i < pixels; i++) {
                sum += (double)image[c * pixels + i];
            }
            dbias[c] = (float)sum;
        }
    }
    return rc;
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

    if (self == NULL) return RC_NOMEM;
    self->backend = backend;
    self->options = *options;
    self->base.ops = &columns_ops;
    self->base.out = (struct image_shape){
        .channels = options->out_channels,
        .height = options->in.height + 2 * options->padding_height - options->kernel_height + 1,
        .width = options->in.width + 2 * options->padding_height - options->kernel_height + 1,
        .block = 1,
    };
    pixels = (size_t)self->base.out.height * self->base.out.width;
    rc = __builtin_mul_overflow(pixels * sizeof(float), filter_values(options), &bytes)
             ? RC_NOMEM
             : cpu_scratch_reserve(backend, bytes);
    if (rc != RC_OK) {
        mem_free(self);
        return rc;
    }
    *conv = &self->base;
    return RC_OK;
}
