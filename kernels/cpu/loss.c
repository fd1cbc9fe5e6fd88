/* Losses of rows in host memory, added up as devices do it: see kernels/loss.h. */
#include "base/check.h"
#include "kernels/cpu/internal.h"

enum rc cpu_cross_entropy(struct backend *backend, const struct device_loss *loss)
{
    size_t values = (size_t)loss->rows * loss->outputs;
    uint32_t correct = 0, here = softmax_counted(loss->labels, loss->rows);
    float share = (float)here / (float)*loss->counted;
    float *gradient = loss->gradient;
    double sum = softmax_cross_entropy(loss->logits, loss->labels, loss->rows, loss->outputs,
                                       gradient, &correct);

    (void)backend;
    CHECK(loss->stride == 0 && *loss->counted >= here && here > 0);
    for (size_t i = 0; gradient != NULL && *loss->counted != here && i < values; i++) {
        gradient[i] *= share; /* other lanes have the other rows */
    }
    loss->sums->loss += sum / *loss->counted;
    loss->sums->hits += correct;
    return RC_OK;
}

enum rc cpu_squared_error(struct backend *backend, const struct device_loss *loss)
{
    size_t values = (size_t)loss->rows * loss->outputs;
    const float *logits = loss->logits;
    float *gradient = loss->gradient;
    double sum = 0.0, count = (double)*loss->counted * loss->outputs;

    (void)backend;
    CHECK(*loss->counted >= loss->rows);
    for (size_t i = 0; i < values; i++) {
        double difference = (double)logits[i] - (double)loss->targets[i];
        sum += difference * difference;
        if (gradient != NULL) gradient[i] = (float)(2.0 / count * difference);
    }
    loss->sums->loss += sum / count;
    return RC_OK;
}
