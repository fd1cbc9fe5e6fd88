/* Log lines: filtered, formatted, harmless. */
#include "tests/check.h"

#include "base/log.h"

struct seen {
    int lines;
    enum log_level level;
    char text[2048];
};

static void on_line(void *context, enum log_level level, const char *line)
{
    struct seen *seen = context;

    seen->lines++;
    seen->level = level;
    snprintf(seen->text, sizeof seen->text, "%s", line);
}

/* Lines up to the level arrive, formatted; the others do not. */
static void lines_above_the_level_are_dropped(void **state)
{
    struct seen seen = {0};
    struct log log = {LOG_WARN, on_line, &seen};

    (void)state;
    log_error(&log, "lost %d of %s", 3, "them");
    assert_string_equal(seen.text, "lost 3 of them");
    assert_int_equal(seen.level, LOG_ERROR);
    log_warn(&log, "w");
    log_info(&log, "i");
    log_debug(&log, "d");
    assert_int_equal(seen.lines, 2);
    assert_string_equal(seen.text, "w");
    log.level = LOG_DEBUG;
    log_info(&log, "i");
    log_debug(&log, "d");
    assert_int_equal(seen.lines, 4);
}

/* A line cannot move the cursor, break into two, or grow without end. */
static void lines_are_made_harmless(void **state)
{
    struct seen seen = {0};
    struct log log = {LOG_INFO, on_line, &seen};
    char flood[4000];

    (void)state;
    log_info(&log, "a\nb\x1b[2Jc\td\re");
    assert_string_equal(seen.text, "a\\x0ab\\x1b[2Jc\\x09d\\x0de");
    memset(flood, 'x', sizeof flood);
    flood[sizeof flood - 1] = '\0';
    log_info(&log, "%s", flood);
    assert_int_equal(strlen(seen.text), 1023);
}

/* No log and no receiver mean silence. */
static void no_log_is_silence(void **state)
{
    struct log log = {LOG_DEBUG, NULL, NULL};

    (void)state;
    log_error(NULL, "x");
    log_error(&log, "x");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_above_the_level_are_dropped),
        cmocka_unit_test(lines_are_made_harmless),
        cmocka_unit_test(no_log_is_silence),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
