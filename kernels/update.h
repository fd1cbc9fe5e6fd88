/*
 * update: one fused optimizer step over flat vectors.
 */
#ifndef GRAPEVINE_KERNELS_UPDATE_H
#define GRAPEVINE_KERNELS_UPDATE_H

#include <stddef.h>

enum update_kind {
    UPDATE_SGD,
    UPDATE_MOMENTUM,
    UPDATE_NESTEROV,
    UPDATE_ADAGRAD,
    UPDATE_RMSPROP,
    UPDATE_ADAM,
    UPDATE_ADAMW,
    UPDATE_LARS, /* from here on a span is one tensor: norms and products are taken over it */
    UPDATE_LAMB,
    UPDATE_MUON,
    UPDATE_COUNT
};

/* A copy of parameters in another form, which the backend's products read. */
struct parameter_copy {
    const float *from;
    size_t count;
    void *to;
};

struct parameter_copies; /* the backend's table of such copies */

/* One fused optimizer step over a span of a plane: all of it, or one tensor. Bias corrections come
 * folded into the numbers (see replica/optimizer/optimizer.c). Formulas:
 * kernels/cpu/reference/reference.c. */
struct update {
    enum update_kind kind;
    float rate;
    float beta;       /* momentum, LARS, Muon; the first of Adam and LAMB */
    float beta2;      /* the second of Adam and LAMB; RMSProp's only one */
    float epsilon;    /* added to a root or, LARS, to a norm */
    float decay;      /* gradient + decay * value; AdamW and Muon: value -= decay * value instead */
    float correction; /* LAMB: factor of the direction for both biases */
    float trust;      /* LARS: coefficient of the layer's ratio; LAMB: 1; 0: the ratio is 1 */
    size_t plane;     /* values from one moment plane to the next; 0: the span's length */
    size_t rows;      /* Muon: the span is a matrix of so many rows */
    float *workspace; /* Muon: update_workspace() values, of any contents */
    const struct parameter_copies *copies; /* of values of the span: written, too; NULL: none */
};

/* Muon: the direction twice, and two square matrices of its shorter side. */
static inline size_t update_workspace(size_t rows, size_t columns)
{
    size_t side = rows < columns ? rows : columns;

    return 2 * rows * columns + 2 * side * side;
}

#endif
