/*
 * norm: what batch and group normalisation share: four passes over the values of channels
 * (channels.cuh), in passes.cu. A batch is one segment whose channels have statistics of their
 * own; for group normalisation each image is a segment, and its channels share those of a group.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_NORM_NORM_CUH
#define GRAPEVINE_KERNELS_CUDA_NORM_NORM_CUH

#include "kernels/cuda/channels.cuh"

/* Statistics: [segments][groups], of `per` channels each. */
struct norm_statistics {
    const float *mean, *rstd;
    uint32_t groups, per;
};

/* y = (x - mean) rstd gamma + beta, then max(0, .) if wanted. */
struct norm_affine {
    struct norm_statistics statistics;
    const float *gamma, *beta; /* [channels] */
    bool with_relu;
};

/* What the sums of a backward pass are of: dy, and dy (x - mean). */
struct norm_products {
    struct norm_statistics statistics;
    bool masks; /* dy = 0, in place, where y is not above 0 */
};

/* dx = rstd (gamma dy - g first / count - g second / count (x - mean) rstd). */
struct norm_gradient {
    struct norm_statistics statistics;
    const float *gamma;
    const double *sums; /* [segments][2][groups]: first, second */
    double count;
    bool is_batch; /* g is gamma, not yet in the sums; otherwise 1 */
    bool adds;     /* dx += */
};

/* Rows that a thread of the passes that sum, and of those that do not, should have at least. */
static const struct channel_share norm_sum_share = {8, 4}, norm_apply_share = {4, 4};

static inline size_t norm_partials_values(const struct channel_view *view)
{
    return 2 * static_cast<size_t>(view->segments) * view->splits * view->channels;
}

/** partials[segment][split][2][channels]: sums of x and x^2. */
enum rc cuda_norm_collect(struct cuda_backend *cuda, const struct channel_view *view, const void *x,
                          double *partials);
enum rc cuda_norm_apply(struct cuda_backend *cuda, const struct channel_view *view,
                        const struct norm_affine *affine, const void *x, void *y);
/** partials: as above, of dy and dy (x - mean). */
enum rc cuda_norm_backward_collect(struct cuda_backend *cuda, const struct channel_view *view,
                                   const struct norm_products *products, const void *x,
                                   const void *y, void *dy, double *partials);
enum rc cuda_norm_backward_apply(struct cuda_backend *cuda, const struct channel_view *view,
                                 const struct norm_gradient *gradient, const void *x,
                                 const void *dy, void *dx);

#endif
