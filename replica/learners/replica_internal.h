/*
 * The inside of a replica: what replica.c (its making and what others may ask of it),
 * replica_train.c (its steps) and replica_state.c (saving and resuming) share. Nobody else
 * includes it.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_REPLICA_INTERNAL_H
#define GRAPEVINE_REPLICA_LEARNERS_REPLICA_INTERNAL_H

#include "kernels/backend.h"
#include "replica/data/dataset.h"
#include "replica/data/share.h"
#include "replica/learners/hogwild.h"
#include "replica/learners/replica.h"
#include "replica/learners/task.h"
#include "replica/learners/team.h"
#include "replica/model/profile.h"
#include "replica/optimizer/lbfgs.h"
#include "replica/optimizer/optimizer.h"
#include "replica/optimizer/schedule.h"

struct replica {
    struct learner learner; /* first: a learner is cast back to its replica */
    struct backend *backend;
    struct dataset *dataset;
    struct share *share;
    struct team *team;
    struct model *model; /* the team's */
    struct task task;
    struct optimizer optimizer;
    struct schedule schedule;
    char schedule_text[128];
    char data[256];
    double epochs_total;
    double clip;
    double rate_factor; /* of the learning rate, beside the schedule's */
    uint32_t accumulate;
    uint64_t stream_seed; /* of dropout, too */
    float *accumulated;   /* sum of a step's earlier gradients; NULL without accumulation */
    float *workspace;     /* the optimizer's, on the backend */
    float *statistics;    /* SECTION_BUFFERS before the step; NULL: there are none */
    bool has_schedule;    /* false: its end follows from the share, once that is known */
    uint32_t batch;
    uint64_t step, updates, samples_seen;
    struct samples test;             /* the first of the test part, kept */
    struct batch next;               /* on the host */
    float *logits, *logits_gradient; /* [batch][classes], host */
    struct model_profiler *profiler; /* NULL: not wanted */
    struct hogwild *hogwild;         /* NULL: all threads work on one batch */
    struct lbfgs *lbfgs;             /* NULL: steps are updates of a batch's gradient */
    struct replica_device *device;   /* NULL: the backend's memory is the host's */
};

/* Of each of the team's devices, beside its model. */
struct replica_device {
    float **accumulated;        /* sum of a step's earlier gradients; NULL without accumulation */
    float **workspaces;         /* the optimizer's; NULL: it needs none */
    float *kept[SECTION_COUNT]; /* the last good values, on the first device; NULL: none yet */
};

static inline struct replica *replica_of(struct learner *learner)
{
    return (struct replica *)learner;
}

/** Everything that a step needs is there; the schedule's end, too. */
MUST_USE enum rc replica_make_ready(struct replica *r);
/** Forward, loss and backward of the batch in `next`, and then `work` on the gradient plane. */
MUST_USE enum rc replica_pass(struct replica *r, team_work work, void *context,
                              struct task_score *score);
/** Steps that read the whole share (lbfgs): replica_full.c. */
MUST_USE enum rc replica_run_full(struct replica *r, uint32_t steps, const atomic_bool *stop,
                                  struct train_report *done, struct task_score *total);
/** Prepare for them. RC_USAGE, RC_LIMIT: what does not go together, or is too large. */
MUST_USE enum rc replica_full_create(struct replica *r, const struct replica_options *options,
                                     struct fault *why);
/* replica_device.c: steps on devices whose memory is not the host's. */
MUST_USE enum rc replica_device_create(struct replica *r, struct fault *why);
void replica_device_destroy(struct replica *r);
/** See run_steps() in replica_train.c. */
MUST_USE enum rc replica_device_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                                      struct train_report *done, struct task_score *total);
/** The mean gradient of the next step's batches, left in the gradient plane. */
MUST_USE enum rc replica_device_gradient(struct replica *r, struct task_score *score);
/** A step from the gradient plane. */
MUST_USE enum rc replica_device_update(struct replica *r);
/** Logits of the batch in `next`. */
MUST_USE enum rc replica_forward(struct replica *r, bool is_training);

/** The apply step for running statistics out of a difference of SECTION_MIXED. */
MUST_USE enum rc replica_mix_statistics(struct replica *r, const float *difference);

/* See learner.h. */
enum rc replica_snapshot_create(struct learner *learner, enum codec_format format,
                                size_t chunk_values, struct snapshot **snapshot);
enum rc replica_snapshot_take(struct learner *learner, struct snapshot *snapshot);
enum rc replica_snapshot_apply(struct learner *learner, struct snapshot *snapshot,
                               const float *difference);
enum rc replica_keep(struct learner *learner);
enum rc replica_restore(struct learner *learner);
const char *replica_why(const struct learner *learner);
enum rc replica_train(struct learner *learner, uint32_t steps, const atomic_bool *stop,
                      struct train_report *report);
enum rc replica_gradient(struct learner *learner, float *out, struct train_report *report);
enum rc replica_step(struct learner *learner, const float *gradient);
uint64_t replica_steps_of(const struct learner *learner, double epochs);
enum rc replica_assign(struct learner *learner, enum section section, const float *values,
                       size_t count);
enum rc replica_save(struct learner *learner, struct tensor_file *file);
enum rc replica_load(struct learner *learner, const struct tensor_file *file, struct fault *why);

#endif
