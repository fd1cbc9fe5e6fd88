/* The oracle of the normalisations: every formula as its paper has it. See norm.h. */
#include "kernels/cpu/reference/norm.h"

#include "kernels/cpu/reference/reference.h"

#include <math.h>

/* Where pixel `i` of channel `c` of image `image` is. */
static size_t at(struct image_shape shape, size_t image, uint32_t c, uint32_t i)
{
    return image * image_values(shape) +
           reference_index(shape, c, i / shape.width, i % shape.width);
}

static uint32_t pixels_of(struct image_shape shape)
{
    return shape.height * shape.width;
}

void reference_batch_norm_collect(const struct batch_norm *norm, uint32_t images, const float *x,
                                  double *sums)
{
    struct image_shape shape = norm->shape;

    for (uint32_t n = 0; n < images; n++) {
        for (uint32_t c = 0; c < shape.channels; c++) {
            for (uint32_t i = 0; i < pixels_of(shape); i++) {
                double value = (double)x[at(shape, n, c, i)];
                sums[c] += value;
                sums[shape.channels + c] += value * value;
            }
        }
    }
}

void reference_batch_norm_apply(const struct batch_norm *norm, uint32_t images, const float *x,
                                const struct channel_affine *affine, float *y)
{
    struct image_shape shape = norm->shape;

    for (uint32_t n = 0; n < images; n++) {
        for (uint32_t c = 0; c < shape.channels; c++) {
            for (uint32_t i = 0; i < pixels_of(shape); i++) {
                size_t where = at(shape, n, c, i);
                double hat = ((double)x[where] - (double)affine->mean[c]) * (double)affine->rstd[c];
                double value = hat * (double)affine->gamma[c] + (double)affine->beta[c];
                y[where] = norm->with_relu && value < 0.0 ? 0.0F : (float)value;
            }
        }
    }
}

void reference_batch_norm_backward_collect(const struct batch_norm *norm, uint32_t images,
                                           const struct batch_norm_backward *pass)
{
    const float *x = pass->x, *y = pass->y;
    float *dy = pass->dy;
    struct image_shape shape = norm->shape;

    for (uint32_t n = 0; n < images; n++) {
        for (uint32_t c = 0; c < shape.channels; c++) {
            for (uint32_t i = 0; i < pixels_of(shape); i++) {
                size_t where = at(shape, n, c, i);
                double hat = ((double)x[where] - (double)pass->mean[c]) * (double)pass->rstd[c];
                if (norm->with_relu && !(y[where] > 0.0F)) dy[where] = 0.0F;
                pass->sums[c] += (double)dy[where];
                pass->sums[shape.channels + c] += (double)dy[where] * hat;
            }
        }
    }
}

void reference_batch_norm_backward_apply(const struct batch_norm *norm, uint32_t images,
                                         const struct batch_norm_backward *pass)
{
    const float *x = pass->x, *dy = pass->dy;
    float *out = pass->dx;
    struct image_shape shape = norm->shape;
    double n = (double)pass->count;

    for (uint32_t image = 0; image < images; image++) {
        for (uint32_t c = 0; c < shape.channels; c++) {
            double scale = (double)pass->gamma[c] * (double)pass->rstd[c];
            for (uint32_t i = 0; i < pixels_of(shape); i++) {
                size_t where = at(shape, image, c, i);
                double hat = ((double)x[where] - (double)pass->mean[c]) * (double)pass->rstd[c];
                double dx = scale * ((double)dy[where] - pass->sums[c] / n -
                                     hat * pass->sums[shape.channels + c] / n);
                if (pass->adds_to_dx) dx += (double)out[where];
                out[where] = (float)dx;
            }
        }
    }
}

/* Mean of the `n` values of one group, and what is left of them in squares. */
static double group_mean(const struct group_norm *norm, uint32_t group, const float *x)
{
    uint32_t per = norm->shape.channels / norm->groups, pixels = pixels_of(norm->shape);
    double sum = 0.0;

    for (uint32_t c = group * per; c < (group + 1) * per; c++) {
        for (uint32_t i = 0; i < pixels; i++) {
            sum += (double)x[at(norm->shape, 0, c, i)];
        }
    }
    return sum / ((double)per * (double)pixels);
}

static double group_variance(const struct group_norm *norm, uint32_t group, const float *x,
                             double mean)
{
    uint32_t per = norm->shape.channels / norm->groups, pixels = pixels_of(norm->shape);
    double sum = 0.0;

    for (uint32_t c = group * per; c < (group + 1) * per; c++) {
        for (uint32_t i = 0; i < pixels; i++) {
            double d = (double)x[at(norm->shape, 0, c, i)] - mean;
            sum += d * d;
        }
    }
    return sum / ((double)per * (double)pixels);
}

void reference_group_norm_forward(const struct group_norm *norm, const float *x, const float *gamma,
                                  const float *beta, float *y, float *mean, float *rstd)
{
    uint32_t per = norm->shape.channels / norm->groups;

    for (uint32_t g = 0; g < norm->groups; g++) {
        double centre = group_mean(norm, g, x);
        double scale = 1.0 / sqrt(group_variance(norm, g, x, centre) + (double)norm->epsilon);

        mean[g] = (float)centre;
        rstd[g] = (float)scale;
        for (uint32_t c = g * per; c < (g + 1) * per; c++) {
            for (uint32_t i = 0; i < pixels_of(norm->shape); i++) {
                size_t where = at(norm->shape, 0, c, i);
                y[where] = (float)(((double)x[where] - centre) * scale * (double)gamma[c] +
                                   (double)beta[c]);
            }
        }
    }
}

/* dx of one group; `sum` and `projection`: means of dy gamma and of dy gamma (x - mean) rstd. */
static void group_dx(const struct group_norm *norm, const struct norm_backward *pass,
                     uint32_t group, double sum, double projection)
{
    const float *x = pass->x, *dy = pass->dy;
    float *out = pass->dx;
    uint32_t per = norm->shape.channels / norm->groups;
    double rstd = (double)pass->rstd[group], mean = (double)pass->mean[group];

    for (uint32_t c = group * per; c < (group + 1) * per; c++) {
        for (uint32_t i = 0; i < pixels_of(norm->shape); i++) {
            size_t where = at(norm->shape, 0, c, i);
            double hat = ((double)x[where] - mean) * rstd;
            double dx =
                rstd * ((double)dy[where] * (double)pass->gamma[c] - sum - hat * projection);
            if (pass->adds_to_dx) dx += (double)out[where];
            out[where] = (float)dx;
        }
    }
}

void reference_group_norm_backward(const struct group_norm *norm, const struct norm_backward *pass)
{
    const float *x = pass->x, *dy = pass->dy;
    uint32_t per = norm->shape.channels / norm->groups, pixels = pixels_of(norm->shape);
    double n = (double)per * (double)pixels;

    for (uint32_t g = 0; g < norm->groups; g++) {
        double sum = 0.0, projection = 0.0;
        for (uint32_t c = g * per; c < (g + 1) * per; c++) {
            double dbeta = 0.0, dgamma = 0.0;
            for (uint32_t i = 0; i < pixels; i++) {
                size_t where = at(norm->shape, 0, c, i);
                dbeta += (double)dy[where];
                dgamma += (double)dy[where] * ((double)x[where] - (double)pass->mean[g]) *
                          (double)pass->rstd[g];
            }
            sum += dbeta * (double)pass->gamma[c];
            projection += dgamma * (double)pass->gamma[c];
            pass->dbeta[c] = (float)((pass->is_first ? 0.0 : (double)pass->dbeta[c]) + dbeta);
            pass->dgamma[c] = (float)((pass->is_first ? 0.0 : (double)pass->dgamma[c]) + dgamma);
        }
        if (pass->dx != NULL) group_dx(norm, pass, g, sum / n, projection / n);
    }
}

/* A row is an image of one pixel and one group. */
static struct group_norm row_norm(const struct layer_norm *norm)
{
    uint32_t columns = (uint32_t)norm->columns;

    return (struct group_norm){
        .shape = {.channels = columns, .height = 1, .width = 1, .block = 1},
        .groups = 1,
        .epsilon = norm->epsilon,
    };
}

void reference_layer_norm_forward(const struct layer_norm *norm, const float *x, const float *gamma,
                                  const float *beta, float *y, float *mean, float *rstd)
{
    struct group_norm row = row_norm(norm);

    for (size_t r = 0; r < norm->rows; r++) {
        reference_group_norm_forward(&row, x + r * norm->columns, gamma, beta,
                                     y + r * norm->columns, mean + r, rstd + r);
    }
}

void reference_layer_norm_backward(const struct layer_norm *norm, const struct norm_backward *pass)
{
    struct group_norm row = row_norm(norm);

    for (size_t r = 0; r < norm->rows; r++) {
        struct norm_backward part = *pass;
        part.x = (const float *)pass->x + r * norm->columns;
        part.dy = (const float *)pass->dy + r * norm->columns;
        part.mean += r;
        part.rstd += r;
        part.is_first = pass->is_first && r == 0;
        if (part.dx != NULL) part.dx = (float *)pass->dx + r * norm->columns;
        reference_group_norm_backward(&row, &part);
    }
}

void reference_weight_norm_forward(size_t rows, size_t columns, const float *v, const float *g,
                                   float *w, float *norms)
{
    for (size_t r = 0; r < rows; r++) {
        double norm = sqrt(reference_squared_norm(v + r * columns, columns));

        norms[r] = (float)norm;
        for (size_t c = 0; c < columns; c++) {
            w[r * columns + c] = (float)((double)g[r] * (double)v[r * columns + c] / norm);
        }
    }
}

/* Equation 3 of the paper. */
void reference_weight_norm_backward(const struct weight_norm_backward *pass)
{
    for (size_t r = 0; r < pass->rows; r++) {
        size_t from = r * pass->columns;
        double norm = (double)pass->norms[r], g = (double)pass->g[r], dg = 0.0;

        for (size_t c = from; c < from + pass->columns; c++) {
            dg += (double)pass->dw[c] * (double)pass->v[c] / norm;
        }
        for (size_t c = from; c < from + pass->columns; c++) {
            pass->dv[c] = (float)(g / norm * (double)pass->dw[c] -
                                  g * dg / (norm * norm) * (double)pass->v[c]);
        }
        pass->dg[r] = (float)dg;
    }
}
