/*
 * Layer normalisation of rows (Ba, Kiros, Hinton 2016). Forward: a row is read three times, twice
 * from the first-level cache: mean, squares of what differs from it, result. Backward, with
 * hat = (x - mean) rstd and u = dy gamma:
 *     dx = rstd (u - sum u / n - hat sum (u hat) / n),
 * and dgamma, dbeta from the same block of ROWS rows while it is in the cache; their sums are
 * float32 within a block, float64 above. Sums along a row: float32 over CHUNK vectors of lanes,
 * float64 above. Runs on the calling thread.
 */
#include "kernels/cpu/norm_internal.h"

#include "base/check.h"
#include "kernels/cpu/reference_norm.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, ROWS = 16, COLUMNS = 1024 };

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE double sum_of(const float *x, size_t n)
{
    size_t whole = n - n % NORM_LANES;
    double sum = 0.0;

    for (size_t from = 0; from < whole; from += CHUNK * NORM_LANES) {
        size_t end = whole - from < CHUNK * NORM_LANES ? whole : from + CHUNK * NORM_LANES;
        norm_lanes lanes = {0.0F};
        for (size_t i = from; i < end; i += NORM_LANES) {
            lanes += *(const norm_lanes *)(x + i);
        }
        sum += (double)norm_lanes_sum(&lanes);
    }
    for (size_t i = whole; i < n; i++) {
        sum += (double)x[i];
    }
    return sum;
}

static ALWAYS_INLINE double squares_of(const float *x, float mean, size_t n)
{
    size_t whole = n - n % NORM_LANES;
    double sum = 0.0;

    for (size_t from = 0; from < whole; from += CHUNK * NORM_LANES) {
        size_t end = whole - from < CHUNK * NORM_LANES ? whole : from + CHUNK * NORM_LANES;
        norm_lanes lanes = {0.0F};
        for (size_t i = from; i < end; i += NORM_LANES) {
            norm_lanes d = *(const norm_lanes *)(x + i) - mean;
            lanes += d * d;
        }
        sum += (double)norm_lanes_sum(&lanes);
    }
    for (size_t i = whole; i < n; i++) {
        double d = (double)(x[i] - mean);
        sum += d * d;
    }
    return sum;
}

FOR_EACH_CPU static void layer_forward(const struct layer_norm *norm, const float *x,
                                       const struct channel_affine *affine, float *y, float *means,
                                       float *rstds)
{
    size_t n = norm->columns, whole = n - n % NORM_LANES;
    double per = 1.0 / (double)n;

    for (size_t r = 0; r < norm->rows; r++, x += n, y += n) {
        float mean = (float)(sum_of(x, n) * per);
        float rstd = (float)(1.0 / sqrt(squares_of(x, mean, n) * per + (double)norm->epsilon));

        means[r] = mean;
        rstds[r] = rstd;
        for (size_t i = 0; i < whole; i += NORM_LANES) {
            norm_lanes hat = (*(const norm_lanes *)(x + i) - mean) * rstd;
            *(norm_lanes *)(y + i) = hat * *(const norm_lanes *)(affine->gamma + i) +
                                     *(const norm_lanes *)(affine->beta + i);
        }
        for (size_t i = whole; i < n; i++) {
            y[i] = (x[i] - mean) * rstd * affine->gamma[i] + affine->beta[i];
        }
    }
}

enum rc cpu_layer_norm_forward(struct backend *backend, const struct layer_norm *norm,
                               const float *x, const float *gamma, const float *beta, float *y,
                               float *mean, float *rstd)
{
    struct channel_affine affine = {.gamma = gamma, .beta = beta};

    CHECK(norm->columns > 0);
    if (cpu_of(backend)->options.is_reference) {
        reference_layer_norm_forward(norm, x, gamma, beta, y, mean, rstd);
    } else {
        layer_forward(norm, x, &affine, y, mean, rstd);
    }
    return RC_OK;
}

/* Rows [begin, begin + rows) of a backward pass, and some of their columns. */
struct block {
    const struct norm_backward *pass;
    size_t begin, rows, columns;
    size_t from, count; /* of the columns */
};

/* Add what the block's rows give to dgamma and dbeta of its columns. */
FOR_EACH_CPU static void block_parameters(const struct block *b, double *dgamma, double *dbeta)
{
    const float *mean = b->pass->mean + b->begin, *rstd = b->pass->rstd + b->begin;
    const float *x = b->pass->x + b->begin * b->columns + b->from;
    const float *dy = b->pass->dy + b->begin * b->columns + b->from;
    size_t whole = b->count - b->count % NORM_LANES;

    for (size_t c = 0; c < whole; c += NORM_LANES) {
        norm_lanes sum = {0.0F}, product = {0.0F};
        float sums[NORM_LANES], products[NORM_LANES];
        for (size_t r = 0; r < b->rows; r++) {
            norm_lanes hat = (*(const norm_lanes *)(x + r * b->columns + c) - mean[r]) * rstd[r];
            norm_lanes value = *(const norm_lanes *)(dy + r * b->columns + c);
            sum += value;
            product += value * hat;
        }
        *(norm_lanes *)sums = sum;
        *(norm_lanes *)products = product;
        for (size_t l = 0; l < NORM_LANES; l++) {
            dbeta[c + l] += (double)sums[l];
            dgamma[c + l] += (double)products[l];
        }
    }
    for (size_t c = whole; c < b->count; c++) {
        for (size_t r = 0; r < b->rows; r++) {
            float value = dy[r * b->columns + c];
            dbeta[c] += (double)value;
            dgamma[c] += (double)(value * ((x[r * b->columns + c] - mean[r]) * rstd[r]));
        }
    }
}

/* Means of u and of u (x - mean) over one row. */
static ALWAYS_INLINE void row_means(const float *x, const float *dy, const float *gamma, float mean,
                                    size_t n, double means[2])
{
    size_t whole = n - n % NORM_LANES;

    means[0] = means[1] = 0.0;
    for (size_t from = 0; from < whole; from += CHUNK * NORM_LANES) {
        size_t end = whole - from < CHUNK * NORM_LANES ? whole : from + CHUNK * NORM_LANES;
        norm_lanes sum = {0.0F}, product = {0.0F};
        for (size_t i = from; i < end; i += NORM_LANES) {
            norm_lanes u = *(const norm_lanes *)(dy + i) * *(const norm_lanes *)(gamma + i);
            sum += u;
            product += u * (*(const norm_lanes *)(x + i) - mean);
        }
        means[0] += (double)norm_lanes_sum(&sum);
        means[1] += (double)norm_lanes_sum(&product);
    }
    for (size_t i = whole; i < n; i++) {
        float u = dy[i] * gamma[i];
        means[0] += (double)u;
        means[1] += (double)(u * (x[i] - mean));
    }
    means[0] /= (double)n;
    means[1] /= (double)n;
}

static ALWAYS_INLINE void block_inputs(const struct block *b, bool adds)
{
    size_t n = b->columns, whole = n - n % NORM_LANES;
    const float *gamma = b->pass->gamma;

    for (size_t r = b->begin; r < b->begin + b->rows; r++) {
        const float *x = b->pass->x + r * n, *dy = b->pass->dy + r * n;
        float *dx = b->pass->dx + r * n;
        float mean = b->pass->mean[r], rstd = b->pass->rstd[r], shift, slope;
        double means[2];

        row_means(x, dy, gamma, mean, n, means);
        shift = (float)-means[0] * rstd;
        slope = (float)(-means[1] * (double)rstd * (double)rstd) * rstd;
        for (size_t i = 0; i < whole; i += NORM_LANES) {
            norm_lanes u = *(const norm_lanes *)(dy + i) * *(const norm_lanes *)(gamma + i);
            norm_lanes value = (*(const norm_lanes *)(x + i) - mean) * slope + shift;
            value += u * rstd;
            if (adds) value += *(const norm_lanes *)(dx + i);
            *(norm_lanes *)(dx + i) = value;
        }
        for (size_t i = whole; i < n; i++) {
            float value = (x[i] - mean) * slope + shift;
            value += dy[i] * gamma[i] * rstd;
            dx[i] = adds ? dx[i] + value : value;
        }
    }
}

FOR_EACH_CPU static void block_set_inputs(const struct block *b)
{
    block_inputs(b, false);
}

FOR_EACH_CPU static void block_add_inputs(const struct block *b)
{
    block_inputs(b, true);
}

/* Rows wider than COLUMNS are passed over several times, and dx, which may be dy, is written in the
 * last of them. */
static void layer_backward(const struct layer_norm *norm, const struct norm_backward *pass)
{
    double dgamma[COLUMNS], dbeta[COLUMNS];
    struct block block = {.pass = pass, .columns = norm->columns};

    for (; block.from < norm->columns; block.from += block.count) {
        size_t left = norm->columns - block.from;
        block.count = left < COLUMNS ? left : COLUMNS;
        for (size_t c = 0; c < block.count; c++) {
            dgamma[c] = pass->is_first ? 0.0 : (double)pass->dgamma[block.from + c];
            dbeta[c] = pass->is_first ? 0.0 : (double)pass->dbeta[block.from + c];
        }
        for (block.begin = 0; block.begin < norm->rows; block.begin += block.rows) {
            size_t rows = norm->rows - block.begin;
            block.rows = rows < ROWS ? rows : ROWS;
            block_parameters(&block, dgamma, dbeta);
            if (pass->dx == NULL || block.count < left) continue;
            if (pass->adds_to_dx) block_add_inputs(&block);
            if (!pass->adds_to_dx) block_set_inputs(&block);
        }
        for (size_t c = 0; c < block.count; c++) {
            pass->dgamma[block.from + c] = (float)dgamma[c];
            pass->dbeta[block.from + c] = (float)dbeta[c];
        }
    }
}

enum rc cpu_layer_norm_backward(struct backend *backend, const struct layer_norm *norm,
                                const struct norm_backward *pass)
{
    CHECK(norm->columns > 0 && !(pass->adds_to_dx && pass->dx == pass->dy));
    if (cpu_of(backend)->options.is_reference) {
        reference_layer_norm_backward(norm, pass);
    } else {
        layer_backward(norm, pass);
    }
    return RC_OK;
}
