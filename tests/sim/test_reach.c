/* Complete peers in the simulated world, some of which can only dial out. */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/cluster.h"

enum { PEERS = 6, HIDDEN = 3 }; /* peers 1 to 3 can only dial out */

static bool is_hidden(uint32_t peer)
{
    return peer >= 1 && peer <= HIDDEN;
}

static struct cluster *started(uint64_t seed, const char *exchange)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = 5 * NS_PER_MS,
                                      .values = 2000,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .averaging = "local-sgd:H=8",
                                      .exchange = exchange};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0;

    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < PEERS; i++) {
        sim_host_refuse_inbound(cluster_world(cluster), i + 1, is_hidden(i));
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
    return cluster;
}

static bool all_classified(struct cluster *cluster, void *context)
{
    (void)context;
    for (uint32_t i = 0; i < PEERS; i++) {
        enum nat_class wanted = is_hidden(i) ? NAT_OUTBOUND : NAT_PUBLIC;

        if (node_nat(cluster_node(cluster, i)) != wanted) return false;
    }
    return true;
}

/* Every peer finds out by itself, from two others, whether it can be dialled. */
static void peers_find_out_whether_they_can_be_dialled(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = started(seed, NULL);

        check_seed(seed, cluster_run_until(cluster, all_classified, NULL, 60 * NS_PER_S));
        cluster_run(cluster, 120 * NS_PER_S);
        check_seed(seed, all_classified(cluster, NULL));
        cluster_destroy(cluster);
    }
}

static bool hidden_are_linked_with_all_others(struct cluster *cluster, void *context)
{
    (void)context;
    for (uint32_t i = 0; i < PEERS; i++) {
        size_t wanted = is_hidden(i) ? PEERS - HIDDEN : PEERS - 1;

        if (node_neighbours(cluster_node(cluster, i)) < wanted) return false;
    }
    return true;
}

/* Who can only dial out is a peer like any other: it is linked with all who can be dialled and
 * averages with them; it also comes back by itself after its links broke. */
static void outbound_only_peers_are_first_class(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = started(seed, seed % 2 == 0 ? "pair" : "group");
        struct node_report report;

        check_seed(seed, cluster_run_until(cluster, hidden_are_linked_with_all_others, NULL,
                                           30 * NS_PER_S));
        check_seed(seed, cluster_run_until(cluster, all_classified, NULL, 60 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            sim_cut(cluster_world(cluster), 1 + 1, i + 1);
        }
        check_seed(seed, cluster_run_until(cluster, hidden_are_linked_with_all_others, NULL,
                                           30 * NS_PER_S));
        cluster_run(cluster, 20 * NS_PER_S);
        for (uint32_t i = 0; i < PEERS; i++) {
            node_report(cluster_node(cluster, i), &report);
            check_seed(seed, report.rounds_ok > 5);
        }
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_find_out_whether_they_can_be_dialled),
        cmocka_unit_test(outbound_only_peers_are_first_class),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
