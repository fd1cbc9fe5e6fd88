/*
 * How a swarm comes about: sixteen peers switched on together, and two swarms that learn of each
 * other late. Virtual time; the long form is SEEDS=200.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/cluster.h"

enum { COLD = 16, DEAD = COLD, SIDE = 4, MEETING = 2 * SIDE };
#define MIXED_NS  (10 * NS_PER_S) /* and everybody holds the model */
#define COLD_NS   (2 * NS_PER_S)  /* of the last start */
#define MERGE_NS  (5 * NS_PER_S)  /* of the common address */
#define SPREAD_NS (4 * NS_PER_S)

static bool has_first_round(struct cluster *cluster, void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < COLD; i++) {
        if (node_neighbours(cluster_node(cluster, i)) != COLD - 1) return false;
    }
    for (uint32_t i = 0; i < COLD; i++) {
        struct node_report report;

        node_report(cluster_node(cluster, i), &report);
        if (report.rounds_ok > 0) return true;
    }
    return false;
}

/* Linked, and averaged: where groups do, all of them; where pairs do, at least half. */
static bool has_averaged(struct cluster *cluster, void *is_pair)
{
    uint32_t averaged = 0;

    if (!cluster_is_whole(cluster, NULL)) return false;
    for (uint32_t i = 0; i < COLD; i++) {
        struct node_report report;

        node_report(cluster_node(cluster, i), &report);
        averaged += report.rounds_ok > 0;
    }
    return averaged >= (*(bool *)is_pair ? COLD / 2 : COLD);
}

static bool is_one_with_one_model(struct cluster *cluster, void *unused)
{
    if (!cluster_is_whole(cluster, unused)) return false;
    for (uint32_t i = 1; i <= MEETING; i++) {
        if (!digest_is_equal(node_lineage(cluster_node(cluster, 0)),
                             node_lineage(cluster_node(cluster, i)))) {
            return false;
        }
    }
    return true;
}

/* Sixteen peers, started in any order within 4 s, all with the same two or three addresses, of
 * which the first is dead in half of the runs (refusing, or silent): within 2 s of the last start
 * all are linked with each other and a round was averaged; soon everybody takes part in them. */
static void sixteen_cold_starts_make_one_swarm(void **state)
{
    uint64_t slowest_ns = 0;

    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster_options options = {.peers = COLD + 1,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .jitter_ns = NS_PER_MS,
                                          .values = 300,
                                          .averaging = "local-sgd:H=16",
                                          .exchange = seed % 4 >= 2 ? "pair" : "group"};
        struct cluster *cluster = cluster_create(&options);
        uint32_t order[COLD], bootstrap[3] = {DEAD, 0, 1};
        bool is_first_dead = seed % 2 == 0, is_pair = seed % 4 >= 2;
        uint64_t begin_ns;
        struct rng rng;

        rng_init(&rng, seed, 1);
        for (uint32_t i = 0; i < COLD; i++) {
            order[i] = i;
        }
        rng_shuffle(&rng, order, COLD);
        for (uint32_t i = 1; i <= COLD && seed % 4 == 0; i++) { /* silent, not refusing */
            sim_block(cluster_world(cluster), i, DEAD + 1, true);
        }
        if (getenv("TRACE") != NULL) cluster_set_verbose(cluster, true);
        for (uint32_t i = 0; i < COLD; i++) {
            cluster_start(cluster, order[i], is_first_dead ? bootstrap : bootstrap + 1,
                          is_first_dead ? 3 : 2);
            if (i + 1 < COLD) cluster_run(cluster, rng_below(&rng, 2 * SPREAD_NS / COLD));
        }
        begin_ns = sim_now_ns(cluster_world(cluster));
        check_seed(seed, cluster_run_until(cluster, has_first_round, NULL, COLD_NS));
        begin_ns = sim_now_ns(cluster_world(cluster)) - begin_ns;
        if (begin_ns > slowest_ns) slowest_ns = begin_ns;
        check_seed(seed, cluster_run_until(cluster, has_averaged, &is_pair, MIXED_NS));
        cluster_destroy(cluster);
    }
    printf("one swarm that averages at most %.2f s after the last start\n",
           (double)slowest_ns / 1e9);
}

/* Two swarms of four that never heard of each other, then a ninth peer that knows an address in
 * each: one swarm with one model within 5 s. In every third run their models are unrelated. */
static void two_swarms_merge_soon_after_they_meet(void **state)
{
    uint64_t slowest_ns = 0;

    (void)state;
    FOR_EACH_SEED (seed, 6) {
        struct cluster_options options = {.peers = 2 * SIDE + 1,
                                          .seed = seed,
                                          .latency_ns = 5 * NS_PER_MS,
                                          .jitter_ns = NS_PER_MS,
                                          .values = 300,
                                          .step_cost_ns = 20 * NS_PER_MS};
        struct cluster *cluster = cluster_create(&options);
        uint32_t founders[2] = {0, SIDE};
        uint64_t begin_ns;
        struct rng rng;

        rng_init(&rng, seed, 2);
        if (getenv("TRACE") != NULL) cluster_set_verbose(cluster, true);
        for (uint32_t i = 0; i < 2 * SIDE; i++) {
            if (seed % 3 == 0 && i >= SIDE) cluster_set_model_seed(cluster, i, 777);
            cluster_start(cluster, i, &founders[i / SIDE], i % SIDE == 0 ? 0 : 1);
        }
        cluster_run(cluster, 5 * NS_PER_S + rng_below(&rng, 60 * NS_PER_S));
        for (uint32_t i = 0; i < 2 * SIDE; i++) {
            check_seed(seed, node_neighbours(cluster_node(cluster, i)) == SIDE - 1);
        }
        cluster_start(cluster, MEETING, founders, 2);
        begin_ns = sim_now_ns(cluster_world(cluster));
        check_seed(seed, cluster_run_until(cluster, is_one_with_one_model, NULL, MERGE_NS));
        begin_ns = sim_now_ns(cluster_world(cluster)) - begin_ns;
        if (begin_ns > slowest_ns) slowest_ns = begin_ns;
        cluster_destroy(cluster);
    }
    printf("merged at most %.2f s after they met\n", (double)slowest_ns / 1e9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sixteen_cold_starts_make_one_swarm),
        cmocka_unit_test(two_swarms_merge_soon_after_they_meet),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
