/*
 * sequence: layers on sequences of rows. A batch of sequences is [samples][steps][width].
 */
#ifndef GRAPEVINE_KERNELS_SEQUENCE_H
#define GRAPEVINE_KERNELS_SEQUENCE_H

#include "base/rc.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Token ids arrive as exact float32 numbers in [0, symbols). */
struct embedding {
    uint32_t symbols, width;
};

/* Multi-head self-attention (Vaswani et al. 2017, arXiv:1706.03762) between the projections:
 * qkv [samples][steps][3 width] holds queries, keys and values side by side, each of `heads` heads
 * of width / heads values; y is [samples][steps][width]. Scores are scaled by 1/sqrt(head width)
 * and softmaxed over the steps up to the query's own. Never more than a tile of the steps x steps
 * matrix exists (Dao et al. 2022, arXiv:2205.14135, Rabe, Staats 2021, arXiv:2112.05682). */
struct attention {
    uint32_t samples, steps, width, heads;
    bool is_causal; /* otherwise every step sees all */
    /* Rotary positions (Su et al. 2021, arXiv:2104.09864): queries and keys are rotated first;
     * pairs are (i, i + head width / 2), base 10000. */
    bool is_rotary;
};

struct attention_backward {
    const void *qkv, *y, *dy;
    const float *statistics; /* as the forward pass left them */
    void *dqkv;              /* overwritten */
};

/** float32 values of statistics that the forward pass leaves for the backward pass. */
static inline size_t attention_statistics(const struct attention *attention)
{
    return (size_t)attention->samples * attention->steps * attention->heads;
}

enum recurrent_kind { RECURRENT_RNN, RECURRENT_GRU, RECURRENT_LSTM };

/* A recurrent layer bound to its shape, from a zero state: rnn (tanh), gru (Cho et al. 2014,
 * arXiv:1406.1078, with the reset gate behind the hidden product), lstm (Hochreiter, Schmidhuber
 * 1997 with forget gates). Gates in the order of rows of the weights: gru r, z, n; lstm i, f, g, o.
 * Truncated back-propagation through time: no gradient passes from step k * truncate to the step
 * before it. */
struct recurrent_options {
    enum recurrent_kind kind;
    uint32_t in, hidden, steps;
    uint32_t samples_max; /* of a call */
    uint32_t truncate;    /* 0: never */
    bool with_gradients, with_input_gradient;
};

static inline uint32_t recurrent_gates(enum recurrent_kind kind)
{
    return kind == RECURRENT_LSTM ? 4 : kind == RECURRENT_GRU ? 3 : 1;
}

/* weight_input [gates hidden][in], weight_hidden [gates hidden][hidden], two biases [gates hidden].
 */
struct recurrent_weights {
    const float *input, *hidden, *bias_input, *bias_hidden;
};

struct recurrent_backward {
    uint32_t samples;
    const void *x, *y;
    const float *saved;
    void *dy;        /* may be overwritten */
    void *dx;        /* NULL: not wanted */
    bool adds_to_dx; /* dx += instead of dx = */
    bool is_first;   /* overwrite the gradients below; otherwise they are added to */
    float *dinput, *dhidden, *dbias_input, *dbias_hidden;
};

struct recurrent {
    const struct recurrent_ops *ops;
    size_t saved_values; /* float32 per sample that forward leaves for backward */
};

struct recurrent_ops {
    const char *name;
    void (*destroy)(struct recurrent *recurrent);
    /** Borrowed until the next call; to be called whenever they changed. */
    MUST_USE enum rc (*prepare)(struct recurrent *recurrent,
                                const struct recurrent_weights *weights);
    /** x [samples][steps][in], y [samples][steps][hidden]. `saved` NULL: no gradient wanted. */
    MUST_USE enum rc (*forward)(struct recurrent *recurrent, uint32_t samples, const void *x,
                                void *y, float *saved);
    MUST_USE enum rc (*backward)(struct recurrent *recurrent,
                                 const struct recurrent_backward *pass);
};

struct positions {
    uint32_t samples, steps, width;
};

#endif
