/* Streaming stores of x86-64, chosen at run time; elsewhere they are copies. Any thread. */
#include "base/stream.h"

#include "base/cpu.h"
#include "base/floats.h"

#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { WORTH_VALUES = 4 << 20, LINE_BYTES = 64, LINE_VALUES = 16 };

bool stream_is_worth_it(size_t plane_values)
{
    return plane_values >= WORTH_VALUES;
}

#if defined(__x86_64__)
/* Whole lines; the fence makes them visible to whoever is told of them next. */
__attribute__((target("avx2"))) static size_t copy_lines(float *to, const float *from, size_t count,
                                                         bool *is_finite)
{
    const __m256i exponent = _mm256_set1_epi32(0x7f800000);
    __m256i bad = _mm256_setzero_si256();
    size_t i = 0;

    for (; i + LINE_VALUES <= count; i += LINE_VALUES) {
        __m256i low = _mm256_loadu_si256((const __m256i *)(const void *)(from + i));
        __m256i high = _mm256_loadu_si256((const __m256i *)(const void *)(from + i + 8));

        _mm256_stream_si256((__m256i *)(void *)(to + i), low);
        _mm256_stream_si256((__m256i *)(void *)(to + i + 8), high);
        low = _mm256_cmpeq_epi32(_mm256_and_si256(low, exponent), exponent);
        high = _mm256_cmpeq_epi32(_mm256_and_si256(high, exponent), exponent);
        bad = _mm256_or_si256(bad, _mm256_or_si256(low, high));
    }
    _mm_sfence();
    *is_finite = _mm256_testz_si256(bad, bad) != 0;
    return i;
}

static bool can_stream(const float *to)
{
    return (uintptr_t)to % LINE_BYTES == 0 && cpu_has(CPU_AVX2);
}
#endif

FOR_EACH_CPU(static, bool, copy_finite,
             (float *restrict to, const float *restrict from, size_t count), (to, from, count))
{
    uint32_t bad = 0;

    for (size_t i = 0; i < count; i++) {
        bad |= (uint32_t)((float_bits(from[i]) & 0x7f800000u) == 0x7f800000u);
        to[i] = from[i];
    }
    return bad == 0;
}

bool stream_copy_finite(float *to, const float *from, size_t count, bool streams)
{
    bool is_finite = true;
    size_t done = 0;

#if defined(__x86_64__)
    if (streams && can_stream(to)) done = copy_lines(to, from, count, &is_finite);
#else
    (void)streams;
#endif
    return copy_finite(to + done, from + done, count - done) && is_finite;
}

void stream_copy(float *to, const float *from, size_t count)
{
    (void)stream_copy_finite(to, from, count, true);
}
