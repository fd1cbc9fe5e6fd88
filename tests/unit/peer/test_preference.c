/* How much rarer slow lines are used. */
#include "tests/check.h"

#include "base/bytes.h"
#include "peer/node/preference.h"

#define MB UINT64_C(1000000)

static const struct digest run = {{7, 1, 2, 3, 4, 5, 6, 7, 8}};

/* Rates in MB/s, 0: none; -1: took too little time to tell, at least 6 MB/s. */
static bool weigh(const double *rates, size_t count, uint8_t *rarity)
{
    struct preference_line lines[PREFERENCE_LINES_MAX];

    memset(lines, 0, sizeof lines);
    for (size_t i = 0; i < count; i++) {
        lines[i].is_least = rates[i] < 0;
        lines[i].rate = rates[i] < 0 ? 6 * MB : (uint64_t)(rates[i] * (double)MB);
    }
    return preference_weigh(lines, count, rarity);
}

/* Nothing is preferred where nothing is known, where all are about alike, and where all are quick.
 */
static void lines_that_are_alike_are_equal(void **state)
{
    static const double none[4] = {0}, alike[] = {2, 3, 1.1, 4}, quick[] = {17, 100, 1000, -1},
                        known_to_some[] = {0.5, 0, 0.5, 0};
    uint8_t rarity[4];

    (void)state;
    assert_false(weigh(none, 4, rarity));
    assert_false(weigh(alike, 4, rarity));
    assert_false(weigh(quick, 4, rarity));
    assert_false(weigh(known_to_some, 4, rarity));
    assert_false(weigh(alike, 1, rarity));
    assert_false(weigh(alike, 0, rarity));
}

/* A step of four below what most of the better ones have is a quarter as often, and two or more a
 * sixteenth; what was too quick to be measured counts as the best that is known. */
static void slower_lines_are_rarer(void **state)
{
    static const double rates[] = {20, 20, -1, 0, 5, 1.2, 0.001, 20};
    static const uint8_t wanted[] = {1, 1, 1, 1, 2, 3, 3, 1};
    static const double clusters[] = {-1, -1, -1, 0.5, 0.5, 0.5, 0.5};
    uint8_t rarity[8];

    (void)state;
    assert_true(weigh(rates, 8, rarity));
    assert_memory_equal(rarity, wanted, 8);
    assert_true(weigh(clusters, 7, rarity));
    for (int i = 0; i < 7; i++) {
        assert_int_equal(rarity[i], i < 3 ? 1 : 3);
    }
}

/* One line that is far better than all others is used four times as often, whatever it carries. */
static void a_quick_stranger_draws_few(void **state)
{
    double rates[32];
    uint8_t rarity[32];

    (void)state;
    for (int i = 0; i < 32; i++) {
        rates[i] = i == 5 ? 1000 : 0.1;
    }
    assert_true(weigh(rates, 32, rarity));
    for (int i = 0; i < 32; i++) {
        assert_int_equal(rarity[i], i == 5 ? 0 : 1);
    }
}

/* Members that never carry anything do not lift the measure for a quick one. */
static void idle_lines_move_no_measure(void **state)
{
    static const double rates[] = {2, 2, 2, 2, 2, 2, 40, 0};
    static const uint8_t wanted[] = {1, 1, 1, 1, 1, 1, 0, 1};
    uint8_t rarity[8];

    (void)state;
    assert_true(weigh(rates, 8, rarity));
    assert_memory_equal(rarity, wanted, 8);
}

/* A rate at a border of two steps, give or take a quarter, changes nothing; one well beyond does.
 */
static void steps_are_not_left_for_little(void **state)
{
    struct preference_line lines[2] = {{.rate = 8 * MB}, {.rate = 8 * MB}};
    uint8_t rarity[2], step;

    (void)state;
    assert_false(preference_weigh(lines, 2, rarity));
    step = lines[0].step;
    for (int i = 0; i < 100; i++) { /* the next border is at 2^24 */
        lines[0].rate = i % 2 == 0 ? 15 * MB : 22 * MB;
        assert_false(preference_weigh(lines, 2, rarity));
        assert_int_equal(lines[0].step, step);
    }
    lines[0].rate = 26 * MB;
    assert_true(preference_weigh(lines, 2, rarity));
    assert_int_equal(lines[0].step, step + 1);
    for (int i = 0; i < 100; i++) {
        lines[0].rate = i % 2 == 0 ? 13 * MB : 22 * MB;
        assert_true(preference_weigh(lines, 2, rarity));
        assert_int_equal(lines[0].step, step + 1);
    }
    lines[0].rate = 11 * MB;
    assert_false(preference_weigh(lines, 2, rarity));
    lines[0].rate = UINT64_MAX;
    assert_true(preference_weigh(lines, 2, rarity));
    lines[0].rate = 1;
    assert_true(preference_weigh(lines, 2, rarity));
    assert_int_equal(lines[0].step, 1);
}

/* Shares are picked by the odds, and a quarter of the periods know none. */
static void picks_follow_the_odds(void **state)
{
    static const uint8_t rarity[] = {0, 1, 2, 3, 3};
    uint32_t picks[5] = {0}, off = 0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 1, 2);
    for (int i = 0; i < 86000; i++) {
        picks[preference_pick(rarity, 5, &rng)]++;
    }
    assert_in_range(picks[0], 63000, 65000); /* 64 of 86 */
    assert_in_range(picks[1], 15400, 16600);
    assert_in_range(picks[2], 3700, 4300);
    assert_in_range(picks[3], 880, 1120);
    assert_in_range(picks[4], 880, 1120);
    for (uint64_t period = 0; period < 10000; period++) {
        off += preference_is_off(run, period, PREFERENCE_PAIRS);
    }
    assert_in_range(off, 2300, 2700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_are_alike_are_equal),
        cmocka_unit_test(slower_lines_are_rarer),
        cmocka_unit_test(a_quick_stranger_draws_few),
        cmocka_unit_test(idle_lines_move_no_measure),
        cmocka_unit_test(steps_are_not_left_for_little),
        cmocka_unit_test(picks_follow_the_odds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
