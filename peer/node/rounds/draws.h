/* draws: groups of a swarm that is not linked in full, those of the rounds to come. Loop thread. */
#ifndef GRAPEVINE_PEER_NODE_ROUNDS_DRAWS_H
#define GRAPEVINE_PEER_NODE_ROUNDS_DRAWS_H

#include "base/peer_id.h"
#include "gossip/overlay/topology.h"
#include "gossip/wire/limits.h"

struct node;

/* The group of one draw, this peer included, in proposing order. */
struct draw {
    uint64_t number;
    uint64_t changes, made_ns; /* membership_changes() when it was drawn */
    uint32_t count;            /* 0: none drawn */
    struct peer_id ids[GROUP_MEMBERS_MAX];
};

struct draws { /* all zero: none */
    struct draw drawn[TOPOLOGY_AHEAD_MAX];
};

/** More members are believed to be there than a full mesh has. */
bool draws_are_needed(const struct node *node);
/** The node's group in `round`, itself included, in proposing order; its links and those of the
 *  next are asked for. Whoever is not linked yet is among them. Returns the count; 0: no memory. */
size_t draws_find(struct draws *draws, struct node *node, uint64_t round,
                  struct peer_id group[GROUP_MEMBERS_MAX]);

#endif
