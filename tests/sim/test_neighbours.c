/* Methods that mix with the neighbours in a graph, run by complete peers in the simulated world:
 * what theory says of them must come out. Contraction on all graphs is in test_graphs.c. */
#include "tests/check.h"

#include "averaging/edge/edges.h"
#include "base/bytes.h"
#include "base/check.h"
#include "peer/node/internal.h"
#include "peer/round/internal.h"
#include "replica/learners/quadratic.h"
#include "tests/sim/swarm.h"
#include "testnet/springs.h"

#include <math.h>
#include <stdio.h>

enum { VALUES = 64, PEERS_MAX = 8 };

static struct cluster *start(struct cluster_options options, const char *averaging,
                             const char *topology, uint64_t seed)
{
    struct cluster *cluster;

    options.seed = seed;
    options.averaging = averaging;
    options.topology = topology;
    options.latency_ns = NS_PER_MS;
    options.values = VALUES;
    cluster = cluster_create(&options);
    swarm_start(cluster, options.peers);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 10 * NS_PER_S); /* everyone sees everyone, and rounds go on */
    return cluster;
}

static void scatter(struct cluster *cluster, uint32_t peers, uint64_t seed)
{
    float plane[VALUES];
    struct rng rng;

    rng_init(&rng, seed, 77);
    for (uint32_t i = 0; i < peers; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            plane[k] = (float)rng_normal(&rng);
        }
        cluster_assign(cluster, i, plane);
    }
}

/* Root mean square, over live peers and values, of how far they are from the optimum of all of
 * them: the mean of their centres. */
static double bias(struct cluster *cluster, uint32_t peers)
{
    static float planes[PEERS_MAX][VALUES];
    double optimum[VALUES] = {0}, sum = 0;
    uint32_t live = 0;

    for (uint32_t i = 0; i < peers; i++) {
        if (!cluster_is_up(cluster, i)) continue;
        cluster_plane(cluster, i, planes[live++]);
        for (size_t k = 0; k < VALUES; k++) {
            optimum[k] += (double)quadratic_centre(cluster_learner(cluster, i))[k];
        }
    }
    for (uint32_t i = 0; i < live; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            double apart = (double)planes[i][k] - optimum[k] / live;

            sum += apart * apart;
        }
    }
    return sqrt(sum / (live * (double)VALUES));
}

/* The same at the moment when it is smallest: all have mixed, and none has taken its next step. */
static double bias_between_steps(struct cluster *cluster, uint32_t peers)
{
    double least = INFINITY;

    for (int i = 0; i < 3000; i++) {
        cluster_run(cluster, NS_PER_MS);
        least = fmin(least, bias(cluster, peers));
    }
    return least;
}

/* T14: peers with non-IID data; dpsgd leaves each near its own centre, d2 and gradient tracking do
 * not. When one is gone for good, the others begin anew and find the optimum of those left. */
static void methods_for_unlike_data_are_exact_where_dpsgd_is_biased(void **state)
{
    (void)state;
    static const char *const exact[] = {"d2", "gradient-tracking"};
    struct cluster_options options = {
        .peers = 6, .noise = 1e-9, .centre_spread = 1, .learning_rate = 0.05};
    struct cluster *cluster;
    double off;

    if (is_only_sanitized()) skip();
    cluster = start(options, "dpsgd", "ring", 3);
    cluster_run(cluster, 10 * NS_PER_S);
    off = bias_between_steps(cluster, 6);
    printf("off the optimum: dpsgd %g\n", off);
    assert_true(off > 0.02);
    cluster_destroy(cluster);
    for (size_t m = 0; m < 2; m++) {
        cluster = start(options, exact[m], "ring", 3);
        cluster_run(cluster, 10 * NS_PER_S);
        off = bias_between_steps(cluster, 6);
        printf("off the optimum: %s %g\n", exact[m], off);
        assert_true(off < 1e-4);
        cluster_crash(cluster, 4);
        cluster_run(cluster, 40 * NS_PER_S);
        off = bias_between_steps(cluster, 6);
        printf("one is gone: %s %g\n", exact[m], off);
        assert_true(off < 1e-4);
        cluster_destroy(cluster);
    }
}

/* A gradient that is no number goes with the model that is rolled back: one peer alone, that could
 * ask nobody for another model, trains on. */
static void a_tracker_that_blew_up_is_forgotten(void **state)
{
    (void)state;
    struct cluster_options options = {.peers = 1, .noise = 1e-9, .learning_rate = 0.05};
    struct cluster *cluster = start(options, "gradient-tracking", "ring", 3);
    float plane[VALUES];

    for (size_t k = 0; k < VALUES; k++) {
        plane[k] = k == 5 ? INFINITY : 1.0f;
    }
    cluster_assign(cluster, 0, plane);
    cluster_run(cluster, 40 * NS_PER_S);
    assert_true(cluster_is_up(cluster, 0));
    assert_true(bias(cluster, 1) < 1e-4);
    cluster_destroy(cluster);
}

/* How peers' distance changes over some rounds of springs of `alpha` on a ring of eight. */
static double spread_after(const char *averaging)
{
    struct cluster_options options = {.peers = 8, .is_quiet = true};
    struct cluster *cluster = start(options, averaging, "ring", 5);
    double before, after;

    scatter(cluster, 8, 1);
    before = cluster_distance(cluster);
    cluster_run(cluster, 4 * NS_PER_S);
    after = cluster_distance(cluster);
    cluster_destroy(cluster);
    return after / before;
}

static enum rc check(const char *averaging, const char *topology, uint32_t peers)
{
    struct strategy_specs specs = {.averaging = averaging, .topology = topology, .robust = "none"};
    struct strategy strategy;

    assert_int_equal(strategy_parse(&specs, &strategy, NULL), RC_OK);
    return springs_check(&strategy, peers, NULL);
}

/* T17: springs on a ring hold below 1/2 = 2 / lambda_max of its Laplacian, and not above: stronger
 * ones (which grew by more than 10 here) are refused where all is known, else weakened. */
static void springs_hold_up_to_a_half_on_a_ring(void **state)
{
    (void)state;
    double inside = spread_after("easgd:tau=1,rho=0.45"),
           outside = spread_after("easgd:tau=1,rho=0.55");

    printf("springs of 0.45: %g, of 0.55: %g\n", inside, outside);
    assert_true(inside < 1e-3);
    assert_true(outside < 1e-3);
    assert_int_equal(check("easgd:rho=0.499", "ring", 8), RC_OK);
    assert_int_equal(check("easgd:rho=0.5", "ring", 8), RC_USAGE);
    assert_int_equal(check("aeasgd:alpha=0.55", "ring", 5), RC_OK); /* 2 / (2 + 2 cos(pi / 5)) */
    assert_int_equal(check("aeasgd:alpha=0.56", "ring", 5), RC_USAGE);
    assert_int_equal(check("aeasgd:alpha=0.24", "hypercube", 16), RC_OK); /* 2 / (2 log2 n) */
    assert_int_equal(check("aeasgd:alpha=0.25", "hypercube", 16), RC_USAGE);
    assert_int_equal(check("aeasgd", "complete", 16), RC_OK);  /* by the graph's weights */
    assert_int_equal(check("easgd:rho=0.9", NULL, 16), RC_OK); /* to a centre */
}

/* One neighbour that is gone costs its edges alone; back again, it takes part again. */
static void neighbours_come_and_go(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster_options options = {.peers = 5, .learning_rate = 0.05, .noise = 0.01};
        struct cluster *cluster =
            start(options, seed % 2 == 0 ? "dpsgd" : "dpsgd:order=cta", "hypercube", seed);
        const uint32_t first = 0;
        struct node_report before, after;

        cluster_crash(cluster, 3);
        cluster_run(cluster, 20 * NS_PER_S);
        node_report(cluster_node(cluster, 1), &before);
        cluster_run(cluster, 5 * NS_PER_S);
        node_report(cluster_node(cluster, 1), &after);
        check_seed(seed, after.rounds_ok > before.rounds_ok + 50);
        cluster_start(cluster, 3, &first, 1);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 30 * NS_PER_S));
        cluster_run(cluster, 10 * NS_PER_S);
        node_report(cluster_node(cluster, 3), &after);
        check_seed(seed, after.rounds_ok > 50);
        check_seed(seed, cluster_distance(cluster) < 1);
        cluster_destroy(cluster);
    }
}

/* ---- one that says that it is further than it is ---- */

static uint64_t rounds_of_others(struct cluster *cluster, uint32_t peers)
{
    uint64_t rounds = 0;

    for (uint32_t i = 0; i + 1 < peers; i++) {
        struct node_report report;

        node_report(cluster_node(cluster, i), &report);
        rounds += report.rounds_ok;
    }
    return rounds;
}

/* Of all but the last peer, in 30 s; before each of its rounds that one leaps ahead. */
static uint64_t rounds_beside(bool leaps, const char *topology)
{
    const struct cluster_options options = {
        .peers = PEERS_MAX, .is_quiet = true, .step_cost_ns = 20 * NS_PER_MS};
    struct cluster *cluster = start(options, "dpsgd:H=4", topology, seed_first());
    struct node *last = cluster_node(cluster, PEERS_MAX - 1);
    struct edges *edges = (struct edges *)(void *)last->round->exchange;
    uint64_t before = 0;

    for (int i = 0; i < 6000; i++) {
        if (i == 3000) before = rounds_of_others(cluster, PEERS_MAX);
        if (leaps && !edges->is_active) edges->counts.next_round |= 1023;
        cluster_run(cluster, 10 * NS_PER_MS);
    }
    before = rounds_of_others(cluster, PEERS_MAX) - before;
    cluster_destroy(cluster);
    return before;
}

static void who_leaps_ahead_costs_the_others_little(void **state)
{
    static const char *const topologies[] = {"ring", "random:4"};

    (void)state;
    if (is_only_sanitized()) skip();
    for (size_t t = 0; t < ARRAY_COUNT(topologies); t++) {
        uint64_t alone = rounds_beside(false, topologies[t]);
        uint64_t beside = rounds_beside(true, topologies[t]);

        printf("%s: %llu rounds, %llu beside one that leaps ahead\n", topologies[t],
               (unsigned long long)alone, (unsigned long long)beside);
        assert_true(alone > 2000 && 10 * beside >= 9 * alone);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(methods_for_unlike_data_are_exact_where_dpsgd_is_biased),
        cmocka_unit_test(a_tracker_that_blew_up_is_forgotten),
        cmocka_unit_test(springs_hold_up_to_a_half_on_a_ring),
        cmocka_unit_test(neighbours_come_and_go),
        cmocka_unit_test(who_leaps_ahead_costs_the_others_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
