/*
 * softmax: probabilities and the losses that end in them, on rows of logits in host memory; float32
 * values, sums in float64. Any thread. Equal calls give equal bits.
 */
#ifndef GRAPEVINE_KERNELS_SOFTMAX_H
#define GRAPEVINE_KERNELS_SOFTMAX_H

#include <stddef.h>
#include <stdint.h>

/* The label of a row that takes part in nothing (padding): no loss, no hit, gradient 0. */
#define LABEL_IGNORE UINT32_MAX

/** probabilities[c] = exp(logits[c] / T) / sum, the largest logit subtracted first. The two may be
 *  the same memory, and `probabilities` NULL where they are not wanted. Returns ln of the sum of
 *  exp(logits / T - max / T), and that max / T. */
float softmax_row(const float *logits, uint32_t classes, float temperature, float *probabilities,
                  float *largest);
/** Index of the largest value; the first of equals; 0 if the first, or all, are NaN. */
uint32_t softmax_argmax(const float *values, uint32_t classes);
/** Rows whose label is not LABEL_IGNORE. */
uint32_t softmax_counted(const uint32_t *labels, uint32_t rows);
/* Rows of logits with their labels: all of a batch, or a part of it. */
struct softmax_rows {
    const float *logits;
    const uint32_t *labels; /* below `classes`, or LABEL_IGNORE */
    uint32_t rows, classes;
    uint32_t counted; /* rows of the whole batch that count; gradients are of the mean over them */
    float *gradient;  /* (softmax - onehot) / counted; NULL: not wanted; may be the logits */
    double *losses;   /* [rows]: -ln softmax(logits)[label] (nats) */
};
/** Returns the rows whose largest logit is the label's. A row's bits do not depend on its part. */
uint32_t softmax_label_losses(const struct softmax_rows *rows);
/** Sum over the counted rows of -ln softmax(logits)[label] (nats). gradient (may be NULL, may be
 * the memory of logits): (softmax - onehot) / counted rows. Labels must be below `classes`. */
double softmax_cross_entropy(const float *logits, const uint32_t *labels, uint32_t rows,
                             uint32_t classes, float *gradient, uint32_t *correct);

/* Cross-entropy with labels and with whole distributions at once. Gradients: of the mean. */
struct softmax_mixture {
    const float *logits;
    const float *targets;   /* [rows][classes]: distributions; at `temperature` */
    const uint32_t *labels; /* NULL: no row is ignored, and hard_share is 0 */
    uint32_t rows, classes;
    uint32_t counted; /* rows of the whole batch that count, of which these are a part; 0: these */
    double temperature;
    double hard_share; /* factor of the labels' cross-entropy in the gradient */
    double soft_share; /* factor of the targets' */
    float *gradient;   /* NULL: not wanted; may be the logits */
};

/* Sums over the counted rows. */
struct softmax_sums {
    double hard;    /* -ln softmax(logits)[label]; 0 without labels */
    double soft;    /* -sum of target ln softmax(logits / T) */
    double entropy; /* -sum of target ln target: soft less this is the divergence */
    uint32_t counted, correct;
};
struct softmax_sums softmax_mixture(const struct softmax_mixture *mixture);

/** merged[c] = ln of the mean over `heads` of softmax(logits[head])[c]; may be logits[0]. */
void softmax_merge(const float *logits, uint32_t heads, uint32_t classes, float *merged);

#endif
