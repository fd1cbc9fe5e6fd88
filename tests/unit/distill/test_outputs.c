/* Tests of distill/outputs: what is counted of predictions. */
#include "tests/check.h"

#include "distill/outputs.h"

#include <math.h>

static void calibration_error_of_a_hand_made_case(void **state)
{
    /* Proves: bins are fifteenths, and each weighs as much as it has predictions. At 0.9 two of
     * three are right, at 0.5 one of one: 3/4 |2/3 - 0.9| + 1/4 |1 - 0.5| = 0.3. */
    static const struct verdict verdicts[] = {
        {0.9, 0.9, true}, {0.9, 0.9, true}, {0.05, 0.9, false}, {0.5, 0.5, true}};
    struct score score = {0};

    (void)state;
    assert_true(isnan(score_calibration(&score)));
    for (size_t i = 0; i < 4; i++) {
        score_add(&score, &verdicts[i]);
    }
    assert_true(fabs(score_calibration(&score) - 0.3) < 1e-12);
    assert_true(fabs(score_accuracy(&score) - 0.75) < 1e-12);
}

static void errors_of_one_bin_cancel_and_of_two_do_not(void **state)
{
    /* Proves: within a bin only the mean counts; a border belongs to the lower bin; certainty has a
     * bin. */
    static const struct verdict sure = {1, 1, true}, wrong = {0, 1, false};
    static const struct verdict low = {0.6, 0.6, true}, above = {0.61, 0.61, false};
    struct score one = {0}, two = {0};

    (void)state;
    score_add(&one, &sure);
    assert_true(score_calibration(&one) <= 0);
    score_add(&one, &wrong);
    assert_true(fabs(score_calibration(&one) - 0.5) < 1e-12);
    score_add(&two, &low); /* 9/15: bin 8; 0.61: bin 9 */
    score_add(&two, &above);
    assert_true(fabs(score_calibration(&two) - (0.4 + 0.61) / 2) < 1e-12);
}

static void without_probabilities_there_is_none(void **state)
{
    /* Proves: neither a vote nor real values have a calibration error. */
    struct score vote = {.count = 3, .correct = 2, .loss_sum = (double)NAN};
    struct score real = {.count = 3, .loss_sum = 1, .is_real = true};

    (void)state;
    assert_true(isnan(score_calibration(&vote)));
    assert_true(isnan(score_calibration(&real)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calibration_error_of_a_hand_made_case),
        cmocka_unit_test(errors_of_one_bin_cancel_and_of_two_do_not),
        cmocka_unit_test(without_probabilities_there_is_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
