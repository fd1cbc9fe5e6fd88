/* Crash points: the process that is told to dies at the named pass, and no other does. */
#include "tests/check.h"

#include "base/crash_point.h"

#include <signal.h>
#include <stdbool.h>
#include <sys/wait.h>
#include <unistd.h>

/* How a child ends that is armed with `spec` and passes `point` so often: the signal, 0: none. */
static int end_of(const char *spec, enum crash_point point, int passes)
{
    struct fault why;
    int status;
    pid_t child = fork();

    assert_true(child >= 0);
    if (child == 0) {
        if (crash_point_arm(spec, &why) != RC_OK) _exit(9);
        for (int i = 0; i < passes; i++) {
            crash_point(point);
        }
        _exit(0);
    }
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    if (WIFSTOPPED(status)) {
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        return SIGSTOP;
    }
    if (WIFSIGNALED(status)) return WTERMSIG(status);
    assert_int_equal(WEXITSTATUS(status), 0);
    return 0;
}

static void an_armed_point_kills_at_its_pass(void **state)
{
    (void)state;
    assert_int_equal(end_of("swap:ready-sent", CRASH_SWAP_READY_SENT, 1), SIGKILL);
    assert_int_equal(end_of("swap:ready-sent:3", CRASH_SWAP_READY_SENT, 3), SIGKILL);
    assert_int_equal(end_of("swap:ready-sent:3", CRASH_SWAP_READY_SENT, 2), 0);
    assert_int_equal(end_of("swap:ready-sent", CRASH_SWAP_READY_RECEIVED, 5), 0);
    assert_int_equal(end_of("swap:ready-sent:2:stop", CRASH_SWAP_READY_SENT, 2), SIGSTOP);
    assert_int_equal(end_of("swap:ready-sent:stop", CRASH_SWAP_READY_RECEIVED, 2), 0);
    assert_int_equal(end_of("swap:ready-sent", CRASH_NONE, 5), 0);
    assert_int_equal(end_of(NULL, CRASH_SWAP_READY_SENT, 5), 0);
    assert_int_equal(end_of(NULL, CRASH_NONE, 5), 0);
}

static void every_name_is_its_own(void **state)
{
    struct fault why;

    (void)state;
    assert_true(CRASH_COUNT > 40);
    for (int a = CRASH_NONE + 1; a < CRASH_COUNT; a++) {
        const char *name = crash_point_name((enum crash_point)a);

        assert_non_null(strchr(name, ':'));
        for (int b = CRASH_NONE + 1; b < a; b++) {
            assert_string_not_equal(name, crash_point_name((enum crash_point)b));
        }
        assert_int_equal(crash_point_arm(name, &why), RC_OK);
    }
    assert_int_equal(crash_point_arm(NULL, &why), RC_OK);
}

/* A test that names a point wrongly would wait for a crash that never comes. */
static void a_wrong_name_is_refused(void **state)
{
    const char *const wrong[] = {"",
                                 "pair",
                                 "swap:ready-sen",
                                 "swap:ready-sent:0",
                                 ":",
                                 "swap:ready-sent:2x",
                                 "swap:ready-sent:99999999999999"};
    struct fault why;

    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        assert_int_equal(crash_point_arm(wrong[i], &why), RC_PARSE);
        assert_non_null(strstr(why.text, "GRAPEVINE_CRASH_POINT"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_armed_point_kills_at_its_pass),
        cmocka_unit_test(every_name_is_its_own),
        cmocka_unit_test(a_wrong_name_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
