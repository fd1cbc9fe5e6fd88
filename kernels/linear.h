/*
 * linear: a dense layer bound to its shape, so that the backend can choose products, forms of the
 * weights and scratch memory once: y[rows][out] = f(x[rows][in] W^T + b), W: [out][in].
 */
#ifndef GRAPEVINE_KERNELS_LINEAR_H
#define GRAPEVINE_KERNELS_LINEAR_H

#include "base/rc.h"
#include "kernels/activation.h"
#include "kernels/update.h"

#include <stddef.h>
#include <stdint.h>

struct linear_options {
    size_t in, out;
    size_t rows_max; /* of a call */
    size_t y_stride; /* values from one row of y and dy to the next; 0: out. More only where the
                        backend keeps a copy of the weights (bfloat16), and without activation;
                        what is between rows are zeros: y gets them, dy has them */
    bool with_bias;
    struct activation activation;
    bool with_gradients;      /* backward will be used */
    bool with_input_gradient; /* with dx */
};

struct linear {
    const struct linear_ops *ops;
};

struct linear_backward {
    size_t rows;
    const void *x, *pre, *y; /* as in the forward pass */
    void *dy;                /* overwritten by the gradient before the activation ... */
    bool is_joined;          /* ... unless it is that already: see x_pre */
    const void *x_pre;      /* dx becomes the gradient of these, x being gelu by tanh of them; NULL:
                               of x. Where backend->joins_gelu, and not with adds_to_dx */
    void *dx;               /* NULL: not wanted; without adds_to_dx it may be the memory of x */
    bool adds_to_dx;        /* dx += instead of dx = */
    bool is_first;          /* overwrite dweight and dbias; otherwise they are added to */
    float *dweight, *dbias; /* dbias NULL without bias */
};

enum { LINEAR_COPIES_MAX = 2 };

struct linear_ops {
    const char *name;
    void (*destroy)(struct linear *linear);
    /** Take weight [out][in] and bias [out] (NULL without) for the passes that follow; to be called
     *  whenever they changed. Borrowed until the next call. */
    MUST_USE enum rc (*prepare)(struct linear *linear, const float *weight, const float *bias);
    /** What prepare() fills, from where: how many. Whoever keeps them up to date by update() need
     *  not call prepare() again. NULL: it fills nothing of that kind. */
    uint32_t (*copies)(const struct linear *linear, const float *weight, const float *bias,
                       struct parameter_copy copies[LINEAR_COPIES_MAX]);
    /** `pre` [rows][out] gets x W^T + b where the activation's gradient needs it and gradients are
     *  wanted of this pass; NULL otherwise. */
    MUST_USE enum rc (*forward)(struct linear *linear, size_t rows, const void *x, void *pre,
                                void *y);
    MUST_USE enum rc (*backward)(struct linear *linear, const struct linear_backward *pass);
};

#endif
