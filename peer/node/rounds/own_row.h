/* own_row: this peer's row of the topology's graph (gossip/overlay/graph.h): its neighbours in it,
 * as long as they are there. Loop thread. */
#ifndef GRAPEVINE_PEER_NODE_ROUNDS_OWN_ROW_H
#define GRAPEVINE_PEER_NODE_ROUNDS_OWN_ROW_H

#include "base/hash.h"
#include "base/peer_id.h"
#include "gossip/overlay/graph.h"

struct node;

struct own_row {                         /* all zero: not made yet */
    struct peer_id ids[GRAPH_EDGES_MAX]; /* neighbours, ascending */
    float weights[GRAPH_EDGES_MAX];
    uint32_t count;
    uint32_t members;    /* of all to reckon with, this peer included */
    struct digest epoch; /* name of that set; peers see unlike ones for a while */
    uint64_t changes;    /* membership_changes() then */
    uint64_t made_ns;
    bool is_large_told; /* that complete is not */
};

/** As of now; as before while no memory can be had. */
void own_row_refresh(struct own_row *own, struct node *node);
/** Is `id` a neighbour in it? */
bool own_row_has(const struct own_row *own, struct peer_id id);

#endif
