/*
 * Group normalisation (Wu, He 2018), image by image: sums per channel, from them mean and variance
 * per group, then one affine map per channel. Groups need not agree with the blocks of the layout:
 * channels come in order, so a group ends when its last channel has been seen. Runs on the calling
 * thread.
 */
#include "kernels/cpu/norm/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference/norm.h"

#include <math.h>
#include <string.h>

/* One image on its way. */
struct group_pass {
    const struct group_norm *norm;
    struct norm_view view;
    uint32_t per; /* channels of a group */
    double count; /* and its values */
};

/* The group of each channel in turn, without divisions. */
struct group_cursor {
    uint32_t group, seen;
};

static uint32_t group_next(struct group_cursor *cursor, uint32_t per)
{
    uint32_t group = cursor->group;

    if (++cursor->seen == per) {
        cursor->group++;
        cursor->seen = 0;
    }
    return group;
}

static struct group_pass group_pass_of(const struct group_norm *norm)
{
    struct group_pass pass = {.norm = norm, .view = norm_view_of(norm->shape, 1)};

    CHECK(norm->groups > 0 && norm->groups <= GROUP_NORM_GROUPS_MAX);
    CHECK(norm->shape.channels % norm->groups == 0);
    pass.per = norm->shape.channels / norm->groups;
    pass.count = (double)image_values(norm->shape) / (double)norm->groups;
    return pass;
}

static void group_statistics(const struct group_pass *pass, const float *x, float *mean,
                             float *rstd)
{
    struct norm_tile tile = {0};
    struct norm_sums part;
    double sum = 0.0, squares = 0.0;
    uint32_t group = 0, seen = 0;

    while (norm_tile_next(&pass->view, &tile)) {
        norm_tile_collect(&tile, x, &part);
        for (uint32_t l = 0; l < tile.period; l++) {
            double centre, variance;
            sum += part.first[l];
            squares += part.second[l];
            if (++seen < pass->per) continue;
            centre = sum / pass->count;
            variance = squares / pass->count - centre * centre;
            if (variance < 0.0) variance = 0.0;
            mean[group] = (float)centre;
            rstd[group] = (float)(1.0 / sqrt(variance + (double)pass->norm->epsilon));
            group++;
            seen = 0;
            sum = squares = 0.0;
        }
    }
}

static void group_apply(const struct group_pass *pass, const float *x,
                        const struct channel_affine *affine, float *y)
{
    struct norm_tile tile = {0};
    struct norm_affine lanes = {.with_relu = false};
    struct group_cursor cursor = {0};

    while (norm_tile_next(&pass->view, &tile)) {
        for (uint32_t l = 0; l < tile.period; l++) {
            uint32_t c = tile.channel + l, group = group_next(&cursor, pass->per);
            lanes.mean[l] = affine->mean[group];
            lanes.scale[l] = affine->rstd[group] * affine->gamma[c];
            lanes.shift[l] = affine->beta[c];
        }
        norm_tile_apply(&tile, &lanes, x, y);
    }
}

enum rc cpu_group_norm_forward(struct backend *backend, const struct group_norm *norm,
                               uint32_t images, const void *x, const float *gamma,
                               const float *beta, void *y, float *mean, float *rstd)
{
    struct group_pass pass = group_pass_of(norm);
    size_t values = image_values(norm->shape);

    for (size_t n = 0; n < images; n++) {
        const float *from = (const float *)x + n * values;
        float *to = (float *)y + n * values;
        struct channel_affine affine = {.mean = mean + n * norm->groups,
                                        .rstd = rstd + n * norm->groups,
                                        .gamma = gamma,
                                        .beta = beta};
        if (cpu_of(backend)->options.is_reference) {
            reference_group_norm_forward(norm, from, gamma, beta, to, mean + n * norm->groups,
                                         rstd + n * norm->groups);
            continue;
        }
        group_statistics(&pass, from, mean + n * norm->groups, rstd + n * norm->groups);
        group_apply(&pass, from, &affine, to);
    }
    return RC_OK;
}

/* Sums per group of dy gamma and of dy gamma (x - mean); the channels' own go to dgamma, dbeta. */
static void group_backward_collect(const struct group_pass *pass, const struct norm_backward *image,
                                   double (*sums)[2])
{
    struct norm_tile tile = {0};
    struct norm_sums part;
    struct group_cursor centres = {0}, cursor = {0};

    memset(sums, 0, pass->norm->groups * sizeof(*sums));
    while (norm_tile_next(&pass->view, &tile)) {
        struct norm_products products = {.x = image->x, .dy = image->dy};
        for (uint32_t l = 0; l < tile.period; l++) {
            products.mean[l] = image->mean[group_next(&centres, pass->per)];
        }
        norm_tile_backward_collect(&tile, &products, &part);
        for (uint32_t l = 0; l < tile.period; l++) {
            uint32_t c = tile.channel + l, group = group_next(&cursor, pass->per);
            double gamma = (double)image->gamma[c], rstd = (double)image->rstd[group];
            double dbeta = image->is_first ? 0.0 : (double)image->dbeta[c];
            double dgamma = image->is_first ? 0.0 : (double)image->dgamma[c];
            image->dbeta[c] = (float)(dbeta + part.first[l]);
            image->dgamma[c] = (float)(dgamma + part.second[l] * rstd);
            sums[group][0] += gamma * part.first[l];
            sums[group][1] += gamma * part.second[l];
        }
    }
}

static void group_backward_apply(const struct group_pass *pass, const struct norm_backward *image,
                                 double (*sums)[2])
{
    struct norm_tile tile = {0};
    struct norm_gradient lanes = {.adds = image->adds_to_dx};
    struct group_cursor cursor = {0};
    double per = 1.0 / pass->count;

    while (norm_tile_next(&pass->view, &tile)) {
        for (uint32_t l = 0; l < tile.period; l++) {
            uint32_t c = tile.channel + l, group = group_next(&cursor, pass->per);
            double rstd = (double)image->rstd[group], scale = rstd * per;
            lanes.mean[l] = image->mean[group];
            lanes.dy_scale[l] = image->rstd[group] * image->gamma[c];
            lanes.x_scale[l] = (float)(-scale * rstd * rstd * sums[group][1]);
            lanes.shift[l] = (float)(-scale * sums[group][0]);
        }
        norm_tile_backward_apply(&tile, &lanes, image->x, image->dy, image->dx);
    }
}

enum rc cpu_group_norm_backward(struct backend *backend, const struct group_norm *norm,
                                uint32_t images, const struct norm_backward *pass)
{
    struct group_pass group = group_pass_of(norm);
    size_t values = image_values(norm->shape);
    double sums[GROUP_NORM_GROUPS_MAX][2];

    CHECK(!(pass->adds_to_dx && pass->dx == pass->dy));
    for (size_t n = 0; n < images; n++) {
        struct norm_backward image = *pass;
        image.x = (const float *)pass->x + n * values;
        image.dy = (const float *)pass->dy + n * values;
        image.mean += n * norm->groups;
        image.rstd += n * norm->groups;
        image.is_first = pass->is_first && n == 0;
        if (image.dx != NULL) image.dx = (float *)pass->dx + n * values;
        if (cpu_of(backend)->options.is_reference) {
            reference_group_norm_backward(norm, &image);
            continue;
        }
        group_backward_collect(&group, &image, sums);
        if (image.dx != NULL) group_backward_apply(&group, &image, sums);
    }
    return RC_OK;
}
