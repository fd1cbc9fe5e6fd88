/*
 * sparse: what the codecs share that send some of the values of a chunk and leave the others 0: how
 * many they keep, and places (u16, ascending) followed by the values there, as the codec after `|`
 * has them, float32 without one.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_SPARSE_H
#define GRAPEVINE_AVERAGING_CODEC_SPARSE_H

#include "averaging/codec/codec.h"

enum { SPARSE_MILLION = 1000000, SPARSE_PLACE_BYTES = 2, SPARSE_KEPT_MAX = CODEC_VALUES_MAX / 4 };

/* For people: which shares there are. */
#define SPARSE_SHARES "from 0.0001 to 0.25 in steps of a millionth"

/* Room for one more, see select.h. */
struct sparse_values {
    size_t count;
    uint16_t places[SPARSE_KEPT_MAX + 1];
    float values[SPARSE_KEPT_MAX + 1];
};

bool sparse_parse_share(const char *text, struct codec_settings *settings);
/** "WORD:SHARE" */
void sparse_print_share(const char *word, const struct codec_settings *settings, char *text);
static inline float sparse_share(const struct codec_settings *settings)
{
    return (float)settings->share_ppm / SPARSE_MILLION;
}
/** ceil(SHARE * values) */
size_t sparse_kept(const struct codec_settings *settings, size_t values);

/** Bytes of k places and the values there. */
size_t sparse_bytes(const struct codec *self, size_t k);
/** `kept` into `out`: sparse_bytes(). */
size_t sparse_put(const struct codec *self, uint64_t seed, const struct sparse_values *kept,
                  uint8_t *out);
/** in: [sparse_bytes(k)]; out: [values], 0 where nothing is told of. RC_FORMAT: places that do not
 *  rise or lie outside; RC_NONFINITE. */
MUST_USE enum rc sparse_get(const struct codec *self, const uint8_t *in, size_t k, float *out,
                            size_t values);

#endif
