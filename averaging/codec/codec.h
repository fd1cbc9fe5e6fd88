/*
 * codec: a float32 chunk to bytes and back, by name; the formats are those of kernels/codec.h. The
 * suite in tests/contract runs on all. Encoded sizes are known from the count alone, before
 * decoding, so hostile bytes cannot make a decoder allocate.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_CODEC_H
#define GRAPEVINE_AVERAGING_CODEC_CODEC_H

#include "base/fault.h"
#include "base/rc.h"
#include "kernels/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct codec_ops {
    const char *name;
    enum codec_format format;
    bool is_lossless;
    float kept; /* > 0: this share of the values, the others become 0: for differences alone */
    /** Bytes of `values` encoded values; the same on every peer. */
    size_t (*encoded_bytes)(size_t values);
    /** in: [values]; out: encoded_bytes(values). Values are finite; what the format cannot hold is
     *  clamped (f16: to +-65504). Encoding what was decoded gives the same bytes. */
    void (*encode)(const float *in, size_t values, uint8_t *out);
    /** RC_FORMAT unless `count` is encoded_bytes(values); RC_NONFINITE if any value decodes to NaN
     *  or an infinity, or bytes are none that encode() writes. `out` is then unspecified. */
    MUST_USE enum rc (*decode)(const uint8_t *in, size_t count, float *out, size_t values);
};

/** Bytes of a plane, which is encoded chunk by chunk. */
size_t codec_plane_bytes(const struct codec_ops *codec, size_t values);

extern const struct codec_ops codec_f32, codec_f16, codec_bf16, codec_int8;

/** By `--codec` name. RC_PARSE names the known ones. */
MUST_USE enum rc codec_find(const char *name, const struct codec_ops **codec, struct fault *why);

/** Those that keep a share of the values; NULL past the end. `values` up to 65536 at a time. */
const struct codec_ops *codec_topk_at(size_t index);

/** All others in order, for tests and benchmarks; NULL past the end. */
const struct codec_ops *codec_at(size_t index);

#endif
