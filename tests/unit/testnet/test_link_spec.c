/* --link: what it means, and what is said of wrong ones. */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/link_spec.h"

static void a_whole_spec_is_read(void **state)
{
    (void)state;
    struct sim_path path = {.loss = 0.25};

    assert_int_equal(
        link_spec_parse("link", "rate=100mbit,delay=50ms,jitter=5ms,loss=0.1%", &path, NULL),
        RC_OK);
    assert_true(path.bytes_per_s == 12500000);
    assert_true(path.latency_ns == 50 * NS_PER_MS);
    assert_true(path.jitter_ns == 5 * NS_PER_MS);
    assert_true(path.loss > 0.00099 && path.loss < 0.00101);
    assert_int_equal(link_spec_parse("link", "delay=2s", &path, NULL), RC_OK);
    assert_true(path.latency_ns == 2 * NS_PER_S);
    assert_true(path.bytes_per_s == 0 && path.jitter_ns == 0 && path.loss == 0);
    assert_int_equal(link_spec_parse("link", NULL, &path, NULL), RC_OK);
    assert_true(path.latency_ns == 0);
    assert_int_equal(link_spec_parse("link", "", &path, NULL), RC_OK);
}

static void wrong_specs_say_where(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *text;
    } cases[] = {
        {"delay", "column 1: KEY=VALUE"},
        {"delay=50ms,", "column 12: KEY=VALUE"},
        {"delay=50ms,speed=3", "column 12: unknown key"},
        {"delay=soon", "column 1: the delay"},
        {"rate=fast", "column 1: the rate"},
        {"rate=0", "column 1: the rate"},
        {"delay=1ms,loss=51%", "column 11: the loss"},
        {"loss=-1%", "column 1: the loss"},
        {"delay=1ms,loss=1%,delay=2ms", "column 19: this key is given twice"},
        {"jitter=", "column 1: the jitter"},
        {"delay=000000000000000000000000000000000000001ms", "too long"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sim_path path = {.latency_ns = 7};
        struct fault why = {""};

        if (link_spec_parse("link-across", cases[i].spec, &path, &why) != RC_PARSE) {
            fail_msg("%s", cases[i].spec);
        }
        if (strstr(why.text, "--link-across, column ") != why.text) fail_msg("%s", why.text);
        if (strstr(why.text, cases[i].text) == NULL) fail_msg("%s: %s", cases[i].spec, why.text);
        assert_true(path.latency_ns == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_spec_is_read),
        cmocka_unit_test(wrong_specs_say_where),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
