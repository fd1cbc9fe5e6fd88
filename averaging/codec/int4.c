/*
 * int4: blocks as int8 has them (kernels/codec.h), with half the bits: 256 values, scale = largest
 * |value| / 7 with the lowest 7 bits of its fraction cut off, integer = nearest(value / scale),
 * ties to even. After Dettmers, Lewis, Shleifer, Zettlemoyer 2021, arXiv:2110.02861, with a linear
 * code; as outer gradients travel in Streaming DiLoCo (Douillard et al. 2025, arXiv:2501.18512).
 *
 * No value is off by more than itself, as 0 is one of the integers, and the largest is not: so of
 * |x|^2 of 256 values no less than a 256th is said, whatever they are. Of normal ones 99 %.
 */
#include "averaging/codec/blocks.h"

#include "base/cpu.h"
#include "base/floats.h"

enum { LEVELS = 7, CUT = 0x7f };

/* Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits, ties to even. */
FOR_EACH_CPU(static, void, to_nearest,
             (float scale, const float *restrict in, size_t n, int8_t *restrict out),
             (scale, in, n, out))
{
    for (size_t i = 0; i < n; i++) {
        out[i] = (int8_t)float_bits(in[i] / scale + 0x1.8p23F);
    }
}

static float int4_choose(const struct codec *self, uint64_t seed, uint32_t first, const float *in,
                         size_t n, int8_t *integers)
{
    const float exact = block_sums(in, n).largest / LEVELS,
                scale = float_of_bits(float_bits(exact) & ~(uint32_t)CUT);

    (void)self;
    (void)seed;
    (void)first;
    if (scale > 0) to_nearest(scale, in, n, integers);
    return scale;
}

static struct codec_traits int4_traits(const struct codec *self)
{
    (void)self;
    return (struct codec_traits){
        .is_idempotent = true,
        .is_difference = true,
        .contraction = 0.99f / CODEC_BLOCK,
        .kept = 1,
        .step = 0.6f,
    };
}

static const struct block_format format = {.values = CODEC_BLOCK,
                                           .bits = 4,
                                           .levels = LEVELS,
                                           .is_full = true,
                                           .cut = CUT,
                                           .choose = int4_choose};

const struct codec_ops codec_ops_int4 = {
    .word = "int4",
    .format = CODEC_FORMATS,
    .blocks = &format,
    .traits = int4_traits,
    .bytes_max = block_bytes_max,
    .encode = block_encode,
    .decode = block_decode,
};
