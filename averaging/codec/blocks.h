/*
 * blocks: codecs of a few bits a value. A chunk is cut into blocks (the last may be shorter), each
 * with a scale: first all scales (float32), then block by block a small integer for each value,
 * side by side. Decoded: integer times scale. A codec of this kind is a format and a function that
 * chooses scale and integers; what no such function chooses is refused here.
 *
 * The same bits on every machine: sums are taken in eight parts, in order.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_BLOCKS_H
#define GRAPEVINE_AVERAGING_CODEC_BLOCKS_H

#include "averaging/codec/codec.h"

enum { BLOCK_VALUES_MAX = 640 };

/* How integers lie side by side. Of 2 to 8 bits: two's complement, the first in the lowest bits of
 * the first byte. Signs: a bit each, 1 for -1, 0 for 1. Trits, five to a byte: that of integer
 * i + d m counts 3^d in byte i, where m bytes are the block's; 2 for -1. What no integer takes is
 * 0. */
enum { BLOCK_TRITS = 0, BLOCK_SIGNS = 1 };

struct block_format {
    size_t values; /* of a block: a multiple of 8, and of 5 for trits; BLOCK_VALUES_MAX at most */
    unsigned bits; /* 2 to 8, BLOCK_SIGNS or BLOCK_TRITS; as many as `levels` need, if those vary */
    int levels;    /* integers are within -levels to levels; 0: as the codec's settings say */
    bool is_full;  /* one integer of each block is one of these two */
    uint32_t cut;  /* bits of a scale that are 0 */
    /** Of a block of n values of which `first` are before it, scale and integers; with a scale that
     *  is no normal number it becomes a block of zeros. */
    float (*choose)(const struct codec *self, uint64_t seed, uint32_t first, const float *in,
                    size_t n, int8_t *integers);
};

/* As codec.h has them, for those whose `blocks` say the rest. */
size_t block_bytes_max(const struct codec *self, size_t values);
size_t block_encode(const struct codec *self, uint64_t seed, const float *in, size_t values,
                    uint8_t *out);
MUST_USE enum rc block_decode(const struct codec *self, const uint8_t *in, size_t count, float *out,
                              size_t values);

/* ---- for the functions that choose ---- */

struct block_sums {
    double values, magnitudes, squares; /* of v, |v|, v^2 */
    float largest;                      /* |v| */
};

struct block_sums block_sums(const float *in, size_t n);
/** The scale by which the integers are nearest to the values (least squares): sum of v i over sum
 *  of i^2; 0 where all are 0. Whatever chance has chosen, the error is then no larger than without
 *  the integers. */
float block_fit(const float *in, const int8_t *integers, size_t n);
/** Integers by chance, which are value / scale in the mean: of the two beside it the upper one with
 *  the probability of how far it is above the lower one; no more than `levels`. False: `scale` is
 *  no normal number. */
bool block_round(uint64_t seed, uint32_t first, float scale, int levels, const float *in, size_t n,
                 int8_t *integers);

/* ---- for others of a few bits ---- */

static inline size_t bits_bytes(unsigned bits, size_t n)
{
    return (n * bits + 7) / 8;
}
/** Numbers of 1 to 8 bits. Returns bits_bytes(). */
size_t bits_pack(unsigned bits, const uint8_t *numbers, size_t n, uint8_t *out);
/** False: what is left of the last byte is not 0. */
bool bits_unpack(unsigned bits, const uint8_t *in, size_t n, uint8_t *numbers);

#endif
