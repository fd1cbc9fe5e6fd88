/* losses: published values, limits, and gradients by finite differences. */
#include "tests/check.h"

#include "base/rng.h"
#include "kernels/softmax.h"
#include "replica/model.h"

#include <math.h>

enum { ROWS = 5, CLASSES = 7 };

static void distillation_gives_the_hand_calculated_loss_and_gradient(void **state)
{
    const float student[3] = {1.0F, 0.0F, -1.0F}, teacher_logits[3] = {2.0F, 0.0F, 0.0F};
    const float expected[3] = {-0.139273F, 0.190509F, -0.0512357F};
    const uint32_t label = 0;
    float teacher[3], gradient[3], largest;
    uint32_t correct = 0;

    (void)state;
    softmax_row(teacher_logits, 3, 2.0F, teacher, &largest);
    assert_float_equal(
        loss_distillation(student, teacher, &label, 1, 3, 2.0, 1.0, gradient, &correct), 0.0914167,
        1e-6);
    assert_int_equal(correct, 1);
    for (int c = 0; c < 3; c++) {
        assert_float_equal(gradient[c], expected[c], 1e-6F);
    }
}

static void cross_entropy_of_equal_logits_is_the_logarithm_of_their_number(void **state)
{
    const float logits[10] = {0.0F};
    const uint32_t label = 3;
    uint32_t correct = 9;

    (void)state;
    assert_float_equal(loss_cross_entropy(logits, &label, 1, 10, NULL, &correct), log(10.0), 1e-6);
    assert_int_equal(correct, 0); /* the first of equals is class 0 */
}

static void huge_logits_do_not_overflow_and_a_nan_shows(void **state)
{
    const float huge[2] = {3e38F, -3e38F}, bad[2] = {0.0F, NAN};
    const uint32_t label = 0;
    uint32_t correct = 0;
    float gradient[2];

    (void)state;
    assert_float_equal(loss_cross_entropy(huge, &label, 1, 2, gradient, &correct), 0.0, 1e-6);
    assert_float_equal(gradient[0], 0.0, 1e-6);
    assert_true(isnan(loss_cross_entropy(bad, &label, 1, 2, gradient, &correct)));
}

static void teacher_equal_to_student_gives_no_gradient(void **state)
{
    const float logits[4] = {0.3F, -0.2F, 1.0F, 0.0F};
    const uint32_t label = 1;
    float teacher[4], gradient[4], largest;
    uint32_t correct = 0;

    (void)state;
    softmax_row(logits, 4, 3.0F, teacher, &largest);
    assert_float_equal(
        loss_distillation(logits, teacher, &label, 1, 4, 3.0, 1.0, gradient, &correct), 0.0, 1e-6);
    for (int c = 0; c < 4; c++) {
        assert_float_equal(gradient[c], 0.0F, 1e-6F);
    }
}

struct example {
    float logits[ROWS * CLASSES], teacher[ROWS * CLASSES];
    uint32_t labels[ROWS];
};

static struct example example_of(uint64_t seed)
{
    struct example e;
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (int r = 0; r < ROWS; r++) {
        float largest;
        for (int c = 0; c < CLASSES; c++) {
            e.logits[r * CLASSES + c] = (float)(3.0 * rng_normal(&rng));
            e.teacher[r * CLASSES + c] = (float)(3.0 * rng_normal(&rng));
        }
        softmax_row(e.teacher + r * CLASSES, CLASSES, 2.0F, e.teacher + r * CLASSES, &largest);
        e.labels[r] = (uint32_t)rng_below(&rng, CLASSES);
    }
    return e;
}

static void gradients_are_the_slopes_of_the_losses(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct example e = example_of(seed);
        double a = (double)(seed % 3) / 2.0;
        float gradient[ROWS * CLASSES];
        uint32_t correct = 0;
        const float step = 1e-2F;

        loss_distillation(e.logits, e.teacher, e.labels, ROWS, CLASSES, 2.0, a, gradient, &correct);
        for (int i = 0; i < ROWS * CLASSES; i++) {
            float kept = e.logits[i];
            double up, down;
            e.logits[i] = kept + step;
            up = loss_distillation(e.logits, e.teacher, e.labels, ROWS, CLASSES, 2.0, a, NULL,
                                   &correct);
            e.logits[i] = kept - step;
            down = loss_distillation(e.logits, e.teacher, e.labels, ROWS, CLASSES, 2.0, a, NULL,
                                     &correct);
            e.logits[i] = kept;
            check_seed(seed, fabs((up - down) / (2.0 * (double)step) - (double)gradient[i]) < 1e-4);
        }
    }
}

static void without_a_share_for_the_teacher_only_labels_count(void **state)
{
    struct example e = example_of(4);
    float one[ROWS * CLASSES], other[ROWS * CLASSES];
    uint32_t correct = 0;

    (void)state;
    assert_float_equal(
        loss_distillation(e.logits, e.teacher, e.labels, ROWS, CLASSES, 2.0, 0.0, one, &correct),
        loss_cross_entropy(e.logits, e.labels, ROWS, CLASSES, other, &correct), 1e-9);
    for (int i = 0; i < ROWS * CLASSES; i++) {
        assert_float_equal(one[i], other[i], 1e-7F);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(distillation_gives_the_hand_calculated_loss_and_gradient),
        cmocka_unit_test(cross_entropy_of_equal_logits_is_the_logarithm_of_their_number),
        cmocka_unit_test(huge_logits_do_not_overflow_and_a_nan_shows),
        cmocka_unit_test(teacher_equal_to_student_gives_no_gradient),
        cmocka_unit_test(gradients_are_the_slopes_of_the_losses),
        cmocka_unit_test(without_a_share_for_the_teacher_only_labels_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
