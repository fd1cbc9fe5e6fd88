/* Tests of base/floats: which numbers are finite, and that bits go in and out as they are. */
#include "tests/check.h"

#include "base/floats.h"

#include <math.h>

static void only_exponents_of_all_ones_are_not_finite(void **state)
{
    (void)state;
    /* NaN and infinities of both signs, alone among many; the largest number is fine. */
    float values[33] = {3.4e38f, -3.4e38f, 1e-45f};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};

    assert_true(floats_are_finite(values, 33));
    assert_true(floats_are_finite(NULL, 0));
    for (size_t at = 0; at < 33; at++) {
        for (int i = 0; i < 4; i++) {
            float was = values[at];

            values[at] = bad[i];
            assert_false(floats_are_finite(values, 33));
            values[at] = was;
        }
    }
}

static void bits_go_in_and_out_as_they_are(void **state)
{
    (void)state;
    /* The bits of IEEE 754, least byte first wherever it runs; a NaN keeps its payload. */
    const uint32_t bits[] = {0, 0x80000000u, 0x3f800000u, 0x7f800000u, 0x7fc12345u, 1};
    const uint8_t one[4] = {0, 0, 0x80, 0x3f};
    uint8_t bytes[4];

    store_le_float(bytes, 1.0F);
    assert_memory_equal(bytes, one, sizeof one);
    for (size_t i = 0; i < sizeof bits / sizeof bits[0]; i++) {
        store_le32(bytes, bits[i]);
        assert_int_equal(float_bits(load_le_float(bytes)), bits[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_exponents_of_all_ones_are_not_finite),
        cmocka_unit_test(bits_go_in_and_out_as_they_are),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
