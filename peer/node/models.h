/*
 * models: which model a node has, as others see it: what it gives, what it fetches, and what
 * members say of theirs.
 */
#ifndef GRAPEVINE_PEER_NODE_MODELS_H
#define GRAPEVINE_PEER_NODE_MODELS_H

#include "gossip/flow/credit.h"
#include "gossip/wire/messages.h"
#include "peer/files/checkpoint.h"

struct neighbour;
struct node;
struct node_report;

/* node/models/models.c */
MUST_USE enum rc models_create(struct node *node); /* after its rounds */
void models_destroy(struct node *node);
void models_tell(struct node *node, const struct peer_id *to); /* NULL: to all */
/** By what neighbours say: train with what there is, or fetch another one? */
void models_decide(struct node *node);
void models_on_message(struct node *node, struct peer_id from, const struct message *message);
/** The same of who is no member: it may ask for our model, if we give it; all else is dropped. */
void models_on_visit(struct node *node, struct peer_id from, const struct message *message);
void models_on_bucket(struct node *node, struct peer_id from, const struct inner_header *header,
                      const uint8_t *body, size_t count);
void models_on_link_lost(struct node *node, struct peer_id peer);
/** What a download was allowed to be sent. */
struct credit_use models_credit_use(const struct node *node);
void models_tick(struct node *node, uint64_t now_ns);
uint64_t models_next_ns(const struct node *node);

/* node/models/input.c */
/** After the checkpoint's lineage is the node's. */
void models_input_resume(struct node *node);
/** No step yet: members that hold another normalisation are agreed with first. */
bool models_input_waits(const struct node *node);
/** The first step comes next: from here on the normalisation stays. */
void models_input_settle(struct node *node);

/* node/models/population.c: `--averaging pbt` */
bool models_are_population(const struct node *node);
MUST_USE enum rc models_population_resume(struct node *node, struct fault *why);
/** For a checkpoint. */
struct checkpoint_population models_population_kept(const struct node *node);
/** At least 1; UINT64_MAX: no score is due at any step. */
uint64_t models_population_steps_left(const struct node *node);
/** The loss is not finite, and the last good model is on its way back. */
void models_population_ran_away(struct node *node);
void models_population_report(const struct node *node, struct node_report *report);

/* node/models/keeper.c */
/** At the goal: this peer is the last to train, and who keeps the model does not have it as it is
 *  now. It stays for that, for a while. */
bool models_stay(struct node *node);

/* node/models/donor.c */
/** A snapshot for others is being made: the learner and the lanes are still needed. */
bool models_are_donated(const struct node *node);
/** Send `to` the buckets it asked for, as far as there is room. */
void models_donate(struct node *node, struct peer_id to);
void models_donate_all(struct node *node);

/* node/models/check.c */
/** It has a model of `lineage`, and gives it, as far as it says. */
bool models_holds(const struct neighbour *neighbour, struct digest lineage);
void models_hear(struct node *node, struct neighbour *neighbour,
                 const struct message_progress *progress);
/** The round that at least half of our neighbours with our model say they have come to; 0: none. */
uint64_t models_round_believed(const struct node *node);

#endif
