/* The outer rules: golden values worked out by hand, what they keep, what leaves them alone. */
#include "tests/check.h"

#include "averaging/rule/rule.h"
#include "base/mem.h"

#include <math.h>

enum { CHUNK = 64, VALUES = 2 * CHUNK };

static const struct range everything = {0, VALUES};

static void fill(float *plane, float value)
{
    for (size_t i = 0; i < VALUES; i++) {
        plane[i] = value;
    }
}

/* A round in which `mean` was agreed, for a peer at `own`; the first value of what to add. */
static float one_round(const struct rule_ops *ops, struct rule *rule, float own, float mean,
                       uint32_t members, uint8_t bitmap)
{
    static float owns[VALUES], means[VALUES], difference[VALUES];
    struct rule_view view = {owns, VALUES};

    fill(owns, own);
    fill(means, mean);
    ops->begin(rule, &view);
    assert_int_equal(ops->agree(rule, everything, means), RC_OK);
    ops->set_members(rule, members);
    ops->settle(rule, &bitmap, CHUNK, 1, difference);
    if ((bitmap & 2) == 0) assert_true(difference[CHUNK] == 0);
    return difference[0];
}

static float state_at(const struct rule_ops *ops, const struct rule *rule, size_t plane, size_t at)
{
    const float *planes[RULE_STATE_MAX];

    assert_true(ops->state(rule, planes) > plane);
    return planes[plane][at];
}

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-6) fail_msg("%.8f, not %.8f", (double)value, wanted);
}

static void the_first_round_is_a_mean_and_lays_the_anchor(void **state)
{
    (void)state;
    /* For every outer rule; where nothing was agreed the anchor is the own model. */
    static const struct rule_ops *const all[] = {&rule_nesterov, &rule_block, &rule_slow_momentum,
                                                 &rule_elastic};
    struct rule_settings settings = {.rate = 0.5f, .momentum = 0.5f, .has_momentum = true};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const float *planes[RULE_STATE_MAX];
        struct rule *rule = all[i]->create(VALUES, &settings);

        assert_int_equal(all[i]->state(rule, planes), 0);
        assert_true(one_round(all[i], rule, 3, 1, 2, 1) == -2);
        close_to(state_at(all[i], rule, 0, 0), 1);
        close_to(state_at(all[i], rule, 0, CHUNK), 3);
        if (all[i] != &rule_elastic) close_to(state_at(all[i], rule, 1, 0), 0);
        all[i]->destroy(rule);
    }
}

static void nesterov_takes_dilocos_steps(void **state)
{
    (void)state;
    /* Anchor 1, lr 0.7, momentum 0.9, twice a mean change of 0.2: 0.734, then 0.3546. */
    struct rule_settings settings = {.rate = 0.7f, .momentum = 0.9f, .has_momentum = true};
    struct rule *rule = rule_nesterov.create(VALUES, &settings);

    (void)one_round(&rule_nesterov, rule, 1, 1, 2, 3);
    close_to(one_round(&rule_nesterov, rule, 0.7f, 0.8f, 2, 3), 0.734 - 0.7);
    close_to(state_at(&rule_nesterov, rule, 1, 0), 0.2);
    (void)one_round(&rule_nesterov, rule, 0.5f, 0.534f, 2, 3);
    close_to(state_at(&rule_nesterov, rule, 0, 0), 0.3546);
    close_to(state_at(&rule_nesterov, rule, 1, 0), 0.38);
    rule_nesterov.destroy(rule);
}

static void slow_momentum_takes_slowmos_steps(void **state)
{
    (void)state;
    /* Anchor 1, lr 1, momentum 0.5, means 0.8 and 0.65: 0.8, then 0.55. */
    struct rule_settings settings = {.rate = 1, .momentum = 0.5f, .has_momentum = true};
    struct rule *rule = rule_slow_momentum.create(VALUES, &settings);

    (void)one_round(&rule_slow_momentum, rule, 1, 1, 2, 3);
    (void)one_round(&rule_slow_momentum, rule, 0.8f, 0.8f, 2, 3);
    close_to(state_at(&rule_slow_momentum, rule, 0, 0), 0.8);
    (void)one_round(&rule_slow_momentum, rule, 0.65f, 0.65f, 2, 3);
    close_to(state_at(&rule_slow_momentum, rule, 0, 0), 0.55);
    rule_slow_momentum.destroy(rule);
}

static void block_takes_bmufs_steps(void **state)
{
    (void)state;
    /* Anchor 1, momentum 0.5, twice a gain of -0.2: 0.7, then 0.35. With a constant gain a step
     * tends to gain / (1 - momentum), not to the 15 gains of a look-ahead taken twice. */
    struct rule_settings settings = {.rate = 1, .momentum = 0.5f, .has_momentum = true};
    struct rule *rule = rule_block.create(VALUES, &settings);
    float before = 0;

    (void)one_round(&rule_block, rule, 1, 1, 2, 3);
    (void)one_round(&rule_block, rule, 0.8f, 0.8f, 2, 3);
    close_to(state_at(&rule_block, rule, 0, 0), 0.7);
    (void)one_round(&rule_block, rule, 0.5f, 0.5f, 2, 3);
    close_to(state_at(&rule_block, rule, 0, 0), 0.35);
    rule_block.destroy(rule);

    settings = (struct rule_settings){.rate = 1}; /* of 8 members: 0.875 */
    rule = rule_block.create(VALUES, &settings);
    (void)one_round(&rule_block, rule, 0, 0, 8, 3);
    for (int i = 0; i < 200; i++) {
        before = state_at(&rule_block, rule, 0, 0);
        (void)one_round(&rule_block, rule, before, before + 1, 8, 3);
    }
    assert_true(fabsf(state_at(&rule_block, rule, 0, 0) - before - 8) < 1e-2f);
    rule_block.destroy(rule);
}

static void elastic_pulls_and_keeps_the_sum(void **state)
{
    (void)state;
    /* x = 1, 2, 3, 6, centre 2, alpha 0.1: centre 2.4 afterwards, and the sum of all stays 14. */
    static const float x[4] = {1, 2, 3, 6};
    struct rule_settings settings = {.rate = 0.4f};
    double total = 0;
    float centre = 0;

    for (int i = 0; i < 4; i++) {
        struct rule *rule = rule_elastic.create(VALUES, &settings);

        (void)one_round(&rule_elastic, rule, 2, 2, 4, 3);
        total += (double)x[i] + (double)one_round(&rule_elastic, rule, x[i], 3, 4, 3);
        centre = state_at(&rule_elastic, rule, 0, 0);
        rule_elastic.destroy(rule);
    }
    close_to(centre, 2.4);
    assert_true(fabs(total + (double)centre - 14) < 1e-5);
}

/* Three peers and their centre, worked out in double: every fourth step the models are pulled,
 * every step the centre is (`long_pull`), or the other way round. The reference is the recursion
 * of the paper with one of its two ends left out where it is not due. */
static void unequal_periods_follow_their_recursion(bool long_pull)
{
    enum { PEERS = 3, STEPS = 24, PERIOD = 4 };
    const double alpha = 0.3 / PEERS, drift[PEERS] = {0.1, -0.05, 0.02};
    struct rule_settings settings = {.rate = 0.3f, .pull_rounds = long_pull ? PERIOD : 1};
    struct rule *rules[PEERS];
    double x[PEERS] = {1, 2, 6}, centre = 3;
    float held[PEERS] = {1, 2, 6};

    for (int i = 0; i < PEERS; i++) {
        rules[i] = rule_elastic.create(VALUES, &settings);
        (void)one_round(&rule_elastic, rules[i], 3, 3, PEERS, 3);
    }
    for (int step = 1; step <= STEPS; step++) {
        const bool pushes = long_pull || step % PERIOD == 0;
        const bool pulls = !long_pull || step % PERIOD == 0;
        double sum = 0;
        float mean;

        for (int i = 0; i < PEERS; i++) {
            x[i] += drift[i];
            held[i] += (float)drift[i];
            sum += x[i] - centre;
        }
        mean = (held[0] + held[1] + held[2]) / PEERS;
        for (int i = 0; i < PEERS; i++) {
            static float own[VALUES], difference[VALUES];

            if (pulls) x[i] -= alpha * (x[i] - centre);
            if (pushes) {
                held[i] += one_round(&rule_elastic, rules[i], held[i], mean, PEERS, 3);
            } else if (pulls) {
                fill(own, held[i]);
                assert_true(rule_elastic.pull(rules[i], own, difference));
                held[i] += difference[VALUES - 1];
            }
        }
        if (pushes) centre += alpha * sum;
        for (int i = 0; i < PEERS; i++) {
            if (fabs((double)held[i] - x[i]) > 1e-5) {
                fail_msg("step %d, peer %d: %.8f, not %.8f", step, i, (double)held[i], x[i]);
            }
            if (fabs((double)state_at(&rule_elastic, rules[i], 0, 5) - centre) > 1e-5) {
                fail_msg("step %d: the centre of %d is not at %.8f", step, i, centre);
            }
        }
    }
    for (int i = 0; i < PEERS; i++) {
        rule_elastic.destroy(rules[i]);
    }
}

static void pulls_and_pushes_may_have_periods_of_their_own(void **state)
{
    (void)state;
    struct rule_settings settings = {.rate = 0.3f};
    struct rule *rule = rule_elastic.create(VALUES, &settings);
    float plane[VALUES];

    unequal_periods_follow_their_recursion(true);
    unequal_periods_follow_their_recursion(false);
    fill(plane, 1);
    assert_false(rule_elastic.pull(rule, plane, plane)); /* no centre before the first round */
    rule_elastic.destroy(rule);
}

static void a_pull_of_ones_own_never_exceeds_one_nth(void **state)
{
    (void)state;
    /* rho 0.1 among 20 would move the centre twice the way to the mean. */
    struct rule_settings settings = {.rate = 0.9f, .share = 0.1f};
    struct rule *rule = rule_elastic.create(VALUES, &settings);

    (void)one_round(&rule_elastic, rule, 0, 0, 20, 3);
    close_to(one_round(&rule_elastic, rule, 1, 1, 20, 3), -0.05);
    close_to(state_at(&rule_elastic, rule, 0, 0), 1);
    rule_elastic.destroy(rule);
}

static void without_momentum_and_at_rate_one_it_is_the_mean(void **state)
{
    (void)state;
    /* The reduction to local SGD, to the bit, for three rules. */
    static const struct rule_ops *const all[] = {&rule_nesterov, &rule_slow_momentum, &rule_block};
    struct rule_settings settings = {.rate = 1, .momentum = 0, .has_momentum = true};

    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct rule *rule = all[i]->create(VALUES, &settings);

        (void)one_round(all[i], rule, 1, 2, 3, 3);
        for (int k = 0; k < 5; k++) {
            float own = (float)k / 4, mean = (float)(k * k) / 8;

            assert_true(one_round(all[i], rule, own, mean, 3, 3) == mean - own);
        }
        all[i]->destroy(rule);
    }
}

static void what_was_not_committed_stays(void **state)
{
    (void)state;
    /* Neither model, nor anchor, nor momentum of the second chunk change. */
    struct rule_settings settings = {.rate = 0.7f, .momentum = 0.9f, .has_momentum = true};
    struct rule *rule = rule_nesterov.create(VALUES, &settings);

    (void)one_round(&rule_nesterov, rule, 1, 1, 2, 3);
    (void)one_round(&rule_nesterov, rule, 0.7f, 0.8f, 2, 1);
    close_to(state_at(&rule_nesterov, rule, 0, CHUNK), 1);
    close_to(state_at(&rule_nesterov, rule, 1, CHUNK), 0);
    rule_nesterov.destroy(rule);
}

static void a_restored_rule_goes_on_to_the_bit(void **state)
{
    (void)state;
    struct rule_settings settings = {.rate = 0.7f, .momentum = 0.9f, .has_momentum = true};
    struct rule *rule = rule_nesterov.create(VALUES, &settings);
    struct rule *other = rule_nesterov.create(VALUES, &settings);
    const float *planes[RULE_STATE_MAX];
    static float bad[VALUES];

    (void)one_round(&rule_nesterov, rule, 1, 1, 2, 3);
    (void)one_round(&rule_nesterov, rule, 0.7f, 0.8f, 2, 3);
    assert_int_equal(rule_nesterov.state(rule, planes), 2);
    assert_int_equal(rule_nesterov.restore(other, planes, 1), RC_SHAPE);
    assert_int_equal(rule_mean.restore(NULL, planes, 2), RC_SHAPE);
    bad[7] = NAN;
    assert_int_equal(rule_nesterov.restore(other, (const float *const[]){planes[0], bad}, 2),
                     RC_NONFINITE);
    assert_int_equal(rule_nesterov.restore(other, planes, 2), RC_OK);
    assert_true(one_round(&rule_nesterov, rule, 0.5f, 0.4f, 2, 3) ==
                one_round(&rule_nesterov, other, 0.5f, 0.4f, 2, 3));
    rule_nesterov.destroy(rule);
    rule_nesterov.destroy(other);
}

static void overflow_ends_the_momentum_and_leaves_the_model(void **state)
{
    (void)state;
    struct rule_settings settings = {.rate = 10, .momentum = 0.9f, .has_momentum = true};
    struct rule *rule = rule_nesterov.create(VALUES, &settings);
    const float *planes[RULE_STATE_MAX];

    (void)one_round(&rule_nesterov, rule, 3e38f, 3e38f, 2, 3);
    assert_true(one_round(&rule_nesterov, rule, 1, -3e38f, 2, 3) == 0);
    assert_int_equal(rule_nesterov.state(rule, planes), 0);
    assert_true(one_round(&rule_nesterov, rule, 1, 2, 2, 3) == 1); /* a mean again */
    rule_nesterov.forget(rule);
    assert_int_equal(rule_nesterov.state(rule, planes), 0);
    rule_nesterov.destroy(rule);
}

static void anchors_that_differ_come_together(void **state)
{
    (void)state;
    /* A newcomer has another anchor and no momentum. The file's comment says by how much a round
     * brings the two together; the slowest takes less than 70 rounds to a millionth. */
    static const struct {
        const struct rule_ops *ops;
        struct rule_settings settings;
    } cases[] = {{&rule_nesterov, {.rate = 0.7f, .momentum = 0.9f, .has_momentum = true}},
                 {&rule_slow_momentum, {.rate = 1, .momentum = 0.5f, .has_momentum = true}},
                 {&rule_block, {.rate = 1, .momentum = 0.875f, .has_momentum = true}},
                 {&rule_elastic, {.rate = 0.9f}}};

    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        const struct rule_ops *ops = cases[c].ops;
        struct rule *old = ops->create(VALUES, &cases[c].settings);
        struct rule *young = ops->create(VALUES, &cases[c].settings);
        float apart;

        (void)one_round(ops, old, 1, 1, 2, 3);
        for (int i = 0; i < 5; i++) {
            (void)one_round(ops, old, 0, 0.5f, 2, 3);
        }
        (void)one_round(ops, young, 0, 0.25f, 2, 3);
        for (int i = 0; i < 70; i++) {
            (void)one_round(ops, old, 0, 0.1f, 2, 3);
            (void)one_round(ops, young, 0, 0.1f, 2, 3);
        }
        apart = state_at(ops, old, 0, 0) - state_at(ops, young, 0, 0);
        if (fabsf(apart) > 1e-6f) fail_msg("%s: %g apart", ops->name, (double)apart);
        ops->destroy(old);
        ops->destroy(young);
    }
}

static void memory_may_run_out(void **state)
{
    (void)state;
    /* Every allocation in turn; and sizes that no address space holds. */
    struct rule_settings settings = {.rate = 1};
    struct rule *rule = NULL;

    for (uint64_t after = 0; rule == NULL; after++) {
        assert_true(after < 20);
        mem_fail_after(after);
        rule = rule_nesterov.create(VALUES, &settings);
        mem_fail_after(UINT64_MAX);
    }
    rule_nesterov.destroy(rule);
    assert_null(rule_nesterov.create(SIZE_MAX, &settings));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_round_is_a_mean_and_lays_the_anchor),
        cmocka_unit_test(nesterov_takes_dilocos_steps),
        cmocka_unit_test(slow_momentum_takes_slowmos_steps),
        cmocka_unit_test(block_takes_bmufs_steps),
        cmocka_unit_test(elastic_pulls_and_keeps_the_sum),
        cmocka_unit_test(pulls_and_pushes_may_have_periods_of_their_own),
        cmocka_unit_test(a_pull_of_ones_own_never_exceeds_one_nth),
        cmocka_unit_test(without_momentum_and_at_rate_one_it_is_the_mean),
        cmocka_unit_test(what_was_not_committed_stays),
        cmocka_unit_test(a_restored_rule_goes_on_to_the_bit),
        cmocka_unit_test(overflow_ends_the_momentum_and_leaves_the_model),
        cmocka_unit_test(anchors_that_differ_come_together),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
