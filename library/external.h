/*
 * external: a model that is trained by a program which is not ours (include/grapevine.h): a learner
 * whose values lie in somebody else's memory and change by somebody else's optimizer. The training
 * lane asks, as of any learner, and waits; the trainer's thread looks between two of its steps what
 * is asked, does it, and says so. So both are never at the values at the same time, and no copy of
 * them is kept here.
 *
 *   training lane:   train(n) ......waits......  -> report      export ......waits...... -> values
 *   trainer:               step step ... step (n, or `stop`)          work, copies, done
 *
 * Beside quadratic and replica it lacks what needs the model's own function: gradients, answers,
 * evaluation. Who chooses a method has to know.
 */
#ifndef GRAPEVINE_LIBRARY_EXTERNAL_H
#define GRAPEVINE_LIBRARY_EXTERNAL_H

#include "replica/learners/learner.h"

enum external_event {
    EXTERNAL_STEP,       /* a step is due */
    EXTERNAL_WAITS,      /* nothing is, before the bell rings */
    EXTERNAL_SNAPSHOT,   /* values are to be copied out */
    EXTERNAL_DIFFERENCE, /* a difference is to be added */
    EXTERNAL_REPLACE,    /* values are to be replaced */
    EXTERNAL_ENDED,      /* nobody asks any more */
    EXTERNAL_STATE       /* what external_pause() was for is there, or cannot be had */
};

/* What is to be done with the values. Pointers of what is not concerned are NULL. */
struct external_work {
    enum external_event event;
    float *parameters_out, *buffers_out;            /* SNAPSHOT */
    const float *parameters, *buffers, *difference; /* REPLACE; DIFFERENCE: of SECTION_MIXED */
};

/** Takes over `schema`, also on failure. RC_IO, RC_NOMEM. Until external_start() nobody waits for
 *  the trainer: values that are assigned are kept for it. */
MUST_USE enum rc external_create(struct schema *schema, struct learner **learner,
                                 struct fault *why);
/** From here on the lane waits for the trainer. */
void external_start(struct learner *learner);

/* ---- the trainer's thread ---- */

/** A descriptor that can be read when external_next() may say something new; it clears it. */
int external_bell(const struct learner *learner);
enum external_event external_next(struct learner *learner);
/** What the last external_next() was about; NULL: no work. */
const struct external_work *external_work(const struct learner *learner);
/** It is done, or failed. */
void external_done(struct learner *learner, enum rc rc);
/** A step was taken. False: none was due. Nearly free, but where the lane has waited for it. */
bool external_step(struct learner *learner, uint64_t samples, double loss);

/** Of the steps taken: those of the last series, and their `samples`, where the loop only knows of
 *  `known` steps of the model, as it is told of a series when that ends. */
uint32_t external_untold(const struct learner *learner, uint64_t known, uint64_t *samples);
/** Steps that are asked for end here, and none is asked for before external_resume(). */
void external_pause(struct learner *learner);
/** Goes on: EXTERNAL_STATE comes next, until external_state_taken(). Any thread. */
void external_resume(struct learner *learner);
void external_state_taken(struct learner *learner);
/** EXTERNAL_ENDED is due, or nothing but what is there already comes before it. */
bool external_is_over(struct learner *learner);

/* ---- others ---- */

/** The peer has ended: the trainer hears of it. Any thread. */
void external_end(struct learner *learner);
/** The trainer is gone: whoever waits for it goes on with RC_CANCELLED. Any thread. */
void external_abandon(struct learner *learner);

#endif
