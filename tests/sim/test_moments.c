/* --moments in complete peers: what becomes of optimizers' buffers when rounds replace the model.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "peer/node/internal.h"
#include "peer/round/round.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <math.h>

enum { FIRST = 3, PEERS = FIRST + 1 }; /* one may come late */

/* Replicas whose steps change nothing, or all values by known amounts, so that what else changes
 * comes from rounds. */
static struct backend *backend;
static struct spy still;
static uint64_t steps[PEERS], updates[PEERS];
static const char *optimizer; /* of all */
static float stride;          /* how far a step moves each value, the more the later it stands */

static void move(struct learner *learner, float by)
{
    const size_t count = count_of(learner, SECTION_PARAMETERS);
    float *values = values_of(learner, SECTION_PARAMETERS);

    for (size_t k = 0; k < count; k++) {
        values[k] += by * (float)(k + 1) / (float)count;
    }
    assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, values, count),
                     RC_OK);
    mem_free(values);
}

static enum rc still_train(struct learner *learner, uint32_t count, const atomic_bool *stop,
                           struct train_report *report)
{
    const uint32_t i = spy_number(&still, learner);

    (void)stop;
    steps[i] += count;
    if (stride > 0) move(learner, stride * (float)count);
    *report = (struct train_report){
        .steps = count, .step = steps[i], .samples = 32 * steps[i], .loss_sum = count};
    return RC_OK;
}

static void still_set_updates(struct learner *learner, uint64_t count)
{
    updates[spy_number(&still, learner)] = count;
}

static uint64_t still_updates(const struct learner *learner)
{
    return updates[spy_number(&still, learner)];
}

static struct learner *still_create(void *context, uint32_t peer)
{
    const struct replica_options options = {.model = "linear:8 relu linear:classes",
                                            .optimizer =
                                                optimizer == NULL ? "adam:lr=0.001" : optimizer,
                                            .data = "digits",
                                            .seed = 1,
                                            .stream_seed = peer,
                                            .threads = 1};
    struct learner *learner = spy_on(&still, peer, make(backend, &options));

    (void)context;
    still.ops.train = still_train;
    still.ops.updates = still_updates;
    still.ops.set_updates = still_set_updates;
    steps[peer] = 0;
    updates[peer] = 99;
    return learner;
}

static float *moments_of(uint32_t peer, size_t *count)
{
    *count = count_of(still.learners[peer], SECTION_MOMENTS);
    assert_true(*count > 0);
    return values_of(still.learners[peer], SECTION_MOMENTS);
}

/* Peer i's moments are i + 1 and a little more from value to value, all of them positive. */
static float given(uint32_t peer, size_t at)
{
    return (float)(peer + 1) + 1e-3f * (float)(at % 100);
}

static void give_moments(void)
{
    for (uint32_t i = 0; i < FIRST; i++) {
        size_t count;
        float *values = moments_of(i, &count);

        for (size_t k = 0; k < count; k++) {
            values[k] = given(i, k);
        }
        assert_int_equal(
            still.ops.assign_section(still.learners[i], SECTION_MOMENTS, values, count), RC_OK);
        mem_free(values);
    }
}

/* After some rounds of `averaging` with `moments`, each peer is given moments of its own; after
 * some more, `check` looks at them. */
static void run(const char *averaging, const char *moments, float (*wanted)(uint32_t, size_t),
                float tolerance)
{
    struct cluster_options options = {.peers = FIRST,
                                      .seed = 1,
                                      .averaging = averaging,
                                      .moments = moments,
                                      .latency_ns = NS_PER_MS,
                                      .learner = still_create};
    struct cluster *cluster = cluster_create(&options);
    struct node_report before, after;

    swarm_start(cluster, FIRST);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 2 * NS_PER_S);
    give_moments();
    for (uint32_t i = 0; i < FIRST; i++) {
        updates[i] = 7;
    }
    node_report(cluster_node(cluster, 1), &before);
    cluster_run(cluster, 8 * NS_PER_S);
    node_report(cluster_node(cluster, 1), &after);
    assert_true(after.rounds_ok >= before.rounds_ok + 3);
    for (uint32_t i = 0; i < FIRST; i++) {
        size_t count;
        float *values = moments_of(i, &count);

        for (size_t k = 0; k < count; k++) {
            if (fabsf(values[k] - wanted(i, k)) <= tolerance) continue;
            fail_msg("%s, %s: moment %zu of peer %u is %g, not %g", averaging, moments, k, i,
                     (double)values[k], (double)wanted(i, k));
        }
        mem_free(values);
    }
    cluster_destroy(cluster);
}

static float mean_of(uint32_t peer, size_t at)
{
    (void)peer;
    return given(1, at);
}

static float zero(uint32_t peer, size_t at)
{
    (void)peer;
    (void)at;
    return 0;
}

static void unless_told_otherwise_they_stay(void **state)
{
    (void)state;
    run("diloco:H=8", NULL, given, 0);
    run("local-sgd:H=8", "keep", given, 0);
}

static void they_begin_anew(void **state)
{
    (void)state;
    run("slowmo:H=8", "reset", zero, 0);
    for (uint32_t i = 0; i < FIRST; i++) {
        assert_int_equal(updates[i], 0); /* Adam's corrections, too */
    }
    run("noloco:H=8", "reset", zero, 0);
}

/* Means, not outer steps from an anchor: with a momentum of 0.9 those would swing. */
static void they_become_means(void **state)
{
    (void)state;
    run("local-sgd:H=8", "average", mean_of, 1e-5f);
    run("bmuf:H=8", "average", mean_of, 1e-5f);
    run("diloco:H=8", "average", mean_of, 1e-5f);
    run("des-loc:H=8", NULL, mean_of, 1e-5f);
    for (uint32_t i = 0; i < FIRST; i++) {
        assert_int_equal(updates[i], 7); /* each one's own */
    }
}

/* des-loc: first moments become means beside second ones that are still each peer's own. Where a
 * peer has seen no gradient its second moment is 0, and a first one of others over it would be a
 * step without end. */
static void first_moments_are_held_to_ones_own_second_ones(void **state)
{
    (void)state;
    const struct cluster_options options = {.peers = FIRST,
                                            .seed = 1,
                                            .averaging = "des-loc:H=8,first=1,second=1000",
                                            .latency_ns = NS_PER_MS,
                                            .learner = still_create};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, FIRST);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 2 * NS_PER_S);
    for (uint32_t i = 0; i < FIRST; i++) {
        size_t count;
        float *values = moments_of(i, &count);

        for (size_t k = 0; k < count; k++) {
            values[k] = i == 0 ? 0 : 1;
        }
        assert_int_equal(
            still.ops.assign_section(still.learners[i], SECTION_MOMENTS, values, count), RC_OK);
        mem_free(values);
    }
    cluster_run(cluster, 8 * NS_PER_S); /* the first means are too far from what was usual */
    for (uint32_t i = 0; i < FIRST; i++) {
        size_t count;
        float *values = moments_of(i, &count);

        for (size_t k = 0; k < count; k++) {
            const bool is_first = k < count / 2;

            if (!is_first) assert_true(values[k] == (i == 0 ? 0 : 1)); /* each one's own */
            if (is_first) assert_true(values[k] >= 0 && values[k] < (i == 0 ? 1e-9f : 0.5f));
        }
        mem_free(values);
    }
    cluster_destroy(cluster);
}

/* Outer rules keep planes of the model and its moments then. A peer that comes after the first
 * rounds takes them; where those of the others hold no moments it is refused. */
static void a_peer_may_come_late(void **state)
{
    static const char *const rules[] = {"diloco:H=8", "bmuf:H=8"};
    const uint32_t first = 0, late = FIRST;

    (void)state;
    for (uint32_t test = 0; test < 2 * ARRAY_COUNT(rules); test++) {
        const bool is_alike = test % 2 == 0;
        const struct cluster_options options = {.peers = FIRST + 1,
                                                .seed = 1 + test,
                                                .averaging = rules[test / 2],
                                                .moments = "average",
                                                .latency_ns = NS_PER_MS,
                                                .learner = still_create};
        struct cluster *cluster = cluster_create(&options);
        struct node_report report;

        if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
        for (uint32_t i = 0; i < FIRST; i++) {
            if (!is_alike) cluster_set_averaging(cluster, i, options.averaging); /* "keep" */
            cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
        }
        cluster_run(cluster, 5 * NS_PER_S);
        node_report(cluster_node(cluster, first), &report);
        assert_true(report.rounds_ok >= 3);
        cluster_start(cluster, late, &first, 1);
        cluster_run(cluster, NS_PER_S);
        if (is_alike) {
            assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
            cluster_run(cluster, 5 * NS_PER_S);
            node_report(cluster_node(cluster, late), &report);
            assert_true(report.rounds_ok >= 3);
        } else {
            assert_int_equal(cluster_result(cluster, late)->rc, RC_MISMATCH);
        }
        cluster_destroy(cluster);
    }
}

/* Moments that were begun anew a moment ago are of few updates, however many steps the model has:
 * who joins takes that count with them, or Adam's steps would be far too long at first. */
static void who_joins_takes_the_updates_with_the_moments(void **state)
{
    const struct cluster_options options = {.peers = FIRST + 1,
                                            .seed = 1,
                                            .averaging = "local-sgd:H=8",
                                            .latency_ns = NS_PER_MS,
                                            .learner = still_create};
    struct cluster *cluster = cluster_create(&options);
    const uint32_t first = 0, late = FIRST;

    (void)state;
    swarm_start(cluster, FIRST);
    cluster_run(cluster, 5 * NS_PER_S);
    assert_true(steps[first] > 20);
    for (uint32_t i = 0; i < FIRST; i++) {
        updates[i] = 11;
    }
    cluster_start(cluster, late, &first, 1);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    assert_true(node_step(cluster_node(cluster, late)) > 20);
    assert_int_equal(updates[late], 11);
    cluster_destroy(cluster);
}

/* Real steps, one at a time. Peer 0's parameters stop being numbers at `explodes_at`; `first_step`
 * is the most that a parameter moves in the first step after that. */
static uint64_t explodes_at;
static float first_step;

static float most_of(const float *a, const float *b, size_t count)
{
    float most = 0;

    for (size_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(a[i] - b[i]));
    }
    return most;
}

static enum rc exploding_train(struct learner *learner, uint32_t count, const atomic_bool *stop,
                               struct train_report *report)
{
    const size_t values = count_of(learner, SECTION_PARAMETERS);
    const bool is_first = first_step < 0;
    float *before;
    enum rc rc;

    (void)count;
    if (spy_number(&still, learner) != 0) return still.originals.train(learner, 1, stop, report);
    before = values_of(learner, SECTION_PARAMETERS);
    if (++steps[0] == explodes_at) {
        before[5] = NAN;
        first_step = -1;
        assert_int_equal(learner->ops->assign_section(learner, SECTION_PARAMETERS, before, values),
                         RC_OK);
    }
    rc = still.originals.train(learner, 1, stop, report);
    if (is_first && rc == RC_OK) {
        float *after = values_of(learner, SECTION_PARAMETERS);
        first_step = most_of(before, after, values);
        mem_free(after);
    }
    mem_free(before);
    return rc;
}

static struct learner *exploding_create(void *context, uint32_t peer)
{
    struct learner *learner = still_create(context, peer);

    still.ops.train = exploding_train;
    still.ops.updates = still.originals.updates;
    still.ops.set_updates = still.originals.set_updates;
    return learner;
}

/* Adam's first step is as long as the learning rate. With corrections of many updates behind it and
 * moments of none it would be another one, up to three times that. */
static void after_a_rollback_adam_begins_anew(void **state)
{
    const struct cluster_options options = {.peers = FIRST,
                                            .seed = 1,
                                            .averaging = "local-sgd:H=8",
                                            .latency_ns = NS_PER_MS,
                                            .learner = exploding_create};
    struct cluster *cluster = cluster_create(&options);

    (void)state;
    explodes_at = 150;
    first_step = 0;
    swarm_start(cluster, FIRST);
    for (int i = 0; i < 60 && (steps[0] < explodes_at || first_step < 0); i++) {
        cluster_run(cluster, NS_PER_S);
    }
    assert_true(first_step > 0.999e-3f);
    assert_true(first_step < 1.001e-3f);
    cluster_destroy(cluster);
}

/* Momentum is zero where a value was sent, and stays where none was yet: in a few rounds of a
 * hundredth each the last values, which move farthest, are, and the first are not. */
static void where_a_value_was_sent_momentum_begins_anew(void **state)
{
    struct cluster_options options = {.peers = FIRST,
                                      .seed = 1,
                                      .averaging = "allreduce",
                                      .codec = "topk:0.01+ef",
                                      .robust = "none",
                                      .moments = "mask",
                                      .latency_ns = NS_PER_MS,
                                      .step_cost_ns = 100 * NS_PER_MS,
                                      .learner = still_create};
    struct cluster *cluster;

    (void)state;
    optimizer = "momentum";
    cluster = cluster_create(&options);
    swarm_start(cluster, FIRST);
    assert_true(cluster_run_until(cluster, cluster_is_whole, NULL, 20 * NS_PER_S));
    cluster_run(cluster, 2 * NS_PER_S); /* the models themselves were sent, and nothing is left */
    stride = 0.01f;
    cluster_run(cluster, NS_PER_S);
    give_moments();
    cluster_run(cluster, 2 * NS_PER_S);
    for (uint32_t i = 0; i < FIRST; i++) {
        const float *residual = round_residual(cluster_node(cluster, i)->round);
        size_t count, sent = 0;
        float *values = moments_of(i, &count);

        assert_non_null(residual);
        for (size_t k = 0; k < count; k++) {
            assert_true(values[k] == 0 || values[k] == given(i, k));
            assert_true(residual[k] != 0 || values[k] == 0);
            sent += values[k] == 0;
        }
        assert_true(values[0] == given(i, 0) && sent > count / 100 && sent < count / 2);
        mem_free(values);
    }
    cluster_destroy(cluster);
    optimizer = NULL;
    stride = 0;
}

static int set_up(void **state)
{
    int failed = make_backend(state);

    backend = *state;
    return failed;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unless_told_otherwise_they_stay),
        cmocka_unit_test(they_begin_anew),
        cmocka_unit_test(they_become_means),
        cmocka_unit_test(first_moments_are_held_to_ones_own_second_ones),
        cmocka_unit_test(a_peer_may_come_late),
        cmocka_unit_test(who_joins_takes_the_updates_with_the_moments),
        cmocka_unit_test(after_a_rollback_adam_begins_anew),
        cmocka_unit_test(where_a_value_was_sent_momentum_begins_anew),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
