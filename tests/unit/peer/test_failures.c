/* failures: whose last round failed, and why. */
#include "tests/check.h"

#include "peer/round/failures.h"

static struct peer_id peer_of(unsigned number)
{
    struct peer_id peer = {.bytes = {(uint8_t)number, (uint8_t)(number >> 8)}};

    return peer;
}

static const char *reason_of(const struct failures *failures, unsigned number)
{
    const struct failure *failure = failures_find(failures, peer_of(number));

    return failure == NULL ? "" : failure->reason;
}

static void a_failed_round_is_remembered_until_one_goes_well(void **state)
{
    /* The reason of an abort stands against all of its partners, and only the next round with each
     * takes it back. */
    struct failures *failures = calloc(1, sizeof *failures);

    (void)state;
    failures_partner(failures, peer_of(1));
    failures_partner(failures, peer_of(2));
    failures_partner(failures, peer_of(2));
    failures_round_over(failures, "too late", 5);
    assert_string_equal(reason_of(failures, 1), "too late");
    assert_string_equal(reason_of(failures, 2), "too late");
    assert_null(failures_find(failures, peer_of(3)));
    failures_partner(failures, peer_of(1));
    failures_round_over(failures, NULL, 6);
    assert_null(failures_find(failures, peer_of(1)));
    assert_string_equal(reason_of(failures, 2), "too late");
    free(failures);
}

static void a_reason_of_its_own_outlives_a_round_that_went_on_without_it(void **state)
{
    /* One was named, one lost its link, one is fine: the round is committed all the same. */
    struct failures *failures = calloc(1, sizeof *failures);

    (void)state;
    for (unsigned i = 1; i <= 3; i++) {
        failures_partner(failures, peer_of(i));
    }
    failures_note(failures, peer_of(1), "sent NaN", 5);
    failures_link_lost(failures, peer_of(2), 6);
    failures_link_lost(failures, peer_of(9), 6); /* no partner: no failure */
    failures_round_over(failures, NULL, 7);
    assert_string_equal(reason_of(failures, 1), "sent NaN");
    assert_string_equal(reason_of(failures, 2), "the link was lost");
    assert_null(failures_find(failures, peer_of(3)));
    assert_null(failures_find(failures, peer_of(9)));
    failures_partner(failures, peer_of(1));
    failures_round_over(failures, NULL, 8);
    assert_null(failures_find(failures, peer_of(1)));
    free(failures);
}

static void the_oldest_failure_makes_room(void **state)
{
    /* One more than the table holds, and more partners than a round can have. */
    struct failures *failures = calloc(1, sizeof *failures);

    (void)state;
    for (unsigned i = 0; i <= FAILURES_MAX; i++) {
        failures_note(failures, peer_of(i), "late", 10 + i);
        failures_partner(failures, peer_of(i));
    }
    assert_null(failures_find(failures, peer_of(0)));
    assert_string_equal(reason_of(failures, 1), "late");
    assert_string_equal(reason_of(failures, FAILURES_MAX), "late");
    assert_int_equal(failures->partners_count, FAILURE_PARTNERS_MAX);
    free(failures);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_failed_round_is_remembered_until_one_goes_well),
        cmocka_unit_test(a_reason_of_its_own_outlives_a_round_that_went_on_without_it),
        cmocka_unit_test(the_oldest_failure_makes_room),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
