/*
 * reference: the plain C twin of every operation: its specification and its oracle. Straight from
 * the definitions, float64 accumulation, plain layouts, no regard for speed. Any thread.
 */
#ifndef GRAPEVINE_KERNELS_CPU_REFERENCE_REFERENCE_H
#define GRAPEVINE_KERNELS_CPU_REFERENCE_REFERENCE_H

#include "kernels/backend.h"

void reference_axpy(float a, const float *x, float *y, size_t n);
void reference_scale(float a, float *x, size_t n);
void reference_add_difference(float a, const float *x, const float *base, float *y, size_t n);
double reference_squared_norm(const float *x, size_t n);
bool reference_is_finite(const float *x, size_t n);
void reference_relu_forward(float *x, size_t n);
void reference_relu_backward(const float *y, float *dy, size_t n);
void reference_gemm(const struct gemm *gemm);
/* Convolutions on `options->images` images, any `in.block`, plain outputs. */
void reference_conv_forward(const struct conv_options *options, const float *x, const float *weight,
                            const float *bias, float *y);
void reference_conv_backward_data(const struct conv_options *options, const float *weight,
                                  const float *dy, float *dx);
void reference_conv_backward_weights(const struct conv_options *options, const float *x,
                                     const float *dy, bool is_first, float *dweight, float *dbias);
void reference_pool_forward(const struct pool_options *options, uint32_t images, const float *x,
                            float *y, uint8_t *winner);
void reference_pool_backward(const struct pool_options *options, uint32_t images, const float *dy,
                             const uint8_t *winner, float *dx);
void reference_global_average_forward(struct image_shape in, uint32_t images, const float *x,
                                      float *y);
void reference_global_average_backward(struct image_shape in, uint32_t images, const float *dy,
                                       float *dx);
void reference_subsample_forward(const struct subsample *options, uint32_t images, const float *x,
                                 float *y);
void reference_subsample_backward(const struct subsample *options, uint32_t images, const float *dy,
                                  float *dx);
void reference_relayout(struct image_shape from, uint32_t to_block, uint32_t images, const float *x,
                        float *y);
void reference_update(const struct update *update, const float *gradient, float *moments,
                      float *values, size_t n);

/* Muon's quintic: x -> a x + b x^3 + c x^5 on singular values that sum up to 1 in squares. */
#define NEWTON_SCHULZ_A       3.4445
#define NEWTON_SCHULZ_B       (-4.7750)
#define NEWTON_SCHULZ_C       2.0315
#define NEWTON_SCHULZ_EPSILON 1e-7
enum { NEWTON_SCHULZ_STEPS = 5 };

/* The rate of a whole layer, from norms; the twins and the fused kernels share these two. */
float update_lars_rate(const struct update *update, double value_norm, double gradient_norm);
float update_lamb_rate(const struct update *update, double value_norm, double direction_norm);
/** Where channel `c`, row `y`, column `x` of an image is. */
static inline size_t reference_index(struct image_shape shape, uint32_t c, uint32_t y, uint32_t x)
{
    size_t group = c / shape.block, lane = c % shape.block;

    return ((group * shape.height + y) * shape.width + x) * shape.block + lane;
}

#endif
