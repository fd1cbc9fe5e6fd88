/* finish: the rig of what is tried about the end of a peer that averages: learners that are seen
 * to the last, and when each came to its goal and ended. */
#ifndef GRAPEVINE_TESTS_SIM_FINISH_H
#define GRAPEVINE_TESTS_SIM_FINISH_H

#include "tests/check.h"

#include "peer/node/lane/internal.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { VALUES = 200, PEERS = 4, GOAL = 330, H = 16 };

#define STEP_NS   (10 * NS_PER_MS)
#define PERIOD_NS (H * STEP_NS)

/* Peers as the spy sees them: learners are gone with their peers. */
static struct {
    struct spy spy;
    struct cluster *cluster;
    uint64_t steps[PEERS];                  /* own ones */
    uint64_t goal_ns[PEERS], end_ns[PEERS]; /* the last step was taken; it has ended */
    bool begins_alone;                      /* nobody waits for all to be there */
    uint64_t step_ns;                       /* 0: STEP_NS */
    uint32_t peers;                         /* 0: PEERS */
    const char *robust;                     /* NULL: none */
    uint32_t mixed[PEERS];                  /* after the goal */
    uint64_t mixed_ns[PEERS];               /* the last of these */
    uint32_t evaluated;
    float at_goal[PEERS][VALUES], last[PEERS][VALUES]; /* parameters */
    float before[PEERS][VALUES];                       /* the last round after the goal */
} seen;

static inline void finish_look(struct learner *learner, uint32_t i)
{
    const struct learner_ops *ops = &seen.spy.originals;

    assert_int_equal(ops->export_section(learner, SECTION_PARAMETERS, seen.last[i], VALUES), RC_OK);
}

static inline enum rc finish_import(struct learner *learner, enum section section,
                                    const float *values, size_t count)
{
    const uint32_t i = spy_number(&seen.spy, learner);
    enum rc rc = seen.spy.originals.import_section(learner, section, values, count);

    if (section == SECTION_MIXED && seen.goal_ns[i] != 0) {
        seen.mixed[i]++;
        seen.mixed_ns[i] = sim_now_ns(cluster_world(seen.cluster));
        memcpy(seen.before[i], seen.last[i], sizeof seen.before[i]);
    }
    finish_look(learner, i);
    return rc;
}

static inline enum rc finish_train(struct learner *learner, uint32_t steps,
                                   const atomic_bool *must_stop, struct train_report *report)
{
    const uint32_t i = spy_number(&seen.spy, learner);
    enum rc rc = seen.spy.originals.train(learner, steps, must_stop, report);

    seen.steps[i] += report->steps;
    finish_look(learner, i);
    if (seen.steps[i] < GOAL || seen.goal_ns[i] != 0) return rc;
    assert_int_equal(seen.steps[i], GOAL);
    seen.goal_ns[i] = sim_now_ns(cluster_world(seen.cluster));
    memcpy(seen.at_goal[i], seen.last[i], sizeof seen.last[i]);
    return rc;
}

static inline enum rc finish_evaluate(struct learner *learner, uint64_t samples,
                                      struct evaluation *result)
{
    seen.evaluated++;
    return seen.spy.originals.evaluate(learner, samples, result);
}

static inline struct learner *finish_learner(void *context, uint32_t peer)
{
    struct quadratic_options options = {.values = VALUES,
                                        .curvature = 1,
                                        .learning_rate = 0.02,
                                        .noise = 0.1,
                                        .centre_spread = 1,
                                        .seed = 1,
                                        .stream_seed = peer};
    struct learner *learner;

    (void)context;
    assert_int_equal(quadratic_create(&options, &learner), RC_OK);
    seen.steps[peer] = seen.goal_ns[peer] = seen.end_ns[peer] = 0;
    seen.mixed[peer] = 0;
    seen.mixed_ns[peer] = 0;
    spy_on(&seen.spy, peer, learner);
    seen.spy.ops.import_section = finish_import;
    seen.spy.ops.train = finish_train;
    seen.spy.ops.evaluate = finish_evaluate;
    return learner;
}

static inline void finish_create(uint64_t seed, const char *averaging, const double *speeds)
{
    const uint32_t peers = seen.peers == 0 ? PEERS : seen.peers;
    struct cluster_options options = {.peers = peers,
                                      .seed = seed,
                                      .averaging = averaging,
                                      .robust = seen.robust,
                                      .latency_ns = NS_PER_MS,
                                      .values = VALUES,
                                      .steps = GOAL,
                                      .step_cost_ns = seen.step_ns,
                                      .speeds = speeds,
                                      .start_with = seen.begins_alone ? 0 : peers,
                                      .learner = finish_learner};

    seen.cluster = cluster_create(&options);
    seen.step_ns = 0;
}

static inline void finish_note_ends(void)
{
    for (uint32_t i = 0; i < PEERS && (seen.peers == 0 || i < seen.peers); i++) {
        if (cluster_result(seen.cluster, i) == NULL || seen.end_ns[i] != 0) continue;
        seen.end_ns[i] = sim_now_ns(cluster_world(seen.cluster));
    }
}

static inline bool finish_is_done(struct cluster *cluster, void *context)
{
    finish_note_ends();
    return cluster_is_done(cluster, context);
}

/* No other bound than that of the test: whoever hangs is seen here. */
static inline void finish_run(uint64_t seed)
{
    check_seed(seed, cluster_run_until(seen.cluster, finish_is_done, NULL, 300 * NS_PER_S));
}

/* Norm of how far the first planes are from their mean. */
static inline double finish_spread(float planes[PEERS][VALUES], uint32_t count)
{
    double squares = 0;

    for (size_t k = 0; k < VALUES; k++) {
        double mean = 0;

        for (uint32_t i = 0; i < count; i++) {
            mean += (double)planes[i][k] / count;
        }
        for (uint32_t i = 0; i < count; i++) {
            squares += ((double)planes[i][k] - mean) * ((double)planes[i][k] - mean);
        }
    }
    return sqrt(squares);
}

#endif
