/* The oracle of pooling and of layouts: every output value gathered as its definition reads, sums
 * in float64. See reference.h. */
#include "kernels/cpu/reference/reference.h"

#include "base/check.h"

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

/* Where window `at` has position `k`; false in the padding. */
static bool value_under(const struct pool_options *o, uint32_t row, uint32_t column, uint32_t k,
                        uint32_t *y, uint32_t *x)
{
    int64_t down = (int64_t)row * o->stride + k / o->size - o->padding;
    int64_t right = (int64_t)column * o->stride + k % o->size - o->padding;

    *y = (uint32_t)down;
    *x = (uint32_t)right;
    return down >= 0 && right >= 0 && down < o->in.height && right < o->in.width;
}

/* One window: where the largest input is, and how large. A NaN wins only if it comes first. */
static uint8_t window_winner(const struct pool_options *o, const float *x, uint32_t c, uint32_t row,
                             uint32_t column, float *largest)
{
    uint8_t winner = POOL_NONE;

    for (uint32_t k = 0; k < o->size * o->size; k++) {
        uint32_t down, right;
        if (!value_under(o, row, column, k, &down, &right)) continue;
        float value = x[reference_index(o->in, c, down, right)];
        if (winner == POOL_NONE || value > *largest) {
            *largest = value;
            winner = (uint8_t)k;
        }
    }
    if (o->with_relu && !(*largest > 0.0F)) {
        winner = POOL_NONE;
        if (*largest < 0.0F) *largest = 0.0F;
    }
    return winner;
}

static float window_mean(const struct pool_options *o, const float *x, uint32_t c, uint32_t row,
                         uint32_t column)
{
    double sum = 0.0;

    for (uint32_t k = 0; k < o->size * o->size; k++) {
        uint32_t down, right;
        if (!value_under(o, row, column, k, &down, &right)) continue;
        sum += (double)x[reference_index(o->in, c, down, right)];
    }
    return (float)(sum / (double)(o->size * o->size));
}

/* Winners stay in the order of the input's channels. */
static struct image_shape winners_of(const struct pool_options *o)
{
    struct image_shape winners = o->out;

    winners.block = o->in.block;
    return winners;
}

void reference_pool_forward(const struct pool_options *o, uint32_t images, const float *x, float *y,
                            uint8_t *winner)
{
    size_t in = image_values(o->in), out = image_values(o->out);

    for (uint32_t n = 0; n < images; n++) {
        for (size_t i = 0; i < out; i++) {
            uint32_t column = (uint32_t)(i % o->out.width);
            uint32_t row = (uint32_t)(i / o->out.width % o->out.height);
            uint32_t c = (uint32_t)(i / o->out.width / o->out.height);
            float *to = y + n * out + reference_index(o->out, c, row, column);

            if (o->kind == POOL_AVERAGE) {
                *to = window_mean(o, x + n * in, c, row, column);
                continue;
            }
            uint8_t index = window_winner(o, x + n * in, c, row, column, to);
            if (winner == NULL) continue;
            winner[n * out + reference_index(winners_of(o), c, row, column)] = index;
        }
    }
}

/* The window that has an input row or column at position `k`; false if none has. */
static bool window_over(const struct pool_options *o, uint32_t at, uint32_t k, uint32_t windows,
                        uint32_t *over)
{
    int64_t begin = (int64_t)at + o->padding - k;

    *over = (uint32_t)(begin / o->stride);
    return begin >= 0 && begin % o->stride == 0 && *over < windows;
}

/* d(loss)/d(x) at one input value: its share of every window that holds it. */
static float pool_gradient(const struct pool_options *o, const float *dy, const uint8_t *winner,
                           uint32_t c, uint32_t y, uint32_t x)
{
    double sum = 0.0;

    for (uint32_t k = 0; k < o->size * o->size; k++) {
        uint32_t row, column;
        if (!window_over(o, y, k / o->size, o->out.height, &row)) continue;
        if (!window_over(o, x, k % o->size, o->out.width, &column)) continue;
        double share = (double)dy[reference_index(o->out, c, row, column)];
        if (o->kind == POOL_AVERAGE) {
            sum += share / (double)(o->size * o->size);
        } else if (winner[reference_index(winners_of(o), c, row, column)] == k) {
            sum += share;
        }
    }
    return (float)sum;
}

void reference_pool_backward(const struct pool_options *o, uint32_t images, const float *dy,
                             const uint8_t *winner, float *dx)
{
    size_t in = image_values(o->in), out = image_values(o->out);

    CHECK(winner != NULL || o->kind == POOL_AVERAGE);
    for (uint32_t n = 0; n < images; n++) {
        const uint8_t *winners = winner == NULL ? NULL : winner + n * out;
        for (size_t i = 0; i < in; i++) {
            uint32_t column = (uint32_t)(i % o->in.width);
            uint32_t row = (uint32_t)(i / o->in.width % o->in.height);
            uint32_t c = (uint32_t)(i / o->in.width / o->in.height);
            dx[n * in + reference_index(o->in, c, row, column)] =
                pool_gradient(o, dy + n * out, winners, c, row, column);
        }
    }
}

void reference_global_average_forward(struct image_shape in, uint32_t images, const float *x,
                                      float *y)
{
    for (size_t i = 0; i < (size_t)images * in.channels; i++) {
        const float *image = x + i / in.channels * image_values(in);
        double sum = 0.0;
        for (uint32_t row = 0; row < in.height; row++) {
            for (uint32_t column = 0; column < in.width; column++) {
                uint32_t c = (uint32_t)(i % in.channels);
                sum += (double)image[reference_index(in, c, row, column)];
            }
        }
        y[i] = (float)(sum / ((double)in.height * in.width));
    }
}

void reference_global_average_backward(struct image_shape in, uint32_t images, const float *dy,
                                       float *dx)
{
    for (size_t i = 0; i < (size_t)images * in.channels; i++) {
        float *image = dx + i / in.channels * image_values(in);
        for (uint32_t row = 0; row < in.height; row++) {
            for (uint32_t column = 0; column < in.width; column++) {
                uint32_t c = (uint32_t)(i % in.channels);
                image[reference_index(in, c, row, column)] =
                    (float)((double)dy[i] / ((double)in.height * in.width));
            }
        }
    }
}

void reference_subsample_forward(const struct subsample *o, uint32_t images, const float *x,
                                 float *y)
{
    for (uint32_t n = 0; n < images; n++) {
        for (size_t i = 0; i < image_values(o->out); i++) {
            uint32_t column = (uint32_t)(i % o->out.width);
            uint32_t row = (uint32_t)(i / o->out.width % o->out.height);
            uint32_t c = (uint32_t)(i / o->out.width / o->out.height);
            float value = 0.0F;
            if (c < o->in.channels) {
                value = x[n * image_values(o->in) +
                          reference_index(o->in, c, row * o->stride, column * o->stride)];
            }
            y[n * image_values(o->out) + reference_index(o->out, c, row, column)] = value;
        }
    }
}

void reference_subsample_backward(const struct subsample *o, uint32_t images, const float *dy,
                                  float *dx)
{
    for (uint32_t n = 0; n < images; n++) {
        for (size_t i = 0; i < image_values(o->in); i++) {
            uint32_t column = (uint32_t)(i % o->in.width);
            uint32_t row = (uint32_t)(i / o->in.width % o->in.height);
            uint32_t c = (uint32_t)(i / o->in.width / o->in.height);
            float value = 0.0F;
            if (row % o->stride == 0 && column % o->stride == 0) {
                value = dy[n * image_values(o->out) +
                           reference_index(o->out, c, row / o->stride, column / o->stride)];
            }
            dx[n * image_values(o->in) + reference_index(o->in, c, row, column)] = value;
        }
    }
}
