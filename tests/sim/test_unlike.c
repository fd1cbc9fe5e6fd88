/*
 * Unlike machines: real models on the digits in virtual time, where a step takes each peer a time
 * of its own.
 *
 * - 16 peers of 1 to 0.2 of the quickest one's speed: `decoupled-diloco`, like `async-diloco`,
 * takes at least 1.3 times the steps of `diloco`, which stands still for rounds, in the same time
 * on the same data, and ends no worse than by the seeds' noise. Rounds by time (`--pace time=`) are
 * beside it.
 * - hivemind's collaborative benchmark (Ryabinin, Borzunov et al., benchmark_optimizer.py): 8
 * peers, of whom nobody can dial 3, and a batch takes each a time drawn from 1 to 4.5 s. All take
 * part in rounds, hardly anybody waits, and they learn.
 *
 * LONG=1 prints the table of docs/methods.md, METHODS (separated by blanks; "NAME@DURATION": by
 * time), SEEDS, SECONDS and SHARD choose.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <math.h>

enum { VALUES = 64 * 32 + 32 + 32 * 10 + 10, PEERS = 16, BENCHMARK_PEERS = 8, HIDDEN = 3 };
#define STEP_NS (10 * NS_PER_MS)

static struct backend *backend;

static const struct {
    double of[PEERS];
} speeds = {{1, 1, 1, 1, 0.9, 0.9, 0.8, 0.8, 0.7, 0.6, 0.5, 0.5, 0.4, 0.3, 0.25, 0.2}};

struct setting {
    const char *averaging, *pace;
    uint32_t peers, hidden;
    const double *speeds;
    uint64_t step_ns, run_ns, seed;
};

struct outcome {
    double steps, loss, accuracy; /* steps of all; the mean of peers */
    uint64_t rounds_least, steps_least;
};

static const char *word(const char *name, const char *usual)
{
    const char *given = getenv(name);

    return given == NULL || *given == '\0' ? usual : given;
}

static struct learner *digits(void *context, uint32_t peer)
{
    const struct setting *setting = context;
    char of[16];
    struct replica_options options = {.model = "linear:32 relu linear:classes",
                                      .data = "digits",
                                      .seed = setting->seed,
                                      .stream_seed = 100 * setting->seed + peer,
                                      .shard = word("SHARD", "iid"),
                                      .shard_of = of,
                                      .threads = 1};

    snprintf(of, sizeof of, "%u/%u", peer, setting->peers);
    return make(backend, &options);
}

static struct outcome run(struct setting setting)
{
    const struct cluster_options options = {.peers = setting.peers,
                                            .seed = setting.seed,
                                            .latency_ns = 20 * NS_PER_MS,
                                            .averaging = setting.averaging,
                                            .pace = setting.pace,
                                            .robust = "auto",
                                            .start_with = setting.peers,
                                            .step_cost_ns = setting.step_ns,
                                            .speeds = setting.speeds,
                                            .values = VALUES,
                                            .learner = digits,
                                            .learner_context = &setting};
    struct cluster *cluster = cluster_create(&options);
    struct outcome outcome = {.rounds_least = UINT64_MAX, .steps_least = UINT64_MAX};

    for (uint32_t i = 0; i < setting.hidden; i++) {
        sim_host_faults(cluster_world(cluster), setting.peers - i)->refuses_inbound = true;
    }
    swarm_start(cluster, setting.peers);
    cluster_run(cluster, setting.run_ns);
    for (uint32_t i = 0; i < setting.peers; i++) {
        struct learner *learner = cluster_learner(cluster, i);
        const struct node_report report = swarm_report(cluster, i);
        struct evaluation evaluation;

        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
        outcome.loss += evaluation.loss / setting.peers;
        outcome.accuracy += evaluation.accuracy / setting.peers;
        outcome.steps += (double)report.step;
        if (report.rounds_ok < outcome.rounds_least) outcome.rounds_least = report.rounds_ok;
        if (report.step < outcome.steps_least) outcome.steps_least = report.step;
    }
    cluster_destroy(cluster);
    return outcome;
}

/* Of all the steps there was time for. */
static double share_of(const struct setting *setting, const struct outcome *outcome)
{
    double most = 0;

    for (uint32_t i = 0; i < setting->peers; i++) {
        most += (double)setting->run_ns / (double)setting->step_ns * setting->speeds[i];
    }
    return outcome->steps / most;
}

static struct setting sixteen(const char *averaging, uint64_t seed)
{
    return (struct setting){.averaging = averaging,
                            .peers = PEERS,
                            .speeds = speeds.of,
                            .step_ns = STEP_NS,
                            .run_ns = strtoull(word("SECONDS", "12"), NULL, 10) * NS_PER_S,
                            .seed = seed};
}

static void print(const struct setting *setting, const struct outcome *outcome)
{
    printf("%s%s%s seed %llu: %.0f steps, %.1f %% of what there was time for; at least %llu rounds "
           "a peer; loss %.4f, accuracy %.4f\n",
           setting->averaging, setting->pace == NULL ? "" : " ",
           setting->pace == NULL ? "" : setting->pace, (unsigned long long)setting->seed,
           outcome->steps, 100 * share_of(setting, outcome),
           (unsigned long long)outcome->rounds_least, outcome->loss, outcome->accuracy);
}

/* At least 1.3 times the samples a second of `diloco`, and no worse. By accuracy: who has trained
 * longest has begun to be too sure of itself, and its loss rises again. */
static void nobody_waits_for_the_slow(void **state)
{
    static const char *const methods[] = {"diloco:H=48", "decoupled-diloco", "async-diloco:H=48"};
    double steps[ARRAY_COUNT(methods)] = {0}, accuracy[ARRAY_COUNT(methods)] = {0};
    const uint64_t seeds = 2;

    (void)state;
    if (getenv("LONG") != NULL) skip();
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            const struct setting setting = sixteen(methods[m], seed);
            const struct outcome outcome = run(setting);

            print(&setting, &outcome);
            steps[m] += outcome.steps;
            accuracy[m] += outcome.accuracy;
            if (m > 0) check_seed(seed, outcome.rounds_least > 10);
        }
        if (m == 0) continue;
        assert_true(steps[m] >= 1.3 * steps[0]);
        assert_true(accuracy[m] >= accuracy[0]);
    }
}

/* Batch times are drawn as there, and rounds are by time. */
static void the_collaborative_benchmark(void **state)
{
    static const char *const methods[][2] = {{"local-sgd", "time=12s"},
                                             {"diloco", "time=30s"},
                                             {"decoupled-diloco:H=32,P=4,tau=7", NULL}};
    double drawn[BENCHMARK_PEERS];
    struct rng rng;

    (void)state;
    if (getenv("LONG") != NULL) skip();
    rng_init(&rng, 1, 2);
    for (uint32_t i = 0; i < BENCHMARK_PEERS; i++) {
        drawn[i] = 1 / (1 + 3.5 * rng_unit(&rng));
    }
    for (size_t i = 0; i < ARRAY_COUNT(methods); i++) {
        const struct setting setting = {.averaging = methods[i][0],
                                        .pace = methods[i][1],
                                        .peers = BENCHMARK_PEERS,
                                        .hidden = HIDDEN,
                                        .speeds = drawn,
                                        .step_ns = NS_PER_S,
                                        .run_ns = 600 * NS_PER_S,
                                        .seed = 1};
        struct outcome outcome = run(setting);

        print(&setting, &outcome);
        assert_true(outcome.rounds_least >= 10);
        assert_true(share_of(&setting, &outcome) >= 0.9);
        assert_true(outcome.accuracy >= 0.9);
    }
}

static void the_table(void **state)
{
    const char *wanted = word("METHODS", "none diloco:H=48 diloco:H=48@480ms diloco:H=48,tau=24 "
                                         "streaming-diloco:H=48,P=4,tau=6 "
                                         "decoupled-diloco");
    const uint64_t seeds = strtoull(word("SEEDS", "3"), NULL, 10);
    char methods[400], pace[40], *save = NULL;

    (void)state;
    if (getenv("LONG") == NULL) skip();
    snprintf(methods, sizeof methods, "%s", wanted);
    for (char *method = strtok_r(methods, " ", &save); method != NULL;
         method = strtok_r(NULL, " ", &save)) {
        char *by_time = strchr(method, '@');
        struct outcome mean = {0};
        double squares = 0;
        struct setting setting;

        if (by_time != NULL) {
            *by_time = '\0';
            snprintf(pace, sizeof pace, "time=%s", by_time + 1);
        }
        for (uint64_t seed = 1; seed <= seeds; seed++) {
            struct outcome outcome;

            setting = sixteen(method, seed);
            if (by_time != NULL) setting.pace = pace;
            outcome = run(setting);
            if (getenv("EACH") != NULL) print(&setting, &outcome);
            mean.steps += outcome.steps / (double)seeds;
            mean.loss += outcome.loss / (double)seeds;
            mean.accuracy += outcome.accuracy / (double)seeds;
            squares += outcome.loss * outcome.loss / (double)seeds;
        }
        printf("| `%s`%s%s | %.0f | %.1f | %.4f (%.4f) | %.2f |\n", method,
               by_time == NULL ? "" : " ", by_time == NULL ? "" : pace, mean.steps,
               100 * share_of(&setting, &mean), mean.loss,
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
        cmocka_unit_test(nobody_waits_for_the_slow),
        cmocka_unit_test(the_collaborative_benchmark),
        cmocka_unit_test(the_table),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
