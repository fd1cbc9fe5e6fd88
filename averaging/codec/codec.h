/*
 * codec: a float32 chunk to bytes and back, as `--codec` names it: `f16`, `topk:0.01`, or
 * `topk:0.01|int8`, in which the second says how the numbers are sent that the first has left. A
 * codec is a value: found once, copied, compared by its name. Each of codecs[] in codec.c is one
 * file, or a format of kernels/codec.h; the suite in tests/contract runs on all and tests what each
 * says of itself.
 *
 * Bytes say all that a decoder needs beside the codec and the number of values, so both ends only
 * have that in common. Where chance decides (random rounding, random places) it is drawn from a
 * seed of the encoder's: the same seed and values give the same bytes on every machine. A codec
 * whose decoder needs the seed writes it down.
 *
 * The encoded size is bounded by the count, before decoding, and mostly follows from it, so hostile
 * bytes cannot make a decoder allocate. Pure; any thread.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_CODEC_H
#define GRAPEVINE_AVERAGING_CODEC_CODEC_H

#include "base/fault.h"
#include "base/rc.h"
#include "kernels/codec.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CODEC_NAME_BYTES = 32, CODEC_VALUES_MAX = 65536 };

/* What a codec says of itself. x is any chunk, C(x) what it decodes to. */
struct codec_traits {
    bool is_lossless;   /* C(x) is x, bit for bit */
    bool is_idempotent; /* encoding C(x) gives the same bytes */
    bool is_fine;       /* 8 bits of each value at least: it may be rounded again and again */
    bool is_unbiased;   /* the mean of C(x) over all seeds is x */
    bool is_random;     /* the bytes depend on the seed */
    bool is_difference; /* for differences alone: what it leaves out of a model would be lost */
    float contraction;  /* d in |x - C(x)|^2 <= (1 - d) |x|^2, in the mean over all seeds, for any x
                           of zeros and numbers of more than 1e-30; 0: not promised */
    float kept;         /* < 1: at most this share of the values is no zero */
    float step;         /* of choco towards copies, known to hold on a ring */
};

struct codec_settings {
    uint32_t share_ppm; /* of the values, in millionths */
    uint32_t kept;      /* of each tile of values */
    uint32_t levels;    /* beside 0, of each sign */
    uint32_t rank;      /* of the matrix that a chunk becomes */
    float threshold;
};

struct block_format; /* blocks.h */

struct codec_ops;

struct codec {
    const struct codec_ops *ops;
    struct codec_settings settings;
    const struct codec_ops *rest; /* of the numbers that `ops` leaves; NULL: they are float32 */
    struct codec_settings rest_settings;
    bool contracts; /* codec_contract() */
    struct codec_traits traits;
    char name[CODEC_NAME_BYTES]; /* equal names: equal codecs */
};

/* `self` is the codec that has these as its `ops`; counts of values are CODEC_VALUES_MAX at most,
 * but for formats of kernels/codec.h. */
struct codec_ops {
    const char *word;                  /* its name is this, or this, a colon and its settings */
    const char *usage;                 /* how settings are written, for people; NULL: it has none */
    enum codec_format format;          /* which devices encode too; CODEC_FORMATS: none of them */
    bool is_sparse;                    /* fewer numbers are left: others may follow in a chain */
    bool varies;                       /* how many bytes it takes depends on the values */
    const struct block_format *blocks; /* of those of blocks.h; or NULL */
    /** `text` is what follows the colon. False: it is none of `usage`. */
    bool (*parse)(const char *text, struct codec_settings *settings);
    /** The other way round; text: [CODEC_NAME_BYTES]. */
    void (*print)(const struct codec_settings *settings, char *text);
    struct codec_traits (*traits)(const struct codec *self);
    /** Bytes of `values` encoded values at most; the same on every peer, and smaller for fewer. */
    size_t (*bytes_max)(const struct codec *self, size_t values);
    /** in: [values], finite; what the format cannot hold is clamped (f16: to +-65504). out:
     *  bytes_max(values). Returns how many of them there are: all, unless `varies`. */
    size_t (*encode)(const struct codec *self, uint64_t seed, const float *in, size_t values,
                     uint8_t *out);
    /** RC_FORMAT unless `count` is what encode() returns for so many values; RC_NONFINITE if any
     *  value decodes to NaN or an infinity. Either if bytes are none that encode() writes. `out` is
     *  then unspecified. */
    MUST_USE enum rc (*decode)(const struct codec *self, const uint8_t *in, size_t count,
                               float *out, size_t values);
};

extern const struct codec codec_f32, codec_f16, codec_bf16, codec_int8;
extern const struct codec_ops codec_ops_int4, codec_ops_int2, codec_ops_sign, codec_ops_ternary,
    codec_ops_qsgd, codec_ops_topk, codec_ops_tiles, codec_ops_randk, codec_ops_threshold,
    codec_ops_lowrank;

/** By `--codec` name. RC_PARSE says what is known. */
MUST_USE enum rc codec_find(const char *name, struct codec *codec, struct fault *why);

/** For where what is left out of a difference comes later (mirrors, error feedback): what was right
 *  in the mean, but farther off than nothing at all might be, becomes what draws near. That is the
 *  encoder's choice of a scale, and the same bytes to who decodes. */
void codec_contract(struct codec *codec);

/** May `count` bytes be so many values? decode() looks closer. */
bool codec_is_size(const struct codec *codec, size_t count, size_t values);
/** Bytes of a plane, which is encoded chunk by chunk, at most. */
size_t codec_plane_bytes(const struct codec *codec, size_t values);
/** The name where there is room for `cap` - 1 characters only: itself, or its beginning, '~' and
 *  four digits of its hash. cap >= 8. */
void codec_short_name(const struct codec *codec, char *text, size_t cap);

/** What a sparse codec sends its numbers by. */
struct codec codec_rest(const struct codec *codec);

/** Those that a model can be sent by, in the order of enum codec_format; NULL past the end. */
const struct codec *codec_at(size_t index);
/** One name or more of each other codec, for tests and benchmarks; NULL past the end. */
const char *codec_example(size_t index);

#endif
