/*
 * replica: the real learner: model, optimizer, schedule, data shard, random streams.
 * One peer and one seed give the same model to the bit each time.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_REPLICA_H
#define GRAPEVINE_REPLICA_LEARNERS_REPLICA_H

#include "replica/data/prefetch.h"
#include "replica/formats/model_file.h"
#include "replica/learners/learner.h"
#include "replica/model/profile.h"

struct backend;
struct dataset_info;
struct dataset_options;
struct mutual_options;
struct samples;
struct task_objective;

struct replica_options {
    const char *model;                      /* spec or preset */
    const char *data;                       /* --data spec */
    const char *tokenizer;                  /* of a text; NULL: its bytes are the tokens */
    const char *labels;                     /* of a table, see dataset_options; NULL: the file's */
    const char *labels_of;                  /* likewise */
    const struct dataset_options *dataset;  /* how it is opened; NULL: as `model`, `seed` want it */
    const struct task_objective *objective; /* kept; NULL: the task's own loss (task.h) */
    const char *heads_loss; /* of a model with heads: see replica/model/loss.h; NULL: mean */
    uint32_t trunk; /* of so many layers with weights SECTION_MIXED is, from the input on, and what
                       lies behind them is this peer's own; 0: all */
    uint64_t samples_max;  /* of the shard, see shard_options; 0: all */
    bool holds_out;        /* some training samples are in no shard, and are for validate() alone */
    const char *optimizer; /* `momentum:lr=0.02,beta=0.9`; NULL or "": the preset's default */
    const char *schedule;  /* `constant`, `cosine:warmup=0.05`; NULL: constant */
    double clip;           /* longest gradient, by its norm; 0: as long as it is */
    uint32_t accumulate;   /* batches whose mean gradient makes one step; 0: 1 */
    double ema;            /* > 0: keep an exponential mean of the parameters, see replica_ema() */
    double lr;             /* > 0 overrides the optimizer's lr= */
    uint64_t steps_total;  /* for schedules with an end; 0: not known */
    double
        epochs_total; /* the same in passes over the shard, where steps_total is 0; 0: not known */
    uint32_t batch;   /* 0: the preset's default (64) */
    const char *shard, *shard_of;
    const char *augment;                 /* `crop:4,flip`; NULL: images as they are */
    enum prefetch_mode prefetch;         /* make batches ahead of time, on a thread */
    const struct mutual_options *mutual; /* rounds mix answers: replica_mutual.c; NULL: models */
    uint64_t seed;                       /* initial weights, block permutation */
    uint64_t model_seed;  /* of initial weights, where they are to be this peer's own; or 0 */
    uint64_t stream_seed; /* data order: (seed, peer id) mixed by the caller */
    uint32_t threads;
    uint32_t hogwild;             /* threads with batches of their own (replica_hogwild.c), or 0 */
    struct profile_clock profile; /* to see where the time goes; {NULL}: not wanted */
};

/** Keeps `backend`. On failure `why` says what to change. */
MUST_USE enum rc replica_create(struct backend *backend, const struct replica_options *options,
                                struct learner **learner, struct fault *why);
/** The model behind a learner made by replica_create(), for saving and evaluating it. */
struct model *replica_model(struct learner *learner);
/** Replace PARAMETERS or BUFFERS of that model outright, whatever rounds mix: it begins with them.
 */
MUST_USE enum rc replica_begin_with(struct learner *learner, enum section section,
                                    const float *values, size_t count);
/** The data behind it, as long as it lives. */
const struct dataset_info *replica_data(const struct learner *learner);
/** Its training samples, loaded by now, as they are until the shard changes. */
MUST_USE enum rc replica_samples(struct learner *learner, const struct samples **samples,
                                 struct fault *why);
/** Where the time went, see model_profiler_rows(): NULL without options.profile or a step. */
struct json *replica_profile(struct learner *learner, uint64_t wall_ns, const char *event);
/** The exponential mean of the parameters as they were after each step: mean = b mean + (1 - b) x,
 *  b = min(options.ema, (1 + t) / (10 + t)) at update t, the first of which copies (Polyak,
 *  Juditsky 1992; Tarvainen, Valpola 2017, arXiv:1703.01780; the warm-up is TensorFlow's). Rounds
 * change x alone: the next step goes on from what they made of it. It begins anew where parameters
 * are replaced outright: who joins, takes another model or goes back to the last good one. In host
 * memory, the learner's; NULL: none is wanted, or no step was made. */
const float *replica_ema(struct learner *learner);
/** A card that describes the replica as it is now. */
void replica_card(struct learner *learner, struct model_card *card);

#endif
