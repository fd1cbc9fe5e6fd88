/* schedule: specs and rates over time. */
#include "tests/check.h"

#include "base/check.h"
#include "replica/optimizer/schedule.h"

static void cosine_climbs_falls_and_stays_at_its_minimum(void **state)
{
    struct schedule s;
    struct fault why = {""};

    (void)state;
    assert_int_equal(schedule_parse("cosine:warmup=10%,min=0.1", 100, &s, &why), RC_OK);
    assert_int_equal(s.warmup_steps, 10);
    assert_float_equal(schedule_factor(&s, 0), 0.1, 1e-12);
    assert_float_equal(schedule_factor(&s, 9), 1.0, 1e-12);
    assert_float_equal(schedule_factor(&s, 10), 1.0, 1e-12);
    assert_float_equal(schedule_factor(&s, 55), 0.55, 1e-12); /* half way: the middle */
    assert_float_equal(schedule_factor(&s, 100), 0.1, 1e-12);
    assert_float_equal(schedule_factor(&s, 1000), 0.1, 1e-12);
    assert_int_equal(schedule_parse("cosine:warmup=7", 100, &s, &why), RC_OK);
    assert_int_equal(s.warmup_steps, 7);
    assert_int_equal(schedule_parse("cosine:warmup=500", 100, &s, &why), RC_OK);
    assert_true(schedule_factor(&s, 100) <= 1.0 && schedule_factor(&s, 499) == 1.0);
    assert_int_equal(schedule_parse(NULL, 0, &s, &why), RC_OK);
    assert_true(schedule_factor(&s, 12345) == 1.0);
}

static struct schedule schedule_of(const char *text, uint64_t steps)
{
    struct schedule s;
    struct fault why = {""};

    if (schedule_parse(text, steps, &s, &why) != RC_OK) fail_msg("%s", why.text);
    return s;
}

static void linear_falls_in_a_straight_line_after_the_warm_up(void **state)
{
    struct schedule s = schedule_of("linear:warmup=20,min=0.2", 100);

    (void)state;
    assert_float_equal(schedule_factor(&s, 0), 0.05, 1e-12);
    assert_float_equal(schedule_factor(&s, 19), 1.0, 1e-12);
    assert_float_equal(schedule_factor(&s, 20), 1.0, 1e-12);
    assert_float_equal(schedule_factor(&s, 40), 0.8, 1e-12); /* a quarter of the way */
    assert_float_equal(schedule_factor(&s, 60), 0.6, 1e-12);
    assert_float_equal(schedule_factor(&s, 100), 0.2, 1e-12);
    assert_float_equal(schedule_factor(&s, 101), 0.2, 1e-12);
    s = schedule_of("linear", 10);
    assert_float_equal(schedule_factor(&s, 0), 1.0, 1e-12);
    assert_float_equal(schedule_factor(&s, 9), 0.1, 1e-12);
    assert_true(schedule_factor(&s, 10) == 0.0);
}

static void step_drops_at_its_multiples_whatever_the_warm_up(void **state)
{
    struct schedule s = schedule_of("step:every=30%,gamma=0.5", 100);

    (void)state;
    assert_int_equal(s.every_steps, 30);
    assert_true(schedule_factor(&s, 0) == 1.0 && schedule_factor(&s, 29) == 1.0);
    assert_true(schedule_factor(&s, 30) == 0.5 && schedule_factor(&s, 59) == 0.5);
    assert_true(schedule_factor(&s, 60) == 0.25 && schedule_factor(&s, 90) == 0.125);
    s = schedule_of("step:every=10,warmup=20", 0); /* needs no end; gamma is 0.1 */
    assert_float_equal(schedule_factor(&s, 0), 0.05, 1e-12);
    assert_float_equal(schedule_factor(&s, 9), 0.5, 1e-12);
    assert_float_equal(schedule_factor(&s, 10), 0.055, 1e-12);
    assert_float_equal(schedule_factor(&s, 20), 0.01, 1e-12);
    s = schedule_of("step:every=0.1%", 10); /* less than one step is one */
    assert_int_equal(s.every_steps, 1);
}

static void grow_multiplies_the_batch_where_step_would_lower_the_rate(void **state)
{
    struct schedule s = schedule_of("grow:every=30%,factor=2,max=5,warmup=10", 100);

    (void)state;
    assert_true(schedule_batches(&s, 0) == 1 && schedule_batches(&s, 29) == 1);
    assert_true(schedule_batches(&s, 30) == 2 && schedule_batches(&s, 60) == 4);
    assert_true(schedule_batches(&s, 90) == 5 && schedule_batches(&s, UINT64_MAX / 2) == 5);
    assert_float_equal(schedule_factor(&s, 0), 0.1, 1e-12);
    assert_true(schedule_factor(&s, 9) == 1.0 && schedule_factor(&s, 95) == 1.0);
    s = schedule_of("grow:every=10,factor=1.5", 0);
    assert_true(schedule_batches(&s, 10) == 2 && schedule_batches(&s, 20) == 2);
    assert_true(schedule_batches(&s, 30) == 3 && schedule_batches(&s, 1000) == 16);
    s = schedule_of("step:every=10", 0);
    assert_int_equal(schedule_batches(&s, 1000), 1);
}

/* Of a run whose end is known in batches, shares of the steps are found, and the steps read just
 * those batches. */
static void an_end_in_batches_is_an_end_in_steps(void **state)
{
    static const uint64_t counts[] = {1, 2, 3, 10, 99, 1000, 123456789};
    struct schedule s;

    (void)state;
    for (size_t c = 0; c < ARRAY_COUNT(counts); c++) {
        assert_int_equal(schedule_parse_batches("cosine", counts[c], &s, NULL), RC_OK);
        assert_true(s.steps_total == counts[c] && schedule_steps(&s, counts[c]) == counts[c]);
        assert_int_equal(schedule_parse_batches("grow:every=25%,max=8", counts[c], &s, NULL),
                         RC_OK);
        assert_true(s.steps_total >= 1 && s.steps_total <= counts[c]);
        assert_int_equal(schedule_steps(&s, counts[c]), s.steps_total);
        if (counts[c] > 1000000) continue;
        for (uint64_t step = 0, read = 0; step < s.steps_total; step++) {
            assert_true(read < counts[c]);
            read += schedule_batches(&s, step);
            if (step + 1 == s.steps_total) assert_true(read >= counts[c]);
        }
    }
    assert_in_range(s.steps_total, 32921810, 32921813); /* 1/4 each of 1, 2, 4, 8: 3.75 a step */
}

static void constant_may_warm_up_too(void **state)
{
    struct schedule s = schedule_of("constant:warmup=4", 0);

    (void)state;
    assert_float_equal(schedule_factor(&s, 0), 0.25, 1e-12);
    assert_float_equal(schedule_factor(&s, 3), 1.0, 1e-12);
    assert_true(schedule_factor(&s, 4) == 1.0 && schedule_factor(&s, 1000000) == 1.0);
}

static void check_no_schedule(const char *text, uint64_t steps, enum rc rc, const char *expected)
{
    struct schedule s;
    struct fault why = {""};

    assert_int_equal(schedule_parse(text, steps, &s, &why), rc);
    assert_string_equal(why.text, expected);
}

static void a_wrong_schedule_is_told_with_its_column(void **state)
{
    (void)state;
    check_no_schedule("cosin", 9, RC_PARSE,
                      "--schedule, column 1: unknown schedule 'cosin'; did you mean 'cosine'?");
    check_no_schedule("cosine", 0, RC_USAGE,
                      "--schedule cosine needs an end: add --steps or --epochs");
    check_no_schedule("cosine:min=2", 9, RC_PARSE,
                      "--schedule, column 12: min must be a share of the rate, 0 to 1");
    check_no_schedule("cosine:warmup=-1", 9, RC_PARSE,
                      "--schedule, column 15: warmup must be a share below 1 or a number of steps");
    check_no_schedule("cosine:warmup=200%", 9, RC_PARSE,
                      "--schedule, column 15: warmup must be a share below 1 or a number of steps");
    check_no_schedule("cosine:warmp=1", 9, RC_PARSE,
                      "--schedule, column 8: unknown key 'warmp'; did you mean 'warmup'?");
    check_no_schedule("constant:min=0", 9, RC_PARSE,
                      "--schedule, column 10: unknown key 'min'; known: warmup");
    check_no_schedule("linear", 0, RC_USAGE,
                      "--schedule linear needs an end: add --steps or --epochs");
    check_no_schedule("constant:warmup=5%", 0, RC_USAGE,
                      "--schedule, column 17: a share needs an end: add --steps or --epochs");
    check_no_schedule("step", 9, RC_PARSE,
                      "--schedule, column 5: step needs every=STEPS, as in "
                      "step:every=30%,gamma=0.1");
    check_no_schedule("step:evry=3", 9, RC_PARSE,
                      "--schedule, column 6: unknown key 'evry'; did you mean 'every'?");
    check_no_schedule("step:every=0", 9, RC_PARSE,
                      "--schedule, column 12: every must be a share below 1 or a number of steps");
    check_no_schedule("grow", 9, RC_PARSE,
                      "--schedule, column 5: grow needs every=STEPS, as in "
                      "grow:every=30%,factor=2");
    check_no_schedule("grow:every=3,factor=1", 9, RC_PARSE,
                      "--schedule, column 21: factor must be above 1 and at most 4096");
    check_no_schedule("grow:every=3,max=5000", 9, RC_PARSE,
                      "--schedule, column 18: max must be at least 1 and at most 4096");
    check_no_schedule("step:every=3,gamma=1.5", 9, RC_PARSE,
                      "--schedule, column 20: gamma must be a share of the rate, 0 to 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cosine_climbs_falls_and_stays_at_its_minimum),
        cmocka_unit_test(linear_falls_in_a_straight_line_after_the_warm_up),
        cmocka_unit_test(step_drops_at_its_multiples_whatever_the_warm_up),
        cmocka_unit_test(grow_multiplies_the_batch_where_step_would_lower_the_rate),
        cmocka_unit_test(an_end_in_batches_is_an_end_in_steps),
        cmocka_unit_test(constant_may_warm_up_too),
        cmocka_unit_test(a_wrong_schedule_is_told_with_its_column),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
