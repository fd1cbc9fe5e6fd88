/*
 * The inside of a replica: what replica.c (its making and what others may ask of it),
 * replica_train.c (its steps), replica_answer.c (what others ask it), repeat/repeat.c (steps of
 * others, taken again) and replica_state.c (saving and resuming) share, and what learners that take
 * other steps build on: replica_lbfgs.c, replica_hogwild.c and replica_mutual.c have a replica as
 * their first member, its operations but for those they replace, and a `run` of their own. Nobody
 * else includes it.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_REPLICA_INTERNAL_H
#define GRAPEVINE_REPLICA_LEARNERS_REPLICA_INTERNAL_H

#include "kernels/backend.h"
#include "replica/data/dataset.h"
#include "replica/data/shard.h"
#include "replica/learners/replica.h"
#include "replica/learners/task.h"
#include "replica/learners/team.h"
#include "replica/model/profile.h"
#include "replica/optimizer/optimizer.h"
#include "replica/optimizer/schedule.h"

struct replica;

/* A batch of other samples beside a step's own, in the same gradient. */
struct replica_beside {
    enum rc (*fill)(void *context, struct batch *batch);
    const struct task_objective *objective;
    float weight, own_weight; /* of its mean loss, and of that of the step's own batches */
    void *context;
};

/* Up to `steps` steps: what they did is added to `done` and `total`. */
typedef enum rc (*replica_run)(struct replica *r, uint32_t steps, const atomic_bool *stop,
                               struct train_report *done, struct task_score *total);

/* Samples that steps are made of instead of the shard's next. */
struct replica_given {
    const struct samples *samples;
    const uint32_t *order; /* places in these, for all batches of the steps */
    size_t taken;
};

struct replica {
    struct learner learner; /* first: a learner is cast back to its replica */
    struct backend *backend;
    struct dataset *dataset;
    struct shard *shard;
    struct team *team;
    struct model *model; /* the team's */
    struct task task;
    const struct task_objective *objective; /* NULL: the task's own loss */
    const struct replica_beside *beside;    /* NULL: none; else `accumulated` is there */
    struct replica_given *given;            /* while steps are repeated; else NULL */
    struct optimizer optimizer;
    struct schedule schedule;
    char schedule_text[128];
    char data[256];
    double epochs_total;
    double clip;
    double rate_factor; /* of the learning rate, beside the schedule's */
    double ema;         /* 0: none */
    float *averaged;    /* the exponential mean; NULL without */
    uint64_t averages;  /* updates of it */
    uint32_t accumulate;
    uint64_t stream_seed;         /* of dropout, too */
    float *accumulated;           /* sum of a step's earlier gradients; NULL without accumulation */
    float *workspace;             /* the optimizer's, on the backend */
    float input_tail[INPUT_TAIL]; /* of SECTION_INPUT */
    float *statistics;            /* SECTION_BUFFERS before the step; NULL: there are none */
    bool has_schedule;            /* false: its end follows from the shard, once that is known */
    uint32_t batch;
    uint64_t step, updates, samples_seen;
    struct samples test;     /* the first of the test part, kept */
    struct samples held_out; /* see replica_options; loaded when first asked for */
    struct digest held_out_part;
    struct digest data_digest; /* of some of the data; see repeat/repeat.c */
    bool has_data_digest;
    uint32_t blocks_held;            /* of the data's; 0: none */
    struct batch next;               /* on the host */
    float *logits, *logits_gradient; /* [batch][classes], host; NULL where the backend is */
    struct model_profiler *profiler; /* NULL: not wanted */
    struct replica_device *device;   /* NULL: the backend's memory is the host's */
    replica_run run;                 /* how steps are taken */
};

/* Of each of the team's devices, beside its model. */
struct replica_device {
    float **workspaces;         /* the optimizer's; NULL: it needs none */
    float *kept[SECTION_COUNT]; /* the last good values, on the first device; NULL: none yet */
};

static inline struct replica *replica_of(struct learner *learner)
{
    return (struct replica *)learner;
}

/** The operations of a replica, also for learners that replace some of them. */
extern const struct learner_ops replica_ops;
/** A replica at the beginning of `bytes` of zeroed memory; its `destroy` frees them all. */
MUST_USE enum rc replica_make(size_t bytes, struct backend *backend,
                              const struct replica_options *options, struct replica **replica,
                              struct fault *why);
/** What a replica's model was made of. */
struct model_options replica_model_options(const struct replica *r,
                                           const struct replica_options *options);
/** Learners of their own, see replica_create(): steps that read the whole shard, and steps of
 *  threads without locks. RC_USAGE, RC_LIMIT: what does not go together, or is too large. */
MUST_USE enum rc replica_lbfgs_create(struct backend *backend,
                                      const struct replica_options *options,
                                      struct learner **learner, struct fault *why);
MUST_USE enum rc replica_hogwild_create(struct backend *backend,
                                        const struct replica_options *options,
                                        struct learner **learner, struct fault *why);
/** ...and what others learn of it are its answers. */
MUST_USE enum rc replica_mutual_create(struct backend *backend,
                                       const struct replica_options *options,
                                       struct learner **learner, struct fault *why);

/** Forward, loss and backward of the batch in `next`, and then `work` on the gradient plane. */
MUST_USE enum rc replica_pass(struct replica *r, team_work work, void *context,
                              struct task_score *score);
/** Everything that a step needs is there; the schedule's end, too. */
MUST_USE enum rc replica_make_ready(struct replica *r);
/** Steps that all threads of the team take together. One that is stopped on its way did not happen.
 */
MUST_USE enum rc replica_host_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                                    struct train_report *done, struct task_score *total);
/* replica_device.c: steps on devices whose memory is not the host's. */
MUST_USE enum rc replica_device_create(struct replica *r, struct fault *why);
void replica_device_destroy(struct replica *r);
/** The same on a device. */
MUST_USE enum rc replica_device_steps(struct replica *r, uint32_t steps, const atomic_bool *stop,
                                      struct train_report *done, struct task_score *total);
/** The mean gradient of the next step's batches, left in the gradient plane. */
MUST_USE enum rc replica_device_gradient(struct replica *r, struct task_score *score);
/** Loss and hits of the batch in `next`; of one head. */
MUST_USE enum rc replica_device_judge(struct replica *r, struct task_score *score);
/** A step from the gradient plane. */
MUST_USE enum rc replica_device_update(struct replica *r);
/** Forward and loss of the batch in `next`. */
MUST_USE enum rc replica_forward(struct replica *r, bool is_training, struct task_score *score);

/* replica_validate.c */
/** Loss and hits over `count` samples, batch by batch, in evaluation mode. */
MUST_USE enum rc replica_score(struct replica *r, const struct samples *samples, size_t count,
                               struct evaluation *evaluation);
MUST_USE enum rc replica_evaluate(struct learner *learner, uint64_t samples_max,
                                  struct evaluation *evaluation);
/** How many blocks are held out of this data; RC_USAGE: there are too few samples. */
MUST_USE enum rc replica_blocks_held(const struct dataset_info *info, uint32_t *blocks,
                                     struct fault *why);
struct learner_rates replica_rates(const struct learner *learner);
void replica_set_rates(struct learner *learner, const struct learner_rates *rates);
enum rc replica_validate(struct learner *learner, const struct learner_model *model,
                         struct evaluation *evaluation, struct digest *part);

/** The apply step for running statistics out of a difference of SECTION_MIXED. */
MUST_USE enum rc replica_mix_statistics(struct replica *r, const float *difference);

/* replica_answer.c: see learner.h */
void replica_answer_shape(const struct learner *learner, struct answer_shape *shape);
enum rc replica_load_samples(struct learner *learner, const uint32_t *numbers, size_t count,
                             struct samples *samples, struct digest *digest);
enum rc replica_answer(struct learner *learner, const struct samples *samples, size_t first,
                       size_t count, float *out);

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
