/* Windows learned from samples. */
#include "tests/check.h"

#include "averaging/core/deadline.h"

/* From the first sample on. */
static uint64_t wait(const struct deadline *d, uint64_t first, uint64_t floor, uint64_t cap)
{
    const struct deadline_bounds bounds = {first, floor, floor, cap, 1};

    return deadline_wait_ns(d, &bounds, true, 0);
}

static void a_wait_without_samples_is_the_first_one_within_bounds(void **state)
{
    (void)state;
    /* Nothing known: the given first wait, but never outside floor and cap. */
    struct deadline d = {.count = 0};

    assert_int_equal(wait(&d, 1000, 100, 5000), 1000);
    assert_int_equal(wait(&d, 1000, 100, 500), 500);
    assert_int_equal(wait(&d, 10, 100, 500), 100);
    assert_int_equal(wait(&d, 1000, 100, 50), 100); /* the floor wins */
    assert_int_equal(deadline_median(&d, 77), 77);
}

/* What is known otherwise counts beyond the cap; who is not proven has its own floor once it is
 * known what is usual. */
static void a_wait_has_its_floors(void **state)
{
    static const struct deadline_bounds bounds = {1000, 100, 20, 500, 2};
    struct deadline d = {.count = 0};

    (void)state;
    assert_int_equal(deadline_wait_ns(&d, &bounds, true, 700), 700);
    deadline_add(&d, 3);
    assert_int_equal(deadline_wait_ns(&d, &bounds, true, 0), 500); /* one says too little */
    deadline_add(&d, 3);
    assert_int_equal(deadline_wait_ns(&d, &bounds, true, 0), 100);
    assert_int_equal(deadline_wait_ns(&d, &bounds, false, 0), 100);
    while (d.count < DEADLINE_FEW) {
        deadline_add(&d, 3);
    }
    assert_int_equal(deadline_wait_ns(&d, &bounds, true, 0), 100);
    assert_int_equal(deadline_wait_ns(&d, &bounds, false, 0), 20);
    assert_int_equal(deadline_wait_ns(&d, &bounds, false, 600), 600);
}

static void a_few_outliers_do_not_stretch_the_window(void **state)
{
    (void)state;
    /* Median 10, deviations 1: five samples of a million among thirty-two change nothing. */
    struct deadline d = {.count = 0};

    for (uint64_t i = 0; i < 32; i++) {
        deadline_add(&d, i % 7 == 6 ? 1000000 : 9 + i % 3);
    }
    assert_int_equal(deadline_median(&d, 0), 10);
    assert_int_equal(wait(&d, 0, 0, UINT64_MAX), 20); /* twice the median */
}

static void of_an_even_number_the_upper_middle_counts(void **state)
{
    (void)state;
    /* Rather a little longer: median 20, deviations 0 and 10, of which 4 count. */
    struct deadline d = {.count = 0};

    deadline_add(&d, 10);
    deadline_add(&d, 20);
    assert_int_equal(deadline_median(&d, 0), 20);
    assert_int_equal(wait(&d, 0, 0, UINT64_MAX), 60);
}

static void old_samples_give_way_to_new_ones(void **state)
{
    (void)state;
    /* The ring holds the last DEADLINE_SAMPLES. */
    struct deadline d = {.count = 0};

    for (int i = 0; i < DEADLINE_SAMPLES; i++) {
        deadline_add(&d, 500);
    }
    for (int i = 0; i < DEADLINE_SAMPLES; i++) {
        deadline_add(&d, 7);
    }
    assert_int_equal(wait(&d, 0, 0, UINT64_MAX), 14);
}

static void huge_samples_do_not_overflow(void **state)
{
    (void)state;
    /* Sums saturate instead of wrapping into a short wait. */
    struct deadline d = {.count = 0};

    deadline_add(&d, 0);
    deadline_add(&d, UINT64_MAX);
    deadline_add(&d, UINT64_MAX / 2);
    assert_int_equal(wait(&d, 0, 0, 1000), 1000);
    assert_int_equal(wait(&d, 0, 0, UINT64_MAX), UINT64_MAX);
    assert_int_equal(deadline_after(UINT64_MAX - 5, 6), UINT64_MAX);
    assert_int_equal(deadline_after(5, 6), 11);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wait_without_samples_is_the_first_one_within_bounds),
        cmocka_unit_test(a_wait_has_its_floors),
        cmocka_unit_test(a_few_outliers_do_not_stretch_the_window),
        cmocka_unit_test(of_an_even_number_the_upper_middle_counts),
        cmocka_unit_test(old_samples_give_way_to_new_ones),
        cmocka_unit_test(huge_samples_do_not_overflow),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
