/*
 * Of the rounds that are due, how many come about where training goes on beside them: peers of the
 * same or nearly the same speed, whose steps take now longer and now shorter and who stop for
 * evaluations. A round is due each PERIOD steps of a peer. Where periods are long, peers that begin
 * out of phase come to their first rounds long after each other, and must meet all the same. Each
 * scene prints its share. SEEDS=N: of so many seeds.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "tests/sim/swarm.h"

enum { PEERS_MAX = 4, PERIOD = 16, LONG_PERIOD = 100, MEET_PERIODS = 4, WATCH_PERIODS = 20 };
#define STEP_NS   (50 * NS_PER_MS)
#define SLICE_NS  (25 * NS_PER_MS)
#define REPORT_NS (3 * NS_PER_S)
#define WARM_NS   (10 * NS_PER_S)
#define WATCH_NS  (120 * NS_PER_S)

struct scene {
    const char *name;
    uint32_t peers;
    double speeds[PEERS_MAX];
    double jitter; /* a step takes up to so much of itself longer */
    uint64_t evaluate_ns;
    double least;         /* share of the rounds due */
    const char *topology; /* of moshpit; NULL: local-sgd */
};

/* Steps of all, and rounds of all. */
static void count(struct cluster *cluster, const struct scene *scene, uint64_t *steps,
                  uint64_t *rounds)
{
    *steps = *rounds = 0;
    for (uint32_t i = 0; i < scene->peers; i++) {
        struct node_report report = swarm_report(cluster, i);

        *steps += report.samples; /* of one sample each */
        *rounds += report.rounds_ok;
    }
}

static void run(struct cluster *cluster, const struct scene *scene, struct rng *rng,
                uint64_t duration_ns)
{
    for (uint64_t ns = 0; ns < duration_ns; ns += SLICE_NS) {
        for (uint32_t i = 0; i < scene->peers; i++) {
            double longer = scene->jitter * rng_unit(rng);

            sim_host_faults(cluster_world(cluster), i + 1)->slow =
                1.0 + longer; /* hosts count from 1 */
        }
        cluster_run(cluster, SLICE_NS);
    }
}

static double share_of(const struct scene *scene, uint64_t seed)
{
    struct cluster_options options = {.peers = scene->peers,
                                      .seed = seed,
                                      .start_with = scene->peers,
                                      .latency_ns = NS_PER_MS / 20,
                                      .jitter_ns = NS_PER_MS / 10,
                                      .bytes_per_s = UINT64_C(1000000000),
                                      .step_cost_ns = STEP_NS,
                                      .speeds = scene->speeds,
                                      .report_every_ns = REPORT_NS,
                                      .evaluate_cost_ns = scene->evaluate_ns,
                                      .averaging = scene->topology == NULL ? "local-sgd:H=16"
                                                                           : "moshpit:H=16",
                                      .topology = scene->topology};
    struct cluster *cluster = cluster_create(&options);
    uint64_t steps, rounds, steps_before, rounds_before;
    struct rng rng;

    rng_init(&rng, seed, 1);
    swarm_start(cluster, scene->peers);
    run(cluster, scene, &rng, WARM_NS);
    count(cluster, scene, &steps_before, &rounds_before);
    run(cluster, scene, &rng, WATCH_NS);
    count(cluster, scene, &steps, &rounds);
    cluster_destroy(cluster);
    printf("  %-40s %4.0f steps, %5.1f rounds a peer of %5.1f due: %.3f\n", scene->name,
           (double)(steps - steps_before) / scene->peers,
           (double)(rounds - rounds_before) / scene->peers,
           (double)(steps - steps_before) / scene->peers / PERIOD,
           (double)(rounds - rounds_before) * PERIOD / (double)(steps - steps_before));
    return (double)(rounds - rounds_before) * PERIOD / (double)(steps - steps_before);
}

static void nearly_all_rounds_that_are_due_come_about(void **state)
{
    static const struct scene scenes[] = {
        {"two alike", 2, {1, 1}, 0, 0, 0.97, NULL},
        {"two, uneven steps", 2, {1, 1}, 0.3, 0, 0.95, NULL},
        {"one 4 % slower", 2, {1, 0.96}, 0.3, 0, 0.93, NULL},
        {"two, long evaluations", 2, {1, 1}, 0.3, 1800 * NS_PER_MS, 0.95, NULL},
        {"one 4 % slower, long evaluations", 2, {1, 0.96}, 0.3, 1800 * NS_PER_MS, 0.9, NULL},
        {"two, short evaluations", 2, {1, 1}, 0.3, 400 * NS_PER_MS, 0.95, NULL},
        {"four, long evaluations", 4, {1, 1, 0.97, 1}, 0.3, 1800 * NS_PER_MS, 0.8, NULL},
        {"four in a grid, long evaluations",
         4,
         {1, 1, 0.97, 1},
         0.3,
         1800 * NS_PER_MS,
         0.75,
         "grid:2"},
    };
    uint64_t seeds = getenv("SEEDS") == NULL ? 1 : strtoull(getenv("SEEDS"), NULL, 10);
    bool is_kept = true;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(scenes); i++) {
        for (uint64_t seed = 0; seed < seeds; seed++) {
            is_kept = share_of(&scenes[i], seed_first() + seed) >= scenes[i].least && is_kept;
        }
    }
    assert_true(is_kept);
}

/* ---- long periods, out of phase ---- */

struct apart {
    const char *name;
    uint32_t peers;
    uint64_t step_ns;
    double late[PEERS_MAX]; /* parts of a period by which each comes later to its first round */
    double jitter;
    double least;
};

/* Their first steps take longer: for the time of one period. */
static void run_apart(struct cluster *cluster, const struct apart *apart)
{
    uint64_t period_ns = LONG_PERIOD * apart->step_ns;

    for (uint32_t i = 0; i < apart->peers; i++) {
        sim_host_faults(cluster_world(cluster), i + 1)->slow = 1.0 / (1.0 - apart->late[i]);
    }
    cluster_run(cluster, period_ns);
}

static bool meet_and_go_on(const struct apart *apart, uint64_t seed)
{
    static const double alike[PEERS_MAX] = {1, 1, 1, 1};
    const struct scene scene = {.peers = apart->peers, .jitter = apart->jitter};
    struct cluster_options options = {.peers = apart->peers,
                                      .seed = seed,
                                      .start_with = apart->peers,
                                      .latency_ns = NS_PER_MS / 20,
                                      .jitter_ns = NS_PER_MS / 10,
                                      .bytes_per_s = UINT64_C(1000000000),
                                      .step_cost_ns = apart->step_ns,
                                      .speeds = alike,
                                      .report_every_ns = 10 * NS_PER_S,
                                      .averaging = "local-sgd:H=100"};
    struct cluster *cluster = cluster_create(&options);
    uint64_t period_ns = LONG_PERIOD * apart->step_ns;
    uint64_t steps, rounds, steps_before, rounds_before;
    bool have_met = true;
    struct rng rng;
    double share;

    rng_init(&rng, seed, 1);
    swarm_start(cluster, apart->peers);
    run_apart(cluster, apart);
    run(cluster, &scene, &rng, (MEET_PERIODS - 1) * period_ns);
    for (uint32_t i = 0; i < apart->peers; i++) {
        have_met = have_met && swarm_report(cluster, i).rounds_ok > 0;
    }
    count(cluster, &scene, &steps_before, &rounds_before);
    run(cluster, &scene, &rng, WATCH_PERIODS * period_ns);
    count(cluster, &scene, &steps, &rounds);
    cluster_destroy(cluster);
    share = (double)(rounds - rounds_before) * LONG_PERIOD / (double)(steps - steps_before);
    printf("  %-40s %s, then %.3f of the rounds due\n", apart->name,
           have_met ? "all have met" : "NOT all have met", share);
    return have_met && share >= apart->least;
}

static void peers_with_long_periods_meet_however_they_begin(void **state)
{
    static const struct apart scenes[] = {
        {"5 s, two, half a period", 2, 50 * NS_PER_MS, {0, 0.5}, 0.1, 0.95},
        {"5 s, two, two thirds", 2, 50 * NS_PER_MS, {2.0 / 3, 0}, 0.1, 0.95},
        {"5 s, three, half and a third", 3, 50 * NS_PER_MS, {0, 0.5, 1.0 / 3}, 0.1, 0.95},
        {"25 s, two, half a period", 2, 250 * NS_PER_MS, {0, 0.5}, 0.1, 0.95},
        {"25 s, two, two thirds", 2, 250 * NS_PER_MS, {2.0 / 3, 0}, 0.1, 0.95},
        {"25 s, three, half and a third", 3, 250 * NS_PER_MS, {0, 0.5, 1.0 / 3}, 0.1, 0.95},
        {"25 s, three, two thirds and 0.85", 3, 250 * NS_PER_MS, {0, 2.0 / 3, 0.85}, 0.1, 0.95},
        {"25 s, four, all apart", 4, 250 * NS_PER_MS, {0.75, 0.25, 0, 0.5}, 0.1, 0.95},
    };
    uint64_t seeds = getenv("SEEDS") == NULL ? 1 : strtoull(getenv("SEEDS"), NULL, 10);
    bool is_kept = true;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(scenes); i++) {
        for (uint64_t seed = 0; seed < seeds; seed++) {
            is_kept = meet_and_go_on(&scenes[i], seed_first() + seed) && is_kept;
        }
    }
    assert_true(is_kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nearly_all_rounds_that_are_due_come_about),
        cmocka_unit_test(peers_with_long_periods_meet_however_they_begin),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
