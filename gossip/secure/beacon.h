/*
 * beacon: what a peer with --discover NAME says about itself to its local network, in a datagram of
 * BEACON_BYTES. All fields have a fixed place, whole numbers are big-endian:
 *
 *    0   8  "gvhere\0\1": what it is, and its version
 *    8   2  TCP port to dial; the host is where the datagram comes from, and nothing else is
 * believed 10  16  BLAKE2b-128 of "name/1", NUL and NAME 26  16  of this start of the peer, at
 * random: so it knows its own 42  32  keyed BLAKE2b-256 of "beacon/1" and all of the above, by the
 * swarm's secret
 *
 * Without a swarm key that secret follows from the swarm's name, and the last field is but a check.
 * An old beacon may be sent again by anybody: it yields an address that is dialled, and who answers
 * there has to prove the secret in the handshake. Pure.
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_BEACON_H
#define GRAPEVINE_GOSSIP_SECURE_BEACON_H

#include "gossip/secure/secure.h"

enum { BEACON_BYTES = 74, BEACON_START_BYTES = 16, BEACON_NAME_MAX = 64 };

struct beacon {
    uint16_t port; /* not 0 */
    uint8_t start[BEACON_START_BYTES];
};

void beacon_write(const struct beacon *beacon, const char *name, const struct swarm_secret *swarm,
                  uint8_t bytes[BEACON_BYTES]);
/** RC_FORMAT: no beacon; RC_MISMATCH: of another name; RC_AUTH: of this name, and of a swarm with
 *  another key or name of its own. */
MUST_USE enum rc beacon_read(const uint8_t *bytes, size_t count, const char *name,
                             const struct swarm_secret *swarm, struct beacon *beacon);

#endif
