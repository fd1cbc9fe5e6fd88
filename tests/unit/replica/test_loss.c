/* losses: published values, limits, and gradients by finite differences. */
#include "tests/check.h"

#include "base/rng.h"
#include "kernels/softmax.h"
#include "replica/model/loss.h"
#include "replica/model/model.h"

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
        const float step = 1e-3F;

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
            check_seed(seed, fabs((up - down) / (2.0 * (double)step) - (double)gradient[i]) < 1e-3);
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

static void padding_counts_in_no_mean_and_all_padding_is_no_loss(void **state)
{
    struct example e = example_of(6);
    float gradient[ROWS * CLASSES], short_gradient[ROWS * CLASSES];
    uint32_t correct = 0, others = 0;
    double whole, part;

    (void)state;
    e.labels[ROWS - 1] = LABEL_IGNORE;
    whole = loss_cross_entropy(e.logits, e.labels, ROWS, CLASSES, gradient, &correct);
    part = loss_cross_entropy(e.logits, e.labels, ROWS - 1, CLASSES, short_gradient, &others);
    assert_true(whole == part);
    assert_int_equal(correct, others);
    assert_memory_equal(gradient, short_gradient, (ROWS - 1) * CLASSES * sizeof(float));
    whole = loss_distillation(e.logits, e.teacher, e.labels, ROWS, CLASSES, 2.0, 0.5, gradient,
                              &correct);
    part = loss_distillation(e.logits, e.teacher, e.labels, ROWS - 1, CLASSES, 2.0, 0.5,
                             short_gradient, &others);
    assert_true(whole == part);
    assert_memory_equal(gradient, short_gradient, (ROWS - 1) * CLASSES * sizeof(float));
    for (int c = 0; c < CLASSES; c++) {
        assert_true(gradient[(ROWS - 1) * CLASSES + c] == 0.0F);
    }
    for (int r = 0; r < ROWS; r++) {
        e.labels[r] = LABEL_IGNORE;
    }
    assert_true(loss_cross_entropy(e.logits, e.labels, ROWS, CLASSES, NULL, &correct) == 0.0);
    assert_true(loss_distillation(e.logits, e.teacher, e.labels, ROWS, CLASSES, 2.0, 0.5, NULL,
                                  &correct) == 0.0);
    assert_int_equal(correct, 0);
}

/* Cross-entropy against distributions: -sum of target ln softmax(logits). */
static double soft_targets(const float *logits, const float *targets, uint32_t rows,
                           uint32_t classes, float *gradient)
{
    return softmax_mixture(&(struct softmax_mixture){.logits = logits,
                                                     .targets = targets,
                                                     .rows = rows,
                                                     .classes = classes,
                                                     .temperature = 1.0,
                                                     .soft_share = 1.0,
                                                     .gradient = gradient})
               .soft /
           rows;
}

/* A distribution that is sure of one class is a label. */
static void soft_targets_generalise_labels(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 10) {
        struct example e = example_of(seed);
        float targets[ROWS * CLASSES] = {0.0F}, soft[ROWS * CLASSES], hard[ROWS * CLASSES];
        uint32_t correct = 0;
        double loss;

        for (uint32_t r = 0; r < ROWS; r++) {
            targets[r * CLASSES + e.labels[r]] = 1.0F;
        }
        loss = soft_targets(e.logits, targets, ROWS, CLASSES, soft);
        check_seed(seed, fabs(loss - loss_cross_entropy(e.logits, e.labels, ROWS, CLASSES, hard,
                                                        &correct)) < 1e-6);
        for (int i = 0; i < ROWS * CLASSES; i++) {
            check_seed(seed, fabsf(soft[i] - hard[i]) < 1e-7F);
        }
    }
}

static void soft_targets_have_the_slope_of_their_loss(void **state)
{
    struct example e = example_of(3);
    float gradient[ROWS * CLASSES];
    const float step = 1e-3F;

    (void)state;
    soft_targets(e.logits, e.teacher, ROWS, CLASSES, gradient);
    for (int i = 0; i < ROWS * CLASSES; i++) {
        float kept = e.logits[i];
        double up, down;
        e.logits[i] = kept + step;
        up = soft_targets(e.logits, e.teacher, ROWS, CLASSES, NULL);
        e.logits[i] = kept - step;
        down = soft_targets(e.logits, e.teacher, ROWS, CLASSES, NULL);
        e.logits[i] = kept;
        assert_true(fabs((up - down) / (2.0 * (double)step) - (double)gradient[i]) < 1e-3);
    }
}

static void squared_errors_are_meant_over_rows_and_outputs(void **state)
{
    float predicted[6] = {1, 2, 3, 4, 5, 6};
    const float targets[6] = {1, 0, 3, 4, 8, 6}, expected[6] = {0, 4.0F / 6, 0, 0, -1, 0};
    float gradient[6];

    (void)state;
    assert_float_equal(loss_squared(predicted, targets, 2, 3, gradient), 13.0 / 6, 1e-12);
    assert_float_equal(loss_squared(predicted, targets, 3, 2, NULL), 13.0 / 6, 1e-12);
    for (int i = 0; i < 6; i++) {
        assert_float_equal(gradient[i], expected[i], 1e-7F);
    }
    assert_float_equal(loss_squared(predicted, targets, 2, 3, predicted), 13.0 / 6, 1e-12);
    assert_memory_equal(predicted, gradient, sizeof(gradient));
    predicted[3] = NAN;
    assert_true(isnan(loss_squared(predicted, targets, 2, 3, NULL)));
}

/* Two rows of two heads, merged in place: 3/4 and 1/4, then halves. */
static void heads_merge_row_by_row_in_place(void **state)
{
    float logits[8] = {0, 0, 0, -INFINITY, 5, 5, -7, -7};

    (void)state;
    loss_merge_heads(logits, 2, 2, 2, logits);
    assert_float_equal(logits[0], (float)log(0.75), 1e-6F);
    assert_float_equal(logits[1], (float)log(0.25), 1e-6F);
    assert_float_equal(logits[2], (float)log(0.5), 1e-6F);
    assert_float_equal(logits[3], (float)log(0.5), 1e-6F);
}

enum { HEADS = 3, GROUPS = 4 };

static double heads_loss_of(const float *logits, const uint32_t *labels, enum heads_loss kind,
                            float *gradient)
{
    double losses[GROUPS * HEADS], sum = 0;
    const struct loss_rows rows = {.logits = logits,
                                   .gradient = gradient,
                                   .rows = GROUPS * HEADS,
                                   .outputs = CLASSES,
                                   .counted = softmax_counted(labels, GROUPS * HEADS),
                                   .losses = losses};

    (void)loss_rows_heads(&rows, labels, HEADS, kind);
    for (size_t i = 0; i < GROUPS * HEADS; i++) {
        sum += losses[i];
    }
    return sum / rows.counted;
}

/* The last group is ignored where `with_padding`. */
static void draw_heads(struct rng *rng, float *logits, uint32_t *labels, bool with_padding)
{
    for (size_t i = 0; i < (size_t)GROUPS * HEADS * CLASSES; i++) {
        logits[i] = (float)(2 * rng_normal(rng));
    }
    for (size_t g = 0; g < GROUPS; g++) {
        const uint32_t label =
            with_padding && g + 1 == GROUPS ? LABEL_IGNORE : (uint32_t)rng_below(rng, CLASSES);
        for (size_t m = 0; m < HEADS; m++) {
            labels[g * HEADS + m] = label;
        }
    }
}

static void heads_learn_together_by_the_gradient_of_their_loss(void **state)
{
    /* Proves: of each loss of heads the gradient is that of finite differences, also where rows are
     * padding. */
    (void)state;
    FOR_EACH_SEED (seed, 6) {
        float logits[GROUPS * HEADS * CLASSES], gradient[GROUPS * HEADS * CLASSES];
        uint32_t labels[GROUPS * HEADS];
        struct rng rng;

        rng_init(&rng, seed, 5);
        draw_heads(&rng, logits, labels, seed % 2 == 0);
        for (int kind = 0; kind < HEADS_LOSSES; kind++) {
            (void)heads_loss_of(logits, labels, (enum heads_loss)kind, gradient);
            for (size_t i = 0; i < (size_t)GROUPS * HEADS * CLASSES; i++) {
                const float was = logits[i], step = 1e-3F;
                double above, below;

                logits[i] = was + step;
                above = heads_loss_of(logits, labels, (enum heads_loss)kind, NULL);
                logits[i] = was - step;
                below = heads_loss_of(logits, labels, (enum heads_loss)kind, NULL);
                logits[i] = was;
                assert_true(fabs((above - below) / (2 * (double)step) - (double)gradient[i]) <
                            1e-4);
            }
        }
    }
}

static void the_loss_of_heads_is_that_of_what_they_say_together(void **state)
{
    /* Proves: ensemble is the cross-entropy of merged heads, oracle the least of theirs; oracle <=
     * ensemble <= mean; equal heads make all the same, and the gradient that of one; far apart
     * heads neither overflow nor underflow. */
    (void)state;
    FOR_EACH_SEED (seed, 20) {
        float logits[GROUPS * HEADS * CLASSES], merged[GROUPS * CLASSES];
        float gradient[GROUPS * HEADS * CLASSES], plain[GROUPS * HEADS * CLASSES];
        uint32_t labels[GROUPS * HEADS], each[GROUPS], hits = 0;
        double loss[HEADS_LOSSES];
        struct rng rng;

        rng_init(&rng, seed, 6);
        draw_heads(&rng, logits, labels, false);
        for (size_t g = 0; g < GROUPS; g++) {
            each[g] = labels[g * HEADS];
        }
        for (int k = 0; k < HEADS_LOSSES; k++) {
            loss[k] = heads_loss_of(logits, labels, (enum heads_loss)k, NULL);
        }
        loss_merge_heads(logits, GROUPS, HEADS, CLASSES, merged);
        assert_float_equal(loss[HEADS_ENSEMBLE],
                           loss_cross_entropy(merged, each, GROUPS, CLASSES, NULL, &hits), 1e-5);
        assert_true(loss[HEADS_ORACLE] <= loss[HEADS_ENSEMBLE] + 1e-9);
        assert_true(loss[HEADS_ENSEMBLE] <= loss[HEADS_MEAN] + 1e-9);
        for (size_t i = 0; i < (size_t)GROUPS * HEADS * CLASSES; i++) {
            logits[i] = logits[i / (HEADS * CLASSES) * (HEADS * CLASSES) + i % CLASSES];
        }
        (void)heads_loss_of(logits, labels, HEADS_MEAN, plain);
        (void)heads_loss_of(logits, labels, HEADS_ENSEMBLE, gradient);
        for (size_t i = 0; i < (size_t)GROUPS * HEADS * CLASSES; i++) {
            assert_float_equal(gradient[i], plain[i], 1e-6);
        }
        for (size_t i = 0; i < (size_t)HEADS * CLASSES; i++) {
            logits[i] = i % CLASSES == labels[0] ? (i < CLASSES ? 300 : -300) : 0;
        }
        for (int k = 0; k < HEADS_LOSSES; k++) {
            assert_true(isfinite(heads_loss_of(logits, labels, (enum heads_loss)k, gradient)));
            for (size_t i = 0; i < (size_t)HEADS * CLASSES; i++) {
                assert_true(isfinite(gradient[i]));
            }
        }
    }
}

static void losses_of_heads_have_names(void **state)
{
    /* Proves: these three, and nothing else. */
    enum heads_loss loss = HEADS_MEAN;

    (void)state;
    assert_true(heads_loss_parse("oracle", &loss) && loss == HEADS_ORACLE);
    assert_true(heads_loss_parse("ensemble", &loss) && loss == HEADS_ENSEMBLE);
    assert_true(heads_loss_parse("mean", &loss) && loss == HEADS_MEAN);
    assert_false(heads_loss_parse("best", &loss));
    assert_false(heads_loss_parse("", &loss));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(heads_learn_together_by_the_gradient_of_their_loss),
        cmocka_unit_test(the_loss_of_heads_is_that_of_what_they_say_together),
        cmocka_unit_test(losses_of_heads_have_names),
        cmocka_unit_test(distillation_gives_the_hand_calculated_loss_and_gradient),
        cmocka_unit_test(cross_entropy_of_equal_logits_is_the_logarithm_of_their_number),
        cmocka_unit_test(huge_logits_do_not_overflow_and_a_nan_shows),
        cmocka_unit_test(teacher_equal_to_student_gives_no_gradient),
        cmocka_unit_test(gradients_are_the_slopes_of_the_losses),
        cmocka_unit_test(without_a_share_for_the_teacher_only_labels_count),
        cmocka_unit_test(padding_counts_in_no_mean_and_all_padding_is_no_loss),
        cmocka_unit_test(soft_targets_generalise_labels),
        cmocka_unit_test(soft_targets_have_the_slope_of_their_loss),
        cmocka_unit_test(squared_errors_are_meant_over_rows_and_outputs),
        cmocka_unit_test(heads_merge_row_by_row_in_place),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
