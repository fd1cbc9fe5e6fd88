/*
 * Locally connected layers (LeCun 1989; the last layers of Krizhevsky's cuda-convnet for CIFAR-10):
 * a convolution with weights of its own at each output pixel. Pixel by pixel, the windows of all
 * images become the rows of a matrix, so that every weight is read once a call: the weights, not
 * the arithmetic, are what takes the time. Outputs are plain; inputs may have any block.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/reference/reference.h"

#include <string.h>

struct conv_local {
    struct conv base;
    struct cpu_backend *backend;
    struct conv_options options;
    const float *weight, *bias; /* borrowed from prepare() */
};

/* One output pixel with the matrices of its products, in scratch memory. */
struct spot {
    uint32_t row, column;
    size_t pixel, filter;
    float *windows; /* [images][filter] */
    float *outputs; /* [images][out_channels] */
};

static struct conv_local *local_of(struct conv *conv)
{
    return (struct conv_local *)conv;
}

static struct spot spot_of(const struct conv_local *conv, size_t pixel)
{
    size_t filter = conv_filter_values(&conv->options);

    return (struct spot){
        .row = (uint32_t)(pixel / conv->base.out.width),
        .column = (uint32_t)(pixel % conv->base.out.width),
        .pixel = pixel,
        .filter = filter,
        .windows = conv->backend->scratch,
        .outputs = conv->backend->scratch + conv->options.images * filter,
    };
}

static size_t pixels_of(const struct conv_local *conv)
{
    return (size_t)conv->base.out.height * conv->base.out.width;
}

/* Where value `f` of the window lies in an image; false in the padding. */
static bool value_at(const struct conv_options *o, const struct spot *spot, size_t f, size_t *at)
{
    uint32_t taps = o->kernel_height * o->kernel_width, tap = (uint32_t)(f % taps);
    int64_t y = (int64_t)spot->row * o->stride + (int64_t)(tap / o->kernel_width) * o->dilation -
                o->padding_height;
    int64_t x = (int64_t)spot->column * o->stride + (int64_t)(tap % o->kernel_width) * o->dilation -
                o->padding_width;

    if (y < 0 || x < 0 || y >= o->in.height || x >= o->in.width) return false;
    *at = reference_index(o->in, (uint32_t)(f / taps), (uint32_t)y, (uint32_t)x);
    return true;
}

static void gather(const struct conv_local *conv, const struct spot *spot, const float *x)
{
    size_t values = image_values(conv->options.in);

    for (size_t f = 0; f < spot->filter; f++) {
        size_t at = 0;
        bool is_inside = value_at(&conv->options, spot, f, &at);
        for (uint32_t n = 0; n < conv->options.images; n++) {
            spot->windows[n * spot->filter + f] = is_inside ? x[n * values + at] : 0.0F;
        }
    }
}

static void scatter(const struct conv_local *conv, const struct spot *spot, float *dx)
{
    size_t values = image_values(conv->options.in);

    for (size_t f = 0; f < spot->filter; f++) {
        size_t at;
        if (!value_at(&conv->options, spot, f, &at)) continue;
        for (uint32_t n = 0; n < conv->options.images; n++) {
            dx[n * values + at] += spot->windows[n * spot->filter + f];
        }
    }
}

/* The pixel's output gradients as a matrix. */
static void gather_outputs(const struct conv_local *conv, const struct spot *spot, const float *dy)
{
    uint32_t channels = conv->options.out_channels;

    for (size_t i = 0; i < (size_t)conv->options.images * channels; i++) {
        spot->outputs[i] = dy[i * pixels_of(conv) + spot->pixel];
    }
}

static void local_destroy(struct conv *conv)
{
    mem_free(local_of(conv));
}

static enum rc local_prepare(struct conv *conv, const float *weight, const float *bias)
{
    local_of(conv)->weight = weight;
    local_of(conv)->bias = bias;
    return RC_OK;
}

static enum rc local_forward(struct conv *conv, const void *x, void *y)
{
    struct conv_local *self = local_of(conv);
    const struct conv_options *o = &self->options;

    for (size_t pixel = 0; pixel < pixels_of(self); pixel++) {
        struct spot spot = spot_of(self, pixel);
        struct gemm product = {
            .is_b_transposed = true,
            .rows = o->images,
            .columns = o->out_channels,
            .inner = spot.filter,
            .alpha = 1.0F,
            .a = spot.windows,
            .a_stride = spot.filter,
            .b = self->weight + pixel * o->out_channels * spot.filter,
            .b_stride = spot.filter,
            .c = spot.outputs,
            .c_stride = o->out_channels,
        };
        enum rc rc;

        gather(self, &spot, x);
        rc = cpu_gemm(&self->backend->base, &product);
        if (rc != RC_OK) return rc;
        for (size_t i = 0; i < (size_t)o->images * o->out_channels; i++) {
            float value = spot.outputs[i];
            if (o->with_bias) value += self->bias[pixel * o->out_channels + i % o->out_channels];
            ((float *)y)[i * pixels_of(self) + pixel] = o->with_relu && value < 0.0F ? 0.0F : value;
        }
    }
    return RC_OK;
}

static enum rc local_backward_data(struct conv *conv, const void *dy, void *dx)
{
    struct conv_local *self = local_of(conv);
    const struct conv_options *o = &self->options;

    memset(dx, 0, o->images * image_values(o->in) * sizeof(float));
    for (size_t pixel = 0; pixel < pixels_of(self); pixel++) {
        struct spot spot = spot_of(self, pixel);
        struct gemm product = {
            .rows = o->images,
            .columns = spot.filter,
            .inner = o->out_channels,
            .alpha = 1.0F,
            .a = spot.outputs,
            .a_stride = o->out_channels,
            .b = self->weight + pixel * o->out_channels * spot.filter,
            .b_stride = spot.filter,
            .c = spot.windows,
            .c_stride = spot.filter,
        };
        enum rc rc;

        gather_outputs(self, &spot, dy);
        rc = cpu_gemm(&self->backend->base, &product);
        if (rc != RC_OK) return rc;
        scatter(self, &spot, dx);
    }
    return RC_OK;
}

static void bias_gradient(const struct conv_local *conv, const struct spot *spot, bool is_first,
                          float *dbias)
{
    uint32_t channels = conv->options.out_channels;

    for (uint32_t c = 0; c < channels; c++) {
        double sum = is_first ? 0.0 : (double)dbias[spot->pixel * channels + c];
        for (uint32_t n = 0; n < conv->options.images; n++) {
            sum += (double)spot->outputs[(size_t)n * channels + c];
        }
        dbias[spot->pixel * channels + c] = (float)sum;
    }
}

static enum rc local_backward_weights(struct conv *conv, const void *x, const void *dy,
                                      bool is_first, float *dweight, float *dbias)
{
    struct conv_local *self = local_of(conv);
    const struct conv_options *o = &self->options;

    for (size_t pixel = 0; pixel < pixels_of(self); pixel++) {
        struct spot spot = spot_of(self, pixel);
        struct gemm product = {
            .is_a_transposed = true,
            .rows = o->out_channels,
            .columns = spot.filter,
            .inner = o->images,
            .alpha = 1.0F,
            .beta = is_first ? 0.0F : 1.0F,
            .a = spot.outputs,
            .a_stride = o->out_channels,
            .b = spot.windows,
            .b_stride = spot.filter,
            .c = dweight + pixel * o->out_channels * spot.filter,
            .c_stride = spot.filter,
        };
        enum rc rc;

        gather(self, &spot, x);
        gather_outputs(self, &spot, dy);
        rc = cpu_gemm(&self->backend->base, &product);
        if (rc != RC_OK) return rc;
        if (o->with_bias) bias_gradient(self, &spot, is_first, dbias);
    }
    return RC_OK;
}

static const struct conv_ops local_ops = {
    .name = "local",
    .destroy = local_destroy,
    .prepare = local_prepare,
    .forward = local_forward,
    .backward_data = local_backward_data,
    .backward_weights = local_backward_weights,
};

enum rc conv_local_create(struct cpu_backend *backend, const struct conv_options *options,
                          struct conv **conv)
{
    struct conv_local *self = mem_alloc(sizeof(*self));
    size_t values = conv_filter_values(options) + options->out_channels;
    enum rc rc;

    CHECK(options->is_local && options->groups == 1);
    if (self == NULL) return RC_NOMEM;
    self->backend = backend;
    self->options = *options;
    self->base.ops = &local_ops;
    self->base.out = conv_out_shape(options);
    rc = cpu_scratch_reserve(backend, values * options->images * sizeof(float));
    if (rc != RC_OK) {
        mem_free(self);
        return rc;
    }
    *conv = &self->base;
    return RC_OK;
}
