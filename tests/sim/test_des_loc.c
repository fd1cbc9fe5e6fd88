/*
 * Moments that travel in rounds of their own (des-loc), by complete peers: the published equation,
 * one that is killed and comes back, one that lies about its moments.
 *
 * LONG=1 prints the table of docs/methods.md: real models on the digits beside their controls, over
 * SEEDS; SECONDS and SHARD choose.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "tests/sim/spy.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <math.h>
#include <string.h>

enum { PEERS = 4, EVERY = 4, ROUNDS = 13, STEPS = ROUNDS * EVERY + 2, FIRST = 2, SECOND = 6 };
#define RATE  0.01f
#define BETA1 0.9f
#define BETA2 0.999f

static struct backend *backend;
static struct spy spy;
static uint64_t steps[PEERS];

/* One member's plane: the model, then Adam's first and second moments. */
struct adam {
    size_t count;
    float *x, *moments; /* [count], [2 count] */
};
static struct adam begun, seen[PEERS]; /* at step 0, and at step STEPS of each */

/* Optima are apart, and gradients of like sizes. */
static float optimum(uint32_t peer, size_t at)
{
    const float sign = (at + peer) % 3 == 0 ? -1 : 1;

    return sign * (1 + 0.1f * (float)peer);
}

static void adam_step(struct adam *adam, uint32_t peer, uint64_t step)
{
    const float c1 = 1 - powf(BETA1, (float)step), c2 = 1 - powf(BETA2, (float)step);
    float *m = adam->moments, *v = adam->moments + adam->count;

    for (size_t i = 0; i < adam->count; i++) {
        const float g = adam->x[i] - optimum(peer, i);

        m[i] = BETA1 * m[i] + (1 - BETA1) * g;
        v[i] = BETA2 * v[i] + (1 - BETA2) * g * g;
        adam->x[i] -= RATE * (m[i] / c1) / (sqrtf(v[i] / c2) + 1e-8f);
    }
}

static struct adam adam_of(struct learner *learner)
{
    return (struct adam){.count = count_of(learner, SECTION_PARAMETERS),
                         .x = values_of(learner, SECTION_PARAMETERS),
                         .moments = values_of(learner, SECTION_MOMENTS)};
}

static void adam_deinit(struct adam *adam)
{
    mem_free(adam->x);
    mem_free(adam->moments);
    *adam = (struct adam){0};
}

static enum rc adam_train(struct learner *learner, uint32_t count, const atomic_bool *stop,
                          struct train_report *report)
{
    const uint32_t peer = spy_number(&spy, learner);

    (void)stop;
    for (uint32_t i = 0; i < count; i++) {
        struct adam adam = adam_of(learner);

        if (steps[peer] == 0 && begun.x == NULL) begun = adam_of(learner);
        adam_step(&adam, peer, ++steps[peer]);
        assert_int_equal(
            learner->ops->assign_section(learner, SECTION_PARAMETERS, adam.x, adam.count), RC_OK);
        assert_int_equal(
            learner->ops->assign_section(learner, SECTION_MOMENTS, adam.moments, 2 * adam.count),
            RC_OK);
        if (steps[peer] == STEPS) {
            seen[peer] = adam;
        } else {
            adam_deinit(&adam);
        }
    }
    *report = (struct train_report){
        .steps = count, .step = steps[peer], .samples = 32 * steps[peer], .loss_sum = count};
    return RC_OK;
}

static struct learner *replica(const char *averaging_shard, uint64_t seed, uint32_t peer)
{
    char of[16];
    const struct replica_options options = {.model = "linear:32 relu linear:classes",
                                            .optimizer = "adam:lr=0.002",
                                            .data = "digits",
                                            .seed = seed,
                                            .stream_seed = 100 * seed + peer,
                                            .shard = averaging_shard,
                                            .shard_of = of,
                                            .threads = 1};

    snprintf(of, sizeof of, "%u/%u", peer, (uint32_t)PEERS);
    return make(backend, &options);
}

static struct learner *toy(void *context, uint32_t peer)
{
    struct learner *learner = spy_on(&spy, peer, replica("iid", 1, peer));

    (void)context;
    spy.ops.train = adam_train;
    steps[peer] = 0;
    return learner;
}

/* The mean of plane `plane` of all, at each. */
static void mean_of(struct adam *all, uint32_t plane)
{
    for (size_t i = 0; i < all->count; i++) {
        float sum = 0;

        for (uint32_t p = 0; p < PEERS; p++) {
            sum += plane == 0 ? all[p].x[i] : all[p].moments[(plane - 1) * all->count + i];
        }
        for (uint32_t p = 0; p < PEERS; p++) {
            float *to = plane == 0 ? all[p].x : all[p].moments + (plane - 1) * all->count;

            to[i] = sum / PEERS;
        }
    }
}

/* The published algorithm, with Adam inside: H local steps, then the mean of the parameters, of
 * the first moments every K_u and of the second every K_v steps. `number`: of the first round. */
static void equation(struct adam *all, uint64_t number)
{
    for (uint64_t step = 1; step <= STEPS; step++) {
        for (uint32_t p = 0; p < PEERS; p++) {
            adam_step(&all[p], p, step);
        }
        if (step % EVERY != 0) continue;
        mean_of(all, 0);
        if (number % FIRST == 0) mean_of(all, 1);
        if (number % SECOND == 0) mean_of(all, 2);
        number++;
    }
}

static bool have_all_seen(struct cluster *cluster, void *context)
{
    (void)cluster;
    (void)context;
    for (uint32_t p = 0; p < PEERS; p++) {
        if (seen[p].x == NULL) return false;
    }
    return true;
}

static float most_apart(const float *a, const float *b, size_t count)
{
    float most = 0;

    for (size_t i = 0; i < count; i++) {
        most = fmaxf(most, fabsf(a[i] - b[i]));
    }
    return most;
}

static void peers_follow_the_published_equation(void **state)
{
    (void)state;
    struct cluster_options options = {.peers = PEERS,
                                      .seed = 1,
                                      .start_with = PEERS,
                                      .averaging = "des-loc:H=4,first=2,second=6",
                                      .latency_ns = NS_PER_MS,
                                      .learner = toy};
    struct cluster *cluster = cluster_create(&options);
    struct node_report report;
    struct adam all[PEERS];

    swarm_start(cluster, PEERS);
    assert_true(cluster_run_until(cluster, have_all_seen, NULL, 60 * NS_PER_S));
    report = swarm_report(cluster, 0);
    assert_int_equal(report.rounds_aborted, 0);
    for (uint32_t p = 0; p < PEERS; p++) {
        all[p] = (struct adam){.count = begun.count,
                               .x = mem_array(begun.count, sizeof(float)),
                               .moments = mem_array(2 * begun.count, sizeof(float))};
        memcpy(all[p].x, begun.x, begun.count * sizeof(float));
        memcpy(all[p].moments, begun.moments, 2 * begun.count * sizeof(float));
    }
    equation(all, report.round - report.rounds_ok);
    for (uint32_t p = 0; p < PEERS; p++) {
        const size_t n = begun.count;
        const float x = most_apart(seen[p].x, all[p].x, n);
        const float m = most_apart(seen[p].moments, all[p].moments, n);
        const float v = most_apart(seen[p].moments + n, all[p].moments + n, n);

        if (!(x < 1e-5f && m < 1e-5f && v < 1e-6f)) {
            fail_msg("peer %u: %g, %g and %g from the equation", p, (double)x, (double)m,
                     (double)v);
        }
        /* two steps after a round without moments they are the peer's own */
        assert_true(most_apart(seen[p].moments, seen[(p + 1) % PEERS].moments, n) > 0.01f);
        adam_deinit(&all[p]);
    }
    cluster_destroy(cluster);
    for (uint32_t p = 0; p < PEERS; p++) {
        adam_deinit(&seen[p]);
    }
    adam_deinit(&begun);
}

/* ---- real models ---- */

struct scene {
    const char *averaging, *moments, *shard;
    uint64_t seed, run_ns;
    bool has_liar, has_kills;
};

/* Second moments are none, and first ones are long: the worst that Adam could be made to divide. */
static enum rc lying_export(struct learner *learner, enum section section, float *out, size_t count)
{
    const enum rc rc = spy.originals.export_section(learner, section, out, count);

    if (section != SECTION_MOMENTS || spy_number(&spy, learner) != PEERS - 1) return rc;
    for (size_t i = 0; i < count; i++) {
        out[i] = i < count / 2 ? 5 : -5;
    }
    return rc;
}

static struct learner *real(void *context, uint32_t peer)
{
    const struct scene *scene = context;
    struct learner *learner = spy_on(&spy, peer, replica(scene->shard, scene->seed, peer));

    if (scene->has_liar) spy.ops.export_section = lying_export;
    return learner;
}

struct outcome {
    double loss, accuracy, bytes;
    uint64_t rounds_least;
};

/* Of the honest ones, whose moments are such as Adam could have made. */
static struct outcome run(struct scene scene)
{
    const uint32_t honest = scene.has_liar ? PEERS - 1 : PEERS, first = 0;
    struct cluster_options options = {.peers = PEERS,
                                      .seed = scene.seed,
                                      .start_with = PEERS,
                                      .averaging = scene.averaging,
                                      .moments = scene.moments,
                                      .robust = "auto",
                                      .latency_ns = NS_PER_MS,
                                      .learner = real,
                                      .learner_context = &scene};
    struct cluster *cluster = cluster_create(&options);
    struct outcome outcome = {.rounds_least = UINT64_MAX};

    swarm_start(cluster, PEERS);
    for (uint32_t kill = 0; scene.has_kills && kill < 4; kill++) {
        cluster_run(cluster, scene.run_ns / 8 + 7 * kill * NS_PER_MS);
        cluster_crash(cluster, 2);
        cluster_run(cluster, scene.run_ns / 16);
        cluster_start(cluster, 2, &first, 1);
    }
    cluster_run(cluster, scene.run_ns);
    for (uint32_t p = 0; p < honest; p++) {
        struct learner *learner = cluster_learner(cluster, p);
        const struct node_report report = swarm_report(cluster, p);
        struct adam adam = adam_of(learner);
        struct evaluation evaluation;

        for (size_t i = 0; i < adam.count; i++) {
            const float v = adam.moments[adam.count + i];

            check_seed(scene.seed, v >= 0 && fabsf(adam.moments[i]) <= 15 * sqrtf(v));
        }
        adam_deinit(&adam);
        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
        outcome.loss += evaluation.loss / honest;
        outcome.accuracy += evaluation.accuracy / honest;
        outcome.bytes += (double)report.bytes_sent / (double)report.rounds_ok / honest;
        if (report.rounds_ok < outcome.rounds_least) outcome.rounds_least = report.rounds_ok;
    }
    cluster_destroy(cluster);
    return outcome;
}

static struct scene scene(uint64_t seed)
{
    return (struct scene){
        .averaging = "des-loc:H=16", .shard = "iid", .seed = seed, .run_ns = 8 * NS_PER_S};
}

static void one_that_is_killed_goes_on_with_the_others(void **state)
{
    (void)state;
    if (getenv("LONG") != NULL) skip();
    FOR_EACH_SEED (seed, 2) {
        struct scene killed = scene(seed);
        struct outcome outcome;

        killed.has_kills = true;
        killed.shard = "dirichlet:0.3";
        outcome = run(killed);
        check_seed(seed, outcome.accuracy > 0.9 && outcome.rounds_least > 20);
    }
}

static void one_that_lies_about_its_moments_does_not_stop_the_others(void **state)
{
    (void)state;
    if (getenv("LONG") != NULL) skip();
    FOR_EACH_SEED (seed, 2) {
        struct scene lied = scene(seed);
        struct outcome outcome;

        lied.has_liar = true;
        outcome = run(lied);
        if (getenv("VERBOSE") != NULL) {
            printf("loss %.4f, accuracy %.4f\n", outcome.loss, outcome.accuracy);
        }
        check_seed(seed, outcome.accuracy > 0.9 && outcome.rounds_least > 20);
    }
}

static void the_table(void **state)
{
    static const char *const methods[][2] = {
        {"none", NULL},         {"local-sgd:H=16", "keep"}, {"local-sgd:H=16", "average"},
        {"des-loc:H=16", NULL}, {"local-sgd:H=64", "keep"}, {"local-sgd:H=64", "average"},
        {"des-loc:H=64", NULL}};
    const char *text = getenv("SEEDS"), *time = getenv("SECONDS"), *shard = getenv("SHARD");
    const uint64_t seeds = text == NULL ? 5 : strtoull(text, NULL, 10);

    (void)state;
    if (getenv("LONG") == NULL) skip();
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        struct outcome mean = {0};
        double squares = 0;

        for (uint64_t seed = 1; seed <= seeds; seed++) {
            struct scene one = scene(seed);
            struct outcome outcome;

            one.averaging = methods[m][0];
            one.moments = methods[m][1];
            if (shard != NULL) one.shard = shard;
            if (time != NULL) one.run_ns = strtoull(time, NULL, 10) * NS_PER_S;
            outcome = run(one);
            mean.loss += outcome.loss / (double)seeds;
            mean.accuracy += outcome.accuracy / (double)seeds;
            mean.bytes += outcome.bytes / (double)seeds;
            squares += outcome.loss * outcome.loss / (double)seeds;
        }
        printf("| `%s%s%s` | %.0f | %.4f (%.4f) | %.2f |\n", methods[m][0],
               methods[m][1] == NULL ? "" : " --moments ",
               methods[m][1] == NULL ? "" : methods[m][1], mean.bytes, mean.loss,
               sqrt(fmax(0, squares - mean.loss * mean.loss)), 100 * mean.accuracy);
        fflush(stdout);
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
        cmocka_unit_test(peers_follow_the_published_equation),
        cmocka_unit_test(one_that_is_killed_goes_on_with_the_others),
        cmocka_unit_test(one_that_lies_about_its_moments_does_not_stop_the_others),
        cmocka_unit_test(the_table),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
