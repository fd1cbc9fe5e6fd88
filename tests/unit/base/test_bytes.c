/* Little-endian numbers. */
#include "tests/check.h"

#include "base/bytes.h"

/* The lowest byte comes first, at any alignment. */
static void numbers_lie_little_end_first(void **state)
{
    uint8_t bytes[11] = {0};

    (void)state;
    store_le64(bytes + 1, UINT64_C(0x8877665544332211));
    for (int i = 0; i < 8; i++) {
        assert_int_equal(bytes[1 + i], 0x11 * (i + 1));
    }
    assert_int_equal(bytes[0] | bytes[9] | bytes[10], 0);
    assert_true(load_le64(bytes + 1) == UINT64_C(0x8877665544332211));
    assert_int_equal(load_le32(bytes + 1), 0x44332211);
    assert_int_equal(load_le16(bytes + 1), 0x2211);
}

/* What is stored is loaded, for the extremes of every width. */
static void stored_numbers_load_back(void **state)
{
    static const uint64_t values[] = {0,      1,      0x7f,       0x80,      0xff,
                                      0x8000, 0xffff, 0x80000000, UINT64_MAX};
    uint8_t bytes[8];

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        store_le16(bytes, (uint16_t)values[i]);
        assert_int_equal(load_le16(bytes), (uint16_t)values[i]);
        store_le32(bytes, (uint32_t)values[i]);
        assert_true(load_le32(bytes) == (uint32_t)values[i]);
        store_le64(bytes, values[i]);
        assert_true(load_le64(bytes) == values[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_lie_little_end_first),
        cmocka_unit_test(stored_numbers_load_back),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
