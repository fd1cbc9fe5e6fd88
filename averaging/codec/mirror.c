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

enum rc mirror_advance(const struct codec_ops *codec, const float *x, float *mirror, size_t count,
                       float *scratch, uint8_t *bytes)
{
    enum rc rc;

    for (size_t i = 0; i < count; i++) {
        scratch[i] = x[i] - mirror[i];
    }
    if (!floats_are_finite(scratch, count)) return RC_NONFINITE;
    codec->encode(scratch, count, bytes);
    rc = codec->decode(bytes, codec->encoded_bytes(count), scratch, count);
    return rc == RC_OK ? move(mirror, scratch, count) : rc;
}

enum rc mirror_follow(const struct codec_ops *codec, const uint8_t *bytes, size_t bytes_count,
                      float *mirror, size_t count, float *scratch)
{
    enum rc rc = codec->decode(bytes, bytes_count, scratch, count);

    return rc == RC_OK ? move(mirror, scratch, count) : rc;
}
