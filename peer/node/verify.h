/*
 * verify: does who mixes with this peer train at all (--verify P)? Members tell at each snapshot
 * for a round what their state is, by its hash, and how many steps led to it from the one before.
 * Now and then one that is drawn is asked for where an interval began; its steps are taken again,
 * and lead to the same bits, or it has not taken them (replica/learners/repeat/repeat.h). What is
 * asked for is known only after it was claimed, so nobody can train when asked, and sleep else.
 *
 * P is the share of the training time that this may take: an interval takes about as long again as
 * it did there, so of `members` that can be checked one is drawn at each of its claims with chance
 * P / members, or less where a repeat is dear. Only what this peer has found by itself counts;
 * nobody is told, so nobody can be accused.
 *
 * Loop thread, but for what says that it is in the lane.
 */
#ifndef GRAPEVINE_PEER_NODE_VERIFY_H
#define GRAPEVINE_PEER_NODE_VERIFY_H

#include "gossip/wire/messages.h"
#include "peer/node/lane.h"

struct node;

/* What a neighbour claims, and what came of it. */
struct verify_heard {
    bool has_claim;
    struct message_claim claim; /* its latest */
    uint64_t equal;             /* intervals that were repeated, and found to be as claimed */
    uint64_t unshown;           /* that were asked for in vain: refused, or no answer came */
};

MUST_USE enum rc verify_create(struct node *node); /* after the lane */
void verify_destroy(struct node *node);
/** Does this peer keep what rounds agree on? */
bool verify_is_on(const struct node *node);
void verify_on_message(struct node *node, struct peer_id from, const struct message *message);
void verify_on_link_lost(struct node *node, struct peer_id peer);
/** In the lane, with a snapshot for a round: the state is kept. */
void verify_snapshot(struct node *node);
/** ...and told, before the snapshot is. */
void verify_snapshot_taken(struct node *node);
/** A round's result has come in. */
void verify_applied(struct node *node);
/** The model was changed by anything else: there is nothing to claim of it. */
void verify_void(struct node *node);
void verify_tick(struct node *node, uint64_t now_ns);
uint64_t verify_next_ns(const struct node *node);
/** What came of it so far. */
struct verify_counts verify_counts(const struct node *node);

extern const struct border_work border_reveal, border_repeat;

#endif
