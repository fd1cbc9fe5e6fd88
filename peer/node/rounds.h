/*
 * rounds: when a node averages, with whom, and what it makes of how that goes. A round itself, once
 * it is begun, is peer/round/round.h.
 */
#ifndef GRAPEVINE_PEER_NODE_ROUNDS_H
#define GRAPEVINE_PEER_NODE_ROUNDS_H

#include "gossip/wire/messages.h"
#include "peer/files/checkpoint.h"
#include "peer/node/lane.h"
#include "peer/round/round.h"

struct neighbour;
struct node;

/* node/rounds/round.c */
MUST_USE enum rc rounds_create(struct node *node); /* after the lane and the links */
void rounds_destroy(struct node *node);
/** After every event. */
void rounds_tick(struct node *node);
/** Between two step borders: the next partner, if the last one was busy. */
void rounds_offer_again(struct node *node);
uint64_t rounds_next_ns(const struct node *node);
/** The model was replaced by one that others hold: the pace counts from where they mixed last. */
void rounds_join(struct node *node);
/** Training begins here, or goes on: the pace counts from this step on. */
void rounds_begin_count(struct node *node);
/** All zero where there are none. */
struct round_stats rounds_stats(const struct node *node);
/** The method lets no step be taken now: a round is under way. */
bool rounds_wait(const struct node *node);
/** No step may be taken now, as this peer is as far ahead of the slowest as the method lets it. */
bool rounds_is_ahead(const struct node *node);
/** Steps to the next border at which a round may be due. UINT64_MAX: there is none. */
uint64_t rounds_steps_until(const struct node *node);
/** The goal is reached: may the peer not leave yet? It takes no step meanwhile. */
bool rounds_stay(struct node *node);
/** Resumed at its goal, before anybody is there: does the model lack a round? */
bool rounds_lack_one(const struct node *node);
bool rounds_are_settling(const struct node *node);
/** Members wait for each other, and all end with the same model. */
bool rounds_are_common(const struct node *node);
/** Does one run, or begin within `ns` by our own pace? */
bool rounds_are_near(struct node *node, double ns);
/** The step of the model at the last snapshot for a round, and steps since the last round. */
uint64_t rounds_snapshot_step(const struct node *node);
uint64_t rounds_staleness(const struct node *node);
/** What members are told of them. */
void rounds_fill_progress(const struct node *node, struct message_progress *progress);
/** Fewer peers than the first step is to be taken with. Says so once. */
bool rounds_wait_for_peers(struct node *node);
/** For how many more, as was told; 0: it does not wait. */
uint32_t rounds_wait_for_more(const struct node *node);
/** Was a round with this neighbour refused lately, as our models are too far apart? */
bool rounds_is_far(const struct node *node, const struct neighbour *neighbour);
/** It is no longer so, or is not known to be: one of the two models was replaced. */
void rounds_far_is_over(struct node *node, struct neighbour *neighbour);
/** A message of the round family from a neighbour, if it may be heard. */
void rounds_on_message(struct node *node, struct peer_id from, const struct message *message);

/* node/rounds/adapt.c: periods that follow the loss */
/** Steps from one round to the next as of now; 0: rounds go by time. */
uint64_t rounds_every(const struct node *node);
bool rounds_are_adaptive(const struct node *node);
/** Steps were taken. */
void rounds_stepped(struct node *node, const struct train_report *report);
/** What this peer says of the loss and the period, if it does. NULL: to all. */
void rounds_tell_period(struct node *node, const struct peer_id *to);

/* node/rounds/outcome.c: what became of pair rounds, through a common neighbour */
/** A message of that kind, which is then used up. */
bool rounds_on_outcome(struct node *node, struct peer_id from, const struct message *message);

/* node/rounds/busy.c: what is long in the training lane, and what others make of it */
void rounds_busy_begin(struct node *node, enum border_kind kind); /* a job is about to start */
void rounds_busy_end(struct node *node, enum border_kind kind, uint64_t took_ns); /* it is back */
/** Before `progress` replaces what `from` said last. */
void rounds_busy_hear(struct node *node, const struct neighbour *from,
                      const struct message_progress *progress);
/** So long after it is due a long job still leaves way to a group that forms; 0: none does. */
uint64_t rounds_busy_put_off_ns(const struct node *node);

/* node/rounds/saved.c: rounds in a checkpoint */
/** What it holds of them. From here on they are held: round_hold(). */
void rounds_checkpoint(struct node *node, struct checkpoint *checkpoint);
/** Before the first round: go on from it. */
MUST_USE enum rc rounds_resume(struct node *node, const struct checkpoint *checkpoint,
                               struct fault *why);

/* node/rounds/preference.c */
/** Bytes a second that the line of `peer` was seen to carry to this `node`; 0: it is not linked, or
 *  nothing took long enough to tell. */
uint64_t rounds_line_rate(const struct node *node, struct peer_id peer);
/** At the last draw, of meeting it, 1 being usual. NaN: nobody was chosen by it. */
double rounds_odds(const struct node *node, struct peer_id peer);

/* node/rounds/overdue.c: rounds that pass this peer by */
/** Rounds of the swarm, since this peer began, that it took no part in; 0 where rounds are not
 *  numbered in common (pairs, pushes). */
uint64_t rounds_overdue_missed(const struct node *node);
/** With each report: say so if there was no round for long, and why. */
void rounds_overdue_look(struct node *node);
/** True: there was none for long though one was due; `text` says so, and why. */
bool rounds_are_overdue(const struct node *node, char *text, size_t cap);
/** Before it leaves: the result says so if there was no round at all although there could have
 *  been. */
void rounds_overdue_at_goal(struct node *node);

#endif
