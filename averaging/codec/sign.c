/*
 * sign: a bit a value, and of each block of 512 the mean of |value|: what decodes is that mean with
 * the value's sign, + for zeros. Of |x|^2 of n values that says |x|_1^2 / n, no less than an n-th.
 * Karimireddy, Rebjock, Stich, Jaggi 2019, arXiv:1901.09847; 1-bit SGD: Seide, Fu, Droppo, Li, Yu
 * 2014, Interspeech.
 */
#include "averaging/codec/blocks.h"

enum { VALUES = 512 };

static float sign_choose(const struct codec *self, uint64_t seed, uint32_t first, const float *in,
                         size_t n, int8_t *integers)
{
    (void)self;
    (void)seed;
    (void)first;
    for (size_t i = 0; i < n; i++) {
        integers[i] = in[i] < 0 ? -1 : 1;
    }
    return (float)(block_sums(in, n).magnitudes / (double)n);
}

static struct codec_traits sign_traits(const struct codec *self)
{
    (void)self;
    return (struct codec_traits){
        .is_idempotent = true, /* the sum of equal ones is exact */
        .is_difference = true,
        .contraction = 0.99f / VALUES,
        .kept = 1,
        .step = 0.45f,
    };
}

static const struct block_format format = {
    .values = VALUES, .bits = BLOCK_SIGNS, .levels = 1, .choose = sign_choose};

const struct codec_ops codec_ops_sign = {
    .word = "sign",
    .format = CODEC_FORMATS,
    .blocks = &format,
    .traits = sign_traits,
    .bytes_max = block_bytes_max,
    .encode = block_encode,
    .decode = block_decode,
};
