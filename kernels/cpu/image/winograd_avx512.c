/* winograd.h with AVX-512: sixteen channels in a register, products of 12 rows x 32 columns. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 16, TILE_ROWS = 12, ROWS_LEFT = 8 };

#define TARGET         __attribute__((target("avx512f")))
#define WINOGRAD_TABLE winograd_avx512

typedef __m512 vec;
typedef int32_t ints __attribute__((vector_size(LANES * 4)));

#define vec_load(from)   _mm512_loadu_ps(from)
#define vec_store(to, x) _mm512_storeu_ps(to, x)
#define vec_of(value)    _mm512_set1_ps(value)
#define vec_fma(a, b, c) _mm512_fmadd_ps(a, b, c)
#define vec_max(a, b)    _mm512_max_ps(a, b)
#define vec_gather(from, stride)                                                                   \
    _mm512_i32gather_ps(_mm512_mullo_epi32(_mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, \
                                                             12, 13, 14, 15),                      \
                                           _mm512_set1_epi32((int)(stride))),                      \
                        from, sizeof(float))

#include "kernels/cpu/image/winograd_passes.h"

#endif
