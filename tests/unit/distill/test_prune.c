/* Tests of distill/prune: which weights go, how many, and in which order. */
#include "tests/check.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"
#include "distill/prune.h"

#include <math.h>

/* Two weights with a bias between, and statistics. */
static void schema_of(struct schema *schema, uint32_t first, uint32_t second)
{
    schema_init(schema);
    assert_int_equal(
        schema_add(schema, "dense1.weight", SECTION_PARAMETERS, (uint32_t[]){first, 4}, 2), RC_OK);
    assert_int_equal(schema_add(schema, "dense1.bias", SECTION_PARAMETERS, (uint32_t[]){3}, 1),
                     RC_OK);
    assert_int_equal(schema_add(schema, "bn1.running_mean", SECTION_BUFFERS, (uint32_t[]){3}, 1),
                     RC_OK);
    assert_int_equal(
        schema_add(schema, "dense2.weight", SECTION_PARAMETERS, (uint32_t[]){second, 2}, 2), RC_OK);
}

static size_t count_gone(const uint8_t *keeps, size_t count)
{
    size_t gone = 0;

    for (size_t i = 0; i < count; i++) {
        gone += keeps[i] == 0;
    }
    return gone;
}

static void the_score_is_the_published_one(void **state)
{
    /* Squares over sums of those no smaller: of 1 2 3 4 they are 1/30, 4/29, 9/25 and 1. */
    struct schema schema;
    const float values[] = {3, -1, 4, 2, /* bias */ 0, 0, 0, /* */ 9, -20};
    const double scores[] = {9.0 / 25, 1.0 / 30, 1, 4.0 / 29, 2, 2, 2, 81.0 / 481, 1};
    uint8_t keeps[9];

    (void)state;
    schema_of(&schema, 1, 1);
    assert_int_equal(prune_weights(&schema), 6);
    for (int drop = 0; drop < 6; drop++) {
        assert_int_equal(prune_choose(&schema, values, drop / 6.0 + 0.01, keeps), RC_OK);
        assert_int_equal(count_gone(keeps, 9), drop);
        for (int i = 0; i < 9; i++) {
            for (int k = 0; k < 9 && keeps[i] == 0; k++) {
                assert_true(keeps[k] == 0 || scores[k] >= scores[i]);
            }
        }
    }
    assert_true(keeps[2] == 1 || keeps[8] == 1);
    schema_deinit(&schema);
}

static void as_many_go_as_were_asked_for_and_no_tensor_is_emptied_first(void **state)
{
    /* Whatever the values: the share to the last weight, biases stay, zeros go first, layers a
     * million times smaller keep their largest. */
    struct schema schema;
    float values[400 * 4 + 3 + 300 * 2];
    uint8_t keeps[ARRAY_COUNT(values)];

    (void)state;
    schema_of(&schema, 400, 300);
    FOR_EACH_SEED (seed, 20) {
        const double share = (double)(seed % 10) / 10;
        const bool are_equal = seed % 4 == 0; /* many of them */
        struct rng rng;
        rng_init(&rng, seed, 1);
        for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
            const bool is_zero = seed % 3 == 0 && rng_unit(&rng) < 0.2;
            values[i] = is_zero ? 0.0F : (float)rng_normal(&rng) * (i < 1603 ? 1e-6F : 1.0F);
            if (are_equal) values[i] = rintf(2 * values[i]);
        }
        check_seed(seed, prune_choose(&schema, values, share, keeps) == RC_OK);
        check_seed(seed, count_gone(keeps, ARRAY_COUNT(keeps)) == (size_t)(share * 2200));
        check_seed(seed, count_gone(keeps + 1600, 3) == 0);
        check_seed(seed, are_equal || count_gone(keeps, 1600) < 1600);
        check_seed(seed, count_gone(keeps + 1603, 600) < 600);
        prune_apply(keeps, values, ARRAY_COUNT(values));
        for (size_t i = 0; i < ARRAY_COUNT(values); i++) {
            check_seed(seed, keeps[i] == 1 || !(fabsf(values[i]) > 0.0F));
        }
    }
    schema_deinit(&schema);
}

static void huge_and_tiny_values_have_scores(void **state)
{
    /* Squares neither overflow nor vanish. */
    struct schema schema;
    const float values[] = {3e38F, 1e38F, 2e38F, 0, 0, 0, 0, 2e-42F, 1e-42F};
    uint8_t keeps[9];

    (void)state;
    schema_of(&schema, 1, 1);
    assert_int_equal(prune_choose(&schema, values, 0.5, keeps), RC_OK);
    assert_true(keeps[3] == 0 && keeps[1] == 0 && keeps[8] == 0);
    assert_true(keeps[0] == 1 && keeps[2] == 1 && keeps[7] == 1);
    schema_deinit(&schema);
}

static void the_share_grows_fast_and_ends_slowly(void **state)
{
    (void)state;
    assert_true(fabs(prune_share(0.8, 0)) < 1e-12 && fabs(prune_share(0.8, 1) - 0.8) < 1e-12);
    assert_true(fabs(prune_share(0.8, 0.5) - 0.7) < 1e-12);
    assert_true(prune_share(0.8, 2) <= 0.8);
}

static void memory_that_runs_out_is_told(void **state)
{
    struct schema schema;
    const float values[9] = {1, 2, 3};
    uint8_t keeps[9];
    enum rc rc = RC_NOMEM;

    (void)state;
    schema_of(&schema, 1, 1);
    for (uint64_t after = 0; rc == RC_NOMEM; after++) {
        const uint64_t blocks = mem_blocks();
        mem_fail_after(after);
        rc = prune_choose(&schema, values, 0.5, keeps);
        mem_fail_after(UINT64_MAX);
        assert_int_equal(mem_blocks(), blocks);
    }
    assert_int_equal(rc, RC_OK);
    schema_deinit(&schema);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_score_is_the_published_one),
        cmocka_unit_test(as_many_go_as_were_asked_for_and_no_tensor_is_emptied_first),
        cmocka_unit_test(huge_and_tiny_values_have_scores),
        cmocka_unit_test(the_share_grows_fast_and_ends_slowly),
        cmocka_unit_test(memory_that_runs_out_is_told),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
