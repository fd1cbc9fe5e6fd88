/* What every rule must do, run on all of them (mean, so far). */
#include "tests/check.h"

#include "averaging/codec/codec.h"
#include "averaging/core/robust.h"
#include "averaging/rule/rule.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>

enum { CHUNK = 128, VALUES = 3 * CHUNK - 11 };

static const struct rule_ops *const rules[] = {&rule_mean};

static void random_plane(struct rng *rng, float *plane)
{
    for (size_t i = 0; i < VALUES; i++) {
        plane[i] = (float)rng_normal(rng);
    }
}

static struct range chunk_at(size_t chunk)
{
    size_t first = chunk * CHUNK;

    return (struct range){first, VALUES - first < CHUNK ? VALUES - first : CHUNK};
}

static void the_two_ends_of_a_pair_get_exact_negatives(void **state)
{
    (void)state;
    /* P2, with every codec: settle(alpha * scale) at the two ends differs by the sign bit alone. */
    static float x[2][VALUES], y[2][VALUES], difference[2][VALUES];
    static uint8_t bytes[4 * VALUES];
    uint8_t bitmap = 5; /* the middle chunk is not committed */
    struct rng rng;

    FOR_EACH_SEED (seed, 50) {
        const struct codec *codec = codec_at(seed % CODEC_FORMATS);
        float scale = (float)rng_unit((rng_init(&rng, seed, 0), &rng));

        for (int end = 0; end < 2; end++) {
            random_plane(&rng, x[end]);
            codec->ops->encode(codec, 0, x[end], VALUES, bytes);
            assert_int_equal(codec->ops->decode(codec, bytes, codec->ops->bytes_max(codec, VALUES),
                                                y[end], VALUES),
                             RC_OK);
        }
        for (int end = 0; end < 2; end++) {
            struct rule *rule = rules[0]->create(VALUES, NULL);
            struct rule_view view = {y[end], VALUES};

            rules[0]->begin(rule, &view);
            for (size_t c = 3; c-- > 0;) {
                assert_int_equal(
                    rules[0]->absorb(rule, chunk_at(c), 1, y[1 - end] + chunk_at(c).first), RC_OK);
            }
            rules[0]->settle(rule, &bitmap, CHUNK, scale, difference[end]);
            rules[0]->destroy(rule);
        }
        for (size_t i = 0; i < VALUES; i++) {
            bool is_in = i / CHUNK != 1;

            check_seed(seed, difference[0][i] == -difference[1][i]);
            check_seed(seed, is_in || difference[0][i] == 0);
            check_seed(seed, !is_in || difference[0][i] == scale * (y[1][i] - y[0][i]));
        }
    }
}

static void late_commits_give_the_same_bits(void **state)
{
    (void)state;
    /* A difference kept in doubt and scaled later equals the one settled in time. */
    static float own[VALUES], other[VALUES], timely[VALUES], late[VALUES];
    uint8_t all = 7, some = 6;
    struct rng rng;

    FOR_EACH_SEED (seed, 30) {
        struct rule_view view = {own, VALUES};
        struct rule *rule = rules[0]->create(VALUES, NULL);
        float scale;

        rng_init(&rng, seed, 0);
        scale = (float)rng_unit(&rng);
        random_plane(&rng, own);
        random_plane(&rng, other);
        for (int pass = 0; pass < 2; pass++) {
            rules[0]->begin(rule, &view);
            assert_int_equal(rules[0]->absorb(rule, (struct range){0, VALUES}, 1, other), RC_OK);
            rules[0]->settle(rule, pass == 0 ? &some : &all, CHUNK, pass == 0 ? scale : 1,
                             pass == 0 ? timely : late);
        }
        rule_commit_late(late, VALUES, &some, CHUNK, scale);
        assert_memory_equal(timely, late, sizeof late);
        rules[0]->destroy(rule);
    }
}

static void the_mean_is_weighted_by_what_was_absorbed(void **state)
{
    (void)state;
    /* T1: reduce is the weighted mean, in any order; agreed values come out as agreed - own. */
    static float planes[5][VALUES], mean[VALUES], difference[VALUES];
    uint8_t all = 7;
    struct rng rng;

    FOR_EACH_SEED (seed, 50) {
        struct rule *rule = rules[0]->create(VALUES, NULL);
        struct rule_view view = {planes[0], VALUES};
        float weights[5];
        double total = 0;

        rng_init(&rng, seed, 0);
        rules[0]->begin(rule, &view);
        for (int i = 0; i < 5; i++) {
            random_plane(&rng, planes[i]);
            weights[i] = seed % 2 == 0 ? 1 : (float)(1 + rng_below(&rng, 9));
            total += (double)weights[i];
            assert_int_equal(
                rules[0]->absorb(rule, (struct range){0, VALUES}, weights[i], planes[i]), RC_OK);
        }
        assert_int_equal(rules[0]->reduce(rule, (struct range){0, VALUES}, mean), RC_OK);
        for (size_t j = 0; j < VALUES; j++) {
            double expected = 0;

            for (int i = 0; i < 5; i++) {
                expected += (double)weights[i] * (double)planes[i][j] / total;
            }
            check_seed(seed, fabs((double)mean[j] - expected) < 2e-6);
        }
        assert_int_equal(rules[0]->agree(rule, (struct range){0, VALUES}, mean), RC_OK);
        rules[0]->settle(rule, &all, CHUNK, 1, difference);
        for (size_t j = 0; j < VALUES; j++) {
            check_seed(seed, difference[j] == mean[j] - planes[0][j]);
        }
        rules[0]->destroy(rule);
    }
}

/* Our own values are not copied to be added to: whether they come first, last or alone, and in one
 * piece or several, the mean has the bits of a plain sum in that order. */
static void own_values_count_like_others(void **state)
{
    (void)state;
    static float own[VALUES], other[VALUES], out[VALUES], difference[VALUES];
    const struct rule_ops *ops = rules[0];
    const struct range all = {0, VALUES};
    struct rule *rule = ops->create(VALUES, NULL);
    struct rule_view view = {own, VALUES};
    const uint8_t bitmap = 7;
    struct rng rng;

    rng_init(&rng, 7, 0);
    random_plane(&rng, own);
    random_plane(&rng, other);
    for (int order = 0; order < 3; order++) { /* own first, own last, own alone */
        ops->begin(rule, &view);
        if (order == 1) assert_int_equal(ops->absorb(rule, chunk_at(1), 2, other + CHUNK), RC_OK);
        assert_int_equal(ops->absorb(rule, all, 0.5F, own), RC_OK);
        if (order == 0) assert_int_equal(ops->absorb(rule, chunk_at(1), 2, other + CHUNK), RC_OK);
        assert_int_equal(ops->reduce(rule, all, out), RC_OK);
        for (size_t i = 0; i < VALUES; i++) {
            bool is_mixed = order != 2 && i / CHUNK == 1;
            float sum = order == 1 ? 2 * other[i] + 0.5F * own[i] : 0.5F * own[i] + 2 * other[i];

            assert_true(out[i] == (is_mixed ? sum / 2.5F : own[i]));
        }
        ops->settle(rule, &bitmap, CHUNK, 1, difference);
        for (size_t i = 0; i < VALUES; i++) { /* where nobody else was there is nothing to do */
            if (order == 2 || i / CHUNK != 1) assert_true(difference[i] == 0);
        }
    }
    ops->destroy(rule);
}

static void what_all_agreed_on_is_whole_and_committed(void **state)
{
    (void)state;
    /* For whoever joins: nothing while a chunk is missing, nor where one was not committed. */
    static float own[VALUES], mean[VALUES], out[VALUES];
    struct rule_view view = {own, VALUES};
    struct rule *rule = rules[0]->create(VALUES, NULL);
    struct rng rng;

    rng_init(&rng, 1, 0);
    random_plane(&rng, mean);
    rules[0]->begin(rule, &view);
    for (size_t chunk = 0; chunk < 3; chunk++) {
        const uint8_t all = 7;

        assert_false(rules[0]->agreed(rule, &all, CHUNK, out));
        assert_int_equal(rules[0]->agree(rule, chunk_at(chunk), mean + chunk * CHUNK), RC_OK);
    }
    for (uint8_t committed = 0; committed < 8; committed++) {
        assert_int_equal(rules[0]->agreed(rule, &committed, CHUNK, out), committed == 7);
    }
    assert_memory_equal(out, mean, sizeof out);
    rules[0]->cancel(rule);
    rules[0]->destroy(rule);
}

/* The differences of all chunks, as a round writes them when they come in. */
static void meet_all(struct rule *rule, float weight, const float *other, const float *own,
                     float *difference)
{
    for (size_t c = 3; c-- > 0;) {
        size_t first = chunk_at(c).first;

        (void)robust_apart(other + first, own + first, chunk_at(c).count, weight,
                           difference + first, false);
        assert_int_equal(rules[0]->meet(rule, chunk_at(c), weight, difference), RC_OK);
    }
}

static void what_met_is_settled_to_the_same_bits(void **state)
{
    (void)state;
    /* In time, with the scale that was expected or one that nobody knew; and late. 0 elsewhere. */
    static float own[VALUES], other[VALUES], expected[VALUES], met[VALUES], late[VALUES];
    struct rule_view view = {own, VALUES}, none = {NULL, VALUES};
    struct rng rng;

    FOR_EACH_SEED (seed, 40) {
        struct rule *rule = rules[0]->create(VALUES, NULL);
        uint8_t bitmap = seed % 3 == 0 ? 5 : 7;
        float scale, weight;

        rng_init(&rng, seed, 0);
        scale = (float)rng_unit(&rng);
        weight = seed % 2 == 0 ? 1 : scale;
        random_plane(&rng, own);
        random_plane(&rng, other);
        rules[0]->begin(rule, &view);
        assert_int_equal(rules[0]->absorb(rule, (struct range){0, VALUES}, 1, other), RC_OK);
        rules[0]->settle(rule, &bitmap, CHUNK, scale, expected);

        rules[0]->begin(rule, &none);
        meet_all(rule, weight, other, own, met);
        rules[0]->doubt(rule, &bitmap, CHUNK, late);
        rule_commit_late(late, VALUES, &bitmap, CHUNK, scale / weight);
        check_seed(seed, memcmp(late, expected, sizeof expected) == 0);

        rules[0]->begin(rule, &none);
        meet_all(rule, weight, other, own, met);
        rules[0]->settle(rule, &bitmap, CHUNK, scale, met);
        for (size_t i = 0; i < VALUES; i++) {
            check_seed(seed, met[i] == expected[i]); /* -0 is 0 */
        }
        rules[0]->destroy(rule);
    }
}

static void what_met_takes_no_more(void **state)
{
    (void)state;
    /* Neither again nor in another way, and it is nothing to hand on; the rest of a group's chunks
     * may be agreed on as before. */
    static float own[VALUES], mean[VALUES], out[VALUES], difference[VALUES];
    struct rule_view view = {own, VALUES};
    struct rule *rule = rules[0]->create(VALUES, NULL);
    const uint8_t all = 7;
    struct rng rng;

    rng_init(&rng, 1, 0);
    random_plane(&rng, own);
    random_plane(&rng, mean);
    rules[0]->begin(rule, &view);
    assert_int_equal(rules[0]->meet(rule, (struct range){1, RULE_GRAIN}, 1, difference), RC_SHAPE);
    assert_int_equal(rules[0]->meet(rule, (struct range){0, VALUES + 1}, 1, difference), RC_SHAPE);
    for (size_t c = 0; c < 3; c++) {
        size_t first = chunk_at(c).first;

        if (c == 1) {
            assert_int_equal(rules[0]->agree(rule, chunk_at(c), mean + first), RC_OK);
            assert_int_equal(rules[0]->meet(rule, chunk_at(c), 1, difference), RC_REPLAY);
            continue;
        }
        (void)robust_apart(mean + first, own + first, chunk_at(c).count, 1, difference + first,
                           false);
        assert_int_equal(rules[0]->meet(rule, chunk_at(c), 1, difference), RC_OK);
        assert_int_equal(rules[0]->meet(rule, chunk_at(c), 1, difference), RC_REPLAY);
        assert_int_equal(rules[0]->absorb(rule, chunk_at(c), 1, mean), RC_REPLAY);
        assert_int_equal(rules[0]->agree(rule, chunk_at(c), mean), RC_REPLAY);
        assert_int_equal(rules[0]->reduce(rule, chunk_at(c), out), RC_REPLAY);
    }
    assert_false(rules[0]->agreed(rule, &all, CHUNK, out));
    rules[0]->settle(rule, &all, CHUNK, 1, difference);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(difference[i] == mean[i] - own[i]);
    }
    rules[0]->destroy(rule);
}

static void ranges_that_do_not_fit_change_nothing(void **state)
{
    (void)state;
    /* Outside the plane, off the grain, after agreement, before any contribution. */
    static float own[VALUES], out[VALUES];
    struct rule_view view = {own, VALUES};
    struct rule *rule = rules[0]->create(VALUES, NULL);
    const struct range bad[] = {{VALUES, 1},         {0, VALUES + 1}, {1, RULE_GRAIN},
                                {0, RULE_GRAIN + 1}, {SIZE_MAX, 64},  {64, SIZE_MAX}};
    uint8_t all = 7;

    rules[0]->begin(rule, &view);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        assert_int_equal(rules[0]->absorb(rule, bad[i], 1, own), RC_SHAPE);
        assert_int_equal(rules[0]->reduce(rule, bad[i], out), RC_SHAPE);
        assert_int_equal(rules[0]->agree(rule, bad[i], own), RC_SHAPE);
    }
    assert_int_equal(rules[0]->reduce(rule, chunk_at(0), out), RC_NOT_FOUND);
    assert_int_equal(rules[0]->agree(rule, chunk_at(0), own), RC_OK);
    assert_int_equal(rules[0]->agree(rule, chunk_at(0), own), RC_REPLAY);
    assert_int_equal(rules[0]->absorb(rule, chunk_at(0), 1, own), RC_REPLAY);
    assert_int_equal(rules[0]->reduce(rule, chunk_at(0), out), RC_REPLAY);
    rules[0]->settle(rule, &all, CHUNK, 1, out);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(out[i] == 0);
    }
    rules[0]->destroy(rule);
}

static void a_sum_that_overflows_is_not_a_mean(void **state)
{
    (void)state;
    /* Finite contributions, infinite sum: RC_NONFINITE, nothing agreed. */
    static float huge[VALUES], out[VALUES];
    struct rule_view view = {huge, VALUES};
    struct rule *rule = rules[0]->create(VALUES, NULL);

    for (size_t i = 0; i < VALUES; i++) {
        huge[i] = 3e38f;
    }
    rules[0]->begin(rule, &view);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(rules[0]->absorb(rule, chunk_at(1), 1, huge + CHUNK), RC_OK);
    }
    assert_int_equal(rules[0]->reduce(rule, chunk_at(1), out), RC_NONFINITE);
    rules[0]->cancel(rule);
    rules[0]->begin(rule, &view); /* and the next round starts clean */
    assert_int_equal(rules[0]->reduce(rule, chunk_at(1), out), RC_NOT_FOUND);
    rules[0]->destroy(rule);
}

static void distances_are_measured_against_what_was_told(void **state)
{
    (void)state;
    /* The squared norm over a range, in double inside. */
    static float own[VALUES], other[VALUES];
    struct rule_view view = {own, VALUES};
    struct rule *rule = rules[0]->create(VALUES, NULL);

    for (size_t i = 0; i < VALUES; i++) {
        other[i] = 2;
    }
    rules[0]->begin(rule, &view);
    assert_int_equal(rules[0]->absorb(rule, chunk_at(2), 1, other), RC_OK);
    assert_true(rules[0]->squared_distance(rule, chunk_at(2)) == 4.0f * (float)chunk_at(2).count);
    rules[0]->destroy(rule);
}

static void short_memory_gives_no_rule(void **state)
{
    (void)state;
    /* The n-th allocation failed in turn: NULL and nothing leaked. An empty plane is fine. */
    uint64_t before = mem_blocks();
    struct rule *rule = NULL;

    for (uint64_t n = 0; rule == NULL; n++) {
        mem_fail_after(n);
        rule = rules[0]->create(VALUES, NULL);
        mem_fail_after(UINT64_MAX);
        if (rule == NULL) assert_int_equal(mem_blocks(), before);
        assert_true(n < 10);
    }
    rules[0]->destroy(rule);
    rules[0]->destroy(NULL);
    rule = rules[0]->create(0, NULL);
    assert_non_null(rule);
    rules[0]->destroy(rule);
    assert_null(rules[0]->create(SIZE_MAX, NULL));
    assert_int_equal(mem_blocks(), before);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_two_ends_of_a_pair_get_exact_negatives),
        cmocka_unit_test(late_commits_give_the_same_bits),
        cmocka_unit_test(the_mean_is_weighted_by_what_was_absorbed),
        cmocka_unit_test(own_values_count_like_others),
        cmocka_unit_test(what_all_agreed_on_is_whole_and_committed),
        cmocka_unit_test(what_met_is_settled_to_the_same_bits),
        cmocka_unit_test(what_met_takes_no_more),
        cmocka_unit_test(ranges_that_do_not_fit_change_nothing),
        cmocka_unit_test(a_sum_that_overflows_is_not_a_mean),
        cmocka_unit_test(distances_are_measured_against_what_was_told),
        cmocka_unit_test(short_memory_gives_no_rule),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
