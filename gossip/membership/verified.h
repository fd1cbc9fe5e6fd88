/*
 * verified: what the many peers of a simulation share, because it would be most of what they do and
 * of what they hold: signatures of accusations and hellos that were checked in this process before,
 * and the shelf of verified records (gossip/membership/shelf.h). One peer has no use for it, its
 * book already knows what it verified.
 */
#ifndef GRAPEVINE_GOSSIP_MEMBERSHIP_VERIFIED_H
#define GRAPEVINE_GOSSIP_MEMBERSHIP_VERIFIED_H

#include "gossip/membership/shelf.h"
#include "gossip/signed/accusation.h"
#include "gossip/signed/hello.h"

struct verified;

/** Remembers up to `slots` (a power of two) signatures, the newest ones. NULL: no memory. */
struct verified *verified_create(uint32_t slots);
void verified_destroy(struct verified *verified);
/** The records of one run, the first that was asked for; NULL: of another, no memory, or `verified`
 *  is NULL. Goes with `verified`. */
struct shelf *verified_shelf(struct verified *verified, struct digest run_id);
/** As accusation_verify() and hello_decode(); `verified` may be NULL. */
MUST_USE enum rc verified_accusation(struct verified *verified,
                                     const uint8_t bytes[ACCUSATION_BYTES], struct digest run_id,
                                     const uint8_t public_key[PUBLIC_KEY_BYTES]);
MUST_USE enum rc verified_hello(struct verified *verified, const uint8_t *bytes, size_t count,
                                struct digest run_id, const uint8_t key[PUBLIC_KEY_BYTES],
                                struct hello *hello);

#endif
