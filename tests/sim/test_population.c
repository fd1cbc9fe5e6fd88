/* Population-based training (--averaging pbt) in simulated swarms of the toy learner: what it
 * finds, and what dying members, lying members and lost links do to it. LONG=1: more seeds of
 * accidents. */
#include "tests/check.h"

#include "tests/sim/lies.h"
#include "tests/sim/swarm.h"
#include "replica/learners/quadratic.h"

enum { PEERS = 6, VALUES = 1000, VALUES_LARGE = 10000 };

/* Learning rates of the peers, by number; of 1 and more the toy runs away. */
static const double bad_rates[PEERS] = {1e-4, 2e-4, 4e-4, 1e-3, 2e-3, 4e-3};
static const double wild_rates[PEERS] = {3, 0.02, 2.5, 0.02, 5, 0.02};

struct scene {
    const double *rates;
    size_t values;
    uint64_t seed;
};

static struct learner *toy_of(void *context, uint32_t peer)
{
    const struct scene *scene = context;
    const struct quadratic_options options = {.values = scene->values,
                                              .curvature = 1,
                                              .noise = 0.01,
                                              .learning_rate = scene->rates[peer % PEERS],
                                              .seed = scene->seed,
                                              .stream_seed = scene->seed * 100 + peer};
    struct learner *learner = NULL;

    assert_int_equal(quadratic_create(&options, &learner), RC_OK);
    return learner;
}

static struct cluster *population(struct scene *scene, const char *averaging, uint32_t peers,
                                  uint64_t bytes_per_s)
{
    const struct cluster_options options = {.peers = PEERS,
                                            .seed = scene->seed,
                                            .averaging = averaging,
                                            .values = scene->values,
                                            .step_cost_ns = 10 * NS_PER_MS,
                                            .latency_ns = NS_PER_MS,
                                            .bytes_per_s = bytes_per_s,
                                            .learner = toy_of,
                                            .learner_context = scene};
    struct cluster *cluster = cluster_create(&options);

    swarm_start(cluster, peers);
    return cluster;
}

static double loss_of(struct cluster *cluster, uint32_t peer)
{
    struct learner *learner = cluster_learner(cluster, peer);
    struct evaluation evaluation;
    struct digest part;

    assert_int_equal(learner->ops->validate(learner, NULL, &evaluation, &part), RC_OK);
    return evaluation.loss;
}

static double mean_loss(struct cluster *cluster, uint32_t peers)
{
    double sum = 0;

    for (uint32_t i = 0; i < peers; i++) {
        sum += loss_of(cluster, i) / peers;
    }
    return sum;
}

static double run_population(const char *averaging, uint64_t seed, const double *rates)
{
    struct scene scene = {.rates = rates, .values = VALUES, .seed = seed};
    struct cluster *cluster = population(&scene, averaging, PEERS, 0);
    double loss;

    cluster_run(cluster, 20 * NS_PER_S);
    loss = mean_loss(cluster, PEERS);
    cluster_destroy(cluster);
    return loss;
}

static void bad_rates_become_better_ones(void **state)
{
    /* Proves: six peers whose rates are far too small come ten times closer together than alone,
     * with every seed, and equal seeds end equal. */
    (void)state;
    for (uint64_t seed = 1; seed <= 3; seed++) {
        const double alone = run_population("none", seed, bad_rates);
        const double with = run_population("pbt:every=20", seed, bad_rates);

        print_message("seed %llu: mean loss %.4g alone, %.4g as a population\n",
                      (unsigned long long)seed, alone, with);
        assert_true(with < alone / 10);
        if (seed == 1) assert_true(run_population("pbt:every=20", seed, bad_rates) == with);
    }
}

static void who_runs_away_comes_back(void **state)
{
    /* Proves: peers whose loss becomes infinite go on from the last good model, slower, and copy
     * others; none gives up, and nobody who was well is worse off. */
    (void)state;
    struct scene scene = {.rates = wild_rates, .values = VALUES, .seed = 4};
    struct cluster *cluster = population(&scene, "pbt:every=20,spread=1", PEERS, 0);

    cluster_run(cluster, 30 * NS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++) {
        const struct node_report report = swarm_report(cluster, i);

        assert_true(cluster_is_up(cluster, i));
        assert_int_equal(node_state(cluster_node(cluster, i)), NODE_TRAINING);
        assert_true(isfinite(loss_of(cluster, i)));
        assert_true(report.rate < 2.1);
    }
    assert_true(mean_loss(cluster, PEERS) < 1);
    cluster_destroy(cluster);
}

static bool is_copying(struct cluster *cluster, void *peer)
{
    const struct node *node = cluster_node(cluster, *(uint32_t *)peer);

    return node != NULL && models_population_copies(node);
}

static void a_copy_that_is_lost_changes_nothing(void **state)
{
    /* Proves: the donor dies half-way, and the copier keeps model, rates and line to the bit of
     * what its own steps make of them; it goes on training meanwhile, and copies another later. */
    (void)state;
    struct scene scene = {.rates = bad_rates, .values = VALUES_LARGE, .seed = 5};
    struct cluster *cluster = population(&scene, "pbt:every=20", PEERS, 60000);
    uint32_t copier = 0;
    struct node *node;
    struct node_report before, after;
    uint32_t donor = PEERS;
    uint64_t step;

    assert_true(cluster_run_until(cluster, is_copying, &copier, 60 * NS_PER_S));
    node = cluster_node(cluster, copier);
    before = swarm_report(cluster, copier);
    step = node_step(node);
    for (uint32_t i = 1; i < PEERS; i++) {
        if (peer_id_is_equal(node_id(cluster_node(cluster, i)), node->models->population.from)) {
            donor = i;
        }
    }
    assert_true(donor < PEERS);
    cluster_run(cluster, 300 * NS_PER_MS);
    assert_true(is_copying(cluster, &copier));
    assert_true(node_step(node) > step + 20); /* it trains on */
    cluster_crash(cluster, donor);
    while (is_copying(cluster, &copier)) {
        cluster_run(cluster, 10 * NS_PER_MS);
    }
    after = swarm_report(cluster, copier);
    assert_true(after.rate == before.rate && after.copies == before.copies);
    assert_string_equal(after.line, before.line);
    assert_int_equal(node_state(node), NODE_TRAINING);
    cluster_run(cluster, 60 * NS_PER_S);
    assert_true(swarm_report(cluster, copier).copies > before.copies);
    cluster_destroy(cluster);
}

static void a_copier_that_dies_goes_on_from_its_checkpoint(void **state)
{
    /* Proves: killed half-way in a copy it has after its restart rates, line and count of copies of
     * its checkpoint, and the population goes on. */
    (void)state;
    struct scene scene = {.rates = bad_rates, .values = VALUES, .seed = 6};
    struct cluster *cluster = population(&scene, "pbt:every=20", PEERS, 0);
    const uint32_t first = 0;
    uint32_t copier = 2;
    struct node_report before, after;

    cluster_run(cluster, 12 * NS_PER_S); /* with a checkpoint on the way */
    cluster_stop(cluster, copier);
    cluster_run(cluster, NS_PER_S);
    assert_false(cluster_is_up(cluster, copier));
    before = cluster_result(cluster, copier)->report;
    assert_true(before.copies > 0);
    cluster_start(cluster, copier, &first, 1);
    cluster_run(cluster, NS_PER_MS);
    after = swarm_report(cluster, copier);
    assert_true(after.rate == before.rate);
    assert_string_equal(after.line, before.line);
    assert_int_equal(after.copies, before.copies);
    assert_true(cluster_run_until(cluster, is_copying, &copier, 60 * NS_PER_S));
    cluster_crash(cluster, copier);
    cluster_run(cluster, 2 * NS_PER_S);
    cluster_start(cluster, copier, &first, 1);
    cluster_run(cluster, 20 * NS_PER_S);
    assert_int_equal(node_state(cluster_node(cluster, copier)), NODE_TRAINING);
    assert_true(isfinite(loss_of(cluster, copier)));
    assert_true(swarm_report(cluster, copier).copies >= before.copies);
    cluster_destroy(cluster);
}

static void who_comes_later_copies_at_its_first_score(void **state)
{
    /* Proves: it begins by itself, in training at once, and is as far as the others soon. */
    (void)state;
    struct scene scene = {.rates = bad_rates, .values = VALUES, .seed = 7};
    struct cluster *cluster = population(&scene, "pbt:every=20", PEERS - 1, 0);
    const uint32_t first = 0, late = PEERS - 1;

    cluster_run(cluster, 20 * NS_PER_S);
    cluster_start(cluster, late, &first, 1);
    cluster_run(cluster, 5 * NS_PER_S);
    assert_true(swarm_report(cluster, late).copies > 0);
    assert_true(node_step(cluster_node(cluster, late)) > 2000);
    assert_true(loss_of(cluster, late) < 10 * mean_loss(cluster, PEERS - 1) + 1e-3);
    cluster_destroy(cluster);
}

struct beside_liar {
    double loss;    /* the honest's, mean */
    uint32_t asked; /* how often its model was asked for */
    uint64_t bytes; /* that it sent */
};

/* A run with the last peer lying so. */
static void run_beside_liar(const char *name, uint64_t seed, struct beside_liar *sum)
{
    struct scene scene = {.rates = bad_rates, .values = VALUES, .seed = seed};
    struct cluster *cluster = population(&scene, "pbt:every=20", PEERS, 0);
    const uint32_t liar = PEERS - 1;

    evil_begin(cluster_node(cluster, liar), lies_find(name));
    cluster_run(cluster, 40 * NS_PER_S);
    sum->loss += mean_loss(cluster, PEERS - 1);
    for (uint32_t i = 0; i + 1 < PEERS; i++) {
        const struct node_report report = swarm_report(cluster, i);

        assert_true(isfinite(loss_of(cluster, i)));
        assert_true(report.rate < 4.1); /* within a thousand times of the largest given */
        assert_true(node_step(cluster_node(cluster, i)) < 10000);
    }
    sum->asked += evils[0].asked;
    sum->bytes += swarm_report(cluster, liar).bytes_sent;
    evil_end();
    cluster_destroy(cluster);
}

/* Means: in one run of ten a peer is caught in the middle of an exploration that led it away. */
static struct beside_liar beside_liar(const char *name)
{
    enum { SEEDS = 6 };
    struct beside_liar beside = {.loss = 0};

    for (uint64_t seed = 1; seed <= SEEDS; seed++) {
        run_beside_liar(name, seed, &beside);
    }
    beside.loss /= SEEDS;
    beside.asked /= SEEDS;
    beside.bytes /= SEEDS;
    return beside;
}

static void a_liar_costs_a_few_downloads(void **state)
{
    /* Proves: who says its model is the best of all and serves noise, counts beyond belief or
     * nothing is found out by each alone: nobody's model becomes worse, each asks it 4 times at
     * most in 200 scores, and the honest end as without it, or near it: alone they have 100. */
    (void)state;
    static const char *const names[] = {"boasts", "boasts-counts", "boasts-only"};
    const struct beside_liar honest = beside_liar("honest");

    for (size_t i = 0; i < ARRAY_COUNT(names); i++) {
        const struct beside_liar beside = beside_liar(names[i]);

        print_message("%s: mean loss %.4g (honest %.4g), asked %u times, sent %.0f kB\n", names[i],
                      beside.loss, honest.loss, beside.asked, (double)beside.bytes / 1e3);
        assert_true(beside.loss < 3 * honest.loss);
        assert_true(beside.asked <= 5 * 4 || i > 0);
        assert_true(beside.bytes > VALUES * sizeof(float)); /* somebody asked for its model */
    }
}

/* Members come and go, links break, and hosts are cut off for a while. */
static void accidents(uint64_t seed)
{
    struct scene scene = {.rates = bad_rates, .values = VALUES, .seed = seed};
    struct cluster *cluster = population(&scene, "pbt:every=20", PEERS, 2000000);
    const uint32_t first = 0;
    struct rng rng;
    double worst = 0, begin = 0;

    rng_init(&rng, seed, 77);
    cluster_run(cluster, 2 * NS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++) {
        begin = fmax(begin, loss_of(cluster, i));
    }
    for (uint32_t k = 0; k < 30; k++) {
        const uint32_t peer = 1 + (uint32_t)rng_below(&rng, PEERS - 1);

        if (!cluster_is_up(cluster, peer)) {
            if (rng_below(&rng, 3) == 0) cluster_lose(cluster, peer);
            cluster_start(cluster, peer, &first, 1);
        } else if (rng_below(&rng, 2) == 0) {
            cluster_crash(cluster, peer);
        } else {
            cluster_stop(cluster, peer);
        }
        cluster_run(cluster, NS_PER_S / 2 + rng_below(&rng, NS_PER_S));
    }
    for (uint32_t i = 0; i < PEERS; i++) {
        if (!cluster_is_up(cluster, i)) cluster_start(cluster, i, &first, i == 0 ? 0 : 1);
    }
    cluster_run(cluster, 30 * NS_PER_S);
    for (uint32_t i = 0; i < PEERS; i++) {
        assert_int_equal(node_state(cluster_node(cluster, i)), NODE_TRAINING);
        worst = fmax(worst, loss_of(cluster, i));
    }
    assert_true(worst < begin / 4);
    cluster_destroy(cluster);
}

static void accidents_end_well(void **state)
{
    /* Proves: whoever dies, stops or comes anew, in the end all train, and are far better than at
     * first.
     */
    (void)state;
    const uint64_t seeds = getenv("LONG") == NULL ? 4 : 100;

    for (uint64_t seed = 1; seed <= seeds; seed++) {
        if (getenv("LONG") != NULL) print_message("seed %llu\n", (unsigned long long)seed);
        accidents(seed);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bad_rates_become_better_ones),
        cmocka_unit_test(who_runs_away_comes_back),
        cmocka_unit_test(a_copy_that_is_lost_changes_nothing),
        cmocka_unit_test(a_copier_that_dies_goes_on_from_its_checkpoint),
        cmocka_unit_test(who_comes_later_copies_at_its_first_score),
        cmocka_unit_test(a_liar_costs_a_few_downloads),
        cmocka_unit_test(accidents_end_well),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
