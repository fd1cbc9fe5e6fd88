/* bench_network: the rows it gives, and what it refuses. How fast is not a test. */
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "gossip/secure/secure.h"
#include "peer/bench/network.h"

static void there_is_a_row_for_plain_and_for_each_cipher_of_this_machine(void **state)
{
    /* One frame size: plain and every suite, each with a rate between its quartiles. */
    struct bench_network_options options = {.seconds = 0.2, .bytes_per_frame = 20000};
    struct json *rows = NULL;
    struct fault why = {.text = ""};
    size_t expected = 1;

    (void)state;
    assert_int_equal(bench_network(&options, &rows, &why), RC_OK);
    expected += (secure_suites() & SUITE_CHACHA20POLY1305) != 0;
    expected += (secure_suites() & SUITE_AES256GCM) != 0;
    assert_int_equal(json_count(rows), expected);
    for (size_t i = 0; i < expected; i++) {
        double q1, median, q3;
        uint64_t bytes;

        assert_true(json_get_real(json_at(rows, i), "q1", &q1));
        assert_true(json_get_real(json_at(rows, i), "gb_per_s", &median));
        assert_true(json_get_real(json_at(rows, i), "q3", &q3));
        assert_true(json_get_count(json_at(rows, i), "frame_bytes", &bytes));
        assert_true(q1 > 0.0 && q1 <= median && median <= q3);
        assert_int_equal(bytes, 20000);
    }
    assert_string_equal(json_get_text(json_at(rows, 0), "what"), "plain");
    json_destroy(rows);
}

static void a_frame_above_the_wire_s_limit_is_refused(void **state)
{
    /* Words, no rows. */
    struct bench_network_options options = {.seconds = 0.1, .bytes_per_frame = BULK_BYTES_MAX};
    struct json *rows = NULL;
    struct fault why = {.text = ""};

    (void)state;
    assert_int_equal(bench_network(&options, &rows, &why), RC_USAGE);
    assert_null(rows);
    assert_string_not_equal(why.text, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(there_is_a_row_for_plain_and_for_each_cipher_of_this_machine),
        cmocka_unit_test(a_frame_above_the_wire_s_limit_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
