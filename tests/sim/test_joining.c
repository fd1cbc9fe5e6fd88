/* Joining a swarm that goes on meanwhile: busy donors, donors that die, many joiners, slow links.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/wire/limits.h"
#include "testnet/cluster.h"

enum { CHUNKS = 33, VALUES = CHUNKS * CHUNK_VALUES };
#define MODEL_BYTES ((uint64_t)VALUES * sizeof(float))
#define LINE        UINT64_C(12500000) /* bytes a second: 100 Mbit/s */

/* `donors` peers that train and average, each on a line of its own; the rest are not started. */
static struct cluster *swarm(struct cluster_options *options, uint32_t donors)
{
    struct cluster *cluster;
    uint32_t first = 0;

    options->latency_ns = NS_PER_MS;
    options->values = VALUES;
    options->centre_spread = 1.0;
    cluster = cluster_create(options);
    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < options->peers; i++) {
        sim_host_rate(cluster_world(cluster), i + 1, LINE, LINE);
    }
    for (uint32_t i = 0; i < donors; i++) {
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
    cluster_run(cluster, 4 * NS_PER_S);
    return cluster;
}

static bool is_training(struct cluster *cluster, void *peer)
{
    return node_state(cluster_node(cluster, *(uint32_t *)peer)) == NODE_TRAINING;
}

static struct node_report report_of(struct cluster *cluster, uint32_t peer)
{
    struct node_report report;

    node_report(cluster_node(cluster, peer), &report);
    return report;
}

/* Two donors whose rounds run back to back serve a third peer during them, and it is in within
 * seconds, with about one model's bytes. */
static void busy_donors_serve_during_their_rounds(void **state)
{
    struct cluster_options options = {
        .peers = 3, .seed = 1, .step_cost_ns = 20 * NS_PER_MS, .averaging = "local-sgd:H=1"};
    struct cluster *cluster = swarm(&options, 2);
    uint32_t first = 0, joiner = 2;
    uint64_t rounds = report_of(cluster, 0).rounds_ok;

    (void)state;
    cluster_start(cluster, joiner, &first, 1);
    assert_true(cluster_run_until(cluster, is_training, &joiner, 15 * NS_PER_S));
    assert_true(report_of(cluster, 0).rounds_ok >= rounds + 2); /* they did not wait for it */
    assert_true(report_of(cluster, joiner).bytes_received < MODEL_BYTES + MODEL_BYTES / 10);
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(busy_donors_serve_during_their_rounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
