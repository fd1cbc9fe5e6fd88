/*
 * Where rounds of neighbours stop to hold, and how far apart noise keeps peers that do: what the
 * theory says of a graph, against the rules themselves. Eight peers, each with a plane of VALUES
 * numbers that have nothing to do with each other, so that each is a swarm of its own.
 */
#include "tests/check.h"

#include "averaging/rule/rule.h"
#include "base/rng.h"
#include "gossip/overlay/graph.h"

#include <math.h>

enum { PEERS = 8, VALUES = 256 };

struct swarm {
    const struct rule_ops *ops;
    struct rule *rules[PEERS];
    uint32_t neighbours[PEERS][PEERS], counts[PEERS];
    double weights[PEERS][PEERS]; /* Metropolis */
    float x[PEERS][VALUES], told[PEERS][VALUES];
};

static void swarm_init(struct swarm *swarm, const struct rule_ops *ops, enum topology_kind kind)
{
    struct topology topology = {.kind = kind};
    struct peer_id ids[PEERS];
    static struct graph_row row;
    struct rng rng;

    *swarm = (struct swarm){.ops = ops};
    memset(ids, 0, sizeof ids);
    rng_init(&rng, 3, 4);
    for (uint32_t i = 0; i < PEERS; i++) {
        ids[i].bytes[0] = (uint8_t)(i + 1);
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        struct graph_members members = {.ids = ids, .count = PEERS, .self = i};

        assert_int_equal(graph_row(&topology, &members, &row), RC_OK);
        swarm->counts[i] = row.count;
        for (uint32_t k = 0; k < row.count; k++) {
            swarm->neighbours[i][k] = row.edges[k].member;
            swarm->weights[i][k] = (double)row.edges[k].weight;
        }
        swarm->rules[i] = ops->create(VALUES, NULL);
        assert_non_null(swarm->rules[i]);
        for (size_t v = 0; v < VALUES; v++) {
            swarm->x[i][v] = (float)rng_normal(&rng);
        }
    }
}

static void swarm_deinit(struct swarm *swarm)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        swarm->ops->destroy(swarm->rules[i]);
    }
}

/* Every edge at once: by `alpha`, or if that is 0 by `share` of its weight. */
static void mix(struct swarm *swarm, double alpha, double share)
{
    static const uint8_t all[VALUES / RULE_GRAIN / 8 + 1] = {0xff};
    const struct rule_ops *ops = swarm->ops;
    float difference[VALUES], squared;

    for (uint32_t i = 0; i < PEERS; i++) {
        memcpy(swarm->told[i], swarm->x[i], sizeof swarm->told[i]);
        if (ops->prepare != NULL) ops->prepare(swarm->rules[i], swarm->told[i], true);
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        struct rule_view view = {swarm->told[i], VALUES};

        ops->begin(swarm->rules[i], &view);
        for (uint32_t k = 0; k < swarm->counts[i]; k++) {
            const float *theirs = swarm->told[swarm->neighbours[i][k]];
            double weight = alpha > 0 ? alpha : share * swarm->weights[i][k];

            assert_int_equal(
                ops->stage(swarm->rules[i], 0, (struct range){0, VALUES}, theirs, &squared), RC_OK);
            ops->take(swarm->rules[i], 0, (float)weight);
        }
        ops->settle(swarm->rules[i], all, RULE_GRAIN, 1, difference);
        for (size_t v = 0; v < VALUES; v++) {
            swarm->x[i][v] += difference[v];
        }
    }
}

/* Mean square distance from the mean, a value. */
static double spread(const struct swarm *swarm)
{
    double sum = 0;

    for (size_t v = 0; v < VALUES; v++) {
        double mean = 0;

        for (uint32_t i = 0; i < PEERS; i++) {
            mean += (double)swarm->x[i][v] / PEERS;
        }
        for (uint32_t i = 0; i < PEERS; i++) {
            double apart = (double)swarm->x[i][v] - mean;

            sum += apart * apart / PEERS / VALUES;
        }
    }
    return sum;
}

static double springs(enum topology_kind kind, double alpha)
{
    static struct swarm swarm;
    double before;

    swarm_init(&swarm, &rule_mean, kind);
    before = spread(&swarm);
    for (int round = 0; round < 60; round++) {
        mix(&swarm, alpha, 0);
    }
    before = spread(&swarm) / before;
    swarm_deinit(&swarm);
    return before;
}

/* Springs hold below 2 / lambda_max of the graph's Laplacian: 1/2 on a ring of eight, 1/3 on a
 * cube, 1/4 between all. Five hundredths on either side, over 60 rounds. */
static void springs_hold_below_their_limit_and_not_above(void **state)
{
    (void)state;
    static const struct {
        enum topology_kind kind;
        double limit;
    } graphs[] = {{TOPOLOGY_RING, 0.5}, {TOPOLOGY_HYPERCUBE, 1.0 / 3}, {TOPOLOGY_COMPLETE, 0.25}};

    for (size_t i = 0; i < sizeof graphs / sizeof graphs[0]; i++) {
        double inside = springs(graphs[i].kind, 0.95 * graphs[i].limit);
        double outside = springs(graphs[i].kind, 1.05 * graphs[i].limit);

        if (!(inside < 1e-2 && outside > 1e2)) {
            fail_msg("limit %g: %g inside, %g outside", graphs[i].limit, inside, outside);
        }
    }
}

static double d2(enum topology_kind kind, double share)
{
    static struct swarm swarm;
    double left = 0;

    swarm_init(&swarm, &rule_exact_diffusion, kind);
    for (int round = 0; round < 200 && left < 1e6; round++) {
        for (uint32_t i = 0; i < PEERS; i++) { /* f_i = (x - i)^2 / 2 */
            for (size_t v = 0; v < VALUES; v++) {
                swarm.x[i][v] -= 0.1f * (swarm.x[i][v] - (float)i);
            }
        }
        mix(&swarm, 0, share);
        left = spread(&swarm);
    }
    swarm_deinit(&swarm);
    return left;
}

/* Exact diffusion wants eigenvalues above -1/3; a cube's Metropolis weights have -1/2. With half of
 * the weights, as `d2` takes them, there is none below 0. */
static void d2_wants_half_of_the_weights(void **state)
{
    (void)state;
    double half = d2(TOPOLOGY_HYPERCUBE, 0.5), whole = d2(TOPOLOGY_HYPERCUBE, 1);

    if (!(half < 1e-6 && !(whole < 1e3))) fail_msg("%g with half, %g with all", half, whole);
}

/* White noise of variance 1 in every gradient, rate 0.1, ring of eight: what is left between peers
 * is (rate^2 / n) times the sum of lambda^2 / (1 - lambda^2) over all eigenvalues but the first
 * where they step before they mix, of 1 / (1 - lambda^2) where they step after. */
static void noise_keeps_peers_as_far_apart_as_the_spectrum_says(void **state)
{
    (void)state;
    static struct swarm swarm;
    double before_mixing = 0, after_mixing = 0, wanted_atc = 0, wanted_cta = 0;
    enum { WARM = 100, ROUNDS = 300 };
    struct rng rng;

    rng_init(&rng, 1, 2);
    for (int k = 1; k < PEERS; k++) {
        double lambda = (1 + 2 * cos(2 * 3.14159265358979 * k / PEERS)) / 3;

        wanted_atc += 0.01 / PEERS * lambda * lambda / (1 - lambda * lambda);
        wanted_cta += 0.01 / PEERS / (1 - lambda * lambda);
    }
    swarm_init(&swarm, &rule_mean, TOPOLOGY_RING);
    for (int round = 0; round < WARM + ROUNDS; round++) {
        for (uint32_t i = 0; i < PEERS; i++) {
            for (size_t v = 0; v < VALUES; v++) {
                swarm.x[i][v] -= 0.1f * (float)rng_normal(&rng);
            }
        }
        if (round >= WARM) before_mixing += spread(&swarm) / ROUNDS;
        mix(&swarm, 0, 1);
        if (round >= WARM) after_mixing += spread(&swarm) / ROUNDS;
    }
    swarm_deinit(&swarm);
    assert_true(fabs(wanted_atc - 0.00511) < 1e-5 && fabs(wanted_cta - 0.01386) < 1e-5);
    if (fabs(after_mixing / wanted_atc - 1) > 0.05 || fabs(before_mixing / wanted_cta - 1) > 0.05) {
        fail_msg("%g and %g, not %g and %g", after_mixing, before_mixing, wanted_atc, wanted_cta);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(springs_hold_below_their_limit_and_not_above),
        cmocka_unit_test(d2_wants_half_of_the_weights),
        cmocka_unit_test(noise_keeps_peers_as_far_apart_as_the_spectrum_says),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
