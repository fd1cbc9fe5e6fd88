/* Seeded chance: the published recurrence, and the distributions made from it. */
#include "tests/check.h"

#include "base/rng.h"

#include <math.h>
#include <stdbool.h>

enum { DRAWS = 200000 };

/* The generator is xoshiro256**: outputs for the state {1, 2, 3, 4} are the published ones. */
static void rng_u64_follows_the_published_recurrence(void **state)
{
    static const uint64_t expected[] = {UINT64_C(11520),
                                        UINT64_C(0),
                                        UINT64_C(1509978240),
                                        UINT64_C(1215971899390074240),
                                        UINT64_C(1216172134540287360),
                                        UINT64_C(607988272756665600),
                                        UINT64_C(16172922978634559625),
                                        UINT64_C(8476171486693032832),
                                        UINT64_C(10595114339597558777),
                                        UINT64_C(2904607092377533576)};
    struct rng rng = {{1, 2, 3, 4}};

    (void)state;
    for (size_t i = 0; i < sizeof expected / sizeof *expected; i++) {
        assert_true(rng_u64(&rng) == expected[i]);
    }
}

/* A stream depends on seed and purpose alone, and copying it saves it. */
static void a_stream_is_its_seed_and_purpose(void **state)
{
    struct rng a, b, c, d;

    (void)state;
    rng_init(&a, 7, 1);
    rng_init(&b, 7, 1);
    rng_init(&c, 7, 2);
    rng_init(&d, 8, 1);
    for (int i = 0; i < 100; i++) {
        uint64_t draw = rng_u64(&a);

        assert_true(draw == rng_u64(&b));
        assert_true(draw != rng_u64(&c));
        assert_true(draw != rng_u64(&d));
    }
    c = a;
    assert_true(rng_u64(&a) == rng_u64(&c));
}

/* Small bounds are hit evenly (chi-squared, 6 degrees), and no bound is ever reached. */
static void below_is_even_and_below(void **state)
{
    uint64_t seen[7] = {0};
    double chi2 = 0.0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 1, 1);
    for (int i = 0; i < DRAWS; i++) {
        uint64_t draw = rng_below(&rng, 7);

        assert_true(draw < 7);
        seen[draw]++;
    }
    for (int i = 0; i < 7; i++) {
        double expected = DRAWS / 7.0, off = (double)seen[i] - expected;

        chi2 += off * off / expected;
    }
    assert_true(chi2 < 22.5); /* p = 0.001 */
    for (int i = 0; i < 1000; i++) {
        assert_true(rng_below(&rng, 1) == 0);
        assert_true(rng_below(&rng, (UINT64_C(1) << 63) + 1) <= UINT64_C(1) << 63);
    }
}

/* Every tenth of a bound is hit as often as any other (chi-squared, 9 degrees), whether the bound
 * is small or so large that a remainder alone would hit its lower half twice as often. */
static void below_reaches_all_of_its_bound(void **state)
{
    static const uint64_t bounds[] = {
        8, 10, 1000, UINT64_C(1) << 40, (UINT64_C(1) << 63) + 1, UINT64_C(3) << 62, UINT64_MAX};
    struct rng rng;

    (void)state;
    for (size_t b = 0; b < sizeof bounds / sizeof *bounds; b++) {
        const uint64_t parts = bounds[b] < 10 ? bounds[b] : 10;
        uint64_t seen[10] = {0};
        double chi2 = 0.0;

        rng_init(&rng, 7, b);
        for (int i = 0; i < DRAWS; i++) {
            uint64_t draw = rng_below(&rng, bounds[b]);
            uint64_t part = draw / (bounds[b] / parts);

            assert_true(draw < bounds[b]);
            seen[part < parts ? part : parts - 1]++; /* what does not divide is a few numbers */
        }
        for (uint64_t i = 0; i < parts; i++) {
            double expected = DRAWS / (double)parts, off = (double)seen[i] - expected;

            chi2 += off * off / expected;
        }
        assert_true(chi2 < 27.9); /* p = 0.001 */
    }
}

/* Mean and variance of `draw` within five standard errors, roughly. */
static void check_moments(const double *draws, double mean, double variance, double tolerance)
{
    double sum = 0.0, squares = 0.0;

    for (int i = 0; i < DRAWS; i++) {
        sum += draws[i];
    }
    sum /= DRAWS;
    for (int i = 0; i < DRAWS; i++) {
        squares += (draws[i] - sum) * (draws[i] - sum);
    }
    squares /= DRAWS;
    assert_true(fabs(sum - mean) < 5.0 * sqrt(variance / DRAWS));
    assert_true(fabs(squares - variance) < tolerance * variance);
}

/* Uniform numbers lie in [0, 1) with mean 1/2 and variance 1/12. */
static void unit_is_uniform(void **state)
{
    double *draws = calloc(DRAWS, sizeof *draws);
    struct rng rng;

    (void)state;
    rng_init(&rng, 2, 1);
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = rng_unit(&rng);
        assert_true(draws[i] >= 0.0 && draws[i] < 1.0);
    }
    check_moments(draws, 0.5, 1.0 / 12.0, 0.02);
    free(draws);
}

/* Normal numbers have mean 0, variance 1, and 4.55 % of them beyond two deviations. */
static void normal_is_normal(void **state)
{
    double *draws = calloc(DRAWS, sizeof *draws);
    int far = 0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 3, 1);
    for (int i = 0; i < DRAWS; i++) {
        draws[i] = rng_normal(&rng);
        far += fabs(draws[i]) > 2.0;
    }
    check_moments(draws, 0.0, 1.0, 0.02);
    assert_true(fabs(far / (double)DRAWS - 0.0455) < 0.0025);
    free(draws);
}

/* Gamma numbers of any shape have mean and variance equal to the shape. */
static void gamma_has_its_moments(void **state)
{
    static const double shapes[] = {0.05, 0.5, 1.0, 3.0, 50.0};
    double *draws = calloc(DRAWS, sizeof *draws);
    struct rng rng;

    (void)state;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        rng_init(&rng, 4, s);
        for (int i = 0; i < DRAWS; i++) {
            draws[i] = rng_gamma(&rng, shapes[s]);
            assert_true(draws[i] >= 0.0 && isfinite(draws[i]));
        }
        check_moments(draws, shapes[s], shapes[s], 0.15);
    }
    free(draws);
}

/* All 24 orders of four items come up about equally often (chi-squared, 23 degrees). */
static void shuffle_is_fair(void **state)
{
    uint32_t seen[256] = {0};
    double chi2 = 0.0;
    int orders = 0;
    struct rng rng;

    (void)state;
    rng_init(&rng, 5, 1);
    for (int i = 0; i < 24000; i++) {
        uint32_t items[4] = {0, 1, 2, 3};

        rng_shuffle(&rng, items, 4);
        seen[items[0] << 6 | items[1] << 4 | items[2] << 2 | items[3]]++;
    }
    for (int i = 0; i < 256; i++) {
        if (seen[i] == 0) continue;
        orders++;
        chi2 += (seen[i] - 1000.0) * (seen[i] - 1000.0) / 1000.0;
    }
    assert_int_equal(orders, 24);
    assert_true(chi2 < 49.7); /* p = 0.001 */
}

/* Nothing and one item can be shuffled. */
static void shuffle_takes_small_counts(void **state)
{
    uint32_t item = 9;
    struct rng rng;

    (void)state;
    rng_init(&rng, 6, 1);
    rng_shuffle(&rng, NULL, 0);
    rng_shuffle(&rng, &item, 1);
    assert_int_equal(item, 9);
}

/* The mixer is a function, tells its arguments apart, and half of the bits flip with one. */
static void mix_spreads_every_bit(void **state)
{
    int flipped = 0;

    (void)state;
    assert_true(rng_mix(1, 2) == rng_mix(1, 2));
    assert_true(rng_mix(1, 2) != rng_mix(2, 1));
    for (unsigned bit = 0; bit < 64; bit++) {
        uint64_t a = rng_mix(5, 6) ^ rng_mix(UINT64_C(5) ^ UINT64_C(1) << bit, 6);
        uint64_t b = rng_mix(5, 6) ^ rng_mix(5, UINT64_C(6) ^ UINT64_C(1) << bit);

        assert_true(a != 0 && b != 0);
        flipped += __builtin_popcountll(a) + __builtin_popcountll(b);
    }
    assert_in_range(flipped, 128 * 32 - 200, 128 * 32 + 200);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rng_u64_follows_the_published_recurrence),
        cmocka_unit_test(a_stream_is_its_seed_and_purpose),
        cmocka_unit_test(below_is_even_and_below),
        cmocka_unit_test(below_reaches_all_of_its_bound),
        cmocka_unit_test(unit_is_uniform),
        cmocka_unit_test(normal_is_normal),
        cmocka_unit_test(gamma_has_its_moments),
        cmocka_unit_test(shuffle_is_fair),
        cmocka_unit_test(shuffle_takes_small_counts),
        cmocka_unit_test(mix_spreads_every_bit),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
