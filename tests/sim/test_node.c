/* Complete peers in the simulated world: forming, averaging, dying, coming back. */
#include "tests/check.h"

#include "base/bytes.h"
#include "tests/sim/swarm.h"

#include <math.h>

static struct cluster *started(const struct cluster_options *options)
{
    struct cluster *cluster = cluster_create(options);

    swarm_start(cluster, options->peers);
    return cluster;
}

/* Peers that join through the first one are all linked with each other and train. */
static void four_peers_become_one_swarm(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 4, .seed = seed, .latency_ns = NS_PER_MS};
        struct cluster *cluster = started(&options);

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

/* Sixteen peers started in any order, the first address of every list dead in half of the runs,
 * always form one swarm. */
static void a_cold_start_in_any_order_forms_one_swarm(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 17, .seed = seed, .latency_ns = NS_PER_MS};
        struct cluster *cluster = cluster_create(&options);
        uint32_t order[16], bootstrap[2] = {16, 0}; /* number 16 is never started */
        struct rng rng;

        rng_init(&rng, seed, 1);
        for (uint32_t i = 0; i < 16; i++) {
            order[i] = i;
        }
        rng_shuffle(&rng, order, 16);
        if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
        for (uint32_t i = 0; i < 16; i++) {
            bool is_dead_first = seed % 2 == 0;

            cluster_start(cluster, order[i], is_dead_first ? bootstrap : bootstrap + 1,
                          is_dead_first ? 2 : 1);
            cluster_run(cluster, rng_below(&rng, 300) * NS_PER_MS);
        }
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

/* `--start-with`: no step is taken before so many are linked; who comes back later does not wait.
 */
static void training_begins_when_enough_are_there(void **state)
{
    const uint32_t first = 0;

    (void)state;
    FOR_EACH_SEED (seed, 5) {
        struct cluster_options options = {
            .peers = 3, .seed = seed, .latency_ns = NS_PER_MS, .start_with = 3};
        struct cluster *cluster = cluster_create(&options);

        cluster_start(cluster, 0, &first, 0);
        cluster_start(cluster, 1, &first, 1);
        cluster_run(cluster, 20 * NS_PER_S);
        check_seed(seed, node_step(cluster_node(cluster, 0)) == 0);
        check_seed(seed, node_step(cluster_node(cluster, 1)) == 0);
        cluster_start(cluster, 2, &first, 1);
        cluster_run(cluster, 5 * NS_PER_S);
        for (uint32_t i = 0; i < 3; i++) {
            check_seed(seed, node_step(cluster_node(cluster, i)) > 100);
        }
        cluster_crash(cluster, 2);
        cluster_crash(cluster, 1);
        cluster_run(cluster, 5 * NS_PER_S);
        check_seed(seed, node_step(cluster_node(cluster, 0)) > 600);
        cluster_destroy(cluster);
    }
}

/* Who begins first may have finished before the last has seen all others: it does not wait for
 * ever. */
static void nobody_misses_the_beginning(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 12) {
        struct cluster_options options = {.peers = 4,
                                          .seed = seed,
                                          .latency_ns = 5 * NS_PER_MS,
                                          .steps = 20,
                                          .step_cost_ns = NS_PER_MS / 2,
                                          .start_with = 4};
        struct cluster *cluster = started(&options);

        check_seed(seed, cluster_run_until(cluster, cluster_is_done, NULL, 60 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

static void put_apart(struct cluster *cluster, uint32_t peers, size_t values)
{
    float *plane = malloc(values * sizeof *plane);

    for (uint32_t i = 0; i < peers; i++) {
        for (size_t k = 0; k < values; k++) {
            plane[k] = (float)(i + 1) + (float)(k % 7) * 0.125f;
        }
        cluster_assign(cluster, i, plane);
    }
    free(plane);
}

/* Without training, group rounds bring all peers to the mean they began with. */
static void group_rounds_reach_the_mean(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 5,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 70000,
                                          .step_cost_ns = 100 * NS_PER_MS,
                                          .is_quiet = true,
                                          .averaging = "local-sgd:H=4"};
        struct cluster *cluster = started(&options);
        double before, after;

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        put_apart(cluster, options.peers, options.values);
        before = cluster_mean(cluster);
        cluster_run(cluster, 5 * NS_PER_S);
        after = cluster_mean(cluster);
        check_seed(seed, cluster_distance(cluster) < 1e-3);
        check_seed(seed, fabs(after - before) < 1e-4 * fabs(before));
        cluster_destroy(cluster);
    }
}

/* Pair rounds keep the mean too, and peers come together. */
static void pair_rounds_keep_the_mean_and_contract(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 6,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 33000,
                                          .step_cost_ns = 100 * NS_PER_MS,
                                          .is_quiet = true,
                                          .exchange = "pair",
                                          .averaging = "local-sgd:H=4"};
        struct cluster *cluster = started(&options);
        double before, distance;

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        put_apart(cluster, options.peers, options.values);
        before = cluster_mean(cluster);
        distance = cluster_distance(cluster);
        cluster_run(cluster, 20 * NS_PER_S);
        check_seed(seed, cluster_distance(cluster) < 0.05 * distance);
        check_seed(seed, fabs(cluster_mean(cluster) - before) < 1e-3 * fabs(before));
        cluster_destroy(cluster);
    }
}

/* With codecs that lose something, peers still come together: to what a byte or seven bits of a
 * value can tell apart, and about where they would have met. */
static void lossy_codecs_bring_peers_together_too(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 8) {
        bool is_int8 = seed % 2 == 0, is_pair = seed % 4 < 2;
        struct cluster_options options = {.peers = 4,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 70000,
                                          .step_cost_ns = 100 * NS_PER_MS,
                                          .is_quiet = true,
                                          .codec = is_int8 ? "int8" : "bf16",
                                          .exchange = is_pair ? "pair" : "group",
                                          .averaging = "local-sgd:H=4"};
        struct cluster *cluster = started(&options);
        double before, distance;

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        put_apart(cluster, options.peers, options.values);
        before = cluster_mean(cluster);
        distance = cluster_distance(cluster);
        cluster_run(cluster, 20 * NS_PER_S);
        check_seed(seed, cluster_distance(cluster) < 0.05 * distance);
        check_seed(seed, fabs(cluster_mean(cluster) - before) < 0.01 * fabs(before));
        cluster_destroy(cluster);
    }
}

/* Any peer may die at any moment, the first included: the others reach their goal. */
static void the_others_finish_when_one_is_killed(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct cluster_options options = {.peers = 4,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 33000,
                                          .step_cost_ns = 50 * NS_PER_MS,
                                          .steps = 100,
                                          .noise = 0.1,
                                          .averaging = "local-sgd:H=8",
                                          .exchange = seed % 2 == 0 ? "pair" : "group"};
        struct cluster *cluster = started(&options);
        uint32_t victim = (uint32_t)(seed % 4);
        struct rng rng;

        rng_init(&rng, seed, 2);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        cluster_run(cluster, NS_PER_S + rng_below(&rng, 2000) * NS_PER_MS);
        cluster_crash(cluster, victim);
        check_seed(seed, cluster_run_until(cluster, cluster_is_done, NULL, 120 * NS_PER_S));
        for (uint32_t i = 0; i < 4; i++) {
            const struct node_result *result = cluster_result(cluster, i);

            if (i == victim) continue;
            check_seed(seed, result != NULL && result->rc == RC_OK && result->is_goal_reached);
        }
        cluster_destroy(cluster);
    }
}

/* A killed peer started again goes on from its checkpoint and rejoins through another peer. */
static void a_restarted_peer_resumes_and_rejoins(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {
            .peers = 4, .seed = seed, .latency_ns = NS_PER_MS, .values = 2000, .noise = 0.1};
        struct cluster *cluster = started(&options);
        uint32_t through = 2;
        uint64_t step;

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        cluster_run(cluster, 12 * NS_PER_S);
        step = node_step(cluster_node(cluster, 0));
        check_seed(seed, step > 500);
        cluster_crash(cluster, 0);
        cluster_run(cluster, NS_PER_S);
        cluster_start(cluster, 0, &through, 1);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 15 * NS_PER_S));
        check_seed(seed, node_step(cluster_node(cluster, 0)) > step / 2);
        cluster_destroy(cluster);
    }
}

/* Unrelated models are never averaged: that which fewer hold gives way. */
static void an_unrelated_model_gives_way(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 3,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 33000,
                                          .step_cost_ns = 50 * NS_PER_MS};
        struct cluster *cluster = cluster_create(&options);
        uint32_t first = 0;

        cluster_set_model_seed(cluster, 2, 777);
        cluster_start(cluster, 0, NULL, 0);
        cluster_start(cluster, 1, &first, 1);
        cluster_run(cluster, 3 * NS_PER_S);
        cluster_start(cluster, 2, &first, 1);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        check_seed(seed, digest_is_equal(node_lineage(cluster_node(cluster, 2)),
                                         node_lineage(cluster_node(cluster, 0))));
        cluster_destroy(cluster);
    }
}

/* A NaN in a local model is never sent: the peer rolls back and all models stay finite. */
static void a_local_nan_is_rolled_back_and_never_sent(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 3,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 5000,
                                          .averaging = "local-sgd:H=4"};
        struct cluster *cluster = started(&options);
        float *plane = malloc(options.values * sizeof *plane);

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        cluster_run(cluster, 2 * NS_PER_S);
        cluster_plane(cluster, 1, plane);
        plane[4321] = NAN;
        cluster_assign(cluster, 1, plane);
        cluster_run(cluster, 5 * NS_PER_S);
        for (uint32_t i = 0; i < options.peers; i++) {
            cluster_plane(cluster, i, plane);
            for (size_t k = 0; k < options.values; k++) {
                check_seed(seed, isfinite(plane[k]));
            }
        }
        check_seed(seed, cluster_is_whole(cluster, NULL));
        free(plane);
        cluster_destroy(cluster);
    }
}

static bool is_down(struct cluster *cluster, void *context)
{
    return !cluster_is_up(cluster, *(uint32_t *)context);
}

/* Asked to stop, a peer says goodbye and ends within a second; the others go on. */
static void a_stopped_peer_ends_within_a_second(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 3, .seed = seed, .latency_ns = NS_PER_MS};
        struct cluster *cluster = started(&options);
        uint32_t stopped = 1;

        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        cluster_stop(cluster, stopped);
        check_seed(seed, cluster_run_until(cluster, is_down, &stopped, NS_PER_S));
        check_seed(seed, cluster_result(cluster, stopped)->rc == RC_OK);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 2 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

/* Equal seeds give equal runs, event by event. */
static void equal_seeds_give_equal_runs(void **state)
{
    uint64_t traces[2] = {0, 0};

    (void)state;
    for (int i = 0; i < 2; i++) {
        struct cluster_options options = {
            .peers = 4, .seed = 5, .latency_ns = NS_PER_MS, .jitter_ns = NS_PER_MS, .noise = 0.1};
        struct cluster *cluster = started(&options);

        cluster_run(cluster, 8 * NS_PER_S);
        cluster_crash(cluster, 2);
        cluster_run(cluster, 4 * NS_PER_S);
        traces[i] = sim_trace(cluster_world(cluster));
        cluster_destroy(cluster);
    }
    assert_true(traces[0] == traces[1]);
}

/* Where no goal hangs on it, evaluation takes about a fiftieth of the time, however long one is, in
 * a group, too, where one peer's moves another's; otherwise there is one with each report. */
static void evaluation_leaves_the_time_to_training(void **state)
{
    (void)state;
    for (uint32_t peers = 1; peers <= 3; peers += 2) {
        for (int is_sparing = 0; is_sparing <= 1; is_sparing++) {
            struct cluster_options options = {.peers = peers,
                                              .seed = 1,
                                              .latency_ns = NS_PER_MS,
                                              .step_cost_ns = NS_PER_S / 10,
                                              .report_every_ns = 5 * NS_PER_S,
                                              .evaluate_cost_ns = NS_PER_S,
                                              .evaluates_sparingly = is_sparing == 1};
            struct cluster *cluster = started(&options);

            cluster_run(cluster, 500 * NS_PER_S);
            for (uint32_t i = 0; i < peers; i++) {
                double share = swarm_report(cluster, i).evaluation_s / 500;

                assert_true(is_sparing ? share >= 0.015 && share <= 0.026 : share >= 0.15);
            }
            cluster_destroy(cluster);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(four_peers_become_one_swarm),
        cmocka_unit_test(a_cold_start_in_any_order_forms_one_swarm),
        cmocka_unit_test(training_begins_when_enough_are_there),
        cmocka_unit_test(nobody_misses_the_beginning),
        cmocka_unit_test(group_rounds_reach_the_mean),
        cmocka_unit_test(pair_rounds_keep_the_mean_and_contract),
        cmocka_unit_test(lossy_codecs_bring_peers_together_too),
        cmocka_unit_test(the_others_finish_when_one_is_killed),
        cmocka_unit_test(a_restarted_peer_resumes_and_rejoins),
        cmocka_unit_test(an_unrelated_model_gives_way),
        cmocka_unit_test(a_local_nan_is_rolled_back_and_never_sent),
        cmocka_unit_test(a_stopped_peer_ends_within_a_second),
        cmocka_unit_test(equal_seeds_give_equal_runs),
        cmocka_unit_test(evaluation_leaves_the_time_to_training),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
