/*
 * process: children of this process on a libuv loop: spawn, read their standard output line by
 * line, signal them, learn how they ended. For the testnet.
 */
#ifndef GRAPEVINE_PEER_ENV_PROCESS_H
#define GRAPEVINE_PEER_ENV_PROCESS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdint.h>

struct process_host;

struct process_events {
    void *context;
    void (*on_line)(void *context, uint32_t child, const char *line); /* stdout; 64 KiB at most */
    void (*on_exit)(void *context, uint32_t child, int code, int signal);
    void (*on_tick)(void *context, uint64_t now_ns);
    void (*on_signal)(void *context, int signal); /* SIGINT, SIGTERM to us */
};

struct process_options {
    const char *const *argv; /* NULL-terminated; argv[0] is the executable's path */
    const char *const
        *environment;       /* NULL-terminated "NAME=value" to add or replace; may be NULL */
    const char *error_path; /* its stderr is appended here; NULL: /dev/null */
};

MUST_USE enum rc process_host_create(const struct process_events *events, uint64_t tick_ns,
                                     struct process_host **host, struct fault *why);
/** Children still alive are killed (SIGKILL) and reaped. NULL is fine. */
void process_host_destroy(struct process_host *host);
/** Numbers of children rise from 0 and are never reused. The child gets its own process group, and
 *  dies with us (PR_SET_PDEATHSIG). */
MUST_USE enum rc process_spawn(struct process_host *host, const struct process_options *options,
                               uint32_t *child, struct fault *why);
void process_signal(struct process_host *host, uint32_t child, int signal);
int process_pid(const struct process_host *host, uint32_t child); /* 0 once it has ended */
/** Until process_host_stop(). */
void process_host_run(struct process_host *host);
void process_host_stop(struct process_host *host);
uint64_t process_now_ns(struct process_host *host);

/** No core dumps of this process, and no debugger of the same user: keys are in its memory. Not
 * where GRAPEVINE_CORE_DUMPS is in the environment, which it takes away. Children of
 * process_spawn() may be looked at by their parent. Call it before process_bind_to_parent(), and
 * after whatever runs this program anew. */
void process_guard(void);
/** The child's half of dying with its parent: call it first thing in main(). Does nothing in a
 *  process that process_spawn() did not start. The parent must spawn from its main thread: the
 *  kernel counts the death of the thread that forked. */
void process_bind_to_parent(void);

#endif
