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

/* Ids put in one after the other are in order, each once, and nothing behind them is touched. */
static void ids_are_put_in_order(void **state)
{
    static const uint8_t order[] = {5, 2, 9, 2, 7, 1, 9, 5};
    struct peer_id ids[6] = {{{0}}}, end = {{77}};
    size_t count = 0;

    (void)state;
    ids[5] = end;
    for (size_t i = 0; i < sizeof order; i++) {
        count = peer_id_insert(ids, count, (struct peer_id){{order[i]}});
    }
    assert_int_equal(count, 5);
    for (size_t i = 1; i < count; i++) {
        assert_true(peer_id_compare(ids[i - 1], ids[i]) < 0);
    }
    assert_int_equal(ids[0].bytes[0], 1);
    assert_int_equal(ids[4].bytes[0], 9);
    assert_true(peer_id_is_equal(ids[5], end));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_are_written_in_base32),
        cmocka_unit_test(ids_compare_as_bytes),
        cmocka_unit_test(ids_are_put_in_order),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
