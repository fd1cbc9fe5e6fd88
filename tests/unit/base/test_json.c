/* JSON: what is written reads back, numbers stay short, hostile text stays small. */
#include "tests/check.h"

#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

static void check_text(struct json *json, const char *expected)
{
    char *text = json_format(json);

    assert_string_equal(text, expected);
    mem_free(text);
    json_destroy(json);
}

/* Members keep their order, every kind has its form, and one line holds it all. */
static void trees_are_written_in_order(void **state)
{
    struct json *root = json_object_create(), *list = json_array_create();

    (void)state;
    json_set_text(root, "z", "a \"b\" \\ \n\t\x7f \xc3\xa9 \xc2\x9b \xc2\xa0");
    json_set_count(root, "count", 1625866);
    json_set_real(root, "real", 0.1);
    json_set_bool(root, "yes", true);
    json_set_bool(root, "no", false);
    json_set_null(root, "null");
    json_set_text(root, "none", NULL);
    json_append_text(list, "x");
    json_append_real(list, 1e100);
    json_append_count(list, 0);
    json_append(list, json_object_create());
    json_set(root, "list", list);
    check_text(
        root,
        "{\"z\":\"a \\\"b\\\" \\\\ \\n\\u0009\\u007f \xc3\xa9 \\u009b \xc2\xa0\",\"count\":1625866,"
        "\"real\":0.1,\"yes\":true,\"no\":false,\"null\":null,\"none\":null,"
        "\"list\":[\"x\",1e+100,0,{}]}");
}

/* The form for people is indented and ends its line. */
static void the_pretty_form_is_indented(void **state)
{
    struct json *root = json_object_create(), *list = json_array_create();
    char *text;

    (void)state;
    json_append_count(list, 1);
    json_set(root, "a", list);
    json_set(root, "b", json_array_create());
    text = json_format_pretty(root);
    assert_string_equal(text, "{\n  \"a\": [\n    1\n  ],\n  \"b\": []\n}\n");
    mem_free(text);
    json_destroy(root);
}

/* Numbers that are not finite become null, which every reader understands. */
static void numbers_that_are_not_finite_become_null(void **state)
{
    struct json *list = json_array_create();

    (void)state;
    json_append_real(list, (double)NAN);
    json_append_real(list, (double)INFINITY);
    json_append_real(list, (double)-INFINITY);
    json_append_real(list, -0.0);
    json_append_real(list, 5.0);
    check_text(list, "[null,null,null,-0.0,5.0]");
}

/* Any finite double is written with at most 17 digits and reads back to the bit. */
static void reals_read_back_to_the_bit(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2000) {
        struct json *list = json_array_create(), *read = NULL;
        uint64_t bits;
        double value, back;
        struct rng rng;
        enum rc rc;
        char *text;

        rng_init(&rng, seed, 1);
        bits = rng_u64(&rng);
        memcpy(&value, &bits, sizeof value);
        if (!isfinite(value)) value = 1.0 / 3.0;
        json_append_real(list, value);
        text = json_format(list);
        check_seed(seed, strlen(text) <= 2 + 24);
        rc = json_parse(text, strlen(text), &read, NULL);
        check_seed(seed, rc == RC_OK);
        check_seed(seed, json_real_of(json_at(read, 0), &back));
        check_seed(seed, memcmp(&value, &back, sizeof value) == 0);
        mem_free(text);
        json_destroy(list);
        json_destroy(read);
    }
}

/* Counts are exact to 2^63 - 1, and near above. */
static void counts_are_exact(void **state)
{
    struct json *list = json_array_create();

    (void)state;
    json_append_count(list, INT64_MAX);
    json_append_count(list, UINT64_MAX);
    check_text(list, "[9223372036854775807,1.8446744073709552e+19]");
}

/* Text that is not UTF-8 is written with question marks instead of stopping the report. */
static void broken_text_is_mended(void **state)
{
    struct json *list = json_array_create();

    (void)state;
    json_append_text(list, "caf\xe9!");
    check_text(list, "[\"caf?!\"]");
}

/* Members are found by key and kind; what is absent or of another kind is told apart. */
static void members_are_found_by_key_and_kind(void **state)
{
    static const char text[] =
        "{\"t\":\"x\",\"r\":1.5,\"c\":7,\"b\":true,\"n\":-1,\"a\":[1,\"y\"]}";
    const struct json *value;
    struct json *json;
    const char *key;
    double real;
    uint64_t count;
    bool flag;

    (void)state;
    assert_int_equal(json_parse(text, strlen(text), &json, NULL), RC_OK);
    assert_string_equal(json_get_text(json, "t"), "x");
    assert_null(json_get_text(json, "r"));
    assert_null(json_get_text(json, "absent"));
    assert_true(json_get_real(json, "r", &real) && real == 1.5);
    assert_true(json_get_real(json, "c", &real) && real == 7.0);
    assert_false(json_get_real(json, "t", &real));
    assert_true(json_get_count(json, "c", &count) && count == 7);
    assert_false(json_get_count(json, "n", &count));
    assert_false(json_get_count(json, "r", &count));
    assert_false(json_get_count(json, "absent", &count));
    assert_true(json_get_bool(json, "b", &flag) && flag);
    assert_false(json_get_bool(json, "c", &flag));
    assert_int_equal(json_count(json_get(json, "a")), 2);
    assert_int_equal(json_count(json_get(json, "t")), 0);
    assert_string_equal(json_text_of(json_at(json_get(json, "a"), 1)), "y");
    assert_null(json_at(json_get(json, "a"), 2));
    assert_true(json_is_an_object(json) && !json_is_an_array(json));
    assert_true(json_is_an_array(json_get(json, "a")) && !json_is_an_object(NULL));
    assert_true(json_member_at(json, 2, &key, &value));
    assert_string_equal(key, "c");
    assert_true(json_count_of(value, &count) && count == 7);
    assert_false(json_member_at(json, 6, &key, &value));
    assert_false(json_member_at(json_get(json, "a"), 0, &key, &value));
    json_destroy(json);
    json_destroy(NULL);
}

static void refuse(const char *text, size_t count, enum rc expected)
{
    struct json *json = NULL;
    struct fault why = {""};

    if (json_parse(text, count, &json, &why) != expected) fail_msg("%s is judged wrongly", text);
    assert_null(json);
    assert_true(strlen(why.text) > 0);
    for (const char *c = why.text; *c != '\0'; c++) {
        assert_true((unsigned char)*c >= 0x20); /* one line */
    }
}

/* Text that is not JSON is refused in one line that says where. */
static void malformed_text_is_refused(void **state)
{
    static const char *const texts[] = {"",         "{",       "[1,]",       "{\"a\":1,\"a\":2}",
                                        "nul",      "[1] x",   "{a:1}",      "\"\\u0000\"",
                                        "[\"\n\"]", "[1e999]", "[\"\xff\"]", "[1}",
                                        "]"};

    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        refuse(texts[i], strlen(texts[i]), RC_PARSE);
    }
}

/* Nesting above 32 and above a million values are refused before a tree is built. */
static void large_claims_are_refused(void **state)
{
    enum { MANY = 3 << 20 };
    char *text = malloc(MANY);
    struct json *json;

    (void)state;
    memset(text, '[', 33);
    memset(text + 33, ']', 33);
    refuse(text, 66, RC_LIMIT);
    assert_int_equal(json_parse(text + 1, 64, &json, NULL), RC_OK);
    json_destroy(json);
    for (int i = 0; i + 1 < MANY; i += 2) {
        text[i] = i == 0 ? '[' : ',';
        text[i + 1] = '1';
    }
    text[MANY - 1] = ']';
    refuse(text, MANY, RC_LIMIT);
    for (int i = 0; i + 2 < MANY; i += 3) {
        memcpy(text + i, i == 0 ? "[[]" : ",[]", 3);
    }
    text[MANY - 1] = ']';
    refuse(text, MANY, RC_LIMIT);
    text[0] = '"'; /* brackets in a string count for nothing */
    memset(text + 1, '[', 100);
    memcpy(text + 101, "\\\"[\"", 4);
    assert_int_equal(json_parse(text, 105, &json, NULL), RC_OK);
    json_destroy(json);
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(trees_are_written_in_order),
        cmocka_unit_test(the_pretty_form_is_indented),
        cmocka_unit_test(numbers_that_are_not_finite_become_null),
        cmocka_unit_test(reals_read_back_to_the_bit),
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(broken_text_is_mended),
        cmocka_unit_test(members_are_found_by_key_and_kind),
        cmocka_unit_test(malformed_text_is_refused),
        cmocka_unit_test(large_claims_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
