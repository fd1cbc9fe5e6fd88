/* The oracle of dense layers and what stands between them: see dense.h. */
#include "kernels/cpu/reference/dense.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

#define SQRT_HALF    0.70710678118654752440
#define INV_SQRT_2PI 0.39894228040143267794

static double sigmoid(double x)
{
    return 1.0 / (1.0 + exp(-x));
}

static double normal_distribution(double x)
{
    return 0.5 * erfc(-x * SQRT_HALF);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3). */
static double gelu_gate(double x)
{
    return 4.0 * INV_SQRT_2PI * (x + 0.044715 * x * x * x);
}

double reference_activation(struct activation activation, double x)
{
    switch (activation.kind) {
    case ACTIVATION_RELU:
        return x < 0.0 ? 0.0 : x;
    case ACTIVATION_LEAKY_RELU:
        return x < 0.0 ? (double)activation.slope * x : x;
    case ACTIVATION_GELU:
        return x * normal_distribution(x);
    case ACTIVATION_GELU_TANH:
        return x * sigmoid(gelu_gate(x));
    case ACTIVATION_SILU:
        return x * sigmoid(x);
    case ACTIVATION_SIGMOID:
        return sigmoid(x);
    case ACTIVATION_TANH:
        return tanh(x);
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
    default:
        return x;
    }
}

double reference_activation_slope(struct activation activation, double x)
{
    double y = reference_activation(activation, x), s;

    switch (activation.kind) {
    case ACTIVATION_RELU:
        return y > 0.0 ? 1.0 : 0.0;
    case ACTIVATION_LEAKY_RELU:
        return x > 0.0 ? 1.0 : (double)activation.slope;
    case ACTIVATION_GELU:
        return normal_distribution(x) + x * INV_SQRT_2PI * exp(-0.5 * x * x);
    case ACTIVATION_GELU_TANH:
        s = sigmoid(gelu_gate(x));
        return s + x * s * (1.0 - s) * 4.0 * INV_SQRT_2PI * (1.0 + 3.0 * 0.044715 * x * x);
    case ACTIVATION_SILU:
        return sigmoid(x) * (1.0 + x * (1.0 - sigmoid(x)));
    case ACTIVATION_SIGMOID:
        return y * (1.0 - y);
    case ACTIVATION_TANH:
        return 1.0 - y * y;
    case ACTIVATION_NONE:
    case ACTIVATION_COUNT:
    default:
        return 1.0;
    }
}

void reference_add(const float *a, const float *b, bool with_relu, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        y[i] = with_relu && sum < 0.0F ? 0.0F : sum;
    }
}

void reference_activation_forward(struct activation activation, const float *x, float *y, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        y[i] = (float)reference_activation(activation, (double)x[i]);
    }
}

/* f'(x) in terms of y = f(x), for those that can. */
static double slope_of_output(struct activation activation, double y)
{
    switch (activation.kind) {
    case ACTIVATION_RELU:
        return y > 0.0 ? 1.0 : 0.0;
    case ACTIVATION_LEAKY_RELU:
        return y > 0.0 ? 1.0 : (double)activation.slope;
    case ACTIVATION_SIGMOID:
        return y * (1.0 - y);
    case ACTIVATION_TANH:
        return 1.0 - y * y;
    case ACTIVATION_NONE:
    case ACTIVATION_GELU:
    case ACTIVATION_GELU_TANH:
    case ACTIVATION_SILU:
    case ACTIVATION_COUNT:
    default:
        return 1.0;
    }
}

void reference_activation_backward(struct activation activation, const float *x, const float *y,
                                   const float *dy, float *dx, size_t n)
{
    bool needs_input = activation_needs_input(activation.kind);

    for (size_t i = 0; i < n; i++) {
        double slope = needs_input ? reference_activation_slope(activation, (double)x[i])
                                   : slope_of_output(activation, (double)y[i]);
        dx[i] = (float)((double)dy[i] * slope);
    }
}

void reference_philox(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c[4] = {counter[0], counter[1], counter[2], counter[3]};

    for (uint32_t round = 0; round < PHILOX_ROUNDS; round++) {
        uint64_t product_0 = (uint64_t)PHILOX_MULTIPLIER_0 * c[0];
        uint64_t product_1 = (uint64_t)PHILOX_MULTIPLIER_1 * c[2];
        uint32_t key_0 = key[0] + round * PHILOX_STEP_0, key_1 = key[1] + round * PHILOX_STEP_1;
        uint32_t next_0 = (uint32_t)(product_1 >> 32) ^ c[1] ^ key_0;
        uint32_t next_2 = (uint32_t)(product_0 >> 32) ^ c[3] ^ key_1;

        c[0] = next_0;
        c[1] = (uint32_t)product_1;
        c[2] = next_2;
        c[3] = (uint32_t)product_0;
    }
    memcpy(out, c, sizeof(c));
}

uint32_t dropout_threshold(float rate)
{
    CHECK(rate >= 0.0F && rate < 1.0F);
    return (uint32_t)((double)rate * 4294967296.0);
}

void reference_dropout(const struct dropout *dropout, const float *x, float *y, size_t n)
{
    uint32_t threshold = dropout_threshold(dropout->rate);
    float factor = 1.0F / (1.0F - dropout->rate);
    const uint32_t key[2] = {(uint32_t)dropout->key, (uint32_t)(dropout->key >> 32)};

    for (size_t i = 0; i < n; i++) {
        uint64_t index = dropout->first + i;
        const uint32_t counter[4] = {(uint32_t)(index / 4), (uint32_t)(index / 4 >> 32),
                                     (uint32_t)dropout->pass, (uint32_t)(dropout->pass >> 32)};
        uint32_t words[4];

        reference_philox(counter, key, words);
        y[i] = words[index % 4] >= threshold ? x[i] * factor : 0.0F;
    }
}

void reference_copy_rows(const struct copy_rows *copy, const float *x, float *y)
{
    for (size_t r = 0; r < copy->rows; r++) {
        for (size_t c = 0; c < copy->count; c++) {
            float *to = &y[r * copy->y_stride + c];
            float value = x[r * copy->x_stride + c];
            *to = copy->adds ? *to + value : value;
        }
    }
}

struct linear_reference {
    struct linear base;
    struct linear_options options;
    const float *weight, *bias; /* borrowed */
};

static void linear_destroy(struct linear *linear)
{
    mem_free(linear);
}

static enum rc linear_prepare(struct linear *linear, const float *weight, const float *bias)
{
    struct linear_reference *l = (struct linear_reference *)linear;

    CHECK((bias != NULL) == l->options.with_bias);
    l->weight = weight;
    l->bias = bias;
    return RC_OK;
}

static enum rc linear_forward(struct linear *linear, size_t rows, const void *in, void *before,
                              void *out)
{
    const float *x = in;
    float *pre = before, *y = out;
    const struct linear_reference *l = (const struct linear_reference *)linear;
    const struct linear_options *o = &l->options;

    CHECK(rows <= o->rows_max);
    for (size_t r = 0; r < rows; r++) {
        for (size_t c = 0; c < o->out; c++) {
            double sum = l->bias != NULL ? (double)l->bias[c] : 0.0;
            for (size_t k = 0; k < o->in; k++) {
                sum += (double)x[r * o->in + k] * (double)l->weight[c * o->in + k];
            }
            if (pre != NULL) pre[r * o->out + c] = (float)sum;
            y[r * o->out + c] = (float)reference_activation(o->activation, sum);
        }
    }
    return RC_OK;
}

static void weight_gradient(const struct linear_options *o, const struct linear_backward *pass)
{
    const float *x = pass->x, *dy = pass->dy;

    for (size_t c = 0; c < o->out; c++) {
        double bias_sum = 0.0;
        for (size_t r = 0; r < pass->rows; r++) {
            bias_sum += (double)dy[r * o->out + c];
        }
        if (pass->dbias != NULL) {
            pass->dbias[c] = (float)((pass->is_first ? 0.0 : (double)pass->dbias[c]) + bias_sum);
        }
        for (size_t k = 0; k < o->in; k++) {
            float *to = &pass->dweight[c * o->in + k];
            double sum = pass->is_first ? 0.0 : (double)*to;
            for (size_t r = 0; r < pass->rows; r++) {
                sum += (double)dy[r * o->out + c] * (double)x[r * o->in + k];
            }
            *to = (float)sum;
        }
    }
}

static void input_gradient(const struct linear_reference *l, const struct linear_backward *pass)
{
    const struct linear_options *o = &l->options;
    const float *dy = pass->dy;
    float *dx = pass->dx;

    for (size_t r = 0; r < pass->rows; r++) {
        for (size_t k = 0; k < o->in; k++) {
            float *to = &dx[r * o->in + k];
            double sum = pass->adds_to_dx ? (double)*to : 0.0;
            for (size_t c = 0; c < o->out; c++) {
                sum += (double)dy[r * o->out + c] * (double)l->weight[c * o->in + k];
            }
            *to = (float)sum;
        }
    }
}

static enum rc linear_backward(struct linear *linear, const struct linear_backward *pass)
{
    const struct linear_reference *l = (const struct linear_reference *)linear;

    CHECK(pass->rows <= l->options.rows_max);
    reference_activation_backward(l->options.activation, pass->pre, pass->y, pass->dy, pass->dy,
                                  pass->rows * l->options.out);
    weight_gradient(&l->options, pass);
    if (pass->dx != NULL) input_gradient(l, pass); /* last: dx may be x */
    return RC_OK;
}

static const struct linear_ops linear_reference_ops = {
    .name = "reference",
    .destroy = linear_destroy,
    .prepare = linear_prepare,
    .forward = linear_forward,
    .backward = linear_backward,
};

enum rc reference_linear_create(const struct linear_options *options, struct linear **linear)
{
    struct linear_reference *l = mem_alloc(sizeof(*l));

    if (l == NULL) return RC_NOMEM;
    l->base.ops = &linear_reference_ops;
    l->options = *options;
    *linear = &l->base;
    return RC_OK;
}
