/*
 * trust: what this peer remembers of others, by id, over reconnects; never gossiped. A missed
 * deadline pauses rounds with the one who missed it, each further one for twice as long; an offence
 * (NaN, a violation) counts more (gossip/door/score.h): below -50 there are no rounds with it,
 * below -100 no link, for ten minutes, and each further time for twice as long. Who kept its word
 * for ten rounds in a row is proven: exchanges have more patience with it, once.
 *
 * Why pauses: one member that joins every round and then says nothing would otherwise cost all
 * others a deadline a round, for ever. A slow peer that means well loses little: a pause is short
 * at first and forgotten when the next rounds go well.
 *
 * Loop thread; pure.
 */
#ifndef GRAPEVINE_PEER_NODE_TRUST_H
#define GRAPEVINE_PEER_NODE_TRUST_H

#include "base/peer_id.h"
#include "gossip/door/score.h"

#include <stdbool.h>
#include <stdint.h>

struct trust;

struct trust_view {
    double score;                   /* now */
    uint32_t counts[SCORE_REASONS]; /* since we know it */
    uint64_t mix_ns, link_ns;       /* no round, no link before; in the past: allowed */
    uint32_t bans;                  /* how often it lost its link */
};

/** NULL: no memory. All it will ever need is allocated here. */
struct trust *trust_create(void);
void trust_destroy(struct trust *trust);
/** How long a round and the time to the next take here: a first pause lasts two of them, if that is
 *  more than two seconds, or it would be over before it has kept anybody from a round. */
void trust_set_period(struct trust *trust, uint64_t period_ns);
void trust_note(struct trust *trust, struct peer_id peer, enum score_reason reason,
                uint64_t now_ns);
/** From now on little is to come: pauses for missed deadlines end, and misses count anew, the first
 *  one for `first_ns`. */
void trust_end_pauses(struct trust *trust, uint64_t first_ns, uint64_t now_ns);
/** Its values are no longer too far from ours: the pause that this was worth ends. What it did
 * counts on, and pauses for other reasons last. */
void trust_near_again(struct trust *trust, struct peer_id peer);
/** A round with it may be begun, or one that it offers be joined. */
bool trust_may_mix(const struct trust *trust, struct peer_id peer, uint64_t now_ns);
/** It has kept its word for many rounds: it may stumble once without being left behind. */
bool trust_is_proven(const struct trust *trust, struct peer_id peer);
/** It may not even have a link. */
bool trust_is_refused(const struct trust *trust, struct peer_id peer, uint64_t now_ns);
/** What is known of `peer`; false, and a clean sheet, if nothing is. */
bool trust_view(const struct trust *trust, struct peer_id peer, uint64_t now_ns,
                struct trust_view *view);
/** How often each happened, over all peers; and how many links were ended for it. */
void trust_totals(const struct trust *trust, uint64_t counts[SCORE_REASONS], uint64_t *bans);

#endif
