/*
 * Vector operations: plain loops that the compiler vectorises for the machine it finds itself on.
 * They run on the calling thread: at a few million values memory is the limit, not arithmetic.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "base/floats.h"
#include "kernels/cpu/reference/reference.h"

enum { NORM_LANES = 16 };

FOR_EACH_CPU(static, void, from_bytes,
             (const uint8_t *restrict bytes, float factor, float offset, float *restrict values,
              size_t n),
             (bytes, factor, offset, values, n))
{
    for (size_t i = 0; i < n; i++) {
        values[i] = (float)bytes[i] * factor + offset;
    }
}

FOR_EACH_CPU(static, void, axpy, (float a, const float *restrict x, float *restrict y, size_t n),
             (a, x, y, n))
{
    for (size_t i = 0; i < n; i++) {
        y[i] += a * x[i];
    }
}

FOR_EACH_CPU(static, void, scale, (float a, float *x, size_t n), (a, x, n))
{
    for (size_t i = 0; i < n; i++) {
        x[i] *= a;
    }
}

FOR_EACH_CPU(static, void, add_difference,
             (float a, const float *restrict x, const float *restrict base, float *restrict y,
              size_t n),
             (a, x, base, y, n))
{
    for (size_t i = 0; i < n; i++) {
        y[i] += a * (x[i] - base[i]);
    }
}

/* Fixed lanes, so that every instruction set adds in the same order. */
FOR_EACH_CPU(static, double, squared_norm, (const float *x, size_t n), (x, n))
{
    double lanes[NORM_LANES] = {0.0};
    double sum = 0.0;
    size_t whole = n - n % NORM_LANES;

    for (size_t i = 0; i < whole; i += NORM_LANES) {
        for (size_t l = 0; l < NORM_LANES; l++) {
            double value = (double)x[i + l];
            lanes[l] += value * value;
        }
    }
    for (size_t i = whole; i < n; i++) {
        lanes[i - whole] += (double)x[i] * (double)x[i];
    }
    for (size_t l = 0; l < NORM_LANES; l++) {
        sum += lanes[l];
    }
    return sum;
}

/* Not `> 0 ? x : 0`: a NaN has to stay one until somebody notices. */
FOR_EACH_CPU(static, void, relu_forward, (float *x, size_t n), (x, n))
{
    for (size_t i = 0; i < n; i++) {
        x[i] = x[i] < 0.0F ? 0.0F : x[i];
    }
}

FOR_EACH_CPU(static, void, relu_backward, (const float *restrict y, float *restrict dy, size_t n),
             (y, dy, n))
{
    for (size_t i = 0; i < n; i++) {
        dy[i] = y[i] > 0.0F ? dy[i] : 0.0F;
    }
}

FOR_EACH_CPU(extern, void, cpu_add_rows, (const float *x, size_t rows, size_t columns, float *sums),
             (x, rows, columns, sums))
{
    for (size_t r = 0; r < rows; r++) {
        const float *row = x + r * columns;
        for (size_t c = 0; c < columns; c++) {
            sums[c] += row[c];
        }
    }
}

enum rc cpu_from_bytes(struct backend *backend, const uint8_t *bytes, float factor, float offset,
                       float *values, size_t n)
{
    (void)backend;
    from_bytes(bytes, factor, offset, values, n);
    return RC_OK;
}

enum rc cpu_axpy(struct backend *backend, float a, const float *x, float *y, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_axpy(a, x, y, n);
    } else {
        axpy(a, x, y, n);
    }
    return RC_OK;
}

enum rc cpu_scale(struct backend *backend, float a, float *x, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_scale(a, x, n);
    } else {
        scale(a, x, n);
    }
    return RC_OK;
}

enum rc cpu_add_difference(struct backend *backend, float a, const float *x, const float *base,
                           float *y, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_add_difference(a, x, base, y, n);
    } else {
        add_difference(a, x, base, y, n);
    }
    return RC_OK;
}

enum rc cpu_squared_norm(struct backend *backend, const float *x, size_t n, double *result)
{
    *result =
        cpu_of(backend)->options.is_reference ? reference_squared_norm(x, n) : squared_norm(x, n);
    return RC_OK;
}

enum rc cpu_is_finite(struct backend *backend, const float *x, size_t n, bool *result)
{
    *result =
        cpu_of(backend)->options.is_reference ? reference_is_finite(x, n) : floats_are_finite(x, n);
    return RC_OK;
}

enum rc cpu_relu_forward(struct backend *backend, void *x, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_relu_forward(x, n);
    } else {
        relu_forward(x, n);
    }
    return RC_OK;
}

enum rc cpu_relu_backward(struct backend *backend, const void *y, void *dy, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_relu_backward(y, dy, n);
    } else {
        relu_backward(y, dy, n);
    }
    return RC_OK;
}
