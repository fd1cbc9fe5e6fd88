/* Do graphs and groups bring peers together as fast as theory says? */
#include "tests/check.h"

#include "base/check.h"
#include "gossip/overlay/graph.h"
#include "gossip/wire/limits.h"
#include "testnet/simulation.h"

#include <math.h>

enum { SWARM_MAX = 900 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { ROUNDS_TO_SETTLE = 300, SIMULATED = 1, SEEDS_OF_PAIRS = 1, SEEDS_OF_GRAPHS = 1 };
#else
enum { ROUNDS_TO_SETTLE = 1000, SIMULATED = 2, SEEDS_OF_PAIRS = 2, SEEDS_OF_GRAPHS = 2 };
#endif

struct swarm {
    struct peer_id ids[SWARM_MAX];
    struct graph_members members;
    struct graph_row *rows; /* [count] */
    double x[SWARM_MAX], y[SWARM_MAX];
    struct rng rng;
};

static struct swarm *swarm_create(uint32_t count, uint64_t seed)
{
    struct swarm *swarm = calloc(1, sizeof *swarm);

    rng_init(&swarm->rng, seed, 1);
    for (size_t i = 0; i < count; i++) {
        swarm->ids[i].bytes[0] = (uint8_t)(i >> 8); /* sorted by construction */
        swarm->ids[i].bytes[1] = (uint8_t)i;
        for (size_t k = 2; k < PEER_ID_BYTES; k++) {
            swarm->ids[i].bytes[k] = (uint8_t)rng_u64(&swarm->rng);
        }
    }
    swarm->members = (struct graph_members){
        .ids = swarm->ids, .count = count, .run_id = hash_of(&seed, sizeof seed)};
    swarm->rows = calloc(count, sizeof *swarm->rows);
    for (uint32_t i = 0; i < count; i++) {
        swarm->x[i] = rng_normal(&swarm->rng);
    }
    return swarm;
}

static void swarm_destroy(struct swarm *swarm)
{
    free(swarm->rows);
    free(swarm);
}

static struct topology topology_of(const char *spec)
{
    struct topology topology;

    assert_int_equal(topology_parse(spec, &topology, NULL), RC_OK);
    return topology;
}

static struct spectrum spectrum_at(const struct swarm *swarm, const struct topology *topology,
                                   bool by_pairs)
{
    struct spectrum spectrum;

    assert_int_equal(spectrum_of(topology, by_pairs, swarm->members.run_id, swarm->ids,
                                 swarm->members.count, &spectrum),
                     RC_OK);
    return spectrum;
}

/* sum of (x_i - mean)^2 */
static double spread(const struct swarm *swarm)
{
    uint32_t n = swarm->members.count;
    double mean = 0, sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        mean += swarm->x[i] / n;
    }
    for (uint32_t i = 0; i < n; i++) {
        sum += (swarm->x[i] - mean) * (swarm->x[i] - mean);
    }
    return sum;
}

static void scale(struct swarm *swarm, double factor)
{
    double mean = 0;

    for (uint32_t i = 0; i < swarm->members.count; i++) {
        mean += swarm->x[i] / swarm->members.count;
    }
    for (uint32_t i = 0; i < swarm->members.count; i++) {
        swarm->x[i] = (swarm->x[i] - mean) * factor;
    }
}

static void mix(struct swarm *swarm)
{
    for (uint32_t i = 0; i < swarm->members.count; i++) {
        const struct graph_row *row = &swarm->rows[i];

        swarm->y[i] = (double)row->self_weight * swarm->x[i];
        for (uint32_t k = 0; k < row->count; k++) {
            swarm->y[i] += (double)row->edges[k].weight * swarm->x[row->edges[k].member];
        }
    }
    memcpy(swarm->x, swarm->y, sizeof swarm->x);
}

static void fill_in_rows(struct swarm *swarm, const struct topology *topology, uint64_t round)
{
    swarm->members.round = round;
    for (uint32_t i = 0; i < swarm->members.count; i++) {
        swarm->members.self = i;
        assert_int_equal(graph_in(topology, &swarm->members, &swarm->rows[i]), RC_OK);
    }
}

/* The gaps of the books: cosines of the ring, 2/(log2 n + 1) of the cube. */
static void gaps_are_those_of_the_books(void **state)
{
    static const struct {
        const char *topology;
        uint32_t n;
        double rho;
    } known[] = {{"ring", 8, .8047},         {"ring", 64, .9968},
                 {"ring,lazy", 16, .9746},   {"torus", 8, .5},
                 {"torus", 16, .6},          {"torus", 64, .8828},
                 {"hypercube", 8, .5},       {"hypercube", 64, .7143},
                 {"hypercube,lazy", 16, .8}, {"exponential", 16, .5},
                 {"exponential", 64, .6667}, {"complete", 16, 0},
                 {"groups:8", 64, .333333},  {"one-peer-exponential", 32, 0},
                 {"dissemination", 32, 0},   {"grid:8", 64, 0},
                 {"pairs", 64, .701472}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(known); i++) {
        struct topology topology = topology_of(known[i].topology);
        struct swarm *swarm = swarm_create(known[i].n, i);

        double rho = spectrum_at(swarm, &topology, false).rho;

        if (fabs(rho - known[i].rho) > 1e-4) {
            fail_msg("%s of %u: %.6f, not %.6f", known[i].topology, known[i].n, rho, known[i].rho);
        }
        swarm_destroy(swarm);
    }
}

/* A fixed matrix shrinks what is left after many rounds by its second eigenvalue each. */
static void fixed_graphs_contract_by_their_gap(void **state)
{
    static const char *const specs[] = {"ring",        "torus",         "hypercube",
                                        "exponential", "random:3",      "random:8",
                                        "torus,lazy",  "random:4,lazy", "complete"};
    static const uint32_t sizes[] = {5, 16, 24};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        for (size_t k = 0; k < ARRAY_COUNT(sizes); k++) {
            struct topology topology = topology_of(specs[i]);
            struct swarm *swarm = swarm_create(sizes[k], k);
            double rho = spectrum_at(swarm, &topology, false).rho, before, measured;

            assert_int_equal(graph_rows(&topology, &swarm->members, swarm->rows), RC_OK);
            for (int t = 0; t < ROUNDS_TO_SETTLE && rho > 0; t++) {
                mix(swarm);
                if (t % 20 == 0) scale(swarm, 1 / sqrt(spread(swarm)));
            }
            before = spread(swarm);
            mix(swarm);
            mix(swarm); /* twice: eigenvalues of both signs may be the largest */
            measured = sqrt(sqrt(spread(swarm) / before));
            if (rho == 0) {
                assert_true(spread(swarm) < 1e-12 * before);
            } else {
                assert_true(fabs(measured - rho) < 0.02 * fmin(rho, 1 - rho));
            }
            swarm_destroy(swarm);
        }
    }
}

/* log2 n rounds of one-peer-exponential, or of one order of dissemination, are the exact mean, if n
 * is a power of two; otherwise a period shrinks what is left by no more than its norm. */
static void check_hops(const char *name)
{
    struct topology topology = topology_of(name);

    for (uint32_t n = 2; n <= 65; n++) {
        struct swarm *swarm = swarm_create(n, n);
        struct spectrum spectrum = spectrum_at(swarm, &topology, false);
        double before = spread(swarm), share;

        for (uint64_t round = 0; round < spectrum.period; round++) {
            fill_in_rows(swarm, &topology, round);
            mix(swarm);
        }
        share = sqrt(spread(swarm) / before);
        assert_true((n & (n - 1)) == 0 ? share < 1e-12 : share > 1e-4);
        assert_true(share <= pow(spectrum.rho, spectrum.period) + 1e-6);
        swarm_destroy(swarm);
    }
}

static void hops_of_one_peer_are_exact_where_they_should_be(void **state)
{
    (void)state;
    check_hops("one-peer-exponential");
    check_hops("dissemination");
}

/* x of everyone becomes the mean of the present members of its group; `drops_groups`: a group with
 * an absent member does nothing. */
static void mix_groups(struct swarm *swarm, const struct topology *topology, uint64_t round,
                       const bool *is_absent, bool drops_groups)
{
    for (uint32_t i = 0; i < swarm->members.count; i++) {
        struct peer_id group[GROUP_MEMBERS_MAX];
        size_t count = topology_group(topology, swarm->members.run_id, round, swarm->ids[i],
                                      swarm->ids, swarm->members.count, group, GROUP_MEMBERS_MAX);
        double sum = 0;
        size_t present = 0;

        for (size_t k = 0; k < count; k++) {
            size_t place = (size_t)group[k].bytes[0] << 8 | group[k].bytes[1];

            if (is_absent[place]) continue;
            sum += swarm->x[place];
            present++;
        }
        swarm->y[i] =
            is_absent[i] || (drops_groups && present < count) ? swarm->x[i] : sum / (double)present;
    }
    memcpy(swarm->x, swarm->y, sizeof swarm->x);
}

/* As many rounds as the grid has dimensions are the exact mean. */
static void a_full_grid_is_exact_after_as_many_rounds_as_dimensions(void **state)
{
    static const struct {
        const char *spec;
        uint32_t n, rounds;
    } grids[] = {{"grid:2", 8, 3}, {"grid:4", 16, 2}, {"grid:3", 81, 4}, {"grid:10", 100, 2}};
    static const bool nobody[SWARM_MAX];

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(grids); i++) {
        struct topology topology = topology_of(grids[i].spec);
        struct swarm *swarm = swarm_create(grids[i].n, i);
        struct spectrum spectrum = spectrum_at(swarm, &topology, false);
        double before = spread(swarm);

        assert_int_equal(spectrum.period, grids[i].rounds);
        for (uint64_t round = 0; round < grids[i].rounds; round++) {
            assert_true(spread(swarm) > 1e-3 * before);
            mix_groups(swarm, &topology, 7 + round, nobody, false);
        }
        assert_true(spread(swarm) < 1e-25 * before && spectrum.rho == 0);
        swarm_destroy(swarm);
    }
}

static double variance_after_absences(bool drops_groups, uint64_t seed)
{
    struct topology topology = topology_of("grid:30");
    struct swarm *swarm = swarm_create(900, seed);
    double variance;

    for (uint64_t round = 0; round < 10; round++) {
        bool is_absent[SWARM_MAX];

        for (uint32_t i = 0; i < 900; i++) {
            is_absent[i] = rng_below(&swarm->rng, 20) == 0;
        }
        mix_groups(swarm, &topology, round, is_absent, drops_groups);
    }
    variance = spread(swarm) / 900;
    swarm_destroy(swarm);
    return variance;
}

/* With one member in twenty away in each round, groups that go on without them get 900 peers to
 * 1e-9 of the mean in ten rounds; groups that give up leave almost everything. */
static void a_grid_goes_on_without_who_is_away(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 3) {
        check_seed(seed, variance_after_absences(false, seed) < 1e-9);
        check_seed(seed, variance_after_absences(true, seed) > 1e-2);
    }
}

/* Random groups shrink the mean square by the expected share, on the average of many rounds. */
static void random_groups_contract_as_expected(void **state)
{
    static const bool nobody[SWARM_MAX];
    static const struct {
        const char *spec;
        uint32_t n;
    } groups[] = {{"groups:8", 64}, {"groups:4", 30}, {"groups:5", 23}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(groups); i++) {
        struct topology topology = topology_of(groups[i].spec);
        struct swarm *swarm = swarm_create(groups[i].n, i);
        double rho = spectrum_at(swarm, &topology, false).rho, shares = 0;
        enum { ROUNDS = 300 };

        for (uint64_t round = 0; round < ROUNDS; round++) {
            double before;

            for (uint32_t k = 0; k < groups[i].n; k++) {
                swarm->x[k] = rng_normal(&swarm->rng);
            }
            before = spread(swarm);
            mix_groups(swarm, &topology, round, nobody, false);
            shares += spread(swarm) / before / ROUNDS;
        }
        assert_true(fabs(sqrt(shares) - rho) < 0.05 * rho);
        swarm_destroy(swarm);
    }
}

struct contraction {
    double measured, expected;
};

/* Complete simulated peers that only average. */
static struct contraction simulate(const char *averaging, const char *topology, uint32_t peers,
                                   uint64_t seed)
{
    struct strategy_specs specs = {.averaging = averaging, .topology = topology, .robust = "none"};
    struct strategy strategy;
    struct simulation_options options = {.peers = peers,
                                         .seed = seed,
                                         .strategy = &strategy,
                                         .values = 50,
                                         .step_ns = 10 * NS_PER_MS,
                                         .rounds = 30,
                                         .link = {.latency_ns = NS_PER_MS},
                                         .is_still = true};
    struct simulation_result result;
    struct spectrum spectrum;
    struct fault why;

    assert_int_equal(strategy_parse(&specs, &strategy, &why), RC_OK);
    assert_int_equal(simulation_spectrum(&options, &spectrum), RC_OK);
    assert_int_equal(simulation_run(&options, &result, &why), RC_OK);
    assert_true(result.is_finite && result.has_progress && result.is_one_swarm);
    return (struct contraction){result.contraction, spectrum.rho};
}

/* Partners are drawn: on the average of some runs. */
static void simulated_pairs_contract_as_expected(void **state)
{
    static const struct {
        const char *topology;
        uint32_t peers;
    } runs[] = {{"random:8", 32}, {"pairs", 24}};

    (void)state;
    for (size_t i = 0; i < SIMULATED; i++) {
        double measured = 0, expected = 0;

        for (uint64_t seed = 1; seed <= SEEDS_OF_PAIRS; seed++) {
            struct contraction run = simulate("ad-psgd", runs[i].topology, runs[i].peers, seed);

            measured += run.measured / SEEDS_OF_PAIRS;
            expected += run.expected / SEEDS_OF_PAIRS;
        }
        if (!(fabs(measured - expected) < 0.05 * expected)) {
            fail_msg("ad-psgd on %s: %.4f, not %.4f", runs[i].topology, measured, expected);
        }
    }
}

/* Peers in rounds of neighbours do what the matrix does: an edge missing here and there would show.
 * In a few rounds it is not the second eigenvalue alone that counts, and the others are smaller:
 * with many of them it looks a little faster. */
static void simulated_neighbours_contract_by_their_gap(void **state)
{
    static const struct {
        const char *topology;
        uint32_t peers;
        double faster;
    } runs[] = {{"ring", 6, .02},         {"ring", 8, .02},      {"hypercube", 8, .02},
                {"torus", 12, .02},       {"torus", 16, .02},    {"exponential", 8, .06},
                {"exponential", 16, .06}, {"random:4", 12, .06}, {"complete", 6, .02}};

    (void)state;
    FOR_EACH_SEED (seed, SEEDS_OF_GRAPHS) {
        for (size_t i = 0; i < ARRAY_COUNT(runs); i++) {
            struct contraction run = simulate("dpsgd", runs[i].topology, runs[i].peers, seed);
            double most = run.expected * 1.02, least = run.expected * (1 - runs[i].faster);

            if (!(run.measured <= most && run.measured >= least)) {
                fail_msg("seed %llu: %s of %u: %.4f, not %.4f", (unsigned long long)seed,
                         runs[i].topology, runs[i].peers, run.measured, run.expected);
            }
        }
    }
}

/* While members are still being discovered two may see the graph unlike, and one of them an edge
 * that the other does not: it is told so, or each such edge would cost it five seconds. */
static void nobody_waits_for_who_does_not_see_the_edge(void **state)
{
    static const char *const topologies[] = {"ring", "torus", "exponential"};
    static const uint32_t sizes[] = {8, 12, 40};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(topologies); i++) {
        struct strategy_specs specs = {.averaging = "dpsgd", .topology = topologies[i]};
        struct strategy strategy;
        struct simulation_options options = {.peers = sizes[i],
                                             .seed = 1,
                                             .strategy = &strategy,
                                             .values = 50,
                                             .step_ns = 10 * NS_PER_MS,
                                             .time_ns = NS_PER_S,
                                             .link = {.latency_ns = NS_PER_MS}};
        struct simulation_result result;
        struct fault why;

        assert_int_equal(strategy_parse(&specs, &strategy, &why), RC_OK);
        assert_int_equal(simulation_run(&options, &result, &why), RC_OK);
        assert_true(result.is_finite && result.is_one_swarm);
        if (!(result.last.rounds_per_peer > 20)) {
            fail_msg("%s of %u: %.1f rounds in a second", topologies[i], sizes[i],
                     result.last.rounds_per_peer);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gaps_are_those_of_the_books),
        cmocka_unit_test(fixed_graphs_contract_by_their_gap),
        cmocka_unit_test(hops_of_one_peer_are_exact_where_they_should_be),
        cmocka_unit_test(a_full_grid_is_exact_after_as_many_rounds_as_dimensions),
        cmocka_unit_test(a_grid_goes_on_without_who_is_away),
        cmocka_unit_test(random_groups_contract_as_expected),
        cmocka_unit_test(simulated_pairs_contract_as_expected),
        cmocka_unit_test(simulated_neighbours_contract_by_their_gap),
        cmocka_unit_test(nobody_waits_for_who_does_not_see_the_edge),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
