/*
 * ternary: -1, 0 or 1 a value, five to a byte, and a scale for each block of 640. A value becomes
 * its sign with probability |value| / s, else 0. TernGrad: Wen, Xu, Yan, Wu, Wang, Chen, Li 2017,
 * arXiv:1705.07878.
 *
 * Unbiased: s is the largest |value|, and the scale. Where what is left out comes later: s is at
 * most 2.5 times the root of the mean square, as in the paper, so that one large value does not
 * make zeros of all others; and the scale is that by which the integers are nearest to the values
 * (block_fit()), which of |x|^2 says in the mean no less than an n-th of n values.
 */
#include "averaging/codec/blocks.h"

#include <math.h>

enum { VALUES = 640 };

static const double clip_deviations = 2.5;

static float ternary_choose(const struct codec *self, uint64_t seed, uint32_t first,
                            const float *in, size_t n, int8_t *integers)
{
    const struct block_sums sums = block_sums(in, n);
    const float clip = (float)(clip_deviations * sqrt(sums.squares / (double)n)),
                size = self->contracts && clip < sums.largest ? clip : sums.largest;

    if (!block_round(seed, first, size, 1, in, n, integers)) return 0;
    return self->contracts ? block_fit(in, integers, n) : size;
}

static struct codec_traits ternary_traits(const struct codec *self)
{
    return (struct codec_traits){
        .is_unbiased = !self->contracts,
        .is_random = true,
        .is_difference = true,
        .contraction = self->contracts ? 0.99f / VALUES : 0,
        .kept = 1,
        .step = 0.3f,
    };
}

static const struct block_format format = {
    .values = VALUES, .bits = BLOCK_TRITS, .levels = 1, .choose = ternary_choose};

const struct codec_ops codec_ops_ternary = {
    .word = "ternary",
    .format = CODEC_FORMATS,
    .blocks = &format,
    .traits = ternary_traits,
    .bytes_max = block_bytes_max,
    .encode = block_encode,
    .decode = block_decode,
};
