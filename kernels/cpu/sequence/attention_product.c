/*
 * Products of tiles, and packed rows. The product is the usual register tile (Goto, van de Geijn
 * 2008, ACM TOMS 34(3)): sums of ROWS x LANES values with AVX2, of twice as many with AVX-512, of
 * half of the rows elsewhere, which run down the inner dimension once. AVX2 and AVX-512 agree to
 * the bit: every sum is fused multiply-adds in the order of that dimension. Elsewhere a product is
 * rounded before it is added.
 *
 * Rotary positions (Su et al. 2021, arXiv:2104.09864): step t turns the pair (i, i + width / 2) by
 * t * 10000^(-2 i / width). Angles are added up by turning unit vectors in float64: 1e-16 a step.
 */
#include "kernels/cpu/sequence/attention_product.h"

#include "base/check.h"
#include "kernels/cpu/math.h"

#include <math.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { HALF_ROWS = ROWS / 2, AHEAD = 12 };

/* Row `row` and those below it, columns from `column` on: of A, B and C of one register tile. */
struct corner {
    const float *a, *b;
    float *c;
};

static inline struct corner corner_of(const struct tile_product *p, size_t row, size_t column)
{
    return (struct corner){p->a + row * p->a_row, p->b + column, p->c + row * p->c_stride + column};
}

#if defined(__x86_64__)

/* Rows unrolled, so that the sums live in registers. */
CPU_LOOP __attribute__((target("avx2,fma"))) void tile_avx2(const struct tile_product *p,
                                                            size_t row, size_t column)
{
    enum { HALF = LANES / 2 };
    const size_t a_row = p->a_row, c_stride = p->c_stride;
    struct corner at = corner_of(p, row, column);
    __m256 sums[ROWS][2];

    UNROLLED for (size_t i = 0; i < ROWS; i++)
    {
        const float *c = at.c + i * c_stride;
        sums[i][0] = p->adds ? _mm256_loadu_ps(c) : _mm256_setzero_ps();
        sums[i][1] = p->adds ? _mm256_loadu_ps(c + HALF) : _mm256_setzero_ps();
    }
    for (size_t k = p->inner; k > 0; k--, at.a += p->a_inner, at.b += p->b_stride) {
        __m256 left = _mm256_loadu_ps(at.b), right = _mm256_loadu_ps(at.b + HALF);
        UNROLLED for (size_t i = 0; i < ROWS; i++)
        {
            __m256 factor = _mm256_set1_ps(at.a[i * a_row]);
            sums[i][0] = _mm256_fmadd_ps(factor, left, sums[i][0]);
            sums[i][1] = _mm256_fmadd_ps(factor, right, sums[i][1]);
        }
    }
    UNROLLED for (size_t i = 0; i < ROWS; i++)
    {
        _mm256_storeu_ps(at.c + i * c_stride, sums[i][0]);
        _mm256_storeu_ps(at.c + i * c_stride + HALF, sums[i][1]);
    }
}

/* ROWS x LANES values, or twice as many in one way or the other. */
CPU_LOOP __attribute__((target("avx512f"))) void
tile_avx512(const struct tile_product *p, size_t row, size_t column, size_t rows, size_t vectors)
{
    const size_t a_row = p->a_row, c_stride = p->c_stride;
    struct corner at = corner_of(p, row, column);
    __m512 sums[2 * ROWS];

    UNROLLED for (size_t i = 0; i < rows * vectors; i++)
    {
        const float *c = at.c + i / vectors * c_stride + i % vectors * LANES;
        sums[i] = p->adds ? _mm512_loadu_ps(c) : _mm512_setzero_ps();
    }
    for (size_t k = p->inner; k > 0; k--, at.a += p->a_inner, at.b += p->b_stride) {
        __m512 left = _mm512_loadu_ps(at.b);
        __m512 right = vectors > 1 ? _mm512_loadu_ps(at.b + LANES) : left;
        UNROLLED for (size_t i = 0; i < rows * vectors; i++)
        {
            __m512 factor = _mm512_set1_ps(at.a[i / vectors * a_row]);
            sums[i] = _mm512_fmadd_ps(factor, i % vectors == 0 ? left : right, sums[i]);
        }
    }
    UNROLLED for (size_t i = 0; i < rows * vectors; i++)
    {
        _mm512_storeu_ps(at.c + i / vectors * c_stride + i % vectors * LANES, sums[i]);
    }
}

__attribute__((target("avx512f"))) static void product_avx512(const struct tile_product *p)
{
    size_t column = 0, row = 0;

    for (; column + 2 * LANES <= p->columns; column += 2 * LANES) {
        for (row = 0; row < p->rows; row += ROWS) {
            tile_avx512(p, row, column, ROWS, 2);
        }
    }
    if (column == p->columns) return;
    for (row = 0; row + 2 * ROWS <= p->rows; row += 2 * ROWS) {
        tile_avx512(p, row, column, 2 * ROWS, 1);
    }
    if (row < p->rows) tile_avx512(p, row, column, ROWS, 1);
}

__attribute__((target("avx2,fma"))) static void product_avx2(const struct tile_product *p)
{
    for (size_t row = 0; row < p->rows; row += ROWS) {
        for (size_t column = 0; column < p->columns; column += LANES) {
            tile_avx2(p, row, column);
        }
    }
}

#endif

/* The loops over LANES must stay loops until the compiler has made vectors of them: unrolled
 * before, they become scalar sums that fit no register. Hence the pragmas. */
CPU_LOOP void tile_plain(const struct tile_product *p, size_t row, size_t column)
{
    const size_t a_row = p->a_row, c_stride = p->c_stride;
    struct corner at = corner_of(p, row, column);
    float sums[HALF_ROWS][LANES];

    for (size_t i = 0; i < HALF_ROWS; i++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            sums[i][l] = p->adds ? at.c[i * c_stride + l] : 0.0F;
        }
    }
    for (size_t k = p->inner; k > 0; k--, at.a += p->a_inner, at.b += p->b_stride) {
        for (size_t i = 0; i < HALF_ROWS; i++) {
#pragma GCC unroll 1
            for (size_t l = 0; l < LANES; l++) {
                sums[i][l] += at.a[i * a_row] * at.b[l];
            }
        }
    }
    for (size_t i = 0; i < HALF_ROWS; i++) {
#pragma GCC unroll 1
        for (size_t l = 0; l < LANES; l++) {
            at.c[i * c_stride + l] = sums[i][l];
        }
    }
}

static void product_plain(const struct tile_product *p)
{
    for (size_t row = 0; row < p->rows; row += HALF_ROWS) {
        for (size_t column = 0; column < p->columns; column += LANES) {
            tile_plain(p, row, column);
        }
    }
}

void tile_product(const struct tile_product *p)
{
    CHECK(p->rows % ROWS == 0 && p->columns % LANES == 0);
#if defined(__x86_64__)
    if (cpu_has(CPU_AVX512)) {
        product_avx512(p);
        return;
    }
    if (cpu_has(CPU_AVX2)) {
        product_avx2(p);
        return;
    }
#endif
    product_plain(p);
}

FOR_EACH_CPU(extern, void, mask_scores, (float *scores, size_t rows, size_t first, size_t query),
             (scores, rows, first, query))
{
    for (size_t k = query + 1 > first ? query + 1 - first : 0; k < rows; k++) {
        const int32_t hidden = (int32_t)(first + k - query); /* so many of the queries */
#pragma GCC unroll 1
        for (int32_t l = 0; l < LANES; l++) {
            float score = scores[k * SIDE + (size_t)l];
            scores[k * SIDE + (size_t)l] = l < hidden ? -INFINITY : score;
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

/* Rows lie further apart than what the processor fetches ahead of itself. */
CPU_INLINE void fetch_row(const struct head_rows *rows, size_t row)
{
    for (size_t d = 0; row < rows->steps && d < rows->width; d += LANES) {
        __builtin_prefetch(rows->from + row * rows->stride + d);
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

        fetch_row(rows, first + r + AHEAD);
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
