/* What a line is seen to carry. */
#include "tests/check.h"

#include "gossip/flow/rate_meter.h"

enum { FRAME = 131072 };

static uint64_t rate_of(const struct rate_meter *meter, uint64_t now_ns, bool is_least)
{
    uint64_t rate;
    bool was_least;

    assert_true(rate_meter_read(meter, now_ns, &rate, &was_least));
    assert_int_equal(was_least, is_least);
    return rate;
}

/* Frames that take no time say only that the line is quick, and the more of them the quicker. */
static void what_takes_no_time_is_known_to_be_quick(void **state)
{
    struct rate_meter meter = {0};
    uint64_t rate, now_ns = NS_PER_S;
    bool is_least;

    (void)state;
    assert_false(rate_meter_read(&meter, now_ns, &rate, &is_least));
    rate_meter_note(&meter, FRAME, 0, now_ns);
    assert_int_equal(rate_of(&meter, now_ns, true), FRAME * 50); /* in 20 ms at the most */
    rate_meter_note(&meter, FRAME, NS_PER_MS, now_ns += NS_PER_S);
    assert_int_equal(rate_of(&meter, now_ns, true), FRAME * 100);
    /* 20 ms of a line that is busy now and then: a second between does not count */
    for (int i = 0; i < 19; i++) {
        rate_meter_note(&meter, FRAME, NS_PER_MS, now_ns += NS_PER_S);
    }
    assert_int_equal(rate_of(&meter, now_ns, false), (uint64_t)FRAME * 21 * 50);
}

/* The best of four samples counts, and after ten minutes none. */
static void the_best_of_the_last_counts(void **state)
{
    static const uint64_t took_ms[] = {100, 50, 200, 400, 800, 1000};
    static const uint64_t best_ms[] = {100, 50, 50, 50, 50, 200};
    struct rate_meter meter = {0};
    uint64_t rate, now_ns = 0;
    bool is_least;

    (void)state;
    for (int i = 0; i < 6; i++) {
        now_ns += 2 * NS_PER_S;
        rate_meter_note(&meter, FRAME, took_ms[i] * NS_PER_MS, now_ns);
        assert_int_equal(rate_of(&meter, now_ns, false), FRAME * UINT64_C(1000) / best_ms[i]);
    }
    assert_true(rate_meter_read(&meter, now_ns + METER_AGE_NS, &rate, &is_least));
    assert_false(rate_meter_read(&meter, now_ns + METER_AGE_NS + 1, &rate, &is_least));
}

/* Two connections carry at the same time: the time counts once. */
static void frames_beside_each_other_share_the_time(void **state)
{
    struct rate_meter meter = {0};

    (void)state;
    rate_meter_note(&meter, FRAME, 15 * NS_PER_MS, NS_PER_S);
    rate_meter_note(&meter, FRAME, 15 * NS_PER_MS, NS_PER_S + NS_PER_MS);
    assert_int_equal(rate_of(&meter, NS_PER_S + NS_PER_MS, true), FRAME * 100);
    rate_meter_note(&meter, FRAME, 15 * NS_PER_MS, NS_PER_S + 5 * NS_PER_MS);
    assert_int_equal(rate_of(&meter, NS_PER_S + 5 * NS_PER_MS, false), FRAME * 3 * 50);
}

/* Times that no clock shows do no harm. */
static void absurd_times_do_no_harm(void **state)
{
    struct rate_meter meter = {0};

    (void)state;
    rate_meter_note(&meter, FRAME, UINT64_MAX, 3 * NS_PER_S);
    assert_int_equal(rate_of(&meter, 3 * NS_PER_S, false), FRAME / 3);
    rate_meter_note(&meter, FRAME, NS_PER_S, NS_PER_S); /* backwards */
    assert_int_equal(rate_of(&meter, 3 * NS_PER_S, false), FRAME * 50);
    rate_meter_note(&meter, SIZE_MAX, 0, 3 * NS_PER_S);
    assert_true(rate_of(&meter, 3 * NS_PER_S, false) <= METER_RATE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_takes_no_time_is_known_to_be_quick),
        cmocka_unit_test(the_best_of_the_last_counts),
        cmocka_unit_test(frames_beside_each_other_share_the_time),
        cmocka_unit_test(absurd_times_do_no_harm),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
