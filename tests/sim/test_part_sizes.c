/*
 * Parts follow what links carry: one member of six has a tenth of the others' line. With equal
 * parts it would have to carry S (1 + (n - 2)/n), S the plane, and no round could be shorter than
 * that takes; with sized ones it owns nothing and carries S. VERBOSE=1 prints the figures.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/wire/limits.h"
#include "peer/env/sim/env.h"
#include "testnet/cluster.h"

enum { PEERS = 6, SLOW = 2, CHUNKS = 20, LEARNING = 3, MEASURED = 4 };

#define SLOW_BYTES_PER_S UINT64_C(1000000)

static bool has_rounds(struct cluster *cluster, void *rounds)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        struct node_report report;

        if (!cluster_is_up(cluster, i)) return false;
        node_report(cluster_node(cluster, i), &report);
        if (report.rounds_ok < *(uint64_t *)rounds) return false;
    }
    return true;
}

/* Virtual seconds a round, once rates are known. */
static double round_s(const char *exchange, uint64_t seed)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = seed,
                                            .averaging = "allreduce",
                                            .exchange = exchange,
                                            .values = (size_t)CHUNKS * CHUNK_VALUES,
                                            .latency_ns = 2 * NS_PER_MS,
                                            .start_with = PEERS,
                                            .is_quiet = true};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0;
    uint64_t rounds = LEARNING, begun_ns, took_ns;

    for (uint32_t i = 0; i < PEERS; i++) {
        uint64_t rate = i == SLOW ? SLOW_BYTES_PER_S : 10 * SLOW_BYTES_PER_S;

        sim_host_rate(cluster_world(cluster), i + 1, rate, rate);
        cluster_start(cluster, i, &first, i > 0);
    }
    check_seed(seed, cluster_run_until(cluster, has_rounds, &rounds, 600 * NS_PER_S));
    begun_ns = sim_now_ns(cluster_world(cluster));
    rounds += MEASURED;
    check_seed(seed, cluster_run_until(cluster, has_rounds, &rounds, 600 * NS_PER_S));
    took_ns = sim_now_ns(cluster_world(cluster)) - begun_ns;
    cluster_destroy(cluster);
    return (double)took_ns / NS_PER_S / MEASURED;
}

static void a_slow_line_carries_the_plane_and_no_more(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 1) {
        double plane_s = 4.0 * CHUNKS * CHUNK_VALUES / (double)SLOW_BYTES_PER_S;
        double equal_s = plane_s * (1 + (PEERS - 2.0) / PEERS), sized_s = round_s(NULL, seed);

        if (getenv("VERBOSE") != NULL) {
            printf("the plane %.2f s, equal parts at least %.2f s, sized ones %.2f s: %.2f\n",
                   plane_s, equal_s, sized_s, sized_s / equal_s);
        }
        check_seed(seed, sized_s < 0.85 * equal_s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_slow_line_carries_the_plane_and_no_more),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
