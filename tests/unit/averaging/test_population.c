/* Tests of averaging/core/population: the tournament, what is explored, who is left alone. */
#include "tests/check.h"

#include "averaging/core/population.h"

#include <math.h>

static const struct population_settings usual = {
    .every_steps = 4, .margin = 0.02, .spread = 3, .resample = 0.25};
static const struct population_rates given = {.rate = 0.1, .decay = 1e-4};
static const struct digest part = {{1}}, other_part = {{2}};

static struct peer_id id_of(uint32_t number)
{
    return (struct peer_id){{(uint8_t)(number + 1), (uint8_t)(number >> 8)}};
}

static void first_rates_are_spread_around_what_was_given(void **state)
{
    /* Proves: they lie within the spread, on both sides, and a spread of 1 leaves them. */
    (void)state;
    uint32_t above = 0, seeds = 0;

    FOR_EACH_SEED (seed, 200) {
        struct population p;
        struct population_settings narrow = usual;

        population_init(&p, &usual, given, seed, seed);
        assert_true(p.own.rates.rate >= given.rate / 3.001 &&
                    p.own.rates.rate <= given.rate * 3.001);
        assert_true(p.own.rates.decay >= given.decay / 3.001);
        above += p.own.rates.rate > given.rate;
        seeds++;
        assert_true(isnan(p.own.loss));
        narrow.spread = 1;
        population_init(&p, &narrow, (struct population_rates){0.1, 0}, seed, seed);
        assert_true(p.own.rates.rate == 0.1 && p.own.rates.decay == 0);
    }
    assert_in_range(above, 3 * seeds / 10, 7 * seeds / 10 + 1); /* fewer seeds with sanitizers */
}

static void scores_are_due_at_equal_steps(void **state)
{
    /* Proves: at each multiple of the period, whatever step a copy came at. */
    (void)state;
    struct population p;

    population_init(&p, &usual, given, 1, 1);
    assert_int_equal(population_steps_left(&p, 0), 4);
    assert_int_equal(population_steps_left(&p, 3), 1);
    assert_int_equal(population_steps_left(&p, 4), 0);
    assert_int_equal(population_steps_left(&p, 1000), 0);
    population_score(&p, 1, 6, part);
    assert_int_equal(population_steps_left(&p, 6), 2);
}

static void the_better_is_preferred_by_a_margin(void **state)
{
    /* Proves: clearly better, not younger, scored on the same samples, and a number: all of them.
     */
    (void)state;
    struct population p;
    struct population_told told = {.loss = 0.5, .step = 8, .part = part, .rates = given};

    population_init(&p, &usual, given, 1, 1);
    assert_false(population_prefers(&p, &told)); /* we have no score yet */
    population_score(&p, 1, 8, part);
    assert_true(population_prefers(&p, &told));
    told.loss = 0.981;
    assert_false(population_prefers(&p, &told));
    told.loss = 0.979;
    assert_true(population_prefers(&p, &told));
    told.step = 7;
    assert_false(population_prefers(&p, &told));
    told.step = 9;
    told.part = other_part;
    assert_false(population_prefers(&p, &told));
    told.part = part;
    told.loss = (double)NAN;
    assert_false(population_prefers(&p, &told));
    told.loss = (double)INFINITY;
    assert_false(population_prefers(&p, &told));
    population_score(&p, (double)INFINITY, 8, part);
    assert_false(population_prefers(&p, &told));
    told.loss = 1e9; /* anybody is better than who is lost */
    assert_true(population_prefers(&p, &told));
}

static void scores_are_smoothed(void **state)
{
    /* Proves: half of the new one, half of those before; one that ran away, and the one after it,
     * count as they are. */
    (void)state;
    struct population p;

    population_init(&p, &usual, given, 1, 1);
    population_score(&p, 2, 4, part);
    population_score(&p, 1, 8, part);
    assert_true(fabs(p.own.loss - 1.5) < 1e-12);
    population_score(&p, (double)NAN, 12, part);
    assert_true(isinf(p.own.loss) && p.own.loss > 0);
    population_score(&p, 3, 16, part);
    assert_true(p.own.loss == 3);
}

static void a_copy_brings_rates_that_are_explored(void **state)
{
    /* Proves: times 0.8 or 1.2, or drawn anew around what was copied; both happen, and so does each
     * way; the line comes along. */
    (void)state;
    uint32_t up = 0, down = 0, anew = 0;

    for (uint64_t seed = 1; seed <= 400; seed++) {
        struct population p;
        const struct population_told told = {
            .loss = 0.5, .step = 8, .part = part, .rates = {0.05, 1e-4}, .line = 77};

        population_init(&p, &usual, given, 1, seed);
        population_take(&p, id_of(3), &told, 0.6, 9);
        assert_int_equal(p.own.line, 77);
        assert_int_equal(p.own.step, 9);
        assert_true(p.own.loss == 0.6);
        assert_int_equal(p.copies, 1);
        if (fabs(p.own.rates.rate - 0.06) < 1e-12) {
            up++;
        } else if (fabs(p.own.rates.rate - 0.04) < 1e-12) {
            down++;
        } else {
            anew++;
            assert_true(p.own.rates.rate > 0.05 / 3.001 && p.own.rates.rate < 0.15001);
        }
    }
    assert_in_range(up, 110, 190);
    assert_in_range(down, 110, 190);
    assert_in_range(anew, 70, 130);
}

static void rates_of_others_are_bounded(void **state)
{
    /* Proves: what is no rate, or absurd, becomes one within nine times of ours; and none of
     * decay stays none. */
    (void)state;
    static const double absurd[] = {1e30, 1e-30, 0, -1, NAN, INFINITY};

    for (size_t i = 0; i < sizeof absurd / sizeof *absurd; i++) {
        struct population p;
        const struct population_told told = {
            .loss = 0.5, .step = 8, .part = part, .rates = {absurd[i], absurd[i]}};

        population_init(&p, &usual, (struct population_rates){0.1, 0}, 1, i);
        const double before = p.own.rates.rate;
        population_take(&p, id_of(3), &told, 0.6, 9);
        assert_true(p.own.rates.rate >= before / 9 * 0.8 / 3 * 0.999);
        assert_true(p.own.rates.rate <= before * 9 * 3 * 1.001); /* explored, too */
        assert_true(p.own.rates.decay == 0);
    }
}

static void who_lies_is_left_alone_for_longer_each_time(void **state)
{
    /* Proves: 4, 16, 64 scores; one good copy and it counts as before; a full table of liars makes
     * room and does not grow. */
    (void)state;
    struct population p;
    const struct population_told told = {.loss = 0.5, .step = 8, .part = part, .rates = given};
    uint64_t waited = 0;

    population_init(&p, &usual, given, 1, 1);
    assert_false(population_is_watched(&p, id_of(0)));
    assert_false(population_refuse(&p, id_of(0), &told, 0.505)); /* as it said: we got on */
    assert_false(population_is_watched(&p, id_of(0)));
    for (uint32_t k = 1, expected = 4; k <= 3; k++, expected *= 4) {
        assert_true(population_refuse(&p, id_of(0), &told, 1));
        for (waited = 0; population_is_watched(&p, id_of(0)); waited++) {
            population_score(&p, 1, 8, part);
        }
        assert_int_equal(waited, expected);
    }
    assert_int_equal(p.refused, 4);
    assert_true(population_refuse(&p, id_of(0), &told, 1));
    assert_true(population_is_watched(&p, id_of(0)));
    population_take(&p, id_of(0), &told, 0.5, 8);
    assert_false(population_is_watched(&p, id_of(0)));
    for (uint32_t i = 0; i < 3 * POPULATION_WATCHED_MAX; i++) {
        assert_true(population_refuse(&p, id_of(i), &told, 0.52));
        assert_true(population_is_watched(&p, id_of(i)));
    }
    assert_int_equal(p.watched_count, POPULATION_WATCHED_MAX);
    for (int i = 0; i < 100; i++) {
        assert_true(population_refuse(&p, id_of(9), &told, 1)); /* no overflow */
    }
}

static void who_runs_away_slows_down(void **state)
{
    /* Proves: half of the rate each time, to a bound; and it is worse than anybody. */
    (void)state;
    struct population p;

    population_init(&p, &usual, given, 1, 1);
    const double before = p.own.rates.rate;
    population_ran_away(&p);
    assert_true(p.own.rates.rate == before / 2 && isinf(p.own.loss));
    for (int i = 0; i < 100; i++) {
        population_ran_away(&p);
    }
    assert_true(p.own.rates.rate >= 0.1 / 1000 * 0.999);
}

static void who_gives_nothing_is_asked_again(void **state)
{
    /* Proves: who is busy each time, as a liar may have it, is left alone for 64 scores at most. */
    (void)state;
    struct population p;
    const struct population_told told = {.loss = 0.5, .step = 1, .part = part, .rates = given};

    population_init(&p, &usual, given, 1, 1);
    for (int i = 0; i < 20; i++) {
        assert_true(population_refuse(&p, id_of(0), &told, (double)NAN));
    }
    assert_true(population_is_watched(&p, id_of(0)));
    for (int i = 0; i < 64; i++) {
        population_score(&p, 1, 4, part);
    }
    assert_false(population_is_watched(&p, id_of(0)));
}

static void checkpoints_of_no_sound_rates_are_refused(void **state)
{
    /* Proves: what is no number changes nothing; what is sound is gone on with, in bounds. */
    (void)state;
    struct population p;

    population_init(&p, &usual, given, 1, 1);
    const struct population before = p;
    assert_false(population_resume(&p, (struct population_rates){(double)NAN, 0}, 1, 2));
    assert_false(population_resume(&p, (struct population_rates){0, 0}, 1, 2));
    assert_false(population_resume(&p, (struct population_rates){0.1, -1}, 1, 2));
    assert_false(population_resume(&p, (struct population_rates){0.1, (double)INFINITY}, 1, 2));
    assert_memory_equal(&p, &before, sizeof p);
    assert_true(population_resume(&p, (struct population_rates){0.07, 2e-4}, 5, 2));
    assert_true(p.own.rates.rate == 0.07 && p.own.rates.decay == 2e-4);
    assert_int_equal(p.own.line, 5);
    assert_int_equal(p.copies, 2);
}

static void counts_that_others_say_are_bounded(void **state)
{
    /* Proves: never less than ours, and at most so much beyond the larger of ours and the median,
     * without overflow; where nobody else is there all that is more is taken as it is. */
    (void)state;
    assert_int_equal(population_bound_count(105, 100, 80, 10), 105);
    assert_int_equal(population_bound_count(UINT64_MAX, 100, 80, 10), 110);
    assert_int_equal(population_bound_count(UINT64_MAX, 10, 80, 10), 90);
    assert_true(population_bound_count(UINT64_MAX, UINT64_MAX - 1, 0, 10) == UINT64_MAX);
    assert_int_equal(population_bound_count(0, 100, 80, 10), 100);
    assert_int_equal(population_bound_count(12345, 100, UINT64_MAX, 10), 12345);
}

/* ---- the surrogate of the paper, section 3 ---- */

enum { WORKERS = 8 };

/* Q = 1.2 - th1^2 - th2^2 is to be made large, and each worker climbs its own surrogate of it,
 * 1.2 - h1 th1^2 - h2 th2^2, whose hyper-parameters h say how fast, and are mostly too small. */
struct worker {
    struct population p;
    double th1, th2;
};

static double loss_of(const struct worker *w)
{
    return w->th1 * w->th1 + w->th2 * w->th2; /* 1.2 - Q */
}

/* The machine's rates stand for h1 and h2; beyond 1 a step is too long. */
static void climb(struct worker *w)
{
    const struct population_rates h = w->p.own.rates;

    for (uint64_t i = 0; i < usual.every_steps; i++) {
        w->th1 -= 2 * h.rate * w->th1;
        w->th2 -= 2 * h.decay * w->th2;
    }
}

static void meet(struct worker *w, const struct worker *other, uint32_t id, uint64_t step)
{
    const struct population_told told = other->p.own;

    /* What is served is scored before it is taken. */
    if (!population_prefers(&w->p, &told) || loss_of(other) >= loss_of(w)) return;
    w->th1 = other->th1;
    w->th2 = other->th2;
    population_take(&w->p, id_of(id), &told, loss_of(w), step);
}

/* The mean loss in the end, and how much the best score ever rose on the way. */
static double surrogate(uint64_t seed, bool exploits, double *rise)
{
    struct worker w[WORKERS];
    struct rng rng;
    double best = 2, last = 2, sum = 0;

    *rise = 0;
    rng_init(&rng, seed, 1);
    for (uint32_t i = 0; i < WORKERS; i++) {
        w[i].th1 = w[i].th2 = 0.9;
        population_init(&w[i].p, &usual, (struct population_rates){2e-3, 2e-3}, i, 100 * seed + i);
    }
    for (uint64_t step = 4; step <= 200; step += 4) {
        for (uint32_t i = 0; i < WORKERS; i++) {
            climb(&w[i]);
            population_score(&w[i].p, loss_of(&w[i]), step, part);
        }
        for (uint32_t i = 0; i < WORKERS && exploits; i++) {
            const uint32_t other = (uint32_t)rng_below(&rng, WORKERS);
            meet(&w[i], &w[other], other, step);
        }
        best = 2;
        for (uint32_t i = 0; i < WORKERS; i++) {
            best = fmin(best, loss_of(&w[i]));
        }
        *rise = fmax(*rise, best - last);
        last = best;
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        sum += loss_of(&w[i]) / WORKERS;
    }
    return sum;
}

static void the_surrogate_is_climbed_by_who_exploits_and_explores(void **state)
{
    /* Proves: a population finds faster rates than it began with and comes closer to Q = 1.2 than
     * the same workers alone, with every seed; the best of them is never lost on the way. */
    (void)state;
    double alone = 0, together = 0;

    for (uint64_t seed = 1; seed <= 20; seed++) {
        double rise;
        const double without = surrogate(seed, false, &rise), with = surrogate(seed, true, &rise);

        assert_true(with < without);
        assert_true(rise < 1e-9);
        alone += without / 20;
        together += with / 20;
    }
    print_message("mean loss %.4g alone, %.4g together\n", alone, together);
    assert_true(together < alone / 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_rates_are_spread_around_what_was_given),
        cmocka_unit_test(scores_are_due_at_equal_steps),
        cmocka_unit_test(the_better_is_preferred_by_a_margin),
        cmocka_unit_test(scores_are_smoothed),
        cmocka_unit_test(a_copy_brings_rates_that_are_explored),
        cmocka_unit_test(rates_of_others_are_bounded),
        cmocka_unit_test(who_lies_is_left_alone_for_longer_each_time),
        cmocka_unit_test(who_runs_away_slows_down),
        cmocka_unit_test(who_gives_nothing_is_asked_again),
        cmocka_unit_test(checkpoints_of_no_sound_rates_are_refused),
        cmocka_unit_test(counts_that_others_say_are_bounded),
        cmocka_unit_test(the_surrogate_is_climbed_by_who_exploits_and_explores),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
