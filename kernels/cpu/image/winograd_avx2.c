/* winograd.h with AVX2: eight channels in a register, products of 6 rows x 16 columns in twelve. */
#if defined(__x86_64__)

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

enum { LANES = 8, TILE_ROWS = 6, ROWS_LEFT = 4 };

#define TARGET         __attribute__((target("avx2,fma")))
#define WINOGRAD_TABLE winograd_avx2

typedef __m256 vec;
typedef int32_t ints __attribute__((vector_size(LANES * 4)));

#define vec_load(from)   _mm256_loadu_ps(from)
#define vec_store(to, x) _mm256_storeu_ps(to, x)
#define vec_of(value)    _mm256_set1_ps(value)
#define vec_fma(a, b, c) _mm256_fmadd_ps(a, b, c)
#define vec_max(a, b)    _mm256_max_ps(a, b)
#define vec_gather(from, stride)                                                                   \
    _mm256_i32gather_ps(from,                                                                      \
                        _mm256_mullo_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7),              \
                                           _mm256_set1_epi32((int)(stride))),                      \
                        sizeof(float))

#include "kernels/cpu/image/winograd_passes.h"

#endif
