/* Momentum of the mixed model (qg-dsgdm) by complete peers: its equation, and unlike data. */
#include "tests/check.h"

#include "base/check.h"
#include "testnet/cluster.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 200, PEERS = 4 };

static struct cluster *run(const struct cluster_options *options, uint64_t ns)
{
    struct cluster *cluster = cluster_create(options);

    swarm_start(cluster, options->peers);
    cluster_run(cluster, ns);
    return cluster;
}

/* The published step of peers that are all alike, from x with the optimum c, `steps` of them, H
 * steps a round: written out in double. */
static double equation(double x, double c, uint64_t steps, uint64_t every, double rate, double keep)
{
    double m = 0, before = x;

    for (uint64_t step = 1; step <= steps; step++) {
        x -= rate * (keep * m + (x - c));
        if (step % every != 0) continue;
        m = keep * m + (1 - keep) * (before - x) / ((double)every * rate);
        before = x;
    }
    return x;
}

/* Each with the same data and start: mixing moves nothing, and momentum is all there is. */
static void peers_that_are_alike_follow_the_equation(void **state)
{
    (void)state;
    static const char *const specs[] = {"qg-dsgdm", "qg-dsgdm:H=5,momentum=0.8"};
    static const double keeps[] = {0.9, 0.8};
    static const uint64_t everies[] = {1, 5};

    for (size_t k = 0; k < ARRAY_COUNT(specs); k++) {
        static float begun[VALUES], rested[VALUES], plane[VALUES];
        struct cluster_options options = {.peers = PEERS,
                                          .seed = 3,
                                          .start_with = PEERS,
                                          .averaging = specs[k],
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .learning_rate = 0.01};
        struct cluster *cluster = cluster_create(&options);
        uint64_t steps;
        double most[2] = {0, 0};

        swarm_start(cluster, PEERS);
        cluster_run(cluster, NS_PER_MS); /* nobody is linked, so nobody steps */
        cluster_plane(cluster, 0, begun);
        while (swarm_report(cluster, 0).step < 40) {
            cluster_run(cluster, NS_PER_MS);
        }
        steps = swarm_report(cluster, 0).step;
        cluster_plane(cluster, 0, plane);
        cluster_run(cluster, 200 * NS_PER_S);
        cluster_plane(cluster, 0, rested); /* the optimum */
        cluster_destroy(cluster);
        for (size_t i = 0; i < VALUES; i++) {
            for (uint64_t more = 0; more < 2; more++) { /* one step may be under way */
                double wanted = equation((double)begun[i], (double)rested[i], steps + more,
                                         everies[k], 0.01, keeps[k]);

                most[more] = fmax(most[more], fabs(wanted - (double)plane[i]));
            }
        }
        if (!(fmin(most[0], most[1]) < 1e-5)) {
            fail_msg("%s: %g or %g from the equation", specs[k], most[0], most[1]);
        }
    }
}

/* One that is alone moves along its own steps. In the end they are 1 / (1 - 0.9) as long; that
 * takes about 1 / (1 - 0.9)^2 periods, and 800 steps are 400 of them. Without, e^-1.6 of the way is
 * left.
 */
static void one_that_is_alone_has_momentum(void **state)
{
    (void)state;
    struct cluster_options options = {.peers = 1,
                                      .seed = 3,
                                      .averaging = "qg-dsgdm:H=2",
                                      .values = VALUES,
                                      .learning_rate = 0.002};
    static float with[VALUES], without[VALUES], rested[VALUES];
    struct cluster *cluster = run(&options, 8 * NS_PER_S);
    double left[2] = {0, 0};

    cluster_plane(cluster, 0, with);
    cluster_run(cluster, 400 * NS_PER_S);
    cluster_plane(cluster, 0, rested);
    cluster_destroy(cluster);
    options.averaging = "none";
    cluster = run(&options, 8 * NS_PER_S);
    cluster_plane(cluster, 0, without);
    cluster_destroy(cluster);
    for (size_t i = 0; i < VALUES; i++) {
        left[0] += fabs((double)(with[i] - rested[i]));
        left[1] += fabs((double)(without[i] - rested[i]));
    }
    if (!(left[0] < left[1] / 2)) fail_msg("%g left, %g without", left[0], left[1]);
}

/* A crash loses the momentum and no more: who comes back goes on with the others. */
static void one_that_comes_back_begins_anew(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        const uint32_t first = 0;
        struct cluster_options options = {.peers = PEERS,
                                          .seed = seed,
                                          .averaging = "qg-dsgdm:H=2",
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .centre_spread = 1,
                                          .noise = 0.01,
                                          .learning_rate = 0.005};
        struct cluster *cluster = run(&options, 20 * NS_PER_S);

        cluster_crash(cluster, 2);
        cluster_run(cluster, 10 * NS_PER_S);
        cluster_start(cluster, 2, &first, 1);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 30 * NS_PER_S));
        cluster_run(cluster, 20 * NS_PER_S);
        check_seed(seed, swarm_report(cluster, 2).rounds_ok > 20);
        check_seed(seed, cluster_distance(cluster) < 2);
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(peers_that_are_alike_follow_the_equation),
        cmocka_unit_test(one_that_is_alone_has_momentum),
        cmocka_unit_test(one_that_comes_back_begins_anew),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
