/* --hetero: what it means, and what is said of wrong ones. */
#include "tests/check.h"

#include "testnet/hetero_spec.h"

#include <math.h>

enum { PEERS = 4 };

static void speeds_are_read_in_order(void **state)
{
    (void)state;
    double speeds[PEERS] = {0};

    assert_int_equal(hetero_spec_parse("list:1,0.5,0.1", 1, speeds, PEERS, NULL), RC_OK);
    assert_true(speeds[0] == 1 && speeds[1] == 0.5 && speeds[2] == 0.1 && speeds[3] == 1);
    assert_int_equal(hetero_spec_parse("uniform", 1, speeds, PEERS, NULL), RC_OK);
    assert_true(speeds[1] == 1 && speeds[2] == 1);
    assert_int_equal(hetero_spec_parse(NULL, 1, speeds, PEERS, NULL), RC_OK);
    assert_true(hetero_step_ns(1000, 0.1) == 10000);
    assert_true(hetero_step_ns(1000, 2) == 500);
    assert_true(hetero_step_ns(1, 1e4) == 1);
}

static void drawn_speeds_follow_the_seed(void **state)
{
    (void)state;
    enum { MANY = 2000 };
    double a[MANY], b[MANY], mean = 0, square = 0;

    assert_int_equal(hetero_spec_parse("lognormal:0.5", 7, a, MANY, NULL), RC_OK);
    assert_int_equal(hetero_spec_parse("lognormal:0.5", 7, b, MANY, NULL), RC_OK);
    assert_memory_equal(a, b, sizeof a);
    for (int i = 0; i < MANY; i++) {
        mean += log(a[i]) / MANY;
        square += log(a[i]) * log(a[i]) / MANY;
    }
    assert_true(fabs(mean) < 0.05 && fabs(sqrt(square) - 0.5) < 0.05);
    assert_int_equal(hetero_spec_parse("lognormal:0.5", 8, b, MANY, NULL), RC_OK);
    assert_memory_not_equal(a, b, sizeof a);
}

static void wrong_specs_say_where(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *text;
    } cases[] = {
        {"fast", "column 1: unknown"},
        {"list:", "column 6: not a speed"},
        {"list:1,x", "column 8: not a speed"},
        {"list:1,0", "column 8: not a speed"},
        {"list:1,", "column 8: not a speed"},
        {"list:1,,1", "column 8: not a speed"},
        {"list:nan", "column 6: not a speed"},
        {"lognormal:", "column 11: not a spread"},
        {"lognormal:-1", "column 11"},
        {"list:1,1,1,1,1", "5 speeds, and there are 4 peers"},
        {"uniform:1", "column 1: unknown"},
    };

    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double speeds[PEERS] = {7, 7, 7, 7};
        struct fault why = {""};

        if (hetero_spec_parse(cases[i].spec, 1, speeds, PEERS, &why) == RC_OK) {
            fail_msg("%s is taken", cases[i].spec);
        }
        if (strstr(why.text, cases[i].text) == NULL) fail_msg("%s: %s", cases[i].spec, why.text);
        assert_true(speeds[0] == 7 && speeds[1] == 7);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speeds_are_read_in_order),
        cmocka_unit_test(drawn_speeds_follow_the_seed),
        cmocka_unit_test(wrong_specs_say_where),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
