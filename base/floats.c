/* See floats.h. */
#include "base/floats.h"

#include "base/cpu.h"

FOR_EACH_CPU(extern, bool, floats_are_finite, (const float *values, size_t count), (values, count))
{
    uint32_t bad = 0;

    for (size_t i = 0; i < count; i++) {
        bad |= (uint32_t)((float_bits(values[i]) & 0x7f800000u) == 0x7f800000u);
    }
    return bad == 0;
}
