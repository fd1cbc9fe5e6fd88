/*
 * Layer normalisation of rows (Ba, Kiros, Hinton 2016), a block of ROWS rows at a time, which stays
 * in the cache while it is read again: first all its means, then all its variances, then results,
 * because one row alone would spend its time waiting for sums. Backward, with
 * hat = (x - mean) rstd and u = dy gamma:
 *     dx = rstd (u - sum u / n - hat sum (u hat) / n),
 * the two sums of every row of the block first, then what the block gives to dgamma and dbeta, down
 * the columns, then dx along the rows: stores down columns a power of two apart would make the
 * loads after them wait.
 *
 * Sums are float32 over a block's rows, or over CHUNK vectors of a row, and float64 above that: off
 * by about 1e-7 of the sum of the absolute values. Runs on the calling thread.
 */
#include "kernels/cpu/norm/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference/norm.h"

#include <math.h>

enum { CHUNK = 64, ROWS = 8, COLUMNS = 1024 };

#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE double sum_of(const float *x, size_t n)
{
    size_t whole = n - n % NORM_LANES;
    double sum = 0.0;

    for (size_t from = 0; from < whole; from += CHUNK * NORM_LANES) {
        size_t end = whole - from < CHUNK * NORM_LANES ? whole : from + CHUNK * NORM_LANES;
        norm_half_lanes lanes[2] = {{0.0F}};
        for (size_t i = from; i < end; i += NORM_LANES) {
            lanes[0] += *norm_half_of(x + i, 0);
            lanes[1] += *norm_half_of(x + i, 1);
        }
        sum += (double)norm_lanes_sum(lanes);
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
        norm_half_lanes lanes[2] = {{0.0F}};
        for (size_t i = from; i < end; i += NORM_LANES) {
            norm_half_lanes low = *norm_half_of(x + i, 0) - mean;
            norm_half_lanes high = *norm_half_of(x + i, 1) - mean;
            lanes[0] += low * low;
            lanes[1] += high * high;
        }
        sum += (double)norm_lanes_sum(lanes);
    }
    for (size_t i = whole; i < n; i++) {
        double d = (double)(x[i] - mean);
        sum += d * d;
    }
    return sum;
}

FOR_EACH_CPU(static, void, block_forward,
             (const struct layer_norm *norm, size_t rows, const float *x,
              const struct channel_affine *to, float *y, float *mean, float *rstd),
             (norm, rows, x, to, y, mean, rstd))
{
    size_t n = norm->columns, whole = n - n % NORM_LANES;
    double per = 1.0 / (double)n, squares[ROWS];

    for (size_t r = 0; r < rows; r++) {
        mean[r] = (float)(sum_of(x + r * n, n) * per);
    }
    for (size_t r = 0; r < rows; r++) {
        squares[r] = squares_of(x + r * n, mean[r], n);
    }
    for (size_t r = 0; r < rows; r++) {
        rstd[r] = (float)(1.0 / sqrt(squares[r] * per + (double)norm->epsilon));
    }
    for (size_t r = 0; r < rows; r++) {
        const float *from = x + r * n;
        float *row = y + r * n, centre = mean[r], scale = rstd[r];
        for (size_t i = 0; i < whole; i += NORM_HALF) {
            norm_half_lanes hat = (*norm_half_of(from + i, 0) - centre) * scale;
            *norm_half_at(row + i, 0) =
                hat * *norm_half_of(to->gamma + i, 0) + *norm_half_of(to->beta + i, 0);
        }
        for (size_t i = whole; i < n; i++) {
            row[i] = (from[i] - centre) * scale * to->gamma[i] + to->beta[i];
        }
    }
}

enum rc cpu_layer_norm_forward(struct backend *backend, const struct layer_norm *norm,
                               const void *x, const float *gamma, const float *beta, void *y,
                               float *mean, float *rstd)
{
    struct channel_affine to = {.gamma = gamma, .beta = beta};
    size_t n = norm->columns;

    CHECK(n > 0);
    if (cpu_of(backend)->options.is_reference) {
        reference_layer_norm_forward(norm, x, gamma, beta, y, mean, rstd);
        return RC_OK;
    }
    for (size_t r = 0; r < norm->rows; r += ROWS) {
        size_t rows = norm->rows - r < ROWS ? norm->rows - r : ROWS;
        block_forward(norm, rows, (const float *)x + r * n, &to, (float *)y + r * n, mean + r,
                      rstd + r);
    }
    return RC_OK;
}

/* Up to ROWS rows of a backward pass, and some of their columns. */
struct block {
    const float *x, *dy; /* of the first row, first column */
    float *dx;           /* NULL: parameters only */
    const float *gamma;
    const float *mean, *rstd; /* of the rows */
    size_t rows, columns;
    /* dx = dy gamma rstd + (x - mean) slope + shift */
    float slope[ROWS], shift[ROWS];
};

/* What the columns gain over all rows; one window of a row that does not fit. */
struct columns {
    size_t from, count;
    double *dgamma, *dbeta; /* [count] */
};

FOR_EACH_CPU(static, void, block_sums, (struct block * b), (b))
{
    size_t n = b->columns, whole = n - n % NORM_LANES;

    for (size_t r = 0; r < b->rows; r++) {
        const float *x = b->x + r * n, *dy = b->dy + r * n;
        double sum = 0.0, product = 0.0, rstd = (double)b->rstd[r];
        float mean = b->mean[r];

        for (size_t from = 0; from < whole; from += CHUNK * NORM_LANES) {
            size_t end = whole - from < CHUNK * NORM_LANES ? whole : from + CHUNK * NORM_LANES;
            norm_half_lanes sums[2] = {{0.0F}}, products[2] = {{0.0F}};
            for (size_t i = from; i < end; i += NORM_LANES) {
                for (size_t h = 0; h < 2; h++) {
                    norm_half_lanes u = *norm_half_of(dy + i, h) * *norm_half_of(b->gamma + i, h);
                    sums[h] += u;
                    products[h] += u * (*norm_half_of(x + i, h) - mean);
                }
            }
            sum += (double)norm_lanes_sum(sums);
            product += (double)norm_lanes_sum(products);
        }
        for (size_t i = whole; i < n; i++) {
            float u = dy[i] * b->gamma[i];
            sum += (double)u;
            product += (double)(u * (x[i] - mean));
        }
        b->shift[r] = (float)(-rstd * sum / (double)n);
        b->slope[r] = (float)(-rstd * rstd * rstd * product / (double)n);
    }
}

FOR_EACH_CPU(static, void, block_columns, (const struct block *b, const struct columns *to),
             (b, to))
{
    size_t end = to->from + to->count, whole = end - to->count % NORM_LANES;

    for (size_t c = to->from; c < whole; c += NORM_LANES) {
        const float *x = b->x + c, *dy = b->dy + c;
        norm_half_lanes sum[2] = {{0.0F}}, product[2] = {{0.0F}};
        for (size_t r = 0; r < b->rows; r++) {
            for (size_t h = 0; h < 2; h++) {
                norm_half_lanes value = *norm_half_of(dy + r * b->columns, h);
                norm_half_lanes d = *norm_half_of(x + r * b->columns, h) - b->mean[r];
                sum[h] += value;
                product[h] += value * (d * b->rstd[r]);
            }
        }
        norm_lanes_add(sum, to->dbeta + (c - to->from));
        norm_lanes_add(product, to->dgamma + (c - to->from));
    }
    for (size_t c = whole; c < end; c++) {
        for (size_t r = 0; r < b->rows; r++) {
            size_t at = r * b->columns + c;
            float hat = (b->x[at] - b->mean[r]) * b->rstd[r];
            to->dbeta[c - to->from] += (double)b->dy[at];
            to->dgamma[c - to->from] += (double)(b->dy[at] * hat);
        }
    }
}

static ALWAYS_INLINE void block_inputs(const struct block *b, bool adds)
{
    size_t n = b->columns, whole = n - n % NORM_LANES;
    const float *gamma = b->gamma;

    for (size_t r = 0; r < b->rows; r++) {
        const float *x = b->x + r * n, *dy = b->dy + r * n;
        float *dx = b->dx + r * n;
        float mean = b->mean[r], rstd = b->rstd[r], slope = b->slope[r], shift = b->shift[r];

        for (size_t i = 0; i < whole; i += NORM_HALF) {
            norm_half_lanes u = *norm_half_of(dy + i, 0) * *norm_half_of(gamma + i, 0);
            norm_half_lanes value = (*norm_half_of(x + i, 0) - mean) * slope + shift;
            value += u * rstd;
            if (adds) value += *norm_half_of(dx + i, 0);
            *norm_half_at(dx + i, 0) = value;
        }
        for (size_t i = whole; i < n; i++) {
            float value = (x[i] - mean) * slope + shift;
            value += dy[i] * gamma[i] * rstd;
            dx[i] = adds ? dx[i] + value : value;
        }
    }
}

FOR_EACH_CPU(static, void, block_set_inputs, (const struct block *b), (b))
{
    block_inputs(b, false);
}

FOR_EACH_CPU(static, void, block_add_inputs, (const struct block *b), (b))
{
    block_inputs(b, true);
}

static struct block block_of(const struct layer_norm *norm, const struct norm_backward *pass,
                             size_t row)
{
    size_t at = row * norm->columns, left = norm->rows - row;

    return (struct block){
        .x = (const float *)pass->x + at,
        .dy = (const float *)pass->dy + at,
        .dx = pass->dx == NULL ? NULL : (float *)pass->dx + at,
        .gamma = pass->gamma,
        .mean = pass->mean + row,
        .rstd = pass->rstd + row,
        .rows = left < ROWS ? left : ROWS,
        .columns = norm->columns,
    };
}

/* Rows wider than COLUMNS are passed over several times, a window of columns at a time. Their dx,
 * which may be dy, is written in the last pass. */
static void layer_backward(const struct layer_norm *norm, const struct norm_backward *pass)
{
    double dgamma[COLUMNS], dbeta[COLUMNS];
    struct columns to = {.dgamma = dgamma, .dbeta = dbeta};

    for (; to.from < norm->columns; to.from += to.count) {
        size_t left = norm->columns - to.from;
        to.count = left < COLUMNS ? left : COLUMNS;
        for (size_t c = 0; c < to.count; c++) {
            dgamma[c] = pass->is_first ? 0.0 : (double)pass->dgamma[to.from + c];
            dbeta[c] = pass->is_first ? 0.0 : (double)pass->dbeta[to.from + c];
        }
        for (size_t r = 0; r < norm->rows; r += ROWS) {
            struct block block = block_of(norm, pass, r);
            bool is_last = to.count == left;
            if (is_last && block.dx != NULL) block_sums(&block);
            block_columns(&block, &to);
            if (!is_last || block.dx == NULL) continue;
            if (pass->adds_to_dx) block_add_inputs(&block);
            if (!pass->adds_to_dx) block_set_inputs(&block);
        }
        for (size_t c = 0; c < to.count; c++) {
            pass->dgamma[to.from + c] = (float)dgamma[c];
            pass->dbeta[to.from + c] = (float)dbeta[c];
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
