/* softmax: against float64, at every row length, in place, with padding, infinities and NaNs. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/softmax.h"

#include <math.h>

/* Around blocks of 16 and spans of 1024; a vocabulary. */
static const uint32_t lengths[] = {1, 2, 10, 15, 16, 17, 32, 33, 73, 1023, 1024, 1025, 2100, 50257};

static float *values_of(size_t count)
{
    float *values = mem_aligned(count * sizeof(*values));

    assert_non_null(values);
    for (size_t i = 0; i < count; i++) {
        values[i] = NAN;
    }
    return values;
}

static void randomise(struct rng *rng, float *values, size_t count, double size)
{
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(rng_normal(rng) * size);
    }
}

static double log_sum_exp(const float *x, uint32_t n, double temperature)
{
    double top = -INFINITY, sum = 0.0;

    for (uint32_t c = 0; c < n; c++) {
        top = fmax(top, (double)x[c] / temperature);
    }
    for (uint32_t c = 0; c < n; c++) {
        sum += exp((double)x[c] / temperature - top);
    }
    return top + log(sum);
}

/* Positive, sum 1. */
static void distributions(struct rng *rng, float *out, uint32_t rows, uint32_t classes)
{
    for (uint32_t r = 0; r < rows; r++, out += classes) {
        float largest;
        randomise(rng, out, classes, 3.0);
        softmax_row(out, classes, 1.0F, out, &largest);
    }
}

static void probabilities_are_those_of_float64(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        uint32_t n = lengths[i];
        float *x = values_of(n), *p = values_of(n), largest;
        float temperature = i % 2 == 0 ? 1.0F : 2.5F;
        struct rng rng;
        double ln_sum, sum = 0.0;

        rng_init(&rng, n, 1);
        randomise(&rng, x, n, 5.0);
        ln_sum = (double)softmax_row(x, n, temperature, p, &largest);
        assert_true(fabs(ln_sum + (double)largest - log_sum_exp(x, n, (double)temperature)) < 5e-6);
        for (uint32_t c = 0; c < n; c++) {
            double expected = exp((double)x[c] / (double)temperature - ln_sum - (double)largest);
            assert_true(fabs((double)p[c] - expected) <= 4e-6 * expected + 1e-37);
            sum += (double)p[c];
        }
        assert_true(fabs(sum - 1.0) < 1e-5);
        assert_true((double)softmax_row(x, n, temperature, NULL, &largest) == ln_sum);
        softmax_row(x, n, temperature, x, &largest);
        assert_memory_equal(x, p, n * sizeof(*x));
        mem_free(x);
        mem_free(p);
    }
}

static void the_largest_is_the_first_of_equals_and_never_a_nan_behind_the_first(void **state)
{
    const float equal[20] = {0.0F}, nan_first[3] = {NAN, 1, 2}, all_nan[2] = {NAN, NAN};
    const float lowest[3] = {-INFINITY, -INFINITY, -INFINITY}, nan_later[3] = {1, NAN, 2};

    (void)state;
    assert_int_equal(softmax_argmax(equal, 20), 0);
    assert_int_equal(softmax_argmax(nan_first, 3), 0);
    assert_int_equal(softmax_argmax(all_nan, 2), 0);
    assert_int_equal(softmax_argmax(lowest, 3), 0);
    assert_int_equal(softmax_argmax(nan_later, 3), 2);
    FOR_EACH_SEED (seed, 50) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        uint32_t n = 1 + (uint32_t)rng_below(&rng, 100), best = 0;
        float x[100];
        for (uint32_t c = 0; c < n; c++) {
            x[c] = (float)rng_below(&rng, 10) - 20.0F;
            if (x[c] > x[best]) best = c;
        }
        check_seed(seed, softmax_argmax(x, n) == best);
    }
}

/* One row of the definition: the loss, and the gradient without its share of the mean. */
static double row_by_hand(const float *x, uint32_t n, uint32_t label, double *gradient)
{
    double ln_sum = log_sum_exp(x, n, 1.0);

    for (uint32_t c = 0; c < n; c++) {
        gradient[c] = exp((double)x[c] - ln_sum) - (c == label ? 1.0 : 0.0);
    }
    return ln_sum - (double)x[label];
}

static void cross_entropy_is_the_definition_and_padding_counts_nowhere(void **state)
{
    enum { ROWS_MAX = 37 }; /* twice the lanes, and some */

    (void)state;
    for (size_t i = 0; i < ARRAY_COUNT(lengths); i++) {
        const uint32_t rows = lengths[i] > 2000 ? 4 : ROWS_MAX;
        uint32_t n = lengths[i], labels[ROWS_MAX], correct = 77, again = 0, hits = 0, counted = 0;
        float *x = values_of((size_t)rows * n), *g = values_of((size_t)rows * n);
        double *expected = mem_array(n, sizeof(*expected)), loss, sum = 0.0;
        struct rng rng;

        rng_init(&rng, n, 1);
        randomise(&rng, x, (size_t)rows * n, 3.0);
        for (uint32_t r = 0; r < rows; r++) {
            labels[r] = r % 3 == 1 ? LABEL_IGNORE : (uint32_t)rng_below(&rng, n);
            if (r == 2) labels[r] = softmax_argmax(x + r * n, n);
            if (labels[r] != LABEL_IGNORE) counted++;
        }
        assert_int_equal(softmax_counted(labels, rows), counted);
        loss = softmax_cross_entropy(x, labels, rows, n, g, &correct);
        for (uint32_t r = 0; r < rows; r++) {
            if (labels[r] != LABEL_IGNORE) {
                sum += row_by_hand(x + r * n, n, labels[r], expected);
                hits += softmax_argmax(x + r * n, n) == labels[r];
            } else {
                memset(expected, 0, n * sizeof(*expected));
            }
            for (uint32_t c = 0; c < n; c++) {
                assert_true(fabs((double)g[r * n + c] - expected[c] / counted) < 1e-6);
            }
        }
        assert_true(fabs(loss - sum) < 3e-5);
        assert_int_equal(correct, hits);
        assert_true(softmax_cross_entropy(x, labels, rows, n, NULL, &again) == loss);
        assert_true(softmax_cross_entropy(x, labels, rows, n, x, &again) == loss);
        assert_int_equal(again, hits);
        assert_memory_equal(x, g, (size_t)rows * n * sizeof(*x));
        mem_free(x);
        mem_free(g);
        mem_free(expected);
    }
}

static void rows_of_padding_alone_cost_nothing(void **state)
{
    const float x[4] = {1, 2, 3, 4}, zeros[4] = {0};
    const uint32_t labels[2] = {LABEL_IGNORE, LABEL_IGNORE};
    float gradient[4] = {9, 9, 9, 9};
    uint32_t correct = 5;

    (void)state;
    assert_true(softmax_cross_entropy(x, labels, 2, 2, gradient, &correct) == 0.0);
    assert_int_equal(correct, 0);
    assert_memory_equal(gradient, zeros, sizeof(zeros));
}

static void sure_rows_have_small_exact_gradients_and_infinities_mask_classes(void **state)
{
    const float x[20] = {50.0F, 0.0F, [2] = -INFINITY, [19] = 3e38F};
    const uint32_t label = 0;
    float gradient[20];
    uint32_t correct = 0;
    double loss;

    (void)state;
    loss = softmax_cross_entropy(x, &label, 1, 3, gradient, &correct);
    assert_true(fabs(loss - exp(-50.0)) < 1e-15);
    assert_int_equal(correct, 1);
    assert_true(gradient[0] <= 0.0F && gradient[0] > -1e-20F && gradient[2] == 0.0F);
    loss = softmax_cross_entropy(x, &label, 1, 20, gradient, &correct);
    assert_true(isfinite(loss) && loss > 2.9e38);
    assert_int_equal(correct, 0);
    assert_true(gradient[0] == -1.0F && gradient[19] == 1.0F);
}

static void a_nan_anywhere_in_a_row_shows(void **state)
{
    (void)state;
    for (uint32_t at = 0; at < 40; at++) {
        float x[40] = {0.0F}, gradient[40];
        uint32_t label = 3, correct = 0;

        x[at] = NAN;
        assert_true(isnan(softmax_cross_entropy(x, &label, 1, 40, NULL, &correct)));
        assert_true(isnan(softmax_cross_entropy(x, &label, 1, 40, gradient, &correct)));
        assert_true(isnan(gradient[0]) && isnan(gradient[39]));
    }
}

struct example {
    struct softmax_mixture mixture;
    float *logits, *targets, *gradient;
    uint32_t labels[3];
};

static struct example example_of(uint64_t seed, uint32_t classes)
{
    struct example e = {.logits = values_of(3 * (size_t)classes),
                        .targets = values_of(3 * (size_t)classes),
                        .gradient = values_of(3 * (size_t)classes)};
    struct rng rng;

    rng_init(&rng, seed, 1);
    randomise(&rng, e.logits, 3 * (size_t)classes, 2.0);
    distributions(&rng, e.targets, 3, classes);
    for (int r = 0; r < 3; r++) {
        e.labels[r] = (uint32_t)rng_below(&rng, classes);
    }
    if (seed % 3 == 0) e.labels[1] = LABEL_IGNORE;
    e.mixture = (struct softmax_mixture){.logits = e.logits,
                                         .targets = e.targets,
                                         .rows = 3,
                                         .classes = classes,
                                         .temperature = 1.0 + (double)(seed % 2),
                                         .hard_share = 0.3,
                                         .soft_share = 1.7,
                                         .gradient = e.gradient};
    return e;
}

static void example_free(struct example *e)
{
    mem_free(e->logits);
    mem_free(e->targets);
    mem_free(e->gradient);
}

static double mixture_by_hand(const struct softmax_mixture *m, double *hard, double *entropy)
{
    double soft = 0.0;

    *hard = *entropy = 0.0;
    for (uint32_t r = 0; r < m->rows; r++) {
        const float *x = m->logits + r * m->classes, *t = m->targets + r * m->classes;
        double ln_sum = log_sum_exp(x, m->classes, m->temperature);
        if (m->labels[r] == LABEL_IGNORE) continue;
        *hard += log_sum_exp(x, m->classes, 1.0) - (double)x[m->labels[r]];
        for (uint32_t c = 0; c < m->classes; c++) {
            soft -= (double)t[c] * ((double)x[c] / m->temperature - ln_sum);
            *entropy -= t[c] > 0.0F ? (double)t[c] * log((double)t[c]) : 0.0;
        }
    }
    return soft;
}

static void mixtures_of_labels_and_distributions_are_the_definition(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 24) {
        uint32_t classes = lengths[seed % (ARRAY_COUNT(lengths) - 1)];
        struct example e = example_of(seed, classes);
        struct softmax_sums sums, again;
        double hard, entropy, soft;

        e.mixture.labels = e.labels;
        sums = softmax_mixture(&e.mixture);
        soft = mixture_by_hand(&e.mixture, &hard, &entropy);
        check_seed(seed, fabs(sums.hard - hard) < 2e-5);
        check_seed(seed, fabs(sums.soft - soft) < 2e-5);
        check_seed(seed, fabs(sums.entropy - entropy) < 2e-5);
        check_seed(seed, sums.counted == softmax_counted(e.labels, 3));
        for (uint32_t i = 0; i < 3 * classes; i++) {
            uint32_t label = e.labels[i / classes], first = i / classes * classes;
            double t = e.mixture.temperature, p, q;
            p = exp((double)e.logits[i] - log_sum_exp(e.logits + first, classes, 1.0));
            q = exp((double)e.logits[i] / t - log_sum_exp(e.logits + first, classes, t));
            p = 0.3 * (p - (i - first == label ? 1.0 : 0.0));
            q = 1.7 / t * (q - (double)e.targets[i]);
            if (label == LABEL_IGNORE) p = q = 0.0;
            check_seed(seed, fabs((double)e.gradient[i] - (p + q) / sums.counted) < 1e-6);
            if (classes > 100) i += 40;
        }
        e.mixture.gradient = e.logits; /* in place */
        again = softmax_mixture(&e.mixture);
        check_seed(seed, memcmp(&again, &sums, sizeof(sums)) == 0);
        check_seed(seed, memcmp(e.logits, e.gradient, 3 * classes * sizeof(float)) == 0);
        example_free(&e);
    }
}

static void a_target_of_zero_forgives_an_impossible_class(void **state)
{
    const float x[3] = {0.0F, 0.0F, -INFINITY}, sure[3] = {0.5F, 0.5F, 0.0F};
    const float not [3] = {0.5F, 0.0F, 0.5F};
    float gradient[3];
    struct softmax_mixture m = {.logits = x,
                                .targets = sure,
                                .rows = 1,
                                .classes = 3,
                                .temperature = 1.0,
                                .soft_share = 1.0,
                                .gradient = gradient};
    struct softmax_sums sums = softmax_mixture(&m);

    (void)state;
    assert_true(fabs(sums.soft - log(2.0)) < 1e-6 && fabs(sums.entropy - log(2.0)) < 1e-6);
    assert_true(fabs((double)gradient[0]) < 1e-7 && gradient[2] == 0.0F);
    assert_int_equal(sums.counted, 1);
    m.targets = not ;
    assert_true(softmax_mixture(&m).soft == INFINITY);
}

static void heads_merge_to_the_mean_of_their_probabilities(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 24) {
        struct rng rng;
        rng_init(&rng, seed, 1);
        uint32_t heads = 1 + (uint32_t)rng_below(&rng, 5);
        uint32_t classes = lengths[seed % (ARRAY_COUNT(lengths) - 2)];
        float *x = values_of((size_t)heads * classes), *merged = values_of(classes);
        double ln_sums[5];

        /* Far apart: most probabilities are none in float32. */
        randomise(&rng, x, (size_t)heads * classes, seed % 2 == 0 ? 2.0 : 200.0);
        for (uint32_t h = 0; h < heads; h++) {
            ln_sums[h] = log_sum_exp(x + h * classes, classes, 1.0);
        }
        softmax_merge(x, heads, classes, merged);
        for (uint32_t c = 0; c < classes; c++) {
            double top = -INFINITY, sum = 0.0;
            for (uint32_t h = 0; h < heads; h++) {
                top = fmax(top, (double)x[h * classes + c] - ln_sums[h]);
            }
            for (uint32_t h = 0; h < heads; h++) {
                sum += exp((double)x[h * classes + c] - ln_sums[h] - top);
            }
            top += log(sum / heads);
            check_seed(seed, fabs((double)merged[c] - top) < 1e-6 * fabs(top) + 5e-6);
        }
        softmax_merge(x, heads, classes, x);
        check_seed(seed, memcmp(x, merged, classes * sizeof(*x)) == 0);
        mem_free(x);
        mem_free(merged);
    }
}

static void a_class_that_all_heads_exclude_stays_excluded_and_a_nan_shows(void **state)
{
    const float none[4] = {0.0F, -INFINITY, 1.0F, -INFINITY},
                one[4] = {0.0F, -INFINITY, 0.0F, 0.0F};
    const float bad[4] = {0.0F, 0.0F, NAN, 0.0F};
    float merged[2];

    (void)state;
    softmax_merge(none, 2, 2, merged);
    assert_true(fabs((double)merged[0]) < 1e-6 && merged[1] == -INFINITY);
    softmax_merge(one, 2, 2, merged);
    assert_true(fabs((double)merged[0] - log(0.75)) < 1e-6);
    assert_true(fabs((double)merged[1] - log(0.25)) < 1e-6);
    softmax_merge(bad, 2, 2, merged);
    assert_true(isnan(merged[0]) && isnan(merged[1]));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(probabilities_are_those_of_float64),
        cmocka_unit_test(the_largest_is_the_first_of_equals_and_never_a_nan_behind_the_first),
        cmocka_unit_test(cross_entropy_is_the_definition_and_padding_counts_nowhere),
        cmocka_unit_test(rows_of_padding_alone_cost_nothing),
        cmocka_unit_test(sure_rows_have_small_exact_gradients_and_infinities_mask_classes),
        cmocka_unit_test(a_nan_anywhere_in_a_row_shows),
        cmocka_unit_test(mixtures_of_labels_and_distributions_are_the_definition),
        cmocka_unit_test(a_target_of_zero_forgives_an_impossible_class),
        cmocka_unit_test(heads_merge_to_the_mean_of_their_probabilities),
        cmocka_unit_test(a_class_that_all_heads_exclude_stays_excluded_and_a_nan_shows),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
