/*
 * randk:SHARE: the values at so many random places, which both ends draw from one seed, so that
 * none of them travels. The published form multiplies what it keeps by n / k, which makes it
 * unbiased; where what is left out comes later the values go as they are, and of |x|^2 the share is
 * said in the mean. Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599; Koloskova, Stich, Jaggi 2019,
 * arXiv:1902.00340.
 *
 * Bytes: the seed (u64), then the k = ceil(SHARE n) values in the order of their places, as the
 * codec after `|` has them, float32 without one. The places of a seed are a set, by Floyd's
 * algorithm (Bentley, Floyd 1987): for j from n - k to n - 1, t = mix(seed, j) mod (j + 1)
 * (base/rng.h: rng_mix); t goes into the set, or j where t is in it already.
 */
#include "averaging/codec/sparse.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { SEED_BYTES = 8, WORDS = CODEC_VALUES_MAX / 64 };

static void randk_print(const struct codec_settings *settings, char *text)
{
    sparse_print_share("randk", settings, text);
}

static struct codec_traits randk_traits(const struct codec *self)
{
    const struct codec_traits rest = codec_rest(self).traits;
    const float share = sparse_share(&self->settings);

    return (struct codec_traits){
        .is_unbiased = !self->contracts && (rest.is_unbiased || rest.is_lossless),
        .is_random = true,
        .is_difference = true,
        .contraction = self->contracts ? share * rest.contraction : 0,
        .kept = share,
        .step = share * rest.step / 2,
    };
}

static size_t randk_bytes(const struct codec *self, size_t values)
{
    const struct codec rest = codec_rest(self);
    size_t k = sparse_kept(&self->settings, values);

    return k == 0 ? 0 : SEED_BYTES + rest.ops->bytes_max(&rest, k);
}

/* The k places of `seed` among n, ascending. */
static void draw_places(uint64_t seed, size_t n, size_t k, uint16_t *places)
{
    uint64_t set[WORDS] = {0};
    size_t at = 0;

    CHECK(k <= n && n <= CODEC_VALUES_MAX);
    for (size_t j = n - k; j < n; j++) {
        size_t t = (size_t)(rng_mix(seed, j) % (j + 1));

        if ((set[t / 64] >> t % 64 & 1) != 0) t = j;
        set[t / 64] |= UINT64_C(1) << t % 64;
    }
    for (size_t word = 0; word < WORDS && at < k; word++) {
        for (uint64_t left = set[word]; left != 0; left &= left - 1) {
            places[at++] = (uint16_t)(64 * word + (size_t)__builtin_ctzll(left));
        }
    }
}

static size_t randk_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                           uint8_t *out)
{
    const struct codec rest = codec_rest(self);
    const size_t k = sparse_kept(&self->settings, values);
    uint16_t places[SPARSE_KEPT_MAX];
    float kept[SPARSE_KEPT_MAX], factor;

    if (k == 0) return 0;
    factor = self->contracts ? 1 : (float)values / (float)k;
    draw_places(seed, values, k, places);
    for (size_t i = 0; i < k; i++) {
        kept[i] = fminf(fmaxf(factor * in[places[i]], -FLT_MAX), FLT_MAX);
    }
    store_le64(out, seed);
    return SEED_BYTES + rest.ops->encode(&rest, rng_mix(seed, values), kept, k, out + SEED_BYTES);
}

static enum rc randk_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                            size_t values)
{
    const struct codec rest = codec_rest(self);
    uint16_t places[SPARSE_KEPT_MAX];
    float kept[SPARSE_KEPT_MAX];
    size_t k;
    enum rc rc;

    if (values > CODEC_VALUES_MAX || !codec_is_size(self, count, values)) return RC_FORMAT;
    k = sparse_kept(&self->settings, values);
    if (k == 0) return RC_OK;
    rc = rest.ops->decode(&rest, in + SEED_BYTES, count - SEED_BYTES, kept, k);
    if (rc != RC_OK) return rc;
    draw_places(load_le64(in), values, k, places);
    memset(out, 0, values * sizeof *out);
    for (size_t i = 0; i < k; i++) {
        out[places[i]] = kept[i];
    }
    return RC_OK;
}

const struct codec_ops codec_ops_randk = {
    .word = "randk",
    .usage = "randk:SHARE, the share of the values that is sent, " SPARSE_SHARES,
    .format = CODEC_FORMATS,
    .is_sparse = true,
    .parse = sparse_parse_share,
    .print = randk_print,
    .traits = randk_traits,
    .bytes_max = randk_bytes,
    .encode = randk_encode,
    .decode = randk_decode,
};
