/*
 * relay_env: an env like the one it stands on, in which a link may also be a circuit through a
 * relay (gossip/reach/relay.h). Whoever uses it needs not know the difference: a circuit is dialled
 * at an address of its own form, carries frames, pushes back and gets lost like a connection.
 *
 * A circuit is a byte stream in DATA records, each with its place in the stream, since they may
 * overtake each other on the way. Memory of one is bounded by what was offered to the other end
 * (RELAY_WINDOW_BYTES), one frame, and the sending queue of every link.
 *
 * Loop thread. Events of circuits are delivered by relay_env_deliver() alone.
 */
#ifndef GRAPEVINE_PEER_ENV_RELAY_ENV_H
#define GRAPEVINE_PEER_ENV_RELAY_ENV_H

#include "gossip/flow/outbox.h"
#include "gossip/reach/relay.h"
#include "peer/env/env.h"

enum { RELAY_ENV_CIRCUITS_MAX = 16 };

struct relay_env;

struct relay_env_options {
    struct env *base;
    struct peer_id self;
    struct outbox *outbox; /* control messages to relays; borrowed */
    /** Send a DATA record to a relay. Takes a reference of its own; anything but RC_OK ends the
     *  circuit. */
    enum rc (*send_data)(void *context, struct peer_id relay, const struct inner_header *header,
                         struct blob *body);
    void *context;
};

struct relay_env *relay_env_create(const struct relay_env_options *options); /* NULL: no memory */
void relay_env_destroy(struct relay_env *relay_env);
/** What to give to whoever is to have links over relays; set_events() on it is passed on, and
 *  circuits tell theirs to the same events. */
struct env *relay_env_env(struct relay_env *relay_env);

/** Is it an address of a circuit? */
bool relay_is_address(const char *address);
/** The next dial of `address`, which is written here, leads to `peer` through `relay`. RC_BUSY if
 *  there is a circuit with it already, RC_LIMIT. */
MUST_USE enum rc relay_env_route(struct relay_env *relay_env, struct peer_id peer,
                                 struct peer_id relay, char address[ADDRESS_BYTES_MAX]);
/** CONNECT, WINDOW or STOP from a relay. `is_expected`: we keep a reservation there, so that others
 *  may be connected with us. */
void relay_env_on_message(struct relay_env *relay_env, struct peer_id relay, bool is_expected,
                          const struct message *message);
void relay_env_on_data(struct relay_env *relay_env, struct peer_id relay,
                       const struct inner_header *header, const uint8_t *body, size_t count);
/** The link to a relay is gone or was replaced: its circuits are lost. */
void relay_env_on_link_lost(struct relay_env *relay_env, struct peer_id relay);
/** Deliver what is due and send what may be sent; not from inside one of the events. */
void relay_env_deliver(struct relay_env *relay_env);
uint64_t relay_env_next_ns(const struct relay_env *relay_env);
/** The relay that carries the circuit with `peer`; false: there is none. */
bool relay_env_relay_of(const struct relay_env *relay_env, struct peer_id peer,
                        struct peer_id *relay);
uint32_t relay_env_circuits(const struct relay_env *relay_env);

#endif
