/* Parts and trees of group rounds, and what they are said to cost. */
#include "tests/check.h"

#include "averaging/core/schedule.h"
#include "averaging/core/weights.h"
#include "base/check.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

static uint32_t any_rates(struct rng *rng, uint8_t *rates)
{
    uint32_t members = 1 + (uint32_t)rng_below(rng, GROUP_MEMBERS_MAX);

    for (uint32_t i = 0; i < members; i++) {
        rates[i] = (uint8_t)(WEIGHT_MIN + rng_below(rng, WEIGHT_MAX - WEIGHT_MIN + 1));
    }
    return members;
}

static void parts_cover_the_plane_and_rise_with_the_rate(void **state)
{
    (void)state;
    /* Whatever the rates: parts are next to each other and cover all chunks; of two members the
     * faster one owns no less, but for a chunk that is rounded away and one of what the fastest may
     * not own; equal rates, equal parts. */
    FOR_EACH_SEED (seed, 300) {
        struct rng rng;
        uint8_t rates[GROUP_MEMBERS_MAX];
        struct schedule_plan plan, equal;

        rng_init(&rng, seed, 1);
        for (int s = 0; s < SCHEDULE_COUNT; s++) {
            uint32_t members = any_rates(&rng, rates), at = 0;
            uint32_t chunks = (uint32_t)rng_below(&rng, seed % 2 == 0 ? CHUNKS_MAX + 1 : 70);

            schedule_make(&plan, (enum schedule)s, members, chunks, rates);
            for (uint32_t i = 0; i < members; i++) {
                check_seed(seed, plan.first[i] == at);
                at += plan.count[i];
                for (uint32_t c = plan.first[i]; c < at; c += 1 + plan.count[i] / 3) {
                    check_seed(seed, schedule_part(&plan, c) == i);
                }
                for (uint32_t j = 0; j < members; j++) {
                    check_seed(seed, s != SCHEDULE_DIRECT || rates[i] < rates[j] ||
                                         plan.count[i] + 2 >= plan.count[j]);
                }
            }
            check_seed(seed, at == chunks);
            memset(rates, (int)(1 + seed % 64), sizeof rates);
            schedule_make(&plan, (enum schedule)s, members, chunks, rates);
            schedule_make(&equal, (enum schedule)s, members, chunks, NULL);
            check_seed(seed, memcmp(&plan, &equal, sizeof plan) == 0);
            for (uint32_t i = 0; i < members && s <= SCHEDULE_RING; i++) {
                check_seed(seed, plan.first[i] == (uint64_t)chunks * i / members);
            }
        }
    }
}

/* The longest that a member of a direct round is busy, in chunks over rate. */
static double busiest(const uint32_t *counts, const uint8_t *rates, uint32_t members,
                      uint32_t chunks)
{
    double most = 0;

    for (uint32_t i = 0; i < members; i++) {
        double load = chunks + ((double)members - 2) * counts[i];

        most = fmax(most, load / rates[i]);
    }
    return most;
}

static uint32_t most_of(uint32_t chunks, uint32_t members)
{
    return (2 * chunks + members - 1) / members;
}

static void sized_parts_are_the_best_there_are(void **state)
{
    (void)state;
    /* No part bounds of any kind within twice an equal part end sooner, but for the rounding of a
     * chunk: no move of a share from one member to another makes the busiest one less busy. */
    FOR_EACH_SEED (seed, 200) {
        struct rng rng;
        uint8_t rates[GROUP_MEMBERS_MAX];
        struct schedule_plan plan;
        uint32_t members, chunks = CHUNKS_MAX;
        bool is_capped = false;
        double least;

        rng_init(&rng, seed, 2);
        members = any_rates(&rng, rates);
        if (members < 3) continue;
        schedule_make(&plan, SCHEDULE_DIRECT, members, chunks, rates);
        for (uint32_t i = 0; i < members; i++) {
            is_capped |= plan.count[i] == most_of(chunks, members);
        }
        if (is_capped) continue; /* what the others then have in excess is shared out alike */
        least = busiest(plan.count, rates, members, chunks);
        for (int i = 0; i < 50; i++) {
            uint32_t from = (uint32_t)rng_below(&rng, members);
            uint32_t to = (uint32_t)rng_below(&rng, members), counts[GROUP_MEMBERS_MAX];
            uint32_t moved = (uint32_t)rng_below(&rng, plan.count[from] + 1);

            memcpy(counts, plan.count, sizeof counts);
            counts[from] -= moved;
            counts[to] += moved;
            check_seed(seed, busiest(counts, rates, members, chunks) >= least * 0.99);
        }
    }
}

/* Whatever the rates, the schedule and the size of the plane. */
static void nobody_owns_more_than_two_equal_parts(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 300) {
        struct rng rng;
        uint8_t rates[GROUP_MEMBERS_MAX];
        struct schedule_plan plan;

        rng_init(&rng, seed, 4);
        for (int s = 0; s < SCHEDULE_COUNT; s++) {
            uint32_t members = any_rates(&rng, rates);
            uint32_t chunks = (uint32_t)rng_below(&rng, seed % 2 == 0 ? CHUNKS_MAX + 1 : 70);

            schedule_make(&plan, (enum schedule)s, members, chunks, rates);
            for (uint32_t i = 0; i < members; i++) {
                check_seed(seed, plan.count[i] <= most_of(chunks, members));
            }
            /* The first, who proposes, owns none of a plane of fewer chunks than members. */
            if (s != SCHEDULE_DIRECT || chunks >= members) continue;
            memset(rates, WEIGHT_ONE, sizeof rates);
            schedule_make(&plan, SCHEDULE_DIRECT, members, chunks, rates);
            check_seed(seed, plan.count[0] == 0);
        }
    }
}

static void a_slow_member_owns_nothing_and_a_liar_no_more_than_two_parts(void **state)
{
    (void)state;
    /* One of eight at an eighth: too slow for a part. One that claims the most of all: two equal
     * parts, and the rest share what is left. Of two members it does not matter. */
    uint8_t rates[8];
    struct schedule_plan plan;

    memset(rates, WEIGHT_ONE, sizeof rates);
    rates[3] = 2;
    schedule_make(&plan, SCHEDULE_DIRECT, 8, 700, rates);
    assert_int_equal(plan.count[3], 0);
    assert_int_equal(plan.count[0], 100);
    rates[3] = UINT8_MAX;
    schedule_make(&plan, SCHEDULE_DIRECT, 8, 1120, rates);
    assert_int_equal(plan.count[3], 280);
    for (uint32_t i = 0; i < 8; i++) {
        if (i != 3) assert_in_range(plan.count[i], 119, 121);
    }
    rates[0] = 1;
    rates[1] = 64;
    schedule_make(&plan, SCHEDULE_DIRECT, 2, 10, rates);
    assert_int_equal(plan.count[0], 5);
}

/* The depth of the deepest tree. */
static uint32_t check_trees(const struct schedule_plan *plan)
{
    uint32_t deepest = 0, children_of[GROUP_MEMBERS_MAX] = {0};

    for (uint32_t part = 0; part < plan->members; part++) {
        uint64_t all = plan->members == 64 ? UINT64_MAX : (UINT64_C(1) << plan->members) - 1;
        uint64_t seen = UINT64_C(1) << part;

        if (plan->count[part] == 0) continue;
        assert_true(schedule_below(plan, part, part) == all);
        assert_int_equal(schedule_parent(plan, part, part), part);
        for (uint32_t m = 0; m < plan->members; m++) {
            uint64_t children = schedule_children(plan, part, m), below = UINT64_C(1) << m;
            uint32_t at = m, depth = 0;

            for (; at != part; depth++) {
                assert_true(depth < plan->members);
                at = schedule_parent(plan, part, at);
            }
            if (depth > deepest) deepest = depth;
            assert_true((seen & children) == 0); /* one parent each */
            seen |= children;
            for (uint32_t c = 0; c < plan->members; c++) {
                if ((children >> c & 1) == 0) continue;
                assert_int_equal(schedule_parent(plan, part, c), m);
                assert_true((below & schedule_below(plan, part, c)) == 0); /* none counts twice */
                below |= schedule_below(plan, part, c);
            }
            assert_true(below == schedule_below(plan, part, m));
            children_of[m] += (uint32_t)__builtin_popcountll(children);
            assert_true(plan->schedule == SCHEDULE_DIRECT || children_of[m] < GROUP_MEMBERS_MAX);
        }
        assert_true(seen == all);
    }
    return deepest;
}

static void every_schedule_is_trees_that_reach_all(void **state)
{
    (void)state;
    /* One parent each, no circle, nobody's values twice; as deep as theory says. */
    static const uint32_t depths[][SCHEDULE_COUNT] = {
        [2] = {1, 1, 1, 1}, [3] = {1, 2, 2, 1}, [4] = {1, 3, 2, 2},
        [7] = {1, 6, 3, 2}, [8] = {1, 7, 3, 3}, [64] = {1, 63, 6, 6}};

    for (uint32_t members = 1; members <= GROUP_MEMBERS_MAX; members += members == 20 ? 44 : 1) {
        for (int s = 0; s < SCHEDULE_COUNT; s++) {
            struct schedule_plan plan;
            uint32_t depth;

            schedule_make(&plan, (enum schedule)s, members, 640, NULL);
            depth = check_trees(&plan);
            if (members < ARRAY_COUNT(depths) && depths[members][0] > 0) {
                assert_int_equal(depth, depths[members][s]);
            }
        }
    }
    FOR_EACH_SEED (seed, 4) {
        struct rng rng;
        uint8_t rates[GROUP_MEMBERS_MAX];

        rng_init(&rng, seed, 3);
        for (int s = 0; s < SCHEDULE_COUNT; s++) {
            struct schedule_plan plan;
            uint32_t members = any_rates(&rng, rates);

            schedule_make(&plan, (enum schedule)s, members, 1 + (uint32_t)rng_below(&rng, 300),
                          rates);
            (void)check_trees(&plan);
        }
    }
}

static void slow_members_pass_nothing_on(void **state)
{
    (void)state;
    /* The slowest of five is folded in by halving. */
    static const uint8_t rates[] = {16, 1, 64, 16, 16};
    struct schedule_plan plan;

    schedule_make(&plan, SCHEDULE_HALVING, 5, 100, rates);
    assert_int_equal(plan.count[1], 0);
    for (uint32_t part = 0; part < 5; part++) {
        assert_true(plan.count[part] == 0 || schedule_children(&plan, part, 1) == 0);
    }
}

static void costs_are_those_of_the_formulae(void **state)
{
    (void)state;
    /* Equal members, S = n c chunks of time b each. Direct: 2 (n-1)/n S b + 2 a and what a pipeline
     * needs; the ring the same bytes and n-1 times the latency; trees log2(n) times. */
    enum { N = 8, CHUNKS = 8000 };
    uint64_t chunk_ns[N], cost[SCHEDULE_COUNT];
    const uint64_t b = 1000, a = 5000000;

    for (int i = 0; i < N; i++) {
        chunk_ns[i] = b;
    }
    for (int s = 0; s < SCHEDULE_COUNT; s++) {
        struct schedule_plan plan;

        schedule_make(&plan, (enum schedule)s, N, CHUNKS, NULL);
        cost[s] = schedule_cost_ns(&plan, a, chunk_ns);
    }
    assert_true(cost[SCHEDULE_DIRECT] == 2 * 7 * CHUNKS / 8 * b + 2 * a + 7 * b);
    assert_true(cost[SCHEDULE_RING] == 2 * 7 * CHUNKS / 8 * b + 14 * a + 13 * b);
    assert_true(cost[SCHEDULE_HALVING] == 2 * 7 * CHUNKS / 8 * b + 6 * a + 3 * b);
    assert_true(cost[SCHEDULE_TREE] == 2 * 7 * CHUNKS / 8 * b + 6 * a + 4 * b);
}

static void the_cheapest_schedule_is_taken(void **state)
{
    (void)state;
    /* Many chunks: direct, which shares them out. One chunk among 32: it is all one owner's, who
     * would have to send it 31 times over; a tree sends it further. Behind a long way: direct. */
    uint64_t slow[GROUP_MEMBERS_MAX], fast[GROUP_MEMBERS_MAX];

    for (int i = 0; i < GROUP_MEMBERS_MAX; i++) {
        slow[i] = 50 * 1000000; /* 20 Mbit/s */
        fast[i] = 100000;       /* 10 Gbit/s */
    }
    assert_int_equal(schedule_choose(8, 100, NULL, 1000000, fast), SCHEDULE_DIRECT);
    assert_int_equal(schedule_choose(8, 100, NULL, 1000000, slow), SCHEDULE_DIRECT);
    assert_int_equal(schedule_choose(32, 1, NULL, 100000000, fast), SCHEDULE_DIRECT);
    assert_int_equal(schedule_choose(32, 1, NULL, 10000000, slow), SCHEDULE_HALVING);
    assert_int_equal(schedule_choose(2, 1, NULL, 10000000, slow), SCHEDULE_DIRECT);
    assert_int_equal(schedule_choose(4, 0, NULL, 0, slow), SCHEDULE_DIRECT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_cover_the_plane_and_rise_with_the_rate),
        cmocka_unit_test(sized_parts_are_the_best_there_are),
        cmocka_unit_test(nobody_owns_more_than_two_equal_parts),
        cmocka_unit_test(a_slow_member_owns_nothing_and_a_liar_no_more_than_two_parts),
        cmocka_unit_test(every_schedule_is_trees_that_reach_all),
        cmocka_unit_test(slow_members_pass_nothing_on),
        cmocka_unit_test(costs_are_those_of_the_formulae),
        cmocka_unit_test(the_cheapest_schedule_is_taken),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
