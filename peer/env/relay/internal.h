/* relay_env_internal: what peer/env/relay/env.c and peer/env/relay/circuit.c share. Loop thread. */
#ifndef GRAPEVINE_PEER_ENV_RELAY_INTERNAL_H
#define GRAPEVINE_PEER_ENV_RELAY_INTERNAL_H

#include "base/bytes.h"
#include "peer/env/frame_queue.h"
#include "peer/env/framer.h"
#include "peer/env/relay/env.h"

enum { EARLY_MAX = 32 }; /* segments that came before their turn */

/*  FREE --route--> ROUTED --dial--> ASKED --first window--> OPEN --hangup--> LEAVING --> FREE
 *  FREE --CONNECT from a relay--> OPEN                  any --stop, loss: told to the node--> FREE
 */
enum circuit_state { CIRCUIT_FREE, CIRCUIT_ROUTED, CIRCUIT_ASKED, CIRCUIT_OPEN, CIRCUIT_LEAVING };

struct early {
    uint64_t offset;
    struct blob *body; /* NULL: free */
};

struct circuit {
    enum circuit_state state;
    uint64_t number; /* as a link */
    struct peer_id peer, relay;
    uint32_t id;
    uint64_t deadline_ns; /* of ROUTED and LEAVING */
    bool is_dialled;
    bool wants_told; /* of its birth: on_accepted or on_connected is due */
    bool wants_lost;
    enum relay_code lost_code;
    /* sending */
    struct frame_queue queue;
    size_t queued_bytes;
    size_t front_sent; /* bytes of the first frame */
    uint64_t sent, may_send;
    bool is_drain_due;
    /* receiving */
    struct frame_queue inbox; /* segments in order */
    struct early early[EARLY_MAX];
    struct framer framer;
    uint64_t received; /* in order */
    uint64_t read;     /* into the framer */
    uint64_t offered;  /* window, as told */
    bool is_paused;
    bool wants_read; /* the pause is over, and a whole frame may be there */
};

struct relay_env {
    struct env env; /* first: the two pointers are the same */
    struct relay_env_options options;
    struct env_events events;
    struct circuit circuits[RELAY_ENV_CIRCUITS_MAX];
    bool is_used; /* false: they are all free, as with most peers at all times */
    uint64_t next_number;
    uint32_t next_id;
};

/* circuit.c */
void circuit_open(struct relay_env *relay_env, struct circuit *circuit);
void circuit_free(struct circuit *circuit);
/** Tell the relay that it is over. */
void circuit_say_stop(struct relay_env *relay_env, const struct circuit *circuit,
                      enum relay_code code);
/** It is lost: the node will hear of it. */
void circuit_lose(struct circuit *circuit, enum relay_code code);
MUST_USE enum rc circuit_queue(struct circuit *circuit, struct blob *frame);
/** Send what the window allows. */
void circuit_pump(struct relay_env *relay_env, struct circuit *circuit);
void circuit_take(struct relay_env *relay_env, struct circuit *circuit,
                  const struct inner_header *header, const uint8_t *body, size_t count);
/** Frames that have come in whole; stops when the circuit is no longer OPEN or was paused. */
void circuit_read(struct relay_env *relay_env, struct circuit *circuit);

#endif
