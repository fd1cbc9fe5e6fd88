/*
 * What the files of the recurrent layers share; nobody else includes it.
 */
#ifndef GRAPEVINE_KERNELS_CPU_SEQUENCE_RECURRENT_H
#define GRAPEVINE_KERNELS_CPU_SEQUENCE_RECURRENT_H

#include "kernels/cpu/dense/panels.h"
#include "kernels/cpu/internal.h"

/* One step of one sample. Rows hold `hidden` values a gate; in and out means before the step and
 * after it. */
struct cell_forward {
    size_t hidden;
    float *gates;           /* in: x W^T; out: the gates (rnn: the output) */
    float *product;         /* h W^T; out, gru: candidate's part with its bias */
    const float *bias;      /* both, but for the candidate of a gru, which has the input's */
    const float *candidate; /* gru: the candidate's bias of the hidden product */
    float *h;               /* in, out */
    float *c;               /* lstm: in, out */
};

struct cell_backward {
    size_t hidden;
    const float *gates;
    const float *candidate; /* gru: the candidate's part of the hidden product */
    const float *before;    /* gru: h, lstm: c, as they were before the step */
    const float *after;     /* rnn: h, lstm: c, as they are after it */
    const float *dy;
    const float *carry; /* gradient that came through the next step's product */
    float *direct;      /* and past it: lstm that of c, gru that of h; in, out */
    float *dgates;      /* gru: candidate by the hidden product, r, z, candidate by the input's */
};

void cell_rnn_forward(const struct cell_forward *step);
void cell_gru_forward(const struct cell_forward *step);
void cell_lstm_forward(const struct cell_forward *step);
void cell_rnn_backward(const struct cell_backward *step);
void cell_gru_backward(const struct cell_backward *step);
void cell_lstm_backward(const struct cell_backward *step);

/* recurrent_bf16.c: a layer's products with bfloat16 operands. They work in the backend's scratch
 * memory; rows have no gaps. */
struct recurrent_bf16;

/** RC_UNSUPPORTED: not for this layer, or not on this machine; RC_NOMEM. */
enum rc recurrent_bf16_create(struct cpu_backend *cpu, const struct recurrent_options *options,
                              struct recurrent_bf16 **bf16);
void recurrent_bf16_destroy(struct recurrent_bf16 *bf16);
enum rc recurrent_bf16_prepare(struct recurrent_bf16 *bf16,
                               const struct recurrent_weights *weights);
/** gates = x W_input^T. */
enum rc recurrent_bf16_inputs(struct recurrent_bf16 *bf16, size_t rows, const float *x,
                              float *gates);
/** product = h W_hidden^T. */
enum rc recurrent_bf16_step(struct recurrent_bf16 *bf16, size_t samples, const float *h,
                            float *product);
/** carry = dgates W_hidden. */
enum rc recurrent_bf16_step_back(struct recurrent_bf16 *bf16, size_t samples, const float *dgates,
                                 float *carry);
/** Those of both weights, and of the inputs where they are wanted. `before`: states as the steps
 *  found them. */
enum rc recurrent_bf16_gradients(struct recurrent_bf16 *bf16, size_t rows,
                                 const struct recurrent_backward *back, const float *before,
                                 float *dgates);

/* recurrent.c */
enum rc cpu_recurrent_create(struct backend *backend, const struct recurrent_options *options,
                             struct recurrent **recurrent);

/* recurrent_reference.c: straight from the formulas in float64. */
struct reference_recurrent {
    struct recurrent_options options;
    struct recurrent_weights weights;
};

/** float64 values the twins work in. */
size_t reference_recurrent_workspace(const struct recurrent_options *options);
/** The workspace begins with the last sample's outputs [steps][hidden] in float64. */
void reference_recurrent_forward(const struct reference_recurrent *layer, uint32_t samples,
                                 const float *x, float *y, double *workspace);
/** Knows nothing of pass->y and pass->saved: computes them anew. */
void reference_recurrent_backward(const struct reference_recurrent *layer,
                                  const struct recurrent_backward *pass, double *workspace);
enum rc reference_recurrent_create(const struct recurrent_options *options,
                                   struct recurrent **recurrent);

#endif
