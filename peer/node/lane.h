/*
 * lane: the training lane of a node, which has one job at a time, chosen at each step border. What
 * may be done there is a table of works, most urgent first (node.c), each a constant of the file
 * that knows it. So the live replica is only ever changed between two optimizer steps, and every
 * reader sees a whole step.
 */
#ifndef GRAPEVINE_PEER_NODE_LANE_H
#define GRAPEVINE_PEER_NODE_LANE_H

#include "peer/env/env.h"
#include "peer/files/checkpoint.h"
#include "peer/node/node.h"
#include "peer/round/audit.h"
#include "replica/learners/learner.h"

struct border_work;

struct border_job {
    struct job job; /* its cost is that of one look at the model, unless prepare() says otherwise */
    struct node *node;
    const struct border_work *work;
    uint64_t begun_ns;
    enum rc rc;
    struct fault why;
    uint32_t steps;
    struct train_report report;
    struct evaluation evaluation;
    struct digest digest;
    float *to;    /* SNAPSHOT: into the buffer of the round */
    double moved; /* KEEP: how far parameters are from those kept before */
    struct peer_id *members;
    size_t members_count;
    struct checkpoint checkpoint;
};

/* As far as others tell works apart. */
enum border_kind {
    BORDER_OTHER,
    BORDER_STEPS,
    BORDER_EVALUATION,
    BORDER_CHECKPOINT,
    BORDER_RESHARD,
    BORDER_KINDS
};

/* The states of a node in which there is a work. */
enum {
    BORDER_JOINING = 1 << NODE_JOINING,
    BORDER_TRAINING = 1 << NODE_TRAINING,
    BORDER_LEAVING = 1 << NODE_LEAVING,
    BORDER_ALIVE = BORDER_JOINING | 1 << NODE_LOADING | BORDER_TRAINING
};

enum border_next {
    BORDER_SUBMIT, /* the job is ready */
    BORDER_ON,     /* there is none after all: the next work */
    BORDER_AGAIN   /* the state changed instead: from the first work on */
};

struct border_work {
    unsigned states;
    enum border_kind kind;
    enum audit_change change; /* of the replica */
    /** Is it its turn? Asked in order, until one says so. */
    bool (*when)(struct node *node);
    /** On the loop, with all else in the job zero. NULL: there is nothing to prepare. */
    enum border_next (*prepare)(struct node *node, struct border_job *job);
    void (*run)(struct border_job *job); /* in the lane */
    void (*done)(struct node *node, struct border_job *job);
};

/* node/lane */
extern const struct border_work border_nothing_left, border_goal, border_steps; /* train.c */
extern const struct border_work border_keep, border_rollback;                   /* keep.c */
extern const struct border_work border_pull;                                    /* pull.c */
extern const struct border_work border_first_share, border_reshard;             /* share.c */
extern const struct border_work border_checkpoint;                              /* checkpoint.c */
extern const struct border_work border_evaluate, border_final;                  /* evaluate.c */
/* node/rounds/border.c */
extern const struct border_work border_snapshot, border_apply;
/* node/model: model.c, take.c, donor.c */
extern const struct border_work border_hash, border_assign, border_donate, border_sketch;

/* lane/border.c */
/** If the lane is free: the first of `works` whose turn it is. */
void node_border(struct node *node, const struct border_work *const *works, size_t count);

#endif
