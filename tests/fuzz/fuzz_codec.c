/* Any bytes into every decoder: refused, or finite values that encode to the same bytes again. */
#include "averaging/codec.h"
#include "base/check.h"

#include <string.h>

enum { BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static float values[BYTES_MAX];
    static uint8_t again[4 * BYTES_MAX];
    const struct codec_ops *codec;

    if (count < 2 || count > BYTES_MAX) return 0;
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
