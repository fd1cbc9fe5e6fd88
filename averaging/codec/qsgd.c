/*
 * qsgd:L: each value is one of 2 L + 1 levels, -L to L times the norm of its block of 512 over L,
 * chosen by chance between the two beside it, so that it is right in the mean. As many bits a value
 * as the levels need. QSGD: Alistarh, Grubic, Li, Tomioka, Vojnovic 2016, arXiv:1610.02132, without
 * its code of unequal lengths, and with blocks: one large value costs its own block alone.
 *
 * Unbiased, with a squared error of min(n / L^2, sqrt(n) / L) |x|^2 in the mean, which may be more
 * than there was. Where what is left out comes later the scale is that by which the integers are
 * nearest to the values (block_fit()): then of |x|^2 no less than 1 / (1 + that) is said in the
 * mean.
 */
#include "averaging/codec/blocks.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>

enum { VALUES = 512, LEVELS_MAX = 127 };

static bool qsgd_parse(const char *text, struct codec_settings *settings)
{
    uint64_t levels;

    if (!units_parse_count(text, &levels) || levels < 1 || levels > LEVELS_MAX) return false;
    settings->levels = (uint32_t)levels;
    return true;
}

static void qsgd_print(const struct codec_settings *settings, char *text)
{
    snprintf(text, CODEC_NAME_BYTES, "qsgd:%u", settings->levels);
}

static float qsgd_choose(const struct codec *self, uint64_t seed, uint32_t first, const float *in,
                         size_t n, int8_t *integers)
{
    const int levels = (int)self->settings.levels;
    const float step = (float)(sqrt(block_sums(in, n).squares) / levels);

    if (!block_round(seed, first, step, levels, in, n, integers)) return 0;
    return self->contracts ? block_fit(in, integers, n) : step;
}

static struct codec_traits qsgd_traits(const struct codec *self)
{
    const float levels = (float)self->settings.levels,
                variance = fminf(VALUES / (levels * levels), sqrtf(VALUES) / levels);

    return (struct codec_traits){
        .is_unbiased = !self->contracts,
        .is_random = true,
        .is_difference = true,
        .contraction = self->contracts ? 0.99f / (1 + variance) : 0,
        .kept = 1,
        .step = fminf(0.8f, 1 / (1 + variance)),
    };
}

static const struct block_format format = {.values = VALUES, .choose = qsgd_choose};

const struct codec_ops codec_ops_qsgd = {
    .word = "qsgd",
    .usage = "qsgd:LEVELS, from 1 to 127",
    .format = CODEC_FORMATS,
    .blocks = &format,
    .parse = qsgd_parse,
    .print = qsgd_print,
    .traits = qsgd_traits,
    .bytes_max = block_bytes_max,
    .encode = block_encode,
    .decode = block_decode,
};
