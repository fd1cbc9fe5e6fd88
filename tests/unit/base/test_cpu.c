/* cpu: how many cores there are to use. */
#include "tests/check.h"

#include "base/cpu.h"

#include <sched.h>

static void cores_are_those_that_the_process_may_use(void **state)
{
    /* Proves: no more than the affinity has, which a process that is confined to one core sees. */
    cpu_set_t all, one;
    size_t first = 0;

    (void)state;
    assert_int_equal(sched_getaffinity(0, sizeof(all), &all), 0);
    assert_true(cpu_cores() >= 1 && cpu_cores() <= (uint32_t)CPU_COUNT(&all));
    while (!CPU_ISSET(first, &all)) {
        first++;
    }
    CPU_ZERO(&one);
    CPU_SET(first, &one);
    assert_int_equal(sched_setaffinity(0, sizeof(one), &one), 0);
    assert_int_equal(cpu_cores(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof(all), &all), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cores_are_those_that_the_process_may_use),
    };

    only_threads_for_their_sanitizer();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
