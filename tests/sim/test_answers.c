/*
 * codistill and ec-dnn among complete peers in the simulated world: real networks of unlike layers
 * that teach each other, the toy at rest where theory has it, members that die in the middle of
 * rounds, come back, join late, or answer what they like.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/cpu_backend.h"
#include "replica/learners/mutual.h"
#include "replica/learners/quadratic.h"
#include "replica/learners/replica.h"
#include "replica/model/model.h"
#include "tests/sim/swarm.h"

#include <math.h>

enum { PEERS = 4, SAMPLES = 250, CLASSES = 10, VALUES = SAMPLES * CLASSES };

static const char *const layers[PEERS] = {
    "linear:32 relu linear:classes", "conv3x3:4,stride=2 relu linear:classes",
    "linear:24 relu linear:24 relu linear:classes", "linear:32 relu linear:classes"};

/* What one member makes of its answers before they are told. */
enum lie { HONEST, ONE_CLASS, NOISE, TURNED };

struct school {
    struct backend *backend;
    struct mutual_options mutual;
    enum lie lie;      /* of the last peer */
    bool is_alike;     /* all have the layers of the first */
    bool mixes_models; /* and their rounds mix parameters */
    uint64_t seed;
    struct learner_ops lying;
    const struct learner_ops *honest;
    struct rng rng;
};

/* Learners have no context of their own. */
static struct school school;

static void lie(float *row, uint32_t turn)
{
    for (uint32_t c = 0; c < CLASSES; c++) {
        if (school.lie == ONE_CLASS) row[c] = c == 3;
        if (school.lie == NOISE) row[c] = c == (turn % CLASSES);
    }
    if (school.lie == TURNED) { /* the least likely is certain */
        uint32_t least = 0;

        for (uint32_t c = 1; c < CLASSES; c++) {
            if (row[c] < row[least]) least = c;
        }
        for (uint32_t c = 0; c < CLASSES; c++) {
            row[c] = c == least;
        }
    }
}

static enum rc export_lies(struct learner *learner, enum section section, float *out, size_t count)
{
    const enum rc rc = school.honest->export_section(learner, section, out, count);

    for (size_t i = 0; section == SECTION_MIXED && i < count; i += CLASSES) {
        lie(out + i, (uint32_t)rng_below(&school.rng, CLASSES));
    }
    return rc;
}

static struct learner *enrol(void *context, uint32_t peer)
{
    const struct replica_options options = {.model = layers[school.is_alike ? 0 : peer],
                                            .data = "digits",
                                            .shard = school.is_alike ? "iid" : "dirichlet:0.5",
                                            .shard_of = peer == 0   ? "0/4"
                                                        : peer == 1 ? "1/4"
                                                        : peer == 2 ? "2/4"
                                                                    : "3/4",
                                            .prefetch = PREFETCH_OFF,
                                            .mutual = school.mixes_models ? NULL : &school.mutual,
                                            .seed = school.seed,
                                            .model_seed = school.mixes_models ? 0 : peer + 1,
                                            .stream_seed = peer + 1};
    struct learner *learner = NULL;
    struct fault why = {""};

    (void)context;
    if (replica_create(school.backend, &options, &learner, &why) != RC_OK) fail_msg("%s", why.text);
    if (peer == PEERS - 1 && school.lie != HONEST) {
        school.honest = learner->ops;
        school.lying = *learner->ops;
        school.lying.export_section = export_lies;
        learner->ops = &school.lying;
    }
    return learner;
}

static struct cluster *open_school(uint64_t seed, const struct cluster_options *more,
                                   const struct mutual_options *mutual, enum lie lie)
{
    struct cluster_options options = *more;

    options.peers = PEERS;
    options.seed = seed;
    options.latency_ns = NS_PER_MS;
    options.values = VALUES;
    options.step_cost_ns = 10 * NS_PER_MS;
    options.learner = enrol;
    school.mutual = *mutual;
    school.mutual.samples = SAMPLES;
    school.lie = lie;
    school.seed = 1;
    school.is_alike = school.mixes_models = false;
    rng_init(&school.rng, seed, 5);
    return cluster_create(&options);
}

static double accuracy(struct cluster *cluster, uint32_t peer)
{
    struct learner *learner = cluster_learner(cluster, peer);
    struct evaluation evaluation;

    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    return evaluation.accuracy;
}

/* Of the members that are not lied for. */
static double mean_accuracy(struct cluster *cluster, uint32_t peers)
{
    double sum = 0;

    for (uint32_t i = 0; i < peers; i++) {
        sum += accuracy(cluster, i);
    }
    return sum / peers;
}

static void check_targets(struct cluster *cluster, uint64_t seed, uint32_t peer)
{
    static float targets[VALUES];

    cluster_plane(cluster, peer, targets);
    for (size_t i = 0; i < VALUES; i += CLASSES) {
        double sum = 0;

        for (size_t c = 0; c < CLASSES; c++) {
            check_seed(seed, targets[i + c] >= 0 && targets[i + c] <= 1);
            sum += (double)targets[i + c];
        }
        check_seed(seed, fabs(sum - 1) < 0.03);
    }
}

static const struct mutual_options by_codistill = {.weight = 2, .every_steps = 10};

/* Each has a quarter of the data in which some classes are rare: the others know them. */
static void unlike_networks_teach_each_other(void **state)
{
    const struct cluster_options alone = {.averaging = "none"},
                                 together = {.averaging = "codistill:H=10", .start_with = PEERS},
                                 ring = {.averaging = "codistill:H=10",
                                         .start_with = PEERS,
                                         .exchange = "edges",
                                         .topology = "ring"};
    const struct cluster_options *const cases[] = {&alone, &together, &ring};
    double scores[3];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        struct cluster *cluster = open_school(1, cases[i], &by_codistill, HONEST);

        if (i == 0) { /* nobody's rounds mix anything */
            for (uint32_t k = 0; k < PEERS; k++) {
                cluster_start(cluster, k, NULL, 0);
            }
        } else {
            swarm_start(cluster, PEERS);
        }
        cluster_run(cluster, 4 * NS_PER_S);
        scores[i] = mean_accuracy(cluster, PEERS);
        for (uint32_t k = 0; i > 0 && k < PEERS; k++) {
            assert_true(swarm_report(cluster, k).rounds_ok > 10);
            check_targets(cluster, 1, k);
        }
        cluster_destroy(cluster);
    }
    if (getenv("VERBOSE") != NULL) {
        fprintf(stderr, "alone %.3f, together %.3f, ring %.3f\n", scores[0], scores[1], scores[2]);
    }
    assert_true(scores[1] > scores[0] + 0.1 && scores[2] > scores[0] + 0.1);
}

/* One dies again and again, at any point of a round, and goes on with its own model each time. */
static void a_member_dies_in_the_middle_of_rounds(void **state)
{
    const struct cluster_options options = {.averaging = "codistill:H=5", .start_with = PEERS};
    const uint32_t first = 0;

    (void)state;
    FOR_EACH_SEED (seed, 1) {
        struct cluster *cluster = open_school(seed, &options, &by_codistill, HONEST);
        struct rng rng;
        double before;

        rng_init(&rng, seed, 9);
        swarm_start(cluster, PEERS);
        cluster_run(cluster, 5 * NS_PER_S);
        before = accuracy(cluster, 2);
        for (int life = 0; life < 3; life++) {
            const uint64_t rounds = swarm_report(cluster, 1).rounds_ok;

            cluster_run(cluster, NS_PER_S + rng_below(&rng, 60 * NS_PER_MS));
            cluster_crash(cluster, 2);
            cluster_run(cluster, NS_PER_S + rng_below(&rng, NS_PER_S));
            check_seed(seed, swarm_report(cluster, 1).rounds_ok > rounds);
            cluster_start(cluster, 2, &first, 1);
            cluster_run(cluster, 200 * NS_PER_MS);
            check_seed(seed,
                       accuracy(cluster, 2) > before - 0.1); /* its own, from the checkpoint */
        }
        cluster_run(cluster, 3 * NS_PER_S);
        check_seed(seed, swarm_report(cluster, 2).rounds_ok > 0);
        for (uint32_t i = 0; i < PEERS; i++) {
            check_targets(cluster, seed, i);
            check_seed(seed, accuracy(cluster, i) > 0.8);
        }
        cluster_destroy(cluster);
    }
}

/* Who comes late has layers of its own: it takes step and answers, and no model. */
static void who_joins_late_takes_no_model(void **state)
{
    const struct cluster_options options = {.averaging = "codistill:H=10"};
    const uint32_t first = 0;
    struct cluster *cluster = open_school(3, &options, &by_codistill, HONEST);
    uint64_t step;
    double at_first;

    (void)state;
    swarm_start(cluster, PEERS - 1);
    cluster_run(cluster, 5 * NS_PER_S);
    step = node_step(cluster_node(cluster, 0));
    cluster_start(cluster, PEERS - 1, &first, 1);
    cluster_run(cluster, 700 * NS_PER_MS);
    assert_true(node_step(cluster_node(cluster, PEERS - 1)) >= step);
    assert_true(digest_is_equal(node_lineage(cluster_node(cluster, 0)),
                                node_lineage(cluster_node(cluster, PEERS - 1))));
    check_targets(cluster, 3, PEERS - 1);
    at_first = accuracy(cluster, PEERS - 1);
    cluster_run(cluster, 5 * NS_PER_S);
    assert_true(swarm_report(cluster, PEERS - 1).rounds_ok > 10);
    assert_true(accuracy(cluster, PEERS - 1) > at_first && accuracy(cluster, PEERS - 1) > 0.85);
    assert_true(mean_accuracy(cluster, PEERS - 1) > 0.85);
    cluster_destroy(cluster);
}

/* Answers that are probabilities, and wrong: of four members one says the same of all, anything, or
 * the least likely. With the guard that is there without being asked for the others lose a part of
 * what they gain, and never all. LONG=1: every lie, more seeds, and other guards, printed. */
static void one_liar_is_bounded(void **state)
{
    static const enum lie lies[] = {HONEST, ONE_CLASS, NOISE, TURNED};
    static const char *const robust[] = {"auto", "clip", "none"};
    const bool is_long = getenv("LONG") != NULL;

    (void)state;
    for (uint64_t seed = 1; seed <= (is_long ? 6 : 2); seed++) {
        for (size_t r = 0; r < (is_long ? ARRAY_COUNT(robust) : 1); r++) {
            double scores[ARRAY_COUNT(lies)] = {0};

            for (size_t i = 0; i < (is_long ? ARRAY_COUNT(lies) : 2); i++) {
                const struct cluster_options options = {
                    .averaging = "codistill:H=10", .start_with = PEERS, .robust = robust[r]};
                struct cluster *cluster = open_school(seed, &options, &by_codistill, lies[i]);

                swarm_start(cluster, PEERS);
                cluster_run(cluster, 6 * NS_PER_S);
                scores[i] = mean_accuracy(cluster, PEERS - 1);
                cluster_destroy(cluster);
                if (r == 0 && i > 0) check_seed(seed, scores[i] > scores[0] - 0.16);
            }
            if (is_long) {
                fprintf(stderr,
                        "seed %u, %s: honest %.3f, one class %.3f, noise %.3f, turned %.3f\n",
                        (unsigned)seed, robust[r], scores[0], scores[1], scores[2], scores[3]);
            }
        }
    }
}

/* Periods of five epochs, in step: four peers with a quarter of the digits each (half of a period
 * compresses). Looked at ten times in the last two periods. LONG=1 prints what docs have. */
static void relabelling_costs_nothing(void **state)
{
    enum { PERIOD = 30, PERIODS = 8, LOOKS = 10 };
    static const struct mutual_options by_relabelling = {
        .relabels = true, .weight = 0.5, .share = 0.7, .compress_steps = PERIOD / 2};
    static const char *const methods[] = {"none", "local-sgd:H=30", "ec-dnn:H=30"};
    const uint64_t seeds = getenv("LONG") != NULL ? 5 : 1;
    double means[ARRAY_COUNT(methods)] = {0};

    (void)state;
    for (uint64_t seed = 1; seed <= seeds; seed++) {
        for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
            const struct cluster_options options = {.averaging = methods[m], .start_with = PEERS};
            struct cluster *cluster = open_school(seed, &options, &by_relabelling, HONEST);
            double sum = 0;

            school.seed = seed;
            school.is_alike = true;
            school.mixes_models = m < 2;
            school.mutual.samples = 0;
            swarm_start(cluster, PEERS);
            cluster_run(cluster, (PERIODS - 2) * PERIOD * 10 * NS_PER_MS);
            for (int i = 0; i < LOOKS; i++) {
                cluster_run(cluster, 2 * PERIOD / LOOKS * 10 * NS_PER_MS);
                sum += mean_accuracy(cluster, PEERS) / LOOKS;
            }
            means[m] += sum / (double)seeds;
            cluster_destroy(cluster);
        }
    }
    for (size_t m = 0; m < ARRAY_COUNT(methods) && seeds > 1; m++) {
        fprintf(stderr, "%s: %.2f %%\n", methods[m], 100 * means[m]);
    }
    assert_true(means[2] > means[0] - 0.01); /* of shards alike means of models give more: docs */
}

/* The toy, at rest: all keep away from the mean by 1 / (1 + weight) of what their data want, which
 * deaths and frozen members do not change. */
static void the_toy_rests_where_theory_has_it_through_faults(void **state)
{
    const uint32_t first = 0;
    struct cluster_options options = {.peers = 6,
                                      .seed = 5,
                                      .values = 400,
                                      .averaging = "codistill:H=5,lambda=3",
                                      .latency_ns = NS_PER_MS,
                                      .noise = 0.01,
                                      .centre_spread = 1,
                                      .learning_rate = 0.05};
    struct cluster *cluster = cluster_create(&options);
    struct rng rng;
    double apart;

    (void)state;
    rng_init(&rng, 5, 6);
    swarm_start(cluster, 6);
    cluster_run(cluster, 10 * NS_PER_S);
    for (int i = 0; i < 5; i++) {
        const uint32_t peer = 1 + (uint32_t)rng_below(&rng, 5);

        cluster_run(cluster, NS_PER_S + rng_below(&rng, NS_PER_S));
        cluster_crash(cluster, peer);
        cluster_run(cluster, rng_below(&rng, 2 * NS_PER_S));
        cluster_start(cluster, peer, &first, 1);
    }
    cluster_run(cluster, 20 * NS_PER_S);
    apart = cluster_distance(cluster);
    /* sqrt(400 * 5/6) / 4; centres are drawn, so about */
    if (!(apart > 3.9 && apart < 5.2)) fail_msg("%g apart", apart);
    cluster_destroy(cluster);
}

static int open_backend(void **state)
{
    struct cpu_backend_options cpu = {.threads = 1};

    (void)state;
    school.backend = cpu_backend_create(&cpu);
    return school.backend == NULL;
}

static int close_backend(void **state)
{
    (void)state;
    backend_destroy(school.backend);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unlike_networks_teach_each_other),
        cmocka_unit_test(a_member_dies_in_the_middle_of_rounds),
        cmocka_unit_test(who_joins_late_takes_no_model),
        cmocka_unit_test(one_liar_is_bounded),
        cmocka_unit_test(relabelling_costs_nothing),
        cmocka_unit_test(the_toy_rests_where_theory_has_it_through_faults),
    };

    return cmocka_run_group_tests(tests, open_backend, close_backend);
}
