/* observer: a short visit to a running peer: join as an observer, ask, leave. Blocking. */
#ifndef GRAPEVINE_PEER_OBSERVER_H
#define GRAPEVINE_PEER_OBSERVER_H

#include "base/fault.h"
#include "gossip/wire/secure.h"

/** The status of the peer at `address` as JSON text, from mem_*. RC_TIMEOUT, RC_AUTH, RC_IO... */
MUST_USE enum rc observer_status(const char *address, const struct swarm_secret *swarm,
                                 uint64_t timeout_ns, char **text, struct fault *why);

#endif
