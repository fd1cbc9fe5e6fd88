/* rate: the token bucket on a clock of the test's own. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "peer/env/rate.h"

static void without_a_limit_everything_passes(void **state)
{
    /* Rate 0, and one that no network has. */
    static const uint64_t none[] = {0, RATE_BYTES_PER_S_MAX + 1};
    struct rate rate;

    (void)state;
    for (unsigned i = 0; i < ARRAY_COUNT(none); i++) {
        rate_init(&rate, none[i], 5);
        assert_false(rate_is_limited(&rate));
        rate_take(&rate, 1000000);
        assert_true(rate_allows(&rate, 5, 0) == SIZE_MAX);
    }
}

static void what_passes_is_the_rate_and_one_burst(void **state)
{
    /* Takers that come at random times and take all they may get, at rates from 8 kbit to 800 gbit:
     * never more than rate * time + burst, and no less than the rate where they come often enough.
     */
    (void)state;
    FOR_EACH_SEED (seed, 50) {
        struct rng rng;
        struct rate rate;
        uint64_t now_ns, taken = 0, begun_ns, longest_ns = 0, bytes_per_s = 1000;
        double due;

        rng_init(&rng, seed, 1);
        for (uint64_t i = rng_below(&rng, 9); i > 0; i--) {
            bytes_per_s *= 10;
        }
        now_ns = begun_ns = rng_below(&rng, UINT64_C(1) << 50);
        rate_init(&rate, bytes_per_s, now_ns);
        for (int i = 0; i < 2000; i++) {
            uint64_t pause_ns = rng_below(&rng, 10 * NS_PER_MS);
            size_t most = rate_allows(&rate, now_ns += pause_ns, 0);

            rate_take(&rate, most);
            taken += most;
            if (pause_ns > longest_ns) longest_ns = pause_ns;
        }
        due = (double)bytes_per_s * (double)(now_ns - begun_ns) / 1e9;
        assert_true((double)taken <= due * 1.000001 + (double)rate.burst + 1);
        assert_true((double)taken >= due * 0.999999 - 1);
    }
}

static void who_goes_first_may_overdraw_and_the_others_wait_for_it(void **state)
{
    /* With the bucket empty a floor of one burst below still gets that much, once; the rest gets
     * nothing until the debt is paid, and rate_ready_ns() says when that is. */
    struct rate rate;
    uint64_t ready_ns;

    (void)state;
    rate_init(&rate, 1000000, 0);
    assert_int_equal(rate.burst, 50000);
    rate_take(&rate, rate_allows(&rate, 0, 0));
    assert_int_equal(rate_allows(&rate, 0, 0), 0);
    assert_int_equal(rate_allows(&rate, 0, -rate.burst), 50000);
    rate_take(&rate, 50000);
    assert_int_equal(rate_allows(&rate, 0, -rate.burst), 0);
    ready_ns = rate_ready_ns(&rate, 0, 1000);
    assert_true(ready_ns >= 51 * NS_PER_MS && ready_ns < 52 * NS_PER_MS);
    assert_int_equal(rate_allows(&rate, 50 * NS_PER_MS, 0), 0);
    assert_true(rate_allows(&rate, ready_ns, 0) >= 1000);
    assert_true(rate_ready_ns(&rate, 0, 1000) <= ready_ns); /* it is there */
}

static void a_clock_that_stands_still_or_goes_back_gives_nothing(void **state)
{
    /* now_ns before the last call's is harmless. */
    struct rate rate;

    (void)state;
    rate_init(&rate, 1000000, NS_PER_S);
    rate_take(&rate, rate_allows(&rate, NS_PER_S, 0));
    for (uint64_t now_ns = NS_PER_S; now_ns > 0; now_ns -= NS_PER_S / 10) {
        assert_int_equal(rate_allows(&rate, now_ns, 0), 0);
    }
    assert_int_equal(rate_allows(&rate, 3 * NS_PER_S, 0), 50000); /* a burst, not two seconds */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_a_limit_everything_passes),
        cmocka_unit_test(what_passes_is_the_rate_and_one_burst),
        cmocka_unit_test(who_goes_first_may_overdraw_and_the_others_wait_for_it),
        cmocka_unit_test(a_clock_that_stands_still_or_goes_back_gives_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
