/*
 * outputs: what a model says about samples in memory: batches are normalised as the model's card
 * says, run forward in evaluation mode, and their logits handed on. Also the score that a test part
 * gives them: of classes, of the next token at each step of a text, or of real values.
 */
#ifndef GRAPEVINE_DISTILL_OUTPUTS_H
#define GRAPEVINE_DISTILL_OUTPUTS_H

#include "base/rc.h"
#include "replica/data/dataset.h"
#include "replica/learners/task.h"
#include "replica/model/model.h"

struct backend;
struct workers;

/* Samples and rows of logits of a forward pass when nothing is trained. */
enum { OUTPUTS_BATCH = 256, OUTPUTS_ROWS = 2048 };

/** Samples of such a pass: as many as OUTPUTS_BATCH, fewer of long sequences. */
uint32_t outputs_batch(const struct dataset_info *info);
/** Predictions that the data asks for of each sample. */
uint32_t outputs_rows(const struct dataset_info *info);

struct score {
    uint64_t count, correct; /* predictions */
    double loss_sum;         /* nats; real values: mean squared errors */
    bool is_real;            /* real values: none of them is correct or wrong */
};

double score_loss(const struct score *score);     /* mean; NaN without predictions */
double score_accuracy(const struct score *score); /* share in [0, 1]; NaN without any, or real */
/** Count one prediction that gave its label `probability`. */
void score_add(struct score *score, double probability, bool is_correct);
/** Count a batch's logits of an evaluation pass. */
void score_add_batch(struct score *score, const struct task *task, const struct batch *batch,
                     const float *logits);

/** `info`, with the normalisation the model was trained with. Both stay borrowed. */
struct dataset_info outputs_info(const struct dataset_info *info, const struct model *model);

/* Some of the samples in memory. */
struct outputs_part {
    const struct samples *samples;
    size_t first, count;
};

struct outputs_sink {
    void *context;
    /** Logits [samples, rows, classes] of the samples from `first` on, counted within the part, and
     *  the batch they came from; borrowed for the call. */
    void (*on_logits)(void *context, size_t first, const struct batch *batch, const float *logits);
};

/* One model, as often as it is to run at the same time: equal copies, each on a backend of its own
 * that computes in one thread. A single copy runs on the calling thread, as its backend likes. */
struct outputs_models {
    struct model *const *copies;
    struct backend *const *backends;
    struct workers *workers; /* as many; NULL with a single copy */
    uint32_t count;
};

/** Run a model over the part; its batches come to the sink in order, on the calling thread.
 *  RC_NONFINITE as soon as a logit is no number, RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc outputs_run(const struct outputs_models *models, const struct dataset_info *info,
                             const struct outputs_part *part, const struct outputs_sink *sink);
/** The same of a single copy. */
MUST_USE enum rc outputs_run_one(struct model *model, const struct dataset_info *info,
                                 const struct outputs_part *part, const struct outputs_sink *sink);
/** outputs_run() over all samples into a score. The model fits the data. */
MUST_USE enum rc outputs_score(const struct outputs_models *models, const struct dataset_info *info,
                               const struct samples *samples, struct score *score);

#endif
