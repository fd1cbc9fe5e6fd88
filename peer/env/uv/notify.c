/* See notify.h. The library for this is larger than these lines, and is not on every system. */
#include "peer/env/notify.h"

#include "base/bytes.h"
#include "base/units.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static enum rc take_address(struct notify *notify, const char *text, struct fault *why)
{
    size_t length = strlen(text);

    if (text[0] != '/' && text[0] != '@')
        return fault_set(why, RC_IO,
                         "NOTIFY_SOCKET %.80s: neither a path nor @ and a name; the service "
                         "manager is told nothing",
                         text);
    if (length >= sizeof notify->to.sun_path)
        return fault_set(why, RC_IO,
                         "NOTIFY_SOCKET %.80s...: longer than %zu bytes; the service manager is "
                         "told nothing",
                         text, sizeof notify->to.sun_path - 1);
    notify->to.sun_family = AF_UNIX;
    memcpy(notify->to.sun_path, text, length);
    notify->to_bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
    if (text[0] == '@')
        notify->to.sun_path[0] = '\0'; /* an abstract name has no end but its length */
    else
        notify->to_bytes++;
    return RC_OK;
}

/* $WATCHDOG_PID: it may be meant for whoever started us. */
static uint64_t watchdog_of(void)
{
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    uint64_t value = 0, who = 0;

    if (usec == NULL || !units_parse_count(usec, &value)) return 0;
    if (pid != NULL && (!units_parse_count(pid, &who) || who != (uint64_t)getpid())) return 0;
    return value < UINT64_MAX / NS_PER_US ? value * NS_PER_US : 0;
}

enum rc notify_open(struct notify *notify, struct fault *why)
{
    const char *text = getenv("NOTIFY_SOCKET");
    enum rc rc;

    *notify = (struct notify){.fd = -1};
    if (text == NULL || text[0] == '\0') return RC_NOT_FOUND;
    rc = take_address(notify, text, why);
    if (rc != RC_OK) return rc;
    notify->watchdog_ns = watchdog_of();
    notify->fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (notify->fd >= 0) return RC_OK;
    return fault_set(why, RC_IO,
                     "NOTIFY_SOCKET: no socket: %s; the service manager is told nothing",
                     strerror(errno));
}

void notify_close(struct notify *notify)
{
    if (notify->fd >= 0) (void)close(notify->fd);
    notify->fd = -1;
}

bool notify_send(const struct notify *notify, const char *lines)
{
    const size_t bytes = strlen(lines);

    return sendto(notify->fd, lines, bytes, MSG_NOSIGNAL, (const struct sockaddr *)&notify->to,
                  notify->to_bytes) == (ssize_t)bytes;
}
