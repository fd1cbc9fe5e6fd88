/*
 * Compressed gradients at every step: `allreduce` with error feedback, four peers that train a real
 * model on the digits in virtual time. What a codec leaves out comes later, so they learn about
 * what float32 teaches them in as many steps, of a twentieth of the bytes and fewer.
 *
 * LONG=1 prints the table of docs/methods.md; CODECS (separated by blanks, "CODEC/MOMENTS"), SEEDS
 * and STEPS choose.
 */
#include "tests/check.h"

#include "base/check.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PEERS = 4,
    VALUES = 64 * 256 + 256 + 256 * 128 + 128 + 128 * 10 + 10,
    SPEC_BYTES = 64,
    STEPS = 120
};

static struct backend *backend;

struct outcome {
    double loss, accuracy, bytes, steps; /* of the test part, the mean of peers; bytes a round */
};

static const char *word(const char *name, const char *usual)
{
    const char *given = getenv(name);

    return given == NULL || *given == '\0' ? usual : given;
}

static struct learner *digits(void *context, uint32_t peer)
{
    const uint64_t *seed = context;
    char of[16];
    const struct replica_options options = {.model = "mlp",
                                            .optimizer = "momentum:lr=0.05,beta=0.9",
                                            .data = "digits",
                                            .seed = *seed,
                                            .stream_seed = 100 * *seed + peer,
                                            .shard = "iid",
                                            .shard_of = of,
                                            .threads = 1};

    snprintf(of, sizeof of, "%u/%u", peer, PEERS);
    return make(backend, &options);
}

static bool are_through(struct cluster *cluster, void *context)
{
    const uint64_t *steps = context;

    for (uint32_t i = 0; i < PEERS; i++) {
        if (swarm_report(cluster, i).step < *steps) return false;
    }
    return true;
}

static struct outcome run(const char *spec, uint64_t seed, uint64_t steps)
{
    char codec[SPEC_BYTES];
    const char *slash = strchr(spec, '/');
    struct cluster_options options = {.peers = PEERS,
                                      .seed = seed,
                                      .latency_ns = NS_PER_MS,
                                      .averaging = "allreduce",
                                      .codec = codec,
                                      .moments = slash == NULL ? NULL : slash + 1,
                                      .robust = "none",
                                      .start_with = PEERS,
                                      .step_cost_ns = 10 * NS_PER_MS,
                                      .values = VALUES,
                                      .learner = digits,
                                      .learner_context = &seed};
    struct cluster *cluster;
    struct outcome outcome = {0};
    uint64_t rounds = 0;

    snprintf(codec, sizeof codec, "%.*s", (int)strcspn(spec, "/"), spec);
    cluster = cluster_create(&options);
    swarm_start(cluster, PEERS);
    check_seed(seed, cluster_run_until(cluster, are_through, &steps, steps * NS_PER_S));
    for (uint32_t i = 0; i < PEERS; i++) {
        struct learner *learner = cluster_learner(cluster, i);
        const struct node_report report = swarm_report(cluster, i);
        struct evaluation evaluation;

        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
        outcome.loss += evaluation.loss / PEERS;
        outcome.accuracy += 100 * evaluation.accuracy / PEERS;
        outcome.bytes += (double)report.bytes_sent;
        outcome.steps += (double)report.step / PEERS;
        rounds += report.rounds_ok;
        check_seed(seed, report.rounds_ok + 3 >= report.step);
    }
    outcome.bytes /= (double)rounds;
    cluster_destroy(cluster);
    return outcome;
}

static void a_twentieth_of_the_bytes_teaches_as_much(void **state)
{
    /* By factors of a matrix, and by the largest values with momentum masked. */
    static const char *const specs[] = {"lowrank:16|int8+ef", "topk:0.01+ef/mask"};
    const struct outcome plain = run("f32", 1, STEPS);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        const struct outcome outcome = run(specs[i], 1, STEPS);

        printf("%s: loss %.3f, %.1f %%, %.0f bytes a round; f32 %.3f, %.1f %%, %.0f\n", specs[i],
               outcome.loss, outcome.accuracy, outcome.bytes, plain.loss, plain.accuracy,
               plain.bytes);
        assert_true(outcome.bytes < 0.2 * plain.bytes);
        assert_true(outcome.loss < plain.loss + 0.1);
    }
}

static void as_the_table_has_it(void **state)
{
    char text[1024], *at = NULL;
    const uint64_t seeds = strtoull(word("SEEDS", "3"), NULL, 10),
                   steps = strtoull(word("STEPS", "150"), NULL, 10);

    (void)state;
    if (getenv("LONG") == NULL) skip();
    snprintf(text, sizeof text, "%s",
             word("CODECS",
                  "f32 topk:0.0312+ef topk:0.0625|int8+ef lowrank:4+ef lowrank:16|int8+ef "
                  "int4+ef topk:0.0855+ef lowrank:11+ef"));
    for (const char *spec = strtok_r(text, " ", &at); spec != NULL;
         spec = strtok_r(NULL, " ", &at)) {
        struct outcome sum = {0};
        double least = 1e9, most = 0;

        for (uint64_t seed = 1; seed <= seeds; seed++) {
            const struct outcome outcome = run(spec, seed, steps);

            sum.loss += outcome.loss / (double)seeds;
            sum.accuracy += outcome.accuracy / (double)seeds;
            sum.bytes += outcome.bytes / (double)seeds;
            least = fmin(least, outcome.loss);
            most = fmax(most, outcome.loss);
        }
        printf("| `%s` | %.0f | %.3f (%.3f to %.3f) | %.1f |\n", spec, sum.bytes, sum.loss, least,
               most, sum.accuracy);
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
        cmocka_unit_test(a_twentieth_of_the_bytes_teaches_as_much),
        cmocka_unit_test(as_the_table_has_it),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
