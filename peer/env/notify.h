/*
 * notify: what a service manager is told of this process, as systemd's sd_notify(3) has it: one
 * datagram of lines NAME=VALUE to the socket whose address is in $NOTIFY_SOCKET, a path or, with
 * "@" in front, a name in the abstract namespace of Linux. Nobody answers, and what cannot be
 * delivered at once is dropped: nothing here waits. Any thread, one at a time.
 */
#ifndef GRAPEVINE_PEER_ENV_NOTIFY_H
#define GRAPEVINE_PEER_ENV_NOTIFY_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

struct notify {
    int fd;
    struct sockaddr_un to;
    socklen_t to_bytes;
    uint64_t watchdog_ns; /* the manager kills who is silent for so long; 0: it does not */
};

/** RC_NOT_FOUND: no manager wants to be told. RC_IO: its address cannot be used, with a reason.
 *  Close with notify_close() after RC_OK. */
MUST_USE enum rc notify_open(struct notify *notify, struct fault *why);
void notify_close(struct notify *notify);
/** Send `lines`, each NAME=VALUE and with line ends between them. False: it was dropped. */
bool notify_send(const struct notify *notify, const char *lines);

#endif
