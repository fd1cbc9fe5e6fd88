/*
 * Batch normalisation in halves (Ioffe, Szegedy 2015): sums over slices of images, their end, and
 * one affine map per channel. The gradient with respect to x is a map of the same kind,
 *     dx = gamma rstd (dy - sum dy / n - (x - mean) rstd^2 sum dy (x - mean) / n),
 * so each half passes once over its images. Runs on the calling thread.
 */
#include "kernels/cpu/norm/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference/norm.h"

#include <math.h>

enum rc cpu_batch_norm_collect(struct backend *backend, const struct batch_norm *norm,
                               uint32_t images, const void *x, double *sums)
{
    struct norm_view view = norm_view_of(norm->shape, images);
    struct norm_tile tile = {0};
    struct norm_sums part;

    if (cpu_of(backend)->options.is_reference) {
        reference_batch_norm_collect(norm, images, x, sums);
        return RC_OK;
    }
    while (norm_tile_next(&view, &tile)) {
        norm_tile_collect(&tile, x, &part);
        for (uint32_t l = 0; l < tile.period; l++) {
            sums[tile.channel + l] += part.first[l];
            sums[norm->shape.channels + tile.channel + l] += part.second[l];
        }
    }
    return RC_OK;
}

static float updated(float running, float momentum, double value)
{
    return (float)((1.0 - (double)momentum) * (double)running + (double)momentum * value);
}

enum rc cpu_batch_norm_close(struct backend *backend, const struct batch_norm *norm,
                             const struct batch_norm_close *close)
{
    uint32_t channels = norm->shape.channels;
    double n = (double)close->count;

    CHECK(close->count > 0);
    (void)backend;
    for (uint32_t c = 0; c < channels; c++) {
        double mean = close->sums[c] / n;
        double variance = close->sums[channels + c] / n - mean * mean;
        if (variance < 0.0) variance = 0.0;
        close->mean[c] = (float)mean;
        close->rstd[c] = (float)(1.0 / sqrt(variance + (double)norm->epsilon));
        if (close->running_mean != NULL) {
            close->running_mean[c] = updated(close->running_mean[c], norm->momentum, mean);
        }
        if (close->running_variance != NULL) {
            double unbiased = close->count > 1 ? variance * n / (n - 1.0) : variance;
            close->running_variance[c] =
                updated(close->running_variance[c], norm->momentum, unbiased);
        }
    }
    return RC_OK;
}

enum rc cpu_batch_norm_rstd(struct backend *backend, const struct batch_norm *norm,
                            const float *variance, float *rstd)
{
    (void)backend;
    for (uint32_t c = 0; c < norm->shape.channels; c++) {
        rstd[c] = (float)(1.0 / sqrt((double)variance[c] + (double)norm->epsilon));
    }
    return RC_OK;
}

enum rc cpu_batch_norm_apply(struct backend *backend, const struct batch_norm *norm,
                             uint32_t images, const void *x, const struct channel_affine *affine,
                             void *y)
{
    struct norm_view view = norm_view_of(norm->shape, images);
    struct norm_tile tile = {0};
    struct norm_affine lanes = {.with_relu = norm->with_relu};

    if (cpu_of(backend)->options.is_reference) {
        reference_batch_norm_apply(norm, images, x, affine, y);
        return RC_OK;
    }
    while (norm_tile_next(&view, &tile)) {
        for (uint32_t l = 0; l < tile.period; l++) {
            uint32_t c = tile.channel + l;
            lanes.mean[l] = affine->mean[c];
            lanes.scale[l] = affine->rstd[c] * affine->gamma[c];
            lanes.shift[l] = affine->beta[c];
        }
        norm_tile_apply(&tile, &lanes, x, y);
    }
    return RC_OK;
}

enum rc cpu_batch_norm_backward_collect(struct backend *backend, const struct batch_norm *norm,
                                        uint32_t images, const struct batch_norm_backward *pass)
{
    struct norm_view view = norm_view_of(norm->shape, images);
    struct norm_tile tile = {0};
    struct norm_sums part;
    struct norm_products products = {
        .x = pass->x, .dy = pass->dy, .y = norm->with_relu ? pass->y : NULL, .masked = pass->dy};

    CHECK(!norm->with_relu || pass->y != NULL);
    if (cpu_of(backend)->options.is_reference) {
        reference_batch_norm_backward_collect(norm, images, pass);
        return RC_OK;
    }
    while (norm_tile_next(&view, &tile)) {
        for (uint32_t l = 0; l < tile.period; l++) {
            products.mean[l] = pass->mean[tile.channel + l];
        }
        norm_tile_backward_collect(&tile, &products, &part);
        for (uint32_t l = 0; l < tile.period; l++) {
            uint32_t c = tile.channel + l;
            pass->sums[c] += part.first[l];
            pass->sums[norm->shape.channels + c] += part.second[l] * (double)pass->rstd[c];
        }
    }
    return RC_OK;
}

enum rc cpu_batch_norm_backward_close(struct backend *backend, const struct batch_norm *norm,
                                      const double *sums, bool is_first, float *dgamma,
                                      float *dbeta)
{
    uint32_t channels = norm->shape.channels;

    (void)backend;
    for (uint32_t c = 0; c < channels; c++) {
        dbeta[c] = (float)((is_first ? 0.0 : (double)dbeta[c]) + sums[c]);
        dgamma[c] = (float)((is_first ? 0.0 : (double)dgamma[c]) + sums[channels + c]);
    }
    return RC_OK;
}

enum rc cpu_batch_norm_backward_apply(struct backend *backend, const struct batch_norm *norm,
                                      uint32_t images, const struct batch_norm_backward *pass)
{
    struct norm_view view = norm_view_of(norm->shape, images);
    struct norm_tile tile = {0};
    struct norm_gradient lanes = {.adds = pass->adds_to_dx};
    double per = 1.0 / (double)pass->count;

    CHECK(pass->count > 0 && !(pass->adds_to_dx && pass->dx == pass->dy));
    if (cpu_of(backend)->options.is_reference) {
        reference_batch_norm_backward_apply(norm, images, pass);
        return RC_OK;
    }
    while (norm_tile_next(&view, &tile)) {
        for (uint32_t l = 0; l < tile.period; l++) {
            uint32_t c = tile.channel + l;
            double scale = (double)pass->gamma[c] * (double)pass->rstd[c] * per;
            lanes.mean[l] = pass->mean[c];
            lanes.dy_scale[l] = pass->gamma[c] * pass->rstd[c];
            lanes.x_scale[l] =
                (float)(-scale * (double)pass->rstd[c] * pass->sums[norm->shape.channels + c]);
            lanes.shift[l] = (float)(-scale * pass->sums[c]);
        }
        norm_tile_backward_apply(&tile, &lanes, pass->x, pass->dy, pass->dx);
    }
    return RC_OK;
}
