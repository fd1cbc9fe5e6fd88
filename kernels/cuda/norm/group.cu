/*
 * Group normalisation (Wu, He 2018): sums per channel of each image, from them mean and variance
 * per group, then one affine map per channel, in the passes of passes.cu, for which each image
 * is a segment. A batch goes in parts where scratch memory for its sums would be large. Twin:
 * kernels/cpu/norm/group.c.
 */
#include "kernels/cuda/norm/norm.cuh"

#define PART_BYTES ((size_t)64 << 20) /* of scratch */

/* Some images of a call. */
struct group_part {
    struct channel_view view;
    uint32_t groups, per; /* channels of a group */
    double count;         /* values of a group */
    double *partials;     /* [images][splits][2][channels] */
    double *sums;         /* [images][2][groups] */
};

/* Adds up what a warp's group has in its image's partials: both sums, each channel's times its
 * weight unless that is NULL. */
__device__ static inline void group_totals(const struct group_part *part, size_t image,
                                           uint32_t group, const float *weights, double totals[2])
{
    const struct channel_view *view = &part->view;
    const double *from = part->partials + 2 * image * view->splits * view->channels;
    uint32_t lane = threadIdx.x % WARP;

    totals[0] = totals[1] = 0.0;
    for (uint32_t i = lane; i < view->splits * part->per; i += WARP) {
        uint32_t split = i / part->per, channel = group * part->per + i % part->per;
        const double *at = from + 2 * static_cast<size_t>(split) * view->channels + channel;
        double weight = weights == NULL ? 1.0 : static_cast<double>(weights[channel]);
        totals[0] += weight * at[0];
        totals[1] += weight * at[view->channels];
    }
    totals[0] = warp_sum(totals[0]);
    totals[1] = warp_sum(totals[1]);
}

/* A warp for each group of each image. */
#define WARP_ITEM ((blockIdx.x * static_cast<size_t>(THREADS) + threadIdx.x) / WARP)

static __global__ void __launch_bounds__(THREADS)
    close_groups(struct group_part part, double epsilon, float *mean, float *rstd)
{
    size_t image = WARP_ITEM / part.groups;
    double totals[2], centre, variance;

    if (image >= part.view.segments) return;
    group_totals(&part, image, static_cast<uint32_t>(WARP_ITEM % part.groups), NULL, totals);
    if (threadIdx.x % WARP > 0) return;
    centre = totals[0] / part.count;
    variance = totals[1] / part.count - centre * centre;
    if (variance < 0.0) variance = 0.0;
    mean[WARP_ITEM] = static_cast<float>(centre);
    rstd[WARP_ITEM] = static_cast<float>(1.0 / sqrt(variance + epsilon));
}

/* Sums of dy gamma and of dy gamma (x - mean) rstd. */
static __global__ void __launch_bounds__(THREADS)
    close_products(struct group_part part, const float *gamma, const float *rstd)
{
    size_t image = WARP_ITEM / part.groups;
    uint32_t group = static_cast<uint32_t>(WARP_ITEM % part.groups);
    double totals[2], *to = part.sums + 2 * image * part.groups + group;

    if (image >= part.view.segments) return;
    group_totals(&part, image, group, gamma, totals);
    if (threadIdx.x % WARP > 0) return;
    to[0] = totals[0];
    to[part.groups] = totals[1] * static_cast<double>(rstd[WARP_ITEM]);
}

/* dbeta and dgamma, the sums over all images; blocks of WARP x WARP threads. */
static __global__ void __launch_bounds__(WARP *WARP)
    close_parameters(struct group_part part, const float *rstd, bool is_first, float *dgamma,
                     float *dbeta)
{
    __shared__ double lines[WARP][WARP + 1];
    uint32_t channels = part.view.channels, splits = part.view.splits;
    size_t column = PARTIALS_COLUMN, count = static_cast<size_t>(part.view.segments) * splits;
    double sum = 0.0;

    for (size_t i = threadIdx.y; column < 2 * static_cast<size_t>(channels) && i < count;
         i += WARP) {
        double value = part.partials[i * 2 * channels + column];
        if (column >= channels) {
            size_t group = (column - channels) / part.per;
            value *= static_cast<double>(rstd[i / splits * part.groups + group]);
        }
        sum += value;
    }
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= 2 * static_cast<size_t>(channels)) return;
    sum = 0.0;
    for (int line = 0; line < WARP; line++) {
        sum += lines[line][threadIdx.x];
    }
    float *to = column < channels ? dbeta + column : dgamma + (column - channels);
    *to = static_cast<float>((is_first ? 0.0 : static_cast<double>(*to)) + sum);
}

/* The next of `left` images, as many as scratch memory is wanted for. */
static enum rc group_part_of(struct cuda_backend *cuda, const struct group_norm *norm,
                             uint32_t left, bool are_aligned, struct group_part *part)
{
    struct channel_view view =
        channel_view_of(cuda, norm->shape, left, 1, are_aligned, norm_sum_share);
    size_t each = norm_partials_values(&view) / left + 2 * static_cast<size_t>(norm->groups);
    size_t most = PART_BYTES / sizeof(double) / each;
    enum rc rc;

    if (most < left) view.segments = most > 0 ? static_cast<uint32_t>(most) : 1;
    part->view = view;
    part->groups = norm->groups;
    part->per = norm->shape.channels / norm->groups;
    part->count = static_cast<double>(image_values(norm->shape)) / norm->groups;
    rc = cuda_scratch_reserve(cuda, view.segments * each * sizeof(double));
    part->partials = static_cast<double *>(cuda->scratch);
    part->sums = part->partials + norm_partials_values(&view);
    return rc;
}

static unsigned warp_blocks(const struct group_part *part)
{
    return static_cast<unsigned>(
        (static_cast<size_t>(part->view.segments) * part->groups + THREADS / WARP - 1) /
        (THREADS / WARP));
}

static void group_check(const struct group_norm *norm)
{
    CHECK(norm->groups > 0 && norm->groups <= GROUP_NORM_GROUPS_MAX);
    CHECK(norm->shape.channels % norm->groups == 0);
}

static enum rc forward_part(struct cuda_backend *cuda, const struct group_norm *norm,
                            const struct group_part *part, const struct norm_affine *map,
                            const void *x, void *y, float *mean, float *rstd)
{
    struct channel_view view = channel_view_of(cuda, norm->shape, part->view.segments, 1,
                                               is_aligned(x) && is_aligned(y), norm_apply_share);
    enum rc rc = cuda_norm_collect(cuda, &part->view, x, part->partials);

    if (rc != RC_OK) return rc;
    CUDA_TRY(cuda, launch(close_groups, warp_blocks(part), THREADS, 0, cuda->stream, *part,
                          norm->epsilon, mean, rstd));
    rc = cuda_norm_apply(cuda, &view, map, x, y);
out:
    return rc;
}

enum rc cuda_group_norm_forward(struct backend *backend, const struct group_norm *norm,
                                uint32_t images, const void *x, const float *gamma,
                                const float *beta, void *y, float *mean, float *rstd)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct group_part part;
    enum rc rc = RC_OK;

    group_check(norm);
    for (uint32_t n = 0; rc == RC_OK && n < images; n += part.view.segments) {
        size_t first = static_cast<size_t>(n) * norm->groups, at = n * image_values(norm->shape);
        const void *from = backend_at(backend, x, at);
        rc = group_part_of(cuda, norm, images - n, is_aligned(from), &part);
        if (rc != RC_OK) break;
        struct norm_affine map = {
            {mean + first, rstd + first, part.groups, part.per}, gamma, beta, false};
        rc = forward_part(cuda, norm, &part, &map, from, backend_at(backend, y, at), mean + first,
                          rstd + first);
    }
    return rc;
}

/* pass: of the part's images. */
static enum rc backward_part(struct cuda_backend *cuda, const struct group_norm *norm,
                             const struct group_part *part, const struct norm_backward *pass)
{
    struct norm_products products = {{pass->mean, pass->rstd, part->groups, part->per}, false};
    struct norm_gradient gradient = {products.statistics, pass->gamma, part->sums,
                                     part->count,         false,       pass->adds_to_dx};
    bool are_aligned = is_aligned(pass->x) && is_aligned(pass->dy) && is_aligned(pass->dx);
    struct channel_view view =
        channel_view_of(cuda, norm->shape, part->view.segments, 1, are_aligned, norm_apply_share);
    enum rc rc = cuda_norm_backward_collect(cuda, &part->view, &products, pass->x, NULL,
                                            const_cast<void *>(pass->dy), part->partials);

    if (rc != RC_OK) return rc;
    CUDA_TRY(cuda, launch(close_parameters, partials_blocks(2 * static_cast<size_t>(view.channels)),
                          dim3(WARP, WARP), 0, cuda->stream, *part, pass->rstd, pass->is_first,
                          pass->dgamma, pass->dbeta));
    if (pass->dx == NULL) goto out;
    CUDA_TRY(cuda, launch(close_products, warp_blocks(part), THREADS, 0, cuda->stream, *part,
                          pass->gamma, pass->rstd));
    rc = cuda_norm_backward_apply(cuda, &view, &gradient, pass->x, pass->dy, pass->dx);
out:
    return rc;
}

enum rc cuda_group_norm_backward(struct backend *backend, const struct group_norm *norm,
                                 uint32_t images, const struct norm_backward *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct group_part part;
    enum rc rc = RC_OK;

    group_check(norm);
    CHECK(!(pass->adds_to_dx && pass->dx == pass->dy));
    for (uint32_t n = 0; rc == RC_OK && n < images; n += part.view.segments) {
        size_t first = static_cast<size_t>(n) * norm->groups, at = n * image_values(norm->shape);
        struct norm_backward some = *pass;
        some.x = backend_at(backend, pass->x, at);
        some.dy = backend_at(backend, pass->dy, at);
        if (some.dx != NULL) some.dx = backend_at(backend, pass->dx, at);
        some.mean += first;
        some.rstd += first;
        some.is_first = pass->is_first && n == 0;
        rc =
            group_part_of(cuda, norm, images - n, is_aligned(some.x) && is_aligned(some.dy), &part);
        if (rc == RC_OK) rc = backward_part(cuda, norm, &part, &some);
    }
    return rc;
}
