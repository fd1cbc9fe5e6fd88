/* Periods that follow the loss: the published equation, and what members make of each other's word.
 */
#include "tests/check.h"

#include "averaging/strategy/period.h"
#include "base/check.h"
#include "base/rng.h"

#include <math.h>

enum { FIRST = 16, BLOCK = 64, MEMBERS = 5 };

/* Steps of such a loss. */
static void step(struct period *period, double loss, uint64_t steps)
{
    period_stepped(period, loss * (double)steps, steps);
}

/* What was said of the block, what follows from it, and that it counts. */
static uint64_t after_a_block(struct period *period, double loss)
{
    step(period, loss, BLOCK);
    for (int i = 0; i < 3; i++) {
        (void)period_turn(period, NULL, 0);
    }
    return period->steps;
}

static struct period begun(double loss)
{
    struct period period;

    period_init(&period, FIRST, BLOCK);
    step(&period, loss, FIRST);
    assert_true(period_turn(&period, NULL, 0));
    assert_true(period_may_say(&period));
    return period;
}

/* H = ceil(H_0 sqrt(F / F_0)), worked out by hand: F_0 is 4, a block's F the mean over all of it.
 */
static void it_is_the_published_equation(void **state)
{
    struct period period = begun(4);

    (void)state;
    assert_int_equal(period.steps, FIRST);
    step(&period, 4 - 2 * 1.0, BLOCK - FIRST); /* with the first 16: (16 4 + 48 2) / 64 = 2.5 */
    for (int i = 0; i < 3; i++) {
        (void)period_turn(&period, NULL, 0);
    }
    assert_int_equal(period.steps, 13);                /* 16 sqrt(2.5 / 4) = 12.65 */
    assert_int_equal(after_a_block(&period, 1), 8);    /* 16 sqrt(1 / 4) */
    assert_int_equal(after_a_block(&period, 0.36), 5); /* 16 sqrt(0.09) = 4.8 */
    assert_int_equal(after_a_block(&period, 0), 1);
    assert_int_equal(after_a_block(&period, 0), 1);
}

/* Where the equation does not shorten it, it is halved: so it never gets longer. */
static void it_is_halved_where_the_loss_falls_no_more(void **state)
{
    static const uint64_t wanted[] = {8, 4, 2, 1, 1};
    struct period period = begun(1);

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(wanted); i++) {
        assert_int_equal(after_a_block(&period, 1.0 + (double)i), wanted[i]);
    }
}

/* One batch says nothing: between two ends of blocks nothing changes. */
static void nothing_changes_within_a_block(void **state)
{
    struct period period = begun(4);

    (void)state;
    for (uint64_t steps = FIRST; steps < BLOCK; steps++) {
        step(&period, 1e-6, 1);
        if (steps + 1 == BLOCK) break;
        assert_false(period_turn(&period, NULL, 0));
        assert_int_equal(period.steps, FIRST);
    }
    assert_true(period_turn(&period, NULL, 0)); /* its F */
    assert_int_equal(period.steps, FIRST);
    assert_true(period_turn(&period, NULL, 0)); /* what follows */
    assert_int_equal(period.steps, FIRST);
    assert_false(period_turn(&period, NULL, 0));
    assert_true(period.steps < FIRST);
}

/* All members turn; each hears what the others said before. */
static void turn_all(struct period periods[MEMBERS], const struct period_told *liar)
{
    struct period_told told[MEMBERS];

    for (uint32_t i = 0; i < MEMBERS; i++) {
        told[i] = liar != NULL && i == 0 ? *liar : periods[i].own;
    }
    for (uint32_t i = 0; i < MEMBERS; i++) {
        struct period_told others[MEMBERS];
        size_t count = 0;

        for (uint32_t k = 0; k < MEMBERS; k++) {
            if (k != i) others[count++] = told[k];
        }
        (void)period_turn(&periods[i], others, count);
    }
}

/* Whatever each measures, all have the same period, in each of 160 rounds (T20), beside a liar too.
 */
static void run_together(uint64_t seed, const struct period_told *liar)
{
    struct period periods[MEMBERS];
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (uint32_t i = 0; i < MEMBERS; i++) {
        period_init(&periods[i], FIRST, BLOCK);
    }
    for (int round = 0; round < 160; round++) {
        double falls = 4 * exp(-0.02 * round);

        for (uint32_t i = 0; i < MEMBERS; i++) {
            step(&periods[i], falls * (0.9 + 0.2 * rng_unit(&rng)), FIRST);
        }
        turn_all(periods, liar);
        for (uint32_t i = 2; i < MEMBERS; i++) {
            check_seed(seed, periods[i].steps == periods[1].steps);
        }
        check_seed(seed, periods[1].steps >= 1 && periods[1].steps <= FIRST);
    }
    check_seed(seed, periods[1].steps == 1);
}

static void members_agree(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        run_together(seed, NULL);
    }
}

static void one_liar_decides_nothing(void **state)
{
    static const struct period_told lies[] = {
        {0, 4, 1},     {1e30, 1e-30, UINT64_MAX}, {1e30, 1e30, 16},
        {NAN, NAN, 0}, {-1, INFINITY, 1u << 20},  {0, 0, 0}};
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lies); i++) {
        FOR_EACH_SEED (seed, 5) {
            run_together(seed, &lies[i]);
        }
    }
}

/* A liar says that the loss is zero, or that H is 1, from the first block on: the others' H is what
 * it is without one, to a step. */
static void one_liar_moves_little(void **state)
{
    static const struct period_told lies[] = {{0, 4, 1}, {1e30, 1e-30, UINT64_MAX}};

    (void)state;
    for (size_t l = 0; l < ARRAY_COUNT(lies); l++) {
        struct period beside[MEMBERS], alone[MEMBERS];

        for (uint32_t i = 0; i < MEMBERS; i++) {
            period_init(&beside[i], FIRST, BLOCK);
            period_init(&alone[i], FIRST, BLOCK);
        }
        for (int round = 0; alone[1].steps >= 4; round++) { /* no block that would halve it */
            for (uint32_t i = 0; i < MEMBERS; i++) {
                double loss = 4 * exp(-0.1 * round) * (1 + 0.01 * i);

                step(&beside[i], loss, FIRST);
                step(&alone[i], loss, FIRST);
            }
            turn_all(beside, &lies[l]);
            turn_all(alone, NULL);
            assert_true(beside[1].steps <= alone[1].steps + 1);
            assert_true(alone[1].steps <= beside[1].steps + 1);
        }
    }
}

/* The first who speaks decides nothing either: who has said nothing yet is for what is. */
static void who_is_silent_keeps_what_is(void **state)
{
    const struct period_told others[] = {{0, 1, 1}, {0, 0, 0}, {0, 0, 0}};
    struct period period;

    (void)state;
    period_init(&period, FIRST, BLOCK);
    (void)period_turn(&period, others, 3);
    assert_int_equal(period.steps, FIRST);
    step(&period, 4, FIRST);
    (void)period_turn(&period, others, 3);
    assert_int_equal(period.steps, FIRST);
    assert_true(period.own.first == 4);
}

/* Who comes late has H at once, and says of the start what the others say: its own first loss would
 * have it take the swarm for one that has just begun. */
static void who_comes_late_has_what_the_others_have(void **state)
{
    const struct period_told others[] = {{0.5, 4, 6}, {0.6, 4.1, 6}, {0.4, 3.9, 6}};
    struct period late;

    (void)state;
    period_init(&late, FIRST, BLOCK);
    period_join(&late);
    assert_false(period_may_say(&late));
    step(&late, 0.5, 3);
    assert_true(period_turn(&late, others, 3));
    assert_int_equal(late.steps, 6);
    assert_true(late.own.first == 4);
    assert_int_equal(late.own.steps, 6);
}

/* It goes on where it was; what is not sound, as another wrote it, is refused, and settings are
 * those of now. */
static void it_goes_on_from_what_was_kept(void **state)
{
    struct period period = begun(4), again, other;

    (void)state;
    step(&period, 1, BLOCK + 7);
    (void)period_turn(&period, NULL, 0);
    period_init(&again, FIRST, BLOCK);
    assert_true(period_resume(&again, &period));
    for (int i = 0; i < 5; i++) {
        step(&period, 0.5, 40);
        step(&again, 0.5, 40);
        assert_int_equal(period_turn(&period, NULL, 0), period_turn(&again, NULL, 0));
        assert_int_equal(period.steps, again.steps);
        assert_true(period.own.loss == again.own.loss && period.own.first == again.own.first);
    }
    period_init(&again, 4, BLOCK);
    assert_true(period_resume(&again, &period));
    assert_true(again.steps <= 4 && again.first_steps == 4);
    for (int i = 0; i < 4; i++) {
        other = period;
        if (i == 0) other.steps = 0;
        if (i == 1) other.loss_sum = (double)INFINITY;
        if (i == 2) other.own.loss = (double)NAN;
        if (i == 3) other.own.first = (double)NAN;
        period_init(&again, FIRST, BLOCK);
        assert_false(period_resume(&again, &other));
        assert_int_equal(again.steps, FIRST);
    }
}

/* A block whose loss is no number says nothing, and is not carried on. */
static void what_is_no_number_says_nothing(void **state)
{
    struct period period = begun(4);

    (void)state;
    period_stepped(&period, (double)NAN, 1);
    assert_int_equal(after_a_block(&period, 1), 11); /* (16 4 + 64 1) / 80 = 1.6 */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_published_equation),
        cmocka_unit_test(it_is_halved_where_the_loss_falls_no_more),
        cmocka_unit_test(nothing_changes_within_a_block),
        cmocka_unit_test(members_agree),
        cmocka_unit_test(one_liar_decides_nothing),
        cmocka_unit_test(one_liar_moves_little),
        cmocka_unit_test(who_is_silent_keeps_what_is),
        cmocka_unit_test(who_comes_late_has_what_the_others_have),
        cmocka_unit_test(it_goes_on_from_what_was_kept),
        cmocka_unit_test(what_is_no_number_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
