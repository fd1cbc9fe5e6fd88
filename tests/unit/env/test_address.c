/* address and store_name: strict parsers of what people and peers write. */
#include "tests/check.h"

#include "base/check.h"
#include "gossip/wire/address.h"
#include "peer/env/store_name.h"

static void addresses_are_taken_apart(void **state)
{
    /* Names, IPv4, IPv6 in brackets, with a zone. */
    static const struct {
        const char *text, *host;
        unsigned port;
    } right[] = {{"127.0.0.1:80", "127.0.0.1", 80},
                 {"localhost:0", "localhost", 0},
                 {"a-b.example_c.org:65535", "a-b.example_c.org", 65535},
                 {"[::1]:7000", "::1", 7000},
                 {"[::ffff:1.2.3.4]:1", "::ffff:1.2.3.4", 1},
                 {"[fe80::1%eth0]:9", "fe80::1%eth0", 9},
                 {"sim:12", "sim", 12}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(right); i++) {
        struct address address;

        assert_int_equal(address_parse(right[i].text, &address), RC_OK);
        assert_string_equal(address.host, right[i].host);
        assert_int_equal(address.port, right[i].port);
    }
}

static void what_is_no_address_is_refused(void **state)
{
    /* And the output is not touched. */
    static const char *const wrong[] = {
        "",       ":",      ":1",      "a",        "a:",     "a:b",      "a:-1",
        "a:+1",   "a: 1",   "a:65536", "a:000001", "::1:1",  "[]:1",     "[::1]",
        "[::1]1", "[::1:1", "::1]:1",  "[name]:1", "[1]:1",  "[::1%]:1", "[%e]:1",
        "a b:1",  "a/b:1",  "a\n:1",   "a:1\n",    "\xff:1", "[::g]:1",  "a:1:2"};
    char longest[300];
    struct address address = {.port = 77};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        if (address_parse(wrong[i], &address) != RC_PARSE) fail_msg("accepted '%s'", wrong[i]);
    }
    memset(longest, 'a', sizeof longest);
    strcpy(longest + HOST_NAME_BYTES - 1, ":1");
    assert_int_equal(address_parse(longest, &address), RC_OK);
    memset(longest, 'a', sizeof longest);
    strcpy(longest + HOST_NAME_BYTES, ":2");
    assert_int_equal(address_parse(longest, &address), RC_PARSE);
    assert_int_equal(address.port, 1);
}

static void store_names_cannot_leave_the_folder(void **state)
{
    /* Small letters, digits, '.', '_', '-', not first a dot, at most 63 letters. */
    char name[STORE_NAME_BYTES + 1];

    (void)state;
    assert_int_equal(store_name_check("a", NULL), RC_OK);
    assert_int_equal(store_name_check("checkpoint-0001.safetensors", NULL), RC_OK);
    assert_int_equal(store_name_check("a..b", NULL), RC_OK);
    assert_int_equal(store_name_check("", NULL), RC_USAGE);
    assert_int_equal(store_name_check(".", NULL), RC_USAGE);
    assert_int_equal(store_name_check("..", NULL), RC_USAGE);
    assert_int_equal(store_name_check(".a", NULL), RC_USAGE);
    assert_int_equal(store_name_check("a/b", NULL), RC_USAGE);
    assert_int_equal(store_name_check("A", NULL), RC_USAGE);
    assert_int_equal(store_name_check("\xc3\xa9", NULL), RC_USAGE);
    memset(name, 'n', sizeof name);
    name[STORE_NAME_BYTES - 1] = '\0';
    assert_int_equal(store_name_check(name, NULL), RC_OK);
    name[STORE_NAME_BYTES - 1] = 'n';
    name[STORE_NAME_BYTES] = '\0';
    assert_int_equal(store_name_check(name, NULL), RC_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(addresses_are_taken_apart),
        cmocka_unit_test(what_is_no_address_is_refused),
        cmocka_unit_test(store_names_cannot_leave_the_folder),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
