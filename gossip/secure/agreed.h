/*
 * agreed: what the two ends of a handshake compute alike, X25519 of either's secret key with the
 * other's public one, which is a third of the work of a large simulation. Where both ends are in
 * this process the second takes what the first has found. A process of one peer has no use for it,
 * and must not have it: these are secrets that outlive their handshakes.
 */
#ifndef GRAPEVINE_GOSSIP_SECURE_AGREED_H
#define GRAPEVINE_GOSSIP_SECURE_AGREED_H

#include "gossip/secure/noise.h"

#include <stdint.h>

struct agreed;

/** Remembers up to `slots` (a power of two) of them, the newest ones. NULL: no memory. */
struct agreed *agreed_create(uint32_t slots);
void agreed_destroy(struct agreed *agreed);
/** X25519 of `own` with `remote` into `shared`; `agreed` may be NULL. Else the public key of `own`
 *  must be that of its secret: what is remembered is found by public keys alone. RC_AUTH: the
 * shared point is zero, as `remote` is a key of low order. */
MUST_USE enum rc agreed_compute(struct agreed *agreed, const struct noise_pair *own,
                                const uint8_t remote[NOISE_KEY_BYTES],
                                uint8_t shared[NOISE_KEY_BYTES]);

#endif
