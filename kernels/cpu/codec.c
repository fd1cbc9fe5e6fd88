/*
 * The codecs on the processor: kernels/codec.h says what they are. Whole blocks at a time, in plain
 * loops that the compiler vectorises; integers decide (exponents, magnitudes), so that the order of
 * comparisons cannot change a result. Wire bytes need not be aligned: what is wider than a byte
 * and is not goes through a small block on the stack. Little-endian machines swap nothing.
 */
#include "kernels/codec.h"

#include "base/check.h"
#include "base/floats.h"
#include "kernels/cpu/half.h"
#include "kernels/cpu/internal.h"

#include <endian.h>
#include <float.h>
#include <stdalign.h>
#include <string.h>

enum { BLOCK_VALUES = 512 };

static const uint32_t magnitude_bits = 0x7fffffffu, exponent_bits = 0x7f800000u;
static const uint32_t cut_bits = 0x7fu; /* of a scale */

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* --- f32 ---------------------------------------------------------------------------------------*/

static void swap_words(uint8_t *bytes, size_t values)
{
    if (htole32(1) == 1) return;
    for (size_t i = 0; i < values; i++) {
        uint32_t word;

        memcpy(&word, bytes + 4 * i, sizeof(word));
        word = htole32(word);
        memcpy(bytes + 4 * i, &word, sizeof(word));
    }
}

static enum rc decode_f32(const uint8_t *in, float *out, size_t values)
{
    memcpy(out, in, 4 * values);
    swap_words((uint8_t *)out, values);
    return floats_are_finite(out, values) ? RC_OK : RC_NONFINITE;
}

/* --- f16, bf16 ---------------------------------------------------------------------------------*/

/* A NaN would come out as the largest number, but there is none among the values. */
FOR_EACH_CPU(static, void, to_bf16, (const float *restrict in, size_t n, uint16_t *restrict out),
             (in, n, out))
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(in[i]), sign = bits >> 16 & 0x8000u;
        uint32_t magnitude = bits & magnitude_bits;

        magnitude = (magnitude + 0x7fffu + (magnitude >> 16 & 1u)) >> 16;
        magnitude = magnitude < 0x7f7fu ? magnitude : 0x7f7fu;
        out[i] = (uint16_t)(sign | magnitude);
    }
}

FOR_EACH_CPU(static, void, from_bf16, (const uint16_t *restrict in, size_t n, float *restrict out),
             (in, n, out))
{
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)in[i] << 16;

        memcpy(&out[i], &bits, sizeof(bits));
    }
}

/* Bytes that are the numbers, where they are. */
static bool are_halves(const uint8_t *bytes)
{
    return htole16(1) == 1 && (uintptr_t)bytes % alignof(uint16_t) == 0;
}

static void encode_halves(enum codec_format format, const float *in, size_t values, uint8_t *out)
{
    bool is_direct = are_halves(out);
    uint16_t block[BLOCK_VALUES];

    for (size_t done = 0; done < values; done += BLOCK_VALUES) {
        size_t n = smaller(values - done, BLOCK_VALUES);
        uint16_t *to = is_direct ? (uint16_t *)(void *)(out + 2 * done) : block;

        if (format == CODEC_F16) {
            half_encode(in + done, n, to);
        } else {
            to_bf16(in + done, n, to);
        }
        if (is_direct) continue;
        for (size_t i = 0; i < n; i++) {
            block[i] = htole16(block[i]);
        }
        memcpy(out + 2 * done, block, 2 * n);
    }
}

/* Exponents of all ones are infinities and NaNs. */
FOR_EACH_CPU(static, bool, halves_are_finite, (const uint16_t *halves, size_t n, uint16_t exponent),
             (halves, n, exponent))
{
    unsigned bad = 0;

    for (size_t i = 0; i < n; i++) {
        bad |= (unsigned)((halves[i] & exponent) == exponent);
    }
    return bad == 0;
}

static enum rc decode_halves(enum codec_format format, const uint8_t *in, float *out, size_t values)
{
    uint16_t block[BLOCK_VALUES];
    uint16_t exponent = format == CODEC_F16 ? 0x7c00u : 0x7f80u;
    bool is_direct = are_halves(in);

    for (size_t done = 0; done < values; done += BLOCK_VALUES) {
        size_t n = smaller(values - done, BLOCK_VALUES);
        const uint16_t *from = block;

        if (is_direct) {
            from = (const uint16_t *)(const void *)(in + 2 * done);
        } else {
            memcpy(block, in + 2 * done, 2 * n);
            for (size_t i = 0; i < n; i++) {
                block[i] = le16toh(block[i]);
            }
        }
        if (!halves_are_finite(from, n, exponent)) return RC_NONFINITE;
        if (format == CODEC_F16) {
            half_decode(from, n, out + done);
        } else {
            from_bf16(from, n, out + done);
        }
    }
    return RC_OK;
}

/* --- int8 --------------------------------------------------------------------------------------*/

/* Magnitudes of finite numbers are in the order of their bits. */
FOR_EACH_CPU(static, uint32_t, largest_magnitude, (const float *in, size_t n), (in, n))
{
    uint32_t largest = 0;

    for (size_t i = 0; i < n; i++) {
        uint32_t bits = float_bits(in[i]) & magnitude_bits;

        largest = bits > largest ? bits : largest;
    }
    return largest;
}

static uint32_t scale_bits_of(float largest)
{
    float scale = largest / 127.0F;

    return scale >= FLT_MIN ? float_bits(scale) & ~cut_bits : 0;
}

/* Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits, ties to even. */
FOR_EACH_CPU(static, void, to_bytes,
             (float scale, const float *restrict in, size_t n, uint8_t *restrict out),
             (scale, in, n, out))
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (uint8_t)float_bits(in[i] / scale + 0x1.8p23F);
    }
}

static void encode_int8(const float *in, size_t values, uint8_t *out)
{
    uint8_t *bytes = out + codec_bytes(CODEC_INT8, values) - values;

    for (size_t done = 0; done < values; done += CODEC_BLOCK, out += 4) {
        size_t n = smaller(values - done, CODEC_BLOCK);
        uint32_t bits = scale_bits_of(float_of_bits(largest_magnitude(in + done, n)));
        uint32_t word = htole32(bits);

        memcpy(out, &word, sizeof(word));
        if (bits == 0) {
            memset(bytes + done, 0, n);
        } else {
            to_bytes(float_of_bits(bits), in + done, n, bytes + done);
        }
    }
}

/* The largest magnitude among the bytes; 128 is none that is written. */
FOR_EACH_CPU(static, unsigned, from_bytes,
             (float scale, const uint8_t *restrict in, size_t n, float *restrict out),
             (scale, in, n, out))
{
    unsigned largest = 0;

    for (size_t i = 0; i < n; i++) {
        int byte = (int8_t)in[i];
        unsigned magnitude = (unsigned)(byte < 0 ? -byte : byte);

        largest = magnitude > largest ? magnitude : largest;
        out[i] = (float)byte * scale;
    }
    return largest;
}

/* Of those that are written: not negative, 0 or normal, cut, and 127 times it is finite. */
static bool is_scale(uint32_t bits)
{
    if ((bits & ~magnitude_bits) != 0 || (bits & cut_bits) != 0) return false;
    if (bits == 0) return true;
    return (bits & exponent_bits) != 0 && (bits & exponent_bits) != exponent_bits &&
           float_of_bits(bits) <= FLT_MAX / 127.0F;
}

static enum rc decode_int8(const uint8_t *in, float *out, size_t values)
{
    const uint8_t *bytes = in + codec_bytes(CODEC_INT8, values) - values;

    for (size_t done = 0; done < values; done += CODEC_BLOCK, in += 4) {
        size_t n = smaller(values - done, CODEC_BLOCK);
        unsigned largest;
        uint32_t bits;

        memcpy(&bits, in, sizeof(bits));
        bits = le32toh(bits);
        if (!is_scale(bits)) return RC_NONFINITE;
        largest = from_bytes(float_of_bits(bits), bytes + done, n, out + done);
        if (largest != (bits == 0 ? 0u : 127u)) return RC_NONFINITE;
    }
    return RC_OK;
}

/* --- all ---------------------------------------------------------------------------------------*/

void codec_encode(enum codec_format format, const float *in, size_t values, uint8_t *out)
{
    CHECK(format < CODEC_FORMATS);
    if (values == 0) return;
    if (format == CODEC_F32) {
        memcpy(out, in, 4 * values);
        swap_words(out, values);
    } else if (format == CODEC_INT8) {
        encode_int8(in, values, out);
    } else {
        encode_halves(format, in, values, out);
    }
}

enum rc codec_decode(enum codec_format format, const uint8_t *in, float *out, size_t values)
{
    CHECK(format < CODEC_FORMATS);
    if (values == 0) return RC_OK;
    if (format == CODEC_F32) return decode_f32(in, out, values);
    if (format == CODEC_INT8) return decode_int8(in, out, values);
    return decode_halves(format, in, out, values);
}
