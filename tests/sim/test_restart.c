/* A swarm that is started again from its checkpoints, beside peers that are new: how long until all
 * have mixed. LONG=1: all methods. */
#include "tests/check.h"

#include "base/check.h"
#include "base/rng.h"
#include "peer/node/models/internal.h"
#include "tests/sim/swarm.h"

#include <math.h>
#include <stdio.h>

enum { OLD = 4, PEERS = 8, SEEDS = 4, SEEDS_LONG = 20 };

static bool all_have_mixed(struct cluster *cluster, void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct node_report report;

        node_report(cluster_node(cluster, i), &report);
        if (report.rounds_ok == 0) return false;
    }
    return true;
}

/* Any of the eight may be the one that the others are told of. */
static void start_in_any_order(struct cluster *cluster, struct rng *rng)
{
    uint32_t order[PEERS];

    for (uint32_t i = 0; i < PEERS; i++) {
        uint32_t j = (uint32_t)rng_below(rng, i + 1);

        order[i] = order[j];
        order[j] = i;
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        cluster_start(cluster, order[i], order, i == 0 ? 0 : 1);
        cluster_run(cluster, rng_below(rng, 400 * NS_PER_MS));
    }
}

static double seconds_until_all_have_mixed(const char *averaging, uint64_t seed)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .averaging = averaging,
                                      .values = 2000,
                                      .latency_ns = NS_PER_MS,
                                      .step_cost_ns = 20 * NS_PER_MS};
    struct cluster *cluster = cluster_create(&options);
    struct rng rng;
    uint32_t first = 0;
    uint64_t begun_ns, took_ns;

    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    rng_init(&rng, seed, 5);
    for (uint32_t i = 0; i < OLD; i++) {
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
    cluster_run(cluster, 12 * NS_PER_S + rng_below(&rng, 5 * NS_PER_S));
    for (uint32_t i = 0; i < OLD; i++) {
        cluster_crash(cluster, i);
    }
    start_in_any_order(cluster, &rng);
    begun_ns = sim_now_ns(cluster_world(cluster));
    check_seed(seed, cluster_run_until(cluster, all_have_mixed, NULL, 60 * NS_PER_S));
    took_ns = sim_now_ns(cluster_world(cluster)) - begun_ns;
    cluster_destroy(cluster);
    return (double)took_ns / 1e9;
}

/* The new ones begin with the same initial model, so theirs is related to the one in checkpoints,
 * and may be too far from it to be averaged. Once every second swarm waited 20 s and more. */
static void old_and_new_peers_mix_soon(void **state)
{
    static const char *const methods[] = {"dpsgd:H=4",
                                          "choco:H=4",
                                          "local-sgd:H=16",
                                          "ad-psgd",
                                          "d2:H=4",
                                          "push-sum:H=4",
                                          "moshpit:H=16",
                                          "diloco:H=16",
                                          "noloco:H=16",
                                          "gasloc:H=16",
                                          "sparseloco:H=16",
                                          "des-loc:H=16",
                                          "async-diloco:H=16",
                                          "matcha:H=4",
                                          "gossipgrad:H=4",
                                          "adacomm:H=16,block=100",
                                          "ssp"};
    const bool is_long = getenv("LONG") != NULL;

    (void)state;
    for (size_t m = 0; m < (is_long ? ARRAY_COUNT(methods) : 3); m++) {
        double sum = 0, most = 0;
        uint32_t runs = 0;

        FOR_EACH_SEED (seed, is_long ? SEEDS_LONG : SEEDS) {
            double s = seconds_until_all_have_mixed(methods[m], seed);

            sum += s;
            runs++;
            if (s > most) most = s;
        }
        printf("%-14s all have mixed after %.1f s, at most %.1f (%u runs)\n", methods[m],
               sum / runs, most, runs);
        assert_true(runs == 1 || sum / runs < 9); /* one seed: to look into */
    }
}

/* ---- one that comes back ---- */

enum { FEW = 4, FEW_VALUES = 500 };

static const char *const exchanges[] = {"group", "pair"};

static struct cluster *few(const char *averaging, const char *exchange)
{
    struct cluster_options options = {.peers = FEW,
                                      .seed = 3,
                                      .averaging = averaging,
                                      .exchange = exchange,
                                      .values = FEW_VALUES,
                                      .latency_ns = NS_PER_MS,
                                      .step_cost_ns = 20 * NS_PER_MS};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, FEW);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 10 * NS_PER_S);
    return cluster;
}

static bool is_abreast(struct cluster *cluster, void *context)
{
    uint32_t peer = *(uint32_t *)context, other = (peer + 1) % FEW;

    return node_step(cluster_node(cluster, peer)) + 100 > node_step(cluster_node(cluster, other));
}

/* Away for 2,000 steps, it takes the swarm's model before it mixes its old one in, whatever the
 * exchange: steps say what it missed. */
static void who_missed_much_takes_the_swarms_model(void **state)
{
    static const char *const methods[][2] = {
        {"local-sgd:H=16", "group"}, {"local-sgd:H=16", "pair"}, {"push-sum:H=4", NULL}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        struct cluster *cluster = few(methods[i][0], methods[i][1]);
        uint32_t peer = 3, through = 0;

        cluster_crash(cluster, peer);
        cluster_run(cluster, 40 * NS_PER_S);
        cluster_start(cluster, peer, &through, 1);
        assert_true(cluster_run_until(cluster, is_abreast, &peer, 5 * NS_PER_S));
        cluster_destroy(cluster);
    }
}

static double norm_of(struct cluster *cluster, uint32_t peer)
{
    float plane[FEW_VALUES];
    double squares = 0;

    cluster_plane(cluster, peer, plane);
    for (size_t i = 0; i < FEW_VALUES; i++) {
        squares += (double)plane[i] * (double)plane[i];
    }
    return sqrt(squares);
}

/* Links that peer 1 has had anew since the last look. */
static uint32_t links_anew(struct cluster *cluster, uint64_t *seen_ns)
{
    const struct node *node = cluster_node(cluster, 1);
    uint64_t newest_ns = *seen_ns;
    uint32_t count = 0;

    for (uint32_t i = 0; i < node->neighbours_count; i++) {
        uint64_t linked_ns = node->neighbours[i].linked_ns;

        count += linked_ns > *seen_ns;
        if (linked_ns > newest_ns) newest_ns = linked_ns;
    }
    *seen_ns = newest_ns;
    return count;
}

/* The first peer's folder is lost, and it is started again as before, told of nobody. The others
 * dial it: it takes their model, and mixes no untrained one into it. */
static void who_begins_again_mixes_nothing_in(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(exchanges); i++) {
        struct cluster *cluster = few("local-sgd:H=16", exchanges[i]);
        uint32_t lost = 0, links = 0;
        double before = norm_of(cluster, 1);
        uint64_t seen_ns;

        cluster_crash(cluster, lost);
        cluster_lose(cluster, lost);
        cluster_start(cluster, lost, NULL, 0);
        seen_ns = sim_now_ns(cluster_world(cluster));
        for (int k = 0; k < 750; k++) {
            cluster_run(cluster, 20 * NS_PER_MS);
            links += links_anew(cluster, &seen_ns);
            assert_true(norm_of(cluster, 1) < 1.1 * before);
        }
        assert_true(is_abreast(cluster, &lost));
        assert_true(links <= 3);
        cluster_destroy(cluster);
    }
}

static bool has_begun(struct cluster *cluster, void *context)
{
    return node_step(cluster_node(cluster, *(uint32_t *)context)) > 0;
}

/* At a cold start the last one to come loads its data, or is held up, while the others begin: it
 * has missed nothing that its own steps would not bring. */
static void who_begins_together_downloads_nothing(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        uint32_t first = 0, last = 2;
        struct cluster_options options = {.peers = 3,
                                          .seed = seed,
                                          .averaging = "local-sgd:H=16",
                                          .start_with = 3,
                                          .values = FEW_VALUES,
                                          .latency_ns = NS_PER_MS,
                                          .step_cost_ns = NS_PER_MS};
        struct cluster *cluster = cluster_create(&options);
        const uint32_t through = 0;

        for (uint32_t i = 0; i < 2; i++) { /* by hand, one after the other */
            cluster_start(cluster, i, &through, i);
            cluster_run(cluster, 2 * NS_PER_S);
        }
        cluster_start(cluster, last, &through, 1);
        assert_true(cluster_run_until(cluster, has_begun, &first, 5 * NS_PER_S));
        sim_host_freeze(cluster_world(cluster), last, true);
        cluster_run(cluster, 3 * NS_PER_S / 2);
        assert_true(node_step(cluster_node(cluster, 0)) > 100);
        sim_host_freeze(cluster_world(cluster), last, false);
        cluster_run(cluster, 2 * NS_PER_S);
        for (uint32_t i = 0; i < 3; i++) {
            assert_false(cluster_node(cluster, i)->models->choice.has_taken);
            assert_true(node_step(cluster_node(cluster, i)) > 0);
        }
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(old_and_new_peers_mix_soon),
        cmocka_unit_test(who_missed_much_takes_the_swarms_model),
        cmocka_unit_test(who_begins_again_mixes_nothing_in),
        cmocka_unit_test(who_begins_together_downloads_nothing),
    };

    if (getenv("ONLY") != NULL) cmocka_set_test_filter(getenv("ONLY"));
    return cmocka_run_group_tests(tests, NULL, NULL);
}
