/*
 * half: IEEE 754 binary16, the format behind codec f16. Rounding is to nearest, ties to even;
 * magnitudes above 65504 are clamped to it. The plain functions are the specification; the others
 * use the processor's conversion where it has one and give the same bits.
 */
#ifndef GRAPEVINE_KERNELS_CPU_HALF_H
#define GRAPEVINE_KERNELS_CPU_HALF_H

#include <stddef.h>
#include <stdint.h>

uint16_t half_of_plain(float value); /* `value` is not a NaN; an infinity is clamped too */
float half_to_float_plain(uint16_t half);

/** in: [count] not NaN; out: [count] in the machine's byte order. */
void half_encode(const float *in, size_t count, uint16_t *out);
void half_decode(const uint16_t *in, size_t count, float *out);

#endif
