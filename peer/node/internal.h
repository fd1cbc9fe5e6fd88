/*
 * node_internal: the node, which wires its parts together. Each has a header that the others go by
 * (lane.h, rounds.h, models.h, door.h, watch.h), and a state that only its own files know. Nobody
 * else includes it.
 */
#ifndef GRAPEVINE_PEER_NODE_INTERNAL_H
#define GRAPEVINE_PEER_NODE_INTERNAL_H

#include "base/bytes.h"
#include "base/check.h"
#include "base/mem.h"
#include "gossip/membership/membership.h"
#include "peer/link/link.h"
#include "peer/node/door.h"
#include "peer/node/lane.h"
#include "peer/node/models.h"
#include "peer/node/node.h"
#include "peer/node/rounds.h"
#include "peer/node/trust.h"
#include "peer/node/verify.h"
#include "peer/node/watch.h"
#include "peer/round/round.h"
#include "peer/times.h"

enum {
    NODE_ROUNDS_MISSED_MAX = 50, /* a restarted peer that missed more takes the swarm's model */
    NODE_HANDSHAKE_TRIES = 3, /* of each bootstrap address, before it is said to be another swarm */
    NODE_RATE_STEPS = 200,    /* in which --lr-scaling brings in its rate */
    NODE_DONOR_QUEUE = 8,     /* buckets queued for one joiner */
    NODE_DOUBLINGS_MAX = 9    /* of NODE_RETRY_NS: about nine minutes */
};

struct node {
    struct node_options options;
    struct node_events events;
    struct env *env;
    const struct schema *schema;
    size_t values; /* parameters */
    size_t mixed;  /* what a round exchanges: they and running statistics, and see lane.h */
    enum node_state state;
    struct peer_id self;
    uint64_t begun_ns;
    struct rng rng;
    struct outbox outbox;
    bool is_continuing; /* inside node_continue(): do not nest */
    bool is_listening_told;

    /* its parts */
    struct lane_state *lane;
    struct rounds *rounds;
    struct models *models;
    struct door *door;
    struct verify *verify; /* NULL: --verify 0 */
    struct watch watch;

    /* what they put to use, and who made it */
    struct round *round; /* rounds; NULL: `none` */
    struct links *links; /* door, as all that follow */
    struct membership *membership;
    struct trust *trust;
    struct neighbour neighbours[LINKS_MAX];
    uint32_t
        neighbour_keys[LINKS_MAX]; /* the first bytes of their ids: they are looked for often */
    uint32_t neighbours_count;

    /* the model, and what this peer did for it */
    struct digest lineage; /* all zero: not known yet */
    bool has_lineage;
    uint64_t model_samples; /* behind the model when this peer took or made it, plus our own */
    uint64_t step, samples, own_steps;
    uint64_t step_ns;    /* smoothed length of one step; 0: not known */
    uint64_t once_steps; /* own_steps when the one average of one-shot was made, also before a
                            restart; 0: it was not */
    struct lane_goal goal;

    struct node_result result;
};

uint64_t node_now(const struct node *node);
/** After every event: do what is now possible. Also as a callback. */
void node_continue(void *node);
void node_fail(struct node *node, enum rc rc, const char *text);
void node_leave(struct node *node, uint32_t goaway_reason);

static inline uint64_t node_earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

#endif
