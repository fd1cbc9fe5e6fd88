/* GASLoC's outer step: golden values, the equation with both its iterates, DiLoCo in groups, where
 * it is stable, rounds in doubt. */
#include "tests/check.h"

#include "averaging/rule/rule.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum { CHUNK = 64, VALUES = 2 * CHUNK, PEERS = 8 };

static const struct rule_ops *const ops = &rule_accelerated;
static const struct range everything = {0, VALUES};
static const uint8_t all = 3;

static struct rule *create(float rate, float momentum, float share)
{
    struct rule_settings settings = {
        .rate = rate, .momentum = momentum, .has_momentum = true, .share = share};
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

static void put_state(struct rule *rule, float anchor, float momentum)
{
    static float planes[2][VALUES];
    const float *both[2] = {planes[0], planes[1]};

    fill(planes[0], anchor);
    fill(planes[1], momentum);
    assert_int_equal(ops->restore(rule, both, 2), RC_OK);
}

static float state_at(const struct rule *rule, size_t plane, size_t at)
{
    const float *planes[RULE_STATE_MAX];

    assert_int_equal(ops->state(rule, planes), 2);
    return planes[plane][at];
}

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-6) fail_msg("%.8f, not %.8f", (double)value, wanted);
}

/* One round of n peers whose models are x, in which i gives j's value the weight w[i][j]. Through
 * stage() and take(), as rounds of neighbours do. */
static void round_of(struct rule *rules[PEERS], float x[PEERS][VALUES], int n,
                     double w[PEERS][PEERS])
{
    static float told[PEERS][VALUES], difference[VALUES];
    float squared;

    for (int i = 0; i < n; i++) {
        memcpy(told[i], x[i], sizeof told[i]);
        ops->prepare(rules[i], told[i], true);
    }
    for (int i = 0; i < n; i++) {
        struct rule_view view = {told[i], VALUES};

        ops->begin(rules[i], &view);
        for (int j = 0; j < n; j++) {
            if (j == i || w[i][j] == 0) continue;
            assert_int_equal(ops->stage(rules[i], 0, everything, told[j], &squared), RC_OK);
            ops->take(rules[i], 0, (float)w[i][j]);
        }
        ops->settle(rules[i], &all, CHUNK, 1, difference);
        for (size_t k = 0; k < VALUES; k++) {
            x[i][k] += difference[k];
        }
    }
}

/* The same for pairs, as a pair round does: order[0] with order[1] and so on. */
static void pairs_of(struct rule *rules[PEERS], float x[PEERS][VALUES], const uint32_t order[PEERS])
{
    static float told[2][VALUES], difference[VALUES];

    for (int k = 0; k < PEERS; k += 2) {
        for (int side = 0; side < 2; side++) {
            memcpy(told[side], x[order[k + side]], sizeof told[side]);
            ops->prepare(rules[order[k + side]], told[side], true);
        }
        for (int side = 0; side < 2; side++) {
            struct rule_view view = {told[side], VALUES};
            struct rule *rule = rules[order[k + side]];

            ops->begin(rule, &view);
            assert_int_equal(ops->absorb(rule, everything, 1, told[1 - side]), RC_OK);
            ops->set_members(rule, 2);
            ops->settle(rule, &all, CHUNK, 0.5f, difference);
            for (size_t i = 0; i < VALUES; i++) {
                x[order[k + side]][i] += difference[i];
            }
        }
    }
}

static void random_order(struct rng *rng, uint32_t order[PEERS])
{
    for (uint32_t i = 0; i < PEERS; i++) {
        order[i] = i;
    }
    rng_shuffle(rng, order, PEERS);
}

static void a_pair_steps_from_what_it_agrees_on(void **state)
{
    (void)state;
    /* Anchors 1 and 2, models 0.9 and 1.6, rate 0.7, momentum 0.5; then both train 0.1 down.
     * z = .93, 1.72, y = 1.325; z = 1.4175, .9175, y = 1.1675. */
    static float x[PEERS][VALUES];
    struct rule *rules[PEERS];
    double half[PEERS][PEERS] = {{0.5, 0.5}, {0.5, 0.5}};

    for (int i = 0; i < 2; i++) {
        rules[i] = create(0.7f, 0.5f, 1);
        put_state(rules[i], (float)(1 + i), 0);
        fill(x[i], i == 0 ? 0.9f : 1.6f);
    }
    round_of(rules, x, 2, half);
    close_to(x[0][5], 1.4875);
    close_to(x[1][5], 0.9875);
    close_to(state_at(rules[0], 1, 0), 0.325);
    close_to(state_at(rules[1], 1, 0), -0.675);
    for (int i = 0; i < 2; i++) {
        fill(x[i], x[i][0] - 0.1f);
    }
    round_of(rules, x, 2, half);
    close_to(x[0][VALUES - 1], 1.08875);
    close_to(x[1][VALUES - 1], 1.08875);
    close_to(state_at(rules[1], 1, 7), -0.1575);
    close_to(state_at(rules[1], 0, 7), 1.08875);
    for (int i = 0; i < 2; i++) {
        ops->destroy(rules[i]);
    }
}

/* One peer as the equation has it, in double. */
struct iterates {
    double x, phi, y;
};

/* theta = y + v (y - y_before) with y = z - a L z, written out, for `x` of one value. */
static void equation(struct iterates *p, int n, double w[PEERS][PEERS], double r, double v,
                     double a)
{
    double z[PEERS];

    for (int i = 0; i < n; i++) {
        z[i] = p[i].phi + r * (p[i].x - p[i].phi);
    }
    for (int i = 0; i < n; i++) {
        double y = z[i];

        for (int j = 0; j < n; j++) {
            y += a * w[i][j] * (z[j] - z[i]);
        }
        p[i].phi = p[i].x = y + v * (y - p[i].y);
        p[i].y = y;
    }
}

/* Random pairs of eight that train by chance, a graph's weights, and steps of part of the way. */
static void it_is_the_equation_with_both_iterates(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 6) {
        static float x[PEERS][VALUES];
        const double share = seed % 2 == 0 ? 1 : 0.75;
        struct iterates wanted[PEERS];
        struct rule *rules[PEERS];
        struct rng rng;

        rng_init(&rng, seed, 3);
        for (int i = 0; i < PEERS; i++) {
            rules[i] = create(0.7f, 0.5f, (float)share);
            wanted[i].x = rng_normal(&rng);
            wanted[i].phi = wanted[i].y = (double)(float)wanted[i].x;
            put_state(rules[i], (float)wanted[i].x, 0);
            fill(x[i], (float)wanted[i].x);
        }
        for (int round = 0; round < 20; round++) {
            double w[PEERS][PEERS] = {{0}};
            uint32_t order[PEERS];

            for (int i = 0; i < PEERS; i++) {
                double step = 0.1 * rng_normal(&rng);

                wanted[i].x += step;
                fill(x[i], (float)((double)x[i][0] + step));
                w[i][(i + 1) % PEERS] = w[i][(i + PEERS - 1) % PEERS] = 1.0 / 3;
            }
            random_order(&rng, order);
            if (seed < 3) {
                memset(w, 0, sizeof w);
                for (int k = 0; k < PEERS; k += 2) {
                    w[order[k]][order[k + 1]] = w[order[k + 1]][order[k]] = 0.5;
                }
                pairs_of(rules, x, order);
            } else {
                round_of(rules, x, PEERS, w);
            }
            equation(wanted, PEERS, w, 0.7, 0.5, share);
            for (int i = 0; i < PEERS; i++) {
                check_seed(seed, fabs((double)x[i][9] - wanted[i].x) < 2e-5);
                check_seed(seed, fabs((double)state_at(rules[i], 0, 1) - wanted[i].phi) < 2e-5);
            }
        }
        for (int i = 0; i < PEERS; i++) {
            ops->destroy(rules[i]);
        }
    }
}

/* One member's side of a group round whose mean is `agreed`. */
static void agree_on(const struct rule_ops *with, struct rule *rule, float *x, const float *told,
                     const float *agreed)
{
    static float difference[VALUES];
    struct rule_view view = {told, VALUES};

    with->begin(rule, &view);
    assert_int_equal(with->agree(rule, everything, agreed), RC_OK);
    with->set_members(rule, PEERS);
    with->settle(rule, &all, CHUNK, 1, difference);
    for (size_t i = 0; i < VALUES; i++) {
        x[i] += difference[i];
    }
}

static void mean_of(float planes[PEERS][VALUES], float *mean)
{
    for (size_t i = 0; i < VALUES; i++) {
        double sum = 0;

        for (int p = 0; p < PEERS; p++) {
            sum += (double)planes[p][i];
        }
        mean[i] = (float)(sum / PEERS);
    }
}

static void in_a_group_of_all_it_is_dilocos_step(void **state)
{
    (void)state;
    /* T6. From the first round on, where both take the mean for their anchor: eight members, 40
     * rounds, the same steps in between, rate and momentum of diloco. */
    const struct rule_settings settings = {
        .rate = 0.7f, .momentum = 0.9f, .has_momentum = true, .share = 1};
    static float x[2][PEERS][VALUES], told[PEERS][VALUES], mean[VALUES];
    struct rule *rules[PEERS], *nesterovs[PEERS];
    double largest = 0;
    struct rng rng;

    rng_init(&rng, 1, 0);
    for (int p = 0; p < PEERS; p++) {
        rules[p] = ops->create(VALUES, &settings);
        nesterovs[p] = rule_nesterov.create(VALUES, &settings);
        for (size_t i = 0; i < VALUES; i++) {
            x[0][p][i] = x[1][p][i] = (float)rng_normal(&rng);
        }
    }
    for (int round = 0; round < 40; round++) {
        for (int p = 0; p < PEERS; p++) {
            memcpy(told[p], x[0][p], sizeof told[p]);
            ops->prepare(rules[p], told[p], true);
        }
        mean_of(told, mean);
        for (int p = 0; p < PEERS; p++) {
            agree_on(ops, rules[p], x[0][p], told[p], mean);
        }
        mean_of(x[1], mean);
        memcpy(told, x[1], sizeof told);
        for (int p = 0; p < PEERS; p++) {
            agree_on(&rule_nesterov, nesterovs[p], x[1][p], told[p], mean);
        }
        for (int p = 0; p < PEERS; p++) {
            for (size_t i = 0; i < VALUES; i++) {
                double size = 1 + fabs((double)x[1][p][i]);

                largest = fmax(largest, fabs((double)(x[0][p][i] - x[1][p][i])) / size);
                largest = fmax(largest, fabs((double)(x[0][p][i] - x[0][0][i])) / size);
            }
        }
        for (int p = 0; p < PEERS; p++) {
            for (size_t i = 0; i < VALUES; i++) {
                float step = 0.1f * (float)rng_normal(&rng);

                x[0][p][i] += step;
                x[1][p][i] += step;
            }
        }
    }
    if (!(largest < 5e-6)) fail_msg("%g from diloco", largest);
    assert_true(largest > 0); /* they are not one code */
    for (int p = 0; p < PEERS; p++) {
        ops->destroy(rules[p]);
        rule_nesterov.destroy(nesterovs[p]);
    }
}

/* Mean square from the mean after `rounds` in which nobody trains, over the first one. */
static double spread_after(float momentum, float share, uint32_t rounds)
{
    enum { SWARMS = 20 };
    static float x[PEERS][VALUES], mean[VALUES];
    struct rule *rules[PEERS];
    double spread[2] = {0, 0};
    struct rng rng;

    for (int p = 0; p < PEERS; p++) {
        rules[p] = create(0.7f, momentum, share);
    }
    for (uint64_t swarm = 0; swarm < SWARMS; swarm++) {
        rng_init(&rng, swarm, 4);
        for (int p = 0; p < PEERS; p++) {
            ops->forget(rules[p]);
            for (size_t i = 0; i < VALUES; i++) {
                x[p][i] = (float)rng_normal(&rng);
            }
        }
        for (uint32_t round = 0; round <= rounds; round++) {
            uint32_t order[PEERS];

            for (int p = 0; p < PEERS && (round == 0 || round == rounds); p++) {
                mean_of(x, mean);
                for (size_t i = 0; i < VALUES; i++) {
                    double apart = (double)(x[p][i] - mean[i]);

                    spread[round > 0] += apart * apart;
                }
            }
            random_order(&rng, order);
            pairs_of(rules, x, order);
        }
    }
    for (int p = 0; p < PEERS; p++) {
        ops->destroy(rules[p]);
    }
    return spread[1] / spread[0];
}

static void random_pairs_bear_momentum_below_a_limit(void **state)
{
    (void)state;
    /* T17: of a large swarm, (sqrt(17) - 1) / 4; eight peers bear a little more. */
    close_to(accelerated_momentum_max(1), (sqrt(17) - 1) / 4);
    assert_true(accelerated_momentum_max(0.5f) > 0.5f && accelerated_momentum_max(0.5f) < 1);
    assert_true(spread_after(0.5f, 1, 60) < 1e-6);
    assert_true(spread_after(accelerated_momentum_max(1), 1, 200) < 1e-2);
    assert_true(spread_after(0.95f, 1, 200) > 10);
    assert_true(spread_after(accelerated_momentum_max(0.5f), 0.5f, 200) < 1e-2);
}

/* On a ring of eight gossip alone loses 1 - 1/3 (2 - 2 cos 45) of the slowest wave a round, with
 * momentum about sqrt(v w). */
static void momentum_accelerates_gossip_on_a_ring(void **state)
{
    (void)state;
    double w[PEERS][PEERS] = {{0}}, left[2];

    for (int i = 0; i < PEERS; i++) {
        w[i][(i + 1) % PEERS] = w[i][(i + PEERS - 1) % PEERS] = 1.0 / 3;
    }
    for (int k = 0; k < 2; k++) {
        static float x[PEERS][VALUES];
        struct rule *rules[PEERS];

        left[k] = 0;
        for (int i = 0; i < PEERS; i++) {
            rules[i] = create(1, k == 0 ? 0 : 0.4f, 1);
            fill(x[i], (float)cos(2 * 3.14159265358979 * i / PEERS));
        }
        for (int round = 0; round < 20; round++) {
            round_of(rules, x, PEERS, w);
        }
        for (int i = 0; i < PEERS; i++) {
            left[k] = fmax(left[k], fabs((double)x[i][0]));
            ops->destroy(rules[i]);
        }
    }
    assert_true(left[0] > 0.01 && left[0] < 0.02); /* 0.8047^20 */
    assert_true(left[1] < left[0] / 10);
}

/* T1: the pulls of a pair cancel, so the sum of all models stays, whether they meet or part. */
static void pairs_keep_the_sum_of_all_models(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        static float x[PEERS][VALUES];
        struct rule *rules[PEERS];
        double sum = 0, largest = 0;
        struct rng rng;

        rng_init(&rng, 5, 0);
        for (int i = 0; i < PEERS; i++) {
            rules[i] = create(0.7f, k == 0 ? 0.5f : 0.95f, 1);
            fill(x[i], (float)i);
        }
        for (int round = 0; round < 60; round++) {
            uint32_t order[PEERS];

            random_order(&rng, order);
            pairs_of(rules, x, order);
        }
        for (int i = 0; i < PEERS; i++) {
            sum += (double)x[i][3];
            largest = fmax(largest, fabs((double)x[i][3]));
            ops->destroy(rules[i]);
        }
        if (fabs(sum - 28) > 1e-4 * (1 + largest)) fail_msg("T1: the sum became %g", sum);
    }
}

static void a_late_commit_brings_the_others_part_alone(void **state)
{
    (void)state;
    /* Of two neighbours one is in doubt and counts a round later: in the end as if in time. In a
     * pair in doubt nothing changes at first. */
    static float own[VALUES], others[2][VALUES], told[VALUES], late[VALUES], difference[VALUES];
    struct rule_view view = {told, VALUES};
    float came_to[2][2], squared;

    fill(others[0], 3);
    fill(others[1], -1);
    for (int is_late = 0; is_late < 2; is_late++) {
        struct rule *rule = create(0.7f, 0.5f, 0.75f);

        put_state(rule, 2, 0.25f);
        fill(own, 1.5f);
        memcpy(told, own, sizeof told);
        ops->prepare(rule, told, true);
        ops->begin(rule, &view);
        for (uint32_t k = 0; k < 2; k++) {
            assert_int_equal(ops->stage(rule, k, everything, others[k], &squared), RC_OK);
            if (k == 1 && is_late) {
                ops->keep(rule, k, 0.25f, late);
            } else {
                ops->take(rule, k, 0.25f);
            }
        }
        ops->settle(rule, &all, CHUNK, 1, difference);
        if (is_late) {
            rule_commit_late(late, VALUES, &all, CHUNK, 1);
            ops->late(rule, late);
        }
        for (size_t i = 0; i < VALUES; i++) {
            own[i] += difference[i] + (is_late ? late[i] : 0);
        }
        close_to(own[3], (double)state_at(rule, 0, 3));
        came_to[is_late][0] = own[3];
        came_to[is_late][1] = state_at(rule, 1, 3);
        ops->destroy(rule);
    }
    close_to(came_to[1][0], (double)came_to[0][0]);
    close_to(came_to[1][1], (double)came_to[0][1]);
}

static void a_pair_in_doubt_takes_no_step(void **state)
{
    (void)state;
    static float own[VALUES], other[VALUES], difference[VALUES];
    struct rule_view view = {own, VALUES};
    struct rule *rule = create(0.7f, 0.5f, 1), *fresh = create(0.7f, 0.5f, 1);
    const uint8_t first = 1;

    put_state(rule, 2, 0.25f);
    fill(own, 1.5f);
    fill(other, 3.5f);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, other), RC_OK);
    ops->doubt(rule, &all, CHUNK, difference);
    close_to(state_at(rule, 0, 0), 2);
    close_to(state_at(rule, 1, 0), 0.25);
    rule_commit_late(difference, VALUES, &first, CHUNK, 0.5f);
    ops->late(rule, difference);
    close_to(difference[0], 1.5);
    close_to(difference[CHUNK], 0);
    close_to(state_at(rule, 0, 0), 3.5);
    close_to(state_at(rule, 1, 0), 1.25);
    close_to(state_at(rule, 0, CHUNK), 2);
    fill(difference, 1);
    ops->late(fresh, difference); /* without an anchor there is nothing else to move */
    close_to(difference[0], 1);
    ops->destroy(fresh);
    ops->destroy(rule);
}

static void what_was_not_committed_stays(void **state)
{
    (void)state;
    /* A chunk that is not in the bitmap; a round that is cancelled; a model that was replaced. */
    static float own[VALUES], difference[VALUES];
    const float *planes[RULE_STATE_MAX];
    struct rule_view view = {own, VALUES};
    struct rule *rule = create(0.5f, 0.5f, 1);
    const uint8_t first = 1;

    put_state(rule, 2, 0.5f);
    fill(own, 1);
    ops->prepare(rule, own, true);
    close_to(own[0], 1.5);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, own), RC_OK);
    ops->settle(rule, &first, CHUNK, 0.5f, difference);
    close_to(state_at(rule, 1, 0), 0.25 - 0.5);
    close_to(state_at(rule, 0, 0), 1.5 - 0.125);
    close_to(difference[0], 1.375 - 1);
    assert_true(difference[CHUNK] == 0);
    close_to(state_at(rule, 0, CHUNK), 2);
    close_to(state_at(rule, 1, CHUNK), 0.5);
    ops->begin(rule, &view);
    ops->cancel(rule);
    close_to(state_at(rule, 0, CHUNK), 2);
    ops->forget(rule);
    assert_int_equal(ops->state(rule, planes), 0);
    fill(own, 1);
    ops->prepare(rule, own, true); /* nothing to step from: what is told is the model */
    close_to(own[0], 1);
    ops->destroy(rule);
}

/* Running statistics lie behind the parameters: they are mixed, and take no step. */
static void statistics_are_only_mixed(void **state)
{
    (void)state;
    static float own[VALUES], other[VALUES], difference[VALUES];
    struct rule_settings settings = {
        .rate = 0.5f, .momentum = 0.5f, .has_momentum = true, .share = 1, .stepped = CHUNK - 10};
    struct rule_view view = {own, VALUES};
    struct rule *rule = ops->create(VALUES, &settings);

    put_state(rule, 0, 1);
    fill(own, 1);
    fill(other, 3);
    ops->prepare(rule, own, true);
    assert_true(own[CHUNK - 11] == 0.5f && own[CHUNK - 10] == 1);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, other), RC_OK);
    ops->settle(rule, &all, CHUNK, 0.5f, difference);
    close_to(difference[CHUNK - 11], 2.875 - 1); /* z 0.5, y 1.75, u 2.25 */
    for (size_t i = CHUNK - 10; i < VALUES; i++) {
        close_to(difference[i], 1);
        close_to(state_at(rule, 0, i), 2);
    }
    fill(difference, 1);
    ops->late(rule, difference);
    close_to(difference[0], 1.5);
    close_to(difference[VALUES - 1], 1);
    ops->destroy(rule);
}

/* T7: a codec's rounding is told later. What others decode of z is half of it here. */
static void what_a_codec_leaves_out_is_in_the_next_round(void **state)
{
    (void)state;
    static float x[VALUES], told[VALUES], z[VALUES], difference[VALUES];
    struct rule_view view = {told, VALUES};
    struct rule *rule = create(0.5f, 0, 1);

    put_state(rule, 0, 0);
    fill(x, 4);
    memcpy(z, x, sizeof z);
    ops->prepare(rule, z, true);
    fill(told, z[0] / 2);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, told), RC_OK); /* the other is where we are */
    ops->settle(rule, &all, CHUNK, 0.5f, difference);
    for (size_t i = 0; i < VALUES; i++) {
        x[i] += difference[i];
    }
    ops->prepare(rule, x, true);
    close_to(x[0], (double)z[0]);
    ops->destroy(rule);
}

static void an_overflow_does_not_reach_the_model(void **state)
{
    (void)state;
    static float own[VALUES], huge[2][VALUES], difference[VALUES];
    const float *planes[RULE_STATE_MAX] = {huge[0], huge[1]};
    struct rule_view view = {own, VALUES};
    struct rule *rule = create(1, 0.5f, 1);

    put_state(rule, -3e38f, 0);
    fill(own, 3e38f);
    ops->begin(rule, &view);
    assert_int_equal(ops->absorb(rule, everything, 1, own), RC_OK);
    ops->settle(rule, &all, CHUNK, 0.5f, difference);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(difference[i] == 0);
    }
    assert_int_equal(ops->state(rule, planes), 0);
    planes[0] = huge[0];
    planes[1] = huge[1];
    huge[1][3] = INFINITY;
    assert_int_equal(ops->restore(rule, planes, 2), RC_NONFINITE);
    assert_int_equal(ops->restore(rule, planes, 1), RC_SHAPE);
    assert_int_equal(ops->restore(rule, planes, 0), RC_OK);
    ops->destroy(rule);
}

static void short_memory_gives_no_rule(void **state)
{
    (void)state;
    struct rule_settings settings = {.rate = 0.7f, .momentum = 0.5f, .has_momentum = true};
    uint64_t before = mem_blocks();
    struct rule *rule = NULL;

    for (uint64_t n = 0; rule == NULL; n++) {
        mem_fail_after(n);
        rule = ops->create(VALUES, &settings);
        mem_fail_after(UINT64_MAX);
        if (rule == NULL) assert_int_equal(mem_blocks(), before);
        assert_true(n < 20);
    }
    ops->destroy(rule);
    assert_int_equal(mem_blocks(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_pair_steps_from_what_it_agrees_on),
        cmocka_unit_test(it_is_the_equation_with_both_iterates),
        cmocka_unit_test(in_a_group_of_all_it_is_dilocos_step),
        cmocka_unit_test(random_pairs_bear_momentum_below_a_limit),
        cmocka_unit_test(momentum_accelerates_gossip_on_a_ring),
        cmocka_unit_test(pairs_keep_the_sum_of_all_models),
        cmocka_unit_test(a_late_commit_brings_the_others_part_alone),
        cmocka_unit_test(a_pair_in_doubt_takes_no_step),
        cmocka_unit_test(what_was_not_committed_stays),
        cmocka_unit_test(statistics_are_only_mixed),
        cmocka_unit_test(what_a_codec_leaves_out_is_in_the_next_round),
        cmocka_unit_test(an_overflow_does_not_reach_the_model),
        cmocka_unit_test(short_memory_gives_no_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
