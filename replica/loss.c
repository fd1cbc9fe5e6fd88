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
