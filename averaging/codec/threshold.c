/*
 * threshold:T: the values of more than T, absolute, with their places; the others are 0. If more
 * than a quarter are, the largest quarter. How much is sent so depends on how much there is to say;
 * nothing that is left out is larger than T for long. Strom 2015, Interspeech, without its one bit
 * a value.
 *
 * Bytes: how many (u16), then as of topk.c places and values. Pure; any thread.
 */
#include "averaging/codec/select.h"
#include "averaging/codec/sparse.h"

#include "base/bytes.h"
#include "base/floats.h"
#include "base/units.h"

#include <stdio.h>
#include <stdlib.h>

enum { COUNT_BYTES = 2, CAP = 4 /* one in so many at most */ };

static const double smallest = 1e-30, largest = 1e30;

static bool threshold_parse(const char *text, struct codec_settings *settings)
{
    char printed[CODEC_NAME_BYTES];
    double threshold;

    if (!units_parse_share(text, &threshold)) return false;
    if (threshold < smallest || threshold > largest) return false;
    snprintf(printed, sizeof printed, "%g", threshold);
    settings->threshold = strtof(printed, NULL); /* as everybody reads the name */
    return true;
}

static void threshold_print(const struct codec_settings *settings, char *text)
{
    snprintf(text, CODEC_NAME_BYTES, "threshold:%g", (double)settings->threshold);
}

static struct codec_traits threshold_traits(const struct codec *self)
{
    const struct codec_traits rest = codec_rest(self).traits;

    return (struct codec_traits){
        .is_idempotent = rest.is_lossless,
        .is_random = rest.is_random,
        .is_difference = true,
        .kept = 1.0f / CAP,
        .step = 0.1f * rest.step,
    };
}

static size_t most_of(size_t values)
{
    return (values + CAP - 1) / CAP;
}

static size_t threshold_bytes(const struct codec *self, size_t values)
{
    return values == 0 ? 0 : COUNT_BYTES + sparse_bytes(self, most_of(values));
}

static size_t threshold_encode(const struct codec *self, uint64_t seed, const float *in,
                               size_t values, uint8_t *out)
{
    struct selection selection = {float_bits(self->settings.threshold), 0};
    struct sparse_values kept;

    if (values == 0) return 0;
    if (select_count(in, values, selection.least + 1) > most_of(values)) {
        selection = select_largest(in, values, most_of(values));
    }
    kept.count = select_places(in, values, selection, kept.places, kept.values);
    store_le16(out, (uint16_t)kept.count);
    return COUNT_BYTES + sparse_put(self, seed, &kept, out + COUNT_BYTES);
}

static enum rc threshold_decode(const struct codec *self, const uint8_t *in, size_t count,
                                float *out, size_t values)
{
    enum rc rc;
    size_t k;

    if (values > CODEC_VALUES_MAX || !codec_is_size(self, count, values)) return RC_FORMAT;
    if (values == 0) return RC_OK;
    if (count < COUNT_BYTES) return RC_FORMAT;
    k = load_le16(in);
    if (k > most_of(values) || count != COUNT_BYTES + sparse_bytes(self, k)) return RC_FORMAT;
    rc = sparse_get(self, in + COUNT_BYTES, k, out, values);
    if (rc != RC_OK || self->rest != NULL) return rc;
    /* what is no larger is not sent */
    return select_count(out, values, float_bits(self->settings.threshold) + 1) == k ? RC_OK
                                                                                    : RC_FORMAT;
}

const struct codec_ops codec_ops_threshold = {
    .word = "threshold",
    .usage = "threshold:T, what no larger value is left out than, from 1e-30 to 1e30",
    .format = CODEC_FORMATS,
    .is_sparse = true,
    .varies = true,
    .parse = threshold_parse,
    .print = threshold_print,
    .traits = threshold_traits,
    .bytes_max = threshold_bytes,
    .encode = threshold_encode,
    .decode = threshold_decode,
};
