/*
 * training: a student's steps, told as they go, with its state kept on disk (student_state.h) every
 * half a minute and when it is stopped, so that the same training asked for again goes on from
 * there, to the same bits. Thread: the command's.
 */
#ifndef GRAPEVINE_DISTILL_TRAINING_H
#define GRAPEVINE_DISTILL_TRAINING_H

#include "base/fault.h"
#include "base/hash.h"
#include "base/rc.h"
#include "replica/learners/learner.h"

struct training {
    struct learner *student;
    uint64_t steps;         /* in all */
    const char *state_path; /* NULL: nothing is kept */
    struct digest question; /* of all that the steps hang on */
    /** The clock; NULL: the state is kept only when it is stopped, and at the end. */
    uint64_t (*now_ns)(void);
    bool (*is_stopped)(void *context); /* NULL: never */
    /** `done` of the steps are; the mean loss of those since the last call. */
    void (*on_steps)(void *context, uint64_t done, double loss);
    /** What is at `state_path` is of another training, and will be replaced. NULL: nobody cares. */
    void (*on_other)(void *context);
    void *context;
    uint64_t resumed; /* set: steps that an earlier try had done */
};

/** RC_CANCELLED: stopped, with its state kept. RC_NONFINITE: the loss ran away. RC_FORMAT and
 *  others: what is at `state_path` is no state, and stays as it is. */
MUST_USE enum rc training_run(struct training *training, struct fault *why);

#endif
