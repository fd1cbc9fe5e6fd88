/* Any bytes into every decoder: refused, or finite values that encode to the same bytes again. */
#include "averaging/codec/codec.h"
#include "base/check.h"
#include "base/floats.h"

#include <string.h>

enum { BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Zeros may have been told of at any place, so only what is no zero comes back the same. */
static void look_at_topk(const struct codec_ops *codec, const uint8_t *bytes, size_t count)
{
    static float values[65536], again[65536];
    static uint8_t encoded[6 * 65536];

    for (size_t wanted = 0; wanted < 65536; wanted += 1 + wanted / 16) {
        if (codec->decode(bytes, count, values, wanted) != RC_OK) continue;
        CHECK(codec->encoded_bytes(wanted) == count);
        CHECK(floats_are_finite(values, wanted));
        codec->encode(values, wanted, encoded);
        CHECK(codec->decode(encoded, count, again, wanted) == RC_OK);
        for (size_t i = 0; i < wanted; i++) {
            CHECK(values[i] == again[i]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static float values[BYTES_MAX];
    static uint8_t again[4 * BYTES_MAX];
    const struct codec_ops *codec;

    if (count < 2 || count > BYTES_MAX) return 0;
    if (bytes[0] >= 250) {
        look_at_topk(codec_topk_at(bytes[0] % 5), bytes + 1, count - 1);
        return 0;
    }
    codec = codec_at(bytes[0] % CODEC_FORMATS);
    for (size_t wanted = count / 4; wanted < count; wanted++) { /* 1 to 4 bytes a value */
        if (codec->decode(bytes + 1, count - 1, values, wanted) != RC_OK) continue;
        CHECK(codec->encoded_bytes(wanted) == count - 1);
        CHECK(floats_are_finite(values, wanted));
        codec->encode(values, wanted, again);
        CHECK(memcmp(again, bytes + 1, count - 1) == 0);
    }
    return 0;
}
