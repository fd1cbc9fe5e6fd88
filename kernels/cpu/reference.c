/* The oracle: every operation as its definition reads. See reference.h. */
#include "kernels/cpu/reference.h"

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

size_t reference_index(struct image_shape shape, uint32_t c, uint32_t y, uint32_t x)
{
    size_t group = c / shape.block, lane = c % shape.block;

    return ((group * shape.height + y) * shape.width + x) * shape.block + lane;
}

void reference_relayout(struct image_shape from, uint32_t to_block, uint32_t images, const float *x,
                        float *y)
{
    struct image_shape to = from;
    size_t values = image_values(from);

    to.block = to_block;
    for (uint32_t n = 0; n < images; n++) {
        for (uint32_t c = 0; c < from.channels; c++) {
            for (uint32_t row = 0; row < from.height; row++) {
                for (uint32_t column = 0; column < from.width; column++) {
                    y[n * values + reference_index(to, c, row, column)] =
                        x[n * values + reference_index(from, c, row, column)];
                }
            }
        }
    }
}

/* One window: where the largest input is, and how large. A NaN wins only if it comes first. */
static uint8_t window_winner(const struct pool_options *options, const float *x, uint32_t c,
                             uint32_t row, uint32_t column, float *largest)
{
    uint8_t winner = 0;

    for (uint32_t k = 0; k < options->size * options->size; k++) {
        float value = x[reference_index(options->in, c, row * options->size + k / options->size,
                                        column * options->size + k % options->size)];
        if (k == 0 || value > *largest) {
            *largest = value;
            winner = (uint8_t)k;
        }
    }
    return winner;
}

void reference_pool_forward(const struct pool_options *options, uint32_t images, const float *x,
                            float *y, uint8_t *winner)
{
    struct image_shape in_order = options->out;
    size_t in = image_values(options->in), out = image_values(options->out);

    in_order.block = options->in.block; /* winners stay in the order of the input's channels */
    for (uint32_t n = 0; n < images; n++) {
        for (uint32_t c = 0; c < options->out.channels; c++) {
            for (uint32_t i = 0; i < options->out.height * options->out.width; i++) {
                uint32_t row = i / options->out.width, column = i % options->out.width;
                float value = 0.0F;
                uint8_t index = window_winner(options, x + n * in, c, row, column, &value);

                if (options->with_relu && !(value > 0.0F)) {
                    index = POOL_NONE;
                    value = value < 0.0F ? 0.0F : value;
                }
                y[n * out + reference_index(options->out, c, row, column)] = value;
                if (winner == NULL) continue;
                winner[n * out + reference_index(in_order, c, row, column)] = index;
            }
        }
    }
}

void reference_pool_backward(const struct pool_options *options, uint32_t images, const float *dy,
                             const uint8_t *winner, float *dx)
{
    struct image_shape in_order = options->out;
    size_t in = image_values(options->in), out = image_values(options->out);
    uint32_t size = options->size;

    in_order.block = options->in.block;
    memset(dx, 0, images * in * sizeof(*dx));
    for (uint32_t n = 0; n < images; n++) {
        for (uint32_t c = 0; c < options->out.channels; c++) {
            for (uint32_t i = 0; i < options->out.height * options->out.width; i++) {
                uint32_t row = i / options->out.width, column = i % options->out.width;
                uint8_t k = winner[n * out + reference_index(in_order, c, row, column)];

                if (k == POOL_NONE) continue;
                dx[n * in + reference_index(options->in, c, row * size + k / size,
                                            column * size + k % size)] =
                    dy[n * out + reference_index(options->out, c, row, column)];
            }
        }
    }
}
