/*
 * backend: arithmetic on one device, as a const table of operations. The CPU's is in kernels/cpu
 * (OpenBLAS, oneDNN, plain C twins); a CUDA module brings another. Pointers are to memory of the
 * backend (`alloc`) and matrices are row-major, unless said otherwise.
 *
 * Errors  RC_DEVICE: the device failed; outputs are then unspecified. RC_NOMEM on creation only:
 *         the steady state allocates nothing.
 * Order   one backend serves one thread at a time. Equal calls give equal bits.
 */
#ifndef GRAPEVINE_KERNELS_BACKEND_H
#define GRAPEVINE_KERNELS_BACKEND_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend {
    const struct backend_ops *ops;
    uint32_t threads;          /* that one call may use */
    uint32_t images_per_slice; /* convolutions run fastest on so many images at a time */
};

/* C[rows][columns] = alpha * op(A) op(B) + beta * C. op(A) is [rows][inner], op(B) is
 * [inner][columns]; a transposed operand is stored the other way round. Strides are in values. */
struct gemm {
    bool is_a_transposed, is_b_transposed;
    size_t rows, columns, inner;
    float alpha, beta;
    const float *a, *b;
    float *c;
    size_t a_stride, b_stride, c_stride;
};

/* A dense layer on `rows` samples: y[rows][out] = x[rows][in] W^T + bias, W: [out][in]. */
struct linear_shape {
    size_t rows, in, out;
    bool with_relu; /* y = max(y, 0) */
};

struct linear_backward {
    const float *x, *weight; /* as in the forward pass */
    const float *y;          /* with_relu: the output of the forward pass */
    float *dy;               /* with_relu: masked in place */
    float *dx;               /* NULL: not wanted; may be the memory of x */
    float *dweight, *dbias;  /* overwritten */
};

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

/* A square convolution with stride 1, bound to a number of images so that the backend can choose
 * layouts, algorithm and scratch memory once. */
struct conv_options {
    struct image_shape in;
    uint32_t out_channels;
    uint32_t kernel, padding;
    uint32_t images;          /* of every call */
    bool with_relu;           /* fused into the forward pass only: the caller masks dy */
    bool with_gradients;      /* the backward calls will be used */
    bool with_input_gradient; /* backward_data too */
};

struct conv {
    const struct conv_ops *ops;
    struct image_shape out; /* chosen by the backend */
};

struct conv_ops {
    const char *name;
    void (*destroy)(struct conv *conv);
    /** Take the plain weights [out][in][kernel][kernel] and the bias [out] for the passes that
     *  follow; to be called whenever they changed. Borrowed until the next call. */
    MUST_USE enum rc (*prepare)(struct conv *conv, const float *weight, const float *bias);
    MUST_USE enum rc (*forward)(struct conv *conv, const float *x, float *y);
    MUST_USE enum rc (*backward_data)(struct conv *conv, const float *dy, float *dx);
    /** Plain gradients; `is_first` overwrites them, otherwise they are added to. */
    MUST_USE enum rc (*backward_weights)(struct conv *conv, const float *x, const float *dy,
                                         bool is_first, float *dweight, float *dbias);
};

/* Max pooling of size x size windows, stride `size`, without padding; what is left over at the
 * right and lower border is dropped. */
struct pool_options {
    struct image_shape in, out; /* any blocks; out's height and width are in's / size */
    uint32_t size;              /* 2 to 15 */
    bool with_relu;             /* max(0, .) of the result; the gradient follows */
};

enum update_kind {
    UPDATE_SGD,
    UPDATE_MOMENTUM,
    UPDATE_NESTEROV,
    UPDATE_ADAGRAD,
    UPDATE_RMSPROP,
    UPDATE_ADAM,
    UPDATE_ADAMW,
    UPDATE_LARS, /* from here on a span is one tensor: norms and products are taken over it */
    UPDATE_LAMB,
    UPDATE_MUON,
    UPDATE_COUNT
};

/* One fused optimizer step over a span of a plane: all of it, or one tensor. Bias corrections come
 * folded into the numbers (see replica/optimizer.c). Formulas: kernels/cpu/reference.c. */
struct update {
    enum update_kind kind;
    float rate;
    float beta;       /* momentum, LARS, Muon; the first of Adam and LAMB */
    float beta2;      /* the second of Adam and LAMB; RMSProp's only one */
    float epsilon;    /* added to a root or, LARS, to a norm */
    float decay;      /* gradient + decay * value; AdamW and Muon: value -= decay * value instead */
    float correction; /* LAMB: factor of the direction for both biases */
    float trust;      /* LARS: coefficient of the layer's ratio; LAMB: 1; 0: the ratio is 1 */
    size_t plane;     /* values from one moment plane to the next; 0: the span's length */
    size_t rows;      /* Muon: the span is a matrix of so many rows */
    float *workspace; /* Muon: update_workspace() values, of any contents */
};

/* Muon: the direction twice, and two square matrices of its shorter side. */
static inline size_t update_workspace(size_t rows, size_t columns)
{
    size_t side = rows < columns ? rows : columns;

    return 2 * rows * columns + 2 * side * side;
}

struct backend_ops {
    const char *name;
    void (*destroy)(struct backend *backend);
    /** Make the calling thread's pool as large as `threads`; cheap, call it on entry of a job. */
    void (*bind_thread)(struct backend *backend);

    /** `bytes` zeroed bytes on the device, aligned for its vectors; NULL when memory is short. */
    void *(*alloc)(struct backend *backend, size_t bytes);
    void (*free)(struct backend *backend, void *block);
    MUST_USE enum rc (*upload)(struct backend *backend, void *to, const void *from, size_t bytes);
    MUST_USE enum rc (*download)(struct backend *backend, void *to, const void *from, size_t bytes);
    MUST_USE enum rc (*zero)(struct backend *backend, void *block, size_t bytes);

    /** values[i] = bytes[i] * factor + offset; `bytes` lie on the host. */
    MUST_USE enum rc (*from_bytes)(struct backend *backend, const uint8_t *bytes, float factor,
                                   float offset, float *values, size_t n);
    /** y += a x. */
    MUST_USE enum rc (*axpy)(struct backend *backend, float a, const float *x, float *y, size_t n);
    /** x *= a. */
    MUST_USE enum rc (*scale)(struct backend *backend, float a, float *x, size_t n);
    /** y += a (x - base): the difference form of mixing. */
    MUST_USE enum rc (*add_difference)(struct backend *backend, float a, const float *x,
                                       const float *base, float *y, size_t n);
    /** Sum of squares, accumulated in float64. */
    MUST_USE enum rc (*squared_norm)(struct backend *backend, const float *x, size_t n,
                                     double *result);
    MUST_USE enum rc (*is_finite)(struct backend *backend, const float *x, size_t n, bool *result);

    MUST_USE enum rc (*gemm)(struct backend *backend, const struct gemm *gemm);
    MUST_USE enum rc (*linear_forward)(struct backend *backend, const struct linear_shape *shape,
                                       const float *x, const float *weight, const float *bias,
                                       float *y);
    MUST_USE enum rc (*linear_backward)(struct backend *backend, const struct linear_shape *shape,
                                        const struct linear_backward *pass);
    /** In place. */
    MUST_USE enum rc (*relu_forward)(struct backend *backend, float *x, size_t n);
    /** dy = 0 where the output y is not above 0. */
    MUST_USE enum rc (*relu_backward)(struct backend *backend, const float *y, float *dy, size_t n);

    /** RC_NOMEM, RC_UNSUPPORTED. The backend must outlive it; destroy by conv->ops->destroy. */
    MUST_USE enum rc (*conv_create)(struct backend *backend, const struct conv_options *options,
                                    struct conv **conv);
    /** `winner` gets one byte per output value: which input of the window gets the gradient, or
     *  POOL_NONE. NULL: not wanted. */
    MUST_USE enum rc (*pool_forward)(struct backend *backend, const struct pool_options *options,
                                     uint32_t images, const float *x, float *y, uint8_t *winner);
    /** dx is overwritten whole. */
    MUST_USE enum rc (*pool_backward)(struct backend *backend, const struct pool_options *options,
                                      uint32_t images, const float *dy, const uint8_t *winner,
                                      float *dx);
    /** Rewrite images from one block size to another. Not in place. */
    MUST_USE enum rc (*relayout)(struct backend *backend, struct image_shape from,
                                 uint32_t to_block, uint32_t images, const float *x, float *y);

    /** Softmax cross-entropy: see kernels/softmax.h. `labels`, `loss_sum`, `correct`: host. */
    MUST_USE enum rc (*cross_entropy)(struct backend *backend, const float *logits,
                                      const uint8_t *labels, uint32_t rows, uint32_t classes,
                                      float *gradient, double *loss_sum, uint32_t *correct);
    /** moments: the span's values in the first plane; the second follows at update->plane. SGD
     *  has none, Adam, AdamW and LAMB have two, the others one. */
    MUST_USE enum rc (*update)(struct backend *backend, const struct update *update,
                               const float *gradient, float *moments, float *values, size_t n);
};

enum { POOL_NONE = 255, POOL_SIZE_MAX = 15 };

/** NULL is fine. Whatever was created from the backend must be gone. */
void backend_destroy(struct backend *backend);
void backend_bind_thread(struct backend *backend);

#endif
