/* dnn_recurrent: what the recurrent layers of the stand-in for cuDNN share: see dnn_recurrent.cpp.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_DNN_RECURRENT_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_DNN_RECURRENT_H

#include "tests/cuda/virtual/dnn.h"

struct cudnnRNNStruct {
    bool is_set;
    cudnnRNNAlgo_t algo;
    cudnnRNNMode_t cell;
    cudnnRNNBiasMode_t bias;
    cudnnDirectionMode_t direction;
    cudnnRNNInputMode_t input_mode;
    cudnnDataType_t type;
    cudnnMathType_t math;
    size_t input, hidden, projected;
    int layers;
    float rate; /* of dropout */
    bool is_padded;
};

struct cudnnRNNDataStruct {
    bool is_set;
    cudnnDataType_t type;
    cudnnRNNDataLayout_t layout;
    size_t steps, samples, width;
    std::vector<int> lengths;
    bool has_fill;
    float fill;
};

static inline size_t rnn_gates(const struct cudnnRNNStruct *rnn)
{
    return rnn->cell == CUDNN_LSTM ? 4 : rnn->cell == CUDNN_GRU ? 3 : 1;
}

/** Columns of the matrix of a linLayerID: the first half multiplies inputs, the second states. */
static inline size_t rnn_columns(const struct cudnnRNNStruct *rnn, size_t linear)
{
    return linear < rnn_gates(rnn) ? rnn->input : rnn->hidden;
}

/* Offsets in the weight space of one linLayerID; `end`: bytes of the whole. */
struct rnn_place {
    size_t matrix, bias, end;
};
void rnn_find(const struct cudnnRNNStruct *rnn, size_t linear, struct rnn_place *place);

enum rnn_stage { RNN_FORWARD_DONE = 0x52464F52, RNN_DATA_DONE = 0x52444154 };

/* What the reserve space begins with. */
struct rnn_reserve {
    uint64_t stage;
};

/** float32 of the reserve space per sample and step: gates, cell or hidden product, state, and the
 *  gradients before the gates, towards the input and towards the state before. */
static inline size_t rnn_saved_values(const struct cudnnRNNStruct *rnn)
{
    return (3 * rnn_gates(rnn) + 2) * rnn->hidden;
}

struct rnn_call {
    const char *name;
    struct cudnnRNNStruct rnn;
    struct cudnnRNNDataStruct data; /* of x */
    const void *x, *dy, *hx, *cx, *dhy, *dcy;
    void *y, *dx, *hy, *cy, *dhx, *dcx;
    void *weights; /* or their gradients */
    void *workspace, *reserve;
};

void rnn_forward(const struct rnn_call *call);
void rnn_backward_data(const struct rnn_call *call);
void rnn_backward_weights(const struct rnn_call *call);

#endif
