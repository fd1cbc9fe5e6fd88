/*
 * int2: each value is one of four, the means of four bins over six standard deviations of the chunk
 * (or of what a sparse codec kept of it) about its mean: bin = nearest((value - mean) / (6 sigma /
 * 4) + 2), ties to even, within 0 to 3. So the values of a bin keep their sum. As SparseLoCo sends
 * what it keeps: Sarfi et al. 2025, arXiv:2508.15706.
 *
 * Bytes: the means (four float32; 0 of a bin that nobody is in), then two bits a value. Values
 * beyond the middle bin are three quarters of sigma away at least, so with n of them no less than
 * 0.43 / n of |x|^2 is said; of normal ones 77 %.
 */
#include "averaging/codec/blocks.h"

#include "base/bytes.h"
#include "base/cpu.h"
#include "base/floats.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { BINS = 4, BITS = 2, TABLE_BYTES = 4 * BINS, PIECE = 4096, LANES = 8 };

struct bins {
    float mean, steps; /* bin = (value - mean) * steps + 2 */
    double sums[BINS][LANES];
    uint32_t counts[BINS][LANES];
};

/* Adding 1.5 * 2^23 leaves the nearest integer in the lowest bits, ties to even. */
FOR_EACH_CPU(static, void, to_bins,
             (float mean, float steps, const float *restrict in, size_t n, uint8_t *restrict bins),
             (mean, steps, in, n, bins))
{
    for (size_t i = 0; i < n; i++) {
        float at = (in[i] - mean) * steps + 2;

        at = at > 0 ? at : 0;
        at = at < BINS - 1 ? at : BINS - 1;
        bins[i] = (uint8_t)float_bits(at + 0x1.8p23F);
    }
}

/* In eight parts, in order, as all sums of codecs; n is a multiple of eight, but at the end. */
static void add_up(const float *in, const uint8_t *bins, size_t n, struct bins *to)
{
    for (size_t i = 0; i < n; i++) {
        to->sums[bins[i]][i % LANES] += (double)in[i];
        to->counts[bins[i]][i % LANES]++;
    }
}

static float mean_of(const double sums[LANES], const uint32_t counts[LANES])
{
    double sum = 0;
    uint32_t count = 0;

    for (size_t lane = 0; lane < LANES; lane++) {
        sum += sums[lane];
        count += counts[lane];
    }
    return count == 0 ? 0 : (float)(sum / count);
}

static struct bins bins_of(const float *in, size_t n)
{
    const struct block_sums sums = block_sums(in, n);
    const double mean = sums.values / (double)n,
                 sigma = sqrt(fmax(sums.squares / (double)n - mean * mean, 0));

    return (struct bins){.mean = (float)mean,
                         .steps = sigma >= (double)FLT_MIN ? (float)(BINS / (6 * sigma)) : 1};
}

static size_t int2_bytes(const struct codec *self, size_t values)
{
    (void)self;
    return values == 0 ? 0 : TABLE_BYTES + bits_bytes(BITS, values);
}

static size_t int2_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                          uint8_t *out)
{
    uint8_t numbers[PIECE], *at = out + TABLE_BYTES;
    struct bins bins;

    (void)seed;
    if (values == 0) return 0;
    bins = bins_of(in, values);
    for (size_t done = 0; done < values; done += PIECE) {
        size_t n = values - done < PIECE ? values - done : PIECE;

        to_bins(bins.mean, bins.steps, in + done, n, numbers);
        add_up(in + done, numbers, n, &bins);
        at += bits_pack(BITS, numbers, n, at);
    }
    for (size_t bin = 0; bin < BINS; bin++) {
        store_le_float(out + 4 * bin, mean_of(bins.sums[bin], bins.counts[bin]));
    }
    return int2_bytes(self, values);
}

/* The bins that somebody is in, a bit each. */
FOR_EACH_CPU(static, unsigned, from_bins,
             (const float *restrict means, const uint8_t *restrict bins, size_t n,
              float *restrict out),
             (means, bins, n, out))
{
    const float m0 = means[0], m1 = means[1], m2 = means[2], m3 = means[3];
    uint8_t used = 0;

    for (size_t i = 0; i < n; i++) {
        uint8_t bin = bins[i];
        float lower = (bin & 1) != 0 ? m1 : m0, upper = (bin & 1) != 0 ? m3 : m2;

        out[i] = (bin & 2) != 0 ? upper : lower;
        used |= (uint8_t)(1u << bin);
    }
    return used;
}

static enum rc int2_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                           size_t values)
{
    uint8_t numbers[PIECE];
    float means[BINS];
    unsigned used = 0;

    if (!codec_is_size(self, count, values)) return RC_FORMAT;
    if (values == 0) return RC_OK;
    for (size_t bin = 0; bin < BINS; bin++) {
        means[bin] = load_le_float(in + 4 * bin);
    }
    if (!floats_are_finite(means, BINS)) return RC_NONFINITE;
    in += TABLE_BYTES;
    for (size_t done = 0; done < values; done += PIECE) {
        size_t n = values - done < PIECE ? values - done : PIECE;

        if (!bits_unpack(BITS, in, n, numbers)) return RC_FORMAT;
        used |= from_bins(means, numbers, n, out + done);
        in += bits_bytes(BITS, n);
    }
    for (size_t bin = 0; bin < BINS; bin++) {
        if ((used >> bin & 1) == 0 && float_bits(means[bin]) != 0) return RC_FORMAT;
    }
    return RC_OK;
}

static struct codec_traits int2_traits(const struct codec *self)
{
    (void)self;
    return (struct codec_traits){
        .is_difference = true,
        .contraction = 0.4f / CODEC_VALUES_MAX,
        .kept = 1,
        .step = 0.6f,
    };
}

const struct codec_ops codec_ops_int2 = {
    .word = "int2",
    .format = CODEC_FORMATS,
    .traits = int2_traits,
    .bytes_max = int2_bytes,
    .encode = int2_encode,
    .decode = int2_decode,
};
