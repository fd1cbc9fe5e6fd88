/*
 * hogwild: several threads of one peer take steps of plain SGD on the same parameters without
 * locks, each with batches of its own (Niu, Recht, Re, Wright 2011, arXiv:1106.5730). A thread
 * copies the shared values, computes a gradient there, and applies x -= rate g value by value;
 * what two write at the same time may be lost, never torn. One thread is sequential SGD to the bit.
 * Running statistics of batch normalisation are each thread's own; those of the first are kept.
 * Thread: the training lane's; the others are its own.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_HOGWILD_H
#define GRAPEVINE_REPLICA_LEARNERS_HOGWILD_H

#include "replica/data/share.h"
#include "replica/model/profile.h"
#include "replica/optimizer/optimizer.h"
#include "replica/optimizer/schedule.h"

#include <stdatomic.h>

struct hogwild;

struct hogwild_options {
    struct model *leader;              /* the first thread's; its parameters are the result */
    const struct model_options *model; /* as it was made */
    const struct dataset_info *info;
    uint32_t threads; /* 1 to WORKERS_MAX */
};

/* One stretch of steps. */
struct hogwild_run {
    struct share *share; /* where all take their batches, one after the other */
    const struct optimizer *optimizer;
    const struct schedule *schedule;
    double rate_factor;              /* beside the schedule's */
    double clip;                     /* each gradient by itself; 0: not */
    uint64_t stream;                 /* of dropout */
    uint64_t step;                   /* the shared counter before */
    uint32_t steps;                  /* of all threads together */
    const atomic_bool *stop;         /* no new step once it is raised; NULL: nobody can */
    struct model_profiler *profiler; /* of the first thread; NULL: not wanted */
};

struct hogwild_report {
    uint32_t steps; /* taken */
    double loss_sum;
    uint64_t hits, count;
};

/** Keeps what the options point to, but for themselves and `model`. RC_UNSUPPORTED, RC_NOMEM, what
 *  model_create() returns. */
MUST_USE enum rc hogwild_create(const struct hogwild_options *options, struct hogwild **hogwild,
                                struct fault *why);
void hogwild_destroy(struct hogwild *hogwild);
/** A barrier: the leader's parameters are those of all steps when it returns. RC_NONFINITE: some
 *  loss was not finite; the others have then stopped, too. */
MUST_USE enum rc hogwild_train(struct hogwild *hogwild, const struct hogwild_run *run,
                               struct hogwild_report *report);

#endif
