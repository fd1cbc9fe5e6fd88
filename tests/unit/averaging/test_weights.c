/* How much a member's model counts in a mean. */
#include "tests/check.h"

#include "averaging/weights.h"

enum { MAX = 6 };

static void check(size_t count, const uint64_t *samples, const uint8_t *wanted)
{
    uint8_t weights[MAX];
    bool are_alike = true, told = weights_of_samples(samples, count, weights);

    for (size_t i = 0; i < count; i++) {
        assert_int_equal(weights[i], wanted[i]);
        are_alike = are_alike && wanted[i] == wanted[0];
    }
    assert_int_equal(told, !are_alike);
}

static void who_trained_as_much_counts_as_much(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){160, 150, 170, 220}, (const uint8_t[]){16, 16, 16, 16});
    check(3, (const uint64_t[]){0, 0, 0}, (const uint8_t[]){16, 16, 16});
    check(1, (const uint64_t[]){5}, (const uint8_t[]){16});
    check(2, (const uint64_t[]){100, 141}, (const uint8_t[]){16, 16});
}

static void a_straggler_counts_less(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){200, 200, 20, 200}, (const uint8_t[]){16, 16, 2, 16});
    check(4, (const uint64_t[]){200, 0, 200, 200}, (const uint8_t[]){16, 1, 16, 16});
    check(4, (const uint64_t[]){0, 0, 0, 7}, (const uint8_t[]){1, 1, 1, 16});
    check(3, (const uint64_t[]){100, 200, 400}, (const uint8_t[]){8, 16, 32});
}

/* Four medians at most, whatever it says. */
static void who_claims_too_much_gains_little(void **state)
{
    (void)state;
    check(4, (const uint64_t[]){100, UINT64_MAX, 100, 100}, (const uint8_t[]){16, 64, 16, 16});
    check(2, (const uint64_t[]){100, UINT64_MAX}, (const uint8_t[]){16, 64});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_trained_as_much_counts_as_much),
        cmocka_unit_test(a_straggler_counts_less),
        cmocka_unit_test(who_claims_too_much_gains_little),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
