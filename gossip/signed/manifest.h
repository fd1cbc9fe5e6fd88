/*
 * manifest: who vouches for a state manifest. The donor's identity signs what the manifest says, so
 * that it cannot be another's, of another run or another download.
 */
#ifndef GRAPEVINE_GOSSIP_SIGNED_MANIFEST_H
#define GRAPEVINE_GOSSIP_SIGNED_MANIFEST_H

#include "gossip/secure/secure.h"
#include "gossip/wire/messages.h"

/** Fill `manifest->proof` for everything else in it. */
void manifest_sign(struct message_state_manifest *manifest, const struct identity *identity,
                   struct digest run_id);
/** The proof is `from`'s and covers the manifest as it stands. */
bool manifest_is_signed_by(const struct message_state_manifest *manifest, struct peer_id from,
                           struct digest run_id);

#endif
