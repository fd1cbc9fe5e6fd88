/*
 * Products of tiles and packed rows. The product keeps a block of ROWS x LANES sums in registers
 * and runs down the inner dimension once; every sum is added in the order of that dimension,
 * whatever the instruction set.
 *
 * The loops over LANES must stay loops until the compiler has made vectors of them: unrolled
 * before, they become 64 scalar sums that fit no register. Hence the pragmas.
 *
 * Rotary positions (Su et al. 2021, arXiv:2104.09864): step t turns the pair (i, i + width / 2) by
 * t * 10000^(-2 i / width). Angles are added up by turning unit vectors in float64: 1e-16 a step.
 */
#include "kernels/cpu/sequence/attention_product.h"

#include "kernels/cpu/math.h"

#include <math.h>
#include <string.h>

static inline __attribute__((always_inline)) void
block_product(const float *restrict a, size_t a_row, size_t a_inner, const float *restrict b,
              size_t b_stride, size_t inner, float *restrict c, size_t c_stride, bool adds)
{
    float sums[ROWS][LANES];

    for (size_t i = 0; i < ROWS; i++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            sums[i][l] = adds ? c[i * c_stride + l] : 0.0F;
        }
    }
    for (size_t k = 0; k < inner; k++) {
        for (size_t i = 0; i < ROWS; i++) {
#pragma GCC unroll 1
            for (size_t l = 0; l < LANES; l++) {
                sums[i][l] += a[i * a_row + k * a_inner] * b[k * b_stride + l];
            }
        }
    }
    for (size_t i = 0; i < ROWS; i++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            c[i * c_stride + l] = sums[i][l];
        }
    }
}

FOR_EACH_CPU(extern, void, tile_product, (const struct tile_product *p), (p))
{
    size_t a_row = p->a_row, a_inner = p->a_inner, b_stride = p->b_stride, c_stride = p->c_stride;

    for (size_t i = 0; i < p->rows; i += ROWS) {
        for (size_t j = 0; j < p->columns; j += LANES) {
            const float *a = p->a + i * a_row, *b = p->b + j;
            float *c = p->c + i * c_stride + j;
            if (p->adds) {
                block_product(a, a_row, a_inner, b, b_stride, p->inner, c, c_stride, true);
            } else {
                block_product(a, a_row, a_inner, b, b_stride, p->inner, c, c_stride, false);
            }
        }
    }
}

/* to = from rotated by the angle of its step and scaled; direction -1 rotates back. */
CPU_INLINE void rotate(const float *restrict from, const float *restrict rotation, float direction,
                       float scale, size_t width, float *restrict to)
{
    size_t half = width / 2;

    for (size_t i = 0; i < half; i++) {
        float cosine = rotation[i], sine = direction * rotation[half + i];
        float first = from[i] * scale, second = from[half + i] * scale;
        to[i] = first * cosine - second * sine;
        to[half + i] = first * sine + second * cosine;
    }
}

CPU_INLINE void scale_row(const float *restrict from, float scale, size_t width, float *restrict to)
{
    for (size_t d = 0; d < width; d++) {
        to[d] = from[d] * scale;
    }
}

FOR_EACH_CPU(extern, void, head_pack,
             (const struct head_rows *rows, size_t first, size_t count, float scale, float *to),
             (rows, first, count, scale, to))
{
    size_t width = rows->width, padded = rows->padded;

    for (size_t r = 0; r < count; r++, to += padded) {
        const float *from = rows->from + (first + r) * rows->stride;

        if (first + r >= rows->steps) {
            memset(to, 0, padded * sizeof(*to));
            continue;
        }
        if (rows->rotation != NULL) {
            rotate(from, rows->rotation + (first + r) * width, 1.0F, scale, width, to);
        } else {
            scale_row(from, scale, width, to);
        }
        for (size_t d = width; d < padded; d++) {
            to[d] = 0.0F;
        }
    }
}

FOR_EACH_CPU(extern, void, head_unpack,
             (const struct head_rows *rows, size_t first, size_t count, float scale,
              const float *packed, float *to),
             (rows, first, count, scale, packed, to))
{
    size_t width = rows->width;

    for (size_t r = 0; r < count; r++, packed += rows->padded) {
        float *row = to + (first + r) * rows->stride;

        if (rows->rotation != NULL) {
            rotate(packed, rows->rotation + (first + r) * width, -1.0F, scale, width, row);
        } else {
            scale_row(packed, scale, width, row);
        }
    }
}

/* Rows r and r + LANES / 2 of a square, value by value in turns. */
CPU_INLINE void interleave(const float *restrict from, float *restrict to)
{
    enum { HALF = LANES * LANES / 2 };

    for (size_t i = 0; i < HALF; i++) {
        to[2 * i] = from[i];
        to[2 * i + 1] = from[HALF + i];
    }
}

/* An interleaving turns the bits of a value's index by one: four of them exchange the row's four
 * bits and the column's. */
FOR_EACH_CPU(extern, void, head_transpose, (const float *packed, size_t padded, float *to),
             (packed, padded, to))
{
    float a[LANES * LANES], b[LANES * LANES];

    _Static_assert(LANES == 16, "four interleavings");
    for (size_t d = 0; d < padded; d += LANES, to += LANES * LANES) {
        for (size_t l = 0; l < LANES; l++) {
            memcpy(a + l * LANES, packed + l * padded + d, LANES * sizeof(*a));
        }
        interleave(a, b);
        interleave(b, a);
        interleave(a, b);
        interleave(b, to);
    }
}

FOR_EACH_CPU(extern, void, head_dot,
             (const struct head_rows *a, const struct head_rows *b, size_t first, size_t count,
              float *dots),
             (a, b, first, count, dots))
{
    size_t width = a->width, whole = width - width % LANES;

    for (size_t r = 0; r < count; r++) {
        const float *x = a->from + (first + r) * a->stride, *y = b->from + (first + r) * b->stride;
        float lanes[LANES] = {0.0F};

        for (size_t d = 0; d < whole; d += LANES) {
#pragma GCC unroll 1
            for (size_t l = 0; l < LANES; l++) {
                lanes[l] += x[d + l] * y[d + l];
            }
        }
        for (size_t d = whole; d < width; d++) {
            lanes[d - whole] += x[d] * y[d];
        }
        for (size_t half = LANES / 2; half > 0; half /= 2) {
            for (size_t l = 0; l < half; l++) {
                lanes[l] += lanes[half + l];
            }
        }
        dots[r] = lanes[0];
    }
}

void head_rotation(size_t steps, size_t width, float *table)
{
    size_t half = width / 2;

    for (size_t i = 0; i < half; i++) {
        double angle = pow(10000.0, -2.0 * (double)i / (double)width);
        double step_cosine = cos(angle), step_sine = sin(angle);
        double cosine = 1.0, sine = 0.0;

        for (size_t t = 0; t < steps; t++) {
            double next = cosine * step_cosine - sine * step_sine;
            table[t * width + i] = (float)cosine;
            table[t * width + half + i] = (float)sine;
            sine = sine * step_cosine + cosine * step_sine;
            cosine = next;
        }
    }
}
