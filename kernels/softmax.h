/*
 * softmax: probabilities, hard-label cross-entropy and distillation losses on logits in host
 * memory; float32 values, float64 sums. Any thread.
 */
#ifndef GRAPEVINE_KERNELS_SOFTMAX_H
#define GRAPEVINE_KERNELS_SOFTMAX_H

#include <stdint.h>

/** probabilities[c] = exp(logits[c] / T) / sum, the largest logit subtracted first. The two may be
 *  the same memory, and `probabilities` NULL where they are not wanted. Returns ln of the sum of
 * exp(logits / T - max / T), and that max / T. */
float softmax_row(const float *logits, uint32_t classes, float temperature, float *probabilities,
                  float *largest);
/** Index of the largest value; the first of equals; 0 if all are NaN. */
uint32_t softmax_argmax(const float *values, uint32_t classes);
/** Sum over rows of -ln softmax(logits)[label] (nats). gradient (may be NULL, may be the memory of
 *  logits): (softmax - onehot) / rows. Labels must be below `classes`. */
double softmax_cross_entropy(const float *logits, const uint32_t *labels, uint32_t rows,
                             uint32_t classes, float *gradient, uint32_t *correct);

#endif
