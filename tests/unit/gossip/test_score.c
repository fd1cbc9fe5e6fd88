/* score: points by reason, decaying, bounded above. */
#include "tests/check.h"

#include "base/bytes.h"
#include "gossip/door/score.h"

#include <string.h>

/* What went well counts up to a bound, what went wrong without one; all of it halves in ten
 * minutes.
 */
static void points_add_up_and_decay(void **state)
{
    struct score_sum score = {.points = 0.0};

    (void)state;
    for (int i = 0; i < 100; i++) {
        score_note(&score, SCORE_COMMITTED, 0);
    }
    assert_true(score_now(&score, 0) == SCORE_BEST);
    assert_int_equal(score.counts[SCORE_COMMITTED], 100);
    score_note(&score, SCORE_BROKE, 0);
    assert_true(score_now(&score, 0) == -80.0);
    assert_float_equal(score_now(&score, 600 * NS_PER_S), -40.0, 1e-9);
    score_note(&score, SCORE_NOT_FINITE, 600 * NS_PER_S);
    assert_float_equal(score_now(&score, 1200 * NS_PER_S), -45.0, 1e-9);
    assert_float_equal(score_now(&score, 0), -90.0, 1e-9); /* a clock does not run backwards */
    assert_float_equal(score_now(&score, UINT64_MAX), 0.0, 1e-9);
}

/* Each reason has a name of its own, and is a fault if it costs points. */
static void reasons_are_told_apart(void **state)
{
    (void)state;
    for (int i = 0; i < SCORE_REASONS; i++) {
        enum score_reason reason = (enum score_reason)i;

        assert_int_equal(score_is_fault(reason), score_points(reason) < 0);
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(score_reason_name(reason),
                                    score_reason_name((enum score_reason)k));
        }
    }
    assert_false(score_is_fault(SCORE_NO_FAULT));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(points_add_up_and_decay),
        cmocka_unit_test(reasons_are_told_apart),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
