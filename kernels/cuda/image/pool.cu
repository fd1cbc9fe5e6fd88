/*
 * Pooling of any layouts. Forward, a thread has one output value or, where channels lie side by
 * side, 16 bytes of them; backward, it has one input value (or 16 bytes) and gathers from the
 * windows that contain it, in their order: nothing is added to from two sides, so equal calls give
 * equal bits. Reading a window again costs the caches, not the memory.
 *
 * Twin  kernels/cpu/image/pool.c, kernels/cpu/reference/image.c, whose winner bytes are these.
 */
#include "kernels/cuda/image/image.cuh"

struct pool_form {
    struct image_layout in, out, winners; /* winners: the output's pixels in the input's blocks */
    int size, stride, padding;
    struct divisor by_stride;
    bool with_relu;
};

/* One thread's window, and its channels. */
struct pool_window {
    int top, left; /* may be in the padding */
    uint32_t in, out, winner;
};

template <int N>
__device__ static inline struct pool_window pool_window_of(const struct pool_form *f, uint32_t item)
{
    struct image_position position = image_position_of(&f->out, item * N);
    struct pool_window w;

    w.top = static_cast<int>(position.row) * f->stride - f->padding;
    w.left = static_cast<int>(position.column) * f->stride - f->padding;
    w.in = image_channel_at(&f->in, position.image, position.channel);
    w.out = item * N;
    w.winner = image_channel_at(&f->winners, position.image, position.channel) +
               image_pixel_at(&f->winners, position.row, position.column);
    return w;
}

__device__ static inline bool is_below(int at, struct divisor extent)
{
    return at >= 0 && at < static_cast<int>(extent.by);
}

/* The next B positions of a window's row, of those that lie in the image; which ones do. */
template <int B, int N, typename T>
__device__ static inline unsigned pool_fetch(const struct pool_form *f, const struct pool_window *w,
                                             int row, int column, const T *x,
                                             struct packed<T, N> (&in)[B])
{
    unsigned inside = 0;

    for (int b = 0; b < B; b++) {
        int down = w->top + row, right = w->left + column + b;
        if (!is_below(down, f->in.height) || !is_below(right, f->in.width)) continue;
        in[b] = fetch<N>(x + w->in + image_pixel_at(&f->in, down, right));
        inside |= 1u << b;
    }
    return inside;
}

/* SIZE: the windows' size where it is known, so that a row's loads are on their way at once; or
 * 0. */
template <typename T, int N, int SIZE>
static __global__ void __launch_bounds__(THREADS)
    pool_maxima(struct pool_form f, uint32_t items, const T *x, T *y, uint8_t *winner)
{
    constexpr int B = SIZE > 0 ? SIZE : 1;
    const int size = SIZE > 0 ? SIZE : f.size;
    float best[N] = {0.0F}, value[N];
    int which[N] = {0};
    bool is_first = true;

    if (THREAD_ITEM >= items) return;
    struct pool_window w = pool_window_of<N>(&f, THREAD_ITEM);
    for (int i = 0; i < size * size; i += B) {
        struct packed<T, N> in[B];
        unsigned inside = pool_fetch(&f, &w, i / size, i % size, x, in);
        for (int b = 0; b < B; b++) {
            if ((inside & 1u << b) == 0) continue;
            unpack(in[b], value);
            for (int k = 0; k < N; k++) { /* a NaN wins only if it comes first */
                bool is_better = is_first || value[k] > best[k];
                best[k] = is_better ? value[k] : best[k];
                which[k] = is_better ? i + b : which[k];
            }
            is_first = false;
        }
    }
    for (int k = 0; k < N && f.with_relu; k++) {
        if (!(best[k] > 0.0F)) which[k] = POOL_NONE;
        if (best[k] < 0.0F) best[k] = 0.0F;
    }
    store_values<N>(y + w.out, best);
    if (winner == NULL) return;
    access<uint8_t, N> bytes;
    for (int k = 0; k < N; k++) {
        bytes.values[k] = static_cast<uint8_t>(which[k]);
    }
    *reinterpret_cast<access<uint8_t, N> *>(winner + w.winner) = bytes;
}

template <typename T, int N, int SIZE>
static __global__ void __launch_bounds__(THREADS)
    pool_means(struct pool_form f, uint32_t items, const T *x, T *y)
{
    constexpr int B = SIZE > 0 ? SIZE : 1;
    const int size = SIZE > 0 ? SIZE : f.size;
    float sum[N] = {0.0F}, value[N], per = 1.0F / static_cast<float>(size * size);

    if (THREAD_ITEM >= items) return;
    struct pool_window w = pool_window_of<N>(&f, THREAD_ITEM);
    for (int i = 0; i < size * size; i += B) {
        struct packed<T, N> in[B];
        unsigned inside = pool_fetch(&f, &w, i / size, i % size, x, in);
        for (int b = 0; b < B; b++) {
            if ((inside & 1u << b) == 0) continue;
            unpack(in[b], value);
            for (int k = 0; k < N; k++) {
                sum[k] += value[k];
            }
        }
    }
    for (int k = 0; k < N; k++) {
        sum[k] *= per;
    }
    store_values<N>(y + w.out, sum);
}

/* The windows [first, end) that hold row or column `at`. */
struct pool_span {
    int reach, first, end;
};

__device__ static inline struct pool_span pool_span_of(const struct pool_form *f, uint32_t at,
                                                       struct divisor windows)
{
    int reach = static_cast<int>(at) + f->padding;
    int last = static_cast<int>(quotient(static_cast<uint32_t>(reach), f->by_stride));
    struct pool_span s = {reach, 0, min(last + 1, static_cast<int>(windows.by))};

    if (reach >= f->size) {
        s.first =
            static_cast<int>(quotient(static_cast<uint32_t>(reach - f->size), f->by_stride)) + 1;
    }
    return s;
}

/* winner NULL: means. */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    pool_gradients(struct pool_form f, uint32_t items, const T *dy, const uint8_t *winner, T *dx)
{
    float sum[N] = {0.0F}, share[N];
    float per = winner == NULL ? 1.0F / static_cast<float>(f.size * f.size) : 1.0F;

    if (THREAD_ITEM >= items) return;
    struct image_position position = image_position_of(&f.in, THREAD_ITEM * N);
    struct pool_span rows = pool_span_of(&f, position.row, f.out.height);
    struct pool_span columns = pool_span_of(&f, position.column, f.out.width);
    uint32_t out = image_channel_at(&f.out, position.image, position.channel);
    uint32_t winners = image_channel_at(&f.winners, position.image, position.channel);
    for (int row = rows.first; row < rows.end; row++) {
        for (int column = columns.first; column < columns.end; column++) {
            int position = (rows.reach - row * f.stride) * f.size;
            position += columns.reach - column * f.stride;
            load_values<N>(dy + out + image_pixel_at(&f.out, row, column), share);
            access<uint8_t, N> bytes = {};
            if (winner != NULL) {
                const uint8_t *at = winner + winners + image_pixel_at(&f.winners, row, column);
                bytes = *reinterpret_cast<const access<uint8_t, N> *>(at);
            }
            for (int k = 0; k < N; k++) {
                if (winner == NULL || bytes.values[k] == position) sum[k] += share[k];
            }
        }
    }
    for (int k = 0; k < N; k++) {
        sum[k] *= per;
    }
    store_values<N>(dx + THREAD_ITEM * N, sum);
}

static struct pool_form pool_form_of(const struct pool_options *o)
{
    struct pool_form f;
    struct image_shape winners = o->out;

    CHECK(o->size >= 2 && o->size <= POOL_SIZE_MAX && o->stride > 0 && o->padding <= o->size / 2);
    CHECK(o->out.height == windows_fit(o->in.height, o->size, o->padding, o->stride, 1));
    CHECK(o->out.width == windows_fit(o->in.width, o->size, o->padding, o->stride, 1));
    CHECK(o->out.channels == o->in.channels && o->out.height > 0 && o->out.width > 0);
    CHECK(o->kind == POOL_MAX || !o->with_relu);
    winners.block = o->in.block;
    f.in = image_layout_of(o->in);
    f.out = image_layout_of(o->out);
    f.winners = image_layout_of(winners);
    f.size = static_cast<int>(o->size);
    f.stride = static_cast<int>(o->stride);
    f.padding = static_cast<int>(o->padding);
    f.by_stride = divisor_of(o->stride);
    f.with_relu = o->with_relu;
    return f;
}

/* Whether threads can take N channels at a time. */
template <int N>
static bool is_wide(const struct pool_options *o, const void *a, const void *b,
                    const uint8_t *winner)
{
    return o->in.block % N == 0 && o->out.block % N == 0 && is_aligned(a) && is_aligned(b) &&
           reinterpret_cast<uintptr_t>(winner) % N == 0;
}

template <typename T, int N>
static enum rc forward(struct cuda_backend *cuda, const struct pool_options *o, uint32_t images,
                       const T *x, T *y, uint8_t *winner)
{
    struct pool_form f = pool_form_of(o);
    uint32_t items = images * (f.out.values / N);
    unsigned blocks = blocks_of_items(items);

    if (o->kind == POOL_AVERAGE) {
        return CUDA_CHECK(cuda, launch(o->size == 2   ? pool_means<T, N, 2>
                                       : o->size == 3 ? pool_means<T, N, 3>
                                                      : pool_means<T, N, 0>,
                                       blocks, THREADS, 0, cuda->stream, f, items, x, y));
    }
    return CUDA_CHECK(cuda, launch(o->size == 2   ? pool_maxima<T, N, 2>
                                   : o->size == 3 ? pool_maxima<T, N, 3>
                                                  : pool_maxima<T, N, 0>,
                                   blocks, THREADS, 0, cuda->stream, f, items, x, y, winner));
}

template <typename T>
static enum rc forward_any(struct cuda_backend *cuda, const struct pool_options *o, uint32_t images,
                           const T *x, T *y, uint8_t *winner)
{
    constexpr int N = access_values<T>();

    return is_wide<N>(o, x, y, winner) ? forward<T, N>(cuda, o, images, x, y, winner)
                                       : forward<T, 1>(cuda, o, images, x, y, winner);
}

template <typename T, int N>
static enum rc backward(struct cuda_backend *cuda, const struct pool_options *o, uint32_t images,
                        const T *dy, const uint8_t *winner, T *dx)
{
    struct pool_form f = pool_form_of(o);
    uint32_t items = images * (f.in.values / N);

    return CUDA_CHECK(cuda, launch(pool_gradients<T, N>, blocks_of_items(items), THREADS, 0,
                                   cuda->stream, f, items, dy, winner, dx));
}

template <typename T>
static enum rc backward_any(struct cuda_backend *cuda, const struct pool_options *o,
                            uint32_t images, const T *dy, const uint8_t *winner, T *dx)
{
    constexpr int N = access_values<T>();

    return is_wide<N>(o, dy, dx, winner) ? backward<T, N>(cuda, o, images, dy, winner, dx)
                                         : backward<T, 1>(cuda, o, images, dy, winner, dx);
}

/* Images of one launch. */
static uint32_t part_of(const struct pool_options *o)
{
    size_t in = image_values(o->in), out = image_values(o->out);

    return images_per_launch(in > out ? in : out);
}

enum rc cuda_pool_forward(struct backend *backend, const struct pool_options *options,
                          uint32_t images, const void *x, void *y, uint8_t *winner)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t in = image_values(options->in), out = image_values(options->out);
    uint32_t part = part_of(options);
    enum rc rc = RC_OK;

    if (options->kind == POOL_AVERAGE) winner = NULL;
    for (size_t n = 0; rc == RC_OK && n < images; n += part) {
        uint32_t count = images - n < part ? static_cast<uint32_t>(images - n) : part;
        uint8_t *to = winner == NULL ? NULL : winner + n * out;
        WITH_ACTIVATIONS(cuda, rc = forward_any(cuda, options, count, as<T>(x) + n * in,
                                                as<T>(y) + n * out, to));
    }
    return rc;
}

enum rc cuda_pool_backward(struct backend *backend, const struct pool_options *options,
                           uint32_t images, const void *dy, const uint8_t *winner, void *dx)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t in = image_values(options->in), out = image_values(options->out);
    uint32_t part = part_of(options);
    enum rc rc = RC_OK;

    CHECK(winner != NULL || options->kind == POOL_AVERAGE);
    if (options->kind == POOL_AVERAGE) winner = NULL;
    for (size_t n = 0; rc == RC_OK && n < images; n += part) {
        uint32_t count = images - n < part ? static_cast<uint32_t>(images - n) : part;
        const uint8_t *from = winner == NULL ? NULL : winner + n * out;
        WITH_ACTIVATIONS(cuda, rc = backward_any(cuda, options, count, as<T>(dy) + n * out, from,
                                                 as<T>(dx) + n * in));
    }
    return rc;
}
