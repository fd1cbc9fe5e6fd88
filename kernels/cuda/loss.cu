/*
 * Losses of rows of logits. A row is one block's (of few classes: one warp's) and is read once from
 * memory: each thread keeps the largest logit it saw and the sum of exponentials below it, scaled
 * anew whenever a larger one comes (Milakov, Gimelshein 2018, arXiv:1805.02867). The gradient's
 * pass reads the row again, by then from the second-level cache.
 *
 * Sums   a thread's in float32 (some fifty terms), a row's in float64. Rows leave their losses in
 *        scratch, which one block adds up in a fixed order.
 * NaN    among the logits makes the row's sum, its loss and its gradient NaN, as do an infinity and
 *        a label that is none.
 */
#include "kernels/cuda/each.cuh"

#include <math.h>

enum { ROW_THREADS = 1024, WARP_CLASSES_MAX = 1024, WIDE_CLASSES_MIN = 128, SQUARE_BLOCKS = 1024 };

/* Bytes of scratch that a loss uses, and takes if there are fewer. */
static size_t scratch_bytes(size_t rows)
{
    size_t least = SQUARE_BLOCKS;

    return (rows > least ? rows : least) * sizeof(struct loss_sums);
}

/* *sums += all results; the loss of `counted` rows of `outputs` values each. */
__global__ void add_results(const struct loss_sums *results, size_t count, const uint32_t *counted,
                            double outputs, struct loss_sums *sums)
{
    __shared__ double losses[ROW_THREADS / WARP];
    __shared__ unsigned hits[ROW_THREADS / WARP];
    double loss = 0.0;
    unsigned hit = 0;

    for (size_t i = threadIdx.x; i < count; i += blockDim.x) {
        loss += results[i].loss;
        hit += static_cast<unsigned>(results[i].hits);
    }
    loss = block_sum(loss, losses);
    hit = block_sum(hit, hits);
    if (threadIdx.x > 0) return;
    sums->loss += loss / (static_cast<double>(*counted) * outputs);
    sums->hits += hit;
}

/* Scratch for the results of a call. The first call of a shape is never recorded. */
static enum rc results_of(struct cuda_backend *cuda, size_t rows, struct loss_sums **results)
{
    size_t bytes = scratch_bytes(rows);
    enum rc rc = cuda->is_recording ? RC_OK : cuda_scratch_reserve(cuda, bytes);

    CHECK(rc != RC_OK || bytes <= cuda->scratch_bytes);
    *results = static_cast<struct loss_sums *>(cuda->scratch);
    return rc;
}

/* --- cross-entropy -----------------------------------------------------------------------------*/

/* A row as its threads walk it: `wide` accesses of 16 bytes from value `head` on, and the values
 * before and behind them one by one: all of them where rows are short. */
struct row_walk {
    uint32_t classes, head, wide;
};

template <typename T>
__device__ static inline row_walk walk_of(const T *row, const T *gradient, uint32_t classes)
{
    uint32_t apart = static_cast<uint32_t>(reinterpret_cast<uintptr_t>(row) % ACCESS_BYTES);
    bool are_alike =
        gradient == NULL || reinterpret_cast<uintptr_t>(gradient) % ACCESS_BYTES == apart;
    uint32_t head = (ACCESS_BYTES - apart) % ACCESS_BYTES / static_cast<uint32_t>(sizeof(T));

    if (!are_alike || classes < WIDE_CLASSES_MIN) return {classes, classes, 0};
    return {classes, head, (classes - head) / access_values<T>()};
}

/* What threads know of the values they saw. */
struct row_part {
    float maximum, sum; /* the sum of exp(x - maximum) */
    bool is_beaten;     /* the label's is not the first of the largest logits */
};

template <int N>
__device__ static inline void part_take(row_part *part, const float *x, uint32_t at, uint32_t label,
                                        float chosen)
{
    float largest = x[0], maximum, shift, sum;

    for (int k = 1; k < N; k++) {
        largest = fmaxf(largest, x[k]);
    }
    if (at + N <= label || at > label) {
        part->is_beaten |= at > label ? largest > chosen : largest >= chosen;
    } else {
        for (int k = 0; k < N; k++) {
            part->is_beaten |= at + k < label ? x[k] >= chosen : x[k] > chosen;
        }
    }
    maximum = fmaxf(part->maximum, largest);
    shift = maximum == -INFINITY ? 0.0F : maximum; /* nothing but those so far, and perhaps NaN */
    sum = part->sum * expf(part->maximum - shift);
    for (int k = 0; k < N; k++) {
        sum += expf(x[k] - shift);
    }
    part->sum = sum;
    part->maximum = maximum;
}

template <typename T>
__device__ static inline row_part read_row(const row_walk &walk, const T *row, uint32_t label,
                                           float chosen, uint32_t lane, uint32_t lanes)
{
    constexpr int N = access_values<T>();
    row_part part = {-INFINITY, 0.0F, false};
    float x[N];

    for (uint32_t i = lane; i < walk.wide; i += lanes) {
        load_values<N>(row + walk.head + i * N, x);
        part_take<N>(&part, x, walk.head + i * N, label, chosen);
    }
    for (uint32_t i = lane; i < walk.classes - walk.wide * N; i += lanes) {
        uint32_t c = i < walk.head ? i : i + walk.wide * N;
        load_values<1>(row + c, x);
        part_take<1>(&part, x, c, label, chosen);
    }
    return part;
}

/* gradient = exp(x - maximum) * factor. */
template <typename T>
__device__ static inline void write_row(const row_walk &walk, const T *row, float maximum,
                                        float factor, T *gradient, uint32_t lane, uint32_t lanes)
{
    constexpr int N = access_values<T>();
    float x[N];

    for (uint32_t i = lane; i < walk.wide; i += lanes) {
        load_values<N>(row + walk.head + i * N, x);
        for (int k = 0; k < N; k++) {
            x[k] = expf(x[k] - maximum) * factor;
        }
        store_values<N>(gradient + walk.head + i * N, x);
    }
    for (uint32_t i = lane; i < walk.classes - walk.wide * N; i += lanes) {
        uint32_t c = i < walk.head ? i : i + walk.wide * N;
        store(gradient + c, expf(load(row + c) - maximum) * factor);
    }
}

/* gradient[i] = 0 from `begin` up to `end`. */
template <typename T>
__device__ static inline void clear(T *gradient, uint32_t begin, uint32_t end, uint32_t lane,
                                    uint32_t lanes)
{
    for (uint32_t i = begin + lane; i < end; i += lanes) {
        store(gradient + i, 0.0F);
    }
}

/* Of a whole row, known to all of its threads. */
struct row_total {
    float maximum;
    double sum;
    bool is_beaten;
};

__device__ static inline row_total warp_total(row_part part)
{
    float maximum = warp_max(part.maximum);
    double sum = warp_sum(static_cast<double>(part.sum * expf(part.maximum - maximum)));
    unsigned beaten = warp_sum(part.is_beaten ? 1U : 0U);

    return {maximum, sum, beaten > 0};
}

__device__ static inline row_total block_total(row_part part)
{
    __shared__ float maxima[ROW_THREADS / WARP];
    __shared__ double sums[ROW_THREADS / WARP];
    __shared__ unsigned counts[ROW_THREADS / WARP];
    float maximum = warp_max(part.maximum);

    if (threadIdx.x % WARP == 0) maxima[threadIdx.x / WARP] = maximum;
    __syncthreads();
    for (unsigned w = 0; w < blockDim.x / WARP; w++) {
        maximum = fmaxf(maximum, maxima[w]);
    }
    return {maximum, block_sum(static_cast<double>(part.sum * expf(part.maximum - maximum)), sums),
            block_sum(part.is_beaten ? 1U : 0U, counts) > 0};
}

struct cross_entropy_rows {
    uint32_t rows, classes, stride;
    const uint32_t *labels, *counted;
    struct loss_sums *results;
};

/* One row of block or warp. */
template <typename T, bool is_block>
__device__ static inline void take_row(const cross_entropy_rows &all, const T *logits, T *gradient,
                                       uint32_t r, uint32_t lane, uint32_t lanes)
{
    size_t at = static_cast<size_t>(r) * all.stride;
    const T *row = logits + at;
    T *out = gradient != NULL ? gradient + at : NULL;
    row_walk walk = walk_of<T>(row, out, all.classes);
    uint32_t label = all.labels[r];
    bool is_counted = label != LABEL_IGNORE;
    float chosen = label < all.classes ? load(row + label) : NAN, first = load(row);
    row_part part = {-INFINITY, 0.0F, false};
    double counted = static_cast<double>(*all.counted);

    if (is_counted) part = read_row<T>(walk, row, label, chosen, lane, lanes);
    row_total total = is_block ? block_total(part) : warp_total(part);
    if (lane == 0) {
        double loss =
            log(total.sum) - (static_cast<double>(chosen) - static_cast<double>(total.maximum));
        bool is_hit = isnan(first) ? label == 0 : !isnan(chosen) && !total.is_beaten;
        all.results[r] = {is_counted ? loss : 0.0, is_counted && is_hit ? 1U : 0U};
    }
    if (out == NULL) return;
    clear(out, is_counted ? all.classes : 0, all.stride, lane, lanes);
    if (!is_counted) return;
    write_row<T>(walk, row, total.maximum, static_cast<float>(1.0 / total.sum / counted), out, lane,
                 lanes);
    if (is_block)
        __syncthreads();
    else
        __syncwarp();
    if (lane == 0 && label < all.classes) {
        double share = static_cast<double>(expf(chosen - total.maximum)) / total.sum;
        store(out + label, static_cast<float>((share - 1.0) / counted));
    }
}

template <typename T>
__global__ void wide_rows(cross_entropy_rows all, const T *logits, T *gradient)
{
    take_row<T, true>(all, logits, gradient, blockIdx.x, threadIdx.x, blockDim.x);
}

template <typename T>
__global__ void narrow_rows(cross_entropy_rows all, const T *logits, T *gradient)
{
    uint32_t r = blockIdx.x * (THREADS / WARP) + threadIdx.x / WARP;

    if (r < all.rows) {
        take_row<T, false>(all, logits, gradient, r, threadIdx.x % WARP, WARP);
    }
}

template <typename T>
static cudaError_t launch_rows(struct cuda_backend *cuda, const cross_entropy_rows &all,
                               const T *logits, T *gradient)
{
    uint32_t warps = THREADS / WARP, twice = 2 * access_values<T>();

    if (all.classes > WARP_CLASSES_MAX) { /* two accesses a thread, if they are not more */
        uint32_t threads = (all.classes / twice + WARP - 1) / WARP * WARP, most = ROW_THREADS;
        return launch(wide_rows<T>, all.rows, threads < most ? threads : most, 0, cuda->stream, all,
                      logits, gradient);
    }
    return launch(narrow_rows<T>, (all.rows + warps - 1) / warps, THREADS, 0, cuda->stream, all,
                  logits, gradient);
}

enum rc cuda_cross_entropy(struct backend *backend, const struct device_loss *loss)
{
    struct cuda_backend *cuda = cuda_of(backend);
    uint32_t stride = loss->stride == 0 ? loss->outputs : loss->stride;
    cross_entropy_rows all = {loss->rows, loss->outputs, stride, loss->labels, loss->counted, NULL};
    enum rc rc = results_of(cuda, loss->rows, &all.results);

    CHECK(loss->outputs > 0 && loss->labels != NULL);
    if (rc != RC_OK || loss->rows == 0) return rc;
    WITH_ACTIVATIONS(cuda, CUDA_TRY(cuda, launch_rows<T>(cuda, all, as<T>(loss->logits),
                                                         as<T>(loss->gradient))));
    CUDA_TRY(cuda, launch(add_results, 1, ROW_THREADS, 0, cuda->stream, all.results, loss->rows,
                          loss->counted, 1.0, loss->sums));
out:
    return rc;
}

/* --- squared error -----------------------------------------------------------------------------*/

template <typename T>
__global__ void square_rows(const T *logits, const float *targets, size_t n, uint32_t outputs,
                            uint32_t stride, const uint32_t *counted, T *gradient,
                            struct loss_sums *results)
{
    __shared__ double warps[THREADS / WARP];
    double factor = 2.0 / (static_cast<double>(*counted) * outputs), sum = 0.0;

    GRID_STRIDE(i, n)
    {
        size_t row = i / stride, column = i % stride;
        double difference = 0.0;
        if (column < outputs) {
            difference = static_cast<double>(load(logits + i)) -
                         static_cast<double>(targets[row * outputs + column]);
        }
        sum += difference * difference;
        if (gradient != NULL) store(gradient + i, static_cast<float>(factor * difference));
    }
    sum = block_sum(sum, warps);
    if (threadIdx.x == 0) results[blockIdx.x] = {sum, 0};
}

template <typename T>
static cudaError_t launch_squares(struct cuda_backend *cuda, const struct device_loss *loss,
                                  unsigned blocks, struct loss_sums *results)
{
    uint32_t stride = loss->stride == 0 ? loss->outputs : loss->stride;

    return launch(square_rows<T>, blocks, THREADS, 0, cuda->stream, as<T>(loss->logits),
                  loss->targets, static_cast<size_t>(loss->rows) * stride, loss->outputs, stride,
                  loss->counted, as<T>(loss->gradient), results);
}

enum rc cuda_squared_error(struct backend *backend, const struct device_loss *loss)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t n = static_cast<size_t>(loss->rows) * loss->outputs;
    size_t wanted = (n + THREADS - 1) / THREADS, most = SQUARE_BLOCKS;
    unsigned blocks = static_cast<unsigned>(wanted < most ? wanted : most);
    struct loss_sums *results;
    enum rc rc = results_of(cuda, loss->rows, &results);

    if (rc != RC_OK || n == 0) return rc;
    WITH_ACTIVATIONS(cuda, CUDA_TRY(cuda, launch_squares<T>(cuda, loss, blocks, results)));
    CUDA_TRY(cuda, launch(add_results, 1, ROW_THREADS, 0, cuda->stream, results, blocks,
                          loss->counted, static_cast<double>(loss->outputs), loss->sums));
out:
    return rc;
}
