/*
 * model: which model a node has, as others see it: what it gives, what it fetches, and what members
 * say of theirs.
 */
#ifndef GRAPEVINE_PEER_NODE_MODEL_H
#define GRAPEVINE_PEER_NODE_MODEL_H

#include "gossip/flow/credit.h"
#include "gossip/wire/messages.h"

struct neighbour;
struct node;

/* node/model/model.c */
MUST_USE enum rc node_model_create(struct node *node); /* after its pace */
void node_model_destroy(struct node *node);
void node_send_progress(struct node *node, const struct peer_id *to); /* NULL: to all */
/** By what neighbours say: train with what there is, or fetch another one? */
void node_decide(struct node *node);
void node_on_model_message(struct node *node, struct peer_id from, const struct message *message);
void node_on_bucket(struct node *node, struct peer_id from, const struct inner_header *header,
                    const uint8_t *body, size_t count);
void node_model_on_link_lost(struct node *node, struct peer_id peer);
/** What a download was allowed to be sent. */
struct credit_use node_model_credit_use(const struct node *node);
void node_model_tick(struct node *node, uint64_t now_ns);
uint64_t node_model_next_ns(const struct node *node);

/* node/model/choice.c */
/** What counts as one host of an address: see struct neighbour. */
uint64_t node_place(const char *address);

/* node/model/donor.c */
/** A snapshot for others is being made: the learner and the lanes are still needed. */
bool node_is_donating(const struct node *node);
/** Send `to` the buckets it asked for, as far as there is room. */
void node_donate(struct node *node, struct peer_id to);
void node_donate_all(struct node *node);

/* node/model/check.c */
/** It has a model of `lineage`, and gives it, as far as it says. */
bool neighbour_holds(const struct neighbour *neighbour, struct digest lineage);
void node_hear_progress(struct node *node, struct neighbour *neighbour,
                        const struct message_progress *progress);
/** The round that at least half of our neighbours with our model say they have come to; 0: none. */
uint64_t node_round_believed(const struct node *node);

#endif
