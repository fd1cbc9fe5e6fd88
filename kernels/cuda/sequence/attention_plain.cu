/*
 * Attention for heads of any width in either form of activations: the algorithms of
 * attention_tensor.cu and attention_tensor_backward.cu, which see, with plain multiplications in
 * float32.
 *
 * A block has a tile of SIDE rows (queries, or keys in the second kernel of the backward pass) and
 * CHUNK columns of the result, and goes through the other side tile by tile; a thread has 4 x 4
 * values of every product. Wide heads are spread over several blocks, each of which computes all
 * scores, CHUNK columns of the result, and nothing else.
 *
 * Products read both operands with the inner dimension first, four values at once. In row k of
 * shared memory column c lies at c ^ 4 (k / 4 % 8), so that neither those who write rows nor those
 * who write columns meet in a bank.
 */
#include "kernels/cuda/sequence/attention.cuh"

enum {
    SIDE = 64,
    CHUNK = 64, /* columns */
    INNER = 32, /* of the head's values at a time, for scores */
    EACH = 4,
    LANES = SIDE / EACH,
    PLAIN_THREADS = LANES * LANES,
};

static_assert(CHUNK == SIDE && 2 * INNER == SIDE, "one layout of threads and memory serves all");

/* Shared memory of a block. The two operands of scores also hold one of twice the height. */
struct plain_memory {
    float operands[2 * INNER][SIDE];
    float weights[SIDE][SIDE];
};

/* Rows of a matrix from some row and column on: so many are left. */
template <typename T> struct plain_rows {
    const T *at;
    size_t stride;
    uint32_t rows, columns;
};

template <typename T>
static __device__ inline struct plain_rows<T> plain_rows_of(const void *matrix, size_t stride,
                                                            size_t row, size_t column,
                                                            uint32_t rows, uint32_t columns) {
    return {static_cast<const T *>(matrix) + row * stride + column, stride, rows, columns};
}

static __device__ inline int
swizzled(int k, int column)
{
    return column ^ (k / 4 % 8 * 4);
}

/* Four neighbouring values, zeros behind the end. */
template <typename T>
static __device__ inline float4 load_four(const struct plain_rows<T> &from, uint32_t row,
                                          uint32_t column)
{
    const T *at = from.at + row * from.stride + column;
    float4 four = make_float4(0.0f, 0.0f, 0.0f, 0.0f);

    if (row >= from.rows || column >= from.columns) return four;
    if (sizeof(T) == 4 && column + 3 < from.columns && reinterpret_cast<uintptr_t>(at) % 16 == 0) {
        return *reinterpret_cast<const float4 *>(at);
    }
    four.x = load(at);
    if (column + 1 < from.columns) four.y = load(at + 1);
    if (column + 2 < from.columns) four.z = load(at + 2);
    if (column + 3 < from.columns) four.w = load(at + 3);
    return four;
}

/* INNER columns of SIDE rows, columns first. */
template <typename T>
static __device__ inline void load_columns(float (*to)[SIDE], const struct plain_rows<T> &from,
                                           uint32_t column)
{
    for (int i = threadIdx.x; i < SIDE * INNER / 4; i += PLAIN_THREADS) {
        int row = i / (INNER / 4), k = i % (INNER / 4) * 4;
        float4 four = load_four(from, row, column + k);
        to[k][swizzled(k, row)] = four.x;
        to[k + 1][swizzled(k, row)] = four.y;
        to[k + 2][swizzled(k, row)] = four.z;
        to[k + 3][swizzled(k, row)] = four.w;
    }
}

/* CHUNK columns of SIDE rows, rows first. */
template <typename T>
static __device__ inline void load_rows(float (*to)[SIDE], const struct plain_rows<T> &from,
                                        uint32_t column)
{
    for (int i = threadIdx.x; i < SIDE * CHUNK / 4; i += PLAIN_THREADS) {
        int k = i / (CHUNK / 4), at = i % (CHUNK / 4) * 4;
        *reinterpret_cast<float4 *>(&to[k][swizzled(k, at)]) = load_four(from, k, column + at);
    }
}

/* sums += a' b over INNER rows of both. */
static __device__ inline void multiply(float (&sums)[EACH][EACH], const float (*a)[SIDE],
                                       const float (*b)[SIDE])
{
    int row = threadIdx.x / LANES * EACH, column = threadIdx.x % LANES * EACH;

    UNROLL
    for (int k = 0; k < INNER; k++) {
        float4 x = *reinterpret_cast<const float4 *>(&a[k][swizzled(k, row)]);
        float4 y = *reinterpret_cast<const float4 *>(&b[k][swizzled(k, column)]);
        float left[EACH] = {x.x, x.y, x.z, x.w}, right[EACH] = {y.x, y.y, y.z, y.w};
        UNROLL
        for (int i = 0; i < EACH * EACH; i++) {
            sums[i / EACH][i % EACH] += left[i / EACH] * right[i % EACH];
        }
    }
}

/* sums = rows of a times rows of b, `width` values each. */
template <typename T>
static __device__ inline void multiply_rows(float (&sums)[EACH][EACH], struct plain_memory *memory,
                                            const struct plain_rows<T> &a,
                                            const struct plain_rows<T> &b, uint32_t width)
{
    for (int i = 0; i < EACH * EACH; i++) {
        sums[i / EACH][i % EACH] = 0.0f;
    }
    for (uint32_t k = 0; k < width; k += INNER) {
        __syncthreads(); /* nobody reads the operands before any more */
        load_columns(memory->operands, a, k);
        load_columns(memory->operands + INNER, b, k);
        __syncthreads();
        multiply(sums, memory->operands, memory->operands + INNER);
    }
}

/* sums += weights (their columns are the rows of b) times CHUNK columns of b. */
template <typename T>
static __device__ inline void add_weighted(float (&sums)[EACH][EACH], struct plain_memory *memory,
                                           const float (&weights)[EACH][EACH],
                                           const struct plain_rows<T> &b, uint32_t column)
{
    int row = threadIdx.x / LANES * EACH, first = threadIdx.x % LANES * EACH;

    __syncthreads();
    for (int j = 0; j < EACH; j++) {
        *reinterpret_cast<float4 *>(&memory->weights[first + j][swizzled(first + j, row)]) =
            make_float4(weights[0][j], weights[1][j], weights[2][j], weights[3][j]);
    }
    load_rows(memory->operands, b, column);
    __syncthreads();
    multiply(sums, memory->weights, memory->operands);
    multiply(sums, memory->weights + INNER, memory->operands + INNER);
}

/* The thread's sums times a factor a row, to rows and columns that there are. */
template <typename T>
static __device__ inline void store_sums(const float (&sums)[EACH][EACH],
                                         const float (&factors)[EACH], T *to, size_t stride,
                                         uint32_t rows, uint32_t columns)
{
    uint32_t row = threadIdx.x / LANES * EACH, column = threadIdx.x % LANES * EACH;

    for (uint32_t i = 0; i < EACH && row + i < rows; i++) {
        for (uint32_t j = 0; j < EACH && column + j < columns; j++) {
            store(to + (row + i) * stride + column + j, sums[i][j] * factors[i]);
        }
    }
}

/* Over the LANES threads of a row. */
static __device__ inline float row_max(float value)
{
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    }
    return value;
}

static __device__ inline float row_sum(float value)
{
    for (int offset = LANES / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    }
    return value;
}

struct plain_sums {
    float values[EACH][EACH];
    float maximum[EACH], total[EACH]; /* total: of the thread's own weights */
};

/* Scores to weights; `query` and `key` are the thread's first ones. */
static __device__ inline void softmax_forward(struct plain_sums &sums, float (&scores)[EACH][EACH],
                                              uint32_t query, uint32_t key,
                                              const struct attention_pass &pass)
{
    for (uint32_t i = 0; i < EACH; i++) {
        float maximum = sums.maximum[i], factor;

        for (uint32_t j = 0; j < EACH; j++) {
            if (key + j >= pass.steps || (pass.is_causal && key + j > query + i)) {
                scores[i][j] = -INFINITY;
            }
            maximum = fmaxf(maximum, scores[i][j]);
        }
        maximum = row_max(maximum);
        factor = attention_exp2((sums.maximum[i] - maximum) * pass.scale2);
        sums.maximum[i] = maximum;
        sums.total[i] *= factor;
        for (uint32_t j = 0; j < EACH; j++) {
            sums.values[i][j] *= factor;
            scores[i][j] = attention_exp2((scores[i][j] - maximum) * pass.scale2);
            sums.total[i] += scores[i][j];
        }
    }
}

template <typename T>
__global__ void __launch_bounds__(PLAIN_THREADS)
    attention_plain_forward_kernel(struct attention_pass pass)
{
    __shared__ __align__(16) struct plain_memory memory;
    struct attention_tile mine =
        attention_tile_of(pass, blockIdx.x, (pass.steps + SIDE - 1) / SIDE, false);
    uint32_t first = mine.index * SIDE, chunk = blockIdx.y * CHUNK, width = pass.head_width;
    uint32_t query = first + threadIdx.x / LANES * EACH, column = threadIdx.x % LANES * EACH;
    uint32_t seen = pass.is_causal && first + SIDE < pass.steps ? first + SIDE : pass.steps;
    struct plain_rows<T> queries = plain_rows_of<T>(
        pass.queries, pass.query_stride, mine.row + first, mine.column, pass.steps - first, width);
    T *y = static_cast<T *>(pass.y) + (mine.row + first) * pass.width + mine.column + chunk;
    struct plain_sums sums;
    float shares[EACH];

    for (int i = 0; i < EACH; i++) {
        sums.maximum[i] = -FLT_MAX;
        sums.total[i] = 0.0f;
        for (int j = 0; j < EACH; j++) {
            sums.values[i][j] = 0.0f;
        }
    }
    for (uint32_t key = 0; key < seen; key += SIDE) {
        struct plain_rows<T> keys = plain_rows_of<T>(pass.keys, pass.query_stride, mine.row + key,
                                                     mine.column, pass.steps - key, width);
        struct plain_rows<T> values = plain_rows_of<T>(
            pass.values, pass.value_stride, mine.row + key, mine.column, pass.steps - key, width);
        float scores[EACH][EACH];

        multiply_rows(scores, &memory, queries, keys, width);
        softmax_forward(sums, scores, query, key + column, pass);
        add_weighted(sums.values, &memory, scores, values, chunk);
    }
    for (uint32_t i = 0; i < EACH; i++) {
        float total = row_sum(sums.total[i]);
        shares[i] = 1.0f / total;
        if (pass.statistics != NULL && chunk + column == 0 && query + i < pass.steps) {
            pass.statistics[(size_t)mine.sequence * pass.steps + query + i] =
                sums.maximum[i] * pass.scale + logf(total);
        }
    }
    store_sums(sums.values, shares, y, pass.width, pass.steps - first, width - chunk);
}

/* What a block owns and streams: attention_tensor_backward.cu has the table. */
template <typename T> struct plain_operands {
    struct plain_rows<T> own[2], streamed[2];
};

template <typename T, bool OF_KEYS>
static __device__ inline struct plain_operands<T>
plain_operands_of(const struct attention_pass &pass, struct attention_tile mine, uint32_t own,
                  uint32_t streamed) {
    uint32_t query = OF_KEYS ? streamed : own, key = OF_KEYS ? own : streamed;
    struct plain_rows<T> queries =
        plain_rows_of<T>(pass.queries, pass.query_stride, mine.row + query, mine.column,
                         pass.steps - query, pass.head_width);
    struct plain_rows<T> dy = plain_rows_of<T>(pass.dy, pass.width, mine.row + query, mine.column,
                                               pass.steps - query, pass.head_width);
    struct plain_rows<T> keys = plain_rows_of<T>(pass.keys, pass.query_stride, mine.row + key,
                                                 mine.column, pass.steps - key, pass.head_width);
    struct plain_rows<T> values = plain_rows_of<T>(pass.values, pass.value_stride, mine.row + key,
                                                   mine.column, pass.steps - key, pass.head_width);

    if (OF_KEYS) return {{keys, values}, {queries, dy}};
    return {{queries, dy}, {keys, values}};
}

/* Scores to weights, and the gradients of weights to those of scores, but for the scale. `own` and
 * `streamed` are the thread's first rows. */
template <bool OF_KEYS>
static __device__ inline void softmax_backward(float (&scores)[EACH][EACH], uint32_t own,
                                               uint32_t streamed, const struct attention_pass &pass,
                                               const struct attention_row *rows)
{
    for (uint32_t i = 0; i < EACH * EACH; i++) {
        uint32_t query = OF_KEYS ? streamed + i % EACH : own + i / EACH;
        uint32_t key = OF_KEYS ? own + i / EACH : streamed + i % EACH;
        float *score = &scores[i / EACH][i % EACH];
        float weight = attention_weight(*score, pass.scale2, rows[query].log_sum);

        *score = pass.is_causal && key > query ? 0.0f : weight;
    }
}

template <bool OF_KEYS>
static __device__ inline void
weights_to_dscores(float (&weights)[EACH][EACH], const float (&dweights)[EACH][EACH], uint32_t own,
                   uint32_t streamed, const struct attention_row *rows)
{
    for (uint32_t i = 0; i < EACH * EACH; i++) {
        uint32_t query = OF_KEYS ? streamed + i % EACH : own + i / EACH;
        weights[i / EACH][i % EACH] *= dweights[i / EACH][i % EACH] - rows[query].delta;
    }
}

template <typename T, bool OF_KEYS>
__global__ void __launch_bounds__(PLAIN_THREADS, 2)
    attention_plain_backward_kernel(struct attention_pass pass)
{
    __shared__ __align__(16) struct plain_memory memory;
    struct attention_tile mine =
        attention_tile_of(pass, blockIdx.x, (pass.steps + SIDE - 1) / SIDE, OF_KEYS);
    uint32_t first = mine.index * SIDE, chunk = blockIdx.y * CHUNK, width = pass.head_width;
    uint32_t row = first + threadIdx.x / LANES * EACH, column = threadIdx.x % LANES * EACH;
    uint32_t begin = OF_KEYS && pass.is_causal ? first : 0, end = pass.steps;
    const struct attention_row *rows = pass.rows + (size_t)mine.sequence * pass.padded;
    size_t stride = 3 * (size_t)pass.width;
    T *to = static_cast<T *>(pass.dqkv) + (mine.row + first) * stride + mine.column + chunk;
    float sums[2][EACH][EACH] = {}, scales[EACH], ones[EACH];

    if (!OF_KEYS && pass.is_causal && first + SIDE < end) end = first + SIDE;
    for (uint32_t at = begin; at < end; at += SIDE) {
        struct plain_operands<T> of = plain_operands_of<T, OF_KEYS>(pass, mine, first, at);
        float weights[EACH][EACH], dweights[EACH][EACH];

        multiply_rows(weights, &memory, of.own[0], of.streamed[0], width);
        softmax_backward<OF_KEYS>(weights, row, at + column, pass, rows);
        if (OF_KEYS) add_weighted(sums[1], &memory, weights, of.streamed[1], chunk);
        multiply_rows(dweights, &memory, of.own[1], of.streamed[1], width);
        weights_to_dscores<OF_KEYS>(weights, dweights, row, at + column, rows);
        add_weighted(sums[0], &memory, weights, of.streamed[0], chunk);
    }
    for (int i = 0; i < EACH; i++) {
        scales[i] = pass.scale;
        ones[i] = 1.0f;
    }
    store_sums(sums[0], scales, to + (OF_KEYS ? pass.width : 0), stride, pass.steps - first,
               width - chunk);
    if (OF_KEYS) {
        store_sums(sums[1], ones, to + 2 * (size_t)pass.width, stride, pass.steps - first,
                   width - chunk);
    }
}

static dim3 plain_grid(const struct attention_pass &pass)
{
    return dim3(attention_tiles(pass, SIDE) * pass.sequences,
                (pass.head_width + CHUNK - 1) / CHUNK);
}

enum rc attention_plain_forward(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    enum rc rc;

    WITH_ACTIVATIONS(
        cuda, rc = CUDA_CHECK(cuda, launch(attention_plain_forward_kernel<T>, plain_grid(*pass),
                                           dim3(PLAIN_THREADS), 0, cuda->stream, *pass)));
    return rc;
}

template <typename T, bool OF_KEYS>
static enum rc backward_launch(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    return CUDA_CHECK(cuda, launch(attention_plain_backward_kernel<T, OF_KEYS>, plain_grid(*pass),
                                   dim3(PLAIN_THREADS), 0, cuda->stream, *pass));
}

enum rc attention_plain_backward(struct cuda_backend *cuda, const struct attention_pass *pass)
{
    enum rc rc;

    if (cuda->is_bf16) {
        rc = backward_launch<bf16, true>(cuda, pass);
        return rc == RC_OK ? backward_launch<bf16, false>(cuda, pass) : rc;
    }
    rc = backward_launch<float, true>(cuda, pass);
    return rc == RC_OK ? backward_launch<float, false>(cuda, pass) : rc;
}
