/*
 * attention: what its files share. attention.cu has the entries and what surrounds every pass,
 * attention_plain.cu kernels for any head, attention_tensor.cu and attention_tensor_backward.cu
 * those for tensor cores.
 *
 * A sequence is one head of one sample: [steps][head_width] in rows of wider matrices.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_CUH
#define GRAPEVINE_KERNELS_CUDA_SEQUENCE_ATTENTION_CUH

#include "kernels/cuda/value.cuh"

#include <float.h>

#define LOG2_E 1.4426950408889634

#ifdef __CUDACC__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL /* compilers other than nvcc do as they like */
#endif

/* Of one query in the backward pass. A query behind the last step has a log_sum of infinity: its
 * weights are 0. */
struct attention_row {
    float log_sum; /* log2 of the sum of exp(scores) */
    float delta;   /* of dy y: what the gradients of its weights have in common */
};

/* One call, as kernels take it. Matrices are of T. */
struct attention_pass {
    const void *queries, *keys,
        *values;         /* the first sample's first row of the first head; rotated */
    size_t query_stride; /* of rows of queries and keys, in values */
    size_t value_stride;
    void *y;                           /* [samples][steps][width] */
    const void *dy;                    /* as y */
    float *statistics;                 /* [sequences][steps]: log of the sum of exp(scores) */
    void *dqkv;                        /* [samples][steps][3 width] */
    const struct attention_row *rows;  /* [sequences][padded] */
    const float2 *rotation;            /* [steps][head_width / 2]: cosine, sine; NULL: not rotary */
    uint32_t steps, padded;            /* padded: steps, up to a multiple of PADDING */
    uint32_t heads, head_width, width; /* width: of all heads */
    uint32_t sequences;
    uint32_t together; /* sequences whose keys and values the second cache is to hold at a time */
    float scale;       /* of scores, 1 / sqrt(head_width) */
    float scale2;      /* and for powers of two, in place of those of e */
    uint32_t is_causal;
};

enum { PADDING = 128 }; /* no tile has more queries */

/* What a block works on. */
struct attention_tile {
    uint32_t sequence, index;
    size_t row;    /* of the sample's first step */
    size_t column; /* of the head's first value */
};

/* Blocks come in groups of `together` sequences; of a group, the same tile of all sequences comes
 * before the next tile. A causal pass has the long tiles first, so that short ones fill the end:
 * these are the last queries, or (`of_keys`) the first keys. */
static __device__ inline struct attention_tile
attention_tile_of(const struct attention_pass &pass, uint32_t block, uint32_t tiles, bool of_keys)
{
    uint32_t group = block / (pass.together * tiles), first = group * pass.together;
    uint32_t left = pass.sequences - first, members = left < pass.together ? left : pass.together;
    uint32_t rest = block - first * tiles, index = rest / members;
    struct attention_tile tile;

    tile.sequence = first + rest % members;
    tile.index = of_keys ? index : tiles - 1 - index;
    tile.row = (size_t)(tile.sequence / pass.heads) * pass.steps;
    tile.column = (size_t)(tile.sequence % pass.heads) * pass.head_width;
    return tile;
}

/* 2^x within 3e-7 of it; below 2^-126 it is 0. */
static __device__ inline float attention_exp2(float x)
{
#ifdef __CUDACC__
    float power;

    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x));
    return power;
#else
    return exp2f(x);
#endif
}

/* A weight once more. Scores are multiplied in another order here than forward, and of huge ones
 * the last bit is much; but no weight is above 1. */
static __device__ inline float attention_weight(float score, float scale2, float log_sum)
{
    return attention_exp2(fminf(score * scale2 - log_sum, 0.0f));
}

static inline uint32_t attention_tiles(const struct attention_pass &pass, uint32_t side)
{
    return (uint32_t)(((size_t)pass.steps + side - 1) / side);
}

/* attention_tensor.cu, attention_tensor_backward.cu: bfloat16 on tensor cores. `has`: for this
 * width on this device; `allow`: once, at creation. */
bool attention_tensor_has(const struct cuda_backend *cuda, uint32_t head_width);
enum rc attention_tensor_forward(struct cuda_backend *cuda, const struct attention_pass *pass);
enum rc attention_tensor_allow_forward(struct cuda_backend *cuda, uint32_t head_width);
enum rc attention_tensor_backward(struct cuda_backend *cuda, const struct attention_pass *pass);
enum rc attention_tensor_allow_backward(struct cuda_backend *cuda, uint32_t head_width);

/* attention_plain.cu: any width, T, plain multiplications. */
enum rc attention_plain_forward(struct cuda_backend *cuda, const struct attention_pass *pass);
enum rc attention_plain_backward(struct cuda_backend *cuda, const struct attention_pass *pass);

#endif
