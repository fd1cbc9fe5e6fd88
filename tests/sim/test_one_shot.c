/* one-shot: peers train alone and average once, when all have reached their goals. */
#include "tests/check.h"

#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 200, PEERS = 4 };

/* Models as of the last difference that came in: learners are gone with their peers. */
static struct spy spy;
static float planes[PEERS][VALUES];
static uint32_t mixed[PEERS];
static uint64_t steps[PEERS];

static enum rc spy_import(struct learner *learner, enum section section, const float *values,
                          size_t count)
{
    const struct learner_ops *ops = &spy.originals;
    const uint32_t i = spy_number(&spy, learner);
    enum rc rc = ops->import_section(learner, section, values, count);
    struct train_report report = {0};

    mixed[i]++;
    assert_int_equal(ops->export_section(learner, SECTION_PARAMETERS, planes[i], VALUES), RC_OK);
    assert_int_equal(ops->train(learner, 0, NULL, &report), RC_OK);
    steps[i] = report.step;
    return rc;
}

static struct learner *spied_learner(void *context, uint32_t peer)
{
    struct learner *learner = spy_on_toy(&spy, peer, VALUES, 0.01);

    (void)context;
    spy.ops.import_section = spy_import;
    mixed[peer] = 0;
    return learner;
}

static struct cluster *create(uint64_t seed, const double *speeds, uint64_t goal)
{
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .averaging = "one-shot",
                                      .latency_ns = NS_PER_MS,
                                      .values = VALUES,
                                      .steps = goal,
                                      .speeds = speeds,
                                      .learner = spied_learner};

    return cluster_create(&options);
}

static struct cluster *start(uint64_t seed, const double *speeds)
{
    struct cluster *cluster = create(seed, speeds, 2000);

    swarm_start(cluster, PEERS);
    return cluster;
}

static void all_end_with_one_average(void **state)
{
    (void)state;
    /* The fast ones wait for the slow ones; each takes its own steps, mixes once, and all have the
     * same model in the end. */
    static const double speeds[PEERS] = {1, 2, 1.5, 0.8};

    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = start(seed, speeds);

        check_seed(seed, cluster_run_until(cluster, cluster_is_done, NULL, 120 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            const struct node_result *result = cluster_result(cluster, i);

            check_seed(seed, result != NULL && result->is_goal_reached);
            check_seed(seed, result->report.rounds_ok == 1);
            check_seed(seed, mixed[i] == 1 && steps[i] == 2000);
            for (size_t k = 0; k < VALUES; k++) {
                check_seed(seed, fabsf(planes[i][k] - planes[0][k]) < 1e-5f);
            }
        }
        cluster_destroy(cluster);
    }
}

static void who_is_far_too_late_is_not_waited_for(void **state)
{
    (void)state;
    /* One is twenty times slower: the others average without it, and it ends with its own model. */
    static const double speeds[PEERS] = {1, 1, 1, 0.05};
    struct cluster *cluster = start(1, speeds);

    assert_true(cluster_run_until(cluster, cluster_is_done, NULL, 900 * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        const struct node_result *result = cluster_result(cluster, i);

        assert_true(result != NULL && result->is_goal_reached);
        assert_int_equal(result->report.rounds_ok, i < 3);
        assert_int_equal(mixed[i], i < 3);
    }
    cluster_destroy(cluster);
}

static void who_dies_meanwhile_is_left_out(void **state)
{
    (void)state;
    struct cluster *cluster = start(2, NULL);

    cluster_run(cluster, 10 * NS_PER_S);
    cluster_crash(cluster, 2);
    assert_true(cluster_run_until(cluster, cluster_is_done, NULL, 300 * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        if (i != 2) assert_int_equal(cluster_result(cluster, i)->report.rounds_ok, 1);
    }
    cluster_destroy(cluster);
}

static void the_quick_wait_to_hear_of_each_other(void **state)
{
    (void)state;
    /* Done before anybody has said twice how far it is; the clock does not begin at zero. */
    FOR_EACH_SEED (seed, 4) {
        struct cluster *cluster = create(seed, NULL, 30);

        cluster_run(cluster, 100 * NS_PER_S);
        swarm_start(cluster, PEERS);
        check_seed(seed, cluster_run_until(cluster, cluster_is_done, NULL, 60 * NS_PER_S));
        for (uint32_t i = 0; i < PEERS; i++) {
            check_seed(seed, mixed[i] == 1);
            check_seed(seed, fabsf(planes[i][0] - planes[0][0]) < 1e-5f);
        }
        cluster_destroy(cluster);
    }
}

static void the_one_average_is_not_made_again(void **state)
{
    (void)state;
    struct cluster *cluster = start(3, NULL);

    assert_true(cluster_run_until(cluster, cluster_is_done, NULL, 120 * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(mixed[i], 1);
    }
    swarm_start(cluster, PEERS); /* from their checkpoints: learners are new, and count anew */
    assert_true(cluster_run_until(cluster, cluster_is_done, NULL, 5 * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(mixed[i], 0);
        assert_true(cluster_result(cluster, i)->is_goal_reached);
    }
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_end_with_one_average),
        cmocka_unit_test(who_is_far_too_late_is_not_waited_for),
        cmocka_unit_test(who_dies_meanwhile_is_left_out),
        cmocka_unit_test(the_quick_wait_to_hear_of_each_other),
        cmocka_unit_test(the_one_average_is_not_made_again),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
