/* See supervisor.h. */
#include "peer/session/supervisor.h"

#include "base/bytes.h"
#include "peer/times.h"

#include <stdio.h>
#include <string.h>

enum { LINES_BYTES = 256 };

static bool is_told(const struct supervisor *supervisor)
{
    return supervisor->env != NULL;
}

static void say(const struct supervisor *supervisor, char *lines, size_t cap)
{
    struct node_report report;
    size_t used = strlen(lines);

    node_report(supervisor->node, &report);
    snprintf(lines + used, cap - used, "STATUS=%s: step %llu, round %llu, %u neighbour%s",
             report.state, (unsigned long long)report.step, (unsigned long long)report.round,
             report.neighbours, report.neighbours == 1 ? "" : "s");
    (void)notify_send(&supervisor->notify, lines); /* a lost one is followed by another */
}

/* Once a second; from that socket nothing comes. */
static void on_ready(void *context)
{
    struct supervisor *supervisor = context;
    const enum node_state state = node_state(supervisor->node);
    char lines[LINES_BYTES] = "WATCHDOG=1\n";

    if (state >= NODE_LEAVING) supervisor_stopping(supervisor);
    if (state == NODE_TRAINING && !supervisor->is_ready) {
        supervisor->is_ready = true;
        snprintf(lines, sizeof lines, "READY=1\nWATCHDOG=1\n");
    }
    say(supervisor, lines, sizeof lines);
}

void supervisor_open(struct supervisor *supervisor, struct env *env, const struct node *node,
                     const struct log *log)
{
    struct fault why = {""};
    enum rc rc = notify_open(&supervisor->notify, &why);

    supervisor->node = node;
    if (rc == RC_NOT_FOUND) return;
    if (rc == RC_OK && uv_env_watch(env, supervisor->notify.fd, on_ready, supervisor) != RC_OK) {
        notify_close(&supervisor->notify);
        rc = fault_set(&why, RC_LIMIT, "the service manager is told nothing: no place in the loop");
    }
    if (rc != RC_OK) {
        log_warn(log, "%s", why.text);
        return;
    }
    supervisor->env = env;
    if (supervisor->notify.watchdog_ns > 0 &&
        supervisor->notify.watchdog_ns < SUPERVISOR_WATCHDOG_LEAST_NS) {
        log_warn(log,
                 "the service manager wants a sign of life within %.1f s, and this peer gives one "
                 "a second: set WatchdogSec=%u or more",
                 (double)supervisor->notify.watchdog_ns / NS_PER_S,
                 (unsigned)(SUPERVISOR_WATCHDOG_LEAST_NS / NS_PER_S));
    }
}

void supervisor_close(struct supervisor *supervisor)
{
    if (supervisor->env == NULL) return;
    uv_env_unwatch(supervisor->env, supervisor->notify.fd);
    supervisor->env = NULL;
    notify_close(&supervisor->notify);
}

/* The time tells the manager which of its requests is meant. Before READY=1 none can be. */
void supervisor_reloading(struct supervisor *supervisor)
{
    char lines[LINES_BYTES];

    if (!is_told(supervisor) || !supervisor->is_ready) return;
    snprintf(lines, sizeof lines, "RELOADING=1\nMONOTONIC_USEC=%llu",
             (unsigned long long)(uv_clock_ns() / NS_PER_US));
    (void)notify_send(&supervisor->notify, lines);
}

void supervisor_reloaded(struct supervisor *supervisor)
{
    if (is_told(supervisor) && supervisor->is_ready)
        (void)notify_send(&supervisor->notify, "READY=1");
}

void supervisor_stopping(struct supervisor *supervisor)
{
    if (!is_told(supervisor) || supervisor->is_stopping) return;
    supervisor->is_stopping = true;
    (void)notify_send(&supervisor->notify, "STOPPING=1");
}
