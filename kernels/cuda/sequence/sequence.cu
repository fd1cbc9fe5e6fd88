/*
 * Embeddings: rows of a table by token, and a learned table of positions.
 *
 * The way back of an embedding adds the rows of each token to the token's row of the table, without
 * atomics, so that equal calls give equal bits. Rows go through in panels of PANEL_ROWS: rank_rows
 * brings a panel into the order of tokens, rows of one token in their own order: a row's rank is
 * the number of rows that come before it, counted outright (at 8,192 rows some microseconds, less
 * than the launches of a sort). add_rows cuts that order into parts of PART_ROWS, however often a
 * token occurs: all of a token's rows inside a part are added to the table at once; where they
 * cross the part's ends their sums go to scratch, and join_parts adds those up, the first part
 * first.
 */
#include "kernels/cuda/each.cuh"

#include <math.h>

enum {
    PANEL_ROWS = 8192,
    PART_ROWS = 16,
    BATCH_ROWS = 4, /* read at once */
    RANK_TILE = 1024,
    RANK_SLICES = THREADS / WARP,
    COLUMN_THREADS_MAX = 128,
};

/* Of a token that is none: `symbols`. NaN fails the comparisons. */
__device__ static inline uint32_t token_of(float token, uint32_t symbols)
{
    bool is_inside = token >= 0.0F && static_cast<double>(token) < static_cast<double>(symbols);

    return is_inside && floorf(token) == token ? static_cast<uint32_t>(token) : symbols;
}

/* --- the way forward ---------------------------------------------------------------------------*/

/* The row of a token that is none becomes NaN, and so does the loss, where people see it. */
template <typename T> struct embedding_operation {
    uint32_t symbols, width;
    const float *tokens, *table;
    T *y;

    template <int N> __device__ void at(size_t i) const
    {
        size_t row = i / width, column = i - row * width;
        uint32_t token = token_of(tokens[row], symbols);
        float values[N];

        if (token < symbols) {
            load_values<N>(table + token * static_cast<size_t>(width) + column, values);
        } else {
            for (int k = 0; k < N; k++) {
                values[k] = NAN;
            }
        }
        store_values<N>(y + i, values);
    }
};

template <typename T>
static enum rc look_up(struct cuda_backend *cuda, const struct embedding *embedding, size_t rows,
                       const float *tokens, const float *table, T *y)
{
    constexpr int N = access_values<T>();
    embedding_operation<T> operation = {embedding->symbols, embedding->width, tokens, table, y};

    return for_each_value<N>(cuda, operation, rows * embedding->width,
                             is_aligned(table) && is_aligned(y) && embedding->width % N == 0);
}

enum rc cuda_embedding_forward(struct backend *backend, const struct embedding *embedding,
                               size_t rows, const float *tokens, const float *table, void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    CHECK(embedding->symbols > 0 && embedding->width > 0);
    WITH_ACTIVATIONS(cuda, rc = look_up(cuda, embedding, rows, tokens, table, as<T>(y)));
    return rc;
}

/* --- the way back ------------------------------------------------------------------------------*/

/* Of a panel with `left` rows from its first one on. */
__host__ __device__ static inline uint32_t panel_rows(size_t left)
{
    return left < PANEL_ROWS ? static_cast<uint32_t>(left) : static_cast<uint32_t>(PANEL_ROWS);
}

/* A row of a panel, in the order of tokens. */
struct ranked {
    uint32_t token, row; /* row: of the panel */
};

/* Tokens of a tile, four in one access. */
typedef access<uint32_t, 4> four_tokens;

enum { RANK_FOURS = RANK_TILE / 4, SLICE_FOURS = RANK_FOURS / RANK_SLICES };

__device__ static inline void read_tile(const float *tokens, uint32_t left, uint32_t symbols,
                                        four_tokens *tile)
{
    for (uint32_t i = threadIdx.y * WARP + threadIdx.x; i < RANK_TILE; i += THREADS) {
        tile[i / 4].values[i % 4] = i < left ? token_of(tokens[i], symbols) : UINT32_MAX;
    }
}

/* Of a slice, the tokens before `token`, and equal ones of the first `r` rows. */
__device__ static inline uint32_t count_slice(const four_tokens *slice, uint32_t token, uint32_t r)
{
    uint32_t count = 0;

    if (r == 0 || r >= 4 * SLICE_FOURS) {
        uint32_t bound = r == 0 ? token : token + 1;
#pragma unroll 8
        for (int i = 0; i < SLICE_FOURS; i++) {
            four_tokens four = slice[i];
            for (int k = 0; k < 4; k++) {
                count += four.values[k] < bound ? 1 : 0;
            }
        }
        return count;
    }
    for (uint32_t i = 0; i < 4 * SLICE_FOURS; i++) {
        count += slice[i / 4].values[i % 4] < token + (i < r ? 1 : 0) ? 1 : 0;
    }
    return count;
}

/* Blocks of WARP x RANK_SLICES threads: a column of threads has a row, and each of them counts in
 * one slice of the panel's tiles. One panel for each blockIdx.y. */
__global__ void rank_rows(const float *tokens, size_t rows, uint32_t symbols, ranked *order)
{
    __shared__ four_tokens tile[RANK_FOURS];
    __shared__ uint32_t counts[RANK_SLICES][WARP];
    size_t panel = blockIdx.y * static_cast<size_t>(PANEL_ROWS);
    uint32_t left = panel_rows(rows - panel);
    uint32_t r = blockIdx.x * WARP + threadIdx.x, rank = 0;
    uint32_t token = r < left ? token_of(tokens[panel + r], symbols) : symbols;

    for (uint32_t first = 0; first < left; first += RANK_TILE) {
        uint32_t begin = first + 4 * SLICE_FOURS * threadIdx.y;
        __syncthreads();
        read_tile(tokens + panel + first, left - first, symbols, tile);
        __syncthreads();
        rank += count_slice(tile + SLICE_FOURS * threadIdx.y, token, r > begin ? r - begin : 0);
    }
    counts[threadIdx.y][threadIdx.x] = rank;
    __syncthreads();
    if (threadIdx.y > 0 || r >= left) return;
    for (int s = 1; s < RANK_SLICES; s++) {
        rank += counts[s][threadIdx.x];
    }
    order[panel + rank] = {token, r};
}

/* One panel; all matrices [..][width]. */
struct embedding_panel {
    uint32_t rows, symbols, width;
    const ranked *order; /* [rows] */
    float *crossing;     /* two rows for each part: sums of the token that began in an earlier
                            part, and of the one that goes on in the next */
    float *dtable;
};

/* A part as it lies in shared memory, with the entries before and behind it. */
struct embedding_part {
    ranked entries[PART_ROWS + 2];
};

__device__ static inline void read_part(const embedding_panel &panel, uint32_t first,
                                        embedding_part *part)
{
    for (uint32_t i = threadIdx.x; i < PART_ROWS + 2; i += blockDim.x) {
        uint32_t at = first + i;
        bool is_there = at >= 1 && at - 1 < panel.rows;
        part->entries[i] = is_there ? panel.order[at - 1] : ranked{UINT32_MAX, 0};
    }
    __syncthreads();
}

/* The sum of a token's rows in this part, the last of which is entry `i`, goes where it belongs. */
template <int N>
__device__ static inline void put_rows(const embedding_panel &panel, const embedding_part &part,
                                       int i, bool began_before, uint32_t column, const float *sum,
                                       const float *table)
{
    uint32_t token = part.entries[i].token;
    bool goes_on = i == PART_ROWS && part.entries[i + 1].token == token;
    size_t width = panel.width;
    float to[N];

    if (began_before || goes_on) {
        size_t place = 2 * static_cast<size_t>(blockIdx.x) + (began_before ? 0 : 1);
        store_values<N>(panel.crossing + place * width + column, sum);
        return;
    }
    for (int k = 0; k < N; k++) {
        to[k] = table[k] + sum[k];
    }
    store_values<N>(panel.dtable + token * width + column, to);
}

/* Block x: a part; block y and thread: N columns. All threads of a block go the same way. */
template <typename T, int N> __global__ void add_rows(embedding_panel panel, const T *dy)
{
    __shared__ embedding_part part;
    uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * N;
    bool began_before;
    float sum[N] = {0.0F};

    read_part(panel, blockIdx.x * PART_ROWS, &part);
    if (column >= panel.width) return;
    began_before = part.entries[0].token == part.entries[1].token;
    for (int first = 1; first <= PART_ROWS; first += BATCH_ROWS) {
        float rows[BATCH_ROWS][N], tables[BATCH_ROWS][N];
#pragma unroll
        for (int b = 0; b < BATCH_ROWS; b++) {
            ranked entry = part.entries[first + b];
            size_t at = entry.row * static_cast<size_t>(panel.width) + column;
            if (entry.token >= panel.symbols) continue;
            load_values<N>(dy + at, rows[b]);
            if (part.entries[first + b + 1].token == entry.token) continue;
            at = entry.token * static_cast<size_t>(panel.width) + column;
            load_values<N>(panel.dtable + at, tables[b]);
        }
#pragma unroll
        for (int b = 0; b < BATCH_ROWS; b++) {
            uint32_t token = part.entries[first + b].token;
            if (token >= panel.symbols) return; /* they come last */
            for (int k = 0; k < N; k++) {
                sum[k] += rows[b][k];
            }
            if (part.entries[first + b + 1].token == token && first + b < PART_ROWS) continue;
            put_rows<N>(panel, part, first + b, began_before, column, sum, tables[b]);
            began_before = false;
            for (int k = 0; k < N; k++) {
                sum[k] = 0.0F;
            }
        }
    }
}

/* The block of the part that a token's crossing rows begin in has that token. */
template <int N> __global__ void join_parts(embedding_panel panel)
{
    uint32_t column = (blockIdx.y * blockDim.x + threadIdx.x) * N, last, token;
    const ranked *order = panel.order;
    size_t width = panel.width, part = blockIdx.x;
    double sum[N];
    float values[N];

    last = (blockIdx.x + 1) * PART_ROWS - 1;
    if (last + 1 >= panel.rows || column >= panel.width) return;
    token = order[last].token;
    if (token >= panel.symbols || order[last + 1].token != token) return;
    if (part > 0 && order[part * PART_ROWS].token == token &&
        order[part * PART_ROWS - 1].token == token) {
        return;
    }
    load_values<N>(panel.crossing + (2 * part + 1) * width + column, values);
    for (int k = 0; k < N; k++) {
        sum[k] = static_cast<double>(values[k]);
    }
#pragma unroll 4
    for (part++; part * PART_ROWS < panel.rows; part++) {
        if (order[part * PART_ROWS].token != token) break;
        load_values<N>(panel.crossing + 2 * part * width + column, values);
        for (int k = 0; k < N; k++) {
            sum[k] += static_cast<double>(values[k]);
        }
    }
    load_values<N>(panel.dtable + token * width + column, values);
    for (int k = 0; k < N; k++) {
        values[k] = static_cast<float>(static_cast<double>(values[k]) + sum[k]);
    }
    store_values<N>(panel.dtable + token * width + column, values);
}

static size_t order_bytes(size_t rows)
{
    size_t bytes = rows * sizeof(ranked);

    return bytes + (ACCESS_BYTES - bytes % ACCESS_BYTES) % ACCESS_BYTES;
}

static size_t parts_of(size_t rows)
{
    return (rows + PART_ROWS - 1) / PART_ROWS;
}

size_t cuda_embedding_scratch(const struct embedding *embedding, size_t rows)
{
    size_t parts = parts_of(panel_rows(rows));

    return order_bytes(rows) + 2 * parts * embedding->width * sizeof(float);
}

template <typename T, int N>
static cudaError_t launch_panel(struct cuda_backend *cuda, const embedding_panel &panel,
                                const T *dy)
{
    unsigned warps = (panel.width + WARP * N - 1) / (WARP * N), threads = warps * WARP;
    cudaError_t error;
    dim3 grid(static_cast<unsigned>(parts_of(panel.rows)));

    if (threads > COLUMN_THREADS_MAX) threads = COLUMN_THREADS_MAX;
    grid.y = (panel.width + threads * N - 1) / (threads * N);
    error = launch(add_rows<T, N>, grid, threads, 0, cuda->stream, panel, dy);
    if (error != cudaSuccess || grid.x == 1) return error;
    return launch(join_parts<N>, grid, threads, 0, cuda->stream, panel);
}

template <typename T>
static enum rc add_panels(struct cuda_backend *cuda, const struct embedding *embedding, size_t rows,
                          const float *tokens, const T *dy, float *dtable)
{
    constexpr int N = access_values<T>();
    unsigned panels = static_cast<unsigned>((rows + PANEL_ROWS - 1) / PANEL_ROWS);
    unsigned blocks = (panel_rows(rows) + WARP - 1) / WARP;
    ranked *order = static_cast<ranked *>(cuda->scratch);
    float *crossing =
        reinterpret_cast<float *>(reinterpret_cast<uint8_t *>(order) + order_bytes(rows));
    bool are_aligned = is_aligned(dy) && is_aligned(dtable) && embedding->width % N == 0;
    enum rc rc;

    CUDA_TRY(cuda, launch(rank_rows, dim3(blocks, panels), dim3(WARP, RANK_SLICES), 0, cuda->stream,
                          tokens, rows, embedding->symbols, order));
    for (size_t first = 0; first < rows; first += PANEL_ROWS) {
        uint32_t count = panel_rows(rows - first);
        embedding_panel panel = {count,         embedding->symbols, embedding->width,
                                 order + first, crossing,           dtable};
        const T *from = dy + first * embedding->width;
        cudaError_t error = are_aligned ? launch_panel<T, N>(cuda, panel, from)
                                        : launch_panel<T, 1>(cuda, panel, from);
        CUDA_TRY(cuda, error);
    }
out:
    return rc;
}

enum rc cuda_embedding_backward(struct backend *backend, const struct embedding *embedding,
                                size_t rows, const float *tokens, const void *dy, float *dtable)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t bytes = cuda_embedding_scratch(embedding, rows);
    enum rc rc = cuda->is_recording ? RC_OK : cuda_scratch_reserve(cuda, bytes);

    CHECK(embedding->symbols > 0 && embedding->symbols < UINT32_MAX && embedding->width > 0);
    CHECK(rc != RC_OK || bytes <= cuda->scratch_bytes);
    if (rc != RC_OK || rows == 0) return rc;
    WITH_ACTIVATIONS(cuda, rc = add_panels(cuda, embedding, rows, tokens, as<T>(dy), dtable));
    return rc;
}

/* --- positions ---------------------------------------------------------------------------------*/

template <typename T> struct positions_operation {
    size_t span; /* of a sample */
    const T *x;
    const float *table;
    T *y;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N], shifts[N];

        load_values<N>(x + i, values);
        load_values<N>(table + i % span, shifts);
        for (int k = 0; k < N; k++) {
            values[k] += shifts[k];
        }
        store_values<N>(y + i, values);
    }
};

template <typename T>
static enum rc add_positions(struct cuda_backend *cuda, size_t span, size_t n, const T *x,
                             const float *table, T *y)
{
    constexpr int N = access_values<T>();
    bool are_aligned = is_aligned(x) && is_aligned(table) && is_aligned(y) && span % N == 0;
    positions_operation<T> operation = {span, x, table, y};

    return for_each_value<N>(cuda, operation, n, are_aligned);
}

enum rc cuda_positions_forward(struct backend *backend, const struct positions *positions,
                               const void *x, const float *table, void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t span = static_cast<size_t>(positions->steps) * positions->width;
    size_t n = positions->samples * span;
    enum rc rc;

    WITH_ACTIVATIONS(cuda, rc = add_positions(cuda, span, n, as<T>(x), table, as<T>(y)));
    return rc;
}

enum rc cuda_positions_backward(struct backend *backend, const struct positions *positions,
                                const void *dy, float *dtable)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t span = static_cast<size_t>(positions->steps) * positions->width;
    size_t bytes = cuda_column_sums_scratch(cuda, positions->samples, span);
    enum rc rc = cuda->is_recording ? RC_OK : cuda_scratch_reserve(cuda, bytes);

    return rc == RC_OK ? cuda_column_sums(cuda, dy, positions->samples, span, span, true, dtable)
                       : rc;
}
