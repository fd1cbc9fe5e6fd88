/*
 * Attention backward in bfloat16 on tensor cores (Dao 2023, arXiv:2307.08691, Algorithm 2). With
 * the weights P again from the scores and the forward pass's statistics, and D = rowsum(dy y):
 *     dV = P' dY     dP = dY V'     dS = P (dP - D) / sqrt(width)     dQ = dS K     dK = dS' Q
 *
 * Where we differ: the paper's blocks own keys and add to all queries' gradients by atomic
 * operations, whose order changes from run to run. Here a second kernel, whose blocks own queries,
 * computes dQ: seven products in place of five, and equal bits. Both are one template. A block owns
 * rows of two matrices and streams rows of the other two past them:
 *     of queries: owns Q, dY; streams K, V;  P = Q K',  dP = dY V';            dQ += dS K
 *     of keys:    owns K, V;  streams Q, dY; P' = K Q', dP' = V dY';  dV += P' dY,  dK += dS' Q
 */
#include "kernels/cuda/sequence/attention_tensor.cuh"

template <int WIDTH, int BLOCKS, bool OF_KEYS> struct backward_tile {
    enum {
        ROWS = WARPS * 16 * BLOCKS,
        STREAM = WIDTH <= 64 ? 64 : 32, /* rows of a streamed tile */
        CHUNK = 32,                     /* of them at a time: their scores lie in registers */
        IS_KEPT = !OF_KEYS && WIDTH <= 64,
        MATRIX = STREAM * tile_row<WIDTH>::STRIDE, /* in values */
    };
    static constexpr size_t LINES = OF_KEYS ? STREAM * sizeof(struct attention_row) : 0;
    static constexpr size_t STAGE = 2 * MATRIX * sizeof(bf16) + LINES;
    static constexpr size_t BYTES = 2 * tile_bytes<WIDTH>(ROWS) + 2 * STAGE;
};

template <int WIDTH, int BLOCKS, bool OF_KEYS> struct backward_sums {
    float first[BLOCKS][WIDTH / 8][4];                /* dQ or dK */
    float second[OF_KEYS ? BLOCKS : 1][WIDTH / 8][4]; /* dV */
};

/* What a block owns and streams. */
struct backward_operands {
    const bf16 *own[2], *streamed[2];
    size_t own_stride[2], streamed_stride[2];
};

template <bool OF_KEYS>
static __device__ inline struct backward_operands
backward_operands_of(const struct attention_pass &pass, struct attention_tile mine)
{
    size_t rotated = mine.row * pass.query_stride + mine.column;
    const bf16 *queries = static_cast<const bf16 *>(pass.queries) + rotated;
    const bf16 *keys = static_cast<const bf16 *>(pass.keys) + rotated;
    const bf16 *values =
        static_cast<const bf16 *>(pass.values) + mine.row * pass.value_stride + mine.column;
    const bf16 *dy = static_cast<const bf16 *>(pass.dy) + mine.row * pass.width + mine.column;

    if (OF_KEYS) {
        return {{keys, values},
                {queries, dy},
                {pass.query_stride, pass.value_stride},
                {pass.query_stride, pass.width}};
    }
    return {{queries, dy},
            {keys, values},
            {pass.query_stride, pass.width},
            {pass.query_stride, pass.value_stride}};
}

/* Rows from `row` on of what is streamed, and of keys what belongs to the queries. */
template <int WIDTH, int BLOCKS, bool OF_KEYS>
static __device__ inline void stream_load(bf16 *stage, const struct backward_operands &from,
                                          uint32_t row, const struct attention_pass &pass,
                                          uint32_t sequence)
{
    typedef backward_tile<WIDTH, BLOCKS, OF_KEYS> tile;
    enum { LINES = tile::LINES / 16 };

    UNROLL
    for (int i = 0; i < 2; i++) {
        tile_load<WIDTH, tile::STREAM>(stage + i * tile::MATRIX,
                                       from.streamed[i] + row * from.streamed_stride[i],
                                       from.streamed_stride[i], pass.steps - row);
    }
    if (OF_KEYS && threadIdx.x < LINES) {
        const struct attention_row *lines = pass.rows + (size_t)sequence * pass.padded + row;
        copy_async(stage + 2 * tile::MATRIX + threadIdx.x * PIECE, lines + threadIdx.x * 2, true);
    }
    copy_async_commit();
}

/* What belongs to the query of sums[m][n][j]: of keys a column, otherwise a row of the warp. */
template <int BLOCKS, bool OF_KEYS> struct backward_rows {
    const struct attention_row *columns;               /* OF_KEYS: the chunk's, in shared memory */
    struct attention_row own[OF_KEYS ? 1 : BLOCKS][2]; /* otherwise */
};

/* Scores to weights. */
template <int BLOCKS, int CHUNK, bool OF_KEYS>
static __device__ inline void softmax(float (&scores)[BLOCKS][CHUNK / 8][4],
                                      const struct backward_rows<BLOCKS, OF_KEYS> &rows,
                                      float scale2)
{
    uint32_t lane = threadIdx.x % WARP;

    UNROLL
    for (int n = 0; n < CHUNK / 8; n++) {
        float4 pair = make_float4(0.0f, 0.0f, 0.0f, 0.0f); /* log_sum, delta of two queries */
        if (OF_KEYS) {
            pair = *reinterpret_cast<const float4 *>(rows.columns + n * 8 + lane % 4 * 2);
        }
        UNROLL
        for (int i = 0; i < BLOCKS * 4; i++) {
            int m = i / 4, j = i % 4;
            float log_sum =
                OF_KEYS ? (j % 2 == 0 ? pair.x : pair.z) : rows.own[OF_KEYS ? 0 : m][j / 2].log_sum;
            scores[m][n][j] = attention_weight(scores[m][n][j], scale2, log_sum);
        }
    }
}

/* No weight where a query does not see a key. `row`, `column`: the first ones. */
template <int BLOCKS, int CHUNK, bool OF_KEYS>
static __device__ inline void mask_weights(float (&weights)[BLOCKS][CHUNK / 8][4], uint32_t row,
                                           uint32_t column)
{
    uint32_t lane = threadIdx.x % WARP;

    UNROLL
    for (int i = 0; i < BLOCKS * (CHUNK / 8) * 4; i++) {
        int m = i / (CHUNK / 2), n = i / 4 % (CHUNK / 8), j = i % 4;
        uint32_t own = row + m * 16 + j / 2 * 8 + lane / 4;
        uint32_t other = column + n * 8 + lane % 4 * 2 + j % 2;
        if (OF_KEYS ? own > other : other > own) weights[m][n][j] = 0.0f;
    }
}

/* weights *= their gradients - what these have in common. */
template <int BLOCKS, int CHUNK, bool OF_KEYS>
static __device__ inline void weights_to_dscores(float (&weights)[BLOCKS][CHUNK / 8][4],
                                                 const float (&dweights)[BLOCKS][CHUNK / 8][4],
                                                 const struct backward_rows<BLOCKS, OF_KEYS> &rows)
{
    uint32_t lane = threadIdx.x % WARP;

    UNROLL
    for (int n = 0; n < CHUNK / 8; n++) {
        float4 pair = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        if (OF_KEYS) {
            pair = *reinterpret_cast<const float4 *>(rows.columns + n * 8 + lane % 4 * 2);
        }
        UNROLL
        for (int i = 0; i < BLOCKS * 4; i++) {
            int m = i / 4, j = i % 4;
            float delta =
                OF_KEYS ? (j % 2 == 0 ? pair.y : pair.w) : rows.own[OF_KEYS ? 0 : m][j / 2].delta;
            weights[m][n][j] *= dweights[m][n][j] - delta;
        }
    }
}

/* sums *= scale, rotated back where there is a rotation. A pair lies in one lane: columns 8 n + c
 * and 8 (n + WIDTH / 16) + c. */
template <int WIDTH, int BLOCKS>
static __device__ inline void rotate_back(float (&sums)[BLOCKS][WIDTH / 8][4], uint32_t row,
                                          const struct attention_pass &pass)
{
    uint32_t lane = threadIdx.x % WARP;

    UNROLL
    for (int i = 0; i < BLOCKS * (WIDTH / 16) * 2; i++) {
        int m = i / (WIDTH / 8), n = i / 2 % (WIDTH / 16), half = i % 2;
        uint32_t step = row + m * 16 + half * 8 + lane / 4;
        float *first = sums[m][n] + 2 * half, *second = sums[m][n + WIDTH / 16] + 2 * half;
        float4 angle = make_float4(1.0f, 0.0f, 1.0f, 0.0f); /* cosine, sine, cosine, sine */

        if (pass.rotation != NULL && step < pass.steps) {
            angle = *reinterpret_cast<const float4 *>(pass.rotation + (size_t)step * (WIDTH / 2) +
                                                      n * 8 + lane % 4 * 2);
        }
        UNROLL
        for (int j = 0; j < 2; j++) {
            float cosine = j == 0 ? angle.x : angle.z, sine = j == 0 ? angle.y : angle.w;
            float a = first[j] * pass.scale, b = second[j] * pass.scale;
            first[j] = a * cosine + b * sine;
            second[j] = b * cosine - a * sine;
        }
    }
}

template <int WIDTH, int BLOCKS, bool OF_KEYS>
static __device__ inline void
backward_finish(struct backward_sums<WIDTH, BLOCKS, OF_KEYS> &sums, bf16 *shared, uint32_t row,
                const struct attention_pass &pass, struct attention_tile mine)
{
    typedef backward_tile<WIDTH, BLOCKS, OF_KEYS> tile;
    size_t stride = 3 * (size_t)pass.width;
    bf16 *to = static_cast<bf16 *>(pass.dqkv) + (mine.row + row) * stride + mine.column;
    int left = (int)(pass.steps - row);

    rotate_back<WIDTH, BLOCKS>(sums.first, row, pass);
    store_rows<WIDTH, BLOCKS>(sums.first, shared, to + (OF_KEYS ? pass.width : 0), stride, left);
    if constexpr (OF_KEYS) {
        shared += tile::ROWS * tile_row<WIDTH>::STRIDE;
        store_rows<WIDTH, BLOCKS>(sums.second, shared, to + 2 * (size_t)pass.width, stride, left);
    }
}

/* CHUNK streamed rows: `row` and `column` are the warp's first row and the first of them. */
template <int WIDTH, int BLOCKS, bool OF_KEYS, bool IS_KEPT>
static __device__ inline void backward_chunk(struct backward_sums<WIDTH, BLOCKS, OF_KEYS> &sums,
                                             const own_rows<WIDTH, BLOCKS, IS_KEPT> (&own)[2],
                                             const struct backward_rows<BLOCKS, OF_KEYS> &rows,
                                             const bf16 *first, const bf16 *second, uint32_t row,
                                             uint32_t column, const struct attention_pass &pass)
{
    enum { CHUNK = backward_tile<WIDTH, BLOCKS, OF_KEYS>::CHUNK };
    float weights[BLOCKS][CHUNK / 8][4], dweights[BLOCKS][CHUNK / 8][4];
    bool masks = OF_KEYS ? column < row + 16 * BLOCKS - 1 : column + CHUNK - 1 > row;

    multiply_rows<WIDTH, BLOCKS, CHUNK>(weights, own[0], first);
    softmax<BLOCKS, CHUNK, OF_KEYS>(weights, rows, pass.scale2);
    if (pass.is_causal && masks) mask_weights<BLOCKS, CHUNK, OF_KEYS>(weights, row, column);
    if constexpr (OF_KEYS) add_weighted<WIDTH, BLOCKS, CHUNK>(sums.second, weights, second);
    multiply_rows<WIDTH, BLOCKS, CHUNK>(dweights, own[1], second);
    weights_to_dscores<BLOCKS, CHUNK, OF_KEYS>(weights, dweights, rows);
    add_weighted<WIDTH, BLOCKS, CHUNK>(sums.first, weights, first);
}

template <int WIDTH, int BLOCKS, bool OF_KEYS>
static __device__ inline void backward_clear(struct backward_sums<WIDTH, BLOCKS, OF_KEYS> &sums)
{
    UNROLL
    for (int i = 0; i < BLOCKS * (WIDTH / 8) * 4; i++) {
        int m = i / (WIDTH / 2), n = i / 4 % (WIDTH / 8);
        sums.first[m][n][i % 4] = 0.0f;
        if (OF_KEYS) sums.second[OF_KEYS ? m : 0][n][i % 4] = 0.0f;
    }
}

template <int WIDTH, int BLOCKS, bool OF_KEYS>
__global__ void __launch_bounds__(TILE_THREADS, 2)
    attention_backward_kernel(struct attention_pass pass)
{
    typedef backward_tile<WIDTH, BLOCKS, OF_KEYS> tile;
    enum { STRIDE = tile_row<WIDTH>::STRIDE, ROWS = tile::ROWS, STREAM = tile::STREAM };
    SHARED_MEMORY(bf16, shared);
    uint32_t lane = threadIdx.x % WARP, own_row = threadIdx.x / WARP * 16 * BLOCKS;
    struct attention_tile mine =
        attention_tile_of(pass, blockIdx.x, (pass.steps + tile::ROWS - 1) / tile::ROWS, OF_KEYS);
    struct backward_operands from = backward_operands_of<OF_KEYS>(pass, mine);
    uint32_t first = mine.index * ROWS, row = first + own_row;
    uint32_t begin = OF_KEYS && pass.is_causal ? first : 0, end = pass.steps;
    bf16 *stages = shared + 2 * ROWS * STRIDE;
    own_rows<WIDTH, BLOCKS, tile::IS_KEPT> own[2];
    struct backward_rows<BLOCKS, OF_KEYS> rows;
    struct backward_sums<WIDTH, BLOCKS, OF_KEYS> sums;

    if (!OF_KEYS && pass.is_causal && first + ROWS < end) end = first + ROWS;
    for (int i = 0; i < 2; i++) {
        tile_load<WIDTH, ROWS>(shared + i * ROWS * STRIDE, from.own[i] + first * from.own_stride[i],
                               from.own_stride[i], pass.steps - first);
    }
    copy_async_commit();
    stream_load<WIDTH, BLOCKS, OF_KEYS>(stages, from, begin, pass, mine.sequence);
    for (int i = 0; !OF_KEYS && i < BLOCKS * 2; i++) {
        rows.own[OF_KEYS ? 0 : i / 2][i % 2] =
            pass.rows[(size_t)mine.sequence * pass.padded + row + i * 8 + lane / 4];
    }
    copy_async_wait<1>();
    __syncthreads();
    own_rows_set(own[0], shared + own_row * STRIDE);
    own_rows_set(own[1], shared + (ROWS + own_row) * STRIDE);
    backward_clear(sums);
    for (uint32_t at = begin, slot = 0; at < end; at += STREAM, slot ^= 1) {
        bf16 *stage = stages + slot * (tile::STAGE / sizeof(bf16));

        copy_async_wait<0>();
        __syncthreads(); /* this tile is there for all, and nobody reads the one before any more */
        if (at + STREAM < end) {
            stream_load<WIDTH, BLOCKS, OF_KEYS>(stages + (slot ^ 1) * (tile::STAGE / sizeof(bf16)),
                                                from, at + STREAM, pass, mine.sequence);
        }
        for (uint32_t chunk = 0; chunk < STREAM; chunk += tile::CHUNK) {
            uint32_t column = at + chunk;
            if (row >= pass.steps || column >= pass.steps) continue;
            if (pass.is_causal &&
                (OF_KEYS ? column + tile::CHUNK <= row : column >= row + 16 * BLOCKS)) {
                continue; /* no query of one sees a key of the other */
            }
            rows.columns =
                reinterpret_cast<const struct attention_row *>(stage + 2 * tile::MATRIX) + chunk;
            backward_chunk<WIDTH, BLOCKS, OF_KEYS>(sums, own, rows, stage + chunk * STRIDE,
                                                   stage + tile::MATRIX + chunk * STRIDE, row,
                                                   column, pass);
        }
    }
    backward_finish(sums, shared + own_row * STRIDE, row, pass, mine);
}

template <int WIDTH, int BLOCKS, bool OF_KEYS>
static enum rc backward_launch(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    typedef backward_tile<WIDTH, BLOCKS, OF_KEYS> tile;
    unsigned blocks = attention_tiles(*pass, tile::ROWS) * pass->sequences;

    return CUDA_CHECK(cuda, launch(attention_backward_kernel<WIDTH, BLOCKS, OF_KEYS>, dim3(blocks),
                                   dim3(TILE_THREADS), tile::BYTES, cuda->stream, *pass));
}

/* Wider heads than 64 have no registers for two blocks of rows. */
template <int WIDTH> static constexpr int wide_blocks = WIDTH <= 64 ? 2 : 1;

enum rc attention_tensor_backward(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    bool is_wide = attention_is_wide(cuda, *pass);
    enum rc rc = RC_UNSUPPORTED;

    WITH_WIDTH(pass->head_width, {
        enum { WIDE = wide_blocks<WIDTH> };
        rc = is_wide ? backward_launch<WIDTH, WIDE, true>(cuda, pass)
                     : backward_launch<WIDTH, 1, true>(cuda, pass);
        if (rc != RC_OK) break;
        rc = is_wide ? backward_launch<WIDTH, WIDE, false>(cuda, pass)
                     : backward_launch<WIDTH, 1, false>(cuda, pass);
    });
    return rc;
}

template <int WIDTH, int BLOCKS> static enum rc backward_allow(struct cuda_backend *cuda)
{
    enum rc rc;

    CUDA_TRY(cuda, launch_allow_shared(attention_backward_kernel<WIDTH, BLOCKS, true>,
                                       backward_tile<WIDTH, BLOCKS, true>::BYTES));
    CUDA_TRY(cuda, launch_allow_shared(attention_backward_kernel<WIDTH, BLOCKS, false>,
                                       backward_tile<WIDTH, BLOCKS, false>::BYTES));
out:
    return rc;
}

enum rc attention_tensor_allow_backward(struct cuda_backend *cuda, uint32_t head_width)
{
    enum rc rc = RC_UNSUPPORTED;

    WITH_WIDTH(head_width, {
        rc = backward_allow<WIDTH, 1>(cuda);
        if (rc == RC_OK) rc = backward_allow<WIDTH, wide_blocks<WIDTH>>(cuda);
    });
    return rc;
}
