/*
 * verified: signatures of records, accusations and hellos that were checked in this process before.
 * One peer has no use for it, its book already knows what it verified; the many peers of a
 * simulation share one, because checking each signature once for each peer would be most of what
 * they do.
 */
#ifndef GRAPEVINE_GOSSIP_VERIFIED_H
#define GRAPEVINE_GOSSIP_VERIFIED_H

#include "gossip/wire/accusation.h"
#include "gossip/wire/hello.h"
#include "gossip/wire/record.h"

struct verified;

/** Remembers up to `slots` (a power of two) signatures, the newest ones. NULL: no memory. */
struct verified *verified_create(uint32_t slots);
void verified_destroy(struct verified *verified);
/** As record_verify(), accusation_verify() and hello_decode(); `verified` may be NULL. */
MUST_USE enum rc verified_record(struct verified *verified, const uint8_t *bytes, size_t count,
                                 struct digest run_id, const uint8_t public_key[PUBLIC_KEY_BYTES]);
MUST_USE enum rc verified_accusation(struct verified *verified,
                                     const uint8_t bytes[ACCUSATION_BYTES], struct digest run_id,
                                     const uint8_t public_key[PUBLIC_KEY_BYTES]);
MUST_USE enum rc verified_hello(struct verified *verified, const uint8_t *bytes, size_t count,
                                struct digest run_id, const uint8_t key[PUBLIC_KEY_BYTES],
                                struct hello *hello);

#endif
