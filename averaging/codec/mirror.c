/* Copies that follow encoded differences; see mirror.h. */
#include "averaging/codec/mirror.h"

#include "base/floats.h"

static enum rc move(float *mirror, const float *by, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        mirror[i] += by[i];
    }
    return floats_are_finite(mirror, count) ? RC_OK : RC_NONFINITE;
}

enum rc mirror_advance(const struct codec *codec, uint64_t seed, const float *x, float *mirror,
                       size_t count, float *scratch, uint8_t *bytes, size_t *bytes_count)
{
    enum rc rc;

    for (size_t i = 0; i < count; i++) {
        scratch[i] = x[i] - mirror[i];
    }
    if (!floats_are_finite(scratch, count)) return RC_NONFINITE;
    *bytes_count = codec->ops->encode(codec, seed, scratch, count, bytes);
    rc = codec->ops->decode(codec, bytes, *bytes_count, scratch, count);
    return rc == RC_OK ? move(mirror, scratch, count) : rc;
}

enum rc mirror_follow(const struct codec *codec, const uint8_t *bytes, size_t bytes_count,
                      float *mirror, size_t count, float *scratch)
{
    enum rc rc = codec->ops->decode(codec, bytes, bytes_count, scratch, count);

    return rc == RC_OK ? move(mirror, scratch, count) : rc;
}
