/* Credit: the budget holds whatever is asked for, and nobody's share is somebody else's. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/rng.h"
#include "gossip/flow/credit.h"

#include <inttypes.h>
#include <stdbool.h>

enum { STREAMS_MAX = 90, UNIT = 128 * 1024 };

static void alone_a_stream_may_have_all_of_it(void **state)
{
    (void)state;
    assert_int_equal(credit_room(10 * UNIT, (struct credit_use){0, 1}, 0, 100 * UNIT, UNIT),
                     10 * UNIT);
    assert_int_equal(credit_room(10 * UNIT, (struct credit_use){0, 1}, 0, 3 * UNIT, UNIT),
                     3 * UNIT);
    assert_int_equal(credit_room(10 * UNIT, (struct credit_use){0, 0}, 0, 3 * UNIT + 1, UNIT),
                     3 * UNIT);
}

static void credit_travels_in_halves_of_a_share(void **state)
{
    struct credit_use all = {.streams = 2};

    (void)state;
    all.bytes = 7 * UNIT; /* of a share of 10 */
    assert_int_equal(credit_room(20 * UNIT, all, 7 * UNIT, 8 * UNIT, UNIT), 0);
    all.bytes = 5 * UNIT;
    assert_int_equal(credit_room(20 * UNIT, all, 5 * UNIT, 8 * UNIT, UNIT), 5 * UNIT);
    /* The rest of a stream need not wait for that. */
    all.bytes = 7 * UNIT;
    assert_int_equal(credit_room(20 * UNIT, all, 7 * UNIT, 2 * UNIT, UNIT), 2 * UNIT);
}

static void a_share_is_a_unit_at_least_as_long_as_there_is_any(void **state)
{
    (void)state;
    assert_int_equal(credit_room(4 * UNIT, (struct credit_use){0, 9}, 0, 9 * UNIT, UNIT), UNIT);
    assert_int_equal(credit_room(4 * UNIT, (struct credit_use){4 * UNIT, 9}, 0, 9 * UNIT, UNIT), 0);
    assert_int_equal(credit_room(4 * UNIT, (struct credit_use){9 * UNIT, 9}, 0, 9 * UNIT, UNIT), 0);
}

/* Streams come, ask for anything, use some of it, and go, silent ones among them that keep what
 * they have: the sum stays within the budget, and everyone who reads gets on. */
static void the_sum_never_exceeds_the_budget_and_everyone_gets_on(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 200) {
        uint64_t budget = CREDIT_BUDGET_BYTES, held[STREAMS_MAX] = {0}, got[STREAMS_MAX] = {0};
        bool is_open[STREAMS_MAX] = {false}, is_silent[STREAMS_MAX] = {false};
        struct rng rng;

        rng_init(&rng, seed, 1);
        for (uint32_t turn = 0; turn < 4000; turn++) {
            uint32_t i = (uint32_t)rng_below(&rng, STREAMS_MAX);
            struct credit_use all = {0, 0};
            uint64_t more;

            if (!is_open[i] || rng_below(&rng, 100) == 0) { /* another stream in its place */
                is_open[i] = true;
                is_silent[i] = rng_below(&rng, 3) == 0;
                held[i] = 0;
            }
            for (uint32_t j = 0; j < STREAMS_MAX; j++) {
                struct credit_use one = {held[j], is_open[j] ? 1 : 0};

                all = credit_sum(all, one);
            }
            more = credit_room(budget, all, held[i], (1 + rng_below(&rng, 32)) * UNIT, UNIT);
            check_seed(seed, more / UNIT * UNIT == more && all.bytes + more <= budget);
            held[i] += more;
            got[i] += more;
            if (!is_silent[i]) held[i] -= held[i] > UNIT ? held[i] / 2 / UNIT * UNIT : held[i];
        }
        for (uint32_t i = 0; i < STREAMS_MAX; i++) {
            check_seed(seed, !is_open[i] || got[i] > 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(alone_a_stream_may_have_all_of_it),
        cmocka_unit_test(credit_travels_in_halves_of_a_share),
        cmocka_unit_test(a_share_is_a_unit_at_least_as_long_as_there_is_any),
        cmocka_unit_test(the_sum_never_exceeds_the_budget_and_everyone_gets_on),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
