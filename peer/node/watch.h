/* watch: what a node counts of itself for reports, and what it tells of itself; see also node.h. */
#ifndef GRAPEVINE_PEER_NODE_WATCH_H
#define GRAPEVINE_PEER_NODE_WATCH_H

#include "replica/learners/learner.h"

#include <stdbool.h>
#include <stdint.h>

struct node;

enum { ALARM_BYTES = 320 };

struct watch {
    uint64_t due_ns;                  /* the next report; an evaluation may move it */
    uint64_t since_ns, since_samples; /* the last one */
    double loss_sum;                  /* since then, of so many steps */
    uint32_t loss_steps;
    double loss, accuracy, samples_per_s; /* as of the last one; NaN: not known */
    uint64_t evaluation_ns;               /* spent on evaluation so far */
    uint64_t answers, answering_ns;       /* samples answered for others so far, and the time */
    bool is_loss_bad;                     /* of the last one: not finite */
    uint64_t alone_ns;                    /* when it was last seen with a neighbour, or began */
    uint64_t evaluate_ns, pause_ns;       /* none before; so long after the last one */
};

void watch_begin(struct node *node); /* where its samples stand, and now */
/** Steps were taken. */
void watch_steps(struct node *node, const struct train_report *report);
/** A report is due, or the last one: count up, and tell. */
void watch_report(struct node *node);
/** The last rounds, with their reasons and times, into the log. */
void watch_dump(const struct node *node);

#endif
