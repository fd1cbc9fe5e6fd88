/*
 * lbfgs: the limited-memory method of Broyden, Fletcher, Goldfarb and Shanno, for a function of
 * float32 values whose loss and gradient someone else computes (Nocedal 1980; Nocedal, Wright,
 * Numerical Optimization, 2nd ed. 2006, algorithms 7.4 and 7.5), with a line search for the strong
 * Wolfe conditions. Pure but for that someone; host memory; any thread, one at a time.
 */
#ifndef GRAPEVINE_REPLICA_OPTIMIZER_LBFGS_H
#define GRAPEVINE_REPLICA_OPTIMIZER_LBFGS_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lbfgs;
struct tensor_file;

enum {
    LBFGS_HISTORY_MAX = 100,
    LBFGS_TRIES_MAX = 100,
    LBFGS_VALUES_MAX = 1 << 28 /* of its memory in all: 1 GiB */
};

struct lbfgs_options {
    uint32_t history; /* pairs of steps and changes of the gradient it remembers */
    uint32_t tries;   /* evaluations a line search may take */
};

/* What is minimised, and where. */
struct lbfgs_problem {
    float *values;         /* [count]; moved */
    const float *gradient; /* [count]; written by evaluate() */
    /** Loss and gradient at the values as they are, a pure function of them. RC_NONFINITE: too far
     *  off. Other errors end the step. */
    enum rc (*evaluate)(void *context, double *loss);
    void *context;
};

struct lbfgs_report {
    double before, after; /* loss */
    uint32_t evaluations;
    bool has_moved; /* false: no lower point was found, to the precision of the loss */
};

/** RC_LIMIT: history x count is more than LBFGS_VALUES_MAX allows; RC_NOMEM. */
MUST_USE enum rc lbfgs_create(const struct lbfgs_options *options, size_t count,
                              struct lbfgs **lbfgs, struct fault *why);
void lbfgs_destroy(struct lbfgs *lbfgs);
/** One step; `rate` scales the length tried first. The loss never rises. The values are those of
 *  the best point, also where the search was cut short. Errors  those of evaluate(); the values are
 *  then unspecified. */
MUST_USE enum rc lbfgs_step(struct lbfgs *lbfgs, const struct lbfgs_problem *problem, double rate,
                            struct lbfgs_report *report);
/** The values were moved by somebody else: loss and gradient are to be computed again. */
void lbfgs_moved(struct lbfgs *lbfgs);
/** The values were replaced: nothing that was learned of the function counts any more. */
void lbfgs_forget(struct lbfgs *lbfgs);
/** All of its state as entries of `file`, values borrowed. */
MUST_USE enum rc lbfgs_save(const struct lbfgs *lbfgs, struct tensor_file *file);
/** Take over a state that was saved with the same options and count. On error nothing changes. */
MUST_USE enum rc lbfgs_load(struct lbfgs *lbfgs, const struct tensor_file *file, struct fault *why);

#endif
