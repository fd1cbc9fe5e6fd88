/*
 * floats: float32 numbers and the bits they are made of, as wires and files have them, and whether
 * any of many is not finite: one whose exponent bits are all ones, a NaN or an infinity. Looking at
 * bits is fast, and safe under any flags for floating point. Any thread.
 */
#ifndef GRAPEVINE_BASE_FLOATS_H
#define GRAPEVINE_BASE_FLOATS_H

#include "base/bytes.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t float_bits(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float_of_bits(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float load_le_float(const void *from)
{
    return float_of_bits(load_le32(from));
}

static inline void store_le_float(void *to, float value)
{
    store_le32(to, float_bits(value));
}

/** No NaN, no infinity among `values`. */
bool floats_are_finite(const float *values, size_t count);

#endif
