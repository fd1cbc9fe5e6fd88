/* progress: lines at most every ten seconds, the time left from what is done, one line at the end.
 */
#include "tests/check.h"

#include "peer/cli/progress.h"

#include <stdio.h>
#include <string.h>

struct heard {
    size_t count;
    char last[200];
};

static void on_line(void *context, enum log_level level, const char *line)
{
    struct heard *heard = context;

    assert_int_equal(level, LOG_INFO);
    heard->count++;
    (void)snprintf(heard->last, sizeof heard->last, "%s", line);
}

static void go_back(struct progress *progress, uint64_t seconds)
{
    progress->begin_ns -= seconds * 1000000000;
    progress->told_ns -= seconds * 1000000000;
}

static void lines_come_seldom_and_say_what_is_left(void **state)
{
    /* Proves: off a terminal nothing is said within ten seconds of the line before; a line has the
     * share, the time left in proportion, and the detail; the end and a new phase say the seconds
     * taken, once; what takes less than a second is not told of. */
    (void)state;
    struct heard heard = {0};
    struct progress progress = {.log = {LOG_INFO, on_line, &heard}};

    progress_tell(&progress, "baking", 0.1, "");
    progress_tell(&progress, "baking", 0.2, "");
    assert_int_equal(heard.count, 0);
    go_back(&progress, 20);
    progress_tell(&progress, "baking", 0.5, "loss 1");
    assert_string_equal(heard.last, "baking: 50 %, 20 s left, loss 1");
    progress_tell(&progress, "baking", 0.6, "");
    assert_int_equal(heard.count, 1);
    go_back(&progress, 180);
    progress_tell(&progress, "baking", 0, "");
    assert_string_equal(heard.last, "baking: 3 min 20 s");
    progress_tell(&progress, "eating", 0.5, "");
    assert_string_equal(heard.last, "baking: done in 3 min 20 s");
    go_back(&progress, 2);
    progress_tell(&progress, "eating", 1, "");
    assert_int_equal(heard.count, 4);
    assert_string_equal(heard.last, "eating: done in 2.0 s");
    progress_end(&progress);
    progress_tell(&progress, "washing up", 0.3, "");
    progress_end(&progress);
    assert_int_equal(heard.count, 4);
}

static void quiet_says_nothing(void **state)
{
    (void)state;
    struct heard heard = {0};
    struct progress progress = {.log = {LOG_ERROR, on_line, &heard}};

    progress_tell(&progress, "baking", 0.1, "");
    go_back(&progress, 20);
    progress_tell(&progress, "baking", 0.5, "");
    progress_end(&progress);
    assert_int_equal(heard.count, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_come_seldom_and_say_what_is_left),
        cmocka_unit_test(quiet_says_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
