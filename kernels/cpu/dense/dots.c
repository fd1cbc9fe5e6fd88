/*
 * Products of very few rows, see dots.h: each value of C is the dot product of two rows that lie in
 * memory as they are. Four rows of B at a time, whose sums live in registers, eight lanes each and,
 * of one row of A, two chains; lanes and chains are added in one order for every value.
 */
#include "kernels/cpu/dense/dots.h"

#include "base/check.h"
#include "base/cpu.h"
#include "kernels/cpu/transpose.h"

#if defined(__x86_64__)

enum { COLUMNS = 4, CHAINS_MAX = 2 };

/* One value from its lanes. */
INLINE AVX2 float sum_of(__m256 lanes)
{
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(lanes), _mm256_extractf128_ps(lanes, 1));

    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_movehdup_ps(sum)));
}

/* `columns` values of C in each of `rows` rows; `rows`, `columns` and `chains` are constants
 * wherever this is inlined. */
INLINE AVX2 void multiply(const struct gemm *g, size_t rows, size_t columns, size_t chains,
                          size_t first)
{
    const float *b = g->b + first * g->b_stride;
    size_t step = chains * LANES_AVX2, whole = g->inner - g->inner % step;
    __m256 sums[COLUMNS][DOTS_ROWS_MAX][CHAINS_MAX];

    for (size_t c = 0; c < columns; c++) {
        for (size_t r = 0; r < rows; r++) {
            sums[c][r][0] = sums[c][r][1] = _mm256_setzero_ps();
        }
    }
    for (size_t k = 0; k < whole; k += step) {
        UNROLLED for (size_t i = 0; i < chains; i++)
        {
            UNROLLED for (size_t c = 0; c < columns; c++)
            {
                __m256 factor = _mm256_loadu_ps(b + c * g->b_stride + k + i * LANES_AVX2);

                UNROLLED for (size_t r = 0; r < rows; r++)
                {
                    __m256 a = _mm256_loadu_ps(g->a + r * g->a_stride + k + i * LANES_AVX2);
                    sums[c][r][i] = _mm256_fmadd_ps(a, factor, sums[c][r][i]);
                }
            }
        }
    }
    for (size_t c = 0; c < columns; c++) {
        for (size_t r = 0; r < rows; r++) {
            float *to = g->c + r * g->c_stride + first + c;
            float sum = sum_of(_mm256_add_ps(sums[c][r][0], sums[c][r][1]));

            for (size_t k = whole; k < g->inner; k++) {
                sum += g->a[r * g->a_stride + k] * b[c * g->b_stride + k];
            }
            *to = g->beta == 0.0F ? sum : *to + sum;
        }
    }
}

INLINE AVX2 void multiply_all(const struct gemm *g, size_t rows, size_t chains, size_t from,
                              size_t to)
{
    for (; from + COLUMNS <= to; from += COLUMNS) {
        multiply(g, rows, COLUMNS, chains, from);
    }
    for (; from < to; from++) {
        multiply(g, rows, 1, chains, from);
    }
}

/* Not inlined: each of these three keeps its registers to itself. */
AVX2 static __attribute__((noinline)) void multiply_1(const struct gemm *g, size_t from, size_t to)
{
    multiply_all(g, 1, CHAINS_MAX, from, to);
}

AVX2 static __attribute__((noinline)) void multiply_2(const struct gemm *g, size_t from, size_t to)
{
    multiply_all(g, 2, 1, from, to);
}

AVX2 static __attribute__((noinline)) void multiply_3(const struct gemm *g, size_t from, size_t to)
{
    multiply_all(g, DOTS_ROWS_MAX, 1, from, to);
}

bool dots_serve(const struct gemm *g)
{
    return cpu_has(CPU_AVX2) && g->rows <= DOTS_ROWS_MAX && g->is_b_transposed &&
           !g->is_a_transposed && g->alpha == 1.0F && (g->beta == 0.0F || g->beta == 1.0F);
}

void dots_multiply(const struct gemm *g, size_t from, size_t to)
{
    CHECK(from <= to && to <= g->columns && dots_serve(g));
    if (g->rows == 1) {
        multiply_1(g, from, to);
    } else if (g->rows == 2) {
        multiply_2(g, from, to);
    } else {
        multiply_3(g, from, to);
    }
}

#else

bool dots_serve(const struct gemm *g)
{
    (void)g;
    return false;
}

void dots_multiply(const struct gemm *g, size_t from, size_t to)
{
    (void)g;
    (void)from;
    (void)to;
    CHECK(false);
}

#endif
