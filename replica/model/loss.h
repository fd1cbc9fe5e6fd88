/* loss: what a model's outputs are worth, on the host. Those of devices: kernels/loss.h. Pure. */
#ifndef GRAPEVINE_REPLICA_MODEL_LOSS_H
#define GRAPEVINE_REPLICA_MODEL_LOSS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Rows of a batch: all, or those of one thread. */
struct loss_rows {
    const float *logits;
    float *gradient; /* d(mean loss) / d(logits); NULL: not wanted; may be the logits */
    uint32_t rows, outputs;
    uint32_t counted; /* rows of the whole batch that count: whose mean the loss is */
    double *losses;   /* [rows] is the loss of each, to be added up in their order */
};
/* What a student is to learn: see loss_distillation(). */
struct loss_teaching {
    const float *teacher;
    const uint32_t *labels;
    double temperature, a;
};
/** Those below by rows. They return argmax hits. */
uint32_t loss_rows_cross_entropy(const struct loss_rows *rows, const uint32_t *labels);
uint32_t loss_rows_distillation(const struct loss_rows *rows, const struct loss_teaching *teaching);
void loss_rows_squared(const struct loss_rows *rows, const float *targets);

/* What several heads of a model learn together, a group of rows next to each other (TreeNet: Lee et
 * al. 2015, arXiv:1511.06314). Of a head with cross-entropy L_m and p_m for the right class:
 *
 *   mean      1/M sum L_m: each for itself
 *   ensemble  -log(1/M sum p_m): of the answer that they give together; head m's gradient is that
 *             of its own loss by its share p_m / sum p_k: who knows more learns more
 *   oracle    min L_m: only the best head of each row learns, so they come to know unlike things
 */
enum { HEADS_MAX = 16 }; /* as many as a block may have branches */

enum heads_loss { HEADS_MEAN, HEADS_ENSEMBLE, HEADS_ORACLE, HEADS_LOSSES };
/** The names above; false for anything else. */
bool heads_loss_parse(const char *text, enum heads_loss *loss);
/** rows->rows is a multiple of `heads` > 1, labels are alike in a group, and rows->counted counts
 *  each head. All losses of a group are the group's. Hits are each head's own. */
uint32_t loss_rows_heads(const struct loss_rows *rows, const uint32_t *labels, uint32_t heads,
                         enum heads_loss loss);

/* Losses return the mean over rows (nats) and write d(loss)/d(logits) where `gradient` is not NULL;
 * it may be the memory of the logits. Rows labelled LABEL_IGNORE (kernels/softmax.h: padding) count
 * nowhere, also not in the mean, and get a gradient of 0; if all are, the loss is 0. */

/* Softmax cross-entropy with labels; counts argmax hits. */
double loss_cross_entropy(const float *logits, const uint32_t *labels, uint32_t batch,
                          uint32_t classes, float *gradient, uint32_t *correct);
/* (1-a) CE(labels) + a T^2 KL(teacher_T || student_T) (Hinton, Vinyals, Dean 2015,
 * arXiv:1503.02531). teacher: probabilities AT TEMPERATURE T, [batch, classes]. */
double loss_distillation(const float *logits, const float *teacher, const uint32_t *labels,
                         uint32_t batch, uint32_t classes, double temperature, double a,
                         float *gradient, uint32_t *correct);
/* Mean over rows and outputs of (predicted - target)^2, without a factor 1/2: as MSELoss of
 * PyTorch. */
double loss_squared(const float *predicted, const float *targets, uint32_t rows, uint32_t outputs,
                    float *gradient);

/* One prediction from several heads (TreeNet: Lee et al. 2015, arXiv:1511.06314): `merged` [rows]
 * [classes] is the logarithm of the mean of the heads' probabilities; logits:
 * [rows][heads][classes]. May be the memory of the logits. */
void loss_merge_heads(const float *logits, size_t rows, uint32_t heads, uint32_t classes,
                      float *merged);

#endif
