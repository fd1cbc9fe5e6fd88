/*
 * task: what a model is to learn from a batch of some data: a class a sample, the next token at
 * each step, or real values; once for each of its heads. Joins dataset, team and loss. Any thread,
 * one at a time.
 */
#ifndef GRAPEVINE_REPLICA_LEARNERS_TASK_H
#define GRAPEVINE_REPLICA_LEARNERS_TASK_H

#include "replica/data/dataset.h"
#include "replica/formats/model_file.h"
#include "replica/learners/team.h"
#include "replica/model/loss.h"

struct task {
    enum data_target target;
    uint32_t rows;    /* of logits a sample */
    uint32_t heads;   /* of a training pass; evaluation merges them */
    uint32_t outputs; /* of a row and head: classes, or real values */
    uint32_t *labels; /* [batch][rows][heads], for several heads */
    double *losses;   /* [batch][rows][heads], of a pass */
};

/** Steps of a sequence that the model of `spec` wants, for dataset_options.context; 0: any. */
uint32_t task_context(const char *spec);
/** Fill in what the data says about a model: input, outputs. */
void task_describe(const struct dataset_info *info, struct model_options *options);
/** What a file is to say about a model trained on this data; not its data, step and samples. */
void task_card(const struct dataset_info *info, const struct model *model, struct model_card *card);
/** The data's words as a card holds them: of each class a word and '\n', or "". */
/** The names of a table's columns, in the same form. */
void task_columns(const struct dataset_info *info, char text[MODEL_COLUMNS_BYTES]);
void task_words(const struct dataset_info *info, char text[MODEL_WORDS_BYTES]);
/** Of all that peers must have in common, besides shapes, for a mean of their models to make sense:
 *  layers, kinds of input and target, the byte of each symbol, the words behind a table's classes.
 *  Not of the samples, which are each peer's own. */
struct digest task_meaning(const struct dataset_info *info, const struct model *model);
/** For batches of up to `batch` samples. RC_SHAPE: the model gives one row a sample where the data
 *  ask each step, or the other way round; tokens without an embedding; heads for real values;
 *  RC_NOMEM. `task` is then empty; fine to deinit. */
MUST_USE enum rc task_init(struct task *task, const struct dataset_info *info,
                           const struct model *model, uint32_t batch, struct fault *why);
void task_deinit(struct task *task);
/** float32 values of one batch's logits, in training or not. */
size_t task_logits(const struct task *task, uint32_t batch);

struct task_score {
    double loss;    /* mean over what was counted */
    uint64_t hits;  /* argmax equals the label; regression: 0 */
    uint64_t count; /* predictions */
};

/** Labels of a training pass, each head asked the same; NULL: real values. Borrowed. */
const uint32_t *task_labels(struct task *task, const struct batch *batch);
/** Loss and d(loss)/d(logits) of a training pass, all heads; `gradient` may be the logits. */
struct task_score task_loss(struct task *task, const struct batch *batch, const float *logits,
                            float *gradient);

/* Another loss instead, computed on the host: distill/distill.c has one. What either returns ends
 * the step. */
struct task_objective {
    /** Before the pass: what the batch is to be compared with. */
    enum rc (*prepare)(void *context, struct task *task, const struct batch *batch);
    /** The loss of a thread's rows (heads are rows of their own), which begin with number `first`
     *  of the batch; several threads at a time. Adds to `hits`. */
    enum rc (*loss)(void *context, const struct task *task, const struct batch *batch, size_t first,
                    const struct loss_rows *rows, uint64_t *hits);
    void *context;
};

/** What several heads learn together; NULL: HEADS_MEAN, which is the task's own. Constant. */
const struct task_objective *task_heads_objective(enum heads_loss loss);

/* A pass of a team over a batch. */
struct task_pass {
    struct team *team;
    const struct batch *batch;
    bool is_training;
    const struct task_objective *objective; /* of training; NULL: the task's own loss */
    float *logits, *gradient;               /* as of struct team_pass */
    struct model_profiler *profiler;        /* of the first thread; NULL: none */
};
/** Forward and loss, by each thread of its own samples: see team_judge(). The score has the same
 *  bits with any number of threads, where the logits have. */
MUST_USE enum rc task_forward(struct task *task, const struct task_pass *pass,
                              struct task_score *score);

/** task_loss(), for a pass that stays on a device; borrows from `batch` and `task`. */
void task_feed(struct task *task, const struct batch *batch, struct model_feed *feed);
/** Loss of an evaluation pass. */
struct task_score task_judge(const struct task *task, const struct batch *batch,
                             const float *logits);
/** Share of hits; NaN for real values. */
double task_accuracy(const struct task *task, uint64_t hits, uint64_t count);

#endif
