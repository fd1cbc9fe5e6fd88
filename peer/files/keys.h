/* keys: a peer's identity and a swarm's secret, from files. */
#ifndef GRAPEVINE_PEER_FILES_KEYS_H
#define GRAPEVINE_PEER_FILES_KEYS_H

#include "gossip/secure/secure.h"

struct env;

/** Read the identity at `path`, or make one there (mode 0600) on first use. NULL `path`: a passing
 *  one that is kept nowhere. */
MUST_USE enum rc keys_identity(struct env *env, const char *path, struct identity *identity,
                               struct fault *why);
/** The same, of a file that must be there already: RC_IO. */
MUST_USE enum rc keys_identity_there(struct env *env, const char *path, struct identity *identity,
                                     struct fault *why);
/** The secret of the swarm `name`; `key_path` NULL: a public swarm. */
MUST_USE enum rc keys_swarm(const char *name, const char *key_path, struct swarm_secret *secret,
                            struct fault *why);

#endif
