/* How much a member's model counts in a mean, and its network in the split of the plane. */
#include "tests/check.h"

#include "averaging/core/weights.h"
#include "base/rng.h"

enum { MAX = 8 };

static void check_of(void (*weigh)(const uint64_t *, size_t, uint8_t *), size_t count,
                     const uint64_t *values, const uint8_t *wanted)
{
    uint8_t weights[MAX];

    weigh(values, count, weights);
    for (size_t i = 0; i < count; i++) {
        assert_int_equal(weights[i], wanted[i]);
    }
}

static void check(size_t count, const uint64_t *samples, const uint8_t *wanted)
{
    check_of(weights_of_samples, count, samples, wanted);
}

static void who_trained_as_much_counts_as_much(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){160, 150, 170, 220}, (const uint8_t[]){16, 16, 16, 16});
    check(3, (const uint64_t[]){0, 0, 0}, (const uint8_t[]){16, 16, 16});
    check(1, (const uint64_t[]){5}, (const uint8_t[]){16});
    check(2, (const uint64_t[]){100, 141}, (const uint8_t[]){16, 16});
}

static void a_straggler_counts_less(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){200, 200, 20, 200}, (const uint8_t[]){16, 16, 2, 16});
    check(4, (const uint64_t[]){200, 0, 200, 200}, (const uint8_t[]){16, 1, 16, 16});
    check(3, (const uint64_t[]){100, 200, 400}, (const uint8_t[]){8, 16, 32});
}

/* Two medians at most, whatever it says; and where most stand still, nothing. */
static void who_claims_too_much_gains_little(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){100, UINT64_MAX, 100, 100}, (const uint8_t[]){16, 32, 16, 16});
    check(2, (const uint64_t[]){100, UINT64_MAX}, (const uint8_t[]){16, 32});
    check(4, (const uint64_t[]){0, 0, 0, 7}, (const uint8_t[]){16, 16, 16, 16});
}

/* Who proposes chooses whom it is compared with: it counts no more than the median member. */
static void the_proposer_counts_no_more_than_the_median(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){UINT64_MAX, 100, 100, 100}, (const uint8_t[]){16, 16, 16, 16});
    check(3, (const uint64_t[]){400, 100, 200}, (const uint8_t[]){16, 8, 16});
    check_of(weights_of_rates, 4, (const uint64_t[]){UINT64_MAX, 100, 100, 100},
             (const uint8_t[]){16, 16, 16, 16});
}

static void a_rate_that_nobody_measured_is_like_the_others(void **state)
{
    (void)state;
    check_of(weights_of_rates, 4, (const uint64_t[]){0, 0, 0, 0},
             (const uint8_t[]){16, 16, 16, 16});
    check_of(weights_of_rates, 4, (const uint64_t[]){0, 100, 800, 100},
             (const uint8_t[]){16, 16, 32, 16});
    check_of(weights_of_rates, 3, (const uint64_t[]){0, 0, 5}, (const uint8_t[]){16, 16, 16});
}

/* Fewer than half of the members, whatever they say, do not change what the others, who are alike,
 * count. */
static void a_minority_moves_nobody_far(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 500) {
        uint64_t values[MAX];
        uint8_t weights[MAX];
        struct rng rng;
        size_t count, liars;

        rng_init(&rng, seed, 0);
        count = 3 + rng_below(&rng, MAX - 2);
        liars = rng_below(&rng, (count + 1) / 2);
        for (size_t i = 0; i < count; i++) {
            values[i] = i < liars ? rng_u64(&rng) >> rng_below(&rng, 64) : 1000;
        }
        weights_of_samples(values, count, weights);
        for (size_t i = 0; i < count; i++) {
            check_seed(seed, i < liars || weights[i] == WEIGHT_ONE);
            check_seed(seed, weights[i] <= WEIGHT_MAX);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_trained_as_much_counts_as_much),
        cmocka_unit_test(a_straggler_counts_less),
        cmocka_unit_test(who_claims_too_much_gains_little),
        cmocka_unit_test(the_proposer_counts_no_more_than_the_median),
        cmocka_unit_test(a_rate_that_nobody_measured_is_like_the_others),
        cmocka_unit_test(a_minority_moves_nobody_far),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
