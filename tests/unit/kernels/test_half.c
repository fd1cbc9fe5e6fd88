/* binary16: the plain functions against the format, the fast ones against the plain. */
#include "tests/check.h"

#include "kernels/cpu/half.h"
#include "base/rng.h"

#include <math.h>

static float float_of(uint32_t bits)
{
    float value;

    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint32_t bits_of(float value)
{
    uint32_t bits;

    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static void every_finite_half_survives_the_way_there_and_back(void **state)
{
    (void)state;
    /* All 65,536 patterns: finite ones come back as they were, and mean what the format says. */
    for (uint32_t h = 0; h < 65536; h++) {
        float value = half_to_float_plain((uint16_t)h);
        int exponent = (int)(h >> 10 & 31);
        double expected = exponent == 0 ? ldexp((double)(h & 1023), -24)
                                        : ldexp((double)(h & 1023) + 1024, exponent - 25);

        if (exponent == 31) continue;
        assert_true((double)fabsf(value) == expected);
        assert_int_equal(bits_of(value) >> 31, h >> 15);
        assert_int_equal(half_of_plain(value), h);
    }
}

static void the_fast_functions_give_the_plain_ones_bits(void **state)
{
    (void)state;
    /* All halves, NaN and infinity among them, decode alike; many floats encode alike. */
    enum { COUNT = 65536 + 3 };
    static uint16_t halves[COUNT], encoded[COUNT];
    static float floats[COUNT];
    struct rng rng;

    for (uint32_t i = 0; i < COUNT; i++) {
        halves[i] = (uint16_t)i;
    }
    half_decode(halves, COUNT, floats);
    for (uint32_t i = 0; i < COUNT; i++) {
        assert_int_equal(bits_of(floats[i]), bits_of(half_to_float_plain(halves[i])));
    }
    FOR_EACH_SEED (seed, 20) {
        rng_init(&rng, seed, 0);
        for (uint32_t i = 0; i < COUNT; i++) { /* any bits but NaN, and around the halves' range */
            uint64_t draw = rng_u64(&rng);
            uint32_t bits = (uint32_t)draw;

            if (seed % 2 == 0) {
                bits = (bits & 0x807fffffu) | (uint32_t)(100 + (draw >> 32) % 45) << 23;
            }
            if ((bits & 0x7fffffffu) > 0x7f800000u) bits &= 0xff800000u;
            if (seed % 4 == 0) bits &= 0xfffff000u; /* many ties */
            floats[i] = float_of(bits);
        }
        half_encode(floats, COUNT, encoded);
        for (uint32_t i = 0; i < COUNT; i++) {
            check_seed(seed, encoded[i] == half_of_plain(floats[i]));
        }
    }
}

static void rounding_is_to_nearest_with_ties_to_even(void **state)
{
    (void)state;
    /* Between any two neighbouring halves: the middle goes to the even one, beside it to the near.
     */
    for (uint32_t h = 0; h < 0x7bff; h++) {
        float low = half_to_float_plain((uint16_t)h), high = half_to_float_plain((uint16_t)(h + 1));
        float middle = (low + high) / 2;
        uint32_t even = h % 2 == 0 ? h : h + 1;

        assert_int_equal(half_of_plain(middle), even);
        assert_int_equal(half_of_plain(nextafterf(middle, 0)), h);
        assert_int_equal(half_of_plain(nextafterf(middle, INFINITY)), h + 1);
        assert_int_equal(half_of_plain(-middle), even | 0x8000);
    }
}

static void what_is_too_large_is_clamped(void **state)
{
    (void)state;
    /* Nothing finite becomes an infinity on the wire. */
    const float large[] = {65504, 65519, 65520, 65536, 1e30f, 3.4e38f, INFINITY, 70000};
    uint16_t out[8];

    half_encode(large, 8, out);
    for (int i = 0; i < 8; i++) {
        assert_int_equal(out[i], 0x7bff);
        assert_int_equal(half_of_plain(large[i]), 0x7bff);
        assert_int_equal(half_of_plain(-large[i]), 0xfbff);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_finite_half_survives_the_way_there_and_back),
        cmocka_unit_test(the_fast_functions_give_the_plain_ones_bits),
        cmocka_unit_test(rounding_is_to_nearest_with_ties_to_even),
        cmocka_unit_test(what_is_too_large_is_clamped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
