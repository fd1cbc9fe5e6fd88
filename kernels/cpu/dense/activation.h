/* activation: the loops of activation.c that dense layers and others share. */
#ifndef GRAPEVINE_KERNELS_CPU_DENSE_ACTIVATION_H
#define GRAPEVINE_KERNELS_CPU_DENSE_ACTIVATION_H

#include "kernels/cpu/internal.h"

struct activation_rows {
    size_t rows, columns;
};

/** y = f(z + bias), where z lies in `pre`, which gets z + bias, or (pre NULL) in y itself. bias
 *  NULL: without. */
void cpu_bias_activation(struct activation activation, const float *bias, struct activation_rows at,
                         float *pre, float *y);
/** dy *= f'(from); sums += its rows (NULL: not wanted). from: the input where
 *  activation_needs_input(), otherwise the output. */
void cpu_activation_bias_backward(struct activation activation, const float *from,
                                  struct activation_rows at, float *dy, float *sums);

enum rc cpu_activation_forward(struct backend *backend, struct activation activation, const void *x,
                               void *y, size_t n);
enum rc cpu_activation_backward(struct backend *backend, struct activation activation,
                                const void *x, const void *y, const void *dy, void *dx, size_t n);
enum rc cpu_add(struct backend *backend, const void *a, const void *b, bool with_relu, void *y,
                size_t n);
enum rc cpu_dropout(struct backend *backend, const struct dropout *dropout, const void *x, void *y,
                    size_t n);
enum rc cpu_copy_rows(struct backend *backend, const struct copy_rows *copy, const void *x,
                      void *y);

#endif
