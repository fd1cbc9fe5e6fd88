/* Complete peers in the simulated world, some of which can only dial out. */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/cluster.h"

#define STEP_NS (100 * NS_PER_MS)

enum { PEERS = 6, HIDDEN = 3 }; /* peers 1 to 3 can only dial out */

static bool is_hidden(uint32_t peer)
{
    return peer >= 1 && peer <= HIDDEN;
}

static struct cluster *started(uint64_t seed, const char *exchange, uint64_t step_ns)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = 5 * NS_PER_MS,
                                      .values = 2000,
                                      .step_cost_ns = step_ns,
                                      .averaging = "local-sgd:H=8",
                                      .exchange = exchange};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0;

    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < PEERS; i++) {
        sim_host_faults(cluster_world(cluster), i + 1)->refuses_inbound = is_hidden(i);
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

static bool hidden_are_linked_with_all_others(struct cluster *cluster, void *context)
{
    (void)context;
    for (uint32_t i = 0; i < PEERS; i++) {
        size_t wanted = is_hidden(i) ? PEERS - HIDDEN : PEERS - 1;

        if (node_neighbours(cluster_node(cluster, i)) < wanted) return false;
    }
    return true;
}

/* Every peer finds out by itself, from two others, whether it can be dialled. Who can only dial out
 * is a peer like any other: it is linked with all who can be dialled and
 * averages with them; it also comes back by itself after its links broke. */
static void outbound_only_peers_are_first_class(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = started(seed, seed % 2 == 0 ? "pair" : "group", STEP_NS);
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

static bool all_linked(struct cluster *cluster, void *context)
{
    (void)context;
    for (uint32_t i = 0; i < PEERS; i++) {
        if (node_neighbours(cluster_node(cluster, i)) < PEERS - 1) return false;
    }
    return true;
}

static uint32_t relayed_links(struct cluster *cluster, uint32_t peer)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < PEERS; i++) {
        count += node_is_relayed(cluster_node(cluster, peer), node_id(cluster_node(cluster, i)));
    }
    return count;
}

static uint64_t relayed_bytes(struct cluster *cluster)
{
    uint64_t bytes = 0;

    for (uint32_t i = 0; i < PEERS; i++) {
        struct relay_view view;

        node_relay_view(cluster_node(cluster, i), &view);
        if (is_hidden(i)) assert_int_equal(view.bytes, 0);
        bytes += view.bytes;
    }
    return bytes;
}

/* Peers none of which can be dialled get linked through those that can, and the swarm is whole: all
 * average with all. When the relays die, others take over. */
static void hidden_peers_are_linked_through_relays(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = started(seed, seed % 2 == 0 ? "pair" : "group", STEP_NS);
        struct node_report report;
        uint64_t bytes;

        check_seed(seed, cluster_run_until(cluster, all_linked, NULL, 120 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            check_seed(seed, relayed_links(cluster, i) == (is_hidden(i) ? HIDDEN - 1 : 0));
        }
        bytes = relayed_bytes(cluster);
        check_seed(seed, bytes > 0);
        cluster_run(cluster, 30 * NS_PER_S);
        check_seed(seed, all_linked(cluster, NULL));
        check_seed(seed, relayed_bytes(cluster) > bytes + 100000); /* rounds went through them */
        for (uint32_t i = 0; i < PEERS; i++) {
            node_report(cluster_node(cluster, i), &report);
            check_seed(seed, report.rounds_ok > 5);
        }
        cluster_destroy(cluster);
    }
}

/* A hidden peer that becomes reachable is dialled, and its relayed links give way to direct ones.
 */
static void relayed_links_give_way_to_direct_ones(void **state)
{
    struct cluster *cluster = started(3, NULL, 2 * NS_PER_S);

    (void)state;
    assert_true(cluster_run_until(cluster, all_linked, NULL, 120 * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        sim_host_faults(cluster_world(cluster), i + 1)->refuses_inbound = false;
    }
    cluster_run(cluster, 2400 * NS_PER_S);
    assert_true(all_linked(cluster, NULL));
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(node_nat(cluster_node(cluster, i)), NAT_PUBLIC);
        assert_int_equal(relayed_links(cluster, i), 0);
    }
    cluster_destroy(cluster);
}

/* ---- few peers ---- */

enum { FEW = 3 }; /* 0 can be dialled, 1 and 2 cannot */

static struct cluster *few_started(uint64_t seed, uint32_t peers)
{
    struct cluster_options options = {.peers = FEW,
                                      .seed = seed,
                                      .latency_ns = 5 * NS_PER_MS,
                                      .values = 500,
                                      .step_cost_ns = STEP_NS,
                                      .averaging = "local-sgd:H=8"};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0;

    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < peers; i++) {
        sim_host_faults(cluster_world(cluster), i + 1)->refuses_inbound = i > 0;
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
    return cluster;
}

static bool hidden_are_linked(struct cluster *cluster, void *context)
{
    (void)context;
    return node_is_relayed(cluster_node(cluster, 1), node_id(cluster_node(cluster, 2))) &&
           node_is_relayed(cluster_node(cluster, 2), node_id(cluster_node(cluster, 1)));
}

/* One peer that can be dialled is enough for two that cannot, though each of those has nobody but
 * it to ask. */
static void one_relay_is_enough(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = few_started(seed, FEW);

        check_seed(seed, cluster_run_until(cluster, hidden_are_linked, NULL, 40 * NS_PER_S));
        cluster_run(cluster, 120 * NS_PER_S);
        check_seed(seed, hidden_are_linked(cluster, NULL));
        cluster_destroy(cluster);
    }
}

/* Long without any relay they are dead to each other; with the relay they come back. */
static void partners_come_back_with_their_relay(void **state)
{
    const uint32_t first = 0;

    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = few_started(seed, FEW);

        check_seed(seed, cluster_run_until(cluster, hidden_are_linked, NULL, 40 * NS_PER_S));
        cluster_crash(cluster, 0);
        cluster_run(cluster, (40 + 20 * seed) * NS_PER_S);
        check_seed(seed, node_neighbours(cluster_node(cluster, 1)) == 0);
        cluster_start(cluster, 0, &first, 0);
        check_seed(seed, cluster_run_until(cluster, hidden_are_linked, NULL, 45 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

/* Who cannot be dialled and finds no relay says so, once. */
static void who_has_no_relay_says_so(void **state)
{
    struct cluster *cluster = few_started(1, 2);

    (void)state;
    cluster_run(cluster, 30 * NS_PER_S);
    assert_int_equal(cluster_warnings(cluster, 1), 0);
    cluster_run(cluster, 300 * NS_PER_S);
    assert_int_equal(cluster_warnings(cluster, 1), 1);
    assert_int_equal(cluster_warnings(cluster, 0), 0);
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outbound_only_peers_are_first_class),
        cmocka_unit_test(hidden_peers_are_linked_through_relays),
        cmocka_unit_test(relayed_links_give_way_to_direct_ones),
        cmocka_unit_test(one_relay_is_enough),
        cmocka_unit_test(partners_come_back_with_their_relay),
        cmocka_unit_test(who_has_no_relay_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
