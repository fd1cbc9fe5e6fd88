/*
 * mirror: a copy of another peer's model that follows the difference to it, encoded (CHOCO-SGD:
 * Koloskova, Stich, Jaggi 2019, arXiv:1902.00340; with the copies of 1907.09356). What the codec
 * leaves out stays in the difference and comes later. Who sends moves its own copy of what the
 * others believe by what they will decode, so the copies stay equal to the bit as long as every
 * block arrives once and in order; edge/mirror.c sees to that. Pure.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_MIRROR_H
#define GRAPEVINE_AVERAGING_CODEC_MIRROR_H

#include "averaging/codec/codec.h"

/** bytes: [bytes_max(count)] = C(x - mirror), *bytes_count of them, and mirror moves by what they
 *  decode to. scratch: [count]. RC_NONFINITE: the copy is no number any more and of no use. */
MUST_USE enum rc mirror_advance(const struct codec *codec, uint64_t seed, const float *x,
                                float *mirror, size_t count, float *scratch, uint8_t *bytes,
                                size_t *bytes_count);
/** The other end: mirror moves by what `bytes` decode to. RC_FORMAT, RC_NONFINITE: of no use. */
MUST_USE enum rc mirror_follow(const struct codec *codec, const uint8_t *bytes, size_t bytes_count,
                               float *mirror, size_t count, float *scratch);

#endif
