/* door_internal: what the files of the door share. Nobody else includes it. */
#ifndef GRAPEVINE_PEER_NODE_DOOR_INTERNAL_H
#define GRAPEVINE_PEER_NODE_DOOR_INTERNAL_H

#include "gossip/reach/reach.h"
#include "peer/node/internal.h"

struct bootstrap_try {
    const char *address;
    bool is_self; /* it led back to this peer */
    uint32_t failures;
    enum rc rc;
    char why[200];
};

struct door {
    char address[ADDRESS_BYTES_MAX]; /* that was bound */
    struct env *env;                 /* what links use: relays are in it */
    struct bootstrap_try bootstrap[NODE_ADDRESSES_MAX];
    uint32_t bootstrap_count;
    uint64_t judge_due_ns;
    struct reach *reach;
    struct door_relay *relay;
    enum nat_class told_nat; /* in our member record */
};

/* links.c: what the env and links tell */
struct env_events door_env_events(struct node *node);
struct links_events door_links_events(struct node *node);

/* reach.c */
/** The port others dial: of --advertise, else of what was bound. */
uint16_t door_reach_port(const struct node *node);
MUST_USE enum rc door_reach_create(struct node *node);
/** Also for observers: they may ask to be dialled back. */
void door_reach_on_open(struct node *node, struct peer_id peer, const struct hello *hello,
                        const char *address, bool is_dialled);
/** A message of the reachability family, which is then used up. */
bool door_reach_on_message(struct node *node, struct peer_id from, const struct message *message);
void door_reach_on_dialback(void *node, struct peer_id peer, uint64_t nonce);
void door_reach_on_probe_ended(void *node, struct peer_id peer, uint64_t nonce, enum rc rc);
void door_reach_tick(struct node *node, uint64_t now_ns);

/* admission.c */
enum rc door_on_entry(void *node, struct peer_id peer, const struct hello *hello,
                      const char *address, bool is_dialled, struct fault *why);
void door_on_violation(void *node, struct peer_id peer);
bool door_is_known(void *node, const char *address);
void door_on_signal(void *node, int signal); /* of the process */
void door_admission_tick(struct node *node, uint64_t now_ns);

/* credit.c */
void door_on_chunk(struct node *node, struct peer_id from, const struct inner_header *header,
                   const uint8_t *body, size_t count);

/* relay.c: links through relays, and being one */
MUST_USE enum rc door_relay_create(struct node *node); /* and the env of links with it */
void door_relay_destroy(struct node *node);
/** A message of the relay family, which is then used up. */
bool door_relay_on_message(struct node *node, struct peer_id from, const struct message *message);
void door_relay_on_data(struct node *node, struct peer_id from, const struct inner_header *header,
                        const uint8_t *body, size_t count);
/** Also when the link was replaced. */
void door_relay_on_closed(struct node *node, struct peer_id peer);
void door_relay_deliver(struct node *node); /* events of relayed links; see relay_env_deliver() */
void door_relay_tick(struct node *node, uint64_t now_ns);
uint64_t door_relay_next_ns(const struct node *node);

#endif
