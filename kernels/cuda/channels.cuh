/*
 * channels: images as the values of each channel, for kernels that treat every channel on its own:
 * normalisations, means, sums, biases. A view says which values those are and which threads take
 * them, so that in any layout neighbours in a warp read neighbours in memory:
 *
 * - channels-last, and other blocks: a row is a pixel of a group of channels; a thread has as many
 *   channels as 16 bytes hold (CHANNELS_WIDE), its neighbours the next ones;
 * - plain: a row is 16 bytes of a channel's pixels, its neighbours have the next ones
 *   (CHANNELS_PLAIN);
 * - whatever is not aligned goes value by value (CHANNELS_SINGLE).
 *
 * A team of threads shares a tile: `lanes` columns by team / lanes rows at once. Kernels are
 * templates of <T, N values in an access, D channels these belong to (N or 1)>. Images may fall
 * into segments of equal size that have nothing to do with each other.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_CHANNELS_CUH
#define GRAPEVINE_KERNELS_CUDA_CHANNELS_CUH

#include "kernels/cuda/packed.cuh"

enum channel_form { CHANNELS_SINGLE, CHANNELS_PLAIN, CHANNELS_WIDE };

struct channel_view {
    size_t segment_values, image_values, group_values; /* from one to the next */
    uint32_t row_values;
    uint32_t channels, groups, columns; /* columns of a group, a channel each */
    uint32_t segments, images, rows;    /* images of a segment, rows of an image's group */
    uint32_t lanes, team, tiles;        /* tiles of a group; lanes is a power of two up to WARP */
    uint32_t splits;                    /* blocks that share the rows of a tile */
    uint32_t step_images, step_rows;    /* from one of a thread's rows to the next */
    enum channel_form form;
};

/* How many threads are wanted: at least `rows_min` rows for each, and blocks for about
 * `blocks_each` on a multiprocessor. */
struct channel_share {
    uint32_t rows_min, blocks_each;
};

static inline unsigned channel_blocks(const struct channel_view *v)
{
    uint32_t teams = THREADS / v->team;

    return (v->groups * v->tiles + teams - 1) / teams;
}

static inline void channel_view_share(const struct cuda_backend *cuda, struct channel_view *v,
                                      struct channel_share share)
{
    size_t rows = static_cast<size_t>(v->images) * v->rows, most, wanted;
    uint32_t at_once;

    v->team = THREADS;
    while (v->team > WARP && static_cast<size_t>(v->team / 2 / v->lanes) * share.rows_min >= rows) {
        v->team /= 2;
    }
    at_once = v->team / v->lanes;
    wanted = static_cast<size_t>(share.blocks_each) * cuda->multiprocessors /
             (static_cast<size_t>(channel_blocks(v)) * v->segments);
    most = rows / (static_cast<size_t>(at_once) * share.rows_min);
    if (wanted > most) wanted = most;
    v->splits = static_cast<uint32_t>(wanted < 1 ? 1 : wanted < 65535 ? wanted : 65535);
    v->step_images = v->splits * at_once / v->rows;
    v->step_rows = v->splits * at_once % v->rows;
}

/* Of segments of `images` images each, at least one; are_aligned: all activations that the kernel
 * touches. */
static inline struct channel_view channel_view_of(const struct cuda_backend *cuda,
                                                  struct image_shape shape, uint32_t segments,
                                                  uint32_t images, bool are_aligned,
                                                  struct channel_share share)
{
    struct channel_view v = {};
    size_t pixels = static_cast<size_t>(shape.height) * shape.width, rows = pixels, units;
    uint32_t n = ACCESS_BYTES / cuda->base.value_bytes;

    CHECK(shape.block > 0 && shape.channels % shape.block == 0 && image_values(shape) > 0);
    CHECK(segments > 0 && images > 0);
    if (pixels == 1) shape.block = shape.channels;
    v.channels = shape.channels;
    v.groups = shape.channels / shape.block;
    v.columns = v.row_values = shape.block;
    v.segments = segments;
    v.images = images;
    v.image_values = image_values(shape);
    v.segment_values = images * v.image_values;
    v.group_values = pixels * shape.block;
    if (v.groups == 1) {
        rows *= images;
        v.images = 1;
    }
    if (v.columns % n == 0 && are_aligned) {
        v.form = CHANNELS_WIDE;
    } else if (v.columns == 1 && rows % n == 0 && pixels % n == 0 && are_aligned) {
        v.form = CHANNELS_PLAIN;
        v.row_values = n;
        rows /= n;
    }
    CHECK(rows <= INT32_MAX);
    v.rows = static_cast<uint32_t>(rows);
    units = v.form == CHANNELS_WIDE ? v.columns / n : v.columns;
    v.lanes = 1;
    while (v.lanes < units && v.lanes < WARP) {
        v.lanes *= 2;
    }
    v.tiles = static_cast<uint32_t>((units + v.lanes - 1) / v.lanes);
    channel_view_share(cuda, &v, share);
    return v;
}

static inline dim3 channel_grid(const struct channel_view *v)
{
    return dim3(channel_blocks(v), v->splits, v->segments < 65535 ? v->segments : 65535);
}

/* The instance of a kernel for a view. */
#define CHANNEL_KERNEL(view, kernel)                                                               \
    ((view)->form == CHANNELS_WIDE    ? kernel<T, access_values<T>(), access_values<T>()>          \
     : (view)->form == CHANNELS_PLAIN ? kernel<T, access_values<T>(), 1>                           \
                                      : kernel<T, 1, 1>)

/* rc = its launch; arguments may speak of T. */
#define LAUNCH_CHANNELS(cuda, view, kernel, ...)                                                   \
    WITH_ACTIVATIONS(                                                                              \
        cuda, rc = CUDA_CHECK(cuda, launch(CHANNEL_KERNEL(view, kernel), channel_grid(view),       \
                                           THREADS, 0, (cuda)->stream, *(view), __VA_ARGS__)))

#define EACH_SEGMENT(segment, view)                                                                \
    for (size_t segment = blockIdx.z; segment < (view).segments; segment += gridDim.z)

/* --- on the device -----------------------------------------------------------------------------*/

/* What a thread has of a segment: D channels from `channel` on, and rows, the next of which is
 * `row` of `image`. */
struct channel_thread {
    size_t base; /* where the first row of the first image is */
    uint32_t channel, image, row;
    bool is_in;     /* whether it has any channels */
    bool is_writer; /* of its lane in its team, it writes what they have together */
};

template <int D>
__device__ inline struct channel_thread channel_thread_of(const struct channel_view *v,
                                                          size_t segment)
{
    uint32_t within = threadIdx.x % v->team, lane = within % v->lanes, line = within / v->lanes;
    uint32_t tile = blockIdx.x * (THREADS / v->team) + threadIdx.x / v->team;
    uint32_t group = tile / v->tiles, column = (tile % v->tiles * v->lanes + lane) * D;
    uint32_t first = blockIdx.y * (v->team / v->lanes) + line;
    struct channel_thread thread;

    thread.is_in = group < v->groups && column < v->columns;
    thread.is_writer = thread.is_in && line == 0;
    thread.channel = group * v->columns + column;
    thread.base = segment * v->segment_values + group * v->group_values + column;
    thread.row = first % v->rows;
    thread.image = thread.is_in ? first / v->rows : v->images;
    return thread;
}

/* Where the next of the thread's rows are, up to U of them; how many there were. */
template <int U>
__device__ inline int channel_take(const struct channel_view *v, struct channel_thread *thread,
                                   size_t (&at)[U])
{
    int taken = 0;

#pragma unroll
    for (int u = 0; u < U; u++) {
        if (thread->image >= v->images) break;
        at[u] = thread->base + thread->image * v->image_values +
                static_cast<size_t>(thread->row) * v->row_values;
        taken = u + 1;
        thread->row += v->step_rows;
        thread->image += v->step_images;
        if (thread->row >= v->rows) {
            thread->row -= v->rows;
            thread->image++;
        }
    }
    return taken;
}

/* Each entry's sum over the threads of a team in one lane, for its writer; always in one order. All
 * threads of the block call it. */
template <int N>
__device__ inline void channel_team_sum(const struct channel_view *v, double (&sums)[N])
{
    __shared__ double partial[THREADS / WARP * N * WARP];
    uint32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, warps = v->team / WARP;

    for (uint32_t offset = WARP / 2; offset >= v->lanes; offset /= 2) {
        for (int i = 0; i < N; i++) {
            sums[i] += __shfl_xor_sync(0xFFFFFFFFu, sums[i], offset);
        }
    }
    if (warps == 1) return;
    __syncthreads(); /* the last call's readers are done */
    for (int i = 0; i < N && lane < v->lanes; i++) {
        partial[(warp * N + i) * v->lanes + lane] = sums[i];
    }
    __syncthreads();
    if (warp % warps != 0 || lane >= v->lanes) return;
    for (uint32_t w = warp + 1; w < warp + warps; w++) {
        for (int i = 0; i < N; i++) {
            sums[i] += partial[(w * N + i) * v->lanes + lane];
        }
    }
}

/* --- partial sums ------------------------------------------------------------------------------*/

/* What the thread that sits there finds of its channels: float32 over runs of up to RUN values,
 * then float64. ROWS rows of packed values are on their way at once. */
template <typename T, int N, int D, int RUN, int ROWS>
__device__ inline void channel_totals(const struct channel_view *view,
                                      struct channel_thread *thread, const T *x, double totals[D])
{
    while (thread->image < view->images) {
        float sums[D] = {0.0F};
#pragma unroll 1
        for (int n = 0; n < RUN && thread->image < view->images; n += ROWS * N / D) {
            struct packed<T, N> in[ROWS];
            size_t at[ROWS];
            int taken = channel_take(view, thread, at);
            for (int u = 0; u < ROWS; u++) {
                if (u < taken) in[u] = fetch<N>(x + at[u]);
            }
            for (int u = 0; u < ROWS; u++) {
                float values[N];
                if (u >= taken) continue;
                unpack(in[u], values);
                for (int k = 0; k < N; k++) {
                    sums[D == 1 ? 0 : k] += values[k];
                }
            }
        }
        for (int d = 0; d < D; d++) {
            totals[d] += static_cast<double>(sums[d]);
        }
    }
}

/* The sum of partials[i][column] over i < count, in one order, for the threads of line 0. Blocks of
 * WARP x WARP threads, a column for each threadIdx.x; all threads call it. */
template <typename S>
__device__ inline double partials_total(const S *partials, size_t count, size_t columns,
                                        size_t column)
{
    __shared__ double lines[WARP][WARP + 1];
    double sum = 0.0;

    if (column < columns) {
#pragma unroll 4
        for (size_t i = threadIdx.y; i < count; i += WARP) {
            sum += static_cast<double>(partials[i * columns + column]);
        }
    }
    lines[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    sum = 0.0;
    for (int line = 0; line < WARP && threadIdx.y == 0; line++) {
        sum += lines[line][threadIdx.x];
    }
    return sum;
}

#define PARTIALS_COLUMN (blockIdx.x * static_cast<size_t>(WARP) + threadIdx.x)

static inline unsigned partials_blocks(size_t columns)
{
    return static_cast<unsigned>((columns + WARP - 1) / WARP);
}

#endif
