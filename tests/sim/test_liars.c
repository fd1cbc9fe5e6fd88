/*
 * What one liar among eight does to what the others learn, against the same swarm without it: real
 * models in virtual time, the liar being the shipping node that lies in one way (tests/sim/lies.h).
 * As a gate: the worst of the lies, each with one method. ENDS=1 prints the same of runs to a goal,
 * and how far apart the honest end. LONG=1 prints the table of all that apply; METHODS, LIES
 * (separated by blanks), ROBUST and TOPOLOGY (the flags; default: as shipped), SHARD (iid or
 * dirichlet:0.1), SEED, SECONDS and PEERS (of whom the last joins late) choose.
 * tests/bench/one_liar.sh does the same with processes.
 */
#include "tests/check.h"

#include "tests/sim/lies.h"
#include "tests/sim/swarm.h"
#include "tests/unit/replica/learners.h"

enum { VALUES = 64 * 32 + 32 + 32 * 10 + 10 };

/* Started at once, all would end their steps at the same moments for as long as nothing disturbs
 * them: rounds are quicker then, and whatever ends it looks like a loss. */
#define APART_NS (3 * NS_PER_MS)

static struct backend *backend;
static const char *shard;     /* of the run at hand; NULL: as SHARD says */
static const char *topology;  /* likewise, as TOPOLOGY says */
static uint64_t gate_seed;    /* likewise; 0: as SEED says */
static uint64_t gate_seconds; /* likewise; 0: as SECONDS says */

struct outcome {
    double accuracy; /* mean of the honest */
    double least;    /* of them */
    uint64_t rounds; /* theirs */
    uint32_t ended;  /* of them, though they should train */
};

static const char *word(const char *name, const char *usual)
{
    const char *given = getenv(name);

    return given == NULL || *given == '\0' ? usual : given;
}

static uint64_t seed(void)
{
    return gate_seed > 0 ? gate_seed : strtoull(word("SEED", "1"), NULL, 10);
}

static uint32_t peers(void)
{
    return (uint32_t)strtoul(word("PEERS", "8"), NULL, 10);
}

static uint64_t run_ns(void)
{
    return (gate_seconds > 0 ? gate_seconds : strtoull(word("SECONDS", "4"), NULL, 10)) * NS_PER_S;
}

enum { PEERS_MOST = 16 };

/* Of runs to a goal: what each ended with. */
static struct {
    struct learner_ops ops; /* a replica's, but for destroy */
    const struct learner_ops *replica;
    const struct learner *learners[PEERS_MOST];
    float planes[PEERS_MOST][VALUES];
    double accuracy[PEERS_MOST];
} ends;

static void destroy_ended(struct learner *learner)
{
    struct evaluation evaluation;
    uint32_t i = 0;

    while (ends.learners[i] != learner) {
        i++;
    }
    assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
    ends.accuracy[i] = evaluation.accuracy;
    assert_int_equal(
        learner->ops->export_section(learner, SECTION_PARAMETERS, ends.planes[i], VALUES), RC_OK);
    learner->ops = ends.replica;
    learner->ops->destroy(learner);
}

static struct learner *digits(void *context, uint32_t peer);

static struct learner *ending_digits(void *context, uint32_t peer)
{
    struct learner *learner = digits(context, peer);

    ends.replica = learner->ops;
    ends.ops = *learner->ops;
    ends.ops.destroy = destroy_ended;
    learner->ops = &ends.ops;
    ends.learners[peer] = learner;
    return learner;
}

static struct learner *digits(void *context, uint32_t peer)
{
    struct replica_options options = {.model = "linear:32 relu linear:classes",
                                      .data = "digits",
                                      .seed = 1,
                                      .stream_seed = 100 * (uint32_t)seed() + peer,
                                      .threads = 1};
    char of[16];

    (void)context;
    snprintf(of, sizeof of, "%u/%u", peer, peers());
    options.shard = shard != NULL ? shard : word("SHARD", "iid");
    options.shard_of = of;
    return make(backend, &options);
}

/* `behaviour` NULL: nobody else comes. The last one joins while the others train. */
static struct outcome run(const char *averaging, const char *robust,
                          const struct evil_behaviour *behaviour)
{
    struct cluster_options options = {.peers = peers(),
                                      .seed = seed(),
                                      .latency_ns = 2 * NS_PER_MS,
                                      .averaging = averaging,
                                      .robust = robust,
                                      .topology = topology != NULL ? topology : getenv("TOPOLOGY"),
                                      .values = VALUES,
                                      .learner = digits};
    struct cluster *cluster = cluster_create(&options);
    const uint32_t liar = peers() / 2, late = peers() - 1, bootstrap[] = {liar, 0};
    struct outcome outcome = {.least = 1};

    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < late; i++) {
        if (i == liar && behaviour == NULL) continue;
        cluster_start(cluster, i, bootstrap + 1, i == 0 ? 0 : 1);
        if (i == liar) evil_begin(cluster_node(cluster, liar), behaviour);
        cluster_run(cluster, APART_NS);
    }
    cluster_run(cluster, run_ns() / 4);
    if (behaviour != NULL) {
        cluster_start(cluster, late, bootstrap, 2);
    } else {
        cluster_start(cluster, late, bootstrap + 1, 1);
    }
    cluster_run(cluster, run_ns() - run_ns() / 4);
    for (uint32_t i = 0; i < peers(); i++) {
        struct learner *learner;
        struct evaluation evaluation;

        if (i == liar) continue;
        if (!cluster_is_up(cluster, i)) {
            outcome.ended++;
            outcome.least = 0;
            continue;
        }
        learner = cluster_learner(cluster, i);
        assert_int_equal(learner->ops->evaluate(learner, 0, &evaluation), RC_OK);
        outcome.accuracy += evaluation.accuracy / (peers() - 1);
        if (evaluation.accuracy < outcome.least) outcome.least = evaluation.accuracy;
        outcome.rounds += swarm_report(cluster, i).rounds_ok;
    }
    evil_end();
    cluster_destroy(cluster);
    return outcome;
}

/* ---- how it ends ---- */

static bool is_named(const char *list, const char *name)
{
    size_t count = strlen(name);

    for (const char *at = list; (at = strstr(at, name)) != NULL; at += count) {
        if ((at == list || at[-1] == ' ') && (at[count] == ' ' || at[count] == '\0')) return true;
    }
    return false;
}

struct ending {
    double accuracy; /* mean of the honest */
    double apart;    /* root of their mean square distance from their mean, by its norm */
};

static struct ending run_to_goal(const char *averaging, const char *robust,
                                 const struct evil_behaviour *behaviour)
{
    static double speeds[PEERS_MOST];
    struct cluster_options options = {.peers = peers(),
                                      .seed = seed(),
                                      .latency_ns = 2 * NS_PER_MS,
                                      .averaging = averaging,
                                      .robust = robust,
                                      .values = VALUES,
                                      .steps = 300,
                                      .start_with = peers() - (behaviour == NULL),
                                      .speeds = speeds,
                                      .learner = ending_digits};
    struct cluster *cluster;
    const uint32_t liar = peers() / 2, first = 0;
    struct ending ending = {0};
    double squares = 0, norm = 0;

    assert_true(peers() <= PEERS_MOST);
    for (uint32_t i = 0; i < peers(); i++) {
        speeds[i] = 1 - 0.02 * (double)((i * 5 + seed()) % peers());
    }
    cluster = cluster_create(&options);
    if (getenv("VERBOSE") != NULL) cluster_set_verbose(cluster, true);
    for (uint32_t i = 0; i < peers(); i++) {
        if (i == liar && behaviour == NULL) continue;
        cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
        if (i == liar) evil_begin(cluster_node(cluster, liar), behaviour);
    }
    for (int i = 0; i < 600; i++) {
        uint32_t up = 0;

        cluster_run(cluster, 50 * NS_PER_MS);
        for (uint32_t k = 0; k < peers(); k++) {
            up += k != liar && cluster_is_up(cluster, k);
        }
        if (up == 0) break;
    }
    evil_end();
    cluster_destroy(cluster);
    for (size_t k = 0; k < VALUES; k++) {
        double mean = 0;

        for (uint32_t i = 0; i < peers(); i++) {
            if (i != liar) mean += (double)ends.planes[i][k] / (peers() - 1);
        }
        norm += mean * mean;
        for (uint32_t i = 0; i < peers(); i++) {
            double apart = (double)ends.planes[i][k] - mean;

            if (i != liar) squares += apart * apart / (peers() - 1);
        }
    }
    for (uint32_t i = 0; i < peers(); i++) {
        if (i != liar) ending.accuracy += ends.accuracy[i] / (peers() - 1);
    }
    ending.apart = sqrt(squares / norm);
    return ending;
}

static void the_ends(void **state)
{
    const char *averaging = word("METHODS", "local-sgd:H=4"), *wanted = word("LIES", "");
    struct ending alone;

    (void)state;
    if (getenv("ENDS") == NULL) skip();
    alone = run_to_goal(averaging, word("ROBUST", "auto"), NULL);
    printf("%s: %.4f, apart %.2e\n", averaging, alone.accuracy, alone.apart);
    for (size_t i = 0; i < ARRAY_COUNT(lies); i++) {
        struct ending beside;

        if (*wanted != '\0' && !is_named(wanted, lies[i].name)) continue;
        beside = run_to_goal(averaging, word("ROBUST", "auto"), &lies[i]);
        printf("  %-20s %.4f (%+.4f), apart %.2e\n", lies[i].name, beside.accuracy,
               beside.accuracy - alone.accuracy, beside.apart);
        fflush(stdout);
    }
}

/* ---- the table ---- */

static unsigned exchange_of(const char *averaging)
{
    struct strategy_specs specs = {.averaging = averaging};
    struct strategy strategy;
    struct fault why;

    if (strategy_parse(&specs, &strategy, &why) != RC_OK) fail_msg("%s", why.text);
    if (strategy.exchange == &exchange_pair) return EVIL_PAIR;
    if (strategy.exchange == &exchange_edges) return EVIL_EDGES;
    if (strategy.exchange == &exchange_mirror) return EVIL_MIRROR;
    return strategy.exchange == &exchange_push ? EVIL_PUSH : EVIL_GROUP;
}

static void rows_of(const char *averaging)
{
    const char *robust = word("ROBUST", "auto"), *wanted = word("LIES", "");
    struct outcome alone = run(averaging, robust, NULL);

    printf("%s: accuracy %.4f (least %.4f), %llu rounds without a liar\n", averaging,
           alone.accuracy, alone.least, (unsigned long long)alone.rounds);
    for (size_t i = 0; i < ARRAY_COUNT(lies); i++) {
        struct outcome beside;

        if ((lies[i].exchanges & exchange_of(averaging)) == 0) continue;
        if (*wanted != '\0' && !is_named(wanted, lies[i].name)) continue;
        beside = run(averaging, robust, &lies[i]);
        printf("  %-20s %6.4f (%+.4f, least %.4f)  rounds %.3f%s\n", lies[i].name, beside.accuracy,
               beside.accuracy - alone.accuracy, beside.least,
               (double)beside.rounds / (double)alone.rounds,
               beside.ended > 0 ? "  A PEER ENDED" : "");
        fflush(stdout);
    }
}

static void the_table(void **state)
{
    char methods[400], *save = NULL;

    (void)state;
    if (getenv("LONG") == NULL) skip();
    snprintf(methods, sizeof methods, "%s",
             word("METHODS", "local-sgd:H=2 des-loc:H=2 diloco:H=4 moshpit:H=2 ad-psgd:H=2 "
                             "noloco:H=4 async-diloco:H=4 gasloc:H=4 dpsgd qg-dsgdm matcha "
                             "d2 gradient-tracking choco push-sum gossipgrad gosgd sparseloco:H=4 "
                             "adacomm:H=4,block=80 ssp:H=2"));
    for (char *method = strtok_r(methods, " ", &save); method != NULL;
         method = strtok_r(NULL, " ", &save)) {
        rows_of(method);
    }
}

/* ---- the gate ---- */

/* Of seeds 2, 8, 10 and 11 peers once ended up to 5e-2 apart: the liar owned the last part. */
static void the_honest_end_together(void **state)
{
    static const char *const worst[] = {"random-model", "scaled-model", "zero-part"};
    static const uint64_t seeds[] = {1, 2, 6, 8, 10, 11};

    (void)state;
    if (getenv("LONG") != NULL || getenv("ENDS") != NULL) skip();
    shard = "iid";
    for (size_t i = 0; i < ARRAY_COUNT(worst) * ARRAY_COUNT(seeds); i++) {
        const char *lie = worst[i % ARRAY_COUNT(worst)];
        struct ending ending;

        gate_seed = getenv("SEED") != NULL ? 0 : seeds[i / ARRAY_COUNT(worst)];
        if (gate_seed == 0 && i >= ARRAY_COUNT(worst)) break;
        ending = run_to_goal("local-sgd:H=4", "auto", lies_find(lie));
        if (ending.apart < 1e-5 && (is_only_sanitized() || ending.accuracy > 0.93)) continue;
        fail_msg("seed %llu, %s: %g apart, accuracy %g", (unsigned long long)seed(), lie,
                 ending.apart, ending.accuracy);
    }
    gate_seed = 0;
    shard = NULL;
}

/* As measured of seeds 1 to 16, which all hold; the least share of rounds was 0.80. Where data are
 * unlike it takes 16 s until all that is to be learned is known to all, with a liar and without. */
static void the_worst_liars_cost_little(void **state)
{
    static const struct {
        const char *averaging, *lie, *shard;
        double least, less, rounds; /* accuracy: at least; at most so much below that without a liar
                                       (0: any); rounds, at least, of those without (0: any) */
        const char *topology;       /* NULL: as shipped */
        uint64_t seconds;           /* 0: as ever */
    } worst[] = {
        {"local-sgd:H=2", "false-lineage", "iid", 0.93, 0, 0, NULL, 0},
        {"local-sgd:H=2", "zero-part", "iid", 0.93, 0, 0, NULL, 0},
        {"ad-psgd:H=2", "random-model", "iid", 0.92, 0, 0, NULL, 0},
        {"local-sgd:H=2", "greedy-start", "iid", 0.93, 0, 0, NULL, 0},
        {"dpsgd:H=2", "sign-flipped-model", "iid", 0.93, 0, 0, NULL, 0},
        {"push-sum:H=2", "random-model", "iid", 0.93, 0, 0, NULL, 0},
        {"d2", "sign-flipped-model", "iid", 0.93, 0, 0, NULL, 0},
        {"gradient-tracking", "sign-flipped-model", "iid", 0.93, 0, 0, NULL, 0},
        {"local-sgd:H=8", "random-model", "dirichlet:0.1", 0.8, 0.06, 0, NULL, 16},
        {"ad-psgd:H=2", "random-model", "dirichlet:0.1", 0.88, 0.04, 0, NULL, 16},
        {"dpsgd", "random-model", "dirichlet:0.1", 0.85, 0, 0, "exponential", 0},
        {"gradient-tracking", "random-model", "dirichlet:0.1", 0.88, 0, 0, "exponential", 0},
        {"d2", "random-model", "iid", 0.93, 0, 0, "exponential", 0},
        {"gradient-tracking", "random-model", "iid", 0.93, 0, 0, "exponential", 0},
        {"diloco:H=8", "sign-flipped-model", "iid", 0.93, 0, 0.75, NULL, 8},
        {"sparseloco:H=4", "random-model", "iid", 0.9, 0, 0, NULL, 0},
        {"sparseloco:H=4", "sign-flipped-model", "iid", 0.9, 0, 0, NULL, 0},
        {"sparseloco:H=4", "zero-part", "iid", 0.9, 0, 0, NULL, 0}};

    (void)state;
    if (getenv("LONG") != NULL || getenv("ENDS") != NULL) skip();
    for (size_t i = 0; i < ARRAY_COUNT(worst); i++) {
        struct outcome beside, alone = {.rounds = 0};

        shard = worst[i].shard;
        topology = worst[i].topology;
        gate_seconds = worst[i].seconds;
        if (worst[i].rounds > 0 || worst[i].less > 0) alone = run(worst[i].averaging, "auto", NULL);
        beside = run(worst[i].averaging, "auto", lies_find(worst[i].lie));
        if (beside.ended == 0 && (double)beside.rounds >= worst[i].rounds * (double)alone.rounds &&
            (is_only_sanitized() ||
             (beside.accuracy > worst[i].least &&
              (worst[i].less <= 0 || beside.accuracy > alone.accuracy - worst[i].less)))) {
            continue;
        }
        fail_msg("%s, %s: accuracy %g, %g without, %llu rounds of %llu, %u ended",
                 worst[i].averaging, worst[i].lie, beside.accuracy, alone.accuracy,
                 (unsigned long long)beside.rounds, (unsigned long long)alone.rounds, beside.ended);
    }
    shard = topology = NULL;
    gate_seconds = 0;
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
        cmocka_unit_test(the_ends),
        cmocka_unit_test(the_table),
        cmocka_unit_test(the_worst_liars_cost_little),
        cmocka_unit_test(the_honest_end_together),
    };

    return cmocka_run_group_tests(tests, set_up, drop_backend);
}
