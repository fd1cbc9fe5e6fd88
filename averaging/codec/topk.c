/*
 * topk: of the values of a chunk the share with the largest |value|, with their places; the others
 * are 0. For differences to what the other end holds already (exchange mirror), where what is left
 * out is not lost but part of the next difference.
 *
 * Bytes: k = ceil(share * values) places (u16, ascending), then k values (float32), little-endian.
 * The size follows from the count alone. Ties go to the lower place. The k-th largest is found by
 * counting bits from the top, so the time does not depend on the values. Pure; any thread.
 */
#include "averaging/codec/codec.h"
#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "gossip/wire/limits.h"

#include <string.h>

enum { TOPK_BYTES = 6, DIGITS = 256 };

_Static_assert(CHUNK_VALUES <= 65536, "a place fits 16 bits");

static size_t kept(size_t permille, size_t values)
{
    CHECK(values <= 65536);
    return (values * permille + 999) / 1000;
}

static uint32_t size_of(float value)
{
    return float_bits(value) & 0x7fffffffu;
}

/* The k-th largest size, digit by digit; *ties: how many of that size are among the k. k > 0. */
static uint32_t kth_largest(const float *in, size_t values, size_t k, size_t *ties)
{
    uint32_t prefix = 0, mask = 0;
    size_t wanted = k;

    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t counts[DIGITS] = {0}, at = DIGITS - 1;

        for (size_t i = 0; i < values; i++) {
            uint32_t size = size_of(in[i]);

            if ((size & mask) == prefix) counts[size >> shift & (DIGITS - 1)]++;
        }
        while (counts[at] < wanted) {
            wanted -= counts[at--];
        }
        prefix |= at << shift;
        mask |= (uint32_t)(DIGITS - 1) << shift;
    }
    *ties = wanted;
    return prefix;
}

static void topk_encode(size_t permille, const float *in, size_t values, uint8_t *out)
{
    size_t k = kept(permille, values), ties, at = 0;
    uint32_t least;

    if (k == 0) return;
    least = kth_largest(in, values, k, &ties);
    for (size_t i = 0; i < values && at < k; i++) {
        uint32_t size = size_of(in[i]);

        if (size < least || (size == least && ties == 0)) continue;
        if (size == least) ties--;
        store_le16(out + 2 * at, (uint16_t)i);
        store_le_float(out + 2 * k + 4 * at, in[i]);
        at++;
    }
    CHECK(at == k);
}

static enum rc topk_decode(size_t permille, const uint8_t *in, size_t count, float *out,
                           size_t values)
{
    size_t k, next = 0;

    if (values > 65536) return RC_FORMAT;
    k = kept(permille, values);
    if (count != TOPK_BYTES * k) return RC_FORMAT;
    memset(out, 0, values * sizeof *out);
    for (size_t i = 0; i < k; i++) {
        size_t place = load_le16(in + 2 * i);
        uint32_t bits = load_le32(in + 2 * k + 4 * i);

        if (place < next || place >= values) return RC_FORMAT;
        if ((bits & 0x7f800000u) == 0x7f800000u) return RC_NONFINITE;
        out[place] = float_of_bits(bits);
        next = place + 1;
    }
    return RC_OK;
}

/* A table for each share: what a codec does has no place for a number of its own. */
#define TOPK(permille, text)                                                                       \
    static size_t bytes_##permille(size_t values)                                                  \
    {                                                                                              \
        return TOPK_BYTES * kept(permille, values);                                                \
    }                                                                                              \
    static void encode_##permille(const float *in, size_t values, uint8_t *out)                    \
    {                                                                                              \
        topk_encode(permille, in, values, out);                                                    \
    }                                                                                              \
    static enum rc decode_##permille(const uint8_t *in, size_t count, float *out, size_t values)   \
    {                                                                                              \
        return topk_decode(permille, in, count, out, values);                                      \
    }                                                                                              \
    static const struct codec_ops topk_##permille = {                                              \
        .name = "topk:" text,                                                                      \
        .format = CODEC_F32,                                                                       \
        .kept = (permille) / 1000.0f,                                                              \
        .encoded_bytes = bytes_##permille,                                                         \
        .encode = encode_##permille,                                                               \
        .decode = decode_##permille,                                                               \
    }

TOPK(10, "0.01");
TOPK(20, "0.02");
TOPK(50, "0.05");
TOPK(100, "0.1");
TOPK(250, "0.25");

static const struct codec_ops *const shares[] = {&topk_10, &topk_20, &topk_50, &topk_100,
                                                 &topk_250};

const struct codec_ops *codec_topk_at(size_t index)
{
    return index < ARRAY_COUNT(shares) ? shares[index] : NULL;
}
