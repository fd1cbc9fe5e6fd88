/*
 * mutual: what a learner keeps that is taught by what its neighbours answer, and teaches them so.
 * Rounds then mix no parameters: a member's vector is what its model answers to a probe set that
 * all have in common, and the mean of all answers is what each learns from beside its own data,
 * until the next round. So members' models may be of any form.
 *
 *   codistillation  at each step the loss of a batch of the probe set against the mean answers is
 *                   added, `weight` times (Anil et al. 2018, arXiv:1804.03235).
 *   relabelling     for some steps after each round the mean answers are labels beside the true
 *                   ones, of which they have the share `weight` (EC-DNN: Sun et al. 2016,
 *                   arXiv:1606.00575).
 *
 * The mean is that of all members, this one included, where the papers leave oneself out: what one
 * said oneself pulls nowhere but back, so with n members it is as if `weight` were (n - 1) / n of
 * what it is. But all members have the same targets, to be checked and handed on, and no division
 * makes of a round in which somebody was clipped or missing what is no distribution.
 *
 * Whatever comes from others is brought into range before it is used: rows are distributions.
 * Pure; the training lane's.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_MUTUAL_H
#define GRAPEVINE_REPLICA_LEARNERS_MUTUAL_H

#include "base/fault.h"
#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tensor_file;

struct mutual_options {
    bool relabels;
    double weight;           /* > 0: see above; relabelling: at most 1 */
    uint64_t burn_steps;     /* nothing is learned from others before this step */
    uint64_t compress_steps; /* relabelling: so many steps after a round; 0: all */
    uint64_t every_steps;    /* from round to round; 0: not known */
    uint64_t samples;        /* that are asked about; 0: see replica_mutual.c */
    double share;            /* of the training data, where `samples` is 0; 0: not said */
    const char *probe;       /* the data asked about; NULL: the training data */
};

struct mutual {
    struct mutual_options options;
    size_t values;    /* of all answers */
    size_t outputs;   /* of each distribution; 0: answers are no distributions */
    float *own;       /* as last told */
    float *targets;   /* what all said; zeros: nothing yet */
    bool has_targets; /* they are not zeros */
    bool has_own;
    uint64_t heard_step; /* when targets came */
};

/** All zero. RC_NOMEM; `mutual` is then empty, and fine to deinit. */
MUST_USE enum rc mutual_init(struct mutual *mutual, const struct mutual_options *options,
                             size_t values, size_t outputs);
void mutual_deinit(struct mutual *mutual);
/** A round was applied: what all said is what we told and this difference. */
void mutual_hear(struct mutual *mutual, const float *difference, uint64_t step);
/** What all said, from a donor or a checkpoint. */
void mutual_take(struct mutual *mutual, const float *targets, uint64_t step);
/** `weight`, or 0 where nothing is to be learned from others in this step. */
double mutual_weight(const struct mutual *mutual, uint64_t step);
/** All but the targets. */
MUST_USE enum rc mutual_save(const struct mutual *mutual, struct tensor_file *file);
MUST_USE enum rc mutual_load(struct mutual *mutual, const struct tensor_file *file,
                             struct fault *why);

#endif
