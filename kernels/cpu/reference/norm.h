/*
 * reference_norm: the plain C twins of the normalisations: the papers' definitions in float64, any
 * layout. Any thread.
 */
#ifndef GRAPEVINE_KERNELS_CPU_REFERENCE_NORM_H
#define GRAPEVINE_KERNELS_CPU_REFERENCE_NORM_H

#include "kernels/backend.h"

void reference_batch_norm_collect(const struct batch_norm *norm, uint32_t images, const float *x,
                                  double *sums);
void reference_batch_norm_apply(const struct batch_norm *norm, uint32_t images, const float *x,
                                const struct channel_affine *affine, float *y);
void reference_batch_norm_backward_collect(const struct batch_norm *norm, uint32_t images,
                                           const struct batch_norm_backward *pass);
void reference_batch_norm_backward_apply(const struct batch_norm *norm, uint32_t images,
                                         const struct batch_norm_backward *pass);
void reference_group_norm_forward(const struct group_norm *norm, const float *x, const float *gamma,
                                  const float *beta, float *y, float *mean, float *rstd);
/** Of one image; `is_first`: overwrite dgamma and dbeta. */
void reference_group_norm_backward(const struct group_norm *norm, const struct norm_backward *pass);
void reference_layer_norm_forward(const struct layer_norm *norm, const float *x, const float *gamma,
                                  const float *beta, float *y, float *mean, float *rstd);
void reference_layer_norm_backward(const struct layer_norm *norm, const struct norm_backward *pass);
void reference_weight_norm_forward(size_t rows, size_t columns, const float *v, const float *g,
                                   float *w, float *norms);
void reference_weight_norm_backward(const struct weight_norm_backward *pass);

#endif
