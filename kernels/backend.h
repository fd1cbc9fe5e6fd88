/*
 * backend: arithmetic on one device, as a const table of operations. The CPU's is in kernels/cpu
 * (OpenBLAS, oneDNN, plain C twins); that of NVIDIA GPUs is in kernels/cuda, a module beside the
 * executable (kernels/device/device.h opens it). Pointers are to memory of the backend (`alloc`)
 * and matrices are row-major, unless said otherwise.
 *
 * Activations  What flows between layers, and its gradients, is kept in the backend's own form:
 *         float32, or bfloat16 where value_bytes is 2. So they are `void *`, here and in
 *         image.h to sequence.h: handed on, never looked into, and backend_at() finds the i-th.
 *         `float *` are float32 on every backend: parameters, their gradients, statistics, targets
 *         and token ids, and all that axpy() to gemm() and update() work on.
 * Errors  RC_DEVICE: the device failed; outputs are then unspecified, and `why` says more.
 *         RC_NOMEM on creation only: the steady state allocates nothing.
 * Order   one backend serves one thread at a time. Equal calls give equal bits. A device may
 *         compute later than the call returns, in the order of calls; whatever has a result on the
 *         host waits for it, and there errors of earlier calls come to light.
 */
#ifndef GRAPEVINE_KERNELS_BACKEND_H
#define GRAPEVINE_KERNELS_BACKEND_H

#include "base/rc.h"
#include "kernels/activation.h"
#include "kernels/image.h"
#include "kernels/linear.h"
#include "kernels/loss.h"
#include "kernels/norm.h"
#include "kernels/sequence.h"
#include "kernels/snapshot.h"
#include "kernels/update.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct backend {
    const struct backend_ops *ops;
    uint32_t threads;          /* that one call may use */
    uint32_t pixels_per_slice; /* convolutions run fastest on images of about so many at a time */
    uint32_t rows_per_slice;   /* and dense layers on about so many rows of long sequences */
    uint32_t value_bytes;      /* of an activation: 4, or 2 */
    bool joins_gelu;           /* dense layers can go back through a gelu: linear_backward.x_pre */
    bool is_host;              /* its memory is the host's: there is nothing to upload */
    bool is_apart;             /* siblings have memory of their own; all_reduce() joins them */
};

struct recording; /* of a backend: calls to be repeated */

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

struct copy_rows {
    size_t rows, count, x_stride, y_stride;
    bool adds;
};

struct backend_ops {
    const char *name;
    void (*destroy)(struct backend *backend);
    /** Make the calling thread's pool as large as `threads`; cheap, call it on entry of a job. */
    void (*bind_thread)(struct backend *backend);

    /** Another backend on the same memory (is_apart: on the next device) with the same options, for
     *  another thread to use at the same time, with one thread of its own; NULL when memory is
     *  short. No such member: there can be only one. */
    struct backend *(*sibling)(struct backend *backend);

    /** `bytes` zeroed bytes on the device, aligned for its vectors; NULL when out of memory. */
    void *(*alloc)(struct backend *backend, size_t bytes);
    void (*free)(struct backend *backend, void *block);
    /** Between host and device, in the order of calls: `from` may be changed at once, `to` is there
     *  on return. */
    MUST_USE enum rc (*upload)(struct backend *backend, void *to, const void *from, size_t bytes);
    MUST_USE enum rc (*download)(struct backend *backend, void *to, const void *from, size_t bytes);
    /** From the device's memory to the device's. */
    MUST_USE enum rc (*copy)(struct backend *backend, void *to, const void *from, size_t bytes);
    MUST_USE enum rc (*zero)(struct backend *backend, void *block, size_t bytes);

    /* Devices whose memory is not the host's have all of the following; others have none. */

    /** What the last RC_DEVICE or RC_NOMEM was, for people; "" if there was none. */
    const char *(*why)(struct backend *backend);
    /** The i-th choice among several ways of computing that was made for layers, for people, and
     *  for how many; NULL: no more. */
    const char *(*choice)(struct backend *backend, uint32_t i, uint32_t *times);
    /** y (activation) = x (float32). */
    MUST_USE enum rc (*to_activations)(struct backend *backend, const float *x, void *y, size_t n);
    /** *counter = value, in the order of calls. */
    MUST_USE enum rc (*store)(struct backend *backend, uint64_t *counter, uint64_t value);
    /** x *= limit / |x| if its norm is above `limit`. */
    MUST_USE enum rc (*clip)(struct backend *backend, float limit, float *x, size_t n);
    /** The end of a step: waits until no more than the step before it is unfinished. */
    MUST_USE enum rc (*pace)(struct backend *backend);
    /** Calls from here to record_end() are remembered instead of made. They must have no result on
     *  the host, upload nothing, and have been made before with the same shapes. */
    MUST_USE enum rc (*record_begin)(struct backend *backend);
    /** RC_UNSUPPORTED: some call could not be remembered; nothing is kept. Also to be called, with
     *  NULL, if something failed since record_begin(). */
    MUST_USE enum rc (*record_end)(struct backend *backend, struct recording **recording);
    /** RC_STALE: memory has moved since, as a new layer wanted more; nothing was run: record anew.
     */
    MUST_USE enum rc (*replay)(struct backend *backend, struct recording *recording);
    void (*recording_destroy)(struct backend *backend, struct recording *recording);
    /** See kernels/snapshot.h. RC_NOMEM. */
    MUST_USE enum rc (*snapshot_create)(struct backend *backend,
                                        const struct snapshot_options *options,
                                        struct snapshot **snapshot);
    /** A table of copies, none of a value of another, for update() to write as well. RC_NOMEM. */
    MUST_USE enum rc (*copies_create)(struct backend *backend, const struct parameter_copy *copies,
                                      uint32_t count, struct parameter_copies **made);
    void (*copies_destroy)(struct backend *backend, struct parameter_copies *copies);
    /** x = sum over the backend and its siblings, all of which call it, from threads of their own;
     *  equal bits on all. */
    MUST_USE enum rc (*all_reduce)(struct backend *backend, float *x, size_t n);

    /* All backends have those that follow. */

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
    /** RC_NOMEM, RC_UNSUPPORTED. The backend must outlive it; destroy by linear->ops->destroy. */
    MUST_USE enum rc (*linear_create)(struct backend *backend, const struct linear_options *options,
                                      struct linear **linear);
    /** In place. */
    MUST_USE enum rc (*relu_forward)(struct backend *backend, void *x, size_t n);
    /** dy = 0 where the output y is not above 0. */
    MUST_USE enum rc (*relu_backward)(struct backend *backend, const void *y, void *dy, size_t n);

    /** y = a + b, then max(0, .) if wanted. y may be a or b. Of activations. */
    MUST_USE enum rc (*add)(struct backend *backend, const void *a, const void *b, bool with_relu,
                            void *y, size_t n);
    /** y may be x. */
    MUST_USE enum rc (*activation_forward)(struct backend *backend, struct activation activation,
                                           const void *x, void *y, size_t n);
    /** dx = dy f'(x). x: where activation_needs_input(), otherwise NULL; dx may be dy. */
    MUST_USE enum rc (*activation_backward)(struct backend *backend, struct activation activation,
                                            const void *x, const void *y, const void *dy, void *dx,
                                            size_t n);
    /** Forward of values and backward of gradients alike; y may be x. */
    MUST_USE enum rc (*dropout)(struct backend *backend, const struct dropout *dropout,
                                const void *x, void *y, size_t n);
    /** Copy (or add) `rows` rows of `count` values between matrices of other strides. */
    MUST_USE enum rc (*copy_rows)(struct backend *backend, const struct copy_rows *copy,
                                  const void *x, void *y);

    /** RC_NOMEM, RC_UNSUPPORTED. The backend must outlive it; destroy by conv->ops->destroy. */
    MUST_USE enum rc (*conv_create)(struct backend *backend, const struct conv_options *options,
                                    struct conv **conv);
    /** `winner` gets one byte per output value: which input of the window gets the gradient, or
     *  POOL_NONE. NULL: not wanted. */
    MUST_USE enum rc (*pool_forward)(struct backend *backend, const struct pool_options *options,
                                     uint32_t images, const void *x, void *y, uint8_t *winner);
    /** dx is overwritten whole. */
    MUST_USE enum rc (*pool_backward)(struct backend *backend, const struct pool_options *options,
                                      uint32_t images, const void *dy, const uint8_t *winner,
                                      void *dx);
    /** Rewrite images from one block size to another. Not in place. */
    MUST_USE enum rc (*relayout)(struct backend *backend, struct image_shape from,
                                 uint32_t to_block, uint32_t images, const void *x, void *y);

    /** y[image][channel]: mean over the pixels. */
    MUST_USE enum rc (*global_average_forward)(struct backend *backend, struct image_shape in,
                                               uint32_t images, const void *x, void *y);
    MUST_USE enum rc (*global_average_backward)(struct backend *backend, struct image_shape in,
                                                uint32_t images, const void *dy, void *dx);
    /** The parameter-free shortcut of residual nets (He et al. 2015, arXiv:1512.03385, option A):
     *  every stride-th pixel of each channel, further channels are zeros. Any blocks. */
    MUST_USE enum rc (*subsample_forward)(struct backend *backend, const struct subsample *options,
                                          uint32_t images, const void *x, void *y);
    MUST_USE enum rc (*subsample_backward)(struct backend *backend, const struct subsample *options,
                                           uint32_t images, const void *dy, void *dx);

    /** sums += those of x and x^2. */
    MUST_USE enum rc (*batch_norm_collect)(struct backend *backend, const struct batch_norm *norm,
                                           uint32_t images, const void *x, double *sums);
    MUST_USE enum rc (*batch_norm_close)(struct backend *backend, const struct batch_norm *norm,
                                         const struct batch_norm_close *close);
    /** rstd = 1 / sqrt(variance + epsilon): for normalising with running statistics. */
    MUST_USE enum rc (*batch_norm_rstd)(struct backend *backend, const struct batch_norm *norm,
                                        const float *variance, float *rstd);
    /** y = (x - mean) rstd gamma + beta; y may be x. */
    MUST_USE enum rc (*batch_norm_apply)(struct backend *backend, const struct batch_norm *norm,
                                         uint32_t images, const void *x,
                                         const struct channel_affine *affine, void *y);
    MUST_USE enum rc (*batch_norm_backward_collect)(struct backend *backend,
                                                    const struct batch_norm *norm, uint32_t images,
                                                    const struct batch_norm_backward *pass);
    /** dgamma and dbeta from the sums, which stay; `is_first` overwrites, otherwise adds. */
    MUST_USE enum rc (*batch_norm_backward_close)(struct backend *backend,
                                                  const struct batch_norm *norm, const double *sums,
                                                  bool is_first, float *dgamma, float *dbeta);
    MUST_USE enum rc (*batch_norm_backward_apply)(struct backend *backend,
                                                  const struct batch_norm *norm, uint32_t images,
                                                  const struct batch_norm_backward *pass);
    /** mean, rstd: [images][groups]; y is not x. */
    MUST_USE enum rc (*group_norm_forward)(struct backend *backend, const struct group_norm *norm,
                                           uint32_t images, const void *x, const float *gamma,
                                           const float *beta, void *y, float *mean, float *rstd);
    MUST_USE enum rc (*group_norm_backward)(struct backend *backend, const struct group_norm *norm,
                                            uint32_t images, const struct norm_backward *pass);
    /** Layer normalisation of rows (Ba, Kiros, Hinton 2016, arXiv:1607.06450). mean, rstd: [rows];
     *  y is not x. */
    MUST_USE enum rc (*layer_norm_forward)(struct backend *backend, const struct layer_norm *norm,
                                           const void *x, const float *gamma, const float *beta,
                                           void *y, float *mean, float *rstd);
    MUST_USE enum rc (*layer_norm_backward)(struct backend *backend, const struct layer_norm *norm,
                                            const struct norm_backward *pass);
    /** Weight normalisation (Salimans, Kingma 2016, arXiv:1602.07868): w = g v / |v| for each of
     *  `rows` rows; norms: [rows], for the way back. */
    MUST_USE enum rc (*weight_norm_forward)(struct backend *backend, size_t rows, size_t columns,
                                            const float *v, const float *g, float *w, float *norms);
    /** From dw, overwriting dv and dg; dv may be dw. */
    MUST_USE enum rc (*weight_norm_backward)(struct backend *backend,
                                             const struct weight_norm_backward *pass);

    /** y[row] = table[token of the row]. A token that is none is RC_NONFINITE. */
    MUST_USE enum rc (*embedding_forward)(struct backend *backend,
                                          const struct embedding *embedding, size_t rows,
                                          const float *tokens, const float *table, void *y);
    /** dtable[token] += dy[row]. */
    MUST_USE enum rc (*embedding_backward)(struct backend *backend,
                                           const struct embedding *embedding, size_t rows,
                                           const float *tokens, const void *dy, float *dtable);
    /** y[sample][step] = x[sample][step] + table[step]; y may be x. */
    MUST_USE enum rc (*positions_forward)(struct backend *backend,
                                          const struct positions *positions, const void *x,
                                          const float *table, void *y);
    /** dtable[step] += dy[sample][step], over the samples. */
    MUST_USE enum rc (*positions_backward)(struct backend *backend,
                                           const struct positions *positions, const void *dy,
                                           float *dtable);
    /** statistics: attention_statistics() values; NULL: no gradient wanted. */
    MUST_USE enum rc (*attention_forward)(struct backend *backend,
                                          const struct attention *attention, const void *qkv,
                                          void *y, float *statistics);
    MUST_USE enum rc (*attention_backward)(struct backend *backend,
                                           const struct attention *attention,
                                           const struct attention_backward *pass);
    /** Scratch for passes of this size from now on; once per layer, at creation. */
    MUST_USE enum rc (*attention_reserve)(struct backend *backend,
                                          const struct attention *attention);
    MUST_USE enum rc (*recurrent_create)(struct backend *backend,
                                         const struct recurrent_options *options,
                                         struct recurrent **recurrent);

    /** See kernels/loss.h. */
    MUST_USE enum rc (*cross_entropy)(struct backend *backend, const struct device_loss *loss);
    MUST_USE enum rc (*squared_error)(struct backend *backend, const struct device_loss *loss);
    /** moments: the span's values in the first plane; the second follows at update->plane. SGD
     *  has none, Adam, AdamW and LAMB have two, the others one. */
    MUST_USE enum rc (*update)(struct backend *backend, const struct update *update,
                               const float *gradient, float *moments, float *values, size_t n);
    /** add() and layer_norm_forward() in one, with their bits; NULL: there is none. */
    MUST_USE enum rc (*layer_norm_sum_forward)(struct backend *backend,
                                               const struct layer_norm *norm,
                                               const struct layer_norm_sum *pass);
    /** Where all_reduce() is: the same beside the calls that follow, which must leave x alone until
     *  that of all_reduce_end(). Any number of them may be on their way, with equal bits on all. */
    MUST_USE enum rc (*all_reduce_begin)(struct backend *backend, float *x, size_t n);
    MUST_USE enum rc (*all_reduce_end)(struct backend *backend);
    /** For one that will not come to the sums of its siblings: these fail, instead of waiting. */
    void (*all_reduce_abort)(struct backend *backend);
};

/** Address of activation `i` behind `values`. */
static inline void *backend_at(const struct backend *backend, const void *values, size_t i)
{
    return (void *)((uintptr_t)values + i * backend->value_bytes);
}

/** NULL is fine. Whatever was created from the backend must be gone. */
void backend_destroy(struct backend *backend);
void backend_bind_thread(struct backend *backend);

#endif
