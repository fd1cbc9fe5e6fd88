/*
 * outcome: the initiator's signed word on what became of a pair round, for a participant that it
 * has no link to. Whoever both are linked to passes it on and cannot change it. It names the round
 * and the participant, and is only given once the round is decided, so an old copy says nothing
 * new.
 */
#ifndef GRAPEVINE_GOSSIP_SIGNED_OUTCOME_H
#define GRAPEVINE_GOSSIP_SIGNED_OUTCOME_H

#include "gossip/secure/secure.h"
#include "gossip/wire/messages.h"

struct outcome_word {
    struct round_key key; /* its initiator signs */
    struct peer_id participant;
    enum outcome_state state; /* COMMITTED or ABORTED */
};

/** The signed form. `word->key.initiator` must be `identity`'s (CHECKed). */
void outcome_sign(const struct outcome_word *word, const struct identity *identity,
                  struct digest run_id, uint8_t out[OUTCOME_BYTES]);
/** What the bytes say, if the initiator signed them in this run. RC_AUTH: it did not. RC_FORMAT: it
 *  signed what is no decision. */
MUST_USE enum rc outcome_verify(const uint8_t bytes[OUTCOME_BYTES], struct digest run_id,
                                struct outcome_word *word);

#endif
