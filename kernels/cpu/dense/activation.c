/*
 * Activations, dropout and sums: what stands between the products of a model. One vectorised loop
 * for each, over values or, fused with the bias and its gradient, over rows. An activation's kind
 * is a constant inside its loop: functions that take one are always inlined.
 */
#include "kernels/cpu/dense/activation.h"

#include "base/check.h"
#include "kernels/cpu/math.h"
#include "kernels/cpu/reference/dense.h"

#include <string.h>

#define SQRT_HALF    0.70710678F
#define INV_SQRT_2PI 0.39894228F

enum { PHILOX_LANES = 64, PHILOX_VALUES = PHILOX_LANES * 4 };

/* Of a NaN it is 1. */
CPU_INLINE float normal_distribution(float x)
{
    return 0.5F + 0.5F * cpu_erf_of_number(x * SQRT_HALF);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3), and its slope. */
CPU_INLINE float gelu_gate(float x)
{
    return x * (1.5957691F + 0.07135481F * (x * x));
}

CPU_INLINE float gelu_gate_slope(float x)
{
    return 1.5957691F + 0.21406444F * (x * x);
}

/* Not `> 0 ? x : 0`: a NaN has to stay one until somebody notices. */
CPU_INLINE float activate(enum activation_kind kind, float slope, float x)
{
    if (kind == ACTIVATION_RELU) return x < 0.0F ? 0.0F : x;
    if (kind == ACTIVATION_LEAKY_RELU) return x * (x < 0.0F ? slope : 1.0F);
    if (kind == ACTIVATION_GELU) return x * normal_distribution(x);
    if (kind == ACTIVATION_GELU_TANH) return x * cpu_sigmoid(gelu_gate(x));
    if (kind == ACTIVATION_SILU) return x * cpu_sigmoid(x);
    if (kind == ACTIVATION_SIGMOID) return cpu_sigmoid(x);
    if (kind == ACTIVATION_TANH) return cpu_tanh(x);
    return x;
}

/* dy f'(x); of x and y only the one that activation_needs_input() names is looked at. `least` is
 * cpu_exp_least(). */
CPU_INLINE float activate_back(enum activation_kind kind, float slope, float least, float x,
                               float y, float dy)
{
    if (kind == ACTIVATION_RELU) return y > 0.0F ? dy : 0.0F;
    if (kind == ACTIVATION_LEAKY_RELU) return dy * (y > 0.0F ? 1.0F : slope);
    if (kind == ACTIVATION_GELU) {
        float density = INV_SQRT_2PI * cpu_exp_shifted(-0.5F * (x * x), least);
        return dy * (normal_distribution(x) + x * density);
    }
    if (kind == ACTIVATION_GELU_TANH) {
        float s = cpu_sigmoid(gelu_gate(x));
        return dy * (s * (1.0F + x * (1.0F - s) * gelu_gate_slope(x)));
    }
    if (kind == ACTIVATION_SILU) {
        float s = cpu_sigmoid(x);
        return dy * (s * (1.0F + x * (1.0F - s)));
    }
    if (kind == ACTIVATION_SIGMOID) return dy * (y * (1.0F - y));
    if (kind == ACTIVATION_TANH) return dy * (1.0F - y * y);
    return dy;
}

CPU_INLINE void values_forward(enum activation_kind kind, float slope, const float *x, float *y,
                               size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = activate(kind, slope, x[i]);
    }
}

FOR_EACH_CPU(static, void, activation_forward,
             (struct activation activation, const float *x, float *y, size_t n),
             (activation, x, y, n))
{
    float slope = activation.slope;

    switch (activation.kind) {
    case ACTIVATION_RELU:
        values_forward(ACTIVATION_RELU, slope, x, y, n);
        return;
    case ACTIVATION_LEAKY_RELU:
        values_forward(ACTIVATION_LEAKY_RELU, slope, x, y, n);
        return;
    case ACTIVATION_GELU:
        values_forward(ACTIVATION_GELU, slope, x, y, n);
        return;
    case ACTIVATION_GELU_TANH:
        values_forward(ACTIVATION_GELU_TANH, slope, x, y, n);
        return;
    case ACTIVATION_SILU:
        values_forward(ACTIVATION_SILU, slope, x, y, n);
        return;
    case ACTIVATION_SIGMOID:
        values_forward(ACTIVATION_SIGMOID, slope, x, y, n);
        return;
    case ACTIVATION_TANH:
        values_forward(ACTIVATION_TANH, slope, x, y, n);
        return;
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
    default:
        if (x != y) memcpy(y, x, n * sizeof(*y));
        return;
    }
}

CPU_INLINE void values_backward(enum activation_kind kind, float slope, const float *from,
                                const float *dy, float *dx, size_t n)
{
    const float least = cpu_exp_least();

    for (size_t i = 0; i < n; i++) {
        dx[i] = activate_back(kind, slope, least, from[i], from[i], dy[i]);
    }
}

/* `from` is x where the activation needs its input, otherwise y. */
FOR_EACH_CPU(static, void, activation_backward,
             (struct activation activation, const float *from, const float *dy, float *dx,
              size_t n),
             (activation, from, dy, dx, n))
{
    float slope = activation.slope;

    switch (activation.kind) {
    case ACTIVATION_RELU:
        values_backward(ACTIVATION_RELU, slope, from, dy, dx, n);
        return;
    case ACTIVATION_LEAKY_RELU:
        values_backward(ACTIVATION_LEAKY_RELU, slope, from, dy, dx, n);
        return;
    case ACTIVATION_GELU:
        values_backward(ACTIVATION_GELU, slope, from, dy, dx, n);
        return;
    case ACTIVATION_GELU_TANH:
        values_backward(ACTIVATION_GELU_TANH, slope, from, dy, dx, n);
        return;
    case ACTIVATION_SILU:
        values_backward(ACTIVATION_SILU, slope, from, dy, dx, n);
        return;
    case ACTIVATION_SIGMOID:
        values_backward(ACTIVATION_SIGMOID, slope, from, dy, dx, n);
        return;
    case ACTIVATION_TANH:
        values_backward(ACTIVATION_TANH, slope, from, dy, dx, n);
        return;
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
    default:
        if (dx != dy) memcpy(dx, dy, n * sizeof(*dx));
        return;
    }
}

enum rc cpu_activation_forward(struct backend *backend, struct activation activation, const void *x,
                               void *y, size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_activation_forward(activation, x, y, n);
    } else {
        activation_forward(activation, x, y, n);
    }
    return RC_OK;
}

enum rc cpu_activation_backward(struct backend *backend, struct activation activation,
                                const void *x, const void *y, const void *dy, void *dx, size_t n)
{
    const float *from = activation_needs_input(activation.kind) ? x : y;

    CHECK(from != NULL || activation.kind == ACTIVATION_NONE);
    if (cpu_of(backend)->options.is_reference) {
        reference_activation_backward(activation, x, y, dy, dx, n);
    } else {
        activation_backward(activation, from, dy, dx, n);
    }
    return RC_OK;
}

/* pre = product + bias, y = f(pre); `pre` may be the memory of y, and then only y is kept. */
CPU_INLINE void rows_forward(enum activation_kind kind, float slope, const float *restrict bias,
                             struct activation_rows at, float *pre, float *y)
{
    for (size_t r = 0; r < at.rows; r++) {
        float *row = pre + r * at.columns, *to = y + r * at.columns;
        if (pre == y) {
            for (size_t c = 0; c < at.columns; c++) {
                row[c] = activate(kind, slope, row[c] + bias[c]);
            }
        } else {
            for (size_t c = 0; c < at.columns; c++) {
                row[c] += bias[c];
                to[c] = activate(kind, slope, row[c]);
            }
        }
    }
}

FOR_EACH_CPU(static, void, bias_activation,
             (struct activation activation, const float *bias, struct activation_rows at,
              float *pre, float *y),
             (activation, bias, at, pre, y))
{
    float slope = activation.slope;

    switch (activation.kind) {
    case ACTIVATION_RELU:
        rows_forward(ACTIVATION_RELU, slope, bias, at, pre, y);
        return;
    case ACTIVATION_LEAKY_RELU:
        rows_forward(ACTIVATION_LEAKY_RELU, slope, bias, at, pre, y);
        return;
    case ACTIVATION_GELU:
        rows_forward(ACTIVATION_GELU, slope, bias, at, pre, y);
        return;
    case ACTIVATION_GELU_TANH:
        rows_forward(ACTIVATION_GELU_TANH, slope, bias, at, pre, y);
        return;
    case ACTIVATION_SILU:
        rows_forward(ACTIVATION_SILU, slope, bias, at, pre, y);
        return;
    case ACTIVATION_SIGMOID:
        rows_forward(ACTIVATION_SIGMOID, slope, bias, at, pre, y);
        return;
    case ACTIVATION_TANH:
        rows_forward(ACTIVATION_TANH, slope, bias, at, pre, y);
        return;
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
    default:
        rows_forward(ACTIVATION_NONE, slope, bias, at, pre, y);
        return;
    }
}

void cpu_bias_activation(struct activation activation, const float *bias, struct activation_rows at,
                         float *pre, float *y)
{
    float *to = pre != NULL ? pre : y;

    if (bias != NULL) {
        bias_activation(activation, bias, at, to, y);
    } else {
        activation_forward(activation, to, y, at.rows * at.columns);
    }
}

/* dy *= f', sums += its rows. */
CPU_INLINE void rows_backward(enum activation_kind kind, float slope, const float *from,
                              struct activation_rows at, float *dy, float *sums)
{
    const float least = cpu_exp_least();

    for (size_t r = 0; r < at.rows; r++) {
        const float *restrict row = from + r * at.columns;
        float *restrict gradient = dy + r * at.columns;
        float *restrict sum = sums;
        for (size_t c = 0; c < at.columns; c++) {
            float g = activate_back(kind, slope, least, row[c], row[c], gradient[c]);
            gradient[c] = g;
            sum[c] += g;
        }
    }
}

FOR_EACH_CPU(static, void, activation_bias_backward,
             (struct activation activation, const float *from, struct activation_rows at, float *dy,
              float *sums),
             (activation, from, at, dy, sums))
{
    float slope = activation.slope;

    switch (activation.kind) {
    case ACTIVATION_RELU:
        rows_backward(ACTIVATION_RELU, slope, from, at, dy, sums);
        return;
    case ACTIVATION_LEAKY_RELU:
        rows_backward(ACTIVATION_LEAKY_RELU, slope, from, at, dy, sums);
        return;
    case ACTIVATION_GELU:
        rows_backward(ACTIVATION_GELU, slope, from, at, dy, sums);
        return;
    case ACTIVATION_GELU_TANH:
        rows_backward(ACTIVATION_GELU_TANH, slope, from, at, dy, sums);
        return;
    case ACTIVATION_SILU:
        rows_backward(ACTIVATION_SILU, slope, from, at, dy, sums);
        return;
    case ACTIVATION_SIGMOID:
        rows_backward(ACTIVATION_SIGMOID, slope, from, at, dy, sums);
        return;
    case ACTIVATION_TANH:
        rows_backward(ACTIVATION_TANH, slope, from, at, dy, sums);
        return;
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
    default:
        cpu_add_rows(dy, at.rows, at.columns, sums);
        return;
    }
}

void cpu_activation_bias_backward(struct activation activation, const float *from,
                                  struct activation_rows at, float *dy, float *sums)
{
    CHECK(from != NULL || activation.kind == ACTIVATION_NONE);
    if (sums != NULL) {
        activation_bias_backward(activation, from, at, dy, sums);
    } else {
        activation_backward(activation, from, dy, dy, at.rows * at.columns);
    }
}

FOR_EACH_CPU(static, void, add, (const float *a, const float *b, float *y, size_t n), (a, b, y, n))
{
    for (size_t i = 0; i < n; i++) {
        y[i] = a[i] + b[i];
    }
}

FOR_EACH_CPU(static, void, add_relu, (const float *a, const float *b, float *y, size_t n),
             (a, b, y, n))
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        y[i] = sum < 0.0F ? 0.0F : sum;
    }
}

enum rc cpu_add(struct backend *backend, const void *a, const void *b, bool with_relu, void *y,
                size_t n)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_add(a, b, with_relu, y, n);
    } else if (with_relu) {
        add_relu(a, b, y, n);
    } else {
        add(a, b, y, n);
    }
    return RC_OK;
}

/* Words of `count` counters from `first` on, four of each, in order: see reference_philox(). The
 * loop over counters is the one that is vectorised. */
FOR_EACH_CPU(static, void, philox_words,
             (uint64_t key, uint64_t pass, uint64_t first, size_t count, uint32_t *restrict words),
             (key, pass, first, count, words))
{
    for (size_t l = 0; l < count; l++) {
        uint32_t c0 = (uint32_t)(first + l), c1 = (uint32_t)((first + l) >> 32);
        uint32_t c2 = (uint32_t)pass, c3 = (uint32_t)(pass >> 32);

        for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
            uint64_t product_0 = (uint64_t)PHILOX_MULTIPLIER_0 * c0;
            uint64_t product_1 = (uint64_t)PHILOX_MULTIPLIER_1 * c2;

            c0 = (uint32_t)(product_1 >> 32) ^ c1 ^ ((uint32_t)key + round * PHILOX_STEP_0);
            c2 = (uint32_t)(product_0 >> 32) ^ c3 ^ ((uint32_t)(key >> 32) + round * PHILOX_STEP_1);
            c1 = (uint32_t)product_1;
            c3 = (uint32_t)product_0;
        }
        words[4 * l] = c0;
        words[4 * l + 1] = c1;
        words[4 * l + 2] = c2;
        words[4 * l + 3] = c3;
    }
}

FOR_EACH_CPU(static, void, keep_above,
             (uint32_t threshold, float factor, const uint32_t *words, const float *x, float *y,
              size_t n),
             (threshold, factor, words, x, y, n))
{
    for (size_t i = 0; i < n; i++) {
        uint32_t kept = words[i] >= threshold ? UINT32_C(0xffffffff) : 0U;
        y[i] = float_of_bits(float_bits(x[i] * factor) & kept);
    }
}

static void dropout_forward(const struct dropout *dropout, const float *x, float *y, size_t n)
{
    uint32_t threshold = dropout_threshold(dropout->rate);
    float factor = 1.0F / (1.0F - dropout->rate);
    size_t skipped = (size_t)(dropout->first % PHILOX_VALUES), i = 0;
    uint64_t counter = (dropout->first - skipped) / 4;

    while (i < n) {
        uint32_t words[PHILOX_VALUES];
        size_t count = PHILOX_VALUES - skipped < n - i ? PHILOX_VALUES - skipped : n - i;

        philox_words(dropout->key, dropout->pass, counter, PHILOX_LANES, words);
        keep_above(threshold, factor, words + skipped, x + i, y + i, count);
        counter += PHILOX_LANES;
        i += count;
        skipped = 0;
    }
}

enum rc cpu_dropout(struct backend *backend, const struct dropout *dropout, const void *x, void *y,
                    size_t n)
{
    struct dropout now = *dropout;

    if (dropout->passes != NULL) now.pass += *dropout->passes;
    if (cpu_of(backend)->options.is_reference) {
        reference_dropout(&now, x, y, n);
    } else {
        dropout_forward(&now, x, y, n);
    }
    return RC_OK;
}

FOR_EACH_CPU(static, void, add_to, (const float *restrict x, float *restrict y, size_t n),
             (x, y, n))
{
    for (size_t i = 0; i < n; i++) {
        y[i] += x[i];
    }
}

enum rc cpu_copy_rows(struct backend *backend, const struct copy_rows *copy, const void *x, void *y)
{
    if (cpu_of(backend)->options.is_reference) {
        reference_copy_rows(copy, x, y);
        return RC_OK;
    }
    for (size_t r = 0; r < copy->rows; r++) {
        const float *from = (const float *)x + r * copy->x_stride;
        float *to = (float *)y + r * copy->y_stride;
        if (copy->adds) {
            add_to(from, to, copy->count);
        } else {
            memcpy(to, from, copy->count * sizeof(*to));
        }
    }
    return RC_OK;
}
