/* attach: who may join a connection to a session, and that both sides then have the same keys. */
#include "tests/check.h"

#include "gossip/secure/attach.h"
#include "tests/golden.h"

static const uint8_t exporter[SECRET_BYTES] = "an exporter of thirty-two bytes";

static struct attach example(void)
{
    struct attach attach = {.number = 6, .epoch = 1};

    memset(attach.session_id, 0x51, sizeof attach.session_id);
    memset(attach.nonces[0], 0xa1, ATTACH_NONCE_BYTES);
    memset(attach.nonces[1], 0xb2, ATTACH_NONCE_BYTES);
    return attach;
}

/* A request and its answer are understood, and lead both sides to the same two keys. */
static void both_sides_end_with_the_same_keys(void **state)
{
    struct attach asked = example(), heard;
    uint8_t request[ATTACH_BYTES], answer[ATTACH_BYTES], keys[4][SECRET_BYTES];

    (void)state;
    memset(asked.nonces[1], 0, ATTACH_NONCE_BYTES);
    attach_ask(&asked, exporter, true, request);
    assert_true(attach_parse(request, sizeof request, &heard));
    assert_int_equal(heard.number, 6);
    assert_int_equal(heard.epoch, 1);
    assert_memory_equal(heard.session_id, asked.session_id, SESSION_ID_BYTES);
    assert_int_equal(attach_verify(request, exporter, true), RC_OK);
    memset(heard.nonces[1], 0xb2, ATTACH_NONCE_BYTES);
    attach_answer(&heard, request, exporter, false, answer);
    assert_int_equal(attach_finish(&asked, answer, sizeof answer, exporter, true), RC_OK);
    attach_roots(&asked, exporter, keys[0], keys[1]);
    attach_roots(&heard, exporter, keys[2], keys[3]);
    assert_memory_equal(keys[0], keys[2], SECRET_BYTES);
    assert_memory_equal(keys[1], keys[3], SECRET_BYTES);
    assert_memory_not_equal(keys[0], keys[1], SECRET_BYTES);
    heard.number += 2; /* another connection has other keys, whatever its nonces */
    attach_roots(&heard, exporter, keys[2], keys[3]);
    assert_memory_not_equal(keys[0], keys[2], SECRET_BYTES);
}

/* A changed bit anywhere, either way, is noticed; so are cut frames, reflected and repeated ones.
 */
static void nothing_else_is_accepted(void **state)
{
    struct attach attach = example(), heard;
    uint8_t request[ATTACH_BYTES], answer[ATTACH_BYTES], other[SECRET_BYTES] = "another";

    (void)state;
    attach_ask(&attach, exporter, true, request);
    attach_answer(&attach, request, exporter, false, answer);
    for (size_t bit = 0; bit < 8 * (size_t)ATTACH_BYTES; bit++) {
        request[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_false(attach_parse(request, sizeof request, &heard) &&
                     attach_verify(request, exporter, true) == RC_OK);
        request[bit / 8] ^= (uint8_t)(1U << bit % 8);
        answer[bit / 8] ^= (uint8_t)(1U << bit % 8);
        assert_int_not_equal(attach_finish(&attach, answer, sizeof answer, exporter, true), RC_OK);
        answer[bit / 8] ^= (uint8_t)(1U << bit % 8);
    }
    for (size_t cut = 0; cut < ATTACH_BYTES; cut++) {
        assert_false(attach_parse(request, cut, &heard));
        assert_int_equal(attach_finish(&attach, answer, cut, exporter, true), RC_FORMAT);
    }
    assert_int_equal(attach_verify(request, other, true), RC_AUTH);
    assert_int_equal(attach_verify(request, exporter, false), RC_AUTH); /* our own, reflected */
    assert_int_equal(attach_finish(&attach, request, sizeof request, exporter, true), RC_FORMAT);
    attach.nonces[0][0] ^= 1; /* the answer to another request */
    assert_int_equal(attach_finish(&attach, answer, sizeof answer, exporter, true), RC_AUTH);
}

/* Each number is accepted once, a little late at most, and again in the next epoch. */
static void a_number_is_accepted_once(void **state)
{
    struct attach_window window = {0};

    (void)state;
    assert_true(attach_window_accept(&window, 0, 0));
    assert_false(attach_window_accept(&window, 0, 0));
    assert_true(attach_window_accept(&window, 0, 4));
    assert_true(attach_window_accept(&window, 0, 2));
    assert_false(attach_window_accept(&window, 0, 2));
    assert_true(attach_window_accept(&window, 0, 4 + 2 * 63));
    assert_false(attach_window_accept(&window, 0, 4)); /* seen, at the window's far end */
    assert_true(attach_window_accept(&window, 0, 6));
    assert_true(attach_window_accept(&window, 0, UINT32_MAX - 1));
    assert_false(attach_window_accept(&window, 0, 8)); /* too old */
    assert_false(attach_window_accept(&window, 0, UINT32_MAX - 1));
    assert_true(attach_window_accept(&window, 1, 0));
    assert_false(attach_window_accept(&window, 0, 10));
    assert_false(attach_window_accept(&window, 1, 0));
}

/* The two frames as gossip/WIRE.md shows them. */
static void the_frames_are_those_of_the_documentation(void **state)
{
    static struct golden golden;
    struct attach attach = example();
    uint8_t request[ATTACH_BYTES], answer[ATTACH_BYTES];

    (void)state;
    attach_ask(&attach, exporter, true, request);
    attach_answer(&attach, request, exporter, false, answer);
    golden_print(&golden, "```text\nATTACH\n");
    golden_hexdump(&golden, request, sizeof request);
    golden_print(&golden, "\nATTACH_OK\n");
    golden_hexdump(&golden, answer, sizeof answer);
    golden_print(&golden, "```\n");
    golden_compare(&golden, "gossip/WIRE.md", "attach");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_end_with_the_same_keys),
        cmocka_unit_test(nothing_else_is_accepted),
        cmocka_unit_test(a_number_is_accepted_once),
        cmocka_unit_test(the_frames_are_those_of_the_documentation),
    };

    if (secure_start() != RC_OK) return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
