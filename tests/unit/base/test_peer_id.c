/* Peer ids as text and in order. */
#include "tests/check.h"

#include "base/peer_id.h"

/* An id is written as RFC 4648 base32 in lower case. */
static void ids_are_written_in_base32(void **state)
{
    struct peer_id id;
    char text[PEER_ID_TEXT];

    (void)state;
    for (int i = 0; i < PEER_ID_BYTES; i++) {
        id.bytes[i] = (uint8_t)i;
    }
    peer_id_format(id, text);
    assert_string_equal(text, "aaaqeayeaudaocajbifqydiob4ibceqt");
    memset(id.bytes, 0xff, sizeof id.bytes);
    peer_id_format(id, text);
    assert_string_equal(text, "77777777777777777777777777777777");
}

/* Ids compare as byte strings, unsigned; a difference in any byte counts. */
static void ids_compare_as_bytes(void **state)
{
    struct peer_id low = {{0}}, high = {{0}};
    struct boot_id a = {{1}}, b = {{1}};

    (void)state;
    assert_true(peer_id_is_equal(low, high));
    assert_int_equal(peer_id_compare(low, high), 0);
    for (int i = 0; i < PEER_ID_BYTES; i++) {
        high = low;
        high.bytes[i] = 0x80;
        assert_false(peer_id_is_equal(low, high));
        assert_true(peer_id_compare(low, high) < 0);
        assert_true(peer_id_compare(high, low) > 0);
    }
    assert_true(boot_id_is_equal(a, b));
    b.bytes[BOOT_ID_BYTES - 1] = 1;
    assert_false(boot_id_is_equal(a, b));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_written_in_base32),
        cmocka_unit_test(ids_compare_as_bytes),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
