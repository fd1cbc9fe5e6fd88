/*
 * codec f16: binary16, little-endian; half the bytes, relative error up to 2^-11. What is too large
 * is clamped to +-65504. Values go through a small block on the stack, because wire bytes need not
 * be aligned. Pure; any thread.
 */
#include "averaging/codec.h"

#include "averaging/half.h"

#include <endian.h>
#include <string.h>

enum { BLOCK_VALUES = 512 };

static size_t f16_encoded_bytes(size_t values)
{
    return 2 * values;
}

static void f16_encode(const float *in, size_t values, uint8_t *out)
{
    uint16_t block[BLOCK_VALUES];

    for (size_t done = 0; done < values; done += BLOCK_VALUES) {
        size_t count = values - done < BLOCK_VALUES ? values - done : BLOCK_VALUES;

        half_encode(in + done, count, block);
        for (size_t i = 0; i < count; i++) {
            block[i] = htole16(block[i]);
        }
        memcpy(out + 2 * done, block, 2 * count);
    }
}

static enum rc f16_decode(const uint8_t *in, size_t count, float *out, size_t values)
{
    uint16_t block[BLOCK_VALUES];
    unsigned bad = 0;

    if (values > SIZE_MAX / 2 || count != 2 * values) return RC_FORMAT;
    for (size_t done = 0; done < values; done += BLOCK_VALUES) {
        size_t n = values - done < BLOCK_VALUES ? values - done : BLOCK_VALUES;

        memcpy(block, in + 2 * done, 2 * n);
        for (size_t i = 0; i < n; i++) {
            block[i] = le16toh(block[i]);
            bad |= (unsigned)((block[i] & 0x7c00u) == 0x7c00u);
        }
        if (bad != 0) return RC_NONFINITE;
        half_decode(block, n, out + done);
    }
    return RC_OK;
}

const struct codec_ops codec_f16 = {
    .name = "f16",
    .is_lossless = false,
    .encoded_bytes = f16_encoded_bytes,
    .encode = f16_encode,
    .decode = f16_decode,
};
