/*
 * optimizer: how a gradient changes the parameters: `sgd`, `momentum`, `nesterov`, `adagrad`,
 * `rmsprop`, `adam`, `adamw`, `lars`, `lamb`, `muon`, `lbfgs` with `name:key=value,...`. The
 * arithmetic is the backend's; here are the names, the defaults, the numbers of one step, and which
 * tensors a layer-wise method treats how. Any thread, one at a time where a backend is involved.
 */
#ifndef GRAPEVINE_REPLICA_OPTIMIZER_OPTIMIZER_H
#define GRAPEVINE_REPLICA_OPTIMIZER_OPTIMIZER_H

#include "base/fault.h"
#include "base/rc.h"
#include "kernels/backend.h"

struct schema;
struct tensor;

enum { OPTIMIZER_PARTS_MAX = 64 };

struct optimizer {
    enum update_kind kind;
    double lr;         /* base rate, > 0; the schedule scales it */
    double beta;       /* momentum; the first of adam, adamw and lamb */
    double beta2;      /* the second of adam, adamw, lamb and muon's adamw; rmsprop's only one */
    double epsilon;    /* not muon's own, that of its adamw */
    double decay;      /* wd: decoupled for adamw, lamb and muon, otherwise part of the gradient */
    double trust;      /* lars: the coefficient of a layer's ratio */
    double adamw_lr;   /* muon: for what is not a hidden matrix; scaled by the schedule, too */
    double adamw_beta; /* muon: the first of that adamw */
    double history;    /* lbfgs: pairs it remembers */
    double tries;      /* lbfgs: evaluations a step may take */
};

/* Not an update of one gradient but a method of its own (replica/optimizer/lbfgs.h), which reads
 * all of the data for each step: kept in `kind` behind the updates, and none of the functions below
 * is for it but optimizer_parse(), optimizer_name() and optimizer_planes(). */
enum { OPTIMIZER_LBFGS = UPDATE_COUNT, OPTIMIZER_COUNT };

/* Where one step happens; all of it on the backend. */
struct optimizer_step {
    const float *gradient;
    float *moments;   /* optimizer_planes() planes */
    float *values;    /* the parameters */
    float *workspace; /* optimizer_workspace() values for each part, of any contents */
    const struct parameter_copies *copies; /* of the parameters, written as well; NULL: none */
    double factor;                         /* of the base rate: the schedule's, in [0, 1] */
    uint64_t count;                        /* of updates with this one */
};

/* One of `count` shares of a step, which may be taken side by side: values [begin, end) where each
 * value is for itself, otherwise a fixed choice of tensors. */
struct optimizer_part {
    struct backend *backend;
    uint32_t number, count;
    size_t begin, end;
};

/** RC_PARSE with the column. */
MUST_USE enum rc optimizer_parse(const char *text, struct optimizer *optimizer, struct fault *why);
/**
 * The rate of `text`, chosen for steps on `usual` samples, for steps on `samples`. A step along the
 * gradient (sgd, momentum, nesterov): in proportion below (Goyal et al. 2017, arXiv:1706.02677), so
 * that what a sample does to the model, and the noise of its path, stay what they are; by the root
 * above (Krizhevsky 2014, arXiv:1404.5997), as proportion without a warm-up is too much there. Who
 * divides by the size of its gradients takes steps as long as ever: as it is.
 */
double optimizer_usual_rate(const char *text, uint64_t samples, uint64_t usual);
const char *optimizer_name(enum update_kind kind);
/** Moment planes of the parameters' size that it keeps: 0, 1 or 2. */
uint32_t optimizer_planes(enum update_kind kind);
bool optimizer_is_full_batch(const struct optimizer *optimizer);
/** Whether steps are taken tensor by tensor, so that parts need the whole gradient. */
bool optimizer_is_layerwise(const struct optimizer *optimizer);
/** Scratch values that a part of a step on this schema needs; 0 for most. */
size_t optimizer_workspace(const struct optimizer *optimizer, const struct schema *schema);
/** One step on all parameters of the schema. Errors  RC_DEVICE. */
MUST_USE enum rc optimizer_step(const struct optimizer *optimizer, struct backend *backend,
                                const struct schema *schema, const struct optimizer_step *step);
/** A part of one. */
MUST_USE enum rc optimizer_step_part(const struct optimizer *optimizer, const struct schema *schema,
                                     const struct optimizer_step *step,
                                     const struct optimizer_part *part);
/** The update number `count` (from 1) at `rate`, as a matrix gets it. */
struct update optimizer_update(const struct optimizer *optimizer, double rate, uint64_t count);
/** Scale the gradient plane down to the norm `clip`, if it is longer (Pascanu, Mikolov, Bengio
 *  2013, arXiv:1211.5063). `clip` 0: do nothing. Errors  RC_DEVICE. */
MUST_USE enum rc optimizer_clip(struct backend *backend, double clip, float *gradient, size_t n);
/** Moments [optimizer_planes() * n] that came from elsewhere, or through a lossy codec: squares
 * below zero become zero, and where a method divides by their root, no mean of gradients stays that
 * is larger than those squares can belong to. What this method itself made is not changed. */
void optimizer_bound_moments(const struct optimizer *optimizer, float *moments, size_t n);
/** Whether Muon makes this tensor's steps orthogonal: matrices, filters flattened to one, but no
 *  embedding and not the output layer, which is the last matrix. */
bool optimizer_is_hidden_matrix(const struct schema *schema, const struct tensor *tensor);

#endif
