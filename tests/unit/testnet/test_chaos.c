/* Tests of testnet/chaos: specs, and times that come from the seed alone. */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/chaos.h"

#include <math.h>

static void a_spec_of_two_rules_is_read(void **state)
{
    /* Proves: kinds, units and the keys of each kind are understood; nothing means no faults. */
    (void)state;
    struct chaos chaos;

    assert_int_equal(chaos_parse("kill:mtbf=15s,restart=5s;freeze:for=250ms,mtbf=2m", &chaos, NULL),
                     RC_OK);
    assert_int_equal(chaos.rules_count, 2);
    assert_int_equal(chaos.rules[0].kind, CHAOS_KILL);
    assert_int_equal(chaos.rules[0].mtbf_ns, 15 * NS_PER_S);
    assert_int_equal(chaos.rules[0].after_ns, 5 * NS_PER_S);
    assert_int_equal(chaos.rules[1].kind, CHAOS_FREEZE);
    assert_int_equal(chaos.rules[1].mtbf_ns, 120 * NS_PER_S);
    assert_int_equal(chaos.rules[1].after_ns, 250 * NS_PER_MS);
    assert_int_equal(chaos_parse(NULL, &chaos, NULL), RC_OK);
    assert_int_equal(chaos.rules_count, 0);
    assert_int_equal(chaos_parse("", &chaos, NULL), RC_OK);
    assert_string_equal(chaos_name(CHAOS_FREEZE), "freeze");
}

static void mistakes_are_pointed_at(void **state)
{
    /* Proves: each malformed spec is refused with the column of the word at fault. */
    (void)state;
    static const struct {
        const char *spec, *column;
    } wrong[] = {
        {"explode:mtbf=1s,restart=1s", "column 1:"},
        {"kill:mtbf=1s,restart=fast", "column 22:"},
        {"kill:mtbf=0s,restart=1s", "column 11:"},
        {"kill:mtbf=1s,for=1s", "column 14:"},
        {"kill:mtbf=1s", "column 1:"},
        {"kill:restart=1s", "column 1:"},
        {"kill", "column 1:"},
        {"kill:mtbf", "column 6:"},
        {"kill:mtbf=1s,restart=1s;", "column 25:"},
        {"kill:mtbf=1s,,restart=1s", "column 14:"},
        {"kill:mtbf=1s,restart=1s;;", "column 25:"},
        {"kill:mtbf=123456789012345678901234567890123456s,restart=1s", "column 11:"},
    };

    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct chaos chaos;
        struct fault why = {""};
        const enum rc rc = chaos_parse(wrong[i].spec, &chaos, &why);
        if (rc != RC_PARSE || strstr(why.text, wrong[i].column) == NULL) {
            print_message("%s: %s\n", wrong[i].spec, why.text);
        }
        assert_int_equal(rc, RC_PARSE);
        assert_non_null(strstr(why.text, wrong[i].column));
        assert_non_null(strstr(why.text, "freeze, slow or partition:"));
    }
}

static void too_many_rules_are_refused(void **state)
{
    /* Proves: the limit on rules is an error, not an overflow. */
    (void)state;
    char spec[512] = "";
    struct chaos chaos;

    for (int i = 0; i < CHAOS_RULES_MAX + 1; i++) {
        strcat(spec, i > 0 ? ";kill:mtbf=1s,restart=1s" : "kill:mtbf=1s,restart=1s");
    }
    assert_int_equal(chaos_parse(spec, &chaos, NULL), RC_LIMIT);
}

static void faults_come_as_often_as_asked_and_the_same_for_a_seed(void **state)
{
    /* Proves: over a long time the mean interval is mtbf, and asking at other moments changes
     * neither times nor victims. */
    (void)state;
    enum { SECONDS = 20000 };

    FOR_EACH_SEED (seed, 5) {
        struct chaos often, seldom;
        uint32_t strikes = 0, same = 0;
        uint64_t victims = 0, others = 0;
        size_t rule;

        assert_int_equal(chaos_parse("kill:mtbf=10s,restart=1s", &often, NULL), RC_OK);
        seldom = often;
        chaos_begin(&often, seed, 0);
        chaos_begin(&seldom, seed, 0);
        for (uint64_t s = 0; s < SECONDS; s++) {
            while (chaos_due(&often, s * NS_PER_S, &rule)) {
                victims = victims * 31 + chaos_pick(&often, rule, 5);
                strikes++;
            }
        }
        while (chaos_due(&seldom, (SECONDS - 1) * NS_PER_S, &rule)) {
            others = others * 31 + chaos_pick(&seldom, rule, 5);
            same++;
        }
        check_seed(seed, strikes == same && victims == others);
        check_seed(seed, fabs((double)SECONDS / strikes - 10) < 1);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_spec_of_two_rules_is_read),
        cmocka_unit_test(mistakes_are_pointed_at),
        cmocka_unit_test(too_many_rules_are_refused),
        cmocka_unit_test(faults_come_as_often_as_asked_and_the_same_for_a_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
