/*
 * Losses on a model's outputs in host memory: softmax cross-entropy with labels, and distillation
 * (Hinton, Vinyals, Dean 2015, arXiv:1503.02531): (1 - a) CE + a T^2 KL(teacher_T || student_T),
 * whose second gradient is a T (student_T - teacher_T). T^2 keeps both gradients of one size when T
 * changes. Rows labelled LABEL_IGNORE count nowhere.
 */
#include "replica/model/loss.h"

#include "base/check.h"
#include "kernels/softmax.h"

static double mean_of(double sum, uint32_t counted)
{
    return counted > 0 ? sum / counted : 0.0;
}

double loss_cross_entropy(const float *logits, const uint32_t *labels, uint32_t batch,
                          uint32_t classes, float *gradient, uint32_t *correct)
{
    CHECK(batch > 0);
    return mean_of(softmax_cross_entropy(logits, labels, batch, classes, gradient, correct),
                   softmax_counted(labels, batch));
}

double loss_distillation(const float *logits, const float *teacher, const uint32_t *labels,
                         uint32_t batch, uint32_t classes, double temperature, double a,
                         float *gradient, uint32_t *correct)
{
    double scale = a * temperature * temperature;
    struct softmax_sums sums;

    CHECK(batch > 0 && classes > 0 && temperature > 0.0);
    sums = softmax_mixture(&(struct softmax_mixture){
        .logits = logits,
        .targets = teacher,
        .labels = labels,
        .rows = batch,
        .classes = classes,
        .temperature = temperature,
        .hard_share = 1.0 - a,
        .soft_share = scale,
        .gradient = gradient,
    });
    *correct = sums.correct;
    return mean_of((1.0 - a) * sums.hard + scale * (sums.soft - sums.entropy), sums.counted);
}

double loss_squared(const float *predicted, const float *targets, uint32_t rows, uint32_t outputs,
                    float *gradient)
{
    size_t count = (size_t)rows * outputs;
    double sum = 0.0, factor = 2.0 / (double)count;

    CHECK(count > 0);
    for (size_t i = 0; i < count; i++) {
        double difference = (double)predicted[i] - (double)targets[i];
        sum += difference * difference;
        if (gradient != NULL) gradient[i] = (float)(factor * difference);
    }
    return sum / (double)count;
}

void loss_merge_heads(const float *logits, size_t rows, uint32_t heads, uint32_t classes,
                      float *merged)
{
    CHECK(heads > 0 && classes > 0);
    for (size_t r = 0; r < rows; r++) {
        softmax_merge(logits + r * heads * classes, heads, classes, merged + r * classes);
    }
}
