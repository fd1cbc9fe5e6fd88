/*
 * outputs: what a model says about samples in memory: batches are normalised as the model's card
 * says, run forward in evaluation mode, and their logits handed on. Also the score
 * that a test part gives them.
 */
#ifndef GRAPEVINE_DISTILL_OUTPUTS_H
#define GRAPEVINE_DISTILL_OUTPUTS_H

#include "base/rc.h"
#include "replica/dataset.h"
#include "replica/model.h"

enum { OUTPUTS_BATCH = 256 }; /* rows of a forward pass when nothing is trained */

struct score {
    uint64_t samples, correct;
    double loss_sum; /* nats */
};

double score_loss(const struct score *score);     /* mean cross-entropy; NaN without samples */
double score_accuracy(const struct score *score); /* share in [0, 1]; NaN without samples */
/** Count one sample that got probability `probability` for its label. */
void score_add(struct score *score, double probability, bool is_correct);

/** Count `rows` rows of logits. */
void score_add_logits(struct score *score, const float *logits, const uint32_t *labels, size_t rows,
                      uint32_t classes);

/** `info`, with the normalisation the model was trained with. Both stay borrowed. */
struct dataset_info outputs_info(const struct dataset_info *info, const struct model *model);

struct outputs_sink {
    void *context;
    /** Logits [rows, classes] of the samples from `first` on, and the batch they came from;
     *  borrowed for the call. */
    void (*on_logits)(void *context, size_t first, const struct batch *batch, const float *logits);
};

/** Run `model` over all samples, in order. RC_NONFINITE as soon as a logit is no number, RC_NOMEM,
 *  RC_DEVICE. */
MUST_USE enum rc outputs_run(struct model *model, const struct dataset_info *info,
                             const struct samples *samples, const struct outputs_sink *sink);
/** outputs_run() into a score. */
MUST_USE enum rc outputs_score(struct model *model, const struct dataset_info *info,
                               const struct samples *samples, struct score *score);

#endif
