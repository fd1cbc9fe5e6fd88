/* Tests of the virtual device itself: that it computes what a GPU would, and that it notices what a
 * GPU might forgive. */
#include "tests/cuda/virtual_itself/itself.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

void itself_begin_with(struct virtual_options options)
{
    virtual_configure(&options);
}

void itself_begin(uint64_t seed)
{
    struct virtual_options options = {};

    options.devices = 1;
    options.memory_bytes = static_cast<size_t>(1) << 28;
    options.capability = 90;
    options.seed = seed;
    options.pace = VIRTUAL_LAZY;
    itself_begin_with(options);
}

void itself_end(void)
{
    ok(cudaDeviceSynchronize());
    assert_int_equal(virtual_memory_used(), 0);
}

/* The child's end; `text` gets the begin of what it printed. */
static int run_child(void (*run)(void), char *text, size_t cap)
{
    int ends[2], status = 0;
    size_t used = 0;
    ssize_t got;

    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        for (int number : {SIGABRT, SIGSEGV, SIGILL, SIGBUS, SIGFPE}) {
            signal(number, SIG_DFL);
        }
        run();
        _exit(0);
    }
    close(ends[1]);
    while (used + 1 < cap && (got = read(ends[0], text + used, cap - used - 1)) > 0) {
        used += static_cast<size_t>(got);
    }
    text[used] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return status;
}

void itself_aborts(void (*run)(void), const char *text)
{
    char printed[8192];
    int status = run_child(run, printed, sizeof(printed));

    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(printed, text) != NULL) return;
    fail_msg("no abort with \"%s\", but status %x and: %s", text, static_cast<unsigned>(status),
             printed);
}

void itself_crashes(void (*run)(void))
{
    char printed[8192];
    int status = run_child(run, printed, sizeof(printed));

    assert_true(WIFSIGNALED(status) || (WIFEXITED(status) && WEXITSTATUS(status) == 1));
}

int main(void)
{
    int failures = 0;
    struct {
        const char *name;
        struct itself_tests list;
    } all[] = {{"blocks", itself_blocks()},
               {"warps", itself_warps()},
               {"streams", itself_streams()},
               {"failures", itself_failures()}};

    for (auto &part : all) {
        failures +=
            _cmocka_run_group_tests(part.name, part.list.tests, part.list.count, NULL, NULL);
    }
    return failures > 0 ? 1 : 0;
}
