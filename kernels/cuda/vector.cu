/*
 * Operations on whole vectors. Memory is the limit: 16 bytes at a time where alignment allows.
 *
 * Same bits  axpy, scale and add_difference are what averaging is made of, and peers compare its
 *         results: they round after the multiplication and again after the addition, as the
 *         processor's loops do, and never in one step.
 * Sums    in a fixed order: blocks whose number depends on nothing but the vector's length leave a
 *         float64 each, which one block adds up. Alignment changes how values are read, not who
 *         adds them.
 */
#include "kernels/cuda/each.cuh"

#include <math.h>

enum { NORM_BLOCKS = 1024, COUNT = access_values<float>() };

struct norm {
    double squares; /* their sum */
    float factor;   /* what brings the vector down to a limit; 1 if it is not above that */
};

/* Scratch: a partial sum for each block, behind them the norm. */
static_assert(NORM_BLOCKS * sizeof(double) + sizeof(struct norm) <= VECTOR_SCRATCH_BYTES,
              "scratch of a norm");

struct bytes_operation {
    const uint8_t *bytes;
    float factor, offset;
    float *values;

    template <int N> __device__ void at(size_t i) const
    {
        access<uint8_t, N> from = *reinterpret_cast<const access<uint8_t, N> *>(bytes + i);
        float to[N];

#pragma unroll
        for (int k = 0; k < N; k++) {
            to[k] = __fadd_rn(__fmul_rn(static_cast<float>(from.values[k]), factor), offset);
        }
        store_values<N>(values + i, to);
    }
};

/* In parts of the scratch memory; uploads and kernels take turns in the order of calls. */
enum rc cuda_from_bytes(struct backend *backend, const uint8_t *bytes, float factor, float offset,
                        float *values, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    uint8_t *part = static_cast<uint8_t *>(cuda->scratch);
    size_t part_max = cuda->scratch_bytes;
    enum rc rc = RC_OK;

    for (size_t first = 0; rc == RC_OK && first < n; first += part_max) {
        size_t count = n - first < part_max ? n - first : part_max;
        bytes_operation operation = {part, factor, offset, values + first};

        rc = backend->ops->upload(backend, part, bytes + first, count);
        if (rc != RC_OK) break;
        rc = for_each_value<COUNT>(cuda, operation, count, is_aligned(values + first));
    }
    return rc;
}

struct axpy_operation {
    float a;
    const float *x;
    float *y;

    template <int N> __device__ void at(size_t i) const
    {
        float from[N], to[N];

        load_values<N>(x + i, from);
        load_values<N>(y + i, to);
#pragma unroll
        for (int k = 0; k < N; k++) {
            to[k] = __fadd_rn(to[k], __fmul_rn(a, from[k]));
        }
        store_values<N>(y + i, to);
    }
};

enum rc cuda_axpy(struct backend *backend, float a, const float *x, float *y, size_t n)
{
    axpy_operation operation = {a, x, y};

    return for_each_value<COUNT>(cuda_of(backend), operation, n, is_aligned(x) && is_aligned(y));
}

struct scale_operation {
    float a;
    float *x;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N];

        load_values<N>(x + i, values);
#pragma unroll
        for (int k = 0; k < N; k++) {
            values[k] = __fmul_rn(values[k], a);
        }
        store_values<N>(x + i, values);
    }
};

enum rc cuda_scale(struct backend *backend, float a, float *x, size_t n)
{
    scale_operation operation = {a, x};

    return for_each_value<COUNT>(cuda_of(backend), operation, n, is_aligned(x));
}

struct add_difference_operation {
    float a;
    const float *x, *base;
    float *y;

    template <int N> __device__ void at(size_t i) const
    {
        float from[N], zero[N], to[N];

        load_values<N>(x + i, from);
        load_values<N>(base + i, zero);
        load_values<N>(y + i, to);
#pragma unroll
        for (int k = 0; k < N; k++) {
            to[k] = __fadd_rn(to[k], __fmul_rn(a, __fsub_rn(from[k], zero[k])));
        }
        store_values<N>(y + i, to);
    }
};

enum rc cuda_add_difference(struct backend *backend, float a, const float *x, const float *base,
                            float *y, size_t n)
{
    add_difference_operation operation = {a, x, base, y};

    return for_each_value<COUNT>(cuda_of(backend), operation, n,
                                 is_aligned(x) && is_aligned(base) && is_aligned(y));
}

/* --- norms -------------------------------------------------------------------------------------*/

__device__ static inline double square(float x)
{
    return static_cast<double>(x) * static_cast<double>(x);
}

__global__ void square_blocks(const float *x, size_t n, bool x_is_aligned, double *partial)
{
    __shared__ double warps[THREADS / WARP];
    double sum = 0.0;

    GRID_STRIDE(i, n / COUNT)
    {
        float values[COUNT];
        if (x_is_aligned) {
            load_values<COUNT>(x + i * COUNT, values);
        } else {
            for (int k = 0; k < COUNT; k++) {
                values[k] = x[i * COUNT + k];
            }
        }
        for (int k = 0; k < COUNT; k++) {
            sum += square(values[k]);
        }
    }
    GRID_STRIDE(i, n % COUNT)
    {
        sum += square(x[n - n % COUNT + i]);
    }
    sum = block_sum(sum, warps);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

/* A NaN is not at most the limit, and spreads. */
__global__ void add_blocks(const double *partial, unsigned blocks, double limit, struct norm *norm)
{
    __shared__ double warps[THREADS / WARP];
    double sum = 0.0;

    for (unsigned i = threadIdx.x; i < blocks; i += blockDim.x) {
        sum += partial[i];
    }
    sum = block_sum(sum, warps);
    if (threadIdx.x > 0) return;
    norm->squares = sum;
    norm->factor = sum <= limit * limit ? 1.0F : static_cast<float>(limit / sqrt(sum));
}

/* *norm gets an address in scratch. */
static enum rc find_norm(struct cuda_backend *cuda, const float *x, size_t n, double limit,
                         struct norm **norm)
{
    double *partial = static_cast<double *>(cuda->scratch);
    struct norm *found = reinterpret_cast<struct norm *>(partial + NORM_BLOCKS);
    size_t wanted = (n + THREADS * COUNT - 1) / (THREADS * COUNT), most = NORM_BLOCKS;
    unsigned blocks = static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
    enum rc rc;

    CUDA_TRY(cuda,
             launch(square_blocks, blocks, THREADS, 0, cuda->stream, x, n, is_aligned(x), partial));
    CUDA_TRY(cuda, launch(add_blocks, 1, THREADS, 0, cuda->stream, partial, blocks, limit, found));
    *norm = found;
out:
    return rc;
}

enum rc cuda_squared_norm(struct backend *backend, const float *x, size_t n, double *result)
{
    struct norm *norm = NULL;
    enum rc rc = find_norm(cuda_of(backend), x, n, INFINITY, &norm);

    return rc == RC_OK ? backend->ops->download(backend, result, &norm->squares, sizeof(*result))
                       : rc;
}

/* Infinities and NaNs are the numbers that are not at most the largest one. All who find one write
 * the same. */
struct find_operation {
    const float *x;
    uint32_t *found;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N];
        bool is_bad = false;

        load_values<N>(x + i, values);
#pragma unroll
        for (int k = 0; k < N; k++) {
            is_bad = is_bad || !(fabsf(values[k]) <= 3.40282347e38F);
        }
        if (is_bad) *found = 1;
    }
};

enum rc cuda_is_finite(struct backend *backend, const float *x, size_t n, bool *result)
{
    struct cuda_backend *cuda = cuda_of(backend);
    uint32_t *found = static_cast<uint32_t *>(cuda->scratch), is_bad = 1;
    find_operation operation = {x, found};
    enum rc rc = backend->ops->zero(backend, found, sizeof(*found));

    if (rc == RC_OK) rc = for_each_value<COUNT>(cuda, operation, n, is_aligned(x));
    if (rc == RC_OK) rc = backend->ops->download(backend, &is_bad, found, sizeof(is_bad));
    if (rc == RC_OK) *result = is_bad == 0;
    return rc;
}

/* The norm is not awaited: each thread looks at it. */
struct clip_operation {
    const struct norm *norm;
    float *x;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N], factor = norm->factor;

        if (factor == 1.0F) return;
        load_values<N>(x + i, values);
#pragma unroll
        for (int k = 0; k < N; k++) {
            values[k] *= factor;
        }
        store_values<N>(x + i, values);
    }
};

enum rc cuda_clip(struct backend *backend, float limit, float *x, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct norm *norm = NULL;
    enum rc rc = find_norm(cuda, x, n, static_cast<double>(limit), &norm);
    clip_operation operation = {norm, x};

    return rc == RC_OK ? for_each_value<COUNT>(cuda, operation, n, is_aligned(x)) : rc;
}

/* --- forms of values ---------------------------------------------------------------------------*/

template <typename From, typename To> struct convert_operation {
    const From *x;
    bool adds;
    To *y;

    template <int N> __device__ void at(size_t i) const
    {
        float values[N], before[N];

        load_values<N>(x + i, values);
        if (adds) {
            load_values<N>(y + i, before);
            for (int k = 0; k < N; k++) {
                values[k] += before[k];
            }
        }
        store_values<N>(y + i, values);
    }
};

enum rc cuda_to_bf16(struct cuda_backend *cuda, const float *x, void *y, size_t n)
{
    convert_operation<float, bf16> operation = {x, false, static_cast<bf16 *>(y)};

    return for_each_value<access_values<bf16>()>(cuda, operation, n,
                                                 is_aligned(x) && is_aligned(y));
}

enum rc cuda_from_bf16(struct cuda_backend *cuda, const void *x, bool adds, float *y, size_t n)
{
    convert_operation<bf16, float> operation = {static_cast<const bf16 *>(x), adds, y};

    return for_each_value<access_values<bf16>()>(cuda, operation, n,
                                                 is_aligned(x) && is_aligned(y));
}

enum rc cuda_to_activations(struct backend *backend, const float *x, void *y, size_t n)
{
    struct cuda_backend *cuda = cuda_of(backend);

    return cuda->is_bf16 ? cuda_to_bf16(cuda, x, y, n)
                         : backend->ops->copy(backend, y, x, n * sizeof(*x));
}

/* --- sums of columns ---------------------------------------------------------------------------*/

/* Blocks of SLAB_LANES x SLAB_LINES threads: each takes the columns of a tile in the rows of a
 * slab. A thread adds up to RUN_ROWS values in float32 before its sum goes on in float64. */
enum { SLAB_LANES = WARP, SLAB_LINES = 8, SLAB_ROWS_MIN = 64, RUN_ROWS = 64, TILE_COLUMNS = 256 };

/* Enough of them to fill the device, however the matrix is shaped. */
static size_t slabs_for(const struct cuda_backend *cuda, size_t rows, size_t columns)
{
    size_t tiles = (columns + TILE_COLUMNS - 1) / TILE_COLUMNS;
    size_t most = (4 * static_cast<size_t>(cuda->multiprocessors) + tiles - 1) / tiles;
    size_t wanted = (rows + SLAB_ROWS_MIN - 1) / SLAB_ROWS_MIN;

    return wanted < 1 ? 1 : wanted < most ? wanted : most;
}

size_t cuda_column_sums_scratch(const struct cuda_backend *cuda, size_t rows, size_t columns)
{
    size_t slabs = slabs_for(cuda, rows, columns);

    return slabs > 1 ? slabs * columns * sizeof(float) : 0;
}

__device__ static inline void put_sum(float *sum, bool adds, double value)
{
    *sum = static_cast<float>(adds ? static_cast<double>(*sum) + value : value);
}

/* sums[slab][column]; from N > 1 on, `stride` is a multiple of N. A spare value behind each
 * thread's keeps shared memory from queueing. */
template <typename T, int N>
__global__ void add_slab(const T *x, size_t rows, size_t columns, size_t stride, size_t slab_rows,
                         bool adds, float *sums)
{
    __shared__ double lines[SLAB_LINES][SLAB_LANES * (N + 1)];
    size_t tile = blockIdx.x * static_cast<size_t>(SLAB_LANES * N);
    size_t column = tile + threadIdx.x * N, r = blockIdx.y * slab_rows + threadIdx.y;
    size_t end = (blockIdx.y + 1) * slab_rows < rows ? (blockIdx.y + 1) * slab_rows : rows;
    double total[N] = {0.0};

    while (column < columns && r < end) {
        size_t run_end = r + RUN_ROWS * SLAB_LINES, stop = run_end < end ? run_end : end;
        float run[N] = {0.0F}, values[N];
#pragma unroll 4
        for (; r < stop; r += SLAB_LINES) {
            load_values<N>(x + r * stride + column, values);
            for (int k = 0; k < N; k++) {
                run[k] += values[k];
            }
        }
        for (int k = 0; k < N; k++) {
            total[k] += static_cast<double>(run[k]);
        }
    }
    for (int k = 0; k < N; k++) {
        lines[threadIdx.y][threadIdx.x * (N + 1) + k] = total[k];
    }
    __syncthreads();
    for (unsigned c = threadIdx.y * SLAB_LANES + threadIdx.x; c < SLAB_LANES * N;
         c += SLAB_LANES * SLAB_LINES) {
        double sum = 0.0;
        for (int line = 0; line < SLAB_LINES; line++) {
            sum += lines[line][c + c / N];
        }
        if (tile + c < columns) put_sum(&sums[blockIdx.y * columns + tile + c], adds, sum);
    }
}

/* Blocks of WARP x WARP threads, a tile of WARP columns each. */
__global__ void add_slabs(const float *partial, size_t slabs, size_t columns, bool adds,
                          float *sums)
{
    __shared__ double lines[WARP][WARP + 1];
    size_t column = blockIdx.x * static_cast<size_t>(WARP) + threadIdx.x;
    double sum = 0.0;

    for (size_t slab = threadIdx.y; column < columns && slab < slabs; slab += WARP) {
        sum += static_cast<double>(partial[slab * columns + column]);
    }
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    sum = 0.0;
    for (int line = 0; line < WARP; line++) {
        sum += lines[line][threadIdx.x];
    }
    put_sum(&sums[column], adds, sum);
}

template <typename T>
static enum rc add_columns(struct cuda_backend *cuda, const T *x, size_t rows, size_t columns,
                           size_t stride, bool adds, float *sums)
{
    constexpr int N = access_values<T>();
    bool is_wide = is_aligned(x) && stride % N == 0;
    size_t slabs = slabs_for(cuda, rows, columns), slab_rows = (rows + slabs - 1) / slabs;
    size_t tile = SLAB_LANES * (is_wide ? N : 1), tiles = (columns + tile - 1) / tile;
    dim3 grid(static_cast<unsigned>(tiles), static_cast<unsigned>(slabs));
    unsigned ends = static_cast<unsigned>((columns + WARP - 1) / WARP);
    float *partial = slabs > 1 ? static_cast<float *>(cuda->scratch) : sums;
    enum rc rc;

    CUDA_TRY(cuda, launch(is_wide ? add_slab<T, N> : add_slab<T, 1>, grid,
                          dim3(SLAB_LANES, SLAB_LINES), 0, cuda->stream, x, rows, columns, stride,
                          slab_rows, adds && slabs == 1, partial));
    if (slabs == 1) goto out;
    CUDA_TRY(cuda, launch(add_slabs, ends, dim3(WARP, WARP), 0, cuda->stream, partial, slabs,
                          columns, adds, sums));
out:
    return rc;
}

enum rc cuda_column_sums(struct cuda_backend *cuda, const void *x, size_t rows, size_t columns,
                         size_t stride, bool adds, float *sums)
{
    enum rc rc = RC_OK;

    CHECK(cuda_column_sums_scratch(cuda, rows, columns) <= cuda->scratch_bytes);
    if (columns == 0) return rc;
    WITH_ACTIVATIONS(cuda, rc = add_columns(cuda, as<T>(x), rows, columns, stride, adds, sums));
    return rc;
}

__global__ void store_number(uint64_t *counter, uint64_t value)
{
    *counter = value;
}

enum rc cuda_store(struct backend *backend, uint64_t *counter, uint64_t value)
{
    struct cuda_backend *cuda = cuda_of(backend);

    return CUDA_CHECK(cuda, launch(store_number, 1, 1, 0, cuda->stream, counter, value));
}
