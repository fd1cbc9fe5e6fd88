/* Every method of --averaging, run by complete peers in the simulated world. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/mem.h"
#include "replica/learners/quadratic.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 600 };

static const char *const methods[] = {
    "local-sgd:H=4",
    "des-loc:H=4",
    "allreduce",
    "post-local:H=4,switch=20",
    "adacomm:H=8,block=40",
    "ad-psgd",
    "ssp:s=2",
    "swarmsgd",
    "moshpit:H=4",
    "bmuf:H=4",
    "slowmo:H=4",
    "diloco:H=4",
    "easgd:tau=4",
    "easgd:tau=4,rho=0.2",
    "easgd:push=2,pull=4",
    "easgd:push=8,pull=2",
    "diloco:H=4,lr=1,momentum=0",
    "sparseloco:H=4",
    "dpsgd",
    "dpsgd:H=4,order=cta",
    "matcha",
    "aeasgd:tau=4",
    "d2:H=2",
    "gradient-tracking",
    "noloco:H=4",
    "async-diloco:H=4",
    "gasloc:H=4",
    "muloco:H=4",
    "qg-dsgdm",
    "choco",
    "choco:H=4,order=a,gamma=0.5",
    "push-sum:H=4",
    "osgp:H=4,tau=8",
    "gossipgrad",
    "gosgd:p=0.3",
    "diloco:H=8,tau=4",
    "sparseloco:H=8,tau=4",
    "streaming-diloco:H=8,P=4,tau=1,lr=0.7",
    "streaming-diloco:H=8,P=2,tau=0,a=0,lr=0.7",
    "decoupled-diloco:H=8,P=4,tau=1",
    "sparta:p=0.25",
    "loscar:H=4,p=0.25,tau=4",
};

static struct cluster *start(struct cluster_options options, uint64_t seed, const char *averaging)
{
    struct cluster *cluster;

    options.seed = seed;
    options.averaging = averaging;
    options.latency_ns = NS_PER_MS;
    options.values = VALUES;
    cluster = cluster_create(&options);
    swarm_start(cluster, options.peers);
    check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    return cluster;
}

/* Every peer somewhere else, so that coming together can be seen. */
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

/* Without training, averaging alone must bring everyone to one place. An elastic pull leaves
 * (1 - alpha) of the way each round, so that is looked at after many rounds. */
static void every_method_brings_peers_together(void **state)
{
    (void)state;
    if (is_only_sanitized()) skip();
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        struct cluster_options options = {.peers = 4, .is_quiet = true};
        struct cluster *cluster = start(options, m + 1, methods[m]);
        double before, after;

        scatter(cluster, 4, m);
        before = cluster_distance(cluster);
        cluster_run(cluster, 10 * NS_PER_S);
        after = cluster_distance(cluster);
        if (!(before > 10 && after < 1e-3 * before)) {
            fail_msg("%s: %g apart, then %g", methods[m], before, after);
        }
        cluster_destroy(cluster);
    }
}

/* Peers with non-IID data find the optimum of all, which none finds alone. */
static void every_method_trains_to_the_common_optimum(void **state)
{
    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        struct cluster_options options = {
            .peers = 4, .noise = 0.01, .centre_spread = 1, .learning_rate = 0.05};
        struct cluster *cluster = start(options, m + 1, methods[m]);
        double distance;

        cluster_run(cluster, 20 * NS_PER_S);
        distance = cluster_distance(cluster);
        for (uint32_t i = 0; i < 4; i++) {
            struct node_report report = swarm_report(cluster, i);

            if (report.rounds_ok < 20) {
                fail_msg("%s: %llu rounds", methods[m], (unsigned long long)report.rounds_ok);
            }
        }
        /* Alone each would end sqrt(VALUES) * sqrt(3/4) = 21 from the mean of all. Springs of 0.9 /
         * 4 against 4 steps of 0.05 hold at 0.2 / (0.2 + 0.225) of that; means are far closer. */
        if (!(distance < 12)) fail_msg("%s: %g apart", methods[m], distance);
        cluster_destroy(cluster);
    }
}

/* allreduce: no step is taken between a round's snapshot and its result, so a peer takes at most
 * one step a round, but for those when nobody else was there. */
static void training_waits_where_the_method_says_so(void **state)
{
    (void)state;
    struct cluster_options options = {.peers = 3};
    struct cluster *cluster = start(options, 1, "allreduce");
    struct node_report before = swarm_report(cluster, 1), after;

    cluster_run(cluster, 20 * NS_PER_S);
    after = swarm_report(cluster, 1);
    assert_true(after.rounds_ok > before.rounds_ok + 100);
    assert_true(after.step - before.step <= after.rounds_ok - before.rounds_ok +
                                                (after.rounds_aborted - before.rounds_aborted) + 5);
    cluster_destroy(cluster);
}

/* A peer that waits must not wait for one that is gone. */
static void nobody_waits_for_the_dead(void **state)
{
    (void)state;
    static const char *const methods_of[] = {"allreduce", "diloco:H=4",
                                             "streaming-diloco:H=8,P=2,tau=1", "sparseloco:H=4",
                                             "decoupled-diloco:H=8,P=2,tau=1"};

    FOR_EACH_SEED (seed, 10) {
        struct cluster_options options = {.peers = 4, .learning_rate = 0.05, .noise = 0.01};
        struct cluster *cluster = start(options, seed, methods_of[seed % 5]);
        const uint32_t first = 0;
        struct node_report before, after;

        cluster_run(cluster, 5 * NS_PER_S);
        cluster_crash(cluster, 3);
        cluster_run(cluster, 20 * NS_PER_S); /* noticed by now */
        before = swarm_report(cluster, 1);
        cluster_run(cluster, 10 * NS_PER_S);
        after = swarm_report(cluster, 1);
        check_seed(seed, after.step > before.step + 100);
        check_seed(seed, after.rounds_ok > before.rounds_ok + 20);
        cluster_start(cluster, 3, &first, 1); /* from its checkpoint, anchor included */
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 30 * NS_PER_S));
        cluster_run(cluster, 20 * NS_PER_S);
        check_seed(seed, swarm_report(cluster, 3).rounds_ok > 0);
        check_seed(seed, cluster_distance(cluster) < 1);
        cluster_destroy(cluster);
    }
}

/* easgd:push=16,pull=4 holds the models with the rounds of tau=16: nearer together, no more bytes.
 */
static void springs_may_pull_between_rounds(void **state)
{
    (void)state;
    static const char *const specs[] = {"easgd:tau=16", "easgd:push=16,pull=4"};
    double apart[2];
    uint64_t rounds[2];

    if (is_only_sanitized()) skip();
    for (int i = 0; i < 2; i++) {
        struct cluster_options options = {
            .peers = 4, .noise = 0.01, .centre_spread = 1, .learning_rate = 0.02};
        struct cluster *cluster = start(options, 5, specs[i]);

        cluster_run(cluster, 20 * NS_PER_S);
        apart[i] = cluster_distance(cluster);
        rounds[i] = swarm_report(cluster, 1).rounds_ok;
        cluster_destroy(cluster);
    }
    /* In the end a peer's own steps, 1 - 0.98^16 of the way to its own optimum, stand against one
     * pull of 0.225, or 1 - 0.98^4 against the like: 0.276 / (0.276 + 0.724 0.225) = 0.63 of the
     * way before the pull, 0.078 / (0.078 + 0.922 0.225) = 0.27. */
    if (!(apart[1] < 0.65 * apart[0])) fail_msg("%g apart, then %g", apart[0], apart[1]);
    if (rounds[1] > rounds[0] * 11 / 10) {
        fail_msg("%llu rounds, then %llu", (unsigned long long)rounds[0],
                 (unsigned long long)rounds[1]);
    }
}

static bool have_all_two_rounds(struct cluster *cluster, void *context)
{
    const uint64_t *wanted = context;

    for (uint32_t i = 0; i < 16; i++) {
        if (swarm_report(cluster, i).rounds_ok < wanted[i]) return false;
    }
    return true;
}

/* A full 4 x 4 grid: the exact mean of all after two rounds, one of lines and one of columns. */
static void a_full_grid_is_exact_after_two_rounds(void **state)
{
    (void)state;
    struct cluster_options options = {
        .peers = 16, .is_quiet = true, .topology = "grid:4", .step_cost_ns = 50 * NS_PER_MS};
    struct cluster *cluster = start(options, 3, "moshpit:H=40");
    uint64_t wanted[16];
    double before;

    cluster_run(cluster, 5 * NS_PER_S);
    for (uint32_t i = 0; i < 16; i++) {
        wanted[i] = swarm_report(cluster, i).rounds_ok + 3; /* one may be under way */
    }
    scatter(cluster, 16, 5);
    before = cluster_distance(cluster);
    assert_true(cluster_run_until(cluster, have_all_two_rounds, wanted, 60 * NS_PER_S));
    cluster_run(cluster, NS_PER_S);
    if (cluster_distance(cluster) > 1e-6 * before) {
        fail_msg("%g apart of %g", cluster_distance(cluster), before);
    }
    cluster_destroy(cluster);
}

/* swarmsgd:p=0.2: each peer begins at most one round in 5 steps, and is met as often: no more than
 * two in 5. Each yes of chance leads to one, begun or met, and at a step with a round there is no
 * draw: with a share r of such steps r >= 0.2 (1 - r). */
static void chance_says_when_pairs_meet(void **state)
{
    (void)state;
    struct cluster_options options = {.peers = 4, .step_cost_ns = 40 * NS_PER_MS};
    struct cluster *cluster = start(options, 2, "swarmsgd:p=0.2");
    struct node_report before = swarm_report(cluster, 1), after;
    double share;

    cluster_run(cluster, 100 * NS_PER_S);
    after = swarm_report(cluster, 1);
    share = (double)(after.rounds_ok - before.rounds_ok) / (double)(after.step - before.step);
    if (!(share > 0.16 && share < 0.42)) fail_msg("a round after %g of the steps", share);
    cluster_destroy(cluster);
}

/* Complete peers with non-IID data: with diloco's rate and momentum, gasloc goes its way where all
 * are in one group. */
static void gasloc_over_all_is_diloco(void **state)
{
    (void)state;
    static const char *const specs[] = {"diloco:H=4", "gasloc:H=4,momentum=0.9"};
    static float planes[2][4][VALUES];
    uint64_t rounds[2];
    double apart = 0, way = 0;

    for (int i = 0; i < 2; i++) {
        struct cluster_options options = {.peers = 4,
                                          .start_with = 4, /* nobody misses a round */
                                          .topology = "complete",
                                          .centre_spread = 1,
                                          .learning_rate = 0.01};
        struct cluster *cluster = start(options, 7, specs[i]);

        cluster_run(cluster, 2 * NS_PER_S);
        rounds[i] = swarm_report(cluster, 1).rounds_ok;
        for (uint32_t p = 0; p < 4; p++) {
            cluster_plane(cluster, p, planes[i][p]);
        }
        cluster_destroy(cluster);
    }
    assert_true(rounds[0] > 20);
    assert_int_equal(rounds[0], rounds[1]);
    for (uint32_t p = 0; p < 4; p++) {
        for (size_t k = 0; k < VALUES; k++) {
            apart = fmax(apart, fabs((double)(planes[0][p][k] - planes[1][p][k])));
            way = fmax(way, fabs((double)planes[0][p][k]));
        }
    }
    if (!(apart < 1e-5 * way)) fail_msg("%g apart, of values up to %g", apart, way);
}

/* Rates as last set, by peer; learners have no context of their own. */
static struct learner_ops spied[4];
static struct learner *learners[4];
static double rates[4];
static uint32_t changes[4];

static void spy(struct learner *learner, double factor)
{
    for (uint32_t i = 0; i < 4; i++) {
        if (learners[i] != learner) continue;
        if (factor > rates[i]) assert_true(factor - rates[i] < 0.5); /* never at once */
        rates[i] = factor;
        changes[i]++;
    }
}

static struct learner *spied_learner(void *context, uint32_t peer)
{
    struct quadratic_options options = {
        .values = VALUES, .curvature = 1, .learning_rate = 0.01, .seed = 1, .stream_seed = peer};

    (void)context;
    assert_int_equal(quadratic_create(&options, &learners[peer]), RC_OK);
    spied[peer] = *learners[peer]->ops;
    spied[peer].set_rate_factor = spy;
    learners[peer]->ops = &spied[peer];
    rates[peer] = 1;
    changes[peer] = 0;
    return learners[peer];
}

/* --lr-scaling linear: n times the rate after a while, less at once when a peer has gone. */
static void the_rate_follows_who_averages(void **state)
{
    (void)state;
    struct cluster_options options = {
        .peers = 4, .rate_scaling = RATE_LINEAR, .learner = spied_learner};
    struct cluster *cluster = start(options, 1, "local-sgd:H=8");

    cluster_run(cluster, 10 * NS_PER_S);
    for (uint32_t i = 0; i < 4; i++) {
        assert_true(rates[i] == 4 && changes[i] > 10);
    }
    cluster_crash(cluster, 2);
    cluster_run(cluster, 20 * NS_PER_S);
    assert_true(rates[0] == 3 && rates[1] == 3 && rates[3] == 3);
    cluster_destroy(cluster);

    options.rate_scaling = RATE_AS_GIVEN;
    cluster = start(options, 1, "local-sgd:H=8");
    cluster_run(cluster, 5 * NS_PER_S);
    assert_int_equal(changes[0] + changes[1] + changes[2] + changes[3], 0);
    cluster_destroy(cluster);
}

/* Peers whose rounds would mean something else at either end, or never meet, do not link: the one
 * that joins ends with a line that names both methods, and costs those that are there nothing. */
static void unlike_methods_are_not_mixed(void **state)
{
    (void)state;
    static const char *const unlike[][2] = {
        {"dpsgd", "d2"},
        {"dpsgd", "gradient-tracking"},
        {"dpsgd", "choco:order=a"},
        {"ad-psgd", "noloco:H=1"},
        {"local-sgd:H=4", "diloco:H=4"},
        {"slowmo:H=4", "bmuf:H=4"},
        {"easgd:tau=4", "diloco:H=4"},
        {"diloco:H=4", "diloco:H=4,lr=0.6"},
        {"noloco:H=4", "noloco:H=4,momentum=0.4"},
        {"gasloc:H=4", "noloco:H=4"},
        {"async-diloco:H=4", "noloco:H=4"},
        {"async-diloco:H=4", "async-diloco:H=4,N=3"},
        {"gasloc:H=4", "gasloc:H=4,alpha=0.9"},
        {"diloco:H=4", "streaming-diloco:H=4,P=2,tau=0,lr=0.7"},
        {"streaming-diloco:H=8,P=2,tau=1", "streaming-diloco:H=8,P=4,tau=1"},
        {"decoupled-diloco:H=8,P=2,tau=1", "decoupled-diloco:H=8,P=4,tau=1"},
        {"sparta:p=0.1", "sparta:p=0.2"},
        {"sparta:p=0.5", "local-sgd:H=1"},
        {"des-loc:H=4", "local-sgd:H=4"},
        {"des-loc:H=4", "des-loc:H=4,second=3"},
        {"local-sgd:H=4", "ad-psgd"},
        {"local-sgd:H=4", "push-sum"},
        {"local-sgd:H=4", "one-shot"},
        {"local-sgd:H=4", "none"},
        {"diloco:H=4", "ad-psgd"},
        {"diloco:H=4", "sparseloco:H=4"},
        {"sparseloco:H=4", "sparseloco:H=4,lr=0.9"},
    };

    for (size_t i = 0; i < sizeof unlike / sizeof *unlike; i++) {
        struct cluster_options options = {.peers = 2,
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .averaging = unlike[i][0],
                                          .seed = i + 1};
        struct cluster *cluster = cluster_create(&options);
        uint32_t first = 0;

        if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
        cluster_set_averaging(cluster, 1, unlike[i][1]);
        cluster_start(cluster, 0, NULL, 0);
        cluster_start(cluster, 1, &first, 1);
        cluster_run(cluster, 6 * NS_PER_S);
        check_seed(i, swarm_report(cluster, 0).step >= 5);
        check_seed(i, cluster_node(cluster, 1) == NULL);
        check_seed(i, cluster_result(cluster, 1)->rc == RC_MISMATCH);
        check_seed(i, strstr(cluster_result(cluster, 1)->why.text, "averages with '") != NULL);
        cluster_destroy(cluster);
    }
}

/* Who starts anew with our method is one of us again. */
static void one_that_starts_anew_alike_is_mixed_with(void **state)
{
    (void)state;
    static const char *const methods_of[][2] = {{"local-sgd:H=4", "diloco:H=4"},
                                                {"ad-psgd", "noloco:H=1"}};
    const uint32_t first = 0;

    for (size_t i = 0; i < sizeof methods_of / sizeof *methods_of; i++) {
        struct cluster_options options = {.peers = 2,
                                          .latency_ns = NS_PER_MS,
                                          .values = VALUES,
                                          .averaging = methods_of[i][0],
                                          .seed = i + 1};
        struct cluster *cluster = cluster_create(&options);

        cluster_set_averaging(cluster, 1, methods_of[i][1]);
        cluster_start(cluster, 0, NULL, 0);
        cluster_start(cluster, 1, &first, 1);
        cluster_run(cluster, 4 * NS_PER_S); /* no checkpoint of its other method yet */
        check_seed(i, swarm_report(cluster, 0).rounds_ok == 0);
        check_seed(i, cluster_node(cluster, 1) == NULL);
        cluster_set_averaging(cluster, 1, methods_of[i][0]);
        cluster_start(cluster, 1, &first, 1);
        cluster_run(cluster, 20 * NS_PER_S);
        check_seed(i, swarm_report(cluster, 0).rounds_ok > 5);
        check_seed(i, swarm_report(cluster, 1).rounds_ok > 5);
        cluster_destroy(cluster);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_method_brings_peers_together),
        cmocka_unit_test(every_method_trains_to_the_common_optimum),
        cmocka_unit_test(training_waits_where_the_method_says_so),
        cmocka_unit_test(nobody_waits_for_the_dead),
        cmocka_unit_test(springs_may_pull_between_rounds),
        cmocka_unit_test(chance_says_when_pairs_meet),
        cmocka_unit_test(gasloc_over_all_is_diloco),
        cmocka_unit_test(the_rate_follows_who_averages),
        cmocka_unit_test(unlike_methods_are_not_mixed),
        cmocka_unit_test(one_that_starts_anew_alike_is_mixed_with),
        cmocka_unit_test(a_full_grid_is_exact_after_two_rounds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
