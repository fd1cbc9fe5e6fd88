/*
 * select: which of many values are the largest. The size of a value is |value|, as an integer: the
 * bits of finite numbers without their sign are in the order of their sizes.
 */
#ifndef GRAPEVINE_AVERAGING_CODEC_SELECT_H
#define GRAPEVINE_AVERAGING_CODEC_SELECT_H

#include <stddef.h>
#include <stdint.h>

/* Those larger than `least`, and the first `ties` of those as large. */
struct selection {
    uint32_t least;
    size_t ties;
};

static inline uint32_t select_size(uint32_t bits)
{
    return bits & 0x7fffffffu;
}

/** How many are at least of that size. */
size_t select_count(const float *in, size_t n, uint32_t size);
/** The k largest of `n`, the first of equal ones; 0 < k <= n. The search halves the sizes that the
 *  least of them may have, so it looks at all values 31 times at most, whatever they are. */
struct selection select_largest(const float *in, size_t n, size_t k);
/** Their places, ascending, into `places`, and the values there into `values`: both have room for
 *  one more than are found. Returns how many. n is 65536 at most. */
size_t select_places(const float *in, size_t n, struct selection selection, uint16_t *places,
                     float *values);

#endif
