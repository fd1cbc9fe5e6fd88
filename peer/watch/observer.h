/*
 * observer: a visit to a running peer: join as an observer (no membership, no rounds), ask, leave.
 * Blocking, on a loop of its own.
 */
#ifndef GRAPEVINE_PEER_WATCH_OBSERVER_H
#define GRAPEVINE_PEER_WATCH_OBSERVER_H

#include "base/fault.h"
#include "gossip/secure/secure.h"
#include "peer/env/way.h"

#include <signal.h>
#include <stdbool.h>

struct observer_options {
    const char *address;
    const struct swarm_secret *swarm;
    const char *identity;    /* a key file, where only listed keys may ask; NULL: a passing one */
    const char *certificate; /* a file, of that key; NULL: none */
    struct way_flags way;    /* by which it goes */
    uint64_t timeout_ns;     /* until the first answer, and then for each */
    uint64_t open_ns;        /* of it, until the peer has let us in; 0: all of it */
    /** Not 0 once a signal to stop came: then the visit ends, RC_CANCELLED. NULL: the signals are
     *  left as they are. */
    const volatile sig_atomic_t *stop;
};

/** The status of the peer as JSON text, from mem_*. RC_TIMEOUT, RC_AUTH, RC_IO... */
MUST_USE enum rc observer_status(const struct observer_options *options, char **text,
                                 struct fault *why);
/** The same over and over, `every_ns` apart, on one link, until `on_status` says false: then RC_OK.
 */
MUST_USE enum rc observer_watch(const struct observer_options *options, uint64_t every_ns,
                                bool (*on_status)(void *context, const char *text, size_t bytes),
                                void *context, struct fault *why);

#endif
