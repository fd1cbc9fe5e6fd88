/*
 * accusation: one member's signed word that another does not answer. It names one life of the
 * subject (boot) and one incarnation of it, so it is void as soon as the subject has signed a newer
 * record of itself; and its accuser, so that three copies are not three witnesses.
 */
#ifndef GRAPEVINE_GOSSIP_SIGNED_ACCUSATION_H
#define GRAPEVINE_GOSSIP_SIGNED_ACCUSATION_H

#include "gossip/secure/secure.h"

struct accusation {
    struct peer_id accuser, subject;
    struct boot_id boot;                       /* of the subject's record */
    uint64_t accuser_incarnation, incarnation; /* of the two records as the accuser has them */
};

/** The signed form. `accusation->accuser` must be `identity`'s (CHECKed). */
void accusation_sign(const struct accusation *accusation, const struct identity *identity,
                     struct digest run_id, uint8_t out[ACCUSATION_BYTES]);
/** What the bytes say; whether it is so, accusation_verify() tells. */
void accusation_read(const uint8_t bytes[ACCUSATION_BYTES], struct accusation *accusation);
/** RC_AUTH: `public_key` is not the accuser's, or did not sign these bytes in this run. */
MUST_USE enum rc accusation_verify(const uint8_t bytes[ACCUSATION_BYTES],
                                   const uint8_t public_key[PUBLIC_KEY_BYTES],
                                   struct digest run_id);

#endif
