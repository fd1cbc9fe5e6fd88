/* Complete peers in the simulated world: frozen ones, cut networks, and what heals. */
#include "tests/check.h"

#include "base/bytes.h"
#include "tests/sim/swarm.h"

enum { PEERS = 4 };

static struct cluster *whole(uint64_t seed, const char *exchange)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = NS_PER_MS,
                                      .values = 2000,
                                      .step_cost_ns = 20 * NS_PER_MS,
                                      .averaging = "local-sgd:H=8",
                                      .exchange = exchange};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, PEERS);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
    return cluster;
}

static uint64_t rounds(struct cluster *cluster, uint32_t peer)
{
    struct node_report report;

    node_report(cluster_node(cluster, peer), &report);
    return report.rounds_ok;
}

/* While one peer is frozen the others go on averaging; when it thaws it is one of them again. */
static void a_frozen_peer_does_not_stop_the_others(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 6) {
        struct cluster *cluster = whole(seed, seed % 2 == 0 ? "pair" : "group");
        uint32_t frozen = (uint32_t)(seed % PEERS), other = (frozen + 1) % PEERS;
        uint64_t before;

        cluster_run(cluster, 2 * NS_PER_S);
        sim_host_freeze(cluster_world(cluster), frozen + 1, true);
        before = rounds(cluster, other);
        cluster_run(cluster, 30 * NS_PER_S);
        check_seed(seed, rounds(cluster, other) > before + 20);
        sim_host_freeze(cluster_world(cluster), frozen + 1, false);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 30 * NS_PER_S));
        before = rounds(cluster, frozen);
        cluster_run(cluster, 10 * NS_PER_S);
        check_seed(seed, rounds(cluster, frozen) > before);
        cluster_destroy(cluster);
    }
}

static uint64_t missed(struct cluster *cluster, uint32_t peer)
{
    struct node_report report;

    node_report(cluster_node(cluster, peer), &report);
    return report.rounds_missed;
}

/* A peer that is cut off trains on, says after a minute that there is no round and why, twice as
 * long after that again, and counts what it missed when it is back. The others have nothing to say.
 */
static void a_peer_without_rounds_says_so(void **state)
{
    struct cluster *cluster = whole(1, "group");
    uint64_t did, warned;

    (void)state;
    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    cluster_run(cluster, 10 * NS_PER_S);
    warned = cluster_warnings(cluster, 0);
    did = rounds(cluster, 1);
    for (uint32_t other = 1; other < PEERS; other++) {
        sim_block(cluster_world(cluster), 1, other + 1, true);
        sim_block(cluster_world(cluster), other + 1, 1, true);
    }
    cluster_run(cluster, 55 * NS_PER_S);
    assert_int_equal(cluster_warnings(cluster, 0), warned);
    cluster_run(cluster, 15 * NS_PER_S);
    assert_int_equal(cluster_warnings(cluster, 0), warned + 1);
    cluster_run(cluster, 60 * NS_PER_S);
    assert_int_equal(cluster_warnings(cluster, 0), warned + 2);
    did = rounds(cluster, 1) - did;
    assert_true(did > 200 && missed(cluster, 1) <= 2);
    for (uint32_t other = 1; other < PEERS; other++) {
        sim_block(cluster_world(cluster), 1, other + 1, false);
        sim_block(cluster_world(cluster), other + 1, 1, false);
    }
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 30 * NS_PER_S));
    cluster_run(cluster, 5 * NS_PER_S);
    assert_true(missed(cluster, 0) + 20 > did && missed(cluster, 0) < did + 100);
    assert_true(missed(cluster, 1) <= 10);
    assert_int_equal(cluster_warnings(cluster, 0), warned + 2);
    cluster_destroy(cluster);
}

static void set_partition(struct cluster *cluster, bool is_cut)
{
    for (uint32_t a = 0; a < PEERS / 2; a++) {
        for (uint32_t b = PEERS / 2; b < PEERS; b++) {
            sim_block(cluster_world(cluster), a + 1, b + 1, is_cut);
            sim_block(cluster_world(cluster), b + 1, a + 1, is_cut);
        }
    }
}

/* Both halves of a cut network go on, each for itself; once it heals they are one swarm again, with
 * one lineage, and average with each other. */
static void a_partition_heals(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = whole(seed, NULL);
        uint64_t before[PEERS];

        set_partition(cluster, true);
        cluster_run(cluster, 60 * NS_PER_S);
        for (uint32_t i = 0; i < PEERS; i++) {
            check_seed(seed, node_neighbours(cluster_node(cluster, i)) == 1);
            before[i] = rounds(cluster, i);
            check_seed(seed, before[i] > 0);
        }
        cluster_run(cluster, 10 * NS_PER_S);
        for (uint32_t i = 0; i < PEERS; i++) {
            check_seed(seed, rounds(cluster, i) > before[i]);
        }
        set_partition(cluster, false);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 90 * NS_PER_S));
        cluster_run(cluster, 5 * NS_PER_S);
        check_seed(seed, digest_is_equal(node_lineage(cluster_node(cluster, 0)),
                                         node_lineage(cluster_node(cluster, PEERS - 1))));
        cluster_destroy(cluster);
    }
}

/* One link that keeps breaking costs rounds, not the swarm. */
static void a_link_that_keeps_breaking_is_mended(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = whole(seed, seed % 2 == 0 ? "pair" : "group");
        uint64_t before = rounds(cluster, 0);
        struct rng rng;

        rng_init(&rng, seed, 3);
        for (int i = 0; i < 40; i++) {
            sim_cut(cluster_world(cluster), 1, 2 + (uint32_t)rng_below(&rng, PEERS - 1));
            cluster_run(cluster, rng_below(&rng, 500) * NS_PER_MS);
        }
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 70 * NS_PER_S));
        check_seed(seed, rounds(cluster, 0) > before);
        cluster_destroy(cluster);
    }
}

enum { MANY = 8, LEFT = MANY / 2 };

/* Those that go on are linked with each other alone. */
static bool half_is_gone(struct cluster *cluster, void *context)
{
    (void)context;
    for (uint32_t i = 0; i < LEFT; i++) {
        if (node_neighbours(cluster_node(cluster, i)) != LEFT - 1) return false;
    }
    return true;
}

/* When half of the peers freeze at once the others part with them as soon as with one: whoever is
 * silent itself is not asked whether another is. */
static void half_of_the_peers_frozen_are_noticed_as_soon_as_one(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 6) {
        struct cluster_options options = {.peers = MANY,
                                          .seed = seed,
                                          .latency_ns = NS_PER_MS,
                                          .values = 500,
                                          .step_cost_ns = 100 * NS_PER_MS,
                                          .averaging = "local-sgd:H=8"};
        struct cluster *cluster = cluster_create(&options);

        swarm_start(cluster, MANY);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        cluster_run(cluster, 10 * NS_PER_S + seed * 137 * NS_PER_MS);
        for (uint32_t i = LEFT; i < MANY; i++) {
            sim_host_freeze(cluster_world(cluster), i + 1, true);
        }
        check_seed(seed, cluster_run_until(cluster, half_is_gone, NULL, 9 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_of_the_peers_frozen_are_noticed_as_soon_as_one),
        cmocka_unit_test(a_peer_without_rounds_says_so),
        cmocka_unit_test(a_frozen_peer_does_not_stop_the_others),
        cmocka_unit_test(a_partition_heals),
        cmocka_unit_test(a_link_that_keeps_breaking_is_mended),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
