/*
 * math: exp, sigmoid, tanh and erf for loops that the compiler shall vectorise: no branch, no call,
 * no table, so that a loop inside a FOR_EACH_CPU function runs them for as many values at once as
 * the machine's vectors hold, with the same bits for each width. Within 4 units in the last place
 * of the true value (relative error below 5e-7); NaN stays NaN.
 *
 * Method  exp: Cody and Waite (Software Manual for the Elementary Functions, 1980): x = n ln 2 + r
 *         with ln 2 in two parts, exp(r) = 1 + r + r^2 q(r). tanh, erf: x P(x^2) / Q(x^2), constant
 *         where the function is 1 to the last bit.
 * Source  of the coefficients: our own weighted least squares, re-weighted until the largest
 *         relative error was least (Lawson 1961), in float64. Errors of the fits: q 3e-9, tanh
 *         2e-8, erf 5e-8.
 */
#ifndef GRAPEVINE_KERNELS_CPU_MATH_H
#define GRAPEVINE_KERNELS_CPU_MATH_H

#include "base/floats.h"

#define CPU_INLINE static inline __attribute__((always_inline, unused))

/* x brought into [-limit, limit]. On the bits, for which there is a true minimum: comparisons of
 * floats become branches, and those keep the compiler from vectorising. A NaN becomes the limit. */
CPU_INLINE float cpu_limit(float x, float limit)
{
    uint32_t bits = float_bits(x), sign = bits & UINT32_C(0x80000000);
    int32_t size = (int32_t)(bits ^ sign), size_max = (int32_t)float_bits(limit);

    return float_of_bits((uint32_t)(size < size_max ? size : size_max) | sign);
}

/* NaN where x is one, otherwise y. */
CPU_INLINE float cpu_keep_nan(float x, float y)
{
    uint32_t is_nan = (UINT32_C(0x7f800000) - (float_bits(x) & UINT32_C(0x7fffffff))) >> 31;

    return float_of_bits(float_bits(y) | (0U - is_nan));
}

/* Added to a number below 2^22 it leaves the nearest integer in the sum's last bits: 1.5 * 2^23. */
#define CPU_TO_INTEGER 12582912.0F

/* exp(x) / 2^n, n being the integer next to x / ln 2. */
CPU_INLINE float cpu_exp_fraction(float x, float n)
{
    float r = (x - n * 0.693359375F) - n * -2.12194440e-4F;
    float q =
        (((1.381432052e-3F * r + 8.368851069e-3F) * r + 4.166840108e-2F) * r + 1.666651952e-1F) *
            r +
        4.999999337e-1F;

    return 1.0F + (r + r * r * q);
}

/** 0 below -87.7, infinity above 88.37; in between the smallest results are denormal. */
CPU_INLINE float cpu_exp(float x)
{
    float inside = cpu_limit(x, 89.0F);
    float shifted = inside * 1.44269504F + CPU_TO_INTEGER;
    /* 2^n, and at the ends what the exponent's bits then say: 0 is 0, 255 is infinity. */
    int32_t exponent = (int32_t)(float_bits(shifted) - float_bits(CPU_TO_INTEGER) + 127U);
    float power = float_of_bits((uint32_t)(exponent > 0 ? exponent : 0) << 23);

    return cpu_keep_nan(x, cpu_exp_fraction(inside, shifted - CPU_TO_INTEGER) * power);
}

/* The least that cpu_exp_shifted() tells from what is below, to be had before the loop: the
 * compiler does not know it, or it would make a branch for it. */
CPU_INLINE float cpu_exp_least(void)
{
    float least = -88.0F;

    __asm__("" : "+r"(least));
    return least;
}

/** exp of what is at most 88, as a softmax asks for it: 0 below -87.7. */
CPU_INLINE float cpu_exp_shifted(float x, float least)
{
    float inside = least > x ? least : x; /* a NaN stays */
    float shifted = inside * 1.44269504F + CPU_TO_INTEGER;
    float power = float_of_bits((float_bits(shifted) - float_bits(CPU_TO_INTEGER) + 127U) << 23);

    return cpu_exp_fraction(inside, shifted - CPU_TO_INTEGER) * power;
}

CPU_INLINE float cpu_sigmoid(float x)
{
    return 1.0F / (1.0F + cpu_exp(-x));
}

CPU_INLINE float cpu_tanh(float x)
{
    float inside = cpu_limit(x, 9.02F);
    float z = inside * inside;
    float p =
        (((1.331890820e-8F * z + 2.058335967e-5F) * z + 3.494027122e-3F) * z + 1.337971170e-1F) *
            z +
        9.999999790e-1F;
    float q =
        (((7.761951265e-7F * z + 3.283080687e-4F) * z + 2.587104495e-2F) * z + 4.671302695e-1F) *
            z +
        1.0F;

    return cpu_keep_nan(x, cpu_limit(inside * p / q, 1.0F));
}

/** As of the others, but that a NaN becomes 1: whoever multiplies by x has it again. */
CPU_INLINE float cpu_erf_of_number(float x)
{
    float inside = cpu_limit(x, 3.92F);
    float z = inside * inside;
    float p =
        (((((1.992408031e-8F * z + -1.957823019e-6F) * z + 1.418497793e-4F) * z + 3.701600435e-3F) *
              z +
          5.057331401e-2F) *
             z +
         1.999244530e-1F) *
            z +
        1.128379109e+0F;
    float q =
        (((9.560352779e-4F * z + 1.435319207e-2F) * z + 1.149983787e-1F) * z + 5.105100886e-1F) *
            z +
        1.0F;

    return cpu_limit(inside * p / q, 1.0F);
}

CPU_INLINE float cpu_erf(float x)
{
    return cpu_keep_nan(x, cpu_erf_of_number(x));
}

#endif
