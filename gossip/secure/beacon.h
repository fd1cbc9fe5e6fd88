/*
 * beacon: what a peer with --discover NAME says about itself to its local network, in a datagram of
 * BEACON_BYTES. All fields have a fixed place, whole numbers are big-endian:
 *
 *    0   8  "gvhere\0\2": what it is, and its version
 *    8   2  TCP port to dial; the host is where the datagram comes from
 *   10  16  BLAKE2b-128 of "name/1", NUL and NAME
 *   26  16  of this start of the peer, at random: so it knows its own
 *   42  32  keyed BLAKE2b-256 of "beacon/2", all of the above, and the host that it is sent from as
 *           text ("192.0.2.7"), by the swarm's secret
 *
 * Without a swarm key that secret follows from the swarm's name, and the last field is but a check.
 * With one, a beacon sent again from elsewhere is no beacon. An old one may be sent again from
 * where it came from: it yields an address that was a peer's, and who answers there has to prove
 * the secret in the handshake. It holds no time, as clocks may be off. Pure.
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_BEACON_H
#define GRAPEVINE_GOSSIP_SECURE_BEACON_H

#include "gossip/secure/secure.h"

enum { BEACON_BYTES = 74, BEACON_START_BYTES = 16, BEACON_NAME_MAX = 64 };

struct beacon {
    uint16_t port; /* not 0 */
    uint8_t start[BEACON_START_BYTES];
};

/** `host`: that it is sent from. */
void beacon_write(const struct beacon *beacon, const char *name, const struct swarm_secret *swarm,
                  const char *host, uint8_t bytes[BEACON_BYTES]);
/** `host`: that it came from. RC_FORMAT: no beacon; RC_MISMATCH: of another name; RC_AUTH: of this
 *  name, and of a swarm with another key or name of its own, or sent from elsewhere. */
MUST_USE enum rc beacon_read(const uint8_t *bytes, size_t count, const char *name,
                             const struct swarm_secret *swarm, const char *host,
                             struct beacon *beacon);

#endif
