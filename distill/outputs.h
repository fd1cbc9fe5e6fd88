/*
 * outputs: what a model says about samples in memory: batches are normalised as the model's card
 * says, run forward in evaluation mode by all threads of a team (replica/learners/team.h), each
 * with a batch of its own, and their logits handed on. Also the score that a test part gives them:
 * of classes, of the next token at each step of a text, or of real values.
 */
#ifndef GRAPEVINE_DISTILL_OUTPUTS_H
#define GRAPEVINE_DISTILL_OUTPUTS_H

#include "base/rc.h"
#include "distill/work.h"
#include "replica/data/dataset.h"
#include "replica/learners/task.h"
#include "replica/model/model.h"

struct json;
struct team;

/* Samples and rows of logits of a thread's forward pass when nothing is trained. */
enum { OUTPUTS_BATCH = 128, OUTPUTS_ROWS = 2048 };

/** Samples of such a pass: as many as OUTPUTS_BATCH, fewer of long sequences. */
uint32_t outputs_batch(const struct dataset_info *info);
/** Predictions that the data asks for of each sample. */
uint32_t outputs_rows(const struct dataset_info *info);

/* How often what a model says with confidence p is true (Guo et al. 2017, arXiv:1706.04599): equal
 * bins of p, the probability of the class it decides for. */
enum { SCORE_BINS = 15 };

struct score {
    uint64_t count, correct; /* predictions */
    double loss_sum;         /* nats; real values: mean squared errors */
    double gaps[SCORE_BINS]; /* by confidence: sum of (correct ? 1 : 0) - confidence */
    bool is_real;            /* real values: none of them is correct or wrong */
};

/* What is said of one prediction of a class. */
struct verdict {
    double probability; /* of the label */
    double confidence;  /* of the class decided for, in [0, 1] */
    bool is_correct;
};

double score_loss(const struct score *score);     /* mean; NaN without predictions */
double score_accuracy(const struct score *score); /* share in [0, 1]; NaN without any, or real */
/** Expected calibration error in [0, 1]: the mean over predictions of how far the accuracy of their
 *  bin lies from its confidence. NaN where there is no accuracy, or no probability (a vote, whose
 *  loss is NaN). */
double score_calibration(const struct score *score);
/** {accuracy, loss, calibration_error}. */
struct json *score_json(const struct score *score);
/** Count one prediction. */
void score_add(struct score *score, const struct verdict *verdict);

/** `info`, with the normalisation the model was trained with. Both stay borrowed. */
struct dataset_info outputs_info(const struct dataset_info *info, const struct model *model);

/* Some of the samples in memory. */
struct outputs_part {
    const struct samples *samples;
    size_t first, count;
    struct work *work; /* counts the samples; NULL: nobody does */
};

/* Who hears the logits, from the threads of the team. */
struct outputs_sink {
    void *context;
    /** Logits [samples, rows, classes] of the samples from `first` on, counted within the part;
     *  borrowed for the call. Each sample comes once, several calls may run at the same time. */
    void (*on_logits)(void *context, size_t first, uint32_t samples, const float *logits);
};

/** Run a model over the part, a batch to each thread of the team as it gets ready, and add what the
 *  test part says of it to `score`: the same bits, however many threads. The model fits the data.
 *  `sink` may be NULL. RC_NONFINITE as soon as a logit is no number, RC_NOMEM, RC_DEVICE. */
MUST_USE enum rc outputs_run(struct team *team, const struct dataset_info *info,
                             const struct outputs_part *part, const struct outputs_sink *sink,
                             struct score *score);

#endif
