/* Delayed Nesterov momentum in pairs: the published equation, where it is stable, rounds in doubt.
 */
#include "tests/check.h"

#include "averaging/rule/rule.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { CHUNK = 64, VALUES = 2 * CHUNK, PEERS = 8 };

static const struct rule_ops *const ops = &rule_delayed_nesterov;
static const struct range everything = {0, VALUES};

static struct rule *create(float rate, float momentum, uint32_t delay)
{
    const struct rule_settings settings = {
        .rate = rate, .momentum = momentum, .has_momentum = true, .delay = delay};
    struct rule *rule = ops->create(VALUES, &settings);

    assert_non_null(rule);
    return rule;
}

static void fill(float *plane, float value)
{
    for (size_t i = 0; i < VALUES; i++) {
        plane[i] = value;
    }
}

static float state_at(const struct rule *rule, size_t plane, size_t at)
{
    const float *planes[RULE_STATE_MAX];

    assert_int_equal(ops->state(rule, planes), 2);
    return planes[plane][at];
}

static void put_state(struct rule *rule, float anchor, float momentum)
{
    static float planes[2][VALUES];
    const float *both[2] = {planes[0], planes[1]};

    fill(planes[0], anchor);
    fill(planes[1], momentum);
    assert_int_equal(ops->restore(rule, both, 2), RC_OK);
}

/* One peer's side of a pair round whose chunks of `bitmap` count; what is added to its model. */
static const float *round_of(struct rule *rule, float own, float other, uint8_t bitmap)
{
    static float owns[VALUES], others[VALUES], difference[VALUES];
    const struct rule_view view = {owns, VALUES};

    fill(owns, own);
    fill(others, other);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, others), RC_OK);
    ops->set_members(rule, 2);
    ops->settle(rule, &bitmap, CHUNK, 0.5f, difference);
    return difference;
}

/* The new value of its model. */
static float pair_round(struct rule *rule, float own, float other)
{
    return own + round_of(rule, own, other, 3)[VALUES - 1];
}

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-6) fail_msg("%.8f, not %.8f", (double)value, wanted);
}

/* Golden: two peers that learn alike, so that a round is the arrival of one difference. Rate 0.7 of
 * the paper among N = 2 is 0.35 here; its u is ours over N. */
static void arrivals_of_one_difference(void **state)
{
    static const float differences[] = {0.2f, 0.4f, 0.2f, 0.4f};
    static const double anchors[] = {0.93, 0.601, 0.531, 0.0319}, momenta[] = {0, 0.3, 0.3, 0.57};
    struct rule *rule = create(0.35f, 0.9f, 2);
    float x = 1;

    (void)state;
    put_state(rule, 1, 0);
    for (size_t k = 0; k < ARRAY_COUNT(differences); k++) {
        x = pair_round(rule, x - differences[k], x - differences[k]);
        close_to(x, anchors[k]);
        close_to(state_at(rule, 0, 5), anchors[k]);
        /* after an N-th round what is kept of u is v u already */
        if (k % 2 == 1) close_to(state_at(rule, 1, 5), 0.9 * 2 * momenta[k]);
    }
    ops->destroy(rule);
}

/* The paper's delayed Nesterov update with c = 0, at a server: each arrival counts 1/N at once, and
 * each N-th moves the momentum by the mean of N. Differences by chance. */
static void it_is_the_published_rule(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 6) {
        const uint32_t n = 1 + (uint32_t)seed;
        const double rate = 0.7, v = 0.9;
        struct rule *rule = create((float)(rate / n), (float)v, n);
        double phi = 1, u = 0, buffer = 0;
        float x = 1;
        struct rng rng;

        rng_init(&rng, seed, 9);
        put_state(rule, 1, 0);
        for (uint32_t arrival = 1; arrival <= 40; arrival++) {
            const double delta = 0.1 * rng_normal(&rng);

            buffer += delta;
            phi -= rate * delta / n;
            if (arrival % n == 0) {
                u = v * u + buffer / n;
                phi -= rate * v * u;
                buffer = 0;
            }
            x = pair_round(rule, x - (float)delta, x - (float)delta);
            check_seed(seed, fabs((double)x - phi) < 1e-5);
        }
        ops->destroy(rule);
    }
}

/* T6: N equal arrivals go as far as one Nesterov step of their sum, whatever N. */
static void equal_arrivals_are_one_step(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 8; n++) {
        struct rule *rule = create(0.5f, 0.8f, n);
        float x = 1;

        put_state(rule, 1, 0);
        for (uint32_t k = 0; k < n; k++) {
            x = pair_round(rule, x - 0.3f / (float)n, x - 0.3f / (float)n);
        }
        close_to(x, 1 - 0.5 * (0.3 + 0.8 * 0.3));
        ops->destroy(rule);
    }
}

/* Without momentum at rate 1 it is what ad-psgd does; a first round has the own model for anchor.
 */
static void without_momentum_at_rate_one_it_is_the_mean(void **state)
{
    struct rule *rule = create(1, 0, 2);

    (void)state;
    put_state(rule, 5, 0);
    close_to(pair_round(rule, 1, 3), 2);
    ops->destroy(rule);
    rule = create(0.5f, 0.9f, 2);
    close_to(pair_round(rule, 1, 3), 1.5);
    close_to(state_at(rule, 0, 0), 1.5);
    close_to(state_at(rule, 1, 0), -1);
    ops->destroy(rule);
}

/* Statistics behind the model become means, and have no momentum. */
static void what_does_not_step_is_a_mean(void **state)
{
    const struct rule_settings settings = {
        .rate = 0.5f, .momentum = 0.9f, .has_momentum = true, .delay = 2, .stepped = 70};
    struct rule *rule = ops->create(VALUES, &settings);
    const float *difference;

    (void)state;
    assert_non_null(rule);
    put_state(rule, 5, 1);
    difference = round_of(rule, 1, 3, 3);
    close_to(difference[69], 5 - 0.5 * 3 - 1);
    close_to(difference[70], 1);
    close_to(state_at(rule, 0, 70), 2);
    ops->destroy(rule);
}

/* Random pairs of peers that do not train: sum and spread of their models after `rounds`. */
static void mix(float rate, float momentum, uint32_t delay, uint32_t rounds, uint64_t seed,
                double *sum, double *spread)
{
    struct rule *rules[PEERS];
    float x[PEERS];
    struct rng rng;

    rng_init(&rng, seed, 4);
    for (uint32_t i = 0; i < PEERS; i++) {
        rules[i] = create(rate, momentum, delay);
        x[i] = (float)i;
    }
    for (uint32_t round = 0; round < rounds; round++) {
        const uint32_t shift = 1 + (uint32_t)rng_below(&rng, PEERS - 1);
        const uint32_t a = (uint32_t)rng_below(&rng, PEERS), b = a ^ shift;
        const float before = x[a]; /* one pair at a time: they are at unlike rounds of their N */

        x[a] = pair_round(rules[a], x[a], x[b]);
        x[b] = pair_round(rules[b], x[b], before);
    }
    *sum = *spread = 0;
    for (uint32_t i = 0; i < PEERS; i++) {
        *sum += (double)x[i];
        *spread += fabs((double)x[i] - 3.5);
        ops->destroy(rules[i]);
    }
}

/* T17: with any momentum and N of 2 or more a rate of 1 brings them together, and so do the
 * defaults; far beyond it they part. T1: when all is taken the sum is what it was. */
static void pairs_come_together_and_keep_their_sum(void **state)
{
    double sum, spread;
    uint32_t parted = 0, tried = 0; /* fewer with sanitizers */

    (void)state;
    FOR_EACH_SEED (seed, 20) {
        mix(0.7f, 0.5f, 4, 1000, seed, &sum, &spread);
        check_seed(seed, spread < 1e-3 && fabs(sum - 28) < 1e-3);
        mix(0.7f, 0.9f, 4, 2000, seed, &sum, &spread);
        check_seed(seed, spread < 1e-3 && fabs(sum - 28) < 1e-3);
        mix(1, 0.9f, 2, 4000, seed, &sum, &spread);
        check_seed(seed, spread < 1e-2 && fabs(sum - 28) < 1e-2);
        mix(1, 0.95f, 2, 8000, seed, &sum, &spread);
        check_seed(seed, spread < 1);
        mix(1.9f, 0.95f, 2, 2000, seed, &sum, &spread);
        parted += spread > 100;
        tried++;
    }
    assert_true(4 * parted > 3 * tried);
}

/* In doubt nothing changes; then the part of which the partner has the negative, on all three. */
static void a_late_commit_brings_the_pairs_part_alone(void **state)
{
    static float owns[VALUES], others[VALUES], difference[VALUES];
    const struct rule_view view = {owns, VALUES};
    struct rule *rule = create(0.5f, 0.9f, 4), *fresh = create(0.5f, 0.9f, 4);
    const uint8_t all = 3, first = 1;

    (void)state;
    put_state(rule, 2, 0.25f);
    fill(owns, 1.5f);
    fill(others, 3.5f);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, others), RC_OK);
    ops->doubt(rule, &all, CHUNK, difference);
    close_to(state_at(rule, 0, 0), 2);
    close_to(state_at(rule, 1, 0), 0.25);
    rule_commit_late(difference, VALUES, &first, CHUNK, 0.5f);
    ops->late(rule, difference);
    close_to(difference[0], 0.5);
    close_to(difference[CHUNK], 0);
    close_to(state_at(rule, 0, 0), 2.5);
    close_to(state_at(rule, 1, 0), 0.25 - 1);
    close_to(state_at(rule, 0, CHUNK), 2);
    fill(difference, 1);
    ops->late(fresh, difference); /* without an anchor there is nothing else to move */
    close_to(difference[0], 0.5);
    ops->destroy(fresh);
    ops->destroy(rule);
}

/* A chunk that is not in the bitmap; a round that is cancelled; a model that was replaced. */
static void what_was_not_committed_stays(void **state)
{
    static float owns[VALUES];
    const struct rule_view view = {owns, VALUES};
    const float *planes[RULE_STATE_MAX], *difference;
    struct rule *rule = create(0.5f, 0.9f, 2);

    (void)state;
    put_state(rule, 2, 0.5f);
    difference = round_of(rule, 1, 1, 1);
    close_to(difference[0], 0.5);
    close_to(state_at(rule, 1, 0), 1.5);
    assert_true(difference[CHUNK] == 0);
    close_to(state_at(rule, 0, CHUNK), 2);
    close_to(state_at(rule, 1, CHUNK), 0.5);
    ops->begin(rule, &view);
    ops->cancel(rule);
    close_to(state_at(rule, 0, CHUNK), 2);
    ops->forget(rule);
    assert_int_equal(ops->state(rule, planes), 0);
    ops->destroy(rule);
}

static void an_overflow_does_not_reach_the_model(void **state)
{
    const float *planes[RULE_STATE_MAX];
    struct rule *rule = create(1, 0.9f, 2);

    (void)state;
    put_state(rule, -3e38f, 0);
    assert_true(pair_round(rule, 3e38f, 3e38f) == 3e38f);
    assert_int_equal(ops->state(rule, planes), 0);
    ops->destroy(rule);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arrivals_of_one_difference),
        cmocka_unit_test(it_is_the_published_rule),
        cmocka_unit_test(equal_arrivals_are_one_step),
        cmocka_unit_test(without_momentum_at_rate_one_it_is_the_mean),
        cmocka_unit_test(what_does_not_step_is_a_mean),
        cmocka_unit_test(pairs_come_together_and_keep_their_sum),
        cmocka_unit_test(a_late_commit_brings_the_pairs_part_alone),
        cmocka_unit_test(what_was_not_committed_stays),
        cmocka_unit_test(an_overflow_does_not_reach_the_model),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
