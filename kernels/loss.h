/*
 * loss: losses computed where the logits are, so that a training step needs no answer from the
 * device. Sums and gradients are those of kernels/softmax.h and replica/model/loss.c.
 */
#ifndef GRAPEVINE_KERNELS_LOSS_H
#define GRAPEVINE_KERNELS_LOSS_H

#include "kernels/softmax.h"

struct loss_sums {
    double loss;   /* sum of the mean losses of the passes so far */
    uint64_t hits; /* rows whose largest logit (the first of equals) is the label's */
};

/* All pointers are to memory of the backend. */
struct device_loss {
    uint32_t rows, outputs;  /* here: heads count as rows of their own */
    uint32_t stride;         /* values from one row of logits and gradient to the next; 0: outputs.
                                What is between is not read, and gets a gradient of 0 */
    const void *logits;      /* [rows][outputs] */
    const uint32_t *labels;  /* [rows], below `outputs` or LABEL_IGNORE; NULL: squared error */
    const float *targets;    /* [rows][outputs]; squared error only */
    const uint32_t *counted; /* one number: rows of the whole batch, on all devices, that count;
                                loss and gradient are of the mean over those. Not 0 */
    void *gradient;          /* [rows][outputs]; may be the logits; NULL: not wanted */
    struct loss_sums *sums;  /* added to */
};

#endif
