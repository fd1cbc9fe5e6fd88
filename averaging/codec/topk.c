/*
 * topk:SHARE: of the values of a chunk the share with the largest |value|, with their places; the
 * others are 0. For differences to what the other end holds already (exchange mirror), where what
 * is left out is not lost but part of the next difference. So many values cannot say more: of |x|^2
 * no less than the share (Stich, Cordonnier, Jaggi 2018, arXiv:1809.07599).
 *
 * Bytes: k = ceil(SHARE * values) places (u16, ascending), then k values as the codec after `|` has
 * them, float32 without one. Ties go to the lower place. Pure; any thread.
 */
#include "averaging/codec/select.h"
#include "averaging/codec/sparse.h"

static void topk_print(const struct codec_settings *settings, char *text)
{
    sparse_print_share("topk", settings, text);
}

static struct codec_traits topk_traits(const struct codec *self)
{
    const struct codec_traits rest = codec_rest(self).traits;
    const float share = sparse_share(&self->settings);

    return (struct codec_traits){
        .is_idempotent = rest.is_lossless, /* else a value may become 0, and then it is another 0 */
        .is_random = rest.is_random,
        .is_difference = true,
        .contraction = share * rest.contraction,
        .kept = share,
        .step = share * rest.step,
    };
}

static size_t topk_bytes(const struct codec *self, size_t values)
{
    return sparse_bytes(self, sparse_kept(&self->settings, values));
}

static size_t topk_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                          uint8_t *out)
{
    const size_t k = sparse_kept(&self->settings, values);
    struct sparse_values kept;

    if (k == 0) return 0;
    kept.count = select_places(in, values, select_largest(in, values, k), kept.places, kept.values);
    return sparse_put(self, seed, &kept, out);
}

static enum rc topk_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                           size_t values)
{
    if (values > CODEC_VALUES_MAX || !codec_is_size(self, count, values)) return RC_FORMAT;
    return sparse_get(self, in, sparse_kept(&self->settings, values), out, values);
}

const struct codec_ops codec_ops_topk = {
    .word = "topk",
    .usage = "topk:SHARE, the share of the values that is kept, " SPARSE_SHARES,
    .format = CODEC_FORMATS,
    .is_sparse = true,
    .parse = sparse_parse_share,
    .print = topk_print,
    .traits = topk_traits,
    .bytes_max = topk_bytes,
    .encode = topk_encode,
    .decode = topk_decode,
};
