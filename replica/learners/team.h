/*
 * team: one model computed by several threads: each has a part of the batch, a copy of the stages
 * with buffers of its own, and one processor; parameters and buffers are shared. Batch statistics
 * are those of the whole batch. Splitting the batch keeps every processor busy all the time, where
 * splitting each operation leaves what is small or sequential to one of them. With one thread it is
 * nothing but the model. Bits depend on the number of threads, as the order of sums does.
 * Thread: the training lane's; the others are the team's own.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_TEAM_H
#define GRAPEVINE_REPLICA_LEARNERS_TEAM_H

#include "replica/model/model.h"

#include <stddef.h>

struct team;

/* One thread's share of work on flat vectors: values [begin, end). */
struct team_part {
    struct backend *backend; /* the thread's */
    uint32_t lane, lanes;    /* which thread of how many */
    size_t begin, end;       /* in memory, parts begin at multiples of 16 values; may be empty */
};
typedef enum rc (*team_work)(void *context, const struct team_part *part);

/** As model_create(), with backend->threads threads (no more than samples, or ghost batches of
 *  `bn:N`, in a batch), of which each will use one; backend->threads is 1 afterwards. */
MUST_USE enum rc team_create(struct backend *backend, const struct model_options *options,
                             struct team **team, struct fault *why);
/* A team for passes forward alone, around a model that is there. */
struct team_around {
    struct model *model;     /* the team's from now on, also on an error */
    struct backend *backend; /* that it computes on, where the team's, too; NULL: it is borrowed */
    uint32_t threads;        /* others have a model each with the values of this one */
};
/** Fill in all but the model, for the threads of `backend`, and return what the model is to be made
 *  on: a sibling for one thread, or `backend` itself where that is all. NULL: out of memory. */
struct backend *team_around_begin(struct backend *backend, struct team_around *around);
/** Each thread takes up to model_batch_max() samples. RC_NOMEM. */
MUST_USE enum rc team_around(const struct team_around *around, struct team **team,
                             struct fault *why);
void team_destroy(struct team *team);
/** The model whose planes are the team's. */
struct model *team_model(const struct team *team);
uint32_t team_threads(const struct team *team);
/** What the last failure of a device was, for people; "" if there was none. */
const char *team_why(const struct team *team);
/** See model_set_stop(): either the whole pass is done, its work included, or nothing is. */
void team_set_stop(struct team *team, const atomic_bool *stop);
/** See model_set_stream(). */
void team_set_stream(struct team *team, uint64_t stream, uint64_t passes);
/** See model_forward(). */
MUST_USE enum rc team_forward(struct team *team, const float *input, uint32_t batch,
                              bool is_training, float *logits);
/* A thread's part of what a pass of the team found: of samples [first, first + samples), in
 * training all heads. */
struct team_outputs {
    uint32_t lane, first, samples;
    const float *logits;
    float *gradient; /* the place of d(loss)/d(logits), which may be the logits' own; NULL: none */
};
typedef enum rc (*team_loss)(void *context, const struct team_outputs *outputs);
struct team_pass {
    const float *input;
    uint32_t batch;
    bool is_training;
    float *logits, *gradient; /* of the batch; NULL where the backend's memory is the host's */
    team_loss loss;           /* by every thread that has samples */
    void *context;
};
/** Forward and loss: after it team_backward() needs no gradient but that of `gradient`. */
MUST_USE enum rc team_judge(struct team *team, const struct team_pass *pass);
/** work(context, part) by every thread, each for its part of `count` values; the first error in the
 *  order of threads. */
MUST_USE enum rc team_each(struct team *team, size_t count, team_work work, void *context);
/** model_backward(), then team_each() with the gradient plane, whose parts still lie in the caches,
 *  unless a thread failed. `work` NULL: none. */
MUST_USE enum rc team_backward(struct team *team, const float *logits_gradient, team_work work,
                               void *context);
/* A thread, its device and its model. Where devices are apart (backend->is_apart), each model has
 * planes of its own, which equal steps keep equal. */
struct team_lane {
    struct backend *backend;
    struct model *model;
    uint32_t number, lanes;
    uint32_t first, samples; /* its part of the batch; may have none */
};
typedef enum rc (*team_lane_work)(void *context, const struct team_lane *lane);
/** work(context, lane) by every thread, on its part of `batch` samples; the first error. */
MUST_USE enum rc team_run(struct team *team, uint32_t batch, team_lane_work work, void *context);
/** Where devices are apart, a section of the team's model to all others. */
MUST_USE enum rc team_spread(struct team *team, enum section section);
/** Inside of such work: values[i] becomes the sum over all threads. Every thread calls it, equally
 *  often, and none goes on before all have come. */
void team_sum(struct team *team, uint32_t lane, double *values, size_t count);

#endif
