/*
 * Losses on logits in host memory: softmax cross-entropy with hard labels, and distillation
 * (Hinton, Vinyals, Dean 2015, arXiv:1503.02531): (1 - a) CE + a T^2 KL(teacher_T || student_T),
 * whose second gradient is a T (student_T - teacher_T). T^2 keeps both gradients of one size when T
 * changes.
 */
#include "replica/model.h"

#include "base/check.h"
#include "kernels/softmax.h"

#include <math.h>

enum { LOSS_HEADS_MAX = 64 };

double loss_cross_entropy(const float *logits, const uint32_t *labels, uint32_t batch,
                          uint32_t classes, float *gradient, uint32_t *correct)
{
    CHECK(batch > 0);
    return softmax_cross_entropy(logits, labels, batch, classes, gradient, correct) / batch;
}

/* One row: adds a T (student - teacher) / batch to the gradient, returns KL(teacher || student). */
static double row_divergence(const float *logits, const float *teacher, uint32_t classes,
                             double temperature, float factor, float *gradient)
{
    float largest, ln_sum;
    double divergence = 0.0;

    ln_sum = softmax_row(logits, classes, (float)temperature, NULL, &largest);
    for (uint32_t c = 0; c < classes; c++) {
        double p = (double)teacher[c];
        double ln_q = (double)logits[c] / temperature - (double)largest - (double)ln_sum;
        if (p > 0.0) divergence += p * (log(p) - ln_q);
        if (gradient != NULL) gradient[c] += factor * ((float)exp(ln_q) - teacher[c]);
    }
    return divergence;
}

double loss_distillation(const float *logits, const float *teacher, const uint32_t *labels,
                         uint32_t batch, uint32_t classes, double temperature, double a,
                         float *gradient, uint32_t *correct)
{
    float factor = (float)(a * temperature / (double)batch);
    double hard, soft = 0.0;

    CHECK(batch > 0 && classes > 0);
    CHECK(temperature > 0.0 && gradient != logits);
    hard = loss_cross_entropy(logits, labels, batch, classes, gradient, correct);
    for (uint32_t r = 0; r < batch; r++) {
        size_t at = (size_t)r * classes;
        float *out = gradient != NULL ? gradient + at : NULL;
        for (uint32_t c = 0; out != NULL && c < classes; c++) {
            out[c] *= (float)(1.0 - a);
        }
        soft += row_divergence(logits + at, teacher + at, classes, temperature, factor, out);
    }
    return (1.0 - a) * hard + a * temperature * temperature * soft / batch;
}

void loss_merge_heads(const float *logits, size_t rows, uint32_t heads, uint32_t classes,
                      float *merged)
{
    CHECK(heads > 0 && heads <= LOSS_HEADS_MAX);
    for (size_t r = 0; r < rows; r++) {
        const float *row = logits + r * heads * classes;
        double ln_sums[LOSS_HEADS_MAX];
        for (uint32_t h = 0; h < heads; h++) {
            const float *head = row + (size_t)h * classes;
            double largest = (double)head[softmax_argmax(head, classes)], sum = 0.0;
            for (uint32_t c = 0; c < classes; c++) {
                sum += exp((double)head[c] - largest);
            }
            ln_sums[h] = largest + log(sum);
        }
        for (uint32_t c = 0; c < classes; c++) {
            double sum = 0.0;
            for (uint32_t h = 0; h < heads; h++) {
                sum += exp((double)row[(size_t)h * classes + c] - ln_sums[h]);
            }
            merged[r * classes + c] = (float)log(sum / heads + 1e-300);
        }
    }
}
