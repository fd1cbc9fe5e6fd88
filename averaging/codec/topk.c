/*
 * topk:SHARE: of the values of a chunk the share with the largest |value|, with their places; the
 * others are 0. For differences to what the other end holds already (exchange mirror), where what
 * is left out is not lost but part of the next difference. What is kept is the best that so many
 * values can say: of |x|^2 no less than the share.
 *
 * Bytes: k = ceil(SHARE * values) places (u16, ascending), then k values as the codec after `|` has
 * them, float32 without one. Ties go to the lower place. The k-th largest is found by counting bits
 * from the top, so the time does not depend on the values. Pure; any thread.
 */
#include "averaging/codec/codec.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/floats.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { PLACE_BYTES = 2, DIGITS = 256, MILLION = 1000000, SHARE_MIN = 100, SHARE_MAX = 250000 };
enum { KEPT_MAX = CODEC_VALUES_MAX / 4 };

_Static_assert(CODEC_VALUES_MAX <= 65536, "a place fits 16 bits");
_Static_assert((uint64_t)CODEC_VALUES_MAX *SHARE_MAX <= (uint64_t)KEPT_MAX * MILLION, "");

static size_t kept(const struct codec *self, size_t values)
{
    CHECK(values <= CODEC_VALUES_MAX);
    return (size_t)(((uint64_t)values * self->settings.share_ppm + MILLION - 1) / MILLION);
}

static bool topk_parse(const char *text, struct codec_settings *settings)
{
    double share, ppm;

    if (!units_parse_share(text, &share)) return false;
    ppm = nearbyint(share * MILLION);
    if (fabs(share * MILLION - ppm) > 1e-6 || ppm < SHARE_MIN || ppm > SHARE_MAX) return false;
    settings->share_ppm = (uint32_t)ppm;
    return true;
}

static void topk_print(const struct codec_settings *settings, char *text)
{
    snprintf(text, CODEC_NAME_BYTES, "topk:%g", (double)settings->share_ppm / MILLION);
}

static struct codec_traits topk_traits(const struct codec *self)
{
    struct codec rest = codec_rest(self);
    float share = (float)self->settings.share_ppm / MILLION;

    return (struct codec_traits){
        .is_idempotent = rest.traits.is_lossless, /* else a value may become 0, and 0 another */
        .is_difference = true,
        .contraction = share * rest.traits.contraction,
        .kept = share,
    };
}

static size_t topk_bytes(const struct codec *self, size_t values)
{
    struct codec rest = codec_rest(self);
    size_t k = kept(self, values);

    return PLACE_BYTES * k + rest.ops->bytes_max(&rest, k);
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

static size_t topk_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                          uint8_t *out)
{
    struct codec rest = codec_rest(self);
    size_t k = kept(self, values), ties, at = 0;
    float largest[KEPT_MAX];
    uint32_t least;

    if (k == 0) return 0;
    least = kth_largest(in, values, k, &ties);
    for (size_t i = 0; i < values && at < k; i++) {
        uint32_t size = size_of(in[i]);

        if (size < least || (size == least && ties == 0)) continue;
        if (size == least) ties--;
        store_le16(out + PLACE_BYTES * at, (uint16_t)i);
        largest[at++] = in[i];
    }
    CHECK(at == k);
    return PLACE_BYTES * k + rest.ops->encode(&rest, seed, largest, k, out + PLACE_BYTES * k);
}

static enum rc topk_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                           size_t values)
{
    struct codec rest = codec_rest(self);
    float largest[KEPT_MAX];
    size_t k, next = 0;
    enum rc rc;

    if (values > CODEC_VALUES_MAX || !codec_is_size(self, count, values)) return RC_FORMAT;
    k = kept(self, values);
    rc = rest.ops->decode(&rest, in + PLACE_BYTES * k, count - PLACE_BYTES * k, largest, k);
    if (rc != RC_OK) return rc;
    memset(out, 0, values * sizeof *out);
    for (size_t i = 0; i < k; i++) {
        size_t place = load_le16(in + PLACE_BYTES * i);

        if (place < next || place >= values) return RC_FORMAT;
        out[place] = largest[i];
        next = place + 1;
    }
    return RC_OK;
}

const struct codec_ops codec_ops_topk = {
    .word = "topk",
    .usage = "topk:SHARE, the share of the values that is kept, from 0.0001 to 0.25 in steps of a "
             "millionth",
    .format = CODEC_FORMATS,
    .is_sparse = true,
    .parse = topk_parse,
    .print = topk_print,
    .traits = topk_traits,
    .bytes_max = topk_bytes,
    .encode = topk_encode,
    .decode = topk_decode,
};
