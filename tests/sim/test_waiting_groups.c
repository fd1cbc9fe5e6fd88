/*
 * Where training waits for groups, a round without one of its members is not the published step:
 * `allreduce` is gradient descent on the data of all, and stays so while peers stumble, as peers do
 * that share cores. Who is frozen, or always slower, costs the others a few paces once.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/rng.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { PEERS = 8, VALUES = 100, STEPS = 60 };
#define STEP_NS (500 * NS_PER_MS)

static const double rate = 0.05;

/* What peers have before each of their steps. */
static struct {
    struct spy spy;
    double first[VALUES], optimum[VALUES]; /* of all models; of the mean of what they minimise */
    uint64_t steps[PEERS];
    double worst; /* of any value of any peer, off what descent on the mean has after as many */
} seen;

static enum rc spy_train(struct learner *learner, uint32_t steps, const atomic_bool *must_stop,
                         struct train_report *report)
{
    const uint32_t peer = spy_number(&seen.spy, learner);
    const struct learner_ops *ops = &seen.spy.originals;
    double left = pow(1 - rate, (double)seen.steps[peer]);
    float x[VALUES];
    enum rc rc = ops->export_section(learner, SECTION_PARAMETERS, x, VALUES);

    for (size_t k = 0; k < VALUES && rc == RC_OK; k++) {
        double expected = seen.optimum[k] + left * (seen.first[k] - seen.optimum[k]);

        seen.worst = fmax(seen.worst, fabs((double)x[k] - expected));
    }
    if (rc == RC_OK) rc = ops->train(learner, steps, must_stop, report);
    if (rc == RC_OK) seen.steps[peer] += report->steps;
    return rc;
}

/* With centres far apart: single steps are long and cancel only in the mean of all. */
static struct learner *unlike_learner(void *context, uint32_t peer)
{
    const struct quadratic_options options = {.values = VALUES,
                                              .curvature = 1,
                                              .learning_rate = rate,
                                              .seed = 1,
                                              .stream_seed = peer,
                                              .centre_spread = 10};
    struct learner *learner;
    float x[VALUES];

    (void)context;
    assert_int_equal(quadratic_create(&options, &learner), RC_OK);
    assert_int_equal(learner->ops->export_section(learner, SECTION_PARAMETERS, x, VALUES), RC_OK);
    for (size_t k = 0; k < VALUES; k++) {
        seen.first[k] = (double)x[k];
        seen.optimum[k] += (double)quadratic_centre(learner)[k] / PEERS;
    }
    spy_on(&seen.spy, peer, learner);
    seen.spy.ops.train = spy_train;
    return learner;
}

static struct cluster *create(uint64_t seed, const double *speeds)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = seed,
                                            .averaging = "allreduce",
                                            .latency_ns = NS_PER_MS,
                                            .values = VALUES,
                                            .step_cost_ns = STEP_NS,
                                            .speeds = speeds,
                                            .start_with = PEERS,
                                            .learner = unlike_learner};
    struct cluster *cluster = cluster_create(&options);

    memset(&seen, 0, sizeof seen);
    swarm_start(cluster, PEERS);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    return cluster;
}

static uint64_t fewest_steps(void)
{
    uint64_t fewest = UINT64_MAX;

    for (uint32_t i = 0; i < PEERS; i++) {
        if (seen.steps[i] < fewest) fewest = seen.steps[i];
    }
    return fewest;
}

/* One after the other, never one twice in a row, stands still for up to two steps.
 * Returns which did. */
static uint32_t stumble(struct cluster *cluster, struct rng *rng, uint32_t before)
{
    uint32_t peer = (before + 1 + (uint32_t)rng_below(rng, PEERS - 1)) % PEERS;

    cluster_run(cluster, rng_below(rng, 2 * STEP_NS));
    sim_host_freeze(cluster_world(cluster), peer + 1, true); /* hosts count from 1 */
    cluster_run(cluster, rng_below(rng, 2 * STEP_NS));
    sim_host_freeze(cluster_world(cluster), peer + 1, false);
    return peer;
}

static void stumbling_peers_descend_as_one(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 5) {
        struct cluster *cluster = create(seed, NULL);
        uint32_t peer = 0;
        struct rng rng;

        rng_init(&rng, seed, 1);
        while (fewest_steps() < STEPS) {
            peer = stumble(cluster, &rng, peer);
        }
        printf("seed %llu: off descent on the data of all by %g at most\n",
               (unsigned long long)seed, seen.worst);
        check_seed(seed, seen.worst < 1e-4);
        cluster_destroy(cluster);
    }
}

/* Of the others, from now on. */
static uint64_t steps_within(struct cluster *cluster, uint64_t time_ns)
{
    uint64_t before = seen.steps[0];

    cluster_run(cluster, time_ns);
    return seen.steps[0] - before;
}

static void a_frozen_member_costs_a_few_paces_once(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 5) {
        struct cluster *cluster = create(seed, NULL);
        uint64_t steps;

        cluster_run(cluster, 20 * NS_PER_S);
        steps = steps_within(cluster, 30 * NS_PER_S);
        sim_host_freeze(cluster_world(cluster), PEERS, true);
        printf("seed %llu: in 30 s %llu steps, ", (unsigned long long)seed,
               (unsigned long long)steps);
        steps -= steps_within(cluster, 30 * NS_PER_S);
        printf("%llu fewer with one frozen\n", (unsigned long long)steps);
        check_seed(seed, steps <= 10);
        cluster_destroy(cluster);
    }
}

/* Half as quick it is waited for as any: its window is learned. Slower ones use up their slack. */
static void a_slow_member_is_not_waited_for_again_and_again(void **state)
{
    static const double slow[] = {0.5, 0.4, 0.3, 0.2, 0.1};

    (void)state;
    FOR_EACH_SEED (seed, 3) {
        for (size_t i = 0; i < ARRAY_COUNT(slow); i++) {
            double speeds[PEERS] = {1, 1, 1, 1, 1, 1, 1, slow[i]};
            struct cluster *cluster = create(seed, speeds);
            uint64_t steps;

            cluster_run(cluster, 60 * NS_PER_S);
            steps = steps_within(cluster, 120 * NS_PER_S);
            printf("seed %llu: beside one of speed %.1f %llu steps in 120 s\n",
                   (unsigned long long)seed, slow[i], (unsigned long long)steps);
            check_seed(seed, steps >= (i == 0 ? 115 : 150));
            cluster_destroy(cluster);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stumbling_peers_descend_as_one),
        cmocka_unit_test(a_frozen_member_costs_a_few_paces_once),
        cmocka_unit_test(a_slow_member_is_not_waited_for_again_and_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
