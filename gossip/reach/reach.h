/*
 * reach: can others dial this peer? It asks neighbours it dialled itself to dial back, and is
 * asked by others. A neighbour dials only the address it sees at the other end of its own socket,
 * with the port that the other's hello names: nobody can be made to dial a third party. What counts
 * is not what the neighbour says but the nonce that arrives over the new connection; a neighbour
 * that dialled us of its own accord is as good a witness.
 *
 * Two witnesses decide; where there is only one to ask, it can say that a peer cannot be dialled,
 * until another reaches it. Those who see us at a public address outweigh those of our own network:
 * a peer behind a NAT is reachable for its neighbours in the same room and still outbound-only.
 *
 * Pure: time, chance and events come in; messages go to the outbox, dials are asked for by query.
 */
#ifndef GRAPEVINE_GOSSIP_REACH_REACH_H
#define GRAPEVINE_GOSSIP_REACH_REACH_H

#include "base/rng.h"
#include "gossip/flow/outbox.h"
#include "gossip/signed/record.h"

struct reach;

struct reach_options {
    uint64_t seed;
    uint64_t ask_after_ns; /* the first question after a link came up, and up to as much again */
};

/* An open link, as the handshake left it. */
struct reach_link {
    struct peer_id peer;
    char remote[ADDRESS_BYTES_MAX];   /* its end: what its socket shows, or what we dialled */
    uint16_t listen_port;             /* from its hello; 0: it does not listen */
    char observed[ADDRESS_BYTES_MAX]; /* our end, as it says; may be empty */
    bool is_dialled;                  /* by us */
    bool is_asked; /* may be asked to dial back: a peer, and linked without a relay */
};

struct reach_probe { /* a dial that another peer has asked for */
    struct peer_id peer;
    uint64_t nonce;
    char address[ADDRESS_BYTES_MAX];
};

struct reach_view {
    enum nat_class nat;
    uint32_t reached, failed;         /* witnesses that could and could not dial us */
    char observed[ADDRESS_BYTES_MAX]; /* host under which most others see us; "": not known */
};

struct reach *reach_create(const struct reach_options *options); /* NULL: no memory */
void reach_destroy(struct reach *reach);

void reach_on_link(struct reach *reach, const struct reach_link *link, uint64_t now_ns);
void reach_on_link_lost(struct reach *reach, struct peer_id peer);
/** DIALBACK_REQ and DIALBACK. */
void reach_on_message(struct reach *reach, struct peer_id from, const struct message *message,
                      uint64_t now_ns, struct outbox *out);
/** `peer` opened a connection to us to show this nonce. */
void reach_on_arrived(struct reach *reach, struct peer_id peer, uint64_t nonce, uint64_t now_ns);
/** The dial of reach_next_probe() has ended. */
void reach_on_probe_ended(struct reach *reach, struct peer_id peer, uint64_t nonce, bool is_reached,
                          struct outbox *out);
/** It could not even begin, for want of a place or memory here: that says nothing about `peer`. */
void reach_on_probe_unmade(struct reach *reach, struct peer_id peer, uint64_t nonce,
                           struct outbox *out);
/** Take one dial that should be made now; false: none. At most 4 in the air, 2 a second after a
 *  burst of 8, one in 20 s for one peer. */
bool reach_next_probe(struct reach *reach, struct reach_probe *probe);

/** Ask whom to ask. Then reach_next_ns() lies in the future. */
void reach_tick(struct reach *reach, uint64_t now_ns, struct outbox *out);
uint64_t reach_next_ns(const struct reach *reach); /* UINT64_MAX: nothing pending */

void reach_view(const struct reach *reach, struct reach_view *view);
enum nat_class reach_class(const struct reach *reach);

#endif
