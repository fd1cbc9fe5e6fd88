/* transpose: squares of values of 32 bits transposed in registers, 16 x 16 with AVX-512 and 8 x 8
 * with AVX2; for x86-64 only. */
#ifndef GRAPEVINE_KERNELS_CPU_TRANSPOSE_H
#define GRAPEVINE_KERNELS_CPU_TRANSPOSE_H

#if defined(__x86_64__)

#include "base/cpu.h"

#include <stddef.h>

#include <immintrin.h>

#define AVX512 __attribute__((target("avx512f")))
#define AVX2   __attribute__((target("avx2,fma")))
#define INLINE static inline __attribute__((always_inline, unused))

enum { LANES = 16, LANES_AVX2 = 8 };

/* The first `count` of a vector's lanes. */
INLINE AVX512 __mmask16 lanes_first(size_t count)
{
    return (__mmask16)(count >= LANES ? 0xffffU : (1U << count) - 1U);
}

INLINE AVX512 __m512 low_pairs(__m512 a, __m512 b)
{
    return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

INLINE AVX512 __m512 high_pairs(__m512 a, __m512 b)
{
    return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
}

/* Turn 16 x 16 values: single values, then pairs, then quarters of vectors change places. */
INLINE AVX512 void transpose_square(__m512 rows[LANES])
{
    __m512 t[LANES];

    for (int i = 0; i < 8; i++) {
        t[2 * i] = _mm512_unpacklo_ps(rows[2 * i], rows[2 * i + 1]);
        t[2 * i + 1] = _mm512_unpackhi_ps(rows[2 * i], rows[2 * i + 1]);
    }
    for (int i = 0; i < LANES; i += 4) {
        rows[i] = low_pairs(t[i], t[i + 2]);
        rows[i + 1] = high_pairs(t[i], t[i + 2]);
        rows[i + 2] = low_pairs(t[i + 1], t[i + 3]);
        rows[i + 3] = high_pairs(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0x88);
        t[4 + i] = _mm512_shuffle_f32x4(rows[i], rows[4 + i], 0xdd);
        t[8 + i] = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0x88);
        t[12 + i] = _mm512_shuffle_f32x4(rows[8 + i], rows[12 + i], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        rows[i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0x88);
        rows[8 + i] = _mm512_shuffle_f32x4(t[i], t[8 + i], 0xdd);
        rows[4 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0x88);
        rows[12 + i] = _mm512_shuffle_f32x4(t[4 + i], t[12 + i], 0xdd);
    }
}

/* 8 x 8 values change places: single ones, then pairs, then halves of vectors. */
INLINE AVX2 void transpose_square_avx2(__m256 rows[LANES_AVX2])
{
    __m256 t[LANES_AVX2];

    UNROLLED for (size_t i = 0; i < LANES_AVX2; i += 2)
    {
        t[i] = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
    }
    UNROLLED for (size_t i = 0; i < LANES_AVX2; i += 4)
    {
        rows[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        rows[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        rows[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        rows[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    UNROLLED for (size_t i = 0; i < LANES_AVX2 / 2; i++)
    {
        __m256 low = rows[i], high = rows[i + 4];

        rows[i] = _mm256_permute2f128_ps(low, high, 0x20);
        rows[i + 4] = _mm256_permute2f128_ps(low, high, 0x31);
    }
}

#endif
#endif
