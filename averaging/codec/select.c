/* See select.h. */
#include "averaging/codec/select.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/floats.h"

FOR_EACH_CPU(extern, size_t, select_count, (const float *in, size_t n, uint32_t size),
             (in, n, size))
{
    uint32_t count = 0;

    for (size_t i = 0; i < n; i++) {
        count += (int32_t)select_size(float_bits(in[i])) >= (int32_t)size;
    }
    return count;
}

struct selection select_largest(const float *in, size_t n, size_t k)
{
    uint32_t least = 0, above = UINT32_C(0x7f800000); /* at least k are of `least`, fewer above */
    size_t larger = 0;                                /* are of `above` */

    CHECK(k > 0 && k <= n);
    while (above - least > 1) {
        uint32_t middle = least + (above - least) / 2;
        size_t count = select_count(in, n, middle);

        if (count == k) return (struct selection){middle - 1, 0};
        if (count > k) {
            least = middle;
        } else {
            above = middle;
            larger = count;
        }
    }
    return (struct selection){least, k - larger};
}

size_t select_places(const float *in, size_t n, struct selection selection, uint16_t *places,
                     float *values)
{
    size_t at = 0, equals = 0;

    CHECK(n <= 65536);
    for (size_t i = 0; i < n; i++) { /* no branch: which are taken nobody can foresee */
        uint32_t size = select_size(float_bits(in[i]));
        size_t is_equal = size == selection.least;

        places[at] = (uint16_t)i;
        values[at] = in[i];
        at += (size_t)(size > selection.least) | (is_equal & (equals < selection.ties));
        equals += is_equal;
    }
    return at;
}
