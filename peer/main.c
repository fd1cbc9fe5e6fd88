/*
 * main: reads the options, answers --help and its like, and calls the command. The only file that
 * may reach every folder, so that all commands are one program.
 */
#include "peer/cli/command.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/crash_point.h"
#include "base/mem.h"
#include "kernels/cpu/address_space.h"
#include "peer/env/process.h"

#include "version.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef int (*command_function)(struct options *options);

static int command_help(struct options *options)
{
    enum command_id command = COMMAND_NONE;
    struct fault why = {""};
    size_t count;
    const char *const *words = options_arguments(options, &count);
    enum rc rc = count > 0 ? options_find_command(words[0], &command, &why) : RC_OK;

    if (rc != RC_OK) return command_failed(rc, &why);
    options_print_help(stdout, command);
    return EXIT_DONE;
}

static int command_completion(struct options *options)
{
    struct fault why = {""};
    size_t count;
    enum rc rc = options_print_completion(stdout, options_arguments(options, &count)[0], &why);

    return rc == RC_OK ? EXIT_DONE : command_failed(rc, &why);
}

static const command_function commands[COMMAND_COUNT] = {
    [COMMAND_PEER] = command_peer,         [COMMAND_TESTNET] = command_testnet,
    [COMMAND_DISTILL] = command_distill,   [COMMAND_AVERAGE] = command_average,
    [COMMAND_EVAL] = command_eval,         [COMMAND_REPORT] = command_report,
    [COMMAND_INSPECT] = command_inspect,   [COMMAND_KEYGEN] = command_keygen,
    [COMMAND_TOP] = command_top,           [COMMAND_STATUS] = command_status,
    [COMMAND_DOCTOR] = command_doctor,     [COMMAND_BENCH] = command_bench,
    [COMMAND_PREDICT] = command_predict,   [COMMAND_EXPORT] = command_export,
    [COMMAND_GENERATE] = command_generate, [COMMAND_TOKENIZE] = command_tokenize,
    [COMMAND_SIMULATE] = command_simulate, [COMMAND_JOIN] = command_join,
    [COMMAND_HELP] = command_help,         [COMMAND_COMPLETION] = command_completion,
    [COMMAND_COMPACT] = command_compact,
};

static int print_config(const struct options *options)
{
    char *text = options_config_text(options);

    if (text == NULL) {
        struct fault why = {"print-config: out of memory"};
        return command_failed(RC_NOMEM, &why);
    }
    fputs(text, stdout);
    mem_free(text);
    return EXIT_DONE;
}

static int run(struct options *options)
{
    enum command_id command = options_command(options);
    struct fault why = {""};
    enum rc rc;

    if (options_flag(options, "help")) {
        options_print_help(stdout, command);
        return EXIT_DONE;
    }
    if (options_flag(options, "version")) command = COMMAND_VERSION;
    if (command != COMMAND_NONE && options_flag(options, "print-config")) {
        return print_config(options);
    }
    if (command == COMMAND_VERSION) {
        puts("grapevine " GRAPEVINE_VERSION " (" GRAPEVINE_REVISION ")");
        return EXIT_DONE;
    }
    if (command == COMMAND_NONE) {
        options_print_man(stdout);
        return EXIT_DONE;
    }
    CHECK(commands[command] != NULL);
    rc = command_check_data(options, &why);
    if (rc != RC_OK) return command_failed(rc, &why);
    return commands[command](options);
}

/** Results that did not arrive are a failure, not a success with nothing to show. */
static int flush_results(int code)
{
    bool is_lost = fflush(stdout) != 0 || ferror(stdout) != 0;

    if (!is_lost || code != EXIT_DONE) return code;
    fputs("grapevine: cannot write to standard output: the results are lost; check where it goes\n",
          stderr);
    return EXIT_FAILED;
}

/** Waiting threads that spin make a program with two threads tens of times slower as soon as
 * anything else runs on the machine. Whoever wants them to spin sets OMP_WAIT_POLICY=ACTIVE. */
static bool let_waiting_threads_sleep(void)
{
    static const char policy[] = "OMP_WAIT_POLICY";

    return getenv(policy) == NULL && setenv(policy, "PASSIVE", 1) == 0;
}

/** Libraries read their variables when they are loaded, before main: so set them and begin again,
 * once. */
static void tell_libraries(char **argv)
{
    bool is_policy_new = let_waiting_threads_sleep(), is_limit_new = cpu_limit_libraries();
    char path[4096];
    ssize_t length;

    if (!is_policy_new && !is_limit_new) return;
    length = readlink("/proc/self/exe", path, sizeof path - 1);
    if (length <= 0) return;
    path[length] = '\0';
    execv(path, argv); /* if that cannot be, we just go on */
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* they come first */
/* How many threads OpenBLAS makes when it is loaded. */
static unsigned blas_threads(char **environment)
{
    static const char variable[] = "OPENBLAS_NUM_THREADS=";
    unsigned long threads;
    cpu_set_t set;

    for (; *environment != NULL; environment++) {
        if (strncmp(*environment, variable, sizeof variable - 1) != 0) continue;
        threads = strtoul(*environment + sizeof variable - 1, NULL, 10);
        if (threads > 0 && threads <= CPU_SETSIZE) return (unsigned)threads;
    }
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (unsigned)CPU_COUNT(&set) : 1;
}

/** Before the libraries' own beginnings, in which OpenBLAS would try for ever. */
static void look_for_room(int argc, char **argv, char **environment)
{
    unsigned threads = blas_threads(environment);
    char text[256];
    int length;

    (void)argc;
    (void)argv;
    if (address_space_has(threads * BLAS_BUFFER_BYTES)) return;
    length = snprintf(text, sizeof text,
                      "grapevine: the address space is limited to %llu MiB (ulimit -v), and for %u "
                      "threads OpenBLAS takes %llu of them; raise that, or set "
                      "OPENBLAS_NUM_THREADS=1\n",
                      (unsigned long long)address_space_limit_mib(), threads,
                      (unsigned long long)(threads * BLAS_BUFFER_BYTES >> 20));
    if (length > 0) length = (int)write(STDERR_FILENO, text, (size_t)length);
    _exit(EXIT_FAILED);
}

__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(int, char **, char **) = look_for_room;
#endif

/** GRAPEVINE_CRASH_POINT, for tests. It is taken from the environment: children do not die of it.
 * True: only the list was asked for. */
static bool arm_crash_point(enum rc *rc, struct fault *why)
{
    static const char variable[] = "GRAPEVINE_CRASH_POINT";
    const char *spec = getenv(variable);

    *rc = RC_OK;
    if (spec == NULL) return false;
    if (strcmp(spec, "list") == 0) {
        for (int point = CRASH_NONE + 1; point < CRASH_COUNT; point++) {
            puts(crash_point_name((enum crash_point)point));
        }
        return true;
    }
    *rc = crash_point_arm(spec, why);
    (void)unsetenv(variable);
    return false;
}

int main(int argc, char **argv)
{
    struct options *options = NULL;
    struct fault why = {""};
    int code;
    enum rc rc;

    tell_libraries(argv);
    process_guard(); /* both before the environment is read: they take variables away */
    process_bind_to_parent();
    mem_start();
    if (arm_crash_point(&rc, &why)) return flush_results(EXIT_DONE);
    if (rc != RC_OK) return command_failed(rc, &why);
    rc = options_parse(argc > 0 ? argc - 1 : 0, (const char *const *)argv + 1,
                       (const char *const *)environ, &options, &why);

    if (rc != RC_OK) return command_failed(rc, &why);
    code = run(options);
    options_destroy(options);
    return flush_results(code);
}
