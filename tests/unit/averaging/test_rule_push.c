/* rule push-sum: the numbers of the papers' updates, worked out by hand. */
#include "tests/check.h"

#include "averaging/rule/rule.h"

#include <math.h>

/* What one share in and one share out make of a model of one value. */
static float settled(float z, float told, float in, double weight, double out, double came)
{
    double after = weight - out + came;
    struct rule *rule = rule_push.create(1, NULL);
    struct rule_view view = {&told, 1};
    const uint8_t bitmap[] = {came > 0};
    float difference = NAN;

    assert_non_null(rule);
    rule_push.begin(rule, &view);
    if (came > 0) assert_int_equal(rule_push.absorb(rule, (struct range){0, 1}, 1, &in), RC_OK);
    rule_push.set_sent(rule, (float)(out / after), &z);
    rule_push.settle(rule, bitmap, 64, (float)(came / after), &difference);
    rule_push.destroy(rule);
    return z + difference;
}

static void a_ring_of_push_sum(void **state)
{
    (void)state;
    /* x = (1, 2, 3, 6), weights (1, .5, 1.5, 1), gradients (.5, -1, 0, 2), rate .1, shares of one
     * half to the next: x = (3.375, 1.525, 2.55, 4.4), weights (1, .75, 1, 1.25). */
    const double weights[] = {1, 0.5, 1.5, 1}, after[] = {1, 0.75, 1, 1.25};
    const double x[] = {1, 2, 3, 6}, gradients[] = {0.5, -1, 0, 2};
    const double wanted[] = {3.375, 1.525, 2.55, 4.4};
    float z[4];

    for (int i = 0; i < 4; i++) { /* the step is one of x: z moves by rate / weight */
        z[i] = (float)(x[i] / weights[i] - 0.1 / weights[i] * gradients[i]);
    }
    for (int i = 0; i < 4; i++) {
        int before = (i + 3) % 4;
        double came = weights[before] / 2;
        float is = settled(z[i], z[i], z[before], weights[i], weights[i] / 2, came);

        assert_true(weights[i] / 2 + came == after[i]);
        assert_true(fabs((double)is - wanted[i] / after[i]) < 1e-5);
    }
}

static void one_message_of_gosgd(void **state)
{
    (void)state;
    /* x = 1, a = .25 receives 3 with a = .125: x = 1.666667, a = .375. */
    assert_true(fabs((double)settled(1, 1, 3, 0.25, 0, 0.125) - 5.0 / 3) < 1e-6);
}

static void giving_moves_nobody_but_for_what_the_codec_lost(void **state)
{
    (void)state;
    /* A half leaves as 0.9 although the model is 1: what stays is 1.1, and the sum as it was. */
    assert_true(settled(1, 1, NAN, 1, 0.5, 0) == 1);
    assert_true(fabs((double)settled(1, 0.9f, NAN, 1, 0.5, 0) - 1.1) < 1e-6);
    /* And with one that comes in: (1 * 1 - .5 * .9 + .25 * 3) / .75. */
    assert_true(fabs((double)settled(1, 0.9f, 3, 1, 0.5, 0.25) - 1.3 / 0.75) < 1e-6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_of_push_sum),
        cmocka_unit_test(one_message_of_gosgd),
        cmocka_unit_test(giving_moves_nobody_but_for_what_the_codec_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
