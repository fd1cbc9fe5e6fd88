/* reference_dense: plain C twins of activations, dropout, sums and dense layers. See reference.h.
 */
#ifndef GRAPEVINE_KERNELS_CPU_REFERENCE_DENSE_H
#define GRAPEVINE_KERNELS_CPU_REFERENCE_DENSE_H

#include "kernels/backend.h"

double reference_activation(struct activation activation, double x);
/** f'(x). */
double reference_activation_slope(struct activation activation, double x);
void reference_add(const float *a, const float *b, bool with_relu, float *y, size_t n);
void reference_activation_forward(struct activation activation, const float *x, float *y, size_t n);
void reference_activation_backward(struct activation activation, const float *x, const float *y,
                                   const float *dy, float *dx, size_t n);
/** Philox4x32-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3").
 */
void reference_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4]);
void reference_dropout(const struct dropout *dropout, const float *x, float *y, size_t n);
void reference_copy_rows(const struct copy_rows *copy, const float *x, float *y);

/** A dense layer in float64. RC_NOMEM. */
MUST_USE enum rc reference_linear_create(const struct linear_options *options,
                                         struct linear **linear);

/* Weyl steps and multipliers of Philox4x32. */
#define PHILOX_MULTIPLIER_0 UINT32_C(0xD2511F53)
#define PHILOX_MULTIPLIER_1 UINT32_C(0xCD9E8D57)
#define PHILOX_STEP_0       UINT32_C(0x9E3779B9)
#define PHILOX_STEP_1       UINT32_C(0xBB67AE85)
enum { PHILOX_ROUNDS = 10 };

/** A value is dropped if its word is below this. */
uint32_t dropout_threshold(float rate);

#endif
