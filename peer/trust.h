/*
 * trust: what this peer remembers of others' faults, by id, over reconnects; never gossiped. A
 * missed deadline pauses rounds with the one who missed it, each further one for twice as long; an
 * offence (NaN, a violation) counts more, and enough of them end rounds, then the link.
 *
 * Why pauses: one member that joins every round and then says nothing would otherwise cost all
 * others a deadline a round, for ever. A slow peer that means well loses little: a pause is short
 * at first and forgotten when the next rounds go well.
 *
 * Loop thread; pure.
 */
#ifndef GRAPEVINE_PEER_TRUST_H
#define GRAPEVINE_PEER_TRUST_H

#include "base/peer_id.h"

#include <stdbool.h>
#include <stdint.h>

struct trust;

/** NULL: no memory. All it will ever need is allocated here. */
struct trust *trust_create(void);
void trust_destroy(struct trust *trust);
/** `score`: as exchanges give it, negative is bad. */
void trust_note(struct trust *trust, struct peer_id peer, int32_t score, uint64_t now_ns);
/** A round with it may be begun, or one that it offers be joined. */
bool trust_may_mix(const struct trust *trust, struct peer_id peer, uint64_t now_ns);
/** It may not even have a link. */
bool trust_is_refused(const struct trust *trust, struct peer_id peer, uint64_t now_ns);

#endif
