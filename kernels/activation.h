/*
 * activation: the functions that a layer ends with, value by value. Formulas:
 * kernels/cpu/dense/activation.c.
 */
#ifndef GRAPEVINE_KERNELS_ACTIVATION_H
#define GRAPEVINE_KERNELS_ACTIVATION_H

#include <stdbool.h>
#include <stdint.h>

enum activation_kind {
    ACTIVATION_NONE,
    ACTIVATION_RELU,
    ACTIVATION_LEAKY_RELU, /* slope * x below 0; its gradient at 0 is slope */
    ACTIVATION_GELU,       /* exact: x Phi(x) (Hendrycks, Gimpel 2016, arXiv:1606.08415) */
    ACTIVATION_SILU,       /* x sigmoid(x) */
    ACTIVATION_SIGMOID,
    ACTIVATION_TANH,
    ACTIVATION_GELU_TANH, /* x sigmoid(2 u), u = sqrt(2 / pi) (x + 0.044715 x^3): GPT-2's */
    ACTIVATION_COUNT
};

struct activation {
    enum activation_kind kind;
    float slope; /* leaky relu, in [0, 1) */
};

/** Whether the gradient needs the input; for the others the output says it all. */
static inline bool activation_needs_input(enum activation_kind kind)
{
    return kind == ACTIVATION_GELU || kind == ACTIVATION_SILU || kind == ACTIVATION_GELU_TANH;
}

/* Inverted dropout (Srivastava et al. 2014): a value lives with probability 1 - rate and is scaled
 * by 1 / (1 - rate). Value i of the pass is decided by Philox4x32-10 (Salmon et al. 2011) of (key,
 * pass, i), so that any device and any slicing draws the same. */
struct dropout {
    uint64_t key, pass;
    uint64_t first;         /* index of x[0] */
    float rate;             /* in [0, 1) */
    const uint64_t *passes; /* memory of the backend: added to `pass`; NULL: nothing is. So that a
                               recorded call draws anew */
};

#endif
