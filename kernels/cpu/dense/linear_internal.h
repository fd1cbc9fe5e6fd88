/* What the files of dense layers share; nobody else includes it. */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_LINEAR_INTERNAL_H
#define GRAPEVINE_KERNELS_CPU_DENSE_LINEAR_INTERNAL_H

#include "kernels/cpu/dense/activation.h"
#include "kernels/cpu/internal.h"

/* gemm.c */

enum {
    GEMM_OWN_ROWS_MIN = 4, /* for fewer the libraries, which read the matrix as it is */
    GEMM_ROWS_UNIT = 24,   /* of threads' shares: whole tiles */
};

/** Whether products are those of panels.h on this instruction set. */
bool gemm_is_own(void);
/** Whether a product is worth one thread only. */
bool gemm_is_small(size_t rows, size_t columns, size_t inner);

/* linear_tile.c */

/* y = x W^T + b of few rows, then max(0, .) if wanted; b may be NULL. */
struct linear_tile {
    size_t rows, in, out;
    const float *x, *weight, *bias;
    bool with_relu;
    float *y;
};

enum { LINEAR_TILE_OUTPUTS = 48 };

/** Whether this processor can. */
bool linear_tile_is_here(void);
/** float32 values that one linear_tile_forward() works in. */
size_t linear_tile_scratch(size_t in);
/** Columns [from, to) of y. Any cut into multiples of LINEAR_TILE_OUTPUTS gives the same bits. */
void linear_tile_forward(const struct linear_tile *tile, size_t from, size_t to, float *scratch);

/* linear.c: passes over rows, on all threads where that pays. */

/** z (`pre`, or y where that is NULL) + bias, and the activation. See cpu_bias_activation(). */
void linear_finish(struct backend *backend, const struct linear_options *options, size_t rows,
                   const float *bias, float *pre, float *y);
/** pass->dy becomes the gradient before the activation, dbias its sum; `sums`: room for the out
 *  values of each thread. */
void linear_start_back(struct backend *backend, const struct linear_options *options,
                       const struct linear_backward *pass, float *sums);

/* linear_bf16.c */

/** Products of bfloat16 values. RC_UNSUPPORTED: the library has none for this shape; RC_NOMEM. */
enum rc linear_bf16_create(struct cpu_backend *backend, const struct linear_options *options,
                           struct linear **linear);

#endif
