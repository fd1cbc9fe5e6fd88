/*
 * See blocks.h. The loops are in the order of a chunk's journey: sums, integers, bytes, and back.
 */
#include "averaging/codec/blocks.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { LANES = 8 };

/* ---- sums ---- */

CPU_LOOP void add(double sums[3][LANES], uint32_t largest[LANES], size_t lane, float value)
{
    uint32_t bits = float_bits(value) & 0x7fffffffu;
    double v = (double)value;

    sums[0][lane] += v;
    sums[1][lane] += fabs(v);
    sums[2][lane] += v * v;
    largest[lane] = bits > largest[lane] ? bits : largest[lane];
}

CPU_LOOP double sum_of(const double lanes[LANES])
{
    double sum = 0;

    for (size_t lane = 0; lane < LANES; lane++) {
        sum += lanes[lane];
    }
    return sum;
}

FOR_EACH_CPU(extern, struct block_sums, block_sums, (const float *in, size_t n), (in, n))
{
    double sums[3][LANES] = {{0}};
    uint32_t largest[LANES] = {0}, most = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        UNROLLED
        for (size_t lane = 0; lane < LANES; lane++) {
            add(sums, largest, lane, in[i + lane]);
        }
    }
    for (size_t lane = 0; i < n; lane++, i++) {
        add(sums, largest, lane, in[i]);
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        most = largest[lane] > most ? largest[lane] : most;
    }
    return (struct block_sums){sum_of(sums[0]), sum_of(sums[1]), sum_of(sums[2]),
                               float_of_bits(most)};
}

CPU_LOOP void fit(double dots[LANES], int32_t squares[LANES], size_t lane, float value, int integer)
{
    dots[lane] += (double)value * (double)integer;
    squares[lane] += integer * integer;
}

FOR_EACH_CPU(extern, float, block_fit, (const float *in, const int8_t *integers, size_t n),
             (in, integers, n))
{
    double dots[LANES] = {0};
    int32_t squares[LANES] = {0}, square = 0;
    size_t i = 0;

    for (; i + LANES <= n; i += LANES) {
        UNROLLED
        for (size_t lane = 0; lane < LANES; lane++) {
            fit(dots, squares, lane, in[i + lane], integers[i + lane]);
        }
    }
    for (size_t lane = 0; i < n; lane++, i++) {
        fit(dots, squares, lane, in[i], integers[i]);
    }
    for (size_t lane = 0; lane < LANES; lane++) {
        square += squares[lane];
    }
    return square == 0 ? 0 : (float)(sum_of(dots) / square);
}

/* ---- chance ---- */

/* Uniform in [0, 1), a multiple of 2^-24: a hash of seed and place (two rounds of MurmurHash3's
 * finaliser), so that any order and any length of vectors gives the same. */
CPU_LOOP float chance_of(uint64_t seed, uint32_t i)
{
    uint32_t x = (uint32_t)seed + i * 0x9e3779b9u;

    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x = (x ^ x >> 16) + (uint32_t)(seed >> 32);
    x = (x ^ x >> 16) * 0x85ebca6bu;
    x = (x ^ x >> 13) * 0xc2b2ae35u;
    x ^= x >> 16;
    return (float)(int32_t)(x >> 8) * 0x1p-24F;
}

FOR_EACH_CPU(static, void, round_by_chance,
             (uint64_t seed, uint32_t first, float scale, int levels, const float *restrict in,
              size_t n, int8_t *restrict integers),
             (seed, first, scale, levels, in, n, integers))
{
    for (size_t i = 0; i < n; i++) {
        float size = fabsf(in[i]) / scale;
        int32_t level = (int32_t)size; /* towards 0 */

        level += chance_of(seed, first + (uint32_t)i) < size - (float)level;
        level = level < levels ? level : levels;
        integers[i] = (int8_t)(in[i] < 0 ? -level : level);
    }
}

bool block_round(uint64_t seed, uint32_t first, float scale, int levels, const float *in, size_t n,
                 int8_t *integers)
{
    if (!(scale >= FLT_MIN)) return false;
    round_by_chance(seed, first, scale < FLT_MAX ? scale : FLT_MAX, levels, in, n, integers);
    return true;
}

/* ---- bits ---- */

/* Eight numbers at a time are so many whole bytes. */
CPU_LOOP uint64_t eight(unsigned bits, const uint8_t *numbers)
{
    uint64_t word = 0;

    UNROLLED
    for (unsigned k = 0; k < 8; k++) {
        word |= (uint64_t)numbers[k] << k * bits;
    }
    return word;
}

CPU_LOOP size_t pack(unsigned bits, const uint8_t *numbers, size_t n, uint8_t *out)
{
    uint8_t last[8] = {0};
    size_t i = 0;

    for (; i + 8 <= n; i += 8, out += bits) {
        uint64_t word = eight(bits, numbers + i);

        for (unsigned k = 0; k < bits; k++) {
            out[k] = (uint8_t)(word >> 8 * k);
        }
    }
    if (i == n) return bits_bytes(bits, n);
    memcpy(last, numbers + i, n - i);
    for (uint64_t word = eight(bits, last), k = 0; k < bits_bytes(bits, n - i); k++) {
        out[k] = (uint8_t)(word >> 8 * k);
    }
    return bits_bytes(bits, n);
}

CPU_LOOP bool unpack(unsigned bits, const uint8_t *in, size_t n, uint8_t *numbers)
{
    uint8_t mask = (uint8_t)((1u << bits) - 1);
    uint64_t word = 0;
    size_t i = 0;

    for (; i + 8 <= n; i += 8, in += bits) {
        word = 0;
        for (unsigned k = 0; k < bits; k++) {
            word |= (uint64_t)in[k] << 8 * k;
        }
        UNROLLED
        for (unsigned k = 0; k < 8; k++) {
            numbers[i + k] = (uint8_t)(word >> k * bits) & mask;
        }
    }
    word = 0;
    for (unsigned k = 0; k < bits_bytes(bits, n - i); k++) {
        word |= (uint64_t)in[k] << 8 * k;
    }
    for (; i < n; i++, word >>= bits) {
        numbers[i] = (uint8_t)word & mask;
    }
    return word == 0;
}

/* Each width in a loop of its own. */
#define WIDTHS(call)                                                                               \
    switch (bits) {                                                                                \
    case 1:                                                                                        \
        return call(1);                                                                            \
    case 2:                                                                                        \
        return call(2);                                                                            \
    case 4:                                                                                        \
        return call(4);                                                                            \
    case 8:                                                                                        \
        return call(8);                                                                            \
    default:                                                                                       \
        return call(bits);                                                                         \
    }

size_t bits_pack(unsigned bits, const uint8_t *numbers, size_t n, uint8_t *out)
{
    CHECK(bits >= 1 && bits <= 8);
#define PACK(width) pack(width, numbers, n, out)
    WIDTHS(PACK)
}

bool bits_unpack(unsigned bits, const uint8_t *in, size_t n, uint8_t *numbers)
{
    CHECK(bits >= 1 && bits <= 8);
#define UNPACK(width) unpack(width, in, n, numbers)
    WIDTHS(UNPACK)
}

/* ---- trits ---- */

enum { TRITS = 5 };

/* numbers: [5 bytes], 0 beyond those of the block. */
FOR_EACH_CPU(static, void, trits_pack,
             (const uint8_t *restrict numbers, size_t bytes, uint8_t *restrict out),
             (numbers, bytes, out))
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned upper = numbers[i + 3 * bytes] + 3u * numbers[i + 4 * bytes];

        out[i] = (uint8_t)(numbers[i] + 3u * numbers[i + bytes] + 9u * numbers[i + 2 * bytes] +
                           27u * upper);
    }
}

/* False: a byte is larger than five trits. */
FOR_EACH_CPU(static, bool, trits_unpack,
             (const uint8_t *restrict in, size_t bytes, uint8_t *restrict numbers),
             (in, bytes, numbers))
{
    uint8_t left[BLOCK_VALUES_MAX / TRITS], over = 0;

    for (size_t i = 0; i < bytes; i++) {
        left[i] = in[i];
    }
    for (size_t d = 0; d < TRITS; d++) {
        for (size_t i = 0; i < bytes; i++) {
            uint8_t third = (uint8_t)(left[i] * 171u >> 9); /* a third of a byte */

            numbers[d * bytes + i] = (uint8_t)(left[i] - 3u * third);
            left[i] = third;
        }
    }
    for (size_t i = 0; i < bytes; i++) {
        over |= left[i];
    }
    return over == 0;
}

/* ---- integers ---- */

static size_t integers_bytes(const struct block_format *format, size_t n)
{
    return format->bits == BLOCK_TRITS ? (n + TRITS - 1) / TRITS : bits_bytes(format->bits, n);
}

FOR_EACH_CPU(static, void, to_numbers,
             (unsigned bits, const int8_t *restrict integers, size_t n, uint8_t *restrict numbers),
             (bits, integers, n, numbers))
{
    uint8_t mask = (uint8_t)((1u << bits) - 1);

    if (bits == BLOCK_TRITS) {
        for (size_t i = 0; i < n; i++) {
            numbers[i] = (uint8_t)(integers[i] < 0 ? 2 : integers[i]);
        }
    } else if (bits == BLOCK_SIGNS) {
        for (size_t i = 0; i < n; i++) {
            numbers[i] = integers[i] < 0;
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            numbers[i] = (uint8_t)integers[i] & mask;
        }
    }
}

FOR_EACH_CPU(static, void, to_integers,
             (unsigned bits, const uint8_t *restrict numbers, size_t n, int8_t *restrict integers),
             (bits, numbers, n, integers))
{
    int half = (1 << bits) / 2;

    if (bits == BLOCK_TRITS) {
        for (size_t i = 0; i < n; i++) {
            integers[i] = (int8_t)(numbers[i] == 2 ? -1 : numbers[i]);
        }
    } else if (bits == BLOCK_SIGNS) {
        for (size_t i = 0; i < n; i++) {
            integers[i] = (int8_t)(1 - 2 * numbers[i]);
        }
    } else {
        for (size_t i = 0; i < n; i++) {
            integers[i] = (int8_t)((numbers[i] ^ half) - half);
        }
    }
}

static void put_integers(const struct block_format *format, const int8_t *integers, size_t n,
                         uint8_t *out)
{
    uint8_t numbers[BLOCK_VALUES_MAX];

    to_numbers(format->bits, integers, n, numbers);
    if (format->bits == BLOCK_TRITS) {
        memset(numbers + n, 0, sizeof numbers - n);
        trits_pack(numbers, integers_bytes(format, n), out);
    } else {
        (void)bits_pack(format->bits, numbers, n, out);
    }
}

/* False: bytes that put_integers() does not write. *is_zero: all bits are 0. */
static bool get_integers(const struct block_format *format, const uint8_t *in, size_t n,
                         int8_t *integers, bool *is_zero)
{
    uint8_t numbers[BLOCK_VALUES_MAX], any = 0, beyond = 0;
    size_t bytes = integers_bytes(format, n), end = n;
    bool is_fine;

    if (format->bits == BLOCK_TRITS) {
        end = TRITS * bytes;
        is_fine = trits_unpack(in, bytes, numbers);
    } else {
        is_fine = bits_unpack(format->bits, in, n, numbers);
    }
    for (size_t i = n; i < end; i++) {
        beyond |= numbers[i];
    }
    for (size_t i = 0; i < bytes; i++) {
        any |= in[i];
    }
    to_integers(format->bits, numbers, n, integers);
    *is_zero = any == 0;
    return is_fine && beyond == 0;
}

/* ---- blocks ---- */

static struct block_format format_of(const struct codec *self)
{
    struct block_format format = *self->ops->blocks;

    if (format.levels > 0) return format;
    format.levels = (int)self->settings.levels;
    format.bits = 2;
    while (format.levels >= 1 << (format.bits - 1)) {
        format.bits++;
    }
    return format;
}

size_t block_bytes_max(const struct codec *self, size_t values)
{
    const struct block_format format = format_of(self);
    const size_t whole = values / format.values, rest = values % format.values;

    return (whole + (rest > 0)) * sizeof(float) + whole * integers_bytes(&format, format.values) +
           integers_bytes(&format, rest);
}

/* So that the largest integer times it is a number. */
static bool is_scale(const struct block_format *format, float scale)
{
    if ((float_bits(scale) & format->cut) != 0) return false;
    return scale >= FLT_MIN && scale <= FLT_MAX / (float)format->levels;
}

size_t block_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                    uint8_t *out)
{
    const struct block_format format = format_of(self);
    const float most = float_of_bits(float_bits(FLT_MAX / (float)format.levels) & ~format.cut);
    const size_t bytes = block_bytes_max(self, values);
    uint8_t *numbers = out + (values + format.values - 1) / format.values * sizeof(float);
    int8_t integers[BLOCK_VALUES_MAX];

    for (size_t done = 0; done < values; done += format.values, out += sizeof(float)) {
        size_t n = values - done < format.values ? values - done : format.values;
        float scale = format.choose(self, seed, (uint32_t)done, in + done, n, integers);

        scale = scale < most ? scale : most;
        if (!is_scale(&format, scale)) { /* too small for one */
            scale = 0;
            memset(integers, 0, n);
        }
        store_le_float(out, scale);
        put_integers(&format, integers, n, numbers);
        numbers += integers_bytes(&format, n);
    }
    return bytes;
}

FOR_EACH_CPU(static, int, scale_up,
             (float scale, const int8_t *restrict integers, size_t n, float *restrict out),
             (scale, integers, n, out))
{
    int largest = 0;

    for (size_t i = 0; i < n; i++) {
        int size = integers[i] < 0 ? -integers[i] : integers[i];

        largest = size > largest ? size : largest;
        out[i] = (float)integers[i] * scale;
    }
    return largest;
}

enum rc block_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                     size_t values)
{
    const struct block_format format = format_of(self);
    const uint8_t *numbers = in + (values + format.values - 1) / format.values * sizeof(float);
    int8_t integers[BLOCK_VALUES_MAX];

    if (!codec_is_size(self, count, values)) return RC_FORMAT;
    for (size_t done = 0; done < values; done += format.values, in += sizeof(float)) {
        const size_t n = values - done < format.values ? values - done : format.values;
        const float scale = load_le_float(in);
        bool is_zero;
        int largest;

        if (!get_integers(&format, numbers, n, integers, &is_zero)) return RC_FORMAT;
        numbers += integers_bytes(&format, n);
        if (load_le32(in) == 0) {
            if (!is_zero) return RC_FORMAT;
            memset(out + done, 0, n * sizeof *out);
            continue;
        }
        if (!is_scale(&format, scale)) return RC_NONFINITE;
        largest = scale_up(scale, integers, n, out + done);
        if (largest > format.levels) return RC_FORMAT;
        if (format.is_full && largest < format.levels) return RC_FORMAT;
    }
    return RC_OK;
}
