/*
 * Neighbours follow what lines were seen to carry. Whole peers in virtual time, where lines have
 * rates.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/json.h"
#include "gossip/wire/limits.h"
#include "peer/env/sim/env.h"
#include "testnet/cluster.h"

#include <math.h>

enum { PEERS = 8, VALUES = 8192 };
#define MB UINT64_C(1000000)

static bool is_far(uint32_t a, uint32_t b)
{
    return (a < PEERS / 2) != (b < PEERS / 2);
}

static void start_all(struct cluster *cluster, uint64_t seed)
{
    uint32_t first = 0;

    for (uint32_t i = 0; i < PEERS; i++) {
        cluster_start(cluster, i, &first, i > 0);
    }
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
}

static void scatter(struct cluster *cluster, size_t values, uint64_t seed)
{
    float *plane = malloc(values * sizeof *plane);
    struct rng rng;

    assert_non_null(plane);
    rng_init(&rng, seed, 77);
    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < values; k++) { /* the halves apart, too: hardest across the line */
            plane[k] = (float)rng_normal(&rng) + (i < PEERS / 2 ? 1.0f : -1.0f);
        }
        cluster_assign(cluster, i, plane);
    }
    free(plane);
}

static uint64_t rounds_ok(struct cluster *cluster)
{
    uint64_t sum = 0;

    for (uint32_t i = 0; i < PEERS; i++) {
        struct node_report report;

        node_report(cluster_node(cluster, i), &report);
        sum += report.rounds_ok;
    }
    return sum;
}

/* What came over the line between the halves. */
static double bytes_across(struct cluster *cluster)
{
    double sum = 0;

    for (uint32_t i = 0; i < PEERS; i++) {
        struct json *status = node_status(cluster_node(cluster, i), SIZE_MAX);
        const struct json *members = json_get(status, "members");

        for (size_t m = 0; m < json_count(members); m++) {
            const char *id = json_get_text(json_at(members, m), "id");
            double bytes = 0;

            for (uint32_t k = 0; k < PEERS; k++) {
                char other[PEER_ID_TEXT];

                peer_id_format(node_id(cluster_node(cluster, k)), other);
                if (!is_far(i, k) || strcmp(other, id) != 0) continue;
                (void)json_get_real(json_at(members, m), "bytes_received", &bytes);
                sum += bytes;
            }
        }
        json_destroy(status);
    }
    return sum;
}

struct figures {
    double rounds_per_s, bytes_per_round, halving_s;
};

/* Two halves of fast lines with slow ones between them. */
static struct figures run_halves(const char *averaging, const char *topology, uint64_t bytes_per_s,
                                 uint64_t seed)
{
    const int learning_s = 30, measured_s = 20;
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = seed,
                                            .averaging = averaging,
                                            .topology = topology,
                                            .values = VALUES,
                                            .latency_ns = 2 * NS_PER_MS,
                                            .step_cost_ns = 40 * NS_PER_MS,
                                            .start_with = PEERS,
                                            .is_quiet = true};
    const struct sim_path slow = {.latency_ns = 20 * NS_PER_MS, .bytes_per_s = bytes_per_s};
    struct cluster *cluster = cluster_create(&options);
    struct figures figures;
    double rounds, bytes, before;

    for (uint32_t a = 0; a < PEERS; a++) {
        for (uint32_t b = 0; b < PEERS; b++) {
            if (is_far(a, b)) sim_path_set(cluster_world(cluster), a + 1, b + 1, &slow);
        }
    }
    start_all(cluster, seed);
    cluster_run(cluster, (uint64_t)learning_s * NS_PER_S);
    scatter(cluster, VALUES, seed);
    before = cluster_distance(cluster);
    rounds = (double)rounds_ok(cluster);
    bytes = bytes_across(cluster);
    cluster_run(cluster, (uint64_t)measured_s * NS_PER_S);
    rounds = (double)rounds_ok(cluster) - rounds;
    figures.rounds_per_s = rounds / measured_s;
    figures.bytes_per_round = (bytes_across(cluster) - bytes) / rounds;
    figures.halving_s = measured_s / log2(before / cluster_distance(cluster));
    cluster_destroy(cluster);
    return figures;
}

static void print(const char *what, struct figures with, struct figures without)
{
    printf("%s: %.1f rounds/s, without preference %.1f: %.2f times; across the line %.0f bytes a "
           "round, %.0f: %.2f; distance halves in %.2f s, %.2f s\n",
           what, with.rounds_per_s, without.rounds_per_s, with.rounds_per_s / without.rounds_per_s,
           with.bytes_per_round, without.bytes_per_round,
           with.bytes_per_round / without.bytes_per_round, with.halving_s, without.halving_s);
}

/* Pairs that choose their partners meet those behind the slow line less: more rounds, fewer bytes
 * over it, and the swarm still comes together. */
static void pairs_cross_a_slow_line_less(void **state)
{
    (void)state;
    if (is_only_sanitized()) skip(); /* the same code at the same lines, for longer */
    FOR_EACH_SEED (seed, 1) {
        struct figures with = run_halves("ad-psgd", NULL, MB / 16, seed),
                       without = run_halves("ad-psgd", "pairs,uniform", MB / 16, seed);

        print("ad-psgd", with, without);
        check_seed(seed, with.rounds_per_s > 1.6 * without.rounds_per_s);
        check_seed(seed, with.bytes_per_round < 0.6 * without.bytes_per_round);
        check_seed(seed, with.halving_s < 1.5 * without.halving_s);
    }
}

/* So do shares that are given to anybody. */
static void shares_cross_a_slow_line_less(void **state)
{
    (void)state;
    if (is_only_sanitized()) skip(); /* the same code at the same lines, for longer */
    FOR_EACH_SEED (seed, 1) {
        struct figures with = run_halves("gosgd:p=0.1", NULL, MB / 16, seed),
                       without = run_halves("gosgd:p=0.1", "pairs,uniform", MB / 16, seed);

        print("gosgd", with, without);
        check_seed(seed, with.bytes_per_round < 0.8 * without.bytes_per_round);
        check_seed(seed, with.halving_s < 10);
    }
}

/* T: with equal lines that were measured the run is the same to the last byte. */
static void equal_lines_change_nothing(void **state)
{
    uint64_t traces[2];

    (void)state;
    for (int i = 0; i < 2; i++) {
        const struct cluster_options options = {.peers = PEERS,
                                                .seed = 5,
                                                .averaging = "ad-psgd",
                                                .topology = i == 0 ? NULL : "pairs,uniform",
                                                .values = VALUES,
                                                .latency_ns = 2 * NS_PER_MS,
                                                .bytes_per_s = MB,
                                                .start_with = PEERS};
        struct cluster *cluster = cluster_create(&options);
        struct json *status;
        uint64_t measured = 0;
        double rate;

        start_all(cluster, 5);
        cluster_run(cluster, 10 * NS_PER_S);
        traces[i] = sim_trace(cluster_world(cluster));
        status = node_status(cluster_node(cluster, 3), SIZE_MAX);
        for (size_t m = 0; m < json_count(json_get(status, "members")); m++) {
            const struct json *member = json_at(json_get(status, "members"), m);

            if (!json_get_real(member, "rate", &rate)) continue;
            assert_true(rate > 0.4 * (double)MB && rate < 1.1 * (double)MB);
            measured++;
        }
        assert_true(measured >= PEERS / 2);
        json_destroy(status);
        cluster_destroy(cluster);
    }
    assert_true(traces[0] == traces[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_cross_a_slow_line_less),
        cmocka_unit_test(shares_cross_a_slow_line_less),
        cmocka_unit_test(equal_lines_change_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
