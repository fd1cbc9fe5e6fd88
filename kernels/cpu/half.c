/*
 * binary16 conversion: plain C, and F16C (VCVTPS2PH, VCVTPH2PS) chosen at run time, so that one
 * executable runs on any x86-64 and uses what it finds. F16C comes with every AVX2 processor, which
 * is what is asked for: compilers' names for F16C itself differ. Pure; any thread.
 */
#include "kernels/cpu/half.h"

#include "base/cpu.h"
#include "base/floats.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static const float half_max = 65504.0f;

/* Divide by 2^shift, to nearest, ties to even. shift in 1..31. */
static uint32_t shift_rounded(uint32_t value, uint32_t shift)
{
    uint32_t low = value & ((1u << shift) - 1);
    uint32_t tie = 1u << (shift - 1);
    uint32_t quotient = value >> shift;

    return quotient + (uint32_t)(low > tie || (low == tie && (quotient & 1) != 0));
}

uint16_t half_of_plain(float value)
{
    uint32_t bits = float_bits(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    uint32_t exponent = magnitude >> 23;

    if (magnitude > float_bits(half_max)) return (uint16_t)(sign | 0x7bffu);
    if (exponent >= 113) { /* a normal half: rebias 127 to 15, round 13 bits away */
        return (uint16_t)(sign | shift_rounded(magnitude - (112u << 23), 13));
    }
    if (exponent < 102) return (uint16_t)sign; /* below half of the least subnormal */
    /* subnormal: units of 2^-24; the carry into 0x400 is the least normal, as it should be */
    return (uint16_t)(sign | shift_rounded((magnitude & 0x7fffffu) | 0x800000u, 126 - exponent));
}

float half_to_float_plain(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 31u;
    uint32_t mantissa = half & 0x3ffu;
    float subnormal;

    if (exponent == 31) { /* infinity or NaN; a NaN comes out quiet, as the processor does it */
        return float_of_bits(sign | 0x7f800000u | mantissa << 13 | (mantissa != 0 ? 0x400000u : 0));
    }
    if (exponent != 0) return float_of_bits(sign | (exponent + 112) << 23 | mantissa << 13);
    subnormal = (float)mantissa * 0x1.0p-24f; /* exact */
    return float_of_bits(sign | float_bits(subnormal));
}

static void encode_plain(const float *in, size_t count, uint16_t *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = half_of_plain(in[i]);
    }
}

static void decode_plain(const uint16_t *in, size_t count, float *out)
{
    for (size_t i = 0; i < count; i++) {
        out[i] = half_to_float_plain(in[i]);
    }
}

#if defined(__x86_64__)
__attribute__((target("avx,f16c"))) static void encode_f16c(const float *in, size_t count,
                                                            uint16_t *out)
{
    const __m256 top = _mm256_set1_ps(half_max), bottom = _mm256_set1_ps(-half_max);
    size_t i = 0;

    for (; i + 8 <= count; i += 8) {
        __m256 x = _mm256_min_ps(_mm256_max_ps(_mm256_loadu_ps(in + i), bottom), top);

        _mm_storeu_si128((__m128i *)(void *)(out + i),
                         _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
    }
    encode_plain(in + i, count - i, out + i);
}

__attribute__((target("avx,f16c"))) static void decode_f16c(const uint16_t *in, size_t count,
                                                            float *out)
{
    size_t i = 0;

    for (; i + 8 <= count; i += 8) {
        __m128i x = _mm_loadu_si128((const __m128i *)(const void *)(in + i));

        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(x));
    }
    decode_plain(in + i, count - i, out + i);
}
#endif

void half_encode(const float *in, size_t count, uint16_t *out)
{
#if defined(__x86_64__)
    if (cpu_has(CPU_AVX2)) {
        encode_f16c(in, count, out);
        return;
    }
#endif
    encode_plain(in, count, out);
}

void half_decode(const uint16_t *in, size_t count, float *out)
{
#if defined(__x86_64__)
    if (cpu_has(CPU_AVX2)) {
        decode_f16c(in, count, out);
        return;
    }
#endif
    decode_plain(in, count, out);
}
