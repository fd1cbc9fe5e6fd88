/*
 * uv_process: children on a libuv loop of their own. A child's end is told after its last line:
 * when it exits, what is still in the pipe is read at once, so that a grandchild that holds the
 * pipe open cannot delay the news.
 *
 * libuv has no hook between fork and exec, so a child binds itself to us: it finds our process id
 * in GRAPEVINE_PARENT and calls process_bind_to_parent() first of all. One thread.
 */
#include "peer/env/uv/process.h"

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>
#include <uv.h>

enum { LINE_BYTES_MAX = 64 * 1024, READ_BYTES = 64 * 1024, PARENT_TEXT_BYTES = 40 };

static const char parent_variable[] = "GRAPEVINE_PARENT";

struct child {
    uv_process_t process;
    uv_pipe_t pipe;
    struct process_host *host;
    uint32_t number;
    bool has_ended;
    char *line; /* LINE_BYTES_MAX + 1; the line so far */
    size_t line_bytes;
};

struct process_host {
    uv_loop_t loop;
    uv_timer_t tick;
    uv_signal_t signals[2];
    struct process_events events;
    struct child **children;
    uint32_t children_count, alive_count;
    bool is_closing; /* no event any more */
    char room[READ_BYTES];
};

void process_guard(void)
{
    static const char variable[] = "GRAPEVINE_CORE_DUMPS";
    const struct rlimit none = {0, 0};
    const char *text = getenv(variable);
    bool is_asked = text != NULL && text[0] != '\0' && strcmp(text, "0") != 0;

    (void)unsetenv(variable);
    if (is_asked) return;
    (void)setrlimit(RLIMIT_CORE, &none);
#if !defined(__SANITIZE_ADDRESS__) /* its leak check looks at this process as a debugger does */
    if (getenv(parent_variable) == NULL) (void)prctl(PR_SET_DUMPABLE, 0);
#endif
}

/* ---- the child's side ---- */

void process_bind_to_parent(void)
{
    const char *text = getenv(parent_variable);
    long parent = text != NULL ? strtol(text, NULL, 10) : 0;

    if (text == NULL) return;
    (void)unsetenv(parent_variable); /* our own children have another parent */
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if ((long)getppid() != parent) _exit(1); /* it died before we asked */
}

/* ---- lines ---- */

static void child_tell(struct child *child)
{
    struct process_host *host = child->host;

    child->line[child->line_bytes] = '\0';
    child->line_bytes = 0;
    if (!host->is_closing) host->events.on_line(host->events.context, child->number, child->line);
}

/* Bytes beyond the longest line are dropped. */
static void child_heard(struct child *child, const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] == '\n') {
            child_tell(child);
        } else if (child->line_bytes < LINE_BYTES_MAX) {
            child->line[child->line_bytes++] = bytes[i];
        }
    }
}

static void on_pipe_room(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    struct child *child = handle->data;

    (void)suggested;
    *buf = uv_buf_init(child->host->room, READ_BYTES);
}

static void on_pipe_read(uv_stream_t *stream, ssize_t count, const uv_buf_t *buf)
{
    struct child *child = stream->data;

    if (count < 0) {
        (void)uv_read_stop(stream);
    } else {
        child_heard(child, buf->base, (size_t)count);
    }
}

static void child_drain(struct child *child)
{
    uv_os_fd_t fd;
    ssize_t count;

    if (uv_fileno((uv_handle_t *)&child->pipe, &fd) != 0) return;
    while ((count = read(fd, child->host->room, READ_BYTES)) > 0 || (count < 0 && errno == EINTR)) {
        if (count > 0) child_heard(child, child->host->room, (size_t)count);
    }
    if (child->line_bytes > 0) child_tell(child); /* a last line without its newline */
}

static void on_child_exit(uv_process_t *process, int64_t code, int number)
{
    struct child *child = process->data;
    struct process_host *host = child->host;

    child_drain(child);
    child->has_ended = true;
    host->alive_count--;
    uv_close((uv_handle_t *)&child->process, NULL);
    uv_close((uv_handle_t *)&child->pipe, NULL);
    mem_free(child->line);
    child->line = NULL;
    if (!host->is_closing) {
        host->events.on_exit(host->events.context, child->number, (int)code, number);
    }
}

/* ---- spawning ---- */

static bool is_same_variable(const char *a, const char *b)
{
    size_t bytes = strcspn(a, "=");

    return strncmp(a, b, bytes) == 0 && b[bytes] == '=';
}

/* Our own environment, changed by `changes`, and the parent variable. The strings are borrowed. */
static char **environment_make(const char *const *changes, char *parent)
{
    size_t count = 0, changes_count = 0, n = 0;
    char **made;

    while (environ[count] != NULL) {
        count++;
    }
    while (changes != NULL && changes[changes_count] != NULL) {
        changes_count++;
    }
    made = mem_array(count + changes_count + 2, sizeof *made);
    if (made == NULL) return NULL;
    for (size_t i = 0; i < count; i++) {
        bool is_replaced = is_same_variable(parent, environ[i]);

        for (size_t j = 0; j < changes_count && !is_replaced; j++) {
            is_replaced = is_same_variable(changes[j], environ[i]);
        }
        if (!is_replaced) made[n++] = environ[i];
    }
    for (size_t j = 0; j < changes_count; j++) {
        made[n++] = (char *)(uintptr_t)changes[j];
    }
    made[n] = parent;
    return made;
}

static int child_start(struct child *child, const struct process_options *options,
                       char **environment, int error_fd)
{
    uv_stdio_container_t stdio[3] = {{.flags = UV_IGNORE},
                                     {.flags = UV_CREATE_PIPE | UV_WRITABLE_PIPE},
                                     {.flags = error_fd < 0 ? UV_IGNORE : UV_INHERIT_FD}};
    uv_process_options_t uv = {.exit_cb = on_child_exit,
                               .file = options->argv[0],
                               .args = (char **)(uintptr_t)options->argv,
                               .env = environment,
                               .flags = UV_PROCESS_DETACHED, /* a group of its own */
                               .stdio_count = 3,
                               .stdio = stdio};

    stdio[1].data.stream = (uv_stream_t *)&child->pipe;
    stdio[2].data.fd = error_fd;
    CHECK(uv_pipe_init(&child->host->loop, &child->pipe, 0) == 0);
    child->process.data = child->pipe.data = child;
    return uv_spawn(&child->host->loop, &child->process, &uv);
}

/* Called for both handles of a child that did not start; the second call frees it. */
static void on_stillborn_closed(uv_handle_t *handle)
{
    struct child *child = handle->data;

    if (!child->has_ended) {
        child->has_ended = true;
        return;
    }
    mem_free(child->line);
    mem_free(child);
}

/* Room for one more child, fully made, or NULL. */
static struct child *child_create(struct process_host *host)
{
    struct child **larger =
        mem_resize(host->children, (host->children_count + 1u) * sizeof *larger);
    struct child *child = NULL;

    if (larger == NULL) return NULL;
    host->children = larger;
    child = mem_alloc(sizeof *child);
    if (child == NULL) return NULL;
    child->line = mem_alloc(LINE_BYTES_MAX + 1);
    if (child->line == NULL) {
        mem_free(child);
        return NULL;
    }
    child->host = host;
    child->number = host->children_count;
    return child;
}

enum rc process_spawn(struct process_host *host, const struct process_options *options,
                      uint32_t *number, struct fault *why)
{
    char parent[PARENT_TEXT_BYTES];
    char **environment;
    struct child *child;
    int error_fd = -1, status;

    CHECK(options->argv != NULL && options->argv[0] != NULL && number != NULL);
    (void)snprintf(parent, sizeof parent, "%s=%ld", parent_variable, (long)getpid());
    if (options->error_path != NULL) {
        error_fd = open(options->error_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        if (error_fd < 0) {
            return fault_set(why, RC_IO, "cannot write %.200s: %s", options->error_path,
                             uv_strerror(uv_translate_sys_error(errno)));
        }
    }
    environment = environment_make(options->environment, parent);
    child = environment == NULL ? NULL : child_create(host);
    if (child == NULL) {
        status = UV_ENOMEM;
    } else {
        status = child_start(child, options, environment, error_fd);
        if (status == 0) {
            CHECK(uv_read_start((uv_stream_t *)&child->pipe, on_pipe_room, on_pipe_read) == 0);
        } else {
            uv_close((uv_handle_t *)&child->process, on_stillborn_closed);
            uv_close((uv_handle_t *)&child->pipe, on_stillborn_closed);
        }
    }
    if (error_fd >= 0) (void)close(error_fd);
    mem_free(environment);
    if (status != 0) {
        return fault_set(why, status == UV_ENOMEM ? RC_NOMEM : RC_IO, "cannot start %.200s: %s",
                         options->argv[0], uv_strerror(status));
    }
    host->children[host->children_count++] = child;
    host->alive_count++;
    *number = child->number;
    return RC_OK;
}

static struct child *child_alive(const struct process_host *host, uint32_t number)
{
    struct child *child = number < host->children_count ? host->children[number] : NULL;

    return child != NULL && !child->has_ended ? child : NULL;
}

void process_signal(struct process_host *host, uint32_t number, int signal_number)
{
    struct child *child = child_alive(host, number);

    /* It may have ended a moment ago: then there is nobody to tell. */
    if (child != NULL) (void)uv_process_kill(&child->process, signal_number);
}

int process_pid(const struct process_host *host, uint32_t number)
{
    const struct child *child = child_alive(host, number);

    return child != NULL ? child->process.pid : 0;
}

/* ---- the host ---- */

static void on_host_tick(uv_timer_t *timer)
{
    struct process_host *host = timer->data;

    if (!host->is_closing) host->events.on_tick(host->events.context, uv_hrtime());
}

static void on_host_signal(uv_signal_t *handle, int number)
{
    struct process_host *host = handle->data;

    if (!host->is_closing) host->events.on_signal(host->events.context, number);
}

static void close_handle(uv_handle_t *handle, void *argument)
{
    (void)argument;
    if (!uv_is_closing(handle)) uv_close(handle, NULL);
}

static void host_release(struct process_host *host)
{
    uv_walk(&host->loop, close_handle, NULL);
    while (uv_run(&host->loop, UV_RUN_DEFAULT) != 0) {
        continue; /* a stop asked for earlier ends the first run early */
    }
    CHECK(uv_loop_close(&host->loop) == 0);
    for (uint32_t i = 0; i < host->children_count; i++) {
        mem_free(host->children[i]);
    }
    mem_free(host->children);
    mem_free(host);
}

static int host_watch(struct process_host *host, uint64_t tick_ns)
{
    static const int numbers[2] = {SIGINT, SIGTERM};
    uint64_t tick_ms = (tick_ns + NS_PER_MS - 1) / NS_PER_MS;
    int status = 0;

    CHECK(uv_timer_init(&host->loop, &host->tick) == 0);
    host->tick.data = host;
    CHECK(uv_timer_start(&host->tick, on_host_tick, tick_ms, tick_ms) == 0);
    for (int i = 0; i < 2 && status == 0 && host->events.on_signal != NULL; i++) {
        status = uv_signal_init(&host->loop, &host->signals[i]);
        host->signals[i].data = host;
        if (status == 0) status = uv_signal_start(&host->signals[i], on_host_signal, numbers[i]);
    }
    return status;
}

enum rc process_host_create(const struct process_events *events, uint64_t tick_ns,
                            struct process_host **out, struct fault *why)
{
    struct process_host *host = mem_alloc(sizeof *host);
    int status;

    CHECK(events != NULL && tick_ns > 0);
    if (host == NULL) return fault_set(why, RC_NOMEM, "cannot start children: out of memory");
    host->events = *events;
    status = uv_loop_init(&host->loop);
    if (status != 0) {
        mem_free(host);
        return fault_set(why, RC_IO, "cannot start the event loop: %s", uv_strerror(status));
    }
    status = host_watch(host, tick_ns);
    if (status != 0) {
        host_release(host);
        return fault_set(why, RC_IO, "cannot watch for signals: %s", uv_strerror(status));
    }
    *out = host;
    return RC_OK;
}

void process_host_destroy(struct process_host *host)
{
    if (host == NULL) return;
    host->is_closing = true;
    for (uint32_t i = 0; i < host->children_count; i++) {
        process_signal(host, i, SIGKILL);
    }
    while (host->alive_count > 0) {
        (void)uv_run(&host->loop, UV_RUN_ONCE);
    }
    host_release(host);
}

uv_loop_t *process_host_loop(struct process_host *host)
{
    return &host->loop;
}

void process_host_run(struct process_host *host)
{
    (void)uv_run(&host->loop, UV_RUN_DEFAULT);
}

void process_host_stop(struct process_host *host)
{
    uv_stop(&host->loop);
}

uint64_t process_now_ns(struct process_host *host)
{
    (void)host;
    return uv_hrtime();
}
