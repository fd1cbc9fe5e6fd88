/* The oracle: every operation as its definition reads. See reference.h. */
#include "kernels/cpu/reference/reference.h"

#include "base/check.h"

#include <math.h>
#include <string.h>

void reference_axpy(float a, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = y[i] + a * x[i];
    }
}

void reference_scale(float a, float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = a * x[i];
    }
}

void reference_add_difference(float a, const float *x, const float *base, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = y[i] + a * (x[i] - base[i]);
    }
}

double reference_squared_norm(const float *x, size_t n)
{
    double sum = 0.0;

    for (size_t i = 0; i < n; i++) {
        sum += (double)x[i] * (double)x[i];
    }
    return sum;
}

bool reference_is_finite(const float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) return false;
    }
    return true;
}

void reference_relu_forward(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (x[i] < 0.0F) x[i] = 0.0F;
    }
}

void reference_relu_backward(const float *y, float *dy, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (!(y[i] > 0.0F)) dy[i] = 0.0F;
    }
}

void reference_gemm(const struct gemm *g)
{
    for (size_t r = 0; r < g->rows; r++) {
        for (size_t c = 0; c < g->columns; c++) {
            float *out = &g->c[r * g->c_stride + c];
            double sum = 0.0;
            for (size_t k = 0; k < g->inner; k++) {
                float a =
                    g->is_a_transposed ? g->a[k * g->a_stride + r] : g->a[r * g->a_stride + k];
                float b =
                    g->is_b_transposed ? g->b[c * g->b_stride + k] : g->b[k * g->b_stride + c];
                sum += (double)a * (double)b;
            }
            sum *= (double)g->alpha;
            if (g->beta != 0.0F) sum += (double)g->beta * (double)*out;
            *out = (float)sum;
        }
    }
}
