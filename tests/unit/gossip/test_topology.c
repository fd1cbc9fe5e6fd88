/* Groups and partners: everyone must compute the same without a word. */
#include "tests/check.h"

#include "base/check.h"
#include "base/rng.h"
#include "gossip/overlay/topology.h"
#include "gossip/wire/limits.h"

#include <math.h>

enum { SWARM_MAX = 300, LARGE_MAX = 10000 };

static void make_members(struct peer_id *members, size_t count, uint64_t seed)
{
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (size_t i = 0; i < count; i++) {
        memset(&members[i], 0, sizeof(members[i]));
        members[i].bytes[0] = (uint8_t)(i >> 8); /* sorted by construction */
        members[i].bytes[1] = (uint8_t)i;
        for (size_t k = 2; k < PEER_ID_BYTES; k++) {
            members[i].bytes[k] = (uint8_t)rng_u64(&rng);
        }
    }
}

/* Every spelling in the manual is understood. */
static void known_topologies_are_parsed(void **state)
{
    struct topology topology;

    (void)state;
    assert_int_equal(topology_parse("complete", &topology, NULL), RC_OK);
    assert_int_equal(topology.kind, TOPOLOGY_COMPLETE);
    assert_int_equal(topology_parse("pairs", &topology, NULL), RC_OK);
    assert_int_equal(topology.kind, TOPOLOGY_PAIRS);
    assert_int_equal(topology_parse("groups:8", &topology, NULL), RC_OK);
    assert_int_equal(topology.kind, TOPOLOGY_GROUPS);
    assert_int_equal(topology.group_size, 8);
    assert_int_equal(topology_parse("random:8,lazy", &topology, NULL), RC_OK);
    assert_int_equal(topology.kind, TOPOLOGY_RANDOM);
    assert_int_equal(topology.degree, 8);
    assert_true(topology.is_lazy);
}

/* What is written is what is read. */
static void topologies_are_spelt_as_they_are_parsed(void **state)
{
    static const char *const specs[] = {"complete",
                                        "groups:64",
                                        "grid:5",
                                        "pairs",
                                        "ring",
                                        "torus,lazy",
                                        "hypercube",
                                        "exponential",
                                        "random:64,lazy",
                                        "one-peer-exponential,lazy",
                                        "dissemination",
                                        "pairs,uniform",
                                        "pairs,uniform,sites:3",
                                        "pairs,sites:10000",
                                        "groups:8,sites:1",
                                        "complete,sites:4"};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(specs); i++) {
        struct topology topology;
        char text[TOPOLOGY_TEXT];

        assert_int_equal(topology_parse(specs[i], &topology, NULL), RC_OK);
        topology_format(&topology, text);
        assert_string_equal(text, specs[i]);
    }
}

/* A misspelt topology names the column and what there is, and changes nothing. */
static void unknown_topologies_are_refused_with_a_reason(void **state)
{
    static const char *const wrong[] = {"",
                                        "compleet",
                                        "groups:",
                                        "groups:1",
                                        "groups:x",
                                        "groups:8x",
                                        "groups:65",
                                        "groups:99999999999",
                                        "ring,uniform",
                                        "pairs,lazy",
                                        "pairs,",
                                        "complete,lazy",
                                        "ring,sites:4",
                                        "groups:8,sites:",
                                        "groups:8,sites:0",
                                        "groups:8,sites:x",
                                        "groups:8,sites:4x",
                                        "groups:8,sites:10001",
                                        "groups:8,sites:4,lazy",
                                        "pairs,sites:4,uniform"};
    struct topology topology = {.kind = TOPOLOGY_PAIRS, .group_size = 77};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(wrong); i++) {
        struct fault why = {""};

        assert_int_equal(topology_parse(wrong[i], &topology, &why), RC_PARSE);
        assert_non_null(strstr(why.text, "column"));
        assert_int_equal(topology.group_size, 77);
    }
}

/* One round in so many is of all sites; those of each kind are numbered without a gap. */
static void rounds_of_sites_and_of_all_take_turns(void **state)
{
    (void)state;
    for (uint32_t every = 1; every <= 7; every++) {
        uint64_t next[2] = {0, 0};

        for (uint64_t round = 0; round < 100; round++) {
            struct topology_level level = topology_level(every, round);

            assert_true(level.is_near == (round % every != every - 1));
            assert_int_equal(level.number, next[level.is_near]);
            next[level.is_near]++;
        }
    }
    assert_false(topology_level(0, 9).is_near);
    assert_int_equal(topology_level(0, 9).number, 9);
}

/* Each member computes the same group as everybody in it, every member is in exactly one, and the
 * sizes keep to their bounds. */
static void check_groups(const struct topology *topology, size_t members_count, uint64_t seed,
                         size_t size_max)
{
    static struct peer_id members[SWARM_MAX];
    struct digest run_id = hash_of(&seed, sizeof(seed));
    size_t seen[SWARM_MAX] = {0};

    make_members(members, members_count, seed);
    for (size_t i = 0; i < members_count; i++) {
        struct peer_id group[GROUP_MEMBERS_MAX], other[GROUP_MEMBERS_MAX];
        size_t count = topology_group(topology, run_id, seed * 3, members[i], members,
                                      members_count, group, GROUP_MEMBERS_MAX);

        check_seed(seed, count >= 1 && count <= size_max);
        check_seed(seed, count >= 2 || members_count == 1);
        for (size_t k = 0; k < count; k++) {
            size_t index = (size_t)group[k].bytes[0] << 8 | group[k].bytes[1];
            size_t other_count = topology_group(topology, run_id, seed * 3, group[k], members,
                                                members_count, other, GROUP_MEMBERS_MAX);

            check_seed(seed, other_count == count);
            check_seed(seed, memcmp(group, other, count * sizeof(group[0])) == 0);
            if (k == 0) seen[index]++; /* counted once by each of the group */
            if (k == 0) check_seed(seed, seen[index] <= count);
        }
    }
    for (size_t i = 0, total = 0; i <= members_count; i++) {
        if (i == members_count) check_seed(seed, total == members_count);
        if (i < members_count) total += seen[i];
    }
}

/* Groups of any wanted size over any number of members. */
static void groups_partition_the_swarm_and_everyone_agrees(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 60) {
        struct rng rng;
        struct topology topology = {.kind = TOPOLOGY_GROUPS};
        size_t members_count;

        rng_init(&rng, seed, 2);
        topology.group_size = 2 + (uint32_t)rng_below(&rng, 12);
        members_count = 1 + rng_below(&rng, 70);
        check_groups(&topology, members_count, seed, topology.group_size + 1);
    }
}

/* Where members do not divide into groups, it is not always the same who are in the small one: over
 * many rounds all two of them meet about equally often. Five make a group of three and one of two.
 */
static void any_two_meet_equally_often(void **state)
{
    enum { FIVE = 5, ROUNDS_DRAWN = 2000 };
    const struct topology topology = {.kind = TOPOLOGY_GROUPS, .group_size = 3};
    struct peer_id members[FIVE], group[GROUP_MEMBERS_MAX];
    uint32_t met[FIVE][FIVE] = {{0}};

    (void)state;
    make_members(members, FIVE, 1);
    for (uint64_t round = 0; round < ROUNDS_DRAWN; round++) {
        for (size_t i = 0; i < FIVE; i++) {
            size_t count = topology_group(&topology, hash_of("r", 1), round, members[i], members,
                                          FIVE, group, GROUP_MEMBERS_MAX);

            assert_in_range(count, 2, 3);
            for (size_t k = 0; k < count; k++) {
                for (size_t j = 0; j < FIVE; j++) {
                    met[i][j] += peer_id_is_equal(group[k], members[j]);
                }
            }
        }
    }
    for (size_t i = 0; i < FIVE; i++) {
        for (size_t j = 0; j < i; j++) { /* (3 * 2 + 2 * 1) / (5 * 4) of the rounds, 5 deviations */
            assert_int_equal(met[i][j], met[j][i]);
            assert_in_range(met[i][j], 800 - 110, 800 + 110);
        }
    }
}

/* `complete` is one group of all while that fits, and falls apart into large groups beyond. */
static void complete_is_everyone_while_they_fit(void **state)
{
    const struct topology complete = {.kind = TOPOLOGY_COMPLETE};
    static struct peer_id members[SWARM_MAX];
    struct peer_id group[GROUP_MEMBERS_MAX];

    (void)state;
    make_members(members, SWARM_MAX, 1);
    for (size_t n = 1; n <= GROUP_MEMBERS_MAX; n += 9) {
        assert_int_equal(topology_group(&complete, hash_of("r", 1), 5, members[n / 2], members, n,
                                        group, GROUP_MEMBERS_MAX),
                         n);
    }
    check_groups(&complete, 65, 3, GROUP_MEMBERS_MAX);
    check_groups(&complete, 130, 4, GROUP_MEMBERS_MAX);
}

/* `pairs` leaves nobody alone. */
static void pairs_are_two_or_once_three(void **state)
{
    const struct topology pairs = {.kind = TOPOLOGY_PAIRS};

    (void)state;
    check_groups(&pairs, 1, 1, 1);
    check_groups(&pairs, 2, 2, 2);
    check_groups(&pairs, 9, 3, 3);
    check_groups(&pairs, 100, 4, 2);
}

/* Everyone in a line agrees on it, lines have no one in common, and in a full grid as many rounds
 * as dimensions mix everyone with everyone: the mean of all is then exact. */
static void lines_of_a_grid_reach_everyone(void **state)
{
    static const struct {
        uint32_t side;
        size_t count, dimensions;
    } grids[] = {{4, 16, 2}, {2, 8, 3}, {8, 8, 1}, {8, 64, 2}, {3, 27, 3}};

    (void)state;
    for (size_t g = 0; g < sizeof grids / sizeof grids[0]; g++) {
        const struct topology grid = {.kind = TOPOLOGY_GRID, .group_size = grids[g].side};
        size_t n = grids[g].count;
        struct peer_id members[64], group[64];
        double x[64], next[64];

        make_members(members, n, 1);
        for (size_t i = 0; i < n; i++) {
            x[i] = (double)(i * i);
        }
        for (uint64_t round = 7; round < 7 + grids[g].dimensions; round++) {
            for (size_t i = 0; i < n; i++) {
                size_t count = topology_group(&grid, hash_of("r", 1), round, members[i], members, n,
                                              group, 64);

                assert_int_equal(count, grids[g].side);
                next[i] = 0;
                for (size_t k = 0; k < count; k++) {
                    next[i] += x[group[k].bytes[1]] / (double)count;
                }
            }
            memcpy(x, next, sizeof x);
        }
        for (size_t i = 1; i < n; i++) {
            assert_true(x[i] - x[0] < 1e-9 && x[0] - x[i] < 1e-9);
        }
    }
}

/* Any number: nobody is in a line longer than asked for, and the lines are the same for all. */
static void a_grid_takes_any_number(void **state)
{
    const struct topology grid = {.kind = TOPOLOGY_GRID, .group_size = 4};

    (void)state;
    for (size_t n = 1; n <= 70; n++) {
        struct peer_id members[70], group[64], other[64];

        make_members(members, n, 1);
        for (uint64_t round = 0; round < 5; round++) {
            for (size_t i = 0; i < n; i++) {
                size_t count = topology_group(&grid, hash_of("r", 1), round, members[i], members, n,
                                              group, 64);

                assert_true(count >= 1 && count <= 4);
                for (size_t k = 0; k < count; k++) {
                    assert_int_equal(topology_group(&grid, hash_of("r", 1), round, group[k],
                                                    members, n, other, 64),
                                     count);
                    assert_memory_equal(group, other, count * sizeof(group[0]));
                }
            }
        }
    }
}

/* The order within a group changes with the round, so no peer proposes for ever. */
static void who_proposes_first_changes_with_the_round(void **state)
{
    const struct topology complete = {.kind = TOPOLOGY_COMPLETE};
    struct peer_id members[8], group[8];
    size_t firsts[8] = {0};

    (void)state;
    make_members(members, 8, 1);
    for (uint64_t round = 0; round < 400; round++) {
        assert_int_equal(
            topology_group(&complete, hash_of("r", 1), round, members[0], members, 8, group, 8), 8);
        firsts[group[0].bytes[1]]++;
    }
    for (size_t i = 0; i < 8; i++) {
        assert_true(firsts[i] > 20 && firsts[i] < 90);
    }
}

/* ---- more members than are all linked ---- */

static size_t index_of(struct peer_id id)
{
    return (size_t)id.bytes[0] << 8 | id.bytes[1];
}

/* Who leads the group of each of the members, found by asking one of each group; all groups
 * together are all members, and no group is too large or too small. How many groups. */
static size_t lead_all(const struct topology *topology, struct digest run_id, uint64_t round,
                       const struct peer_id *members, size_t count, uint16_t lead[LARGE_MAX])
{
    size_t most = GROUP_MEMBERS_MAX / 2, size = topology->group_size, groups = 0, seated = 0;

    if (topology->kind == TOPOLOGY_COMPLETE || size > most) size = most;
    memset(lead, 0xff, LARGE_MAX * sizeof lead[0]);
    for (size_t i = 0; i < count; i++) {
        struct peer_id group[GROUP_MEMBERS_MAX];
        size_t found;

        if (lead[index_of(members[i])] != UINT16_MAX) continue;
        found = topology_group(topology, run_id, round, members[i], members, count, group,
                               GROUP_MEMBERS_MAX);
        assert_true(3 * found + 1 >= 2 * size && found >= 2 && found <= 2 * size);
        for (size_t k = 0; k < found; k++) {
            assert_int_equal(lead[index_of(group[k])], UINT16_MAX);
            lead[index_of(group[k])] = (uint16_t)index_of(group[0]);
        }
        groups++;
        seated += found;
    }
    assert_int_equal(seated, count);
    return groups;
}

/* Sizes keep to their bounds, and are those asked for on average. */
static void groups_of_a_large_swarm_are_about_as_large_as_asked_for(void **state)
{
    static const char *const specs[] = {"groups:8", "groups:3", "groups:16", "groups:64",
                                        "complete"};
    static struct peer_id members[LARGE_MAX];
    static uint16_t lead[LARGE_MAX];

    (void)state;
    FOR_EACH_SEED (seed, 20) {
        struct topology topology;
        struct rng rng;
        size_t count;
        double ratio;

        rng_init(&rng, seed, 3);
        count = TOPOLOGY_RUNS + 1 + rng_below(&rng, (uint64_t)3 << rng_below(&rng, 11));
        assert_int_equal(topology_parse(specs[seed % ARRAY_COUNT(specs)], &topology, NULL), RC_OK);
        make_members(members, count, seed);
        ratio =
            (double)lead_all(&topology, hash_of(&seed, sizeof seed), seed, members, count, lead) /
            (double)topology_groups(&topology, count);
        check_seed(seed, count < 1000 || (ratio > 0.8 && ratio < 1.25));
    }
}

/* Whoever agree about who is there agree on the groups, also where each asks for itself. */
static void members_of_a_large_swarm_agree(void **state)
{
    const struct topology groups = {.kind = TOPOLOGY_GROUPS, .group_size = 8};

    (void)state;
    check_groups(&groups, TOPOLOGY_RUNS + 1, 1, 16);
    check_groups(&groups, SWARM_MAX, 2, 16);
}

/* A view of the swarm that lacks `missing` of its members: how many of the groups of all have other
 * members in it, but for those. */
static size_t groups_changed(const struct peer_id *members, size_t count, size_t missing,
                             uint64_t seed)
{
    const struct topology topology = {.kind = TOPOLOGY_GROUPS, .group_size = 8};
    static struct peer_id view[LARGE_MAX];
    static uint16_t lead[LARGE_MAX], seen[LARGE_MAX], others[LARGE_MAX];
    static bool is_changed[LARGE_MAX];
    struct digest run_id = hash_of(&seed, sizeof seed);
    size_t left = 0, changed = 0;
    struct rng rng;

    rng_init(&rng, seed, 4);
    for (size_t i = 0; i < count; i++) {
        bool is_missing = rng_below(&rng, count - i) < missing;

        missing -= is_missing;
        if (!is_missing) view[left++] = members[i];
    }
    lead_all(&topology, run_id, seed, members, count, lead);
    lead_all(&topology, run_id, seed, view, left, seen);
    memset(is_changed, 0, sizeof is_changed);
    memset(others, 0xff, sizeof others);
    /* The same partition of those in both: two are together here if they are together there. */
    for (size_t i = 0; i < left; i++) {
        size_t at = index_of(view[i]);
        uint16_t *there = &others[lead[at]];

        if (*there == UINT16_MAX) *there = seen[at];
        is_changed[lead[at]] |= *there != seen[at];
    }
    memset(others, 0xff, sizeof others);
    for (size_t i = 0; i < left; i++) {
        size_t at = index_of(view[i]);
        uint16_t *here = &others[seen[at]];

        if (*here == UINT16_MAX) *here = lead[at];
        is_changed[lead[at]] |= *here != lead[at];
    }
    for (size_t i = 0; i < LARGE_MAX; i++) {
        changed += is_changed[i];
    }
    return changed;
}

/* Who do not know of some members differ about the groups of these, at most about the two halves of
 * a prefix each, however large the swarm: not about all groups that come after. */
static void a_disagreement_stays_in_its_group(void **state)
{
    static struct peer_id members[LARGE_MAX];
    uint64_t doublings = getenv("SEEDS") != NULL ? 11 : 9; /* seconds for each of 10,000 members */
    size_t changed = 0, unknown = 0;

    (void)state;
    FOR_EACH_SEED (seed, 30) {
        struct rng rng;
        size_t count, missing, touched;

        rng_init(&rng, seed, 5);
        count = TOPOLOGY_RUNS + 20 + rng_below(&rng, (uint64_t)9 << rng_below(&rng, doublings));
        missing = 1 + rng_below(&rng, 4);
        make_members(members, count, seed);
        touched = groups_changed(members, count, missing, seed);
        check_seed(seed, touched <= 3 * missing);
        changed += touched;
        unknown += missing;
    }
    assert_true(2 * changed < 3 * unknown); /* and mostly about none but their own group */
}

/* Values drawn at random come together as fast as in random groups of that size: what a round
 * leaves of their variance is (g - 1)/(n - 1) of it. */
static void large_swarms_mix_as_random_groups_do(void **state)
{
    enum { N = 1000, ROUNDS = 12 };
    const struct topology topology = {.kind = TOPOLOGY_GROUPS, .group_size = 8};
    static struct peer_id members[N];
    static uint16_t lead[LARGE_MAX];
    static double x[N], sum[N];
    static size_t count[N];
    struct rng rng;
    double left = 0, theory = 0;

    (void)state;
    make_members(members, N, 1);
    rng_init(&rng, 1, 6);
    for (size_t i = 0; i < N; i++) {
        x[i] = rng_normal(&rng);
    }
    for (uint64_t round = 0; round < ROUNDS; round++) {
        double mean = 0, before = 0, after = 0;
        size_t groups = lead_all(&topology, hash_of("r", 1), round, members, N, lead);

        memset(sum, 0, sizeof sum);
        memset(count, 0, sizeof count);
        for (size_t i = 0; i < N; i++) {
            mean += x[i] / N;
            sum[lead[i]] += x[i];
            count[lead[i]]++;
        }
        for (size_t i = 0; i < N; i++) {
            double mixed = sum[lead[i]] / (double)count[lead[i]];

            before += (x[i] - mean) * (x[i] - mean);
            after += (mixed - mean) * (mixed - mean);
            x[i] = mixed;
        }
        left += log(after / before) / ROUNDS;
        theory += log((double)(groups - 1) / (N - 1)) / ROUNDS;
    }
    assert_true(fabs(left - theory) < 0.1);
    assert_true(fabs(theory - log(((double)topology_groups(&topology, N) - 1) / (N - 1))) < 0.1);
}

/* An edge has one number from both ends, another one each period, and the smallest is as often one
 * partner's as any other's. */
static void edges_are_drawn_evenly_and_alike_from_both_ends(void **state)
{
    struct peer_id members[5];
    size_t best[5] = {0};

    (void)state;
    make_members(members, 5, 1);
    for (uint64_t period = 0; period < 4000; period++) {
        size_t least = 0;

        for (size_t i = 0; i < 5; i++) {
            uint64_t edge = topology_edge(hash_of("r", 1), period, members[2], members[i]);

            assert_true(edge == topology_edge(hash_of("r", 1), period, members[i], members[2]));
            assert_true(edge != topology_edge(hash_of("r", 1), period + 1, members[2], members[i]));
            assert_true(edge != topology_edge(hash_of("s", 1), period, members[2], members[i]));
            if (i == 2) continue;
            if (edge < topology_edge(hash_of("r", 1), period, members[2], members[least])) {
                least = i;
            }
        }
        best[least]++;
    }
    assert_int_equal(best[2], 0);
    for (size_t i = 0; i < 5; i++) {
        if (i != 2) assert_true(best[i] > 850 && best[i] < 1150);
    }
}

/* In a large swarm a draw serves for eight of its turns, and of those that take turns one at a time
 * is replaced: links to a few groups are enough at any time. */
static void draws_last_and_change_one_by_one(void **state)
{
    static const struct {
        const char *spec;
        uint32_t draws;
    } kinds[] = {
        {"groups:8", 4}, {"groups:2", 4}, {"groups:16", 2}, {"groups:64", 1}, {"complete", 1}};

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(kinds); i++) {
        uint64_t draws = kinds[i].draws, length = draws * TOPOLOGY_TURNS, latest = 0, news = 0;
        struct topology topology;

        assert_int_equal(topology_parse(kinds[i].spec, &topology, NULL), RC_OK);
        assert_int_equal(topology_ahead(&topology), 2 * draws);
        for (uint64_t round = 0; round < 10 * length; round++) {
            uint64_t draw = topology_draw(&topology, round);

            assert_int_equal(draw % draws, round % draws);
            /* the same next time, unless it is this one's turn to be replaced */
            if (topology_draw(&topology, round + draws) != draw) {
                assert_int_equal(topology_draw(&topology, round + draws), draw + draws);
                assert_true(news == 0 || round - latest >= TOPOLOGY_TURNS - draws);
                latest = round;
                news++;
            }
        }
        assert_true(news >= 9 * draws);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(known_topologies_are_parsed),
        cmocka_unit_test(topologies_are_spelt_as_they_are_parsed),
        cmocka_unit_test(rounds_of_sites_and_of_all_take_turns),
        cmocka_unit_test(unknown_topologies_are_refused_with_a_reason),
        cmocka_unit_test(groups_partition_the_swarm_and_everyone_agrees),
        cmocka_unit_test(any_two_meet_equally_often),
        cmocka_unit_test(complete_is_everyone_while_they_fit),
        cmocka_unit_test(pairs_are_two_or_once_three),
        cmocka_unit_test(lines_of_a_grid_reach_everyone),
        cmocka_unit_test(a_grid_takes_any_number),
        cmocka_unit_test(who_proposes_first_changes_with_the_round),
        cmocka_unit_test(groups_of_a_large_swarm_are_about_as_large_as_asked_for),
        cmocka_unit_test(members_of_a_large_swarm_agree),
        cmocka_unit_test(a_disagreement_stays_in_its_group),
        cmocka_unit_test(large_swarms_mix_as_random_groups_do),
        cmocka_unit_test(edges_are_drawn_evenly_and_alike_from_both_ends),
        cmocka_unit_test(draws_last_and_change_one_by_one),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
