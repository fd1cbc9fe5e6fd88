/* See sparse.h. */
#include "averaging/codec/sparse.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/units.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SHARE_MIN = 100, SHARE_MAX = 250000 };

_Static_assert(CODEC_VALUES_MAX <= 65536, "a place fits 16 bits");
_Static_assert((uint64_t)CODEC_VALUES_MAX *SHARE_MAX <= (uint64_t)SPARSE_KEPT_MAX * SPARSE_MILLION,
               "what is kept fits");

bool sparse_parse_share(const char *text, struct codec_settings *settings)
{
    double share, ppm;

    if (!units_parse_share(text, &share)) return false;
    ppm = nearbyint(share * SPARSE_MILLION);
    if (fabs(share * SPARSE_MILLION - ppm) > 1e-6) return false;
    if (ppm < SHARE_MIN || ppm > SHARE_MAX) return false;
    settings->share_ppm = (uint32_t)ppm;
    return true;
}

void sparse_print_share(const char *word, const struct codec_settings *settings, char *text)
{
    snprintf(text, CODEC_NAME_BYTES, "%s:%g", word, (double)settings->share_ppm / SPARSE_MILLION);
}

size_t sparse_kept(const struct codec_settings *settings, size_t values)
{
    CHECK(values <= CODEC_VALUES_MAX);
    return (size_t)(((uint64_t)values * settings->share_ppm + SPARSE_MILLION - 1) / SPARSE_MILLION);
}

size_t sparse_bytes(const struct codec *self, size_t k)
{
    const struct codec rest = codec_rest(self);

    return SPARSE_PLACE_BYTES * k + rest.ops->bytes_max(&rest, k);
}

size_t sparse_put(const struct codec *self, uint64_t seed, const struct sparse_values *kept,
                  uint8_t *out)
{
    const struct codec rest = codec_rest(self);

    for (size_t i = 0; i < kept->count; i++) {
        store_le16(out + SPARSE_PLACE_BYTES * i, kept->places[i]);
    }
    out += SPARSE_PLACE_BYTES * kept->count;
    return SPARSE_PLACE_BYTES * kept->count +
           rest.ops->encode(&rest, seed, kept->values, kept->count, out);
}

enum rc sparse_get(const struct codec *self, const uint8_t *in, size_t k, float *out, size_t values)
{
    const struct codec rest = codec_rest(self);
    float kept[SPARSE_KEPT_MAX];
    size_t next = 0;
    enum rc rc;

    CHECK(k <= SPARSE_KEPT_MAX);
    rc = rest.ops->decode(&rest, in + SPARSE_PLACE_BYTES * k, rest.ops->bytes_max(&rest, k), kept,
                          k);
    if (rc != RC_OK) return rc;
    memset(out, 0, values * sizeof *out);
    for (size_t i = 0; i < k; i++) {
        size_t place = load_le16(in + SPARSE_PLACE_BYTES * i);

        if (place < next || place >= values) return RC_FORMAT;
        out[place] = kept[i];
        next = place + 1;
    }
    return RC_OK;
}
