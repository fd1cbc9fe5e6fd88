/*
 * discover: peers of one --discover NAME find each other on their local network, each by the beacon
 * that it sends once a second (gossip/secure/beacon.h). Nobody answers a beacon, so nothing can be
 * made to send more; what is heard is only an address to dial, where the handshake decides. A
 * flood costs a hash for each datagram, and so many addresses at a time are taken.
 */
#ifndef GRAPEVINE_PEER_SESSION_DISCOVER_H
#define GRAPEVINE_PEER_SESSION_DISCOVER_H

#include "base/log.h"
#include "gossip/secure/beacon.h"
#include "gossip/wire/address.h"
#include "peer/env/env.h"

enum { DISCOVER_ADDRESSES_MAX = 16 };

struct discover_taken {
    char address[ADDRESS_BYTES_MAX]; /* "": none */
    uint64_t at_ns;
};

struct discover {
    const char *name;
    const struct swarm_secret *swarm;
    const struct log *log;
    int fd;
    bool has_own, is_other_told;
    struct beacon own;
    char host[HOST_NAME_BYTES]; /* that we listen on */
    uint64_t sent_ns;
    struct discover_taken taken[DISCOVER_ADDRESSES_MAX];
    struct env *env; /* NULL: not watched */
    void (*on_found)(void *context, const char *address);
    void *context;
};

/** Keeps what it is given. RC_USAGE: no name to use; RC_IO: no multicast here. */
MUST_USE enum rc discover_open(struct discover *discover, const char *name,
                               const struct swarm_secret *swarm, const struct log *log,
                               struct fault *why);
void discover_close(struct discover *discover);
/** Wait for the next peer of that name, at most so long; the same one comes again after
 *  DISCOVER_AGAIN_NS. False: none was heard. */
bool discover_look(struct discover *discover, uint64_t limit_ns, char address[ADDRESS_BYTES_MAX]);
/** From now on, in the loop of `env`: tell others that this peer listens at `listening`, and
 *  `on_found` of each address as discover_look() does, until discover_close(). RC_LIMIT. */
MUST_USE enum rc discover_watch(struct discover *discover, struct env *env, const char *listening,
                                void (*on_found)(void *context, const char *address),
                                void *context);

#endif
