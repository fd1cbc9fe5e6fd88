/* Reasons, return codes and internal errors. */
#include "tests/check.h"

#include "base/check.h"
#include "base/fault.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

/* Setting a reason hands the code back, with or without a place for the words. */
static void a_fault_hands_the_code_back(void **state)
{
    struct fault why = {"old"};

    (void)state;
    assert_int_equal(fault_set(&why, RC_IO, "cannot read %s", "x"), RC_IO);
    assert_string_equal(why.text, "cannot read x");
    assert_int_equal(fault_set(NULL, RC_LIMIT, "%d", 1), RC_LIMIT);
}

/* What it quotes of a file, or of another peer, moves no cursor. */
static void reasons_are_made_harmless(void **state)
{
    struct fault why;

    (void)state;
    fault_set(&why, RC_FORMAT, "cannot use '%s'", "\x1b[2J\xc2\x9b\n\xff");
    assert_string_equal(why.text, "cannot use '\\x1b[2J\\xc2\\x9b\\x0a\\xff'");
}

/* Words that are too long are cut, and end. */
static void long_reasons_are_cut(void **state)
{
    struct fault why;
    char flood[2000];

    (void)state;
    memset(flood, 'x', sizeof flood);
    flood[sizeof flood - 1] = '\0';
    assert_int_equal(fault_set(&why, RC_IO, "%s", flood), RC_IO);
    assert_int_equal(strlen(why.text), sizeof why.text - 1);
}

/* Every code has words of its own, and no number is beyond words. */
static void every_code_has_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < RC_COUNT; i++) {
        assert_non_null(rc_text((enum rc)i));
        for (int k = 0; k < i; k++) {
            assert_string_not_equal(rc_text((enum rc)i), rc_text((enum rc)k));
        }
    }
    assert_string_equal(rc_text((enum rc)RC_COUNT), "unknown error");
    assert_string_equal(rc_text((enum rc) - 1), "unknown error");
}

/* A broken CHECK says where and what on stderr, then aborts; a kept one does nothing. */
static void a_broken_check_aborts(void **state)
{
    char said[256] = "";
    int ends[2], status;
    pid_t child;

    (void)state;
    CHECK(1 + 1 == 2);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    if (child == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(ends[1], STDERR_FILENO);
        CHECK(1 + 1 == 3);
        _exit(0);
    }
    close(ends[1]);
    assert_true(read(ends[0], said, sizeof said - 1) > 0);
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(said, "test_fault.c:"));
    assert_non_null(strstr(said, "1 + 1 == 3"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fault_hands_the_code_back), cmocka_unit_test(reasons_are_made_harmless),
        cmocka_unit_test(long_reasons_are_cut),        cmocka_unit_test(every_code_has_a_text),
        cmocka_unit_test(a_broken_check_aborts),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
