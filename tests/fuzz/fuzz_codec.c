/* Any bytes into every decoder: refused, or finite values that encode to the same bytes again. */
#include "averaging/codec/codec.h"
#include "base/check.h"
#include "base/floats.h"

#include <string.h>

enum { BYTES_MAX = 4096 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count);

/* Of these only what they say of themselves holds. Zeros may have been told of at any place, so
 * only what is no zero comes back the same. */
static void look_at(const struct codec *codec, const uint8_t *bytes, size_t count)
{
    static float values[CODEC_VALUES_MAX], again[CODEC_VALUES_MAX];
    static uint8_t encoded[8 * CODEC_VALUES_MAX];

    for (size_t wanted = 0; wanted < CODEC_VALUES_MAX; wanted += 1 + wanted / 16) {
        size_t told;

        if (codec->ops->decode(codec, bytes, count, values, wanted) != RC_OK) continue;
        CHECK(codec_is_size(codec, count, wanted));
        CHECK(floats_are_finite(values, wanted));
        told = codec->ops->encode(codec, count, values, wanted, encoded);
        CHECK(codec_is_size(codec, told, wanted));
        CHECK(codec->ops->decode(codec, encoded, told, again, wanted) == RC_OK);
        for (size_t i = 0; i < wanted && codec->traits.is_idempotent; i++) {
            CHECK(values[i] == again[i]);
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t count)
{
    static float values[BYTES_MAX];
    static uint8_t again[4 * BYTES_MAX];
    const struct codec *codec;

    if (count < 2 || count > BYTES_MAX) return 0;
    if (bytes[0] >= 128) {
        struct codec other;
        size_t known = 0;

        while (codec_example(known) != NULL) {
            known++;
        }
        CHECK(codec_find(codec_example(bytes[0] % known), &other, NULL) == RC_OK);
        look_at(&other, bytes + 1, count - 1);
        return 0;
    }
    codec = codec_at(bytes[0] % CODEC_FORMATS);
    for (size_t wanted = count / 4; wanted < count; wanted++) { /* 1 to 4 bytes a value */
        if (codec->ops->decode(codec, bytes + 1, count - 1, values, wanted) != RC_OK) continue;
        CHECK(codec->ops->bytes_max(codec, wanted) == count - 1);
        CHECK(floats_are_finite(values, wanted));
        codec->ops->encode(codec, 0, values, wanted, again);
        CHECK(memcmp(again, bytes + 1, count - 1) == 0);
    }
    return 0;
}
