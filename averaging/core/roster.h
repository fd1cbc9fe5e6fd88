/*
 * roster: the peers that an exchange is linked with, and in which life each of them is. At most
 * LINKS_MAX. Pure; no allocation.
 */
#ifndef GRAPEVINE_AVERAGING_CORE_ROSTER_H
#define GRAPEVINE_AVERAGING_CORE_ROSTER_H

#include "gossip/wire/messages.h"

#include <stdbool.h>
#include <stdint.h>

/* Zeroed: none. */
struct roster {
    struct member_ref refs[LINKS_MAX];
    uint32_t count;
};

enum { ROSTER_NONE = LINKS_MAX };

/** Its place in `refs`; ROSTER_NONE: it is not linked. Places of others change when one is lost. */
uint32_t roster_find(const struct roster *roster, struct peer_id id);
bool roster_has(const struct roster *roster, struct peer_id id);
/** Its place, where it has its present life from now on; ROSTER_NONE: there are LINKS_MAX others.
 */
uint32_t roster_add(struct roster *roster, struct member_ref ref);
/** The last one takes its place, which is returned; ROSTER_NONE: it was not linked. */
uint32_t roster_remove(struct roster *roster, struct peer_id id);

#endif
