/* Complete peers in the simulated world, caught at bad moments or by bad neighbours. */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/cluster.h"
#include "tests/sim/hostile.h"
#include "tests/sim/swarm.h"

static uint64_t now_of(struct cluster *cluster)
{
    return sim_now_ns(cluster_world(cluster));
}

static bool is_loading(struct cluster *cluster, void *context)
{
    return node_state(cluster_node(cluster, *(uint32_t *)context)) == NODE_LOADING;
}

static bool is_down(struct cluster *cluster, void *context)
{
    return !cluster_is_up(cluster, *(uint32_t *)context);
}

/* Two peers train; a third begins to download their model. */
static struct cluster *joined_by_a_third(uint64_t seed)
{
    struct cluster_options options = {.peers = 3,
                                      .seed = seed,
                                      .latency_ns = NS_PER_MS,
                                      .values = 1000000,
                                      .step_cost_ns = 20 * NS_PER_MS};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0;

    cluster_start(cluster, 0, NULL, 0);
    cluster_start(cluster, 1, &first, 1);
    cluster_run(cluster, 2 * NS_PER_S);
    cluster_start(cluster, 2, &first, 1);
    return cluster;
}

/* A peer asked to stop at the very moment it takes over a downloaded model stops all the same. */
static void a_stop_while_a_model_is_taken_over_is_obeyed(void **state)
{
    uint32_t third = 2;

    (void)state;
    FOR_EACH_SEED (seed, 1) {
        struct cluster *cluster = joined_by_a_third(seed);
        uint64_t began_ns = now_of(cluster), took_ns;

        check_seed(seed, cluster_run_until(cluster, is_loading, &third, 20 * NS_PER_S));
        while (is_loading(cluster, &third)) {
            cluster_run(cluster, NS_PER_MS / 10);
        }
        took_ns = now_of(cluster) - began_ns;
        cluster_destroy(cluster);
        cluster = joined_by_a_third(seed);
        cluster_run(cluster, took_ns - NS_PER_MS / 2); /* taking over costs 1 ms */
        check_seed(seed, node_state(cluster_node(cluster, third)) == NODE_LOADING);
        cluster_stop(cluster, third);
        check_seed(seed, cluster_run_until(cluster, is_down, &third, NS_PER_S));
        cluster_destroy(cluster);
    }
}

static void say_nothing(struct hostile *hostile, const struct hostile_target *to)
{
    (void)hostile;
    (void)to;
}

/* A group that forms beside a member that never answers takes as long as the first window. Reports
 * and checkpoints do not wait for that. */
static void a_mute_member_holds_up_no_checkpoint(void **state)
{
    (void)state;
    static const struct hostile_behaviour mute = {.name = "mute", .act = say_nothing};
    struct cluster_options options = {.peers = 1,
                                      .guests = 1,
                                      .seed = 3,
                                      .latency_ns = NS_PER_MS,
                                      .values = 1000,
                                      .averaging = "local-sgd:H=4"};
    struct cluster *cluster = cluster_create(&options);
    struct hostile *hostile;

    swarm_start(cluster, 1);
    hostile = hostile_create(cluster_guest(cluster, 0), cluster_swarm(cluster),
                             cluster_strategy(cluster), 1000, 1, 1, &mute);
    cluster_run(cluster, 12 * NS_PER_S); /* checkpoints are due after 5 and 10 s */
    assert_int_equal(swarm_report(cluster, 0).neighbours, 1);
    assert_true(swarm_report(cluster, 0).step > 1000);
    hostile_destroy(hostile);
    cluster_crash(cluster, 0);
    swarm_start(cluster, 1);
    cluster_run(cluster, NS_PER_MS);
    assert_true(swarm_report(cluster, 0).step > 500);
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_mute_member_holds_up_no_checkpoint),
        cmocka_unit_test(a_stop_while_a_model_is_taken_over_is_obeyed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
