/*
 * Weight normalisation (Salimans, Kingma 2016), row by row: a sum over the row, then one pass that
 * finds it in the cache. Float32 sums over CHUNK vectors, float64 above. Runs on the calling
 * thread.
 */
#include "kernels/cpu/norm/internal.h"

#include "kernels/cpu/reference/norm.h"

#include <math.h>

enum { CHUNK = 64 };

FOR_EACH_CPU(static, double, row_product, (const float *a, const float *b, size_t n), (a, b, n))
{
    size_t whole = n - n % NORM_LANES;
    double sum = 0.0;

    for (size_t from = 0; from < whole; from += CHUNK * NORM_LANES) {
        size_t end = whole - from < CHUNK * NORM_LANES ? whole : from + CHUNK * NORM_LANES;
        norm_half_lanes lanes[2] = {{0.0F}};
        for (size_t i = from; i < end; i += NORM_LANES) {
            lanes[0] += *norm_half_of(a + i, 0) * *norm_half_of(b + i, 0);
            lanes[1] += *norm_half_of(a + i, 1) * *norm_half_of(b + i, 1);
        }
        sum += (double)norm_lanes_sum(lanes);
    }
    for (size_t i = whole; i < n; i++) {
        sum += (double)a[i] * (double)b[i];
    }
    return sum;
}

FOR_EACH_CPU(static, void, row_scale,
             (const float *restrict v, float factor, float *restrict w, size_t n),
             (v, factor, w, n))
{
    for (size_t i = 0; i < n; i++) {
        w[i] = v[i] * factor;
    }
}

/* dv = a dw + b v; vectors by hand because dv may be dw. */
FOR_EACH_CPU(static, void, row_gradient,
             (const float *dw, const float *v, const float factors[2], float *dv, size_t n),
             (dw, v, factors, dv, n))
{
    float a = factors[0], b = factors[1];
    size_t whole = n - n % NORM_LANES;

    for (size_t i = 0; i < whole; i += NORM_HALF) {
        *norm_half_at(dv + i, 0) = *norm_half_of(dw + i, 0) * a + *norm_half_of(v + i, 0) * b;
    }
    for (size_t i = whole; i < n; i++) {
        dv[i] = dw[i] * a + v[i] * b;
    }
}

enum rc cpu_weight_norm_forward(struct backend *backend, size_t rows, size_t columns,
                                const float *v, const float *g, float *w, float *norms)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_weight_norm_forward(rows, columns, v, g, w, norms);
        return RC_OK;
    }
    for (size_t r = 0; r < rows; r++) {
        const float *row = v + r * columns;
        double norm = sqrt(row_product(row, row, columns));
        norms[r] = (float)norm;
        row_scale(row, (float)((double)g[r] / norm), w + r * columns, columns);
    }
    return RC_OK;
}

enum rc cpu_weight_norm_backward(struct backend *backend, const struct weight_norm_backward *pass)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_weight_norm_backward(pass);
        return RC_OK;
    }
    for (size_t r = 0; r < pass->rows; r++) {
        const float *v = pass->v + r * pass->columns, *dw = pass->dw + r * pass->columns;
        double norm = (double)pass->norms[r], scale = (double)pass->g[r] / norm;
        double dg = row_product(v, dw, pass->columns) / norm;
        float factors[2] = {(float)scale, (float)(-scale * dg / norm)};

        row_gradient(dw, v, factors, pass->dv + r * pass->columns, pass->columns);
        pass->dg[r] = (float)dg;
    }
    return RC_OK;
}
