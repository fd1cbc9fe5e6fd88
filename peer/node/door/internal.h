/* door_internal: what the files of the door share. Nobody else includes it. */
#ifndef GRAPEVINE_PEER_NODE_DOOR_INTERNAL_H
#define GRAPEVINE_PEER_NODE_DOOR_INTERNAL_H

#include "gossip/reach/reach.h"
#include "peer/node/internal.h"

struct bootstrap_try {
    char address[ADDRESS_BYTES_MAX];
    bool is_self; /* it led back to this peer */
    uint32_t failures;
    enum rc rc;
    char why[200];
};

struct node_door {
    struct bootstrap_try bootstrap[NODE_ADDRESSES_MAX];
    uint32_t bootstrap_count;
    uint64_t judge_due_ns;
    struct reach *reach;
    struct node_relay *relay;
    enum nat_class told_nat; /* in our member record */
};

/* reach.c */
MUST_USE enum rc node_reach_create(struct node *node);
/** Also for observers: they may ask to be dialled back. */
void node_reach_on_open(struct node *node, struct peer_id peer, const struct hello *hello,
                        const char *address, bool is_dialled);
/** A message of the reachability family, which is then used up. */
bool node_reach_on_message(struct node *node, struct peer_id from, const struct message *message);
void node_reach_on_dialback(void *node, struct peer_id peer, uint64_t nonce);
void node_reach_on_probe_ended(void *node, struct peer_id peer, uint64_t nonce, enum rc rc);
void node_reach_tick(struct node *node, uint64_t now_ns);

/* admission.c */
enum rc node_on_entry(void *node, struct peer_id peer, const struct hello *hello,
                      const char *address, bool is_dialled, struct fault *why);
void node_on_violation(void *node, struct peer_id peer);
bool node_is_known(void *node, const char *address);
void node_admission_tick(struct node *node, uint64_t now_ns);

/* credit.c */
void node_on_chunk(struct node *node, struct peer_id from, const struct inner_header *header,
                   const uint8_t *body, size_t count);

/* relay.c: links through relays, and being one */
MUST_USE enum rc node_relay_create(struct node *node, const struct env_events *events,
                                   struct env **env);
void node_relay_destroy(struct node *node);
/** A message of the relay family, which is then used up. */
bool node_relay_on_message(struct node *node, struct peer_id from, const struct message *message);
void node_relay_on_data(struct node *node, struct peer_id from, const struct inner_header *header,
                        const uint8_t *body, size_t count);
/** Also when the link was replaced. */
void node_relay_on_closed(struct node *node, struct peer_id peer);
void node_relay_tick(struct node *node, uint64_t now_ns);
uint64_t node_relay_next_ns(const struct node *node);

#endif
