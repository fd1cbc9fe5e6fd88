/*
 * How long rounds take beside the slowest live peer: seven peers of unlike speed and an eighth that
 * falls silent, on three networks. A round of the slowest is its own steps and the way of what a
 * round says and sends; the mean round of the live may take 1.3 times that, so that nobody is
 * waited for much longer than any of the living would need. In what phase of a round the eighth
 * is lost decides much of what that one and the next cost, so several moments count, as their mean.
 * LONG=1 also kills it, and watches for 20 minutes of virtual time.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "tests/sim/swarm.h"

enum { PEERS = 8, LIVE = PEERS - 1, VALUES = 50000, STEPS = 2, TRIPS = 5, MOMENTS = 5 };
#define STEP_NS     (500 * NS_PER_MS)
#define APART_NS    (430 * NS_PER_MS) /* one moment from the next: no part of a period */
#define BYTES_PER_S UINT64_C(12500000)

struct profile {
    const char *name;
    uint64_t latency_ns, jitter_ns;
};

static const double speeds[PEERS] = {1, 1, 1, 0.9, 0.8, 0.7, 0.5, 1};

/* Steps, then FORM, JOIN, START, contributions and means, one after the other. */
static double slowest_s(const struct profile *profile)
{
    double slowest = 1, trip = (double)(profile->latency_ns + profile->jitter_ns);
    double bytes = 2.0 * VALUES * sizeof(float);

    for (uint32_t i = 0; i < LIVE; i++) {
        if (speeds[i] < slowest) slowest = speeds[i];
    }
    return (STEPS * (double)STEP_NS / slowest + TRIPS * trip) / 1e9 + bytes / (double)BYTES_PER_S;
}

static uint64_t rounds_of_live(struct cluster *cluster)
{
    uint64_t rounds = 0;

    for (uint32_t i = 0; i < LIVE; i++) {
        struct node_report report;

        node_report(cluster_node(cluster, i), &report);
        rounds += report.rounds_ok;
    }
    return rounds;
}

/* The mean round of the live, in seconds, from when the last peer falls silent or is killed. */
static double round_s(const struct profile *profile, bool is_killed, uint32_t moment)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed_first(),
                                      .latency_ns = profile->latency_ns,
                                      .jitter_ns = profile->jitter_ns,
                                      .bytes_per_s = BYTES_PER_S,
                                      .values = VALUES,
                                      .step_cost_ns = STEP_NS,
                                      .speeds = speeds,
                                      .averaging = "local-sgd:H=2"};
    uint64_t watch_ns = (getenv("LONG") == NULL ? 60 : 1200) * NS_PER_S, before, rounds;
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, PEERS);
    cluster_run(cluster, 40 * NS_PER_S + moment * APART_NS); /* deadlines are learned */
    before = rounds_of_live(cluster);
    if (is_killed) {
        cluster_crash(cluster, PEERS - 1);
    } else {
        sim_host_freeze(cluster_world(cluster), PEERS, true); /* hosts count from 1 */
    }
    cluster_run(cluster, watch_ns);
    rounds = rounds_of_live(cluster) - before;
    cluster_destroy(cluster);
    assert_true(rounds > 0);
    return (double)watch_ns / 1e9 * LIVE / (double)rounds;
}

static void the_mean_round_is_not_much_longer_than_that_of_the_slowest(void **state)
{
    static const struct profile profiles[] = {{"loopback", NS_PER_MS / 20, NS_PER_MS / 10},
                                              {"50 ms", 50 * NS_PER_MS, 20 * NS_PER_MS},
                                              {"300 ms", 300 * NS_PER_MS, 100 * NS_PER_MS}};
    bool is_kept = true;

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(profiles); i++) {
        for (int killed = 0; killed < (getenv("LONG") == NULL ? 1 : 2); killed++) {
            double slowest = slowest_s(&profiles[i]);
            double mean = 0, most = 0;

            for (uint32_t moment = 0; moment < MOMENTS; moment++) {
                double one = round_s(&profiles[i], killed == 1, moment);

                mean += one / MOMENTS;
                if (one > most) most = one;
            }
            printf("  %-9s one %s: mean round %.2f s (of a moment at most %.2f s), of the slowest "
                   "live peer %.2f s: %.2f\n",
                   profiles[i].name, killed == 1 ? "killed" : "silent", mean, most, slowest,
                   mean / slowest);
            is_kept = is_kept && mean <= 1.3 * slowest;
        }
    }
    assert_true(is_kept);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_mean_round_is_not_much_longer_than_that_of_the_slowest),
    };

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    if (getenv("LONG") == NULL) {
        puts("skipped: other simulations run this code under sanitizers; LONG=1 runs it");
        return 77;
    }
#endif
    return cmocka_run_group_tests(tests, NULL, NULL);
}
