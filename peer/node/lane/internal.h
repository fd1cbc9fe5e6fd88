/* lane_internal: what the files of the training lane share. Nobody else includes it. */
#ifndef GRAPEVINE_PEER_NODE_LANE_INTERNAL_H
#define GRAPEVINE_PEER_NODE_LANE_INTERNAL_H

#include "distill/predictions.h"
#include "peer/node/internal.h"
#include "replica/data/samples.h"

/* Pulls between rounds. */
struct lane_pulls {
    uint64_t seen_ok; /* rounds, as of the last look */
    uint64_t left;    /* that follow the last round */
    uint64_t step;    /* of the last one, or of the round */
    float *own;       /* [mixed]: scratch, made with the first */
};

/* Of gradient tracking: made with the first step. */
struct lane_tracking {
    float *tracker, *gradient, *last; /* [values]: y, scratch, the gradient of the last step */
    float largest, told; /* norm of a chunk of a gradient, since the latest snapshot and at it */
    bool has_tracker;
    bool begins_anew; /* at the snapshot that is due */
    uint64_t restarts;
};

/* Of quasi-global momentum: made with the first step. */
struct lane_quasi_global {
    float *momentum, *before, *scratch; /* [values]: m, and x as the last round left it */
    uint64_t steps;                     /* since then */
    bool has_before;
};

/* How far it is to the goal, see left.c. */
struct lane_left {
    uint64_t mark_ns, mark_steps; /* own steps then */
    uint64_t wall_ns;             /* smoothed, from one step to the next; 0: not known */
};

enum { LANE_ASKERS_MAX = 4 };

/* What others ask the model about, one question an asker, oldest first; see answer.c. */
struct lane_answering {
    struct lane_question {
        struct peer_id from;
        struct message_probe probe;
    } asked[LANE_ASKERS_MAX];
    uint32_t count;
    bool is_running;           /* the job, which has all that follows */
    struct lane_question now;  /* what it is about */
    bool is_loading;           /* it loads the window; else it answers */
    struct samples samples;    /* of the window that was loaded last; empty: none is */
    struct message_probe held; /* which that is */
    struct digest digest;      /* of these samples */
    uint64_t loaded_ns, used_ns;
    struct predictions_shape shape;
    float *values;
    uint8_t *bytes;
    size_t answered;  /* samples */
    uint64_t each_ns; /* that one takes, smoothed; 0: not known */
    uint64_t full_ns; /* of the ration of training time: gossip/flow/ration.h */
};

struct lane_state {
    struct learner *learner;
    struct border_job job;
    bool is_busy; /* with that */
    atomic_bool must_stop;
    uint64_t paced_ns;     /* until then the last steps last, as --step-time says */
    const char *waits_for; /* in a trace, since waits_ns; NULL: for nothing */
    uint64_t waits_ns;

    /* train.c, rate.c */
    uint64_t resumed_steps; /* own_steps of the checkpoint; 0: none */
    struct lane_left left;
    double rate_factor, weight_factor; /* of the learning rate */

    /* shard.c */
    size_t shard_among; /* members; 0: there is no shard yet */
    uint64_t members_changes, members_changed_ns;
    uint64_t reshard_since_ns; /* when shards were no longer those of the members; 0: they are */

    /* keep.c */
    float *kept;  /* for rolling back: parameters, then buffers */
    float *spare; /* of the same size, or NULL */
    bool has_kept, wants_keep, wants_rollback;
    uint64_t kept_ns;
    uint32_t rollbacks;
    double moved; /* norm: parameters over the last round; 0: not known */

    /* evaluate.c, checkpoint.c */
    bool has_final, has_last_checkpoint;
    uint64_t checkpoint_due_ns;
    uint32_t checkpoint_failures;
    enum rc checkpoint_told; /* what the last one failed with; RC_OK: it did not */
    bool wants_state;        /* node_ask_state(); no step is taken meanwhile */
    bool has_before;         /* a model given up is on disk, and no checkpoint was made since */

    /* tracking.c, quasi_global.c, pull.c */
    struct snapshot *snapshot; /* NULL: the learner's memory is the host's */
    struct lane_tracking tracking;
    struct lane_quasi_global global;
    struct lane_pulls pulls;

    struct lane_answering answering; /* answer.c */
};

/* answer.c */
/** When a question may be answered; UINT64_MAX: none waits. */
uint64_t lane_answer_next_ns(const struct node *node);
void lane_answer_deinit(struct node *node);

/* evaluate.c */
/** When the next report is due by itself. */
uint64_t lane_report_next_ns(const struct node *node);

/* pull.c */
/** Steps until the next one, UINT64_MAX: none is to come before the next round. */
uint64_t lane_pull_steps(const struct node *node);

/* left.c */
/** Steps were taken. */
void lane_left_stepped(struct node *node);

/* tracking.c: in the lane */
/** The model was replaced. */
void lane_tracking_reset(struct node *node);
/** See learner.h; the same where steps go along nothing but their gradients. */
MUST_USE enum rc lane_tracking_train(struct node *node, uint32_t steps,
                                     struct train_report *report);

/* quasi_global.c: in the lane */
/** One step along the momentum and a gradient. */
MUST_USE enum rc lane_quasi_global_step(struct node *node, struct train_report *report);
/** A round has moved the model. */
MUST_USE enum rc lane_quasi_global_mixed(struct node *node);
/** It begins anew. */
void lane_quasi_global_reset(struct node *node);
void lane_quasi_global_deinit(struct lane_quasi_global *global);

/* rate.c */
/** The learning rate of the next `steps` steps, by who averages. */
void lane_scale_rate(struct node *node, uint32_t steps);

#endif
