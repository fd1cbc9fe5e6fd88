/*
 * Attention forward in bfloat16 on tensor cores: FlashAttention-2 (Dao 2023, arXiv:2307.08691,
 * Algorithm 1). A block has a tile of queries and streams keys and values past it, the next tile on
 * its way while this one is worked on; weights are relative to a running maximum.
 *
 * Where we differ: the maximum that weights are relative to (`base`) follows the largest score
 * only when that has got ahead by HEADROOM powers of two, which after the first tile is rare; so
 * sums are hardly ever rescaled, and lanes need not tell each other their maxima. Weights may then
 * be as large as 2^HEADROOM, which neither bfloat16 nor float32 minds, and the quotient stays what
 * it is. And it is subtracted before the scale is multiplied in, at the price of one
 * instruction, so that scores of any size are exact relative to it.
 */
#include "kernels/cuda/sequence/attention_tensor.cuh"

#define HEADROOM 8.0f

template <int WIDTH, int BLOCKS> struct forward_tile {
    enum {
        ROWS = WARPS * 16 * BLOCKS,
        KEYS = 64,
        IS_KEPT = WIDTH <= 64, /* the queries stay in registers */
    };
    static constexpr size_t BYTES = tile_bytes<WIDTH>(ROWS + 4 * KEYS);
};

/* Rows 0, 1 of a block: lane / 4 and lane / 4 + 8. */
template <int WIDTH, int BLOCKS> struct forward_sums {
    float values[BLOCKS][WIDTH / 8][4]; /* of weights times values */
    float base[BLOCKS][2];              /* of scores, the same for all lanes of a row */
    float total[BLOCKS][2];             /* of the lane's own weights */
};

/* Scores of keys that the query must not see, or that are none. `row`, `key`: of the first ones. */
template <int BLOCKS, int KEYS>
static __device__ inline void mask_keys(float (&scores)[BLOCKS][KEYS / 8][4], uint32_t row,
                                        uint32_t key, const struct attention_pass &pass)
{
    uint32_t lane = threadIdx.x % WARP;

    UNROLL
    for (int m = 0; m < BLOCKS; m++) {
        UNROLL
        for (int i = 0; i < KEYS / 8 * 4; i++) {
            uint32_t query = row + m * 16 + lane / 4 + i % 4 / 2 * 8;
            uint32_t column = key + i / 4 * 8 + lane % 4 * 2 + i % 2;
            if (column >= pass.steps || (pass.is_causal && column > query)) {
                scores[m][i / 4][i % 4] = -INFINITY;
            }
        }
    }
}

/* base follows the maximum: `high` is the lane's, of the new scores. */
template <int WIDTH, int BLOCKS>
static __device__ inline void raise_top(struct forward_sums<WIDTH, BLOCKS> &sums,
                                        float (&high)[BLOCKS][2], float scale2)
{
    UNROLL
    for (int i = 0; i < BLOCKS * 2; i++) {
        int m = i / 2, half = i % 2;
        float factor, base = high[m][half];

        base = fmaxf(base, __shfl_xor_sync(0xFFFFFFFFu, base, 1));
        base = fmaxf(base, __shfl_xor_sync(0xFFFFFFFFu, base, 2));
        base = fmaxf(base, sums.base[m][half]);
        factor = attention_exp2((sums.base[m][half] - base) * scale2);
        sums.base[m][half] = base;
        sums.total[m][half] *= factor;
        UNROLL
        for (int n = 0; n < WIDTH / 8; n++) {
            sums.values[m][n][2 * half] *= factor;
            sums.values[m][n][2 * half + 1] *= factor;
        }
    }
}

/* Scores to weights. */
template <int WIDTH, int BLOCKS, int KEYS>
static __device__ inline void softmax(struct forward_sums<WIDTH, BLOCKS> &sums,
                                      float (&scores)[BLOCKS][KEYS / 8][4], float scale2)
{
    float high[BLOCKS][2];
    bool rises = false;

    UNROLL
    for (int i = 0; i < BLOCKS * 2; i++) {
        int m = i / 2, half = i % 2;
        high[m][half] = -INFINITY;
        UNROLL
        for (int n = 0; n < KEYS / 8; n++) {
            const float *pair = scores[m][n] + 2 * half;
            high[m][half] = fmaxf(high[m][half], fmaxf(pair[0], pair[1]));
        }
        rises |= (high[m][half] - sums.base[m][half]) * scale2 > HEADROOM;
    }
    if (__ballot_sync(0xFFFFFFFFu, rises) != 0) raise_top<WIDTH, BLOCKS>(sums, high, scale2);
    UNROLL
    for (int m = 0; m < BLOCKS; m++) {
        UNROLL
        for (int i = 0; i < KEYS / 8 * 4; i++) {
            int half = i % 4 / 2;
            float weight = attention_exp2((scores[m][i / 4][i % 4] - sums.base[m][half]) * scale2);
            scores[m][i / 4][i % 4] = weight;
            sums.total[m][half] += weight;
        }
    }
}

/* Sums to results. */
template <int WIDTH, int BLOCKS>
static __device__ inline void finish(struct forward_sums<WIDTH, BLOCKS> &sums, bf16 *shared,
                                     uint32_t row, const struct attention_pass &pass,
                                     struct attention_tile mine)
{
    uint32_t lane = threadIdx.x % WARP;
    bf16 *y = static_cast<bf16 *>(pass.y) + (mine.row + row) * pass.width + mine.column;

    UNROLL
    for (int i = 0; i < BLOCKS * 2; i++) {
        int m = i / 2, half = i % 2;
        float total = sums.total[m][half], share;
        uint32_t query = row + m * 16 + half * 8 + lane / 4;

        total += __shfl_xor_sync(0xFFFFFFFFu, total, 1);
        total += __shfl_xor_sync(0xFFFFFFFFu, total, 2);
        share = 1.0f / total;
        if (pass.statistics != NULL && lane % 4 == 0 && query < pass.steps) {
            pass.statistics[(size_t)mine.sequence * pass.steps + query] =
                sums.base[m][half] * pass.scale + logf(total);
        }
        UNROLL
        for (int n = 0; n < WIDTH / 8; n++) {
            sums.values[m][n][2 * half] *= share;
            sums.values[m][n][2 * half + 1] *= share;
        }
    }
    store_rows<WIDTH, BLOCKS>(sums.values, shared, y, pass.width, (int)(pass.steps - row));
}

template <int WIDTH, int BLOCKS>
static __device__ inline void forward_clear(struct forward_sums<WIDTH, BLOCKS> &sums)
{
    UNROLL
    for (int m = 0; m < BLOCKS; m++) {
        UNROLL
        for (int i = 0; i < WIDTH / 8 * 4; i++) {
            sums.values[m][i / 4][i % 4] = 0.0f;
        }
        /* not minus infinity: a score of that has weight 0 then, whatever comes first */
        sums.base[m][0] = sums.base[m][1] = -FLT_MAX;
        sums.total[m][0] = sums.total[m][1] = 0.0f;
    }
}

template <int WIDTH, int BLOCKS>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    attention_forward_kernel(struct attention_pass pass)
{
    typedef forward_tile<WIDTH, BLOCKS> tile;
    enum { STRIDE = tile_row<WIDTH>::STRIDE, KEYS = tile::KEYS, STAGE = 2 * KEYS * STRIDE };
    SHARED_MEMORY(bf16, shared);
    uint32_t tiles = (pass.steps + tile::ROWS - 1) / tile::ROWS;
    struct attention_tile mine = attention_tile_of(pass, blockIdx.x, tiles, false);
    uint32_t first = mine.index * tile::ROWS, own = threadIdx.x / WARP * 16 * BLOCKS;
    uint32_t seen =
        pass.is_causal && first + tile::ROWS < pass.steps ? first + tile::ROWS : pass.steps;
    size_t at = mine.row * pass.query_stride + mine.column;
    const bf16 *keys = static_cast<const bf16 *>(pass.keys) + at;
    const bf16 *values =
        static_cast<const bf16 *>(pass.values) + mine.row * pass.value_stride + mine.column;
    bf16 *queries = shared, *stages = shared + tile::ROWS * STRIDE;
    own_rows<WIDTH, BLOCKS, tile::IS_KEPT> rows;
    struct forward_sums<WIDTH, BLOCKS> sums;

    tile_load<WIDTH, tile::ROWS>(
        queries, static_cast<const bf16 *>(pass.queries) + at + first * pass.query_stride,
        pass.query_stride, pass.steps - first);
    copy_async_commit();
    tile_load<WIDTH, KEYS>(stages, keys, pass.query_stride, pass.steps);
    tile_load<WIDTH, KEYS>(stages + KEYS * STRIDE, values, pass.value_stride, pass.steps);
    copy_async_commit();
    copy_async_wait<1>();
    __syncthreads();
    own_rows_set(rows, queries + own * STRIDE);
    forward_clear(sums);
    for (uint32_t key = 0; key < seen; key += KEYS) {
        bf16 *stage = stages + key / KEYS % 2 * STAGE;
        uint32_t next = key + KEYS;

        copy_async_wait<0>();
        __syncthreads(); /* this tile is there for all, and nobody reads the one before any more */
        if (next < seen) {
            bf16 *other = stages + next / KEYS % 2 * STAGE;
            tile_load<WIDTH, KEYS>(other, keys + next * pass.query_stride, pass.query_stride,
                                   pass.steps - next);
            tile_load<WIDTH, KEYS>(other + KEYS * STRIDE, values + next * pass.value_stride,
                                   pass.value_stride, pass.steps - next);
            copy_async_commit();
        }
        if (first + own >= pass.steps) continue;                          /* no queries */
        if (pass.is_causal && key >= first + own + 16 * BLOCKS) continue; /* none that sees it */
        float scores[BLOCKS][KEYS / 8][4];
        multiply_rows<WIDTH, BLOCKS, KEYS>(scores, rows, stage);
        if (next > pass.steps || (pass.is_causal && next > first + own + 1)) {
            mask_keys<BLOCKS, KEYS>(scores, first + own, key, pass);
        }
        softmax<WIDTH, BLOCKS, KEYS>(sums, scores, pass.scale2);
        add_weighted<WIDTH, BLOCKS, KEYS>(sums.values, scores, stage + KEYS * STRIDE);
    }
    finish(sums, queries + own * STRIDE, first + own, pass, mine);
}

template <int WIDTH, int BLOCKS>
static enum rc forward_launch(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    typedef forward_tile<WIDTH, BLOCKS> tile;
    unsigned blocks = attention_tiles(*pass, tile::ROWS) * pass->sequences;

    return CUDA_CHECK(cuda, launch(attention_forward_kernel<WIDTH, BLOCKS>, dim3(blocks),
                                   dim3(TILE_THREADS), tile::BYTES, cuda->stream, *pass));
}

/* Wide heads have tiles of 128 queries only where shared memory holds them. */
template <int WIDTH> static bool has_wide(const struct cuda_backend *cuda)
{
    return forward_tile<WIDTH, 2>::BYTES <= cuda->shared_bytes_max;
}

enum rc attention_tensor_forward(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    bool is_wide = attention_is_wide(cuda, *pass);

    WITH_WIDTH(pass->head_width, {
        return is_wide && has_wide<WIDTH>(cuda) ? forward_launch<WIDTH, 2>(cuda, pass)
                                                : forward_launch<WIDTH, 1>(cuda, pass);
    });
    return RC_UNSUPPORTED;
}

template <int WIDTH, int BLOCKS> static enum rc forward_allow(struct cuda_backend *cuda)
{
    return CUDA_CHECK(cuda, launch_allow_shared(attention_forward_kernel<WIDTH, BLOCKS>,
                                                forward_tile<WIDTH, BLOCKS>::BYTES));
}

enum rc attention_tensor_allow_forward(struct cuda_backend *cuda, uint32_t head_width)
{
    enum rc rc = RC_UNSUPPORTED;

    WITH_WIDTH(head_width, {
        rc = forward_allow<WIDTH, 1>(cuda);
        if (rc == RC_OK && has_wide<WIDTH>(cuda)) rc = forward_allow<WIDTH, 2>(cuda);
    });
    return rc;
}

bool attention_tensor_has(const struct cuda_backend *cuda, uint32_t head_width)
{
    size_t bytes = SIZE_MAX;

    WITH_WIDTH(head_width, { bytes = forward_tile<WIDTH, 1>::BYTES; });
    return bytes <= cuda->shared_bytes_max;
}
