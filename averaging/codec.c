/* The list of codecs, and the test every float from outside must pass. */
#include "averaging/codec.h"

#include "averaging/nearest.h"
#include "base/check.h"

#include <string.h>

static const struct codec_ops *const codecs[] = {&codec_f32, &codec_f16};

const struct codec_ops *codec_at(size_t index)
{
    return index < ARRAY_COUNT(codecs) ? codecs[index] : NULL;
}

enum rc codec_find(const char *name, const struct codec_ops **codec, struct fault *why)
{
    const char *names[ARRAY_COUNT(codecs)];

    for (size_t i = 0; i < ARRAY_COUNT(codecs); i++) {
        names[i] = codecs[i]->name;
        if (strcmp(names[i], name) == 0) {
            *codec = codecs[i];
            return RC_OK;
        }
    }
    return fault_set(why, RC_PARSE, "--codec %s: unknown codec; did you mean %s? known: f32, f16",
                     name, nearest_word(name, names, ARRAY_COUNT(codecs)));
}

bool floats_are_finite(const float *values, size_t count)
{
    uint32_t bad = 0;

    for (size_t i = 0; i < count; i++) {
        uint32_t bits;

        memcpy(&bits, &values[i], sizeof bits);
        bad |= (uint32_t)((bits & 0x7f800000u) == 0x7f800000u);
    }
    return bad == 0;
}
