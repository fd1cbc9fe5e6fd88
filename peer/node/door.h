/*
 * door: who is linked with a node, as the node sees it: links and what they bring, who may be
 * linked, who can dial whom, relays, how much others may send.
 */
#ifndef GRAPEVINE_PEER_NODE_DOOR_H
#define GRAPEVINE_PEER_NODE_DOOR_H

#include "base/json.h"
#include "base/peer_id.h"
#include "peer/env/env.h"

struct node;

/* node/door/door.c */
/** `env`: what links are to use. */
MUST_USE enum rc node_door_create(struct node *node, const struct env_events *events,
                                  struct env **env);
void node_door_destroy(struct node *node); /* after the links */
MUST_USE enum rc node_membership_create(struct node *node);
void node_door_tick(struct node *node, uint64_t now_ns);
uint64_t node_door_next_ns(const struct node *node);
/** No address of --bootstrap leads to somebody else, as far as is known. */
bool node_has_no_bootstrap(const struct node *node);
/** Is this peer one that others are to find by --bootstrap? Who names nobody is, too. */
bool node_is_bootstrap(const struct node *node);

/* node/door/links.c */
struct links_events node_links_events(struct node *node);
/** Dial whom membership wants dialled. */
void node_dial_due(struct node *node, uint64_t now_ns);

/* node/door/reach.c: who can dial us, and whom we dial back */
/** Append what was tried to reach the swarm, and why it failed. */
void node_tell_tried(const struct node *node, char *text, size_t cap);
/** The port others dial: of --advertise, else of what was bound. */
uint16_t node_reach_port(const struct node *node);

/* node/door/admission.c: who may be linked */
/** Of /status.json: what strangers cost, and who misbehaved how often. */
struct json *node_admission_json(const struct node *node);
void node_reload(struct node *node); /* SIGHUP */

/* node/door/relay.c */
void node_relay_deliver(struct node *node); /* events of relayed links; see relay_env_deliver() */

/* node/door/credit.c */
uint32_t node_chunk_credit(void *node, uint32_t out, uint32_t wanted);
uint32_t node_bucket_credit(void *node, uint32_t out, uint32_t wanted);
/** DATA came that nobody had allowed. */
void node_stray(struct node *node, struct peer_id from, size_t count);

#endif
