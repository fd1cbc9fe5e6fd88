/*
 * What a member of eight that lies about its values does to what the others learn, with --robust
 * none and clip, against a swarm without it. Real models in virtual time. VERBOSE=1 prints the
 * figures, SEED=N takes another seed than 1.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "testnet/cluster.h"
#include "tests/unit/replica/learners.h"

#include <math.h>

enum { PEERS = 8, HONEST = 7, VALUES = 64 * 32 + 32 + 32 * 10 + 10 };

static struct backend *backend;

/* ---- learners that lie: they train, and then hold something else ---- */

enum lie { HONESTY, TURNED, HUNDREDFOLD, ANOTHER, LIES };

static const char *const names[LIES] = {"all honest", "signs turned", "a hundredfold",
                                        "another model"};

static struct {
    enum lie lie;
    struct learner_ops ops; /* a replica's, but for train */
    const struct learner_ops *replica;
    bool has_truth[PEERS];
    float truth[PEERS][VALUES]; /* what each would hold */
    const struct learner *learners[PEERS];
} liar;

static float lie_at(const float *truth, size_t i)
{
    switch (liar.lie) {
    case TURNED:
        return -truth[i];
    case HUNDREDFOLD:
        return 100 * truth[i];
    default:
        return truth[VALUES - 1 - i];
    }
}

static enum rc lying_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                           struct train_report *report)
{
    static float lie[VALUES];
    const struct learner_ops *ops = liar.replica;
    uint32_t i = liar.learners[HONEST] == learner ? HONEST : HONEST + 1;
    float *truth = liar.truth[i];
    enum rc rc;

    if (liar.has_truth[i]) {
        assert_int_equal(ops->assign_section(learner, SECTION_PARAMETERS, truth, VALUES), RC_OK);
    }
    rc = ops->train(learner, steps, stop, report);
    assert_int_equal(ops->export_section(learner, SECTION_PARAMETERS, truth, VALUES), RC_OK);
    liar.has_truth[i] = true;
    for (size_t k = 0; k < VALUES; k++) {
        lie[k] = lie_at(truth, k);
    }
    assert_int_equal(ops->assign_section(learner, SECTION_PARAMETERS, lie, VALUES), RC_OK);
    return rc;
}

static struct learner *digits(void *context, uint32_t peer)
{
    const struct replica_options options = {.model = "linear:32 relu linear:classes",
                                            .data = "digits",
                                            .seed = 1,
                                            .stream_seed = peer,
                                            .threads = 1};
    struct learner *learner = make(backend, &options);

    (void)context;
    if (peer < HONEST) return learner;
    liar.learners[peer] = learner;
    liar.has_truth[peer] = false;
    liar.replica = learner->ops;
    liar.ops = *learner->ops;
    liar.ops.train = lying_train;
    learner->ops = &liar.ops;
    return learner;
}

/* Mean test accuracy of the honest. */
static double accuracy(const char *averaging, const char *topology, const char *robust,
                       enum lie lie)
{
    struct cluster_options options = {
        .peers = PEERS,
        .seed = getenv("SEED") != NULL ? strtoull(getenv("SEED"), NULL, 10) : 1,
        .latency_ns = 2 * NS_PER_MS,
        .averaging = averaging,
        .topology = topology,
        .robust = robust,
        .values = VALUES,
        .learner = digits};
    struct cluster *cluster = cluster_create(&options);
    uint32_t first = 0, peers = lie == HONESTY ? HONEST : PEERS;
    double total = 0;

    liar.lie = lie;
    if (getenv("LOGS") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < peers; i++) {
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
    cluster_run(cluster, 4 * NS_PER_S);
    for (uint32_t i = 0; i < HONEST; i++) {
        struct learner *learner = cluster_learner(cluster, i);
        struct evaluation evaluation;

        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
        total += evaluation.accuracy / HONEST;
    }
    cluster_destroy(cluster);
    if (getenv("VERBOSE") != NULL) {
        printf("%s, robust %s, %s: accuracy %.4f\n", averaging, robust, names[lie], total);
    }
    return total;
}

static void clipping_holds_where_the_mean_fails(void **state)
{
    static const struct {
        const char *averaging, *topology; /* on a ring half of a neighbourhood would lie */
    } methods[] = {{"ad-psgd:H=2", NULL}, {"local-sgd:H=2", NULL}, {"dpsgd:H=2", "random:4"}};

    (void)state;
    if (is_only_sanitized()) { /* the code once, for its mistakes */
        (void)accuracy(methods[0].averaging, NULL, "clip", HUNDREDFOLD);
        (void)accuracy(methods[2].averaging, methods[2].topology, "clip", ANOTHER);
        return;
    }
    for (size_t m = 0; m < sizeof methods / sizeof methods[0]; m++) {
        const char *averaging = methods[m].averaging, *topology = methods[m].topology;
        double honest = accuracy(averaging, topology, "none", HONESTY);
        double mixed = accuracy(averaging, topology, "none", ANOTHER);

        if (!(honest > 0.9)) fail_msg("%s: %g without liars", averaging, honest);
        if (!(mixed < honest - 0.02)) fail_msg("%s: %g of %g", averaging, mixed, honest);
        for (enum lie lie = HONESTY; lie < LIES; lie++) {
            double clipped;

            if (m > 0 && (lie == TURNED || lie == HUNDREDFOLD)) continue; /* the gate is the same */
            clipped = accuracy(averaging, topology, "clip", lie);

            if (clipped > honest - 0.02) continue;
            fail_msg("%s, %s: %g of %g", averaging, names[lie], clipped, honest);
        }
    }
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
        cmocka_unit_test(clipping_holds_where_the_mean_fails),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
