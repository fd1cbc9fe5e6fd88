/* What members contribute, kept until an aggregate can be made of it: any order, few, too many. */
#include "tests/check.h"

#include "averaging/aggregate/gather.h"
#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { VALUES = 100, MEMBERS = 9 };

static float said[AGGREGATE_ROWS_MAX + 1][VALUES];

static struct gather_member member(uint32_t number)
{
    struct gather_member member = {.weight = 1, .share = 1};

    member.id.bytes[0] = (uint8_t)number;
    return member;
}

static void draw(struct rng *rng)
{
    for (uint32_t k = 0; k <= AGGREGATE_ROWS_MAX; k++) {
        for (size_t i = 0; i < VALUES; i++) {
            said[k][i] = (float)rng_normal(rng);
        }
    }
}

static void close_to(float value, double wanted)
{
    if (fabs((double)value - wanted) > 1e-5) fail_msg("%.8f, not %.8f", (double)value, wanted);
}

static struct gather *made(const struct aggregate_ops *ops, uint32_t faults, size_t values)
{
    const struct aggregate aggregate = {ops, faults};
    struct gather *gather = gather_create(&aggregate, 2, values);

    assert_non_null(gather);
    return gather;
}

static void the_order_of_arrival_is_no_matter(void **state)
{
    (void)state;
    /* The same bits of every rule, however members come in; each chunk for itself. */
    FOR_EACH_SEED (seed, 20) {
        const struct aggregate_ops *ops;
        struct rng rng;

        rng_init(&rng, seed, 0);
        draw(&rng);
        for (size_t r = 0; (ops = aggregate_at(r)) != NULL; r++) {
            struct gather *gather = made(ops, ops->needs_faults ? 2 : UINT32_MAX, 0);
            float outs[2][VALUES], centre[VALUES] = {0};

            for (uint32_t chunk = 0; chunk < 2; chunk++) {
                struct gather_count count;
                uint32_t order[MEMBERS];

                for (uint32_t i = 0; i < MEMBERS; i++) {
                    uint32_t at = (uint32_t)rng_below(&rng, i + 1);

                    order[i] = order[at];
                    order[at] = i;
                }
                for (uint32_t i = 0; i < MEMBERS; i++) {
                    struct gather_member from = member(order[i]);

                    from.weight = 1 + 0.1f * (float)order[i];
                    assert_int_equal(gather_add(gather, chunk, &from, said[order[i]], VALUES,
                                                rng_below(&rng, 2) == 0),
                                     RC_OK);
                }
                assert_int_equal(
                    gather_reduce(gather, chunk, centre, 5, VALUES, outs[chunk], &count), RC_OK);
                assert_int_equal(count.judged, MEMBERS);
                assert_true(count.reduced <= MEMBERS);
            }
            check_seed(seed, memcmp(outs[0], outs[1], sizeof outs[0]) == 0);
            gather_destroy(gather);
        }
    }
}

static void of_two_the_nearer_one_counts(void **state)
{
    (void)state;
    /* Nobody can tell which of two lies: each counts by its samples and what clip leaves of it. */
    struct gather *gather = made(&aggregate_median, UINT32_MAX, 0);
    struct gather_member near = member(1), far = member(2);
    struct gather_count count;
    struct rng rng;
    float out[VALUES];

    rng_init(&rng, 1, 0);
    draw(&rng);
    near.weight = 0.5f;
    far.share = 0.25f;
    assert_int_equal(gather_add(gather, 0, &far, said[1], VALUES, false), RC_OK);
    assert_int_equal(gather_add(gather, 0, &near, said[0], VALUES, false), RC_OK);
    assert_int_equal(gather_reduce(gather, 0, NULL, 0, VALUES, out, &count), RC_OK);
    assert_int_equal(count.judged, 2);
    assert_int_equal(count.reduced, 1);
    for (size_t i = 0; i < VALUES; i++) {
        close_to(out[i], (0.5 * (double)said[0][i] + 0.25 * (double)said[1][i]) / 0.75);
    }
    assert_int_equal(gather_add(gather, 0, &near, said[0], VALUES, false), RC_OK);
    assert_int_equal(gather_reduce(gather, 0, NULL, 0, VALUES, out, &count), RC_OK);
    for (size_t i = 0; i < VALUES; i++) {
        close_to(out[i], (double)said[0][i]);
    }
    assert_int_equal(gather_reduce(gather, 0, NULL, 0, VALUES, out, &count), RC_NOT_FOUND);
    far.share = 0;
    assert_int_equal(gather_add(gather, 0, &far, said[1], VALUES, false), RC_OK);
    assert_int_equal(gather_reduce(gather, 0, NULL, 0, VALUES, out, &count), RC_NOT_FOUND);
    gather_destroy(gather);
}

/* A rule that is no defence weighs members by their samples and what clip leaves of them, however
 * many they are; also one alone. */
static void a_rule_without_defence_goes_by_clip(void **state)
{
    (void)state;
    struct gather *gather = made(&aggregate_radial, UINT32_MAX, 0);
    struct gather_count count;
    struct rng rng;
    float out[VALUES], wanted[VALUES], centre[VALUES] = {0};
    struct aggregate_rows rows = {.members = 3, .count = VALUES, .centre = centre};

    rng_init(&rng, 1, 0);
    draw(&rng);
    for (uint32_t k = 0; k < 4; k++) {
        struct gather_member each = member(k);

        each.weight = 1 + (float)k;
        each.share = k == 0 ? 0.25f : k == 3 ? 0 : 1;
        rows.values[k] = said[k];
        rows.weights[k] = each.weight * each.share;
        assert_int_equal(gather_add(gather, 0, &each, said[k], VALUES, false), RC_OK);
    }
    assert_int_equal(gather_reduce(gather, 0, centre, 0, VALUES, out, &count), RC_OK);
    assert_int_equal(count.judged, 4);
    assert_int_equal(count.reduced, 2);
    (void)aggregate_radial.combine(&rows, UINT32_MAX, wanted);
    assert_memory_equal(out, wanted, sizeof out);
    gather_destroy(gather);
}

static void nobody_is_heard_twice(void **state)
{
    (void)state;
    struct gather *gather = made(&aggregate_rfa, UINT32_MAX, 0);
    uint64_t blocks = mem_blocks();
    struct gather_member from = member(1);

    assert_int_equal(gather_add(gather, 0, &from, said[0], VALUES, false), RC_OK);
    assert_int_equal(gather_add(gather, 0, &from, said[1], VALUES, false), RC_REPLAY);
    assert_int_equal(gather_add(gather, 1, &from, said[1], VALUES, true), RC_OK);
    for (uint32_t k = 2; k <= AGGREGATE_ROWS_MAX; k++) {
        from = member(k);
        assert_int_equal(gather_add(gather, 0, &from, said[k], VALUES, false), RC_OK);
    }
    from = member(200);
    assert_int_equal(gather_add(gather, 0, &from, said[0], VALUES, false), RC_LIMIT);
    gather_begin(gather); /* the round was given up */
    assert_true(mem_blocks() == blocks);
    assert_int_equal(gather_add(gather, 0, &from, said[0], VALUES, false), RC_OK);
    gather_destroy(gather);
}

static void what_overflows_is_no_result(void **state)
{
    (void)state;
    struct gather *gather = made(&aggregate_trim, 1, 0);
    struct gather_count count;
    float out[VALUES], huge[VALUES];

    for (size_t i = 0; i < VALUES; i++) {
        huge[i] = FLT_MAX;
    }
    for (uint32_t k = 0; k < 5; k++) {
        struct gather_member from = member(k);

        assert_int_equal(gather_add(gather, 0, &from, huge, VALUES, true), RC_OK);
    }
    assert_int_equal(gather_reduce(gather, 0, NULL, 0, VALUES, out, &count), RC_NONFINITE);
    gather_destroy(gather);
}

static void memory_may_be_short(void **state)
{
    (void)state;
    const struct aggregate aggregate = {&aggregate_median, UINT32_MAX};
    struct gather_member from = member(1);
    struct gather *gather;
    float squared;

    for (uint64_t n = 0; n < 2; n++) {
        mem_fail_after(n);
        assert_null(gather_create(&aggregate, 2, VALUES));
    }
    mem_fail_after(UINT64_MAX);
    gather = made(&aggregate_median, UINT32_MAX, VALUES);
    mem_fail_after(0);
    assert_int_equal(gather_add(gather, 0, &from, said[0], VALUES, false), RC_NOMEM);
    mem_fail_after(0);
    assert_int_equal(gather_stage(gather, 0, 0, said[0], said[1], VALUES, &squared), RC_NOMEM);
    mem_fail_after(UINT64_MAX);
    assert_int_equal(gather_add(gather, 0, &from, said[0], VALUES, false), RC_OK);
    gather_destroy(gather);
}

/* One after the other through the same slot, in two pieces, as chunks come. */
static void take(struct gather *gather, uint32_t number, float weight, float share)
{
    struct gather_member from = member(number);
    float squared;

    from.weight = weight;
    from.share = share;
    for (size_t first = 0; first < VALUES; first += VALUES / 2) {
        assert_int_equal(gather_stage(gather, 3, first, said[0] + first, said[number] + first,
                                      VALUES / 2, &squared),
                         RC_OK);
        assert_true(squared > 0);
    }
    gather_take(gather, 3, &from, 1);
}

static void neighbours_are_mixed_as_the_mean_would(void **state)
{
    (void)state;
    /* With nobody left out and equal weights it is the neighbours' average, round after round; so
     * in a round in which two of four do not come. With one alone its plane counts by its share. */
    struct gather *gather = made(&aggregate_trim, 0, VALUES);
    struct gather_count count = {0, 0};
    struct rng rng;
    float difference[VALUES], squared;
    uint64_t blocks = 0;

    rng_init(&rng, 3, 0);
    draw(&rng);
    for (uint32_t round = 0; round < 3; round++) {
        uint32_t neighbours = round == 1 ? 2 : 4;

        gather_begin(gather);
        for (uint32_t k = neighbours; k > 0; k--) {
            take(gather, k, 0.2f, 1);
        }
        gather_settle(gather, member(0).id, said[0], difference, &count);
        assert_int_equal(count.judged, neighbours + 1);
        assert_int_equal(count.reduced, 0);
        for (size_t i = 0; i < VALUES; i++) {
            double sum = 0;

            for (uint32_t k = 1; k <= neighbours; k++) {
                sum += 0.2 * ((double)said[k][i] - (double)said[0][i]);
            }
            close_to(difference[i], sum);
        }
        if (round == 0) blocks = mem_blocks();
    }
    assert_true(mem_blocks() == blocks); /* planes are used again */
    take(gather, 1, 0.3f, 0.5f);
    gather_settle(gather, member(0).id, said[0], difference, &count);
    assert_int_equal(count.reduced, 1);
    for (size_t i = 0; i < VALUES; i++) { /* s = 0.6, and a third of the way */
        close_to(difference[i], 0.6 * ((double)said[1][i] - (double)said[0][i]) / 3);
    }
    gather_settle(gather, member(0).id, said[0], difference, &count);
    for (size_t i = 0; i < VALUES; i++) {
        assert_true(difference[i] == 0);
    }
    assert_int_equal(gather_stage(gather, 0, 1, said[0], said[1], VALUES, &squared), RC_SHAPE);
    gather_destroy(gather);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_order_of_arrival_is_no_matter),
        cmocka_unit_test(of_two_the_nearer_one_counts),
        cmocka_unit_test(a_rule_without_defence_goes_by_clip),
        cmocka_unit_test(nobody_is_heard_twice),
        cmocka_unit_test(what_overflows_is_no_result),
        cmocka_unit_test(memory_may_be_short),
        cmocka_unit_test(neighbours_are_mixed_as_the_mean_would),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
