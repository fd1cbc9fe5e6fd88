/* process: real children; this program is its own child when GV_CHILD says what to play. */
#include "tests/check.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "peer/env/process.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <unistd.h>

enum { CHILDREN_MAX = 8, LINES_MAX = 64 };

struct noted {
    struct process_host *host;
    char lines[LINES_MAX][128];
    size_t line_bytes[LINES_MAX];
    unsigned lines_count, exits_count, ticks_count, signals_count;
    int code, signal;
    unsigned stop_at_lines, stop_at_exits, stop_at_ticks;
};

static void note_line(void *context, uint32_t child, const char *line)
{
    struct noted *noted = context;

    (void)child;
    assert_true(noted->lines_count < LINES_MAX);
    noted->line_bytes[noted->lines_count] = strlen(line);
    snprintf(noted->lines[noted->lines_count++], sizeof noted->lines[0], "%s", line);
    if (noted->lines_count == noted->stop_at_lines) process_host_stop(noted->host);
}

static void note_exit(void *context, uint32_t child, int code, int signal)
{
    struct noted *noted = context;

    assert_int_equal(process_pid(noted->host, child), 0);
    noted->code = code;
    noted->signal = signal;
    if (++noted->exits_count == noted->stop_at_exits) process_host_stop(noted->host);
}

static void note_tick(void *context, uint64_t now_ns)
{
    struct noted *noted = context;

    assert_true(now_ns > 0);
    if (++noted->ticks_count == noted->stop_at_ticks) process_host_stop(noted->host);
}

static void note_signal(void *context, int signal)
{
    struct noted *noted = context;

    assert_int_equal(signal, SIGINT);
    noted->signals_count++;
    process_host_stop(noted->host);
}

static struct noted *host_open(void)
{
    struct noted *noted = calloc(1, sizeof *noted);
    struct process_events events = {noted, note_line, note_exit, note_tick, note_signal};
    struct fault why;

    assert_int_equal(process_host_create(&events, 2 * NS_PER_MS, &noted->host, &why), RC_OK);
    return noted;
}

static void host_close(struct noted *noted)
{
    process_host_destroy(noted->host);
    free(noted);
}

static uint32_t child_open(struct noted *noted, const char *part, const char *errors)
{
    const char *argv[] = {"/proc/self/exe", "argument", NULL};
    char variable[64];
    const char *environment[] = {variable, "HOME=/elsewhere", NULL};
    struct process_options options = {argv, environment, errors};
    struct fault why;
    uint32_t child = 99;

    snprintf(variable, sizeof variable, "GV_CHILD=%s", part);
    assert_int_equal(process_spawn(noted->host, &options, &child, &why), RC_OK);
    return child;
}

static void lines_and_the_end_of_a_child_are_told_in_order(void **state)
{
    /* All lines come before the exit, the last one even without a newline. */
    struct noted *noted = host_open();

    (void)state;
    assert_int_equal(child_open(noted, "talk", NULL), 0);
    noted->stop_at_exits = 1;
    process_host_run(noted->host);
    assert_int_equal(noted->lines_count, 4);
    assert_string_equal(noted->lines[0], "hello /elsewhere argument");
    assert_string_equal(noted->lines[1], "");
    assert_int_equal(noted->line_bytes[2], 64 * 1024); /* 100,000 were said */
    assert_string_equal(noted->lines[3], "no newline");
    assert_int_equal(noted->code, 7);
    assert_int_equal(noted->signal, 0);
    process_signal(noted->host, 0, SIGTERM); /* too late: harmless */
    process_signal(noted->host, 5, SIGTERM); /* never was */
    host_close(noted);
}

static void children_have_rising_numbers_and_take_signals(void **state)
{
    /* Numbers are not used again; a signal that kills is reported as such. */
    struct noted *noted = host_open();

    (void)state;
    for (uint32_t i = 0; i < 3; i++) {
        assert_int_equal(child_open(noted, "wait", NULL), i);
        assert_true(process_pid(noted->host, i) > 0);
        assert_int_equal(getpgid(process_pid(noted->host, i)), process_pid(noted->host, i));
        noted->stop_at_lines = i + 1;
        process_host_run(noted->host);
        process_signal(noted->host, i, SIGTERM);
        noted->stop_at_exits = i + 1;
        process_host_run(noted->host);
        assert_int_equal(noted->signal, SIGTERM);
    }
    host_close(noted);
}

static void destroying_the_host_kills_its_children(void **state)
{
    /* Nobody is left behind, not even a stopped child. */
    struct noted *noted = host_open();
    int pids[2];

    (void)state;
    for (uint32_t i = 0; i < 2; i++) {
        (void)child_open(noted, "wait", NULL);
        pids[i] = process_pid(noted->host, i);
    }
    noted->stop_at_lines = 2;
    process_host_run(noted->host);
    process_signal(noted->host, 1, SIGSTOP);
    host_close(noted);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(kill(pids[i], 0), -1);
        assert_int_equal(errno, ESRCH);
    }
    process_host_destroy(NULL);
}

static void a_child_dies_with_its_parent(void **state)
{
    /* A parent with a child of its own is killed; the grandchild, which ignores SIGTERM and holds
     * the pipe open, is gone soon after. */
    struct noted *noted = host_open();
    int grandchild;

    (void)state;
    (void)child_open(noted, "parent", NULL);
    noted->stop_at_lines = 1;
    process_host_run(noted->host);
    grandchild = atoi(noted->lines[0]);
    assert_true(grandchild > 1);
    assert_int_equal(kill(grandchild, 0), 0);
    process_signal(noted->host, 0, SIGKILL);
    noted->stop_at_exits = 1;
    process_host_run(noted->host);
    for (int i = 0; i < 5000 && kill(grandchild, 0) == 0; i++) {
        char path[64], text[256] = "";
        FILE *file;

        /* An unreaped zombie is dead too: it has nobody here to wait for it. */
        snprintf(path, sizeof path, "/proc/%d/stat", grandchild);
        file = fopen(path, "r");
        if (file != NULL) {
            size_t got = fread(text, 1, sizeof text - 1, file);

            text[got] = '\0';
            fclose(file);
            if (strstr(text, ") Z ") != NULL) break;
        }
        noted->stop_at_ticks = noted->ticks_count + 1;
        process_host_run(noted->host);
        assert_int_not_equal(i, 4999);
    }
    host_close(noted);
}

static void what_a_child_says_on_stderr_goes_to_its_file(void **state)
{
    /* Two children append to one file. */
    struct noted *noted = host_open();
    char path[] = "/tmp/process-test-XXXXXX", text[64] = "";
    int fd = mkstemp(path);

    (void)state;
    assert_true(fd >= 0);
    for (unsigned i = 1; i <= 2; i++) {
        (void)child_open(noted, "grumble", path);
        noted->stop_at_exits = i;
        process_host_run(noted->host);
    }
    assert_int_equal(read(fd, text, sizeof text - 1), 10);
    assert_string_equal(text, "oops\noops\n");
    close(fd);
    unlink(path);
    host_close(noted);
}

static void what_cannot_be_started_says_why(void **state)
{
    /* No such program, no such log folder, no memory at any allocation: an error, and no child. */
    struct noted *noted = host_open();
    const char *argv[] = {"/nonexistent/program", NULL};
    struct process_options options = {argv, NULL, NULL};
    struct fault why = {.text = ""};
    uint32_t child = 9;

    (void)state;
    assert_int_equal(process_spawn(noted->host, &options, &child, &why), RC_IO);
    assert_non_null(strstr(why.text, "no such file"));
    options.error_path = "/nonexistent/folder/log";
    assert_int_equal(process_spawn(noted->host, &options, &child, &why), RC_IO);
    assert_non_null(strstr(why.text, options.error_path));
    options.error_path = NULL;
    for (uint64_t i = 0; i < 4; i++) {
        mem_fail_after(i);
        assert_int_equal(process_spawn(noted->host, &options, &child, &why), RC_NOMEM);
        mem_fail_after(UINT64_MAX);
    }
    assert_int_equal(child, 9);
    assert_int_equal(process_pid(noted->host, 0), 0);
    host_close(noted);
    assert_int_equal(mem_blocks(), 0);
}

static void our_own_signals_are_told(void **state)
{
    /* SIGINT to us is an event, not the end. */
    struct noted *noted = host_open();
    uint64_t before = process_now_ns(noted->host);

    (void)state;
    assert_int_equal(raise(SIGINT), 0);
    process_host_run(noted->host);
    assert_int_equal(noted->signals_count, 1);
    assert_true(process_now_ns(noted->host) >= before);
    host_close(noted);
}

/* ---- the parts the child plays ---- */

static int wait_for_the_end(void)
{
    while (true) {
        (void)pause();
    }
    return 0;
}

static int play_parent(void)
{
    struct noted *noted = host_open();
    uint32_t child = child_open(noted, "stubborn", NULL);

    noted->stop_at_lines = 1; /* it is bound to us by now */
    process_host_run(noted->host);
    printf("%d\n", process_pid(noted->host, child));
    fflush(stdout);
    return wait_for_the_end();
}

static int play(const char *part, const char *argument)
{
    if (strcmp(part, "talk") == 0) {
        printf("hello %s %s\n\n", getenv("HOME"), argument);
        for (int i = 0; i < 100000; i++) {
            putchar('x');
        }
        printf("\nno newline");
        fflush(stdout);
        return 7;
    }
    if (strcmp(part, "grumble") == 0) {
        fprintf(stderr, "oops\n");
        return 0;
    }
    if (strcmp(part, "parent") == 0) return play_parent();
    if (strcmp(part, "stubborn") == 0) signal(SIGTERM, SIG_IGN);
    printf("ready\n");
    fflush(stdout);
    return wait_for_the_end();
}

int main(int argc, char **argv)
{
    const char *part = getenv("GV_CHILD");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_and_the_end_of_a_child_are_told_in_order),
        cmocka_unit_test(children_have_rising_numbers_and_take_signals),
        cmocka_unit_test(destroying_the_host_kills_its_children),
        cmocka_unit_test(a_child_dies_with_its_parent),
        cmocka_unit_test(what_a_child_says_on_stderr_goes_to_its_file),
        cmocka_unit_test(what_cannot_be_started_says_why),
        cmocka_unit_test(our_own_signals_are_told),
    };

    process_bind_to_parent();
    if (part != NULL) return play(part, argc > 1 ? argv[1] : "");
    return cmocka_run_group_tests(tests, NULL, NULL);
}
