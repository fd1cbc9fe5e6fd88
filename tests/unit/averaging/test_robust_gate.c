/* The gate of averaging/core/robust.h: what is too far away to be of a model like ours, by its
 * length and where a young model has grown since all held the same. */
#include "tests/check.h"

#include "averaging/core/robust.h"
#include "base/check.h"
#include "base/rng.h"

static struct peer_id peer(uint8_t number)
{
    return (struct peer_id){{number}};
}

/* The last chunk of a plane may be short: unrelated values of our size pass there as they do in a
 * long one (with 1.5 norms two in five of ten values would not), and turned signs do not. */
static void short_chunks_of_unrelated_models_pass(void **state)
{
    static const size_t counts[] = {10, 40, 100, 1000};
    enum { MANY = 1000, TRIES = 500 };
    float own[MANY], in[MANY];

    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(counts); k++) {
        uint32_t refused = 0;
        struct rng rng;

        rng_init(&rng, 1, counts[k]);
        for (int i = 0; i < TRIES; i++) {
            struct robust *robust = robust_create(1, false);
            struct robust_chunk chunk = {.own = own, .in = in, .count = counts[k]};
            struct robust_verdict verdict;

            for (size_t v = 0; v < counts[k]; v++) {
                own[v] = (float)rng_normal(&rng);
                in[v] = 1.01f * own[v];
            }
            for (uint8_t from = 1; from <= 3; from++) {
                chunk.from = peer(from);
                assert_int_equal(robust_check(robust, &chunk, &verdict), RC_OK);
            }
            for (size_t v = 0; v < counts[k]; v++) {
                in[v] = -own[v];
            }
            chunk.from = peer(4);
            assert_int_equal(robust_check(robust, &chunk, &verdict), RC_LIMIT);
            for (size_t v = 0; v < counts[k]; v++) {
                in[v] = (float)rng_normal(&rng);
            }
            refused += robust_check(robust, &chunk, &verdict) != RC_OK;
            robust_destroy(robust);
        }
        if (refused > (counts[k] < 40 ? TRIES / 10 : TRIES / 50))
            fail_msg("%zu values: %u refused", counts[k], refused);
    }
}

/* In a long chunk chance is small: still 1.5 norms are let in, where sqrt(2) and it are less. */
static void long_chunks_are_let_in_up_to_the_least_gate(void **state)
{
    enum { MANY = 4096 };
    static const struct {
        float norms;
        enum rc rc;
    } rows[] = {{1.45f, RC_OK}, {1.49f, RC_OK}, {1.55f, RC_LIMIT}, {2, RC_LIMIT}};
    static float own[MANY], in[MANY];

    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(rows); k++) {
        struct robust *robust = robust_create(1, false);
        struct robust_chunk chunk = {.own = own, .in = in, .count = MANY};
        struct robust_verdict verdict;

        assert_non_null(robust);
        for (uint8_t from = 1; from <= 4; from++) {
            for (size_t v = 0; v < MANY; v++) { /* a norm of 64; three teach 0.1 */
                own[v] = 1;
                in[v] = 1 + (from < 4 ? 0.1f / 64 : rows[k].norms);
            }
            chunk.from = peer(from);
            assert_int_equal(robust_check(robust, &chunk, &verdict), from < 4 ? RC_OK : rows[k].rc);
        }
        robust_destroy(robust);
    }
}

/* From a centre of norm 10 our own model went to norm 40 in a few missed rounds, and an honest
 * peer's as far in another direction. It is let in; what is beyond 1.5 of our norms is not, and
 * where we stayed at the centre neither is. */
static void who_grew_as_much_as_this_peer_is_let_in(void **state)
{
    enum { MANY = 100 };
    static const struct {
        float ours, theirs;
        enum rc rc;
    } rows[] = {{4, -3, RC_OK}, {4, 8, RC_LIMIT}, {4, -6, RC_LIMIT}, {1, -3, RC_LIMIT}};
    float centre[MANY], ours[MANY], in[MANY];

    (void)state;
    for (size_t k = 0; k < ARRAY_COUNT(rows); k++) {
        struct robust *robust = robust_create(1, true);
        struct robust_chunk chunk = {.from = peer(1),
                                     .own = centre,
                                     .ours = ours,
                                     .in = in,
                                     .count = MANY,
                                     .is_centred = true,
                                     .may_clip = true};
        struct robust_verdict verdict;

        assert_non_null(robust);
        for (size_t v = 0; v < MANY; v++) {
            centre[v] = 1;
            ours[v] = rows[k].ours;
            in[v] = rows[k].theirs;
        }
        assert_int_equal(robust_check(robust, &chunk, &verdict), rows[k].rc);
        robust_destroy(robust);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(short_chunks_of_unrelated_models_pass),
        cmocka_unit_test(long_chunks_are_let_in_up_to_the_least_gate),
        cmocka_unit_test(who_grew_as_much_as_this_peer_is_let_in),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
