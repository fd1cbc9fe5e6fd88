/* One normalisation out of what members tell of their own data. */
#include "tests/check.h"

#include "averaging/core/measures.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { MEMBERS = 7, CHANNELS = 3 };

struct merged {
    float mean[CHANNELS], scale[CHANNELS];
};

static struct merged merge(const struct measures *members, size_t count)
{
    struct merged merged;

    assert_int_equal(measures_merge(members, count, CHANNELS, merged.mean, merged.scale), RC_OK);
    return merged;
}

/* Honest sites: means 0 to 3, deviations near 1, of 100 to 199 samples. */
static void draw(struct rng *rng, struct measures members[MEMBERS],
                 float values[MEMBERS][2 * CHANNELS])
{
    for (size_t i = 0; i < MEMBERS; i++) {
        for (size_t c = 0; c < CHANNELS; c++) {
            values[i][c] = (float)(3.0 * rng_unit(rng));
            values[i][CHANNELS + c] = (float)(0.5 + rng_unit(rng));
        }
        members[i] = (struct measures){100 + rng_below(rng, 100), values[i]};
    }
}

/* Of members that are as large and alike it is what all samples together would give. */
static void it_is_the_mean_and_deviation_of_all_samples(void **state)
{
    static const float a[] = {0, 10, 5, 1, 2, 0}, b[] = {2, 10, 5, 1, 4, 0};
    const struct measures members[] = {{100, a}, {100, b}};
    struct merged merged = merge(members, 2);

    (void)state;
    assert_float_equal(merged.mean[0], 1.0, 1e-6);
    assert_float_equal(merged.scale[0], (float)(1.0 / sqrt(2.0)), 1e-6);
    assert_float_equal(merged.mean[1], 10.0, 1e-6);
    assert_float_equal(merged.scale[1], (float)(1.0 / sqrt(10.0)), 1e-6);
    assert_float_equal(merged.mean[2], 5.0, 1e-6); /* constant everywhere: it is not divided */
    assert_float_equal(merged.scale[2], 1.0, 0);
}

/* In another unit at one of two: both means and what lies between them count. */
static void two_far_apart_meet_in_the_middle(void **state)
{
    static const float a[] = {1, 0, 0, 1, 1, 1}, b[] = {100, 0, 0, 1, 1, 1};
    const struct measures members[] = {{300, a}, {300, b}};
    struct merged merged = merge(members, 2);

    (void)state;
    assert_float_equal(merged.mean[0], 50.5, 1e-4);
    assert_float_equal(merged.scale[0], (float)(1.0 / sqrt(1.0 + 49.5 * 49.5)), 1e-6);
}

static void all_orders_of_arrival_give_the_same_bits(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 50) {
        struct rng rng;
        struct measures members[MEMBERS];
        float values[MEMBERS][2 * CHANNELS];
        struct merged first, other;

        rng_init(&rng, seed, 1);
        draw(&rng, members, values);
        first = merge(members, MEMBERS);
        for (size_t i = MEMBERS; i > 1; i--) {
            size_t j = (size_t)rng_below(&rng, i);
            struct measures held = members[i - 1];

            members[i - 1] = members[j];
            members[j] = held;
        }
        other = merge(members, MEMBERS);
        check_seed(seed, memcmp(&first, &other, sizeof first) == 0);
    }
}

/* Whatever fewer than half of the members say, the merge stays near what the others say: their
 * means are within 3, so is the median, and nobody is taken to be farther than 4 spreads of at most
 * 3 from it. */
static void liars_do_not_decide(void **state)
{
    static const float lies[] = {1e18F, -1e18F, 1e6F, 40.0F, 0.0F};

    (void)state;
    FOR_EACH_SEED (seed, 100) {
        struct rng rng;
        struct measures members[MEMBERS];
        float values[MEMBERS][2 * CHANNELS];
        struct merged merged;

        rng_init(&rng, seed, 2);
        draw(&rng, members, values);
        for (size_t i = 0; i < 3; i++) {
            for (size_t c = 0; c < CHANNELS; c++) {
                values[i][c] = lies[rng_below(&rng, 5)];
                values[i][CHANNELS + c] = fabsf(lies[rng_below(&rng, 5)]);
            }
            members[i].samples = MEASURES_SAMPLES_MAX;
        }
        merged = merge(members, MEMBERS);
        for (size_t c = 0; c < CHANNELS; c++) {
            check_seed(seed, merged.mean[c] > -12.0F && merged.mean[c] < 15.0F);
            check_seed(seed, merged.scale[c] > 1.0F / 30.0F && merged.scale[c] < 10.0F);
        }
    }
}

static void who_claims_many_samples_counts_twice_the_median(void **state)
{
    static const float a[] = {0, 0, 0, 1, 1, 1}, b[] = {1, 1, 1, 1, 1, 1};
    const struct measures members[] = {{100, a}, {100, a}, {1000000, b}};
    struct merged merged = merge(members, 3);

    (void)state;
    assert_float_equal(merged.mean[0], 0.5, 1e-6);
}

/* A column that is constant at most sites still has the deviation of the others, as far as it makes
 * values smaller: one site alone must not blow up what the others hardly vary in. */
static void a_channel_that_is_constant_at_most_is_not_forgotten(void **state)
{
    static const float a[] = {0, 0, 0.1F, 0, 1, 0}, b[] = {500, 0, 0.1F, 500, 1, 1e-30F};
    const struct measures members[] = {{100, a}, {100, a}, {100, b}};
    struct merged merged = merge(members, 3);

    (void)state;
    assert_true(merged.scale[0] > 1.0F / 600 && merged.scale[0] < 1.0F / 100);
    assert_float_equal(merged.scale[2], 1.0F, 1e-6);
    assert_float_equal(merged.mean[2], 0.1F, 1e-6);
}

/* Every merge that a liar of seven can bring about by telling some members this and others that is
 * allowed by each honest one; what none of them could bring about is not. */
static void what_liars_bring_about_is_allowed_and_no_more(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 100) {
        struct rng rng;
        struct measures members[MEMBERS];
        float values[MEMBERS][2 * CHANNELS];
        struct merged merged, far;

        rng_init(&rng, seed, 3);
        draw(&rng, members, values);
        merged = merge(members, MEMBERS);
        check_seed(seed,
                   measures_allow(members, MEMBERS, CHANNELS, merged.mean, merged.scale) == RC_OK);
        values[0][0] = (float)(1e6 * rng_unit(&rng)); /* told to this one alone */
        values[0][CHANNELS] = (float)(1e6 * rng_unit(&rng));
        check_seed(seed,
                   measures_allow(members, MEMBERS, CHANNELS, merged.mean, merged.scale) == RC_OK);
        far = merged;
        far.mean[1] += 40.0F;
        check_seed(seed,
                   measures_allow(members, MEMBERS, CHANNELS, far.mean, far.scale) == RC_AUTH);
        far = merged;
        far.scale[2] *= seed % 2 == 0 ? 100.0F : 0.01F;
        check_seed(seed,
                   measures_allow(members, MEMBERS, CHANNELS, far.mean, far.scale) == RC_AUTH);
    }
}

static void what_no_data_have_is_refused(void **state)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY, 2e18F, -2e18F};
    float values[2 * CHANNELS] = {0, 0, 0, 1, 1, 1};
    struct measures member = {100, values};

    (void)state;
    assert_true(measures_are_sound(&member, CHANNELS));
    for (size_t at = 0; at < 2 * CHANNELS; at++) {
        for (size_t k = 0; k < sizeof bad / sizeof bad[0]; k++) {
            float held = values[at];

            values[at] = bad[k];
            assert_false(measures_are_sound(&member, CHANNELS));
            values[at] = held;
        }
    }
    values[CHANNELS] = -1.0F; /* no deviation */
    assert_false(measures_are_sound(&member, CHANNELS));
    values[CHANNELS] = 0.0F;
    assert_true(measures_are_sound(&member, CHANNELS));
    member.samples = 0;
    assert_false(measures_are_sound(&member, CHANNELS));
    member.samples = UINT64_MAX; /* a negative count, as it arrives */
    assert_false(measures_are_sound(&member, CHANNELS));
}

static void without_memory_it_says_so(void **state)
{
    static const float a[] = {0, 0, 0, 1, 1, 1};
    const struct measures members[] = {{100, a}, {100, a}};
    struct merged merged;

    (void)state;
    for (uint64_t after = 0; after < 2; after++) {
        mem_fail_after(after);
        assert_int_equal(measures_merge(members, 2, CHANNELS, merged.mean, merged.scale), RC_NOMEM);
        mem_fail_after(UINT64_MAX);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_the_mean_and_deviation_of_all_samples),
        cmocka_unit_test(two_far_apart_meet_in_the_middle),
        cmocka_unit_test(all_orders_of_arrival_give_the_same_bits),
        cmocka_unit_test(liars_do_not_decide),
        cmocka_unit_test(who_claims_many_samples_counts_twice_the_median),
        cmocka_unit_test(a_channel_that_is_constant_at_most_is_not_forgotten),
        cmocka_unit_test(what_liars_bring_about_is_allowed_and_no_more),
        cmocka_unit_test(what_no_data_have_is_refused),
        cmocka_unit_test(without_memory_it_says_so),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
