/*
 * pace: when a node has a round, and with whom. Once a period with a group, a partner, a receiver
 * or all neighbours; or once, at the goal. Each is a file of node/rounds with a table of operations
 * and a state that it alone knows. A node has two, as its strategy says: the inner one goes from
 * period to period, and the outer one, finish or once, is around it for what is done at the goal.
 *
 * After every event, where the node averages:
 *   at the goal       outer->stays()
 *   at a step border  inner->heard(), outer->due(), outer->begin(), which ask the inner one; then
 *                     inner->waits() and inner->steps_until(), before steps are taken
 *   between borders   inner->again(), and if so as at a border
 *   for the alarm     next_ns() of both
 * Loop thread only.
 */
#ifndef GRAPEVINE_PEER_NODE_PACE_H
#define GRAPEVINE_PEER_NODE_PACE_H

#include "base/peer_id.h"
#include "peer/round/round.h"

struct node;

/* What may be NULL says what that means. */
struct pace_ops {
    size_t bytes; /* of its state, which begins as zeros */

    /* Facts of its rounds, for whoever would else ask whose they are. Of the inner one. */
    bool is_common;  /* members wait for each other, each has a part of the result from each, and
                        all end with the same model */
    bool is_one_way; /* a share is given away; what brings something are rounds of others */
    bool meets_one;  /* one partner, and at once another where that one will not */
    bool lies_open;  /* begun early it waits for who is to come, and keeps nobody from anything */

    /* Of both. */
    /** Is a round to be begun now? Asked where one may be: round_may_begin(). */
    bool (*due)(const struct node *node);
    /** It is: begin one with some of `ids` [count], which may mix with this peer, are sorted and
     *  hold this peer as well. It may find that there is nobody, or that it is better to wait. */
    void (*begin)(struct node *node, struct peer_id *ids, size_t count);
    /** When due() may say so without an event. UINT64_MAX or NULL: not before there is one. */
    uint64_t (*next_ns)(const struct node *node);
    /** The snapshot of a round was taken. NULL: nothing comes of that. */
    void (*snapshot)(struct node *node);

    /* Of the inner one. */
    /** See what became of the latest round. NULL: that changes nothing. */
    void (*heard)(struct node *node);
    /** Is there a round to be begun for which the next border is too late? NULL: never. */
    bool (*again)(struct node *node);
    /** Leave of `ids` [count], as for begin(), those it could ever choose; the count. NULL: all. */
    size_t (*choose)(struct node *node, struct peer_id *ids, size_t count);
    /** May no step be taken now, as a round is under way? */
    bool (*waits)(const struct node *node);
    /** Steps to the next border at which that may change, or a round be due. UINT64_MAX: there is
     *  none. */
    uint64_t (*steps_until)(const struct node *node);
    /** Is one round of all `members` at their goals, this peer included? NULL: never. */
    bool (*meets_all)(const struct node *node, uint32_t members);

    /* Of the outer one. */
    /** The goal is reached: is there a last round to be waited for, or for others' sake? */
    bool (*stays)(struct node *node);
    /** As far as is known no other round is needed. NULL: nobody is told. */
    bool (*is_settled)(const struct node *node);
    /** `peer` kept its word in a round. NULL: that changes nothing. */
    void (*met)(struct node *node, struct peer_id peer);
    /** Resumed at its goal, before anybody is there: does the model lack a round? NULL: no. */
    bool (*lacks_round)(const struct node *node);
};

extern const struct pace_ops pace_group, pace_pair, pace_push, pace_graph; /* inner ones */
extern const struct pace_ops pace_once, pace_finish;                       /* outer ones */

struct rounds;

/** Those of `strategy`, with states of their own. RC_NOMEM. */
MUST_USE enum rc pace_create(struct rounds *rounds, const struct strategy *strategy);
void pace_destroy(struct rounds *rounds);

/* ---- what they have in common: periods of steps or of time, from mixed_step and mixed_ns */

/** There are any: not in one-shot, whose one round is at the goal. */
bool pace_has_periods(const struct node *node);
/** This one is over; after the goal it always is. */
bool pace_is_over(const struct node *node);
/** So many steps are left of it, or may be taken beside the round that runs. UINT64_MAX: it is
 * over, or goes by time. */
uint64_t pace_steps_left(const struct node *node);
/** The next one begins here and now. */
void pace_begin_period(struct node *node);
/** Before that, where rounds make periods: note how long the last one was (period_ns). */
void pace_measure(struct node *node);
/** By our own steps alone it takes so long; 0: that is not known yet. */
uint64_t pace_period_ns(const struct node *node);
/** How many there have been, by the clock or the step: what draws partners and receivers. */
uint64_t pace_count(const struct node *node);
/** waits() of most: steps are taken beside a round as the strategy says. */
bool pace_waits(const struct node *node);
/** Begin a round. Of `members` the boot ids and the period are filled in. RC_NOT_FOUND: one is gone
 *  this very moment; other codes as for round_begin(). */
enum rc pace_begin_with(struct node *node, struct round_members members);

#endif
