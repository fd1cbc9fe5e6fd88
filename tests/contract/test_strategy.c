/* Method specs: what they mean, and what is said of wrong ones. */
#include "tests/check.h"

#include "averaging/strategy.h"

static void the_default_is_local_sgd_over_a_group(void **state)
{
    (void)state;
    /* Nothing given: local-sgd, H = 16, group over complete, f32, mean. */
    struct strategy_specs specs = {.averaging = NULL};
    struct strategy s;
    struct fault why = {""};

    assert_int_equal(strategy_parse(&specs, &s, &why), RC_OK);
    assert_string_equal(s.name, "local-sgd");
    assert_true(s.is_averaging);
    assert_int_equal(s.every_steps, 16);
    assert_int_equal(s.every_ns, 0);
    assert_ptr_equal(s.exchange, &exchange_group);
    assert_ptr_equal(s.codec, &codec_f32);
    assert_ptr_equal(s.rule, &rule_mean);
    assert_int_equal(strategy_topology(&s, 16).kind, TOPOLOGY_COMPLETE);
    assert_int_equal(strategy_topology(&s, 17).kind, TOPOLOGY_GROUPS);
    assert_int_equal(strategy_topology(&s, 17).group_size, 8);
    assert_string_equal(s.text, "local-sgd: every 16 steps, exchange group over complete up to 16 "
                                "peers, groups:8 beyond, codec f32, rule mean");
}

static void each_coordinate_can_be_replaced(void **state)
{
    (void)state;
    /* --averaging H, --pace, --exchange, --topology, --codec, --rule. */
    struct strategy_specs specs = {
        .averaging = "local-sgd:H=4", .codec = "f16", .rule = "mean", .exchange = "pair"};
    struct strategy s;

    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(s.every_steps, 4);
    assert_ptr_equal(s.exchange, &exchange_pair);
    assert_ptr_equal(s.codec, &codec_f16);
    assert_int_equal(strategy_topology(&s, 99).kind, TOPOLOGY_PAIRS);
    specs = (struct strategy_specs){.topology = "pairs"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_ptr_equal(s.exchange, &exchange_pair);
    specs = (struct strategy_specs){.topology = "complete", .pace = "time=5s"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(strategy_topology(&s, 99).kind, TOPOLOGY_COMPLETE); /* as asked for */
    assert_int_equal(s.every_steps, 0);
    assert_true(s.every_ns == UINT64_C(5000000000));
    specs = (struct strategy_specs){.pace = "every=32", .topology = "groups:4"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_int_equal(s.every_steps, 32);
    assert_int_equal(s.topology.group_size, 4);
    specs = (struct strategy_specs){.averaging = "none"};
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_OK);
    assert_false(s.is_averaging);
}

static void wrong_specs_say_what_and_where(void **state)
{
    (void)state;
    /* Each names the flag, and the column or the nearest word; the output is untouched. */
    static const struct {
        struct strategy_specs specs;
        enum rc rc;
        const char *text;
    } cases[] = {
        {{.averaging = "local-sdg"}, RC_PARSE, "did you mean local-sgd"},
        {{.averaging = "lokal"}, RC_PARSE, "--averaging lokal: column 1"},
        {{.averaging = "local-sgd:h=4"},
         RC_PARSE,
         "column 11: unknown setting \"h\"; did you mean H"},
        {{.averaging = "local-sgd:"}, RC_PARSE, "column 11: expected key=value"},
        {{.averaging = "local-sgd:H"}, RC_PARSE, "column 11: expected key=value"},
        {{.averaging = "local-sgd:H=0"}, RC_PARSE, "column 13"},
        {{.averaging = "local-sgd:H=4,"}, RC_PARSE, "column 13"},
        {{.averaging = "local-sgd:H=99999999999999999999"}, RC_PARSE, "column 13"},
        {{.averaging = "none:H=3"}, RC_PARSE, "takes no settings"},
        {{.exchange = "grupp"}, RC_PARSE, "did you mean group"},
        {{.codec = "f17"}, RC_PARSE, "did you mean f16"},
        {{.rule = "median"}, RC_PARSE, "known: mean"},
        {{.pace = "every"}, RC_PARSE, "column 1: expected key=value"},
        {{.pace = "evry=3"}, RC_PARSE, "did you mean every"},
        {{.pace = "time=soon"}, RC_PARSE, "column 6"},
        {{.pace = "time=0s"}, RC_PARSE, "column 6"},
        {{.topology = "rings"}, RC_PARSE, ""},
        {{.topology = "pairs", .exchange = "group"}, RC_USAGE, "--exchange pair"},
        {{.topology = "complete", .exchange = "pair"}, RC_USAGE, "--topology pairs"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct strategy s = {.name = "untouched"};
        struct fault why = {""};

        assert_int_equal(strategy_parse(&cases[i].specs, &s, &why), cases[i].rc);
        if (strstr(why.text, cases[i].text) == NULL) fail_msg("case %zu: %s", i, why.text);
        assert_true(why.text[0] != '\0');
        assert_null(strchr(why.text, '\n'));
        assert_string_equal(s.name, "untouched");
    }
}

static void a_name_without_end_is_refused(void **state)
{
    (void)state;
    /* Longer than any buffer here. */
    char name[400];
    struct strategy_specs specs = {.averaging = name};
    struct strategy s;

    memset(name, 'x', sizeof name);
    name[sizeof name - 1] = '\0';
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_PARSE);
    memcpy(name, "local-sgd:", 10);
    assert_int_equal(strategy_parse(&specs, &s, NULL), RC_PARSE);
}

static void help_lists_every_method(void **state)
{
    (void)state;
    /* One line each, NULL past the end. */
    size_t count = 0;

    while (strategy_help(count) != NULL) {
        assert_true(strlen(strategy_help(count)) > 10);
        count++;
    }
    assert_int_equal(count, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_default_is_local_sgd_over_a_group),
        cmocka_unit_test(each_coordinate_can_be_replaced),
        cmocka_unit_test(wrong_specs_say_what_and_where),
        cmocka_unit_test(a_name_without_end_is_refused),
        cmocka_unit_test(help_lists_every_method),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
