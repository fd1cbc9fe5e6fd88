/* Who keeps the model for others and does not train (--no-train): it changes nothing for those who
 * do, has what they made when they are gone, and gives it to who comes then. */
#include "peer/node/internal.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 200, TRAINERS = 3, KEEPER = TRAINERS, LATE, LATER, PEERS, GOAL = 240 };

/* Parameters after the last step or round of each, as the spy sees them: learners go with their
 * peers. */
static struct {
    struct spy spy;
    float last[PEERS][VALUES];
} seen;

static void look(struct learner *learner)
{
    const uint32_t i = spy_number(&seen.spy, learner);

    assert_int_equal(
        seen.spy.originals.export_section(learner, SECTION_PARAMETERS, seen.last[i], VALUES),
        RC_OK);
}

static enum rc import_and_look(struct learner *learner, enum section section, const float *values,
                               size_t count)
{
    enum rc rc = seen.spy.originals.import_section(learner, section, values, count);

    look(learner);
    return rc;
}

static enum rc train_and_look(struct learner *learner, uint32_t steps, const atomic_bool *must_stop,
                              struct train_report *report)
{
    enum rc rc = seen.spy.originals.train(learner, steps, must_stop, report);

    look(learner);
    return rc;
}

static struct learner *watched(void *context, uint32_t peer)
{
    struct learner *learner = spy_on_toy(&seen.spy, peer, VALUES, 0.02);

    (void)context;
    seen.spy.ops.import_section = import_and_look;
    seen.spy.ops.train = train_and_look;
    return learner;
}

/* Those who train, to their goals, and with them or without one more that keeps the model. */
static struct cluster *trained(const char *averaging, uint64_t seed, bool has_keeper)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = seed,
                                            .averaging = averaging,
                                            .latency_ns = NS_PER_MS,
                                            .values = VALUES,
                                            .steps = GOAL,
                                            .start_with = TRAINERS,
                                            .learner = watched};
    struct cluster *cluster = cluster_create(&options);

    cluster_set_keeper(cluster, KEEPER);
    swarm_start(cluster, has_keeper ? KEEPER + 1 : TRAINERS);
    return cluster;
}

static bool have_trainers_ended(struct cluster *cluster, void *unused)
{
    (void)unused;
    for (uint32_t i = 0; i < TRAINERS; i++) {
        if (cluster_result(cluster, i) == NULL) return false;
    }
    return true;
}

static float most_apart(const float *a, const float *b)
{
    float most = 0;

    for (size_t k = 0; k < VALUES; k++) {
        most = fmaxf(most, fabsf(a[k] - b[k]));
    }
    return most;
}

/* Between what is kept and what the nearest of the trainers ended with. */
static float apart(const float *kept, float last[PEERS][VALUES])
{
    float least = INFINITY;

    for (uint32_t i = 0; i < TRAINERS; i++) {
        least = fminf(least, most_apart(kept, last[i]));
    }
    return least;
}

/* Where training waits for its rounds nothing hangs on when they come: so all is the same to the
 * bit, and the keeper has what the others ended with. */
static void those_who_train_come_to_the_same_bits(void **state)
{
    static const char *const methods[] = {"allreduce", "diloco:H=8", "dpsgd"};

    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        FOR_EACH_SEED (seed, 2) {
            struct cluster *cluster = trained(methods[m], seed, false);
            float alone[PEERS][VALUES], kept[VALUES];
            uint64_t step;

            check_seed(seed, cluster_run_until(cluster, have_trainers_ended, NULL, 60 * NS_PER_S));
            cluster_destroy(cluster);
            memcpy(alone, seen.last, sizeof alone);
            memset(seen.last, 0, sizeof seen.last);
            cluster = trained(methods[m], seed, true);
            check_seed(seed, cluster_run_until(cluster, have_trainers_ended, NULL, 60 * NS_PER_S));
            check_seed(seed, memcmp(alone, seen.last, TRAINERS * sizeof alone[0]) == 0);
            for (uint32_t i = 0; i < TRAINERS; i++) {
                const struct node_result *result = cluster_result(cluster, i);

                check_seed(seed, result->is_goal_reached && !result->never_averaged);
                check_seed(seed, result->report.rounds_aborted == 0);
            }
            cluster_run(cluster, NS_PER_S);
            step = node_step(cluster_node(cluster, KEEPER));
            cluster_plane(cluster, KEEPER, kept);
            check_seed(seed, step >= GOAL - 1);
            check_seed(seed, swarm_report(cluster, KEEPER).own_steps == 0);
            check_seed(seed, swarm_report(cluster, KEEPER).rounds_ok == 0);
            check_seed(seed, apart(kept, seen.last) < 1e-4F);
            cluster_destroy(cluster);
        }
    }
}

/* The first two are at their goals, and wait for the third, when the keeper fetches the model: with
 * all of their steps, and without the last round. It fetches it once more. */
static void what_is_kept_has_the_last_round(void **state)
{
    static const double speeds[PEERS] = {1, 1, 0.9, 1, 1, 1};

    (void)state;
    FOR_EACH_SEED (seed, 4) {
        const struct cluster_options options = {.peers = PEERS,
                                                .seed = seed,
                                                .averaging = "local-sgd:H=16",
                                                .latency_ns = NS_PER_MS,
                                                .values = VALUES,
                                                .steps = GOAL,
                                                .step_cost_ns = 44 * NS_PER_MS,
                                                .speeds = speeds,
                                                .start_with = TRAINERS,
                                                .learner = watched};
        struct cluster *cluster = cluster_create(&options);
        float kept[VALUES];

        cluster_set_keeper(cluster, KEEPER);
        swarm_start(cluster, KEEPER + 1);
        check_seed(seed, cluster_run_until(cluster, have_trainers_ended, NULL, 60 * NS_PER_S));
        cluster_plane(cluster, KEEPER, kept);
        check_seed(seed, apart(kept, seen.last) < 1e-4F);
        cluster_destroy(cluster);
    }
}

static struct cluster *swarm(const char *averaging, uint64_t seed)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = seed,
                                            .averaging = averaging,
                                            .robust = "auto",
                                            .latency_ns = NS_PER_MS,
                                            .values = VALUES,
                                            .learning_rate = 0.001,
                                            .centre_spread = 0.1};
    struct cluster *cluster = cluster_create(&options);

    cluster_set_keeper(cluster, KEEPER);
    cluster_set_model_seed(cluster, KEEPER, 78); /* what it begins with is of no use to anybody */
    swarm_start(cluster, KEEPER + 1);
    return cluster;
}

static bool has_followed(struct cluster *cluster, void *step)
{
    return node_step(cluster_node(cluster, KEEPER)) > *(const uint64_t *)step;
}

static bool has_averaged(struct cluster *cluster, void *peer)
{
    return swarm_report(cluster, *(const uint32_t *)peer).rounds_ok > 0;
}

/* Planes that outer steps keep between rounds. */
static size_t rule_planes(struct cluster *cluster, uint32_t peer)
{
    const float *planes[RULE_STATE_MAX];

    return round_rule_state(cluster_node(cluster, peer)->round, planes);
}

/* In each family all who train die at one moment, and the keeper is started anew. Who comes then,
 * with another model of its own, goes on with theirs, also where outer steps keep an anchor, and
 * alone; the next one averages with it, and the keeper follows the two. */
static void what_they_made_outlives_those_who_train(void **state)
{
    static const char *const methods[] = {"local-sgd:H=8", "diloco:H=20", "ad-psgd:H=8",
                                          "dpsgd:H=8", "push-sum:H=8"};
    const uint32_t keeper = KEEPER, late = LATE, later = LATER;

    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        FOR_EACH_SEED (seed, 2) {
            struct cluster *cluster = swarm(methods[m], seed);
            float then[VALUES], now[VALUES], late_now[VALUES];
            struct digest lineage;
            uint64_t step = 2000, kept;

            check_seed(seed, cluster_run_until(cluster, has_followed, &step, 120 * NS_PER_S));
            for (uint32_t i = 0; i < TRAINERS; i++) {
                cluster_crash(cluster, i);
            }
            cluster_run(cluster, 10 * NS_PER_S);
            cluster_crash(cluster, KEEPER);
            cluster_start(cluster, KEEPER, NULL, 0);
            cluster_run(cluster, NS_PER_S);
            check_seed(seed, (rule_planes(cluster, KEEPER) > 0) ==
                                 (strstr(methods[m], "diloco") != NULL));
            kept = node_step(cluster_node(cluster, KEEPER));
            lineage = node_lineage(cluster_node(cluster, KEEPER));
            check_seed(seed,
                       kept > 2000 && node_state(cluster_node(cluster, KEEPER)) == NODE_TRAINING);
            cluster_plane(cluster, KEEPER, then);
            cluster_set_model_seed(cluster, LATE, 77);
            cluster_start(cluster, LATE, &keeper, 1);
            cluster_run(cluster, 20 * NS_PER_S);
            cluster_plane(cluster, KEEPER, now);
            cluster_plane(cluster, LATE, late_now);
            check_seed(seed, most_apart(now, late_now) < 0.8F * most_apart(then, late_now));
            check_seed(seed, digest_is_equal(node_lineage(cluster_node(cluster, LATE)), lineage));
            check_seed(seed, node_step(cluster_node(cluster, LATE)) > kept);
            cluster_start(cluster, LATER, &keeper, 1);
            check_seed(seed,
                       cluster_run_until(cluster, has_averaged, (void *)&later, 60 * NS_PER_S));
            check_seed(seed, has_averaged(cluster, (void *)&late));
            kept = node_step(cluster_node(cluster, LATE));
            check_seed(seed, cluster_run_until(cluster, has_followed, &kept, 60 * NS_PER_S));
            cluster_crash(cluster, LATER); /* there is an anchor of rounds with it, and no other */
            cluster_plane(cluster, KEEPER, then);
            memset(now, 0, sizeof now);
            cluster_assign(cluster, LATE, now);
            cluster_run(cluster, 15 * NS_PER_S);
            cluster_plane(cluster, KEEPER, now);
            cluster_plane(cluster, LATE, late_now);
            check_seed(seed, most_apart(now, late_now) < 0.8F * most_apart(then, late_now));
            check_seed(seed, swarm_report(cluster, KEEPER).own_steps == 0);
            check_seed(seed, swarm_report(cluster, KEEPER).rounds_ok == 0);
            cluster_destroy(cluster);
        }
    }
}

static bool is_fetching(struct cluster *cluster, void *unused)
{
    (void)unused;
    return node_state(cluster_node(cluster, KEEPER)) == NODE_LOADING;
}

/* It dies while it fetches the model, and again and again: no round of the others fails, and none
 * waits. */
static void a_keeper_that_dies_hurts_nobody(void **state)
{
    static const char *const methods[] = {"allreduce", "local-sgd:H=8", "dpsgd:H=8",
                                          "push-sum:H=8"};
    const uint32_t first = 0;

    (void)state;
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        FOR_EACH_SEED (seed, 2) {
            struct cluster *cluster = swarm(methods[m], seed);
            uint64_t before[TRAINERS], rounds;

            check_seed(seed, cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
            for (uint32_t i = 0; i < TRAINERS; i++) {
                before[i] = swarm_report(cluster, i).rounds_aborted;
            }
            for (int times = 0; times < 3; times++) {
                check_seed(seed, cluster_run_until(cluster, is_fetching, NULL, 60 * NS_PER_S));
                cluster_crash(cluster, KEEPER);
                rounds = swarm_report(cluster, 0).rounds_ok;
                cluster_run(cluster, 10 * NS_PER_S);
                check_seed(seed, swarm_report(cluster, 0).rounds_ok > rounds + 20);
                cluster_start(cluster, KEEPER, &first, 1);
            }
            for (uint32_t i = 0; i < TRAINERS; i++) {
                check_seed(seed, swarm_report(cluster, i).rounds_aborted == before[i]);
            }
            cluster_destroy(cluster);
        }
    }
}

/* One that takes no steps is no bound on how far those who do may go. */
static void nobody_is_held_back_by_a_keeper(void **state)
{
    struct cluster *cluster = swarm("ssp", 1);
    uint64_t begun, beside;

    (void)state;
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 60 * NS_PER_S));
    begun = swarm_report(cluster, 0).own_steps;
    cluster_run(cluster, 10 * NS_PER_S);
    beside = swarm_report(cluster, 0).own_steps - begun;
    cluster_crash(cluster, KEEPER);
    begun = swarm_report(cluster, 0).own_steps;
    cluster_run(cluster, 10 * NS_PER_S);
    assert_true(10 * beside > 9 * (swarm_report(cluster, 0).own_steps - begun));
    cluster_destroy(cluster);
}

/* Training is to begin with three: who keeps the model is none of them. */
static void who_keeps_is_not_waited_for(void **state)
{
    struct cluster *cluster = trained("local-sgd:H=8", 1, false);
    const uint32_t first = 0;

    (void)state;
    cluster_crash(cluster, 2);
    cluster_start(cluster, KEEPER, &first, 1);
    cluster_run(cluster, 90 * NS_PER_S);
    assert_int_equal(swarm_report(cluster, 0).own_steps, 0);
    assert_int_equal(swarm_report(cluster, 0).waits_for, 1);
    cluster_start(cluster, 2, &first, 1);
    assert_true(cluster_run_until(cluster, have_trainers_ended, NULL, 60 * NS_PER_S));
    cluster_destroy(cluster);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(those_who_train_come_to_the_same_bits),
        cmocka_unit_test(what_is_kept_has_the_last_round),
        cmocka_unit_test(what_they_made_outlives_those_who_train),
        cmocka_unit_test(a_keeper_that_dies_hurts_nobody),
        cmocka_unit_test(nobody_is_held_back_by_a_keeper),
        cmocka_unit_test(who_keeps_is_not_waited_for),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
