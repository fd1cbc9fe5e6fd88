/* optimizer, schedule: specs, hand-calculated steps, rates over time. */
#include "tests/check.h"

#include "base/check.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/optimizer.h"
#include "replica/schedule.h"

#include <math.h>

static struct optimizer parsed(const char *text)
{
    struct optimizer optimizer;
    struct fault why = {""};

    assert_int_equal(optimizer_parse(text, &optimizer, &why), RC_OK);
    return optimizer;
}

static void check_refused(const char *text, const char *expected)
{
    struct optimizer optimizer = {.lr = 77.0};
    struct fault why = {""};

    assert_int_equal(optimizer_parse(text, &optimizer, &why), RC_PARSE);
    assert_string_equal(why.text, expected);
    assert_true(optimizer.lr == 77.0);
}

/* x = 1, gradients 0.5 then 0.25, rate 0.1. */
static void check_steps(const char *text, double first, double second)
{
    struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);
    struct optimizer optimizer = parsed(text);
    float x = 1.0F, moments[2] = {0.0F, 0.0F};
    const float gradients[2] = {0.5F, 0.25F};
    const double expected[2] = {first, second};

    for (uint64_t k = 1; k <= 2; k++) {
        struct update update = optimizer_update(&optimizer, optimizer.lr, k);
        assert_int_equal(cpu->ops->update(cpu, &update, &gradients[k - 1], moments, &x, 1), RC_OK);
        assert_float_equal(x, expected[k - 1], 2e-6); /* the values have six digits */
    }
    backend_destroy(cpu);
}

static void two_steps_are_as_calculated_by_hand(void **state)
{
    (void)state;
    check_steps("sgd:lr=0.1", 0.95, 0.925);
    check_steps("momentum:lr=0.1,beta=0.9", 0.95, 0.88);
    check_steps("nesterov:lr=0.1,beta=0.9", 0.905, 0.817);
    check_steps("adam:lr=0.1", 0.9, 0.806782);
    check_steps("sgd:lr=0.1,decay=0.5", 0.9, 0.83); /* g = 0.5 + 0.5, then 0.25 + 0.45 */
}

static void adams_first_step_has_the_size_of_the_rate_whatever_the_gradients(void **state)
{
    struct cpu_backend_options options = {.threads = 1};
    struct backend *cpu = cpu_backend_create(&options);
    struct optimizer adam = parsed("adam:lr=0.01");
    struct update update = optimizer_update(&adam, adam.lr, 1);

    (void)state;
    for (float g = 1e-3F; g < 1e4F; g *= 10.0F) {
        float x = 1.0F, moments[2] = {0.0F, 0.0F};
        assert_int_equal(cpu->ops->update(cpu, &update, &g, moments, &x, 1), RC_OK);
        assert_float_equal(1.0F - x, 0.01F, 1e-5F);
    }
    backend_destroy(cpu);
}

static void defaults_and_settings_are_read(void **state)
{
    struct optimizer adam = parsed("adam:beta1=0.8,beta2=0.95,eps=1e-6,lr=5%");

    (void)state;
    assert_true(parsed("momentum").beta == 0.9);
    assert_true(parsed("adam").lr == 1e-3 && parsed("adam").beta2 == 0.999);
    assert_true(adam.beta == 0.8 && adam.beta2 == 0.95 && adam.epsilon == 1e-6 && adam.lr == 0.05);
    assert_int_equal(optimizer_planes(UPDATE_SGD), 0);
    assert_int_equal(optimizer_planes(UPDATE_MOMENTUM), 1);
    assert_int_equal(optimizer_planes(UPDATE_NESTEROV), 1);
    assert_int_equal(optimizer_planes(UPDATE_ADAM), 2);
    assert_string_equal(optimizer_name(UPDATE_NESTEROV), "nesterov");
}

static void a_wrong_optimizer_is_told_with_its_column(void **state)
{
    (void)state;
    check_refused("adm", "--optimizer, column 1: unknown optimizer 'adm'; did you mean 'adam'?");
    check_refused("quickprop", "--optimizer, column 1: unknown optimizer 'quickprop'; known: sgd, "
                               "momentum, nesterov, adam");
    check_refused("sgd:lrr=1", "--optimizer, column 5: unknown key 'lrr'; did you mean 'lr'?");
    check_refused("sgd:beta=0.9", "--optimizer, column 5: unknown key 'beta'; known: lr, decay");
    check_refused("sgd:lr=0", "--optimizer, column 8: lr must be above 0 and below 1e+06");
    check_refused("momentum:lr=1,beta=1",
                  "--optimizer, column 20: beta must be at least 0 and below 1");
    check_refused("sgd:lr=nan", "--optimizer, column 8: expected a number after 'lr='");
    check_refused("sgd:lr=1x", "--optimizer, column 8: expected a number after 'lr='");
    check_refused("sgd:lr=", "--optimizer, column 8: expected a number after 'lr='");
    check_refused("sgd:lr", "--optimizer, column 5: expected key=value");
    check_refused("sgd:", "--optimizer, column 5: expected key=value");
    check_refused("sgd:lr=1,lr=2", "--optimizer, column 10: 'lr' is given twice");
    check_refused("", "--optimizer, column 1: expected name or name:key=value,...");
    check_refused("a:b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1,j=1,k=1,l=1,m=1,n=1,o=1,p=1,q=1,r=1",
                  "--optimizer, column 67: too many settings");
}

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
    check_no_schedule("cosine:warmp=1", 9, RC_PARSE,
                      "--schedule, column 8: unknown key 'warmp'; did you mean 'warmup'?");
    check_no_schedule("constant:min=0", 9, RC_PARSE,
                      "--schedule, column 10: constant takes no settings");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_steps_are_as_calculated_by_hand),
        cmocka_unit_test(adams_first_step_has_the_size_of_the_rate_whatever_the_gradients),
        cmocka_unit_test(defaults_and_settings_are_read),
        cmocka_unit_test(a_wrong_optimizer_is_told_with_its_column),
        cmocka_unit_test(cosine_climbs_falls_and_stays_at_its_minimum),
        cmocka_unit_test(a_wrong_schedule_is_told_with_its_column),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
