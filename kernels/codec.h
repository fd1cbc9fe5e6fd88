/*
 * codec: how float32 values become bytes for the wire, bit by bit the same on every device. Values
 * are finite; numbers are little-endian. The encoded size follows from the count alone.
 *
 *   f32    as they are
 *   f16    IEEE 754 half, to nearest even, clamped to +-65504
 *   bf16   the upper half of a float32, to nearest even, clamped to the largest finite one
 *   int8   blocks of CODEC_BLOCK values (the last may be shorter): all blocks' scales (float32)
 *          first, then one byte a value. scale = largest |value| / 127 with the lowest 7 bits of
 *          its fraction cut off, byte = nearest(value / scale) in [-127, 127], ties to even; a
 *          block of zeros, or whose scale would be below the smallest normal number, has scale 0
 *          and bytes 0. Decoded: byte * scale, which is exact. After Dettmers, Lewis, Shleifer,
 *          Zettlemoyer 2021, arXiv:2110.02861, with a linear code.
 *
 * Encoding what was decoded gives the same bytes, so equal bytes mean equal values and the other
 * way round. (int8: with 17 significant bits 127 * scale is exact, and is the largest again.)
 */
#ifndef GRAPEVINE_KERNELS_CODEC_H
#define GRAPEVINE_KERNELS_CODEC_H

#include "base/rc.h"

#include <stddef.h>
#include <stdint.h>

enum codec_format { CODEC_F32, CODEC_F16, CODEC_BF16, CODEC_INT8, CODEC_FORMATS };

enum { CODEC_BLOCK = 256 };

static inline size_t codec_bytes(enum codec_format format, size_t values)
{
    switch (format) {
    case CODEC_F16:
    case CODEC_BF16:
        return 2 * values;
    case CODEC_INT8:
        return (values + CODEC_BLOCK - 1) / CODEC_BLOCK * sizeof(float) + values;
    case CODEC_F32:
    default:
        return sizeof(float) * values;
    }
}

/* kernels/cpu/codec.c, the specification of what devices do. Pure; any thread, any alignment of
 * bytes. */
void codec_encode(enum codec_format format, const float *in, size_t values, uint8_t *out);
/** RC_NONFINITE if a value decodes to NaN or an infinity, or bytes are none that codec_encode()
 *  writes (int8: -128, scales below 0 or denormal, a block that does not use its scale); `out` is
 *  then unspecified. */
MUST_USE enum rc codec_decode(enum codec_format format, const uint8_t *in, float *out,
                              size_t values);

#endif
