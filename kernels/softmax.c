/*
 * Softmax and cross-entropy with the usual shift by the largest logit, so that no exponential
 * overflows. The host side of losses: logits are small ([batch, classes]).
 */
#include "kernels/softmax.h"

#include "base/check.h"

#include <math.h>
#include <stddef.h>

uint32_t softmax_argmax(const float *values, uint32_t classes)
{
    uint32_t best = 0;

    for (uint32_t c = 1; c < classes; c++) {
        if (values[c] > values[best]) best = c;
    }
    return best;
}

float softmax_row(const float *logits, uint32_t classes, float temperature, float *probabilities,
                  float *largest)
{
    float inverse = 1.0F / temperature;
    float top = logits[softmax_argmax(logits, classes)] * inverse;
    double sum = 0.0;
    float share;

    CHECK(classes > 0 && temperature > 0.0F);
    for (uint32_t c = 0; c < classes; c++) {
        float e = expf(logits[c] * inverse - top);
        if (probabilities != NULL) probabilities[c] = e;
        sum += (double)e;
    }
    share = (float)(1.0 / sum);
    for (uint32_t c = 0; probabilities != NULL && c < classes; c++) {
        probabilities[c] *= share;
    }
    *largest = top;
    return (float)log(sum);
}

double softmax_cross_entropy(const float *logits, const uint32_t *labels, uint32_t rows,
                             uint32_t classes, float *gradient, uint32_t *correct)
{
    float share = rows > 0 ? 1.0F / (float)rows : 0.0F;
    double loss = 0.0;
    uint32_t hits = 0;

    CHECK(classes > 0);
    for (uint32_t r = 0; r < rows; r++) {
        const float *z = logits + (size_t)r * classes;
        float *out = gradient != NULL ? gradient + (size_t)r * classes : NULL;
        uint32_t label = labels[r];
        float largest, chosen, ln_sum;

        CHECK(label < classes);
        chosen = z[label];
        hits += softmax_argmax(z, classes) == label;
        ln_sum = softmax_row(z, classes, 1.0F, out, &largest);
        loss += (double)ln_sum - (double)(chosen - largest);
        if (out == NULL) continue;
        out[label] -= 1.0F;
        for (uint32_t c = 0; c < classes; c++) {
            out[c] *= share;
        }
    }
    *correct = hits;
    return loss;
}
