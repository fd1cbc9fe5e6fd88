/*
 * supervisor: what the service manager that started this peer is told, if it wants to be
 * (peer/env/notify.h): READY=1 once the peer holds the swarm's model, or is to wait for others with
 * it; from then on, once a second and from the loop, WATCHDOG=1 with a STATUS line, so that a peer
 * whose loop stands still is started again; RELOADING=1 around SIGHUP, and STOPPING=1. Loop thread.
 */
#ifndef GRAPEVINE_PEER_SESSION_SUPERVISOR_H
#define GRAPEVINE_PEER_SESSION_SUPERVISOR_H

#include "base/log.h"
#include "peer/env/notify.h"
#include "peer/node/node.h"

struct supervisor {
    struct notify notify;
    struct env *env; /* NULL: nobody is told */
    const struct node *node;
    bool is_ready, is_stopping;
};

/** Begin to tell, until supervisor_close(). Where nobody can be told a warning says why. */
void supervisor_open(struct supervisor *supervisor, struct env *env, const struct node *node,
                     const struct log *log);
void supervisor_close(struct supervisor *supervisor);
/** Around what SIGHUP asks for. */
void supervisor_reloading(struct supervisor *supervisor);
void supervisor_reloaded(struct supervisor *supervisor);
/** The peer is on its way out; the first call counts. */
void supervisor_stopping(struct supervisor *supervisor);

#endif
