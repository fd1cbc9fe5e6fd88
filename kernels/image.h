/*
 * image: shapes and layouts of images in a batch, convolutions and pooling.
 */
#ifndef GRAPEVINE_KERNELS_IMAGE_H
#define GRAPEVINE_KERNELS_IMAGE_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Images of one batch. Channels are stored in groups of `block` that divide their number:
 * [channels / block][height][width][block]. 1 is the plain order, `channels` is channels-last;
 * whatever lies between is some backend's favourite. */
struct image_shape {
    uint32_t channels, height, width;
    uint32_t block;
};

static inline size_t image_values(struct image_shape shape)
{
    return (size_t)shape.channels * shape.height * shape.width;
}

/** How many images make about `pixels` pixels: at least 1, and a power of two, which divides most
 *  batches. */
static inline uint32_t images_of_pixels(struct image_shape shape, uint32_t pixels)
{
    uint32_t images = 1;

    while (2 * (uint64_t)images * shape.height * shape.width <= pixels) {
        images *= 2;
    }
    return images;
}

/* A convolution bound to a number of images so that the backend can choose layouts, algorithm and
 * scratch memory once. Output height: (height + 2 padding_height - dilation (kernel_height - 1) -
 * 1) / stride + 1, width alike. Output channel o reads the channels of its group only: o /
 * (out_channels / groups). */
struct conv_options {
    struct image_shape in;
    uint32_t out_channels;
    uint32_t kernel_height, kernel_width;
    uint32_t padding_height, padding_width; /* zeros on each side */
    uint32_t stride, dilation;              /* at least 1 */
    uint32_t groups;                        /* divides both channel counts */
    bool is_local;   /* weights and biases of their own at each output pixel; one group */
    uint32_t images; /* of every call */
    bool with_bias;
    bool with_relu;           /* fused into the forward pass only: the caller masks dy */
    bool with_gradients;      /* the backward calls will be used */
    bool with_input_gradient; /* backward_data too */
};

/* How many windows of `size` values, `dilation` apart, fit; 0 where not even one does. */
static inline uint32_t windows_fit(uint32_t in, uint32_t size, uint32_t padding, uint32_t stride,
                                   uint32_t dilation)
{
    uint64_t extent = (uint64_t)in + 2 * (uint64_t)padding;
    uint64_t window = (uint64_t)dilation * (size - 1) + 1;

    return extent < window ? 0 : (uint32_t)((extent - window) / stride + 1);
}

/** The plain output shape. */
static inline struct image_shape conv_out_shape(const struct conv_options *o)
{
    return (struct image_shape){
        .channels = o->out_channels,
        .height =
            windows_fit(o->in.height, o->kernel_height, o->padding_height, o->stride, o->dilation),
        .width =
            windows_fit(o->in.width, o->kernel_width, o->padding_width, o->stride, o->dilation),
        .block = 1,
    };
}

/** Weights of one output channel (and, local ones, one pixel). */
static inline size_t conv_filter_values(const struct conv_options *o)
{
    return (size_t)(o->in.channels / o->groups) * o->kernel_height * o->kernel_width;
}

/** Filters, each with a bias of its own: [conv_filters()][conv_filter_values()] weights. */
static inline size_t conv_filters(const struct conv_options *o)
{
    struct image_shape out = conv_out_shape(o);

    return o->is_local ? image_values(out) : o->out_channels;
}

static inline size_t conv_weight_values(const struct conv_options *o)
{
    return conv_filters(o) * conv_filter_values(o);
}

struct conv {
    const struct conv_ops *ops;
    struct image_shape out; /* block: chosen by the backend */
};

/* Plain weights: [out_channels][channels / groups][kernel_height][kernel_width], bias
 * [out_channels]; local ones: [height][width] of the output in front of both. */
struct conv_ops {
    const char *name;
    void (*destroy)(struct conv *conv);
    /** Take the plain weights and the bias (NULL without) for the passes that follow; to be called
     *  whenever they changed. Borrowed until the next call. */
    MUST_USE enum rc (*prepare)(struct conv *conv, const float *weight, const float *bias);
    MUST_USE enum rc (*forward)(struct conv *conv, const void *x, void *y);
    MUST_USE enum rc (*backward_data)(struct conv *conv, const void *dy, void *dx);
    /** Plain gradients; `is_first` overwrites them, otherwise they are added to. dbias NULL without
     *  bias. */
    MUST_USE enum rc (*backward_weights)(struct conv *conv, const void *x, const void *dy,
                                         bool is_first, float *dweight, float *dbias);
};

enum pool_kind { POOL_MAX, POOL_AVERAGE };

/* Pooling of size x size windows. Output height: (height + 2 padding - size) / stride + 1, what is
 * left over at the right and lower border is dropped. Padding takes no part in a maximum and counts
 * as zeros in an average. */
struct pool_options {
    enum pool_kind kind;
    struct image_shape in, out; /* any blocks */
    uint32_t size;              /* 2 to 15 */
    uint32_t stride;            /* at least 1 */
    uint32_t padding;           /* at most size / 2 */
    bool with_relu;             /* max(0, .) of the result; the gradient follows; maxima only */
};

enum { POOL_NONE = 255, POOL_SIZE_MAX = 15 };

struct subsample {
    struct image_shape in, out;
    uint32_t stride;
};

#endif
