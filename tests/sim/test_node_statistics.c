/* Running statistics of batch normalisation in complete peers: mixed, handed to joiners, rolled
 * back. */
#include "tests/check.h"

#include "base/bytes.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <math.h>

enum { PEERS = 3, CHANNELS = 8, STATISTICS = 2 * CHANNELS };

/* Replicas whose steps change nothing, so that what changes comes from averaging. */
struct still {
    struct backend *backend;
    struct spy spy;
    uint64_t steps[PEERS];
    uint64_t explodes_at; /* step of peer 0 at which its statistics and loss are no numbers; 0 */
};

static struct still still; /* train() has no context of its own */

static enum rc still_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                           struct train_report *report)
{
    const uint32_t i = spy_number(&still.spy, learner);
    float poison[STATISTICS];

    (void)stop;
    still.steps[i] += steps;
    if (i == 0 && still.explodes_at > 0 && still.steps[i] >= still.explodes_at) {
        still.explodes_at = 0;
        for (int s = 0; s < STATISTICS; s++) {
            poison[s] = NAN;
        }
        assert_int_equal(learner->ops->assign_section(learner, SECTION_BUFFERS, poison, STATISTICS),
                         RC_OK);
        return RC_NONFINITE;
    }
    *report = (struct train_report){
        .steps = steps, .step = still.steps[i], .samples = 32 * still.steps[i], .loss_sum = steps};
    return RC_OK;
}

static void still_set_step(struct learner *learner, uint64_t step)
{
    still.steps[spy_number(&still.spy, learner)] = step;
}

static struct learner *still_create(void *context, uint32_t peer)
{
    const struct replica_options options = {.model = "linear:8 bn relu linear:classes",
                                            .data = "digits",
                                            .seed = 1,
                                            .stream_seed = peer,
                                            .threads = 1};
    struct learner *learner = spy_on(&still.spy, peer, make(still.backend, &options));

    (void)context;
    still.spy.ops.train = still_train;
    still.spy.ops.set_step = still_set_step;
    return learner;
}

static int set_up(void **state)
{
    int failed = make_backend(state);

    still = (struct still){.backend = *state};
    return failed;
}

static void statistics_of(struct cluster *cluster, uint32_t peer, float *values)
{
    struct learner *learner = cluster_learner(cluster, peer);

    assert_int_equal(learner->ops->export_section(learner, SECTION_BUFFERS, values, STATISTICS),
                     RC_OK);
}

/* Peer i has seen values around i - 1 with variance 1 + i, a little different in each channel. */
static void put_apart(struct cluster *cluster, uint32_t peers)
{
    for (uint32_t i = 0; i < peers; i++) {
        struct learner *learner = cluster_learner(cluster, i);
        float values[STATISTICS];

        for (int c = 0; c < CHANNELS; c++) {
            values[c] = (float)i - 1 + 0.125F * (float)c;
            values[CHANNELS + c] = 1 + (float)i;
        }
        assert_int_equal(learner->ops->assign_section(learner, SECTION_BUFFERS, values, STATISTICS),
                         RC_OK);
    }
}

static bool are_pooled(struct cluster *cluster, uint32_t peers, uint32_t origins, double tolerance)
{
    double mean = 0, variance = 0, square = 0;

    for (uint32_t i = 0; i < origins; i++) {
        mean += (i - 1.0) / origins;
        square += (i - 1.0) * (i - 1.0) / origins;
        variance += (1.0 + i) / origins;
    }
    variance += square - mean * mean; /* the same shift in all peers: no matter for the spread */
    for (uint32_t i = 0; i < peers; i++) {
        float values[STATISTICS];
        statistics_of(cluster, i, values);
        for (int c = 0; c < CHANNELS; c++) {
            if (fabs(values[c] - (mean + 0.125 * c)) > tolerance) return false;
            if (fabs(values[CHANNELS + c] - variance) > tolerance) return false;
        }
    }
    return true;
}

static struct cluster_options options_of(uint64_t seed, const char *exchange)
{
    return (struct cluster_options){.peers = PEERS,
                                    .seed = seed,
                                    .latency_ns = NS_PER_MS,
                                    .values = 8 * 64 + 16 + 10 * 8 +
                                              10, /* a bias in front of bn would be idle */
                                    .step_cost_ns = 100 * NS_PER_MS,
                                    .averaging = "local-sgd:H=4",
                                    .exchange = exchange,
                                    .learner = still_create};
}

static void a_group_round_pools_the_statistics_of_its_members(void **state)
{
    /* Proves: three peers that have seen different data all end with the mean of their means and
     * the variance of all their data together, and stay there in the rounds that follow. */
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        const struct cluster_options options = options_of(seed, NULL);
        struct cluster *cluster = cluster_create(&options);

        memset(still.steps, 0, sizeof still.steps);
        swarm_start(cluster, PEERS);
        check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
        put_apart(cluster, PEERS);
        cluster_run(cluster, 10 * NS_PER_S);
        check_seed(seed, are_pooled(cluster, PEERS, PEERS, 1e-4));
        check_seed(seed, cluster_distance(cluster) < 1e-6);
        cluster_destroy(cluster);
    }
}

static void pair_rounds_pool_them_in_the_long_run(void **state)
{
    /* Proves: pairs keep the sums of means and of second moments, so all end where a group would.
     */
    (void)state;
    const struct cluster_options options = options_of(5, "pair");
    struct cluster *cluster = cluster_create(&options);

    memset(still.steps, 0, sizeof still.steps);
    swarm_start(cluster, PEERS);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 10 * NS_PER_S));
    put_apart(cluster, PEERS);
    cluster_run(cluster, 60 * NS_PER_S);
    assert_true(are_pooled(cluster, PEERS, PEERS, 1e-3));
    cluster_destroy(cluster);
}

static void who_joins_gets_the_statistics_with_the_model(void **state)
{
    /* Proves: a late peer, whose own statistics are those of a fresh model, takes the swarm's and
     * does not dilute them. */
    (void)state;
    const struct cluster_options options = options_of(7, NULL);
    const uint32_t first = 0;
    struct cluster *cluster = cluster_create(&options);

    memset(still.steps, 0, sizeof still.steps);
    swarm_start(cluster, 2);
    cluster_run(cluster, 5 * NS_PER_S);
    put_apart(cluster, 2);
    cluster_run(cluster, 10 * NS_PER_S);
    assert_true(are_pooled(cluster, 2, 2, 1e-4));
    cluster_start(cluster, 2, &first, 1);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 10 * NS_PER_S);
    assert_true(are_pooled(cluster, PEERS, 2, 1e-4));
    cluster_destroy(cluster);
}

static void rolling_back_takes_the_statistics_back_too(void **state)
{
    /* Proves: when a loss is no longer finite, statistics that took part in it do not outlive it,
     * without a neighbour whose model could be taken instead. */
    (void)state;
    const struct cluster_options options = options_of(9, NULL);
    struct cluster *cluster = cluster_create(&options);
    float values[STATISTICS];

    memset(still.steps, 0, sizeof still.steps);
    swarm_start(cluster, 1);
    cluster_run(cluster, 2 * NS_PER_S);
    still.explodes_at = still.steps[0] + 3;
    cluster_run(cluster, 10 * NS_PER_S);
    assert_int_equal(still.explodes_at, 0);
    assert_true(cluster_is_up(cluster, 0));
    statistics_of(cluster, 0, values);
    for (int s = 0; s < STATISTICS; s++) {
        assert_true(fabsf(values[s] - (s < CHANNELS ? 0 : 1)) < 1e-6F);
    }
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_group_round_pools_the_statistics_of_its_members),
        cmocka_unit_test(pair_rounds_pool_them_in_the_long_run),
        cmocka_unit_test(who_joins_gets_the_statistics_with_the_model),
        cmocka_unit_test(rolling_back_takes_the_statistics_back_too),
    };
    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
