/* Tests of distill/ensemble: golden values, the inequality that makes ensembles safe, ties. */
#include "tests/check.h"

#include "base/mem.h"
#include "base/rng.h"
#include "distill/ensemble.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MEMBERS = 5, SAMPLES = 7, CLASSES = 10 };

static struct ensemble *ensemble_of(size_t samples, uint32_t classes, double temperature)
{
    struct ensemble_options options = {.rows = samples,
                                       .classes = classes,
                                       .temperature = temperature,
                                       .wants = {true, true, true}};
    struct ensemble *e = ensemble_create(&options);
    assert_non_null(e);
    return e;
}

static void random_logits(uint64_t seed, float logits[MEMBERS][SAMPLES * CLASSES])
{
    struct rng rng;

    rng_init(&rng, seed, 1);
    for (int m = 0; m < MEMBERS; m++) {
        for (int i = 0; i < SAMPLES * CLASSES; i++) {
            logits[m][i] = (float)(4 * rng_normal(&rng));
        }
    }
}

static void two_models_give_the_golden_averages(void **state)
{
    /* Proves: probability and logit averages of two known models are the known numbers. */
    (void)state;
    const float student[3] = {1, 0, -1}, teacher[3] = {2, 0, 0};
    const double mean[3] = {.726113, .175618, .0982688}, logits[3] = {.736125, .164252, .0996236};
    struct ensemble *e = ensemble_of(1, 3, 1);
    float p[3], q[3], one[3];

    ensemble_absorb(e, 0, 1, student);
    ensemble_absorb(e, 0, 1, teacher);
    ensemble_settle(e, VOTE_MEAN, 0, 1, p);
    ensemble_settle(e, VOTE_LOGITS, 0, 1, q);
    for (int c = 0; c < 3; c++) {
        assert_true(fabs(p[c] - mean[c]) < 2e-6);
        assert_true(fabs(q[c] - logits[c]) < 2e-6);
    }
    assert_true(fabs(-log(p[0]) - .320049) < 2e-6);
    assert_true(fabs(-log(q[0]) - .306356) < 2e-6);
    ensemble_softmax(student, 1, 3, 1, one);
    double members = -log(one[0]);
    ensemble_softmax(teacher, 1, 3, 1, one);
    members = (members - log(one[0])) / 2;
    assert_true(fabs(members - .323575) < 2e-6);
    ensemble_destroy(e);
}

static void an_average_is_never_worse_than_its_members_are_on_average(void **state)
{
    /* Proves: per sample and class, cross-entropy of both averages <= mean of the members'. */
    (void)state;
    static float logits[MEMBERS][SAMPLES * CLASSES];

    FOR_EACH_SEED (seed, 50) {
        struct ensemble *e = ensemble_of(SAMPLES, CLASSES, 1);
        double members[SAMPLES * CLASSES] = {0};
        float p[SAMPLES * CLASSES];

        random_logits(seed, logits);
        for (int m = 0; m < MEMBERS; m++) {
            ensemble_absorb(e, 0, SAMPLES, logits[m]);
            ensemble_softmax(logits[m], SAMPLES, CLASSES, 1, p);
            for (int i = 0; i < SAMPLES * CLASSES; i++) {
                members[i] -= log(fmax(p[i], 1e-30)) / MEMBERS;
            }
        }
        for (int vote = VOTE_MEAN; vote <= VOTE_LOGITS; vote++) {
            ensemble_settle(e, (enum vote)vote, 0, SAMPLES, p);
            for (int i = 0; i < SAMPLES * CLASSES; i++) {
                check_seed(seed, -log(fmax(p[i], 1e-30)) <= members[i] + 1e-5);
            }
        }
        ensemble_destroy(e);
    }
}

static void the_order_of_members_does_not_matter(void **state)
{
    /* Proves: permuting members and splitting rows changes no probability and no decision. */
    (void)state;
    static float logits[MEMBERS][SAMPLES * CLASSES];

    FOR_EACH_SEED (seed, 20) {
        struct ensemble *a = ensemble_of(SAMPLES, CLASSES, 2),
                        *b = ensemble_of(SAMPLES, CLASSES, 2);
        float p[SAMPLES * CLASSES], q[SAMPLES * CLASSES];

        random_logits(seed, logits);
        for (int m = 0; m < MEMBERS; m++) {
            ensemble_absorb(a, 0, SAMPLES, logits[m]);
            const float *other = logits[MEMBERS - 1 - m];
            ensemble_absorb(b, 3, SAMPLES - 3, other + 3 * CLASSES);
            ensemble_absorb(b, 0, 3, other);
        }
        for (int vote = 0; vote < VOTE_COUNT; vote++) {
            ensemble_settle(a, (enum vote)vote, 0, SAMPLES, p);
            ensemble_settle(b, (enum vote)vote, 0, SAMPLES, q);
            for (int i = 0; i < SAMPLES * CLASSES; i++) {
                check_seed(seed, fabsf(p[i] - q[i]) < 1e-5F);
            }
        }
        for (size_t s = 0; s < SAMPLES; s++) {
            check_seed(seed, ensemble_winner(a, VOTE_MAJORITY, s) ==
                                 ensemble_winner(b, VOTE_MAJORITY, s));
        }
        ensemble_destroy(a);
        ensemble_destroy(b);
    }
}

static void one_member_is_its_own_ensemble(void **state)
{
    /* Proves: with M = 1 every average is softmax(z / T) of that member. */
    (void)state;
    static float logits[MEMBERS][SAMPLES * CLASSES];
    struct ensemble *e = ensemble_of(SAMPLES, CLASSES, 3);
    float p[SAMPLES * CLASSES], own[SAMPLES * CLASSES];

    random_logits(1, logits);
    ensemble_absorb(e, 0, SAMPLES, logits[0]);
    ensemble_softmax(logits[0], SAMPLES, CLASSES, 3, own);
    for (int vote = VOTE_MEAN; vote <= VOTE_LOGITS; vote++) {
        ensemble_settle(e, (enum vote)vote, 0, SAMPLES, p);
        for (int i = 0; i < SAMPLES * CLASSES; i++) {
            assert_true(fabsf(p[i] - own[i]) < 1e-6F);
        }
    }
    for (size_t s = 0; s < SAMPLES; s++) {
        assert_int_equal(ensemble_winner(e, VOTE_MAJORITY, s), ensemble_winner(e, VOTE_MEAN, s));
    }
    ensemble_destroy(e);
}

static void tied_votes_go_to_the_larger_sum_and_then_to_the_lower_class(void **state)
{
    /* Proves: one vote each is settled by summed probability, and a full tie by class order. */
    (void)state;
    const float low[3] = {0, 1, 0}, sure[3] = {0, 0, 9}, same_a[3] = {4, 0, 0},
                same_b[3] = {0, 4, 0};
    struct ensemble *e = ensemble_of(2, 3, 1);

    ensemble_absorb(e, 0, 1, low);
    ensemble_absorb(e, 0, 1, sure);
    ensemble_absorb(e, 1, 1, same_b);
    ensemble_absorb(e, 1, 1, same_a);
    assert_int_equal(ensemble_winner(e, VOTE_MAJORITY, 0), 2);
    assert_int_equal(ensemble_winner(e, VOTE_MAJORITY, 1), 0);
    ensemble_destroy(e);
}

static void many_that_are_unsure_outvote_one_that_is_sure(void **state)
{
    /* Proves: a vote counts once whatever the probability behind it, and votes add up. */
    (void)state;
    const float unsure[3] = {0.2F, 0.1F, 0}, sure[3] = {0, 9, 0}, shares[3] = {.75F, .25F, 0};
    struct ensemble *e = ensemble_of(1, 3, 1);
    float p[3];

    ensemble_absorb(e, 0, 1, unsure);
    ensemble_absorb(e, 0, 1, sure);
    ensemble_absorb(e, 0, 1, unsure);
    ensemble_absorb(e, 0, 1, unsure);
    assert_int_equal(ensemble_winner(e, VOTE_MEAN, 0), 1);
    assert_int_equal(ensemble_winner(e, VOTE_MAJORITY, 0), 0);
    ensemble_settle(e, VOTE_MAJORITY, 0, 1, p);
    for (int c = 0; c < 3; c++) {
        assert_true(fabsf(p[c] - shares[c]) < 1e-6F);
    }
    ensemble_destroy(e);
}

static void huge_logits_do_not_overflow(void **state)
{
    /* Proves: the maximum is subtracted before exponentials, so 1e30 is no trouble. */
    (void)state;
    const float logits[3] = {1e30F, -1e30F, 0};
    float p[3];

    ensemble_softmax(logits, 1, 3, 1, p);
    assert_true(p[0] >= 1 && p[1] <= 0 && p[2] <= 0);
}

static void vote_names_are_read_back(void **state)
{
    /* Proves: each name parses to its vote and nothing else does. */
    (void)state;
    enum vote vote;

    for (int i = 0; i < VOTE_COUNT; i++) {
        assert_true(vote_parse(vote_name((enum vote)i), &vote));
        assert_int_equal(vote, i);
    }
    assert_false(vote_parse("median", &vote));
    assert_false(vote_parse("", &vote));
}

static void who_is_sure_of_a_row_weighs_more_there(void **state)
{
    /* Proves: by confidence a member weighs, in each row by itself, the probability at temperature
     * 1 of its class, times its own weight, in both means and at any temperature; in a vote one. */
    (void)state;
    const struct ensemble_options options = {.rows = 2,
                                             .classes = 2,
                                             .temperature = 2,
                                             .wants = {true, true, true},
                                             .by_confidence = true};
    const float sure[4] = {2, 0, 0, 0}, other[4] = {0, 1, 0, 3};
    const double weights[2] = {1, 0.5};
    struct ensemble *e = ensemble_create(&options);
    float mean[4], logits[4];

    ensemble_absorb(e, 0, 2, sure);
    ensemble_weigh(e, weights[1]);
    ensemble_absorb(e, 0, 2, other);
    ensemble_settle(e, VOTE_MEAN, 0, 2, mean);
    ensemble_settle(e, VOTE_LOGITS, 0, 2, logits);
    for (int r = 0; r < 2; r++) {
        const double a = (double)sure[2 * r] - (double)sure[2 * r + 1];
        const double b = (double)other[2 * r] - (double)other[2 * r + 1];
        const double wa = 1 / (1 + exp(-fabs(a))), wb = weights[1] / (1 + exp(-fabs(b)));
        const double pa = 1 / (1 + exp(-a / 2)), pb = 1 / (1 + exp(-b / 2));
        const double z = (wa * a + wb * b) / (wa + wb);
        assert_true(fabs((double)mean[2 * r] - (wa * pa + wb * pb) / (wa + wb)) < 1e-6);
        assert_true(fabs((double)logits[2 * r] - 1 / (1 + exp(-z / 2))) < 1e-6);
    }
    ensemble_destroy(e);
}

static void short_memory_gives_null_and_leaks_nothing(void **state)
{
    /* Proves: each allocation of a creation may fail, and nothing stays behind. */
    (void)state;
    const struct ensemble_options options = {
        .rows = 4, .classes = 3, .temperature = 1, .wants = {true, true, true}};
    const uint64_t before = mem_blocks();

    for (uint64_t n = 0; n < 5; n++) {
        mem_fail_after(n);
        assert_null(ensemble_create(&options));
        assert_int_equal(mem_blocks(), before);
    }
    mem_fail_after(UINT64_MAX);
}

static int compare_floats(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;

    return x < y ? -1 : x > y;
}

/* The mean of the sorted values without `trim` at each end, or as many as leave one. */
static double trimmed(const float *values, uint32_t count, uint32_t trim)
{
    const uint32_t drop = trim < (count - 1) / 2 ? trim : (count - 1) / 2;
    float sorted[16];
    double sum = 0;

    memcpy(sorted, values, count * sizeof *sorted);
    qsort(sorted, count, sizeof *sorted, compare_floats);
    for (uint32_t i = drop; i < count - drop; i++) {
        sum += (double)sorted[i];
    }
    return sum / (count - 2 * drop);
}

static void a_trimmed_mean_is_that_of_what_is_left(void **state)
{
    /* Proves: however many answer and are trimmed, in whatever order, the mean is that of the
     * sorted values without the ends; and a liar's 1e30 leaves no trace in it. */
    (void)state;
    FOR_EACH_SEED (seed, 200) {
        struct rng rng;
        float values[16], all[16], out;
        rng_init(&rng, seed, 2);
        const uint32_t members = 1 + (uint32_t)rng_below(&rng, 11);
        const uint32_t trim = 1 + (uint32_t)rng_below(&rng, 5);
        const struct ensemble_options options = {.rows = 2,
                                                 .classes = 1,
                                                 .temperature = 1,
                                                 .wants = {true, false, false},
                                                 .is_real = true,
                                                 .trim = trim};
        struct ensemble *e = ensemble_create(&options);
        assert_non_null(e);
        for (int again = 0; again < 2; again++) { /* also after it was used */
            ensemble_clear(e);
            for (uint32_t m = 0; m < members; m++) {
                values[m] = (float)rng_normal(&rng);
                if (members >= 3 && m == seed % members) values[m] = 1e30F;
                ensemble_absorb(e, 1, 1, &values[m]);
            }
            memcpy(all, values, sizeof all);
            ensemble_settle(e, VOTE_MEAN, 1, 1, &out);
            check_seed(seed, fabs((double)out - trimmed(all, members, trim)) < 1e-5);
        }
        ensemble_destroy(e);
    }
}

static void a_trimmed_ensemble_says_probabilities(void **state)
{
    /* Proves: two that agree outvote one that is sure of something else, what is said adds up to 1,
     * and the winner is that of what is said. */
    (void)state;
    const float honest[3] = {3, 0, 0}, lies[3] = {0, 0, 90};
    const struct ensemble_options options = {
        .rows = 1, .classes = 3, .temperature = 1, .wants = {true, true, true}, .trim = 1};
    struct ensemble *e = ensemble_create(&options);
    float p[3];

    assert_non_null(e);
    ensemble_absorb(e, 0, 1, honest);
    ensemble_absorb(e, 0, 1, lies);
    ensemble_absorb(e, 0, 1, honest);
    ensemble_settle(e, VOTE_MEAN, 0, 1, p);
    assert_true(fabs((double)p[0] + p[1] + p[2] - 1) < 1e-6);
    assert_true(p[0] > 0.9F && p[2] < 0.05F);
    assert_int_equal(ensemble_winner(e, VOTE_MEAN, 0), 0);
    assert_int_equal(ensemble_winner(e, VOTE_MAJORITY, 0), 0);
    assert_int_equal(ensemble_winner(e, VOTE_LOGITS, 0), 2);
    ensemble_destroy(e);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_trimmed_mean_is_that_of_what_is_left),
        cmocka_unit_test(a_trimmed_ensemble_says_probabilities),
        cmocka_unit_test(two_models_give_the_golden_averages),
        cmocka_unit_test(an_average_is_never_worse_than_its_members_are_on_average),
        cmocka_unit_test(the_order_of_members_does_not_matter),
        cmocka_unit_test(one_member_is_its_own_ensemble),
        cmocka_unit_test(tied_votes_go_to_the_larger_sum_and_then_to_the_lower_class),
        cmocka_unit_test(many_that_are_unsure_outvote_one_that_is_sure),
        cmocka_unit_test(huge_logits_do_not_overflow),
        cmocka_unit_test(vote_names_are_read_back),
        cmocka_unit_test(who_is_sure_of_a_row_weighs_more_there),
        cmocka_unit_test(short_memory_gives_null_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
