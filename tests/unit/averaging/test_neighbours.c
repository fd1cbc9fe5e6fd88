/* What rules make of a round of neighbours, against small numbers worked out by hand, and what the
 * two ends of an edge must have in common. */
#include "tests/check.h"

#include "averaging/rule/rule.h"
#include "averaging/strategy/strategy.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum { PEERS = 4, VALUES = 200 };

/* One round of all peers of a ring of four whose edges have `weight`; x becomes what comes out. */
static void ring_round(const struct rule_ops *ops, struct rule **rules, bool has_moved,
                       float weight, float *x)
{
    float told[PEERS], mixed[PEERS], squared;
    const uint8_t all = 1;

    for (int i = 0; i < PEERS; i++) {
        told[i] = x[i];
        if (ops->prepare != NULL) ops->prepare(rules[i], &told[i], has_moved);
    }
    for (int i = 0; i < PEERS; i++) {
        struct rule_view view = {&told[i], 1};

        ops->begin(rules[i], &view);
        for (uint32_t side = 0; side < 2; side++) {
            const float *theirs = &told[(i + (side == 0 ? 1 : PEERS - 1)) % PEERS];

            assert_int_equal(ops->stage(rules[i], side, (struct range){0, 1}, theirs, &squared),
                             RC_OK);
            assert_true(fabsf(squared - (*theirs - told[i]) * (*theirs - told[i])) < 1e-6f);
            ops->take(rules[i], side, weight);
        }
        ops->settle(rules[i], &all, RULE_GRAIN, 1, &mixed[i]);
    }
    for (int i = 0; i < PEERS; i++) {
        x[i] += mixed[i];
    }
}

static void create_all(const struct rule_ops *ops, struct rule **rules)
{
    for (int i = 0; i < PEERS; i++) {
        rules[i] = ops->create(1, NULL);
        assert_non_null(rules[i]);
    }
}

static void destroy_all(const struct rule_ops *ops, struct rule **rules)
{
    for (int i = 0; i < PEERS; i++) {
        ops->destroy(rules[i]);
    }
}

static void expect(const float *x, const double *wanted)
{
    for (int i = 0; i < PEERS; i++) {
        if (fabs((double)x[i] - wanted[i]) > 1e-5) {
            fail_msg("peer %d: %g instead of %g", i, (double)x[i], wanted[i]);
        }
    }
}

/* x = (1, 2, 3, 6), g = (.5, -1, 0, 2), rate .1, ring of four with Metropolis weights. */
static void dpsgd_in_both_orders(void **state)
{
    (void)state;
    static const double cta[] = {2.95, 2.1, 3.666667, 3.133333};
    static const double atc[] = {2.95, 2.016667, 3.633333, 3.25};
    static const float g[] = {0.5f, -1, 0, 2};
    float x[PEERS] = {1, 2, 3, 6}, half[PEERS];
    struct rule *rules[PEERS];

    create_all(&rule_mean, rules);
    for (int i = 0; i < PEERS; i++) {
        half[i] = x[i] - 0.1f * g[i];
    }
    ring_round(&rule_mean, rules, true, 1.0f / 3, half);
    expect(half, atc);
    ring_round(&rule_mean, rules, true, 1.0f / 3, x); /* the snapshot is of before the step */
    for (int i = 0; i < PEERS; i++) {
        x[i] -= 0.1f * g[i];
    }
    expect(x, cta);
    destroy_all(&rule_mean, rules);
}

/* Springs of a quarter on every edge, from one snapshot: the sum stays 12. */
static void springs_pull_both_ends(void **state)
{
    (void)state;
    static const double wanted[] = {2.5, 2, 3.5, 4};
    float x[PEERS] = {1, 2, 3, 6};
    struct rule *rules[PEERS];

    create_all(&rule_mean, rules);
    ring_round(&rule_mean, rules, true, 0.25f, x);
    expect(x, wanted);
    destroy_all(&rule_mean, rules);
}

static void step_towards(float *x, float rate)
{
    static const float centres[] = {0, 1, 2, 5};

    for (int i = 0; i < PEERS; i++) {
        x[i] -= rate * (x[i] - centres[i]);
    }
}

/* f_i = (x - c_i)^2 / 2, c = (0, 1, 2, 5), rate .1, from 0, with (I + W)/2: two steps by hand, then
 * the mean of all c at every peer, where plain mixing stays apart; begun anew, it gets there again.
 */
static void d2_finds_the_common_optimum_of_unlike_peers(void **state)
{
    (void)state;
    static const double first[] = {0.1, 0.1, 0.233333, 0.366667};
    static const double second[] = {0.274444, 0.232222, 0.443333, 0.57};
    const struct rule_ops *ops = &rule_exact_diffusion;
    float x[PEERS] = {0}, plain[PEERS] = {0};
    struct rule *rules[PEERS], *plains[PEERS];

    create_all(ops, rules);
    create_all(&rule_mean, plains);
    for (int step = 1; step <= 600; step++) {
        step_towards(x, 0.1f);
        ring_round(ops, rules, true, 1.0f / 6, x);
        step_towards(plain, 0.1f);
        ring_round(&rule_mean, plains, true, 1.0f / 6, plain);
        if (step == 1) expect(x, first);
        if (step == 2) expect(x, second);
        if (step == 300) {
            for (int i = 0; i < PEERS; i++) {
                assert_true(fabsf(x[i] - 2) < 1e-5f);
                ops->forget(rules[i]);
            }
        }
    }
    for (int i = 0; i < PEERS; i++) {
        assert_true(fabsf(x[i] - 2) < 1e-5f);
    }
    assert_true(fabsf(plain[0] - 2) > 0.1f && fabsf(plain[3] - 2) > 0.1f);
    destroy_all(ops, rules);
    destroy_all(&rule_mean, plains);
}

/* Without steps in between, rounds only mix: peers come together at the mean of where they are, and
 * what is kept follows, so that the next step goes on from there. */
static void d2_mixes_peers_that_stand_still(void **state)
{
    (void)state;
    const struct rule_ops *ops = &rule_exact_diffusion;
    float x[PEERS] = {0}, mean = 0;
    struct rule *rules[PEERS];

    create_all(ops, rules);
    for (int step = 0; step < 5; step++) {
        step_towards(x, 0.1f);
        ring_round(ops, rules, true, 1.0f / 6, x);
    }
    for (int i = 0; i < PEERS; i++) {
        mean += x[i] / PEERS;
    }
    for (int round = 0; round < 60; round++) {
        ring_round(ops, rules, false, 1.0f / 6, x);
    }
    for (int i = 0; i < PEERS; i++) {
        assert_true(fabsf(x[i] - mean) < 1e-5f);
    }
    for (int step = 0; step < 600; step++) {
        step_towards(x, 0.1f);
        ring_round(ops, rules, true, 1.0f / 6, x);
    }
    for (int i = 0; i < PEERS; i++) {
        assert_true(fabsf(x[i] - 2) < 1e-5f);
    }
    destroy_all(ops, rules);
}

/* What all keep adds up to zero whatever edges are missing, it survives in checkpoints, and an edge
 * that counts late is kept as well. */
static void what_d2_keeps_is_saved_and_adds_up_to_zero(void **state)
{
    (void)state;
    const struct rule_ops *ops = &rule_exact_diffusion;
    float x[2] = {1, 4}, told[2], mixed[2], squared, kept[2];
    const float *planes[RULE_STATE_MAX] = {NULL};
    const float nan_plane[] = {NAN}, *bad[] = {nan_plane, nan_plane};
    const uint8_t all = 1;
    struct rule *rules[2] = {ops->create(1, NULL), ops->create(1, NULL)};

    assert_int_equal(ops->state(rules[0], planes), 0);
    for (int i = 0; i < 2; i++) {
        struct rule_view view = {&told[i], 1};

        told[i] = x[i];
        ops->prepare(rules[i], &told[i], true);
        ops->begin(rules[i], &view);
    }
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->stage(rules[i], 3, (struct range){0, 1}, &told[1 - i], &squared),
                         RC_OK);
        if (i == 0) ops->take(rules[i], 3, 0.25f); /* the other end does not know yet */
        if (i == 1) ops->keep(rules[i], 3, 0.25f, &kept[1]);
        ops->settle(rules[i], &all, RULE_GRAIN, 1, &mixed[i]);
    }
    assert_true(mixed[0] == 0.75f && mixed[1] == 0 && kept[1] == -0.75f);
    ops->late(rules[1], &kept[1]);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(ops->state(rules[i], planes), 1);
        kept[i] = planes[0][0];
    }
    assert_true(kept[0] == 0.75f && kept[1] == -0.75f);
    assert_int_equal(ops->restore(rules[1], planes, 2), RC_SHAPE);
    assert_int_equal(ops->restore(rules[1], bad, 1), RC_NONFINITE);
    ops->forget(rules[0]);
    assert_int_equal(ops->state(rules[0], planes), 0);
    planes[0] = &kept[0];
    assert_int_equal(ops->restore(rules[0], planes, 1), RC_OK);
    assert_int_equal(ops->state(rules[0], planes), 1);
    assert_true(planes[0][0] == 0.75f);
    ops->destroy(rules[0]);
    ops->destroy(rules[1]);
}

/* The two ends of an edge get exact negatives of each other, whatever its weight. */
static void the_two_ends_of_an_edge_are_exact_negatives(void **state)
{
    (void)state;
    static float x[2][VALUES], kept[2][VALUES];

    FOR_EACH_SEED (seed, 50) {
        struct rng rng;
        float weight;

        rng_init(&rng, seed, 1);
        weight = (float)rng_unit(&rng) + 1e-3f;
        for (size_t i = 0; i < 2 * (size_t)VALUES; i++) {
            x[i / VALUES][i % VALUES] = (float)(rng_normal(&rng) * exp(10 * rng_unit(&rng)));
        }
        for (int end = 0; end < 2; end++) {
            struct rule *rule = rule_mean.create(VALUES, NULL);
            struct rule_view view = {x[end], VALUES};
            float squared;

            rule_mean.begin(rule, &view);
            assert_int_equal(
                rule_mean.stage(rule, 7, (struct range){0, VALUES + 1}, x[1 - end], &squared),
                RC_SHAPE);
            assert_int_equal(
                rule_mean.stage(rule, 7, (struct range){0, VALUES}, x[1 - end], &squared), RC_OK);
            rule_mean.keep(rule, 7, weight, kept[end]);
            rule_mean.destroy(rule);
        }
        for (size_t i = 0; i < VALUES; i++) {
            check_seed(seed, kept[0][i] == -kept[1][i]);
        }
    }
}

static void parse(const char *averaging, const char *topology, struct strategy *strategy)
{
    struct strategy_specs specs = {.averaging = averaging, .topology = topology};
    struct fault why = {""};

    if (strategy_parse(&specs, strategy, &why) != RC_OK) fail_msg("%s", why.text);
}

static void methods_of_neighbours_are_what_they_say(void **state)
{
    (void)state;
    struct strategy s;
    struct fault why;
    struct strategy_specs wrong[] = {{.averaging = "dpsgd", .topology = "pairs"},
                                     {.averaging = "dpsgd", .topology = "one-peer-exponential"},
                                     {.averaging = "dpsgd:order=tac"},
                                     {.averaging = "d2", .exchange = "pair"},
                                     {.averaging = "aeasgd:alpha=1.5"},
                                     {.averaging = "local-sgd", .rule = "exact-diffusion"}};

    parse("dpsgd", NULL, &s);
    assert_true(s.exchange == &exchange_edges && s.rule == &rule_mean && s.waits && !s.overlaps);
    assert_true(s.topology.kind == TOPOLOGY_RING && s.beta == 1 && s.alpha == 0);
    parse("dpsgd:H=3,order=cta", "hypercube", &s);
    assert_true(!s.waits && s.overlaps && s.every_steps == 3);
    assert_int_equal(s.topology.kind, TOPOLOGY_HYPERCUBE);
    parse("d2", "torus", &s);
    assert_true(s.rule == &rule_exact_diffusion && s.beta == 0.5f && s.waits);
    parse("aeasgd:alpha=0.5", NULL, &s);
    assert_true(s.alpha == 0.5f && !s.waits && !s.overlaps && s.every_steps == 10);
    parse("eamsgd", NULL, &s);
    assert_true(s.beta == 0.9f && s.overlaps);
    assert_string_equal(s.optimizer, "nesterov");
    parse("easgd:rho=0.25", "ring", &s); /* springs along edges in place of the centre */
    assert_true(s.exchange == &exchange_edges && s.rule == &rule_mean && s.alpha == 0.25f);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        assert_int_not_equal(strategy_parse(&wrong[i], &s, &why), RC_OK);
    }
}

/* What weighs otherwise at the other end moves the model, and leaves nothing in what adds up to
 * zero over all: the memory of exact diffusion, and, but for what both have in common, trackers. */
static void nothing_is_kept_of_what_passes(void **state)
{
    static const float own[2] = {1, 1}, theirs[2] = {3, 5};
    const struct rule_settings settings = {.memory = 2, .stepped = 1};
    const struct rule_ops *ops[] = {&rule_exact_diffusion, &rule_mean};
    const uint8_t all = 1;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(ops); i++) {
        struct rule *rule = ops[i]->create(2, &settings);
        struct rule_view view = {own, 2};
        float difference[2], squared, told[2] = {0, 0};

        assert_non_null(rule);
        ops[i]->begin(rule, &view);
        assert_int_equal(ops[i]->stage(rule, 0, (struct range){0, 2}, theirs, &squared), RC_OK);
        ops[i]->pass(rule, 0, 0.5f, 0.25f);
        ops[i]->settle(rule, &all, RULE_GRAIN, 1, difference);
        assert_float_equal(difference[0], 1, 1e-6f);
        assert_float_equal(difference[1], i == 0 ? 2 : 1, 1e-6f);
        if (ops[i]->prepare != NULL) ops[i]->prepare(rule, told, true);
        assert_true(told[0] == 0 && told[1] == 0);
        ops[i]->destroy(rule);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_is_kept_of_what_passes),
        cmocka_unit_test(dpsgd_in_both_orders),
        cmocka_unit_test(springs_pull_both_ends),
        cmocka_unit_test(d2_finds_the_common_optimum_of_unlike_peers),
        cmocka_unit_test(d2_mixes_peers_that_stand_still),
        cmocka_unit_test(what_d2_keeps_is_saved_and_adds_up_to_zero),
        cmocka_unit_test(the_two_ends_of_an_edge_are_exact_negatives),
        cmocka_unit_test(methods_of_neighbours_are_what_they_say),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
