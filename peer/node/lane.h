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
    uint8_t *state; /* of border_state: encoded, from mem_* */
    size_t state_bytes;
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
    const char *name; /* in a trace; NULL: it has no job */
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

/* Of the node; only the lane changes it. */
struct lane_goal {
    bool is_reached;
    uint64_t steps;         /* UINT64_MAX: it is not one of steps; 0: not known yet */
    uint64_t epoch_samples; /* of this peer's share when training began; 0: not yet */
};

/* node/lane */
extern const struct border_work border_nothing_left, border_goal, border_steps; /* train.c */
extern const struct border_work border_keep, border_rollback;                   /* keep.c */
extern const struct border_work border_pull;                                    /* pull.c */
extern const struct border_work border_first_shard, border_reshard;             /* shard.c */
extern const struct border_work border_checkpoint, border_state;                /* checkpoint.c */
extern const struct border_work border_evaluate, border_final;                  /* evaluate.c */
extern const struct border_work border_answer;                                  /* answer.c */
/* node/rounds/border.c */
extern const struct border_work border_snapshot, border_apply;
/* node/models: model.c, take.c, donor.c, population.c */
extern const struct border_work border_hash, border_assign, border_donate, border_sketch;
extern const struct border_work border_score, border_copy;

/* lane/border.c */
/** The schema of `learner` and the sizes that follow from it are the node's from here on. */
MUST_USE enum rc lane_create(struct node *node, struct learner *learner);
void lane_destroy(struct node *node);
/** For jobs that do what the lane itself knows nothing of. */
struct learner *lane_learner(const struct node *node);
/** If the lane is free: the first of `works` whose turn it is. */
void lane_border(struct node *node, const struct border_work *const *works, size_t count);
bool lane_is_busy(const struct node *node);
/** Steps that are being taken end as soon as they can. */
void lane_stop(struct node *node);
/** When a step may be taken or a report is due, as far as that needs no event. */
uint64_t lane_next_ns(const struct node *node);

/* lane/train.c */
/** Before anything else: this peer goes on from `checkpoint`. */
MUST_USE enum rc lane_resume(struct node *node, const struct checkpoint *checkpoint,
                             struct fault *why);
/** The text of a failure of the learner's: its device's own words, where there are any. */
const char *lane_why(const struct node *node, enum rc rc);

/* lane/left.c */
/** Until this peer expects to be at its goal, at least 1; 0: not known, or it is. */
uint32_t lane_left_ms(const struct node *node);

/* lane/sections.c: the learner's model, for others. In the lane, but for the first. */
/** Whose the moments are, NULL: the learner does not say. */
const char *lane_optimizer(const struct node *node);
/** How many updates they are of. */
uint64_t lane_updates(const struct node *node);
MUST_USE enum rc lane_export(struct node *node, enum section section, float *out); /* all of it */
/** `values`: all of the section. */
MUST_USE enum rc lane_assign(struct node *node, enum section section, const float *values);
/** All of SECTION_MOMENTS, as the optimizer could have made them: others may say what they like,
 * and changes come rounded. Brings them into range in place. */
MUST_USE enum rc lane_assign_moments(struct node *node, float *moments);
struct lane_model {
    /* Whole sections; NULL: what is there stays. */
    const float *parameters, *buffers, *moments, *input;
    uint64_t step, updates; /* the latter: of the moments */
};
/** Of a trunk alone, where that is what is shared: what lies behind it stays. */
MUST_USE enum rc lane_replace(struct node *node, const struct lane_model *model);
/** All of the model is in rounds, and not a trunk alone (--share). */
bool lane_shares_all(const struct node *node);

/* lane/shard.c */
/** After every event: have members come or gone? */
void lane_tick(struct node *node, uint64_t now_ns);

/* lane/keep.c: the last good model */
/** The model is one to go back to, if it is sound. */
void lane_keep(struct node *node);
/** It is not sound, and is on its way back. */
bool lane_is_broken(const struct node *node);
/** There is another one, and no way back from it to the one before. `has_before`: but that is on
 *  disk. */
void lane_model_replaced(struct node *node, bool has_before);
/** How far the parameters moved over the last round, a norm; 0: not known. */
double lane_moved(const struct node *node);

/* lane/evaluate.c, lane/checkpoint.c */
/** At the end there is no checkpoint, and no evaluation if so. */
void lane_skip_last(struct node *node, bool skips_evaluation);
/** The next one is due a whole period from now on. */
void lane_put_off_checkpoint(struct node *node);
/** As of now, without what rounds keep. */
struct checkpoint lane_checkpoint(const struct node *node);
void lane_save(struct border_job *job); /* in the lane: job->checkpoint */
/** So many checkpoints in a row could not be written. */
uint32_t lane_checkpoint_failures(const struct node *node);
/** A model that was given up is on disk, and no checkpoint was made since. */
bool lane_has_before(const struct node *node);

/** The rates of the optimizer; false: it has none that could be changed. On the loop, while the
 * lane is free. */
bool lane_rates(const struct node *node, struct learner_rates *rates);
void lane_set_rates(struct node *node, struct learner_rates rates);
/** See learner.h. In the lane. */
MUST_USE enum rc lane_validate(struct node *node, const struct learner_model *model,
                               struct evaluation *evaluation, struct digest *part);

/* lane/answer.c: what the model says of samples, for others */
/** PROBE, of an observer or a neighbour: it is answered when there is time, or refused at once. */
void lane_answer_hear(struct node *node, struct peer_id from, const struct message_probe *probe);
/** Its link is gone. */
void lane_answer_forget(struct node *node, struct peer_id from);

/* lane/moments.c: the optimizer's buffers in rounds */
/** In the lane: all are zero, and of no update: Adam corrects its next steps as its first ones. */
MUST_USE enum rc lane_moments_begin_anew(struct node *node);
/** In the lane: what came of a round, all of them, is added. */
MUST_USE enum rc lane_moments_mixed(struct node *node, const float *difference);
/** In the lane, with --moments mask, once a round counts: zero where nothing of a value is left in
 *  `residual` (round_residual()). */
MUST_USE enum rc lane_moments_mask(struct node *node, const float *residual);
/** How many of them travel behind the model. */
size_t lane_moments_values(const struct node *node);
/** The optimizer they are of; NULL: none travel. */
const char *lane_moments_name(const struct node *node);

/* lane/tracking.c: what of the model is in rounds, and gradient tracking */
/** What a round exchanges: parameters and running statistics, and the tracker behind them. */
size_t lane_mixed_values(const struct node *node);
/** Where the learner keeps snapshots itself; else NULL. */
struct snapshot *lane_snapshot(const struct node *node);
/** In the lane. Where *count > 0, the first values are at *view and not in `out`; only if
 *  `may_view`. */
MUST_USE enum rc lane_plane_export(struct node *node, float *out, bool may_view, const float **view,
                                   size_t *count);
MUST_USE enum rc lane_plane_import(struct node *node, const float *difference);
/** On the loop, before export: the tracker begins anew if the exchange says so. */
void lane_tracking_hear(struct node *node);
/** After export: the norm of a chunk of a gradient, at most, since the one before. */
float lane_tracking_told(const struct node *node);

#endif
