/* codec f32: the values themselves, little-endian. Pure; any thread. */
#include "averaging/codec.h"

#include <endian.h>
#include <string.h>

/* Swaps nothing on a little-endian machine, where the loop folds away. */
static void swap_words(uint8_t *bytes, size_t values)
{
    if (htole32(1) == 1) return;
    for (size_t i = 0; i < values; i++) {
        uint32_t word;

        memcpy(&word, bytes + 4 * i, sizeof word);
        word = htole32(word);
        memcpy(bytes + 4 * i, &word, sizeof word);
    }
}

static size_t f32_encoded_bytes(size_t values)
{
    return 4 * values;
}

static void f32_encode(const float *in, size_t values, uint8_t *out)
{
    if (values == 0) return;
    memcpy(out, in, 4 * values);
    swap_words(out, values);
}

static enum rc f32_decode(const uint8_t *in, size_t count, float *out, size_t values)
{
    if (values > SIZE_MAX / 4 || count != 4 * values) return RC_FORMAT;
    if (values == 0) return RC_OK;
    memcpy(out, in, count);
    swap_words((uint8_t *)out, values);
    return floats_are_finite(out, values) ? RC_OK : RC_NONFINITE;
}

const struct codec_ops codec_f32 = {
    .name = "f32",
    .is_lossless = true,
    .encoded_bytes = f32_encoded_bytes,
    .encode = f32_encode,
    .decode = f32_decode,
};
