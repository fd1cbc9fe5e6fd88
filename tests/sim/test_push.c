/* Methods that push, by complete peers in the simulated world: no weight is lost on the way. */
#include "tests/check.h"

#include "base/bytes.h"
#include "peer/env/sim/env.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 400, PEERS = 5 };

/* What all of them hold together; false while something is under way. */
static bool total(struct cluster *cluster, double *weight, double *mass)
{
    float plane[VALUES];

    *weight = *mass = 0;
    for (uint32_t i = 0; i < PEERS; i++) {
        struct node_report report = swarm_report(cluster, i);

        if (report.custody_weight != 0) return false;
        cluster_plane(cluster, i, plane);
        *weight += report.weight;
        for (size_t k = 0; k < VALUES; k++) {
            *mass += report.weight * (double)plane[k];
        }
    }
    return true;
}

static bool is_at_rest(struct cluster *cluster, void *unused)
{
    double weight, mass;

    (void)unused;
    return total(cluster, &weight, &mass);
}

/* At some instant, between two rounds, all of it must be there again. */
static bool is_all_there(struct cluster *cluster, void *context)
{
    const double *wanted = context;
    double weight, mass;

    return total(cluster, &weight, &mass) && fabs(weight - PEERS) < 1e-9 &&
           fabs(mass - *wanted) < 1e-4 * fabs(*wanted);
}

static struct cluster *start_far(uint64_t seed, const char *averaging, uint64_t latency_ns)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .averaging = averaging,
                                      .latency_ns = latency_ns,
                                      .step_cost_ns = 20 * NS_PER_MS,
                                      .values = VALUES,
                                      .is_quiet = true};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, PEERS);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    return cluster;
}

static struct cluster *start(uint64_t seed, const char *averaging)
{
    return start_far(seed, averaging, NS_PER_MS);
}

static double scatter(struct cluster *cluster, uint64_t seed)
{
    float plane[VALUES];
    double weight, mass, last = 0;
    struct rng rng;

    rng_init(&rng, seed, 77);
    check_seed(seed, cluster_run_until(cluster, is_at_rest, NULL, 20 * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        for (size_t k = 0; k < VALUES; k++) {
            plane[k] = (float)i + (float)rng_unit(&rng);
        }
        cluster_assign(cluster, i, plane);
    }
    cluster_run(cluster, NS_PER_S); /* rounds that had begun with the old planes are over */
    check_seed(seed, cluster_run_until(cluster, is_at_rest, NULL, 20 * NS_PER_S));
    check_seed(seed, total(cluster, &weight, &mass));
    for (int i = 0; i < 50; i++) { /* a difference may just have been on its way to a model */
        last = mass;
        cluster_run(cluster, 300 * NS_PER_MS);
        check_seed(seed, cluster_run_until(cluster, is_at_rest, NULL, 20 * NS_PER_S));
        check_seed(seed, total(cluster, &weight, &mass));
        if (fabs(mass - last) < 1e-5 * fabs(mass)) break;
    }
    return mass;
}

static void broken_links_lose_nothing(void **state)
{
    (void)state;
    /* Links break again and again, with what is on them: once they heal, weights sum to the number
     * of peers, and the weighted sum of the models is what it was. */
    static const char *const methods[] = {"push-sum:H=2", "osgp:H=2,tau=4", "gosgd:p=0.5"};
    uint64_t returned = 0;

    FOR_EACH_SEED (seed, 3) {
        struct cluster *cluster = start(seed, methods[seed % 3]);
        double mass = scatter(cluster, seed);
        struct rng chaos;

        rng_init(&chaos, seed, 5);
        for (int i = 0; i < 60; i++) {
            uint32_t a = (uint32_t)rng_below(&chaos, PEERS), b = (uint32_t)rng_below(&chaos, PEERS);

            cluster_run(cluster, rng_below(&chaos, 200 * NS_PER_MS));
            if (a != b) sim_cut(cluster_world(cluster), a + 1, b + 1);
        }
        check_seed(seed, cluster_run_until(cluster, is_all_there, &mass, 90 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            struct node_report report = swarm_report(cluster, i);

            check_seed(seed, report.shares_lost == 0 && report.weight > 0);
            returned += report.shares_returned;
        }
        cluster_run(cluster, 10 * NS_PER_S);
        check_seed(seed, cluster_distance(cluster) < 1e-2);
        cluster_destroy(cluster);
    }
    if (getenv("VERBOSE") != NULL) printf("%llu came back\n", (unsigned long long)returned);
}

/* Nothing more gets from `peer` to the others, or from the others to it. */
static void block(struct cluster *cluster, uint32_t peer, bool is_from, bool is_on)
{
    for (uint32_t i = 0; i < PEERS; i++) {
        if (i == peer) continue;
        sim_block(cluster_world(cluster), (is_from ? peer : i) + 1, (is_from ? i : peer) + 1,
                  is_on);
    }
}

/* Everybody leaves and comes back, one after the other, while the others push to it; the last words
 * of one side do not arrive, acknowledgements among them. What is in custody, and what of others
 * was applied, is in checkpoints, so nothing is lost and nothing counts twice. */
static void who_leaves_and_comes_back_has_what_it_had(void **state)
{
    static const char *const methods[] = {"push-sum:H=2", "osgp:H=2,tau=4", "gosgd:p=0.5"};

    (void)state;
    FOR_EACH_SEED (seed, 3) {
        struct cluster *cluster = start_far(seed, methods[seed % 3], 30 * NS_PER_MS);
        double mass = scatter(cluster, seed);
        struct rng chaos;

        rng_init(&chaos, seed, 6);
        for (uint32_t i = 0; i < PEERS; i++) {
            uint32_t other = i == 0 ? 1 : 0;
            bool is_from = rng_below(&chaos, 2) == 0;

            cluster_run(cluster, rng_below(&chaos, 200 * NS_PER_MS));
            block(cluster, i, is_from, true);
            cluster_run(cluster, 60 * NS_PER_MS + rng_below(&chaos, 100 * NS_PER_MS));
            cluster_stop(cluster, i);
            /* Not for so long that it takes the swarm's model, which moves the mass. */
            cluster_run(cluster, NS_PER_S / 2 + rng_below(&chaos, NS_PER_S / 2));
            block(cluster, i, is_from, false);
            cluster_start(cluster, i, &other, 1);
            check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
        }
        check_seed(seed, cluster_run_until(cluster, is_all_there, &mass, 90 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            check_seed(seed, swarm_report(cluster, i).shares_lost == 0);
        }
        cluster_destroy(cluster);
    }
}

static void crashed_peers_come_together_again(void **state)
{
    (void)state;
    /* A peer dies and starts again from a checkpoint of some seconds ago: weight that was given or
     * got since is there twice or not at all, but nobody is left without, and all come together. */
    FOR_EACH_SEED (seed, 2) {
        struct cluster *cluster = start(seed, "push-sum:H=2");
        uint32_t first = 0;
        double sum = 0;

        cluster_run(cluster, 40 * NS_PER_S); /* a checkpoint is written by then */
        (void)scatter(cluster, seed);
        for (uint32_t i = 1; i < PEERS; i++) {
            cluster_crash(cluster, i);
            cluster_run(cluster, 3 * NS_PER_S);
            cluster_start(cluster, i, &first, 1);
            check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
        }
        cluster_run(cluster, 60 * NS_PER_S);
        for (uint32_t i = 0; i < PEERS; i++) {
            struct node_report report = swarm_report(cluster, i);

            check_seed(seed, report.rounds_ok > 20 && report.weight > 1e-3);
            sum += report.weight + report.custody_weight;
        }
        check_seed(seed, sum > 0.5 && sum < 2 * PEERS);
        check_seed(seed, cluster_distance(cluster) < 1e-2);
        cluster_destroy(cluster);
    }
}

static void equal_phases_starve_nobody(void **state)
{
    (void)state;
    /* Nothing is drawn by chance here, so what meets once meets in each period: two senders at one
     * receiver, the same one of them first. Both must get through. */
    FOR_EACH_SEED (seed, 4) {
        struct cluster_options options = {.peers = 4,
                                          .seed = seed,
                                          .averaging = "osgp:H=4",
                                          .topology = "ring",
                                          .latency_ns = 20 * NS_PER_MS,
                                          .step_cost_ns = 100 * NS_PER_MS,
                                          .values = VALUES,
                                          .is_quiet = true};
        struct cluster *cluster = cluster_create(&options);
        float plane[VALUES];

        swarm_start(cluster, options.peers);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
        cluster_run(cluster, 20 * NS_PER_S);
        for (uint32_t i = 0; i < options.peers; i++) {
            for (size_t k = 0; k < VALUES; k++) {
                plane[k] = 4.0f + (float)i; /* not so far apart that the gate takes it for a lie */
            }
            cluster_assign(cluster, i, plane);
        }
        cluster_run(cluster, 40 * NS_PER_S);
        if (getenv("VERBOSE") != NULL) {
            for (uint32_t i = 0; i < options.peers; i++) {
                printf("%g ", swarm_report(cluster, i).weight);
            }
            printf("seed %llu: %g apart\n", (unsigned long long)seed, cluster_distance(cluster));
        }
        check_seed(seed, cluster_distance(cluster) < 1e-2);
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(broken_links_lose_nothing),
        cmocka_unit_test(equal_phases_starve_nobody),
        cmocka_unit_test(who_leaves_and_comes_back_has_what_it_had),
        cmocka_unit_test(crashed_peers_come_together_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
