/*
 * Batch normalisation in halves (Ioffe, Szegedy 2015): sums over slices of images, their end, and
 * one affine map per channel, in the passes of passes.cu; the gradient with respect to x is a
 * map of the same kind,
 *     dx = gamma rstd (dy - sum dy / n - (x - mean) rstd^2 sum dy (x - mean) / n).
 * Twin: kernels/cpu/norm/batch.c.
 */
#include "kernels/cuda/norm/norm.cuh"

/* sums[2][channels] += partials[splits][2][channels]; the second half times rstd, unless NULL. */
static __global__ void __launch_bounds__(WARP *WARP)
    add_partials(const double *partials, size_t splits, size_t channels, const float *rstd,
                 double *sums)
{
    size_t column = PARTIALS_COLUMN;
    double total = partials_total(partials, splits, 2 * channels, column);

    if (threadIdx.y > 0 || column >= 2 * channels) return;
    if (rstd != NULL && column >= channels) total *= static_cast<double>(rstd[column - channels]);
    sums[column] += total;
}

static enum rc add_to_sums(struct cuda_backend *cuda, const struct channel_view *view,
                           const float *rstd, double *sums)
{
    return CUDA_CHECK(cuda,
                      launch(add_partials, partials_blocks(2 * view->channels), dim3(WARP, WARP), 0,
                             cuda->stream, static_cast<const double *>(cuda->scratch), view->splits,
                             view->channels, rstd, sums));
}

enum rc cuda_batch_norm_collect(struct backend *backend, const struct batch_norm *norm,
                                uint32_t images, const void *x, double *sums)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    if (images == 0) return RC_OK;
    struct channel_view view =
        channel_view_of(cuda, norm->shape, 1, images, is_aligned(x), norm_sum_share);
    rc = cuda_scratch_reserve(cuda, norm_partials_values(&view) * sizeof(double));
    if (rc == RC_OK) rc = cuda_norm_collect(cuda, &view, x, static_cast<double *>(cuda->scratch));
    return rc == RC_OK ? add_to_sums(cuda, &view, NULL, sums) : rc;
}

struct batch_close_operation {
    struct batch_norm_close close;
    uint32_t channels;
    double epsilon, momentum;

    __device__ float updated(float running, double value) const
    {
        return static_cast<float>((1.0 - momentum) * static_cast<double>(running) +
                                  momentum * value);
    }

    template <int N> __device__ void at(size_t c) const
    {
        double n = static_cast<double>(close.count), mean = close.sums[c] / n;
        double variance = close.sums[channels + c] / n - mean * mean;

        if (variance < 0.0) variance = 0.0;
        close.mean[c] = static_cast<float>(mean);
        close.rstd[c] = static_cast<float>(1.0 / sqrt(variance + epsilon));
        if (close.running_mean != NULL) {
            close.running_mean[c] = updated(close.running_mean[c], mean);
        }
        if (close.running_variance != NULL) {
            double unbiased = close.count > 1 ? variance * n / (n - 1.0) : variance;
            close.running_variance[c] = updated(close.running_variance[c], unbiased);
        }
    }
};

enum rc cuda_batch_norm_close(struct backend *backend, const struct batch_norm *norm,
                              const struct batch_norm_close *close)
{
    batch_close_operation operation = {*close, norm->shape.channels,
                                       static_cast<double>(norm->epsilon),
                                       static_cast<double>(norm->momentum)};

    CHECK(close->count > 0);
    return for_each_value<1>(cuda_of(backend), operation, norm->shape.channels, true);
}

struct batch_rstd_operation {
    const float *variance;
    double epsilon;
    float *rstd;

    template <int N> __device__ void at(size_t c) const
    {
        rstd[c] = static_cast<float>(1.0 / sqrt(static_cast<double>(variance[c]) + epsilon));
    }
};

enum rc cuda_batch_norm_rstd(struct backend *backend, const struct batch_norm *norm,
                             const float *variance, float *rstd)
{
    batch_rstd_operation operation = {variance, static_cast<double>(norm->epsilon), rstd};

    return for_each_value<1>(cuda_of(backend), operation, norm->shape.channels, true);
}

enum rc cuda_batch_norm_apply(struct backend *backend, const struct batch_norm *norm,
                              uint32_t images, const void *x, const struct channel_affine *affine,
                              void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct norm_affine map = {{affine->mean, affine->rstd, norm->shape.channels, 1},
                              affine->gamma,
                              affine->beta,
                              norm->with_relu};

    if (images == 0) return RC_OK;
    struct channel_view view = channel_view_of(cuda, norm->shape, 1, images,
                                               is_aligned(x) && is_aligned(y), norm_apply_share);
    return cuda_norm_apply(cuda, &view, &map, x, y);
}

enum rc cuda_batch_norm_backward_collect(struct backend *backend, const struct batch_norm *norm,
                                         uint32_t images, const struct batch_norm_backward *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct norm_products products = {{pass->mean, pass->rstd, norm->shape.channels, 1},
                                     norm->with_relu};
    bool are_aligned =
        is_aligned(pass->x) && is_aligned(pass->dy) && (!norm->with_relu || is_aligned(pass->y));
    enum rc rc;

    CHECK(!norm->with_relu || pass->y != NULL);
    if (images == 0) return RC_OK;
    struct channel_view view =
        channel_view_of(cuda, norm->shape, 1, images, are_aligned, norm_sum_share);
    rc = cuda_scratch_reserve(cuda, norm_partials_values(&view) * sizeof(double));
    if (rc != RC_OK) return rc;
    rc = cuda_norm_backward_collect(cuda, &view, &products, pass->x, pass->y, pass->dy,
                                    static_cast<double *>(cuda->scratch));
    return rc == RC_OK ? add_to_sums(cuda, &view, pass->rstd, pass->sums) : rc;
}

struct batch_backward_close_operation {
    const double *sums;
    uint32_t channels;
    bool is_first;
    float *dgamma, *dbeta;

    template <int N> __device__ void at(size_t c) const
    {
        double before_gamma = is_first ? 0.0 : static_cast<double>(dgamma[c]);
        double before_beta = is_first ? 0.0 : static_cast<double>(dbeta[c]);

        dbeta[c] = static_cast<float>(before_beta + sums[c]);
        dgamma[c] = static_cast<float>(before_gamma + sums[channels + c]);
    }
};

enum rc cuda_batch_norm_backward_close(struct backend *backend, const struct batch_norm *norm,
                                       const double *sums, bool is_first, float *dgamma,
                                       float *dbeta)
{
    batch_backward_close_operation operation = {sums, norm->shape.channels, is_first, dgamma,
                                                dbeta};

    return for_each_value<1>(cuda_of(backend), operation, norm->shape.channels, true);
}

enum rc cuda_batch_norm_backward_apply(struct backend *backend, const struct batch_norm *norm,
                                       uint32_t images, const struct batch_norm_backward *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct norm_gradient gradient = {{pass->mean, pass->rstd, norm->shape.channels, 1},
                                     pass->gamma,
                                     pass->sums,
                                     static_cast<double>(pass->count),
                                     true,
                                     pass->adds_to_dx};
    bool are_aligned = is_aligned(pass->x) && is_aligned(pass->dy) && is_aligned(pass->dx);

    CHECK(pass->count > 0 && !(pass->adds_to_dx && pass->dx == pass->dy));
    if (images == 0) return RC_OK;
    struct channel_view view =
        channel_view_of(cuda, norm->shape, 1, images, are_aligned, norm_apply_share);
    return cuda_norm_backward_apply(cuda, &view, &gradient, pass->x, pass->dy, pass->dx);
}
