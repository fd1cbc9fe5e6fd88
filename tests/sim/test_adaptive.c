/*
 * `adacomm`: real models on the digits in virtual time, whose period follows the loss.
 *
 * - Fewer rounds than with a period that is short from the beginning, at a loss that is as low.
 * - All members have one period in each round (T20); also beside one that lies about its loss, and
 *   what that one says moves the period little.
 * - It is gone on with after a crash of all, and who comes late has it at once.
 *
 * LONG=1 prints the table of docs/methods.md; METHODS (separated by blanks), SEEDS, SECONDS and
 * SHARD choose.
 */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "peer/node/internal.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

#include <math.h>

enum { VALUES = 64 * 32 + 32 + 32 * 10 + 10, PEERS = 4, LATE = 4, ROUNDS_MAX = 4096 };

static struct backend *backend;

static const char *word(const char *name, const char *usual)
{
    const char *given = getenv(name);

    return given == NULL || *given == '\0' ? usual : given;
}

static struct learner *digits(void *context, uint32_t peer)
{
    const uint64_t seed = *(const uint64_t *)context;
    char of[16];
    struct replica_options options = {.model = "linear:32 relu linear:classes",
                                      .data = "digits",
                                      .seed = seed,
                                      .stream_seed = 100 * seed + peer,
                                      .shard = word("SHARD", "dirichlet:0.3"),
                                      .shard_of = of,
                                      .threads = 1};

    snprintf(of, sizeof of, "%u/%u", peer, PEERS + 1);
    return make(backend, &options);
}

static uint64_t seed_of;

static struct cluster *begin(const char *averaging, uint64_t seed)
{
    struct cluster *cluster;

    seed_of = seed;
    cluster = cluster_create(&(struct cluster_options){.peers = PEERS + 1,
                                                       .seed = seed,
                                                       .averaging = averaging,
                                                       .robust = "auto",
                                                       .start_with = PEERS,
                                                       .latency_ns = 5 * NS_PER_MS,
                                                       .step_cost_ns = 10 * NS_PER_MS,
                                                       .values = VALUES,
                                                       .learner = digits,
                                                       .learner_context = &seed_of});
    swarm_start(cluster, PEERS);
    return cluster;
}

/* ---- what it is for ---- */

struct outcome {
    double loss, accuracy;         /* mean of the peers', on the test samples */
    uint64_t steps, rounds, bytes; /* of peer 0 */
};

/* After so many steps, and not so long: what waiting costs is another matter. */
static struct outcome run(const char *averaging, uint64_t seed, uint64_t steps)
{
    struct cluster *cluster = begin(averaging, seed);
    struct outcome outcome = {.loss = 0};

    while (node_step(cluster_node(cluster, 0)) < steps) {
        cluster_run(cluster, 50 * NS_PER_MS);
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        struct learner *learner = cluster_learner(cluster, i);
        struct evaluation evaluation;

        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
        outcome.loss += evaluation.loss / PEERS;
        outcome.accuracy += evaluation.accuracy / PEERS;
    }
    outcome.steps = swarm_report(cluster, 0).step;
    outcome.rounds = swarm_report(cluster, 0).rounds_ok;
    outcome.bytes = swarm_report(cluster, 0).bytes_sent;
    cluster_destroy(cluster);
    return outcome;
}

/* Beside the same steps with a round every two, it has at most half of the rounds and ends no
 * worse; beside a period that stays as long as it begins it is better. */
static void fewer_rounds_do_as_well(void **state)
{
    static const char *const methods[] = {"adacomm:H=32,block=150", "post-local:H=2,switch=1",
                                          "post-local:H=32,switch=1"};
    struct outcome sums[ARRAY_COUNT(methods)] = {{0}};

    (void)state;
    if (getenv("LONG") != NULL) skip();
    for (size_t m = 0; m < ARRAY_COUNT(methods); m++) {
        for (uint64_t seed = 1; seed <= 2; seed++) {
            const struct outcome outcome = run(methods[m], seed, 1000);

            sums[m].loss += outcome.loss / 2;
            sums[m].rounds += outcome.rounds;
        }
        printf("%-26s loss %.4f, %llu rounds\n", methods[m], sums[m].loss,
               (unsigned long long)sums[m].rounds);
    }
    assert_true(2 * sums[0].rounds < sums[1].rounds);
    assert_true(sums[0].loss < 1.05 * sums[1].loss);
    assert_true(sums[0].loss < 0.95 * sums[2].loss);
}

static void the_table(void **state)
{
    char methods[400], *save = NULL;
    const uint64_t seeds = strtoull(word("SEEDS", "5"), NULL, 10);
    const uint64_t steps = strtoull(word("STEPS", "1000"), NULL, 10);

    (void)state;
    if (getenv("LONG") == NULL) skip();
    snprintf(methods, sizeof methods, "%s",
             word("METHODS", "post-local:H=1,switch=1 post-local:H=2,switch=1 "
                             "post-local:H=4,switch=1 post-local:H=8,switch=1 "
                             "post-local:H=32,switch=1 adacomm:H=32,block=150"));
    for (char *method = strtok_r(methods, " ", &save); method != NULL;
         method = strtok_r(NULL, " ", &save)) {
        double losses = 0, squares = 0, accuracy = 0, rounds = 0, bytes = 0;

        for (uint64_t seed = 1; seed <= seeds; seed++) {
            const struct outcome outcome = run(method, seed, steps);

            losses += outcome.loss / (double)seeds;
            squares += outcome.loss * outcome.loss / (double)seeds;
            accuracy += outcome.accuracy / (double)seeds;
            rounds += (double)outcome.rounds / (double)seeds;
            bytes += (double)outcome.bytes / (double)seeds;
        }
        printf("| `%s` | %.0f | %.0f | %.3f (%.3f) | %.1f |\n", method, rounds, bytes / 1e3, losses,
               sqrt(fmax(squares - losses * losses, 0)), 100 * accuracy);
        fflush(stdout);
    }
}

/* ---- one period ---- */

/* What peer 0 says of the loss; NULL: the truth. */
static void (*lie)(struct message_score *score);
static const struct cluster *lied_in;

enum rc __real_links_send(struct links *links, struct peer_id to, const struct message *message);
void __real_links_send_all(struct links *links, const struct message *message);
enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message);
void __wrap_links_send_all(struct links *links, const struct message *message);

static struct message said_by(const struct links *links, const struct message *message)
{
    struct message said = *message;
    const struct node *node = NULL;

    if (lie == NULL || message->type != MESSAGE_SCORE) return said;
    node = cluster_node((struct cluster *)(uintptr_t)lied_in, 0);
    if (node != NULL && node->links == links) lie(&said.as.score);
    return said;
}

enum rc __wrap_links_send(struct links *links, struct peer_id to, const struct message *message)
{
    const struct message said = said_by(links, message);

    return __real_links_send(links, to, &said);
}

void __wrap_links_send_all(struct links *links, const struct message *message)
{
    const struct message said = said_by(links, message);

    __real_links_send_all(links, &said);
}

static void says_nothing_is_left(struct message_score *score)
{
    score->loss = 0;
    score->line = 1;
}

static void says_it_grows(struct message_score *score)
{
    score->loss = 1e30f;
    score->rate = 1e-30f;
    score->line = UINT64_MAX;
}

static void says_anything(struct message_score *score)
{
    score->loss *= (float)(score->step % 7);
    score->line = score->step;
}

/* The period of each round, as each peer has it. */
static uint64_t periods[PEERS][ROUNDS_MAX];

static uint64_t watch_rounds(struct cluster *cluster, uint64_t for_ns, uint32_t first)
{
    uint64_t least = UINT64_MAX;

    memset(periods, 0, sizeof periods);
    for (uint64_t ns = 0; ns < for_ns; ns += NS_PER_MS) {
        cluster_run(cluster, NS_PER_MS);
        for (uint32_t i = 0; i < PEERS; i++) {
            const struct node_report report = swarm_report(cluster, i);

            assert_true(report.round < ROUNDS_MAX);
            periods[i][report.round] = report.period_steps;
        }
    }
    for (uint32_t i = first; i < PEERS; i++) {
        const uint64_t round = swarm_report(cluster, i).round;

        if (round < least) least = round;
    }
    return least;
}

static void all_have_one_period(const char *name, void (*with)(struct message_score *score),
                                uint64_t last[1])
{
    const uint32_t first = with == NULL ? 0 : 1;
    struct cluster *cluster = begin("adacomm:H=16,block=80", 1);
    uint64_t rounds, changes = 0;

    lied_in = cluster;
    lie = with;
    rounds = watch_rounds(cluster, 8 * NS_PER_S, first);
    lie = NULL;
    assert_true(rounds > 30);
    for (uint64_t r = 1; r < rounds; r++) {
        for (uint32_t i = first + 1; i < PEERS; i++) {
            if (periods[i][r] == periods[first][r]) continue;
            fail_msg("%s: round %llu: a period of %llu and one of %llu", name,
                     (unsigned long long)r, (unsigned long long)periods[first][r],
                     (unsigned long long)periods[i][r]);
        }
        changes += periods[first][r] != periods[first][r - 1];
    }
    *last = periods[first][rounds - 1];
    printf("%s: one period in each of %llu rounds, at last %llu steps, by %llu changes\n", name,
           (unsigned long long)rounds, (unsigned long long)*last, (unsigned long long)changes);
    cluster_destroy(cluster);
}

static void members_have_one_period(void **state)
{
    static const struct {
        const char *name;
        void (*lie)(struct message_score *score);
    } cases[] = {{"one says that nothing is left", says_nothing_is_left},
                 {"one says that the loss grows", says_it_grows},
                 {"one says anything", says_anything}};
    uint64_t alone, beside;

    (void)state;
    if (getenv("LONG") != NULL) skip();
    all_have_one_period("no lies", NULL, &alone);
    assert_true(alone < 10);
    for (size_t i = 0; i < ARRAY_COUNT(cases); i++) {
        all_have_one_period(cases[i].name, cases[i].lie, &beside);
        assert_true(beside <= 2 * alone && alone <= 2 * beside);
    }
}

/* ---- what outlives a peer ---- */

static bool has_period(struct cluster *cluster, void *context)
{
    const uint32_t peer = *(uint32_t *)context;

    return node_state(cluster_node(cluster, peer)) == NODE_TRAINING &&
           swarm_report(cluster, peer).rounds_ok > 0;
}

static void it_survives_restarts_and_meets_who_is_late(void **state)
{
    struct cluster *cluster = begin("adacomm:H=64,block=400", 1);
    const uint32_t first = 0;
    uint32_t late = LATE;
    uint64_t before;

    (void)state;
    if (getenv("LONG") != NULL) skip();
    cluster_run(cluster, 15 * NS_PER_S); /* checkpoints are written every 5 s */
    before = swarm_report(cluster, 0).period_steps;
    assert_true(before > 1 && before < 40);
    cluster_start(cluster, late, &first, 1);
    assert_true(cluster_run_until(cluster, has_period, &late, 20 * NS_PER_S));
    assert_true(swarm_report(cluster, late).period_steps <= before);
    assert_true(swarm_report(cluster, late).period_steps == swarm_report(cluster, 0).period_steps);
    cluster_run(cluster, 6 * NS_PER_S);
    before = swarm_report(cluster, 0).period_steps;
    for (uint32_t i = 0; i <= LATE; i++) {
        cluster_crash(cluster, i);
    }
    for (uint32_t i = 0; i <= LATE; i++) {
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
        /* No more than what the last checkpoint is behind. */
        assert_true(swarm_report(cluster, i).period_steps < 40);
        assert_true(swarm_report(cluster, i).period_steps <= 4 * before);
    }
    cluster_run(cluster, 6 * NS_PER_S);
    for (uint32_t i = 0; i <= LATE; i++) {
        assert_true(swarm_report(cluster, i).rounds_ok > 0);
        assert_true(swarm_report(cluster, i).period_steps <= before);
    }
    cluster_destroy(cluster);
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
        cmocka_unit_test(fewer_rounds_do_as_well),
        cmocka_unit_test(the_table),
        cmocka_unit_test(members_have_one_period),
        cmocka_unit_test(it_survives_restarts_and_meets_who_is_late),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
