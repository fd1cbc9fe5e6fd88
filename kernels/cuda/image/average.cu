/*
 * The mean over all pixels, and the parameter-free shortcut of residual nets: every stride-th
 * pixel, more channels. Twin: kernels/cpu/image/pool_global.c.
 *
 * Means: float32 over runs of up to RUN values, then float64; one team of threads for an image's
 * channel, or for the channels of 16 bytes side by side. Shortcuts: a thread for each value of the
 * result, or 16 bytes of it.
 */
#include "kernels/cuda/channels.cuh"
#include "kernels/cuda/image/image.cuh"

enum { RUN = 64, ROWS_AT_ONCE = 4 };

static const struct channel_share average_share = {4, 1};

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS)
    average_pixels(struct channel_view view, double pixels, const T *x, T *y)
{
    EACH_SEGMENT(image, view)
    {
        struct channel_thread thread = channel_thread_of<D>(&view, image);
        double totals[D] = {0.0};

        channel_totals<T, N, D, RUN, ROWS_AT_ONCE>(&view, &thread, x, totals);
        channel_team_sum(&view, totals);
        for (int d = 0; d < D && thread.is_writer; d++) {
            store(&y[image * view.channels + thread.channel + d],
                  static_cast<float>(totals[d] / pixels));
        }
    }
}

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS)
    spread_average(struct channel_view view, float pixels, const T *dy, T *dx)
{
    EACH_SEGMENT(image, view)
    {
        struct channel_thread thread = channel_thread_of<D>(&view, image);
        float values[N] = {0.0F};

        for (int k = 0; k < N && thread.is_in; k++) {
            const T *from = &dy[image * view.channels + thread.channel + (D == 1 ? 0 : k)];
            values[k] = load(from) / pixels;
        }
        while (thread.image < view.images) {
            size_t at[1] = {0};
            (void)channel_take(&view, &thread, at);
            store_values<N>(dx + at[0], values);
        }
    }
}

/* Each image is a segment, not shared between blocks. */
static struct channel_view average_view(const struct cuda_backend *cuda, struct image_shape in,
                                        uint32_t images, const void *pixels)
{
    struct channel_view view =
        channel_view_of(cuda, in, images, 1, is_aligned(pixels), average_share);

    view.splits = 1;
    view.step_images = view.team / view.lanes / view.rows;
    view.step_rows = view.team / view.lanes % view.rows;
    return view;
}

enum rc cuda_global_average_forward(struct backend *backend, struct image_shape in, uint32_t images,
                                    const void *x, void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    double pixels = static_cast<double>(in.height) * in.width;
    enum rc rc;

    if (images == 0) return RC_OK;
    struct channel_view view = average_view(cuda, in, images, x);
    LAUNCH_CHANNELS(cuda, &view, average_pixels, pixels, as<T>(x), as<T>(y));
    return rc;
}

enum rc cuda_global_average_backward(struct backend *backend, struct image_shape in,
                                     uint32_t images, const void *dy, void *dx)
{
    struct cuda_backend *cuda = cuda_of(backend);
    float pixels = static_cast<float>(in.height) * static_cast<float>(in.width);
    enum rc rc;

    if (images == 0) return RC_OK;
    struct channel_view view = average_view(cuda, in, images, dx);
    LAUNCH_CHANNELS(cuda, &view, spread_average, pixels, as<T>(dy), as<T>(dx));
    return rc;
}

/* --- shortcuts ---------------------------------------------------------------------------------*/

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    take_pixels(struct image_layout in, struct image_layout out, uint32_t stride, uint32_t items,
                const T *x, T *y)
{
    float values[N] = {0.0F};

    if (THREAD_ITEM >= items) return;
    struct image_position position = image_position_of(&out, THREAD_ITEM * N);
    if (position.channel < in.groups.by * in.block.by) {
        load_values<N>(x + image_channel_at(&in, position.image, position.channel) +
                           image_pixel_at(&in, position.row * stride, position.column * stride),
                       values);
    }
    store_values<N>(y + THREAD_ITEM * N, values);
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    give_pixels(struct image_layout in, struct image_layout out, struct divisor stride,
                uint32_t items, const T *dy, T *dx)
{
    float values[N] = {0.0F};

    if (THREAD_ITEM >= items) return;
    struct image_position position = image_position_of(&in, THREAD_ITEM * N);
    bool is_taken = divide(&position.row, stride) == 0;
    is_taken = divide(&position.column, stride) == 0 && is_taken;
    if (is_taken) {
        load_values<N>(dy + image_channel_at(&out, position.image, position.channel) +
                           image_pixel_at(&out, position.row, position.column),
                       values);
    }
    store_values<N>(dx + THREAD_ITEM * N, values);
}

static void subsample_check(const struct subsample *o)
{
    CHECK(o->stride > 0 && o->out.channels >= o->in.channels && image_values(o->out) > 0);
    CHECK(o->out.height == (o->in.height - 1) / o->stride + 1);
    CHECK(o->out.width == (o->in.width - 1) / o->stride + 1);
}

template <int N> static bool is_wide(const struct subsample *o, const void *a, const void *b)
{
    return o->in.block % N == 0 && o->out.block % N == 0 && is_aligned(a) && is_aligned(b);
}

template <typename T>
static enum rc forward(struct cuda_backend *cuda, const struct subsample *o, uint32_t images,
                       const T *x, T *y)
{
    constexpr int N = access_values<T>();
    struct image_layout in = image_layout_of(o->in), out = image_layout_of(o->out);
    bool wide = is_wide<N>(o, x, y);
    uint32_t items = images * (wide ? out.values / N : out.values);

    return CUDA_CHECK(cuda,
                      launch(wide ? take_pixels<T, N> : take_pixels<T, 1>, blocks_of_items(items),
                             THREADS, 0, cuda->stream, in, out, o->stride, items, x, y));
}

template <typename T>
static enum rc backward(struct cuda_backend *cuda, const struct subsample *o, uint32_t images,
                        const T *dy, T *dx)
{
    constexpr int N = access_values<T>();
    struct image_layout in = image_layout_of(o->in), out = image_layout_of(o->out);
    bool wide = is_wide<N>(o, dy, dx);
    uint32_t items = images * (wide ? in.values / N : in.values);

    return CUDA_CHECK(cuda, launch(wide ? give_pixels<T, N> : give_pixels<T, 1>,
                                   blocks_of_items(items), THREADS, 0, cuda->stream, in, out,
                                   divisor_of(o->stride), items, dy, dx));
}

enum rc cuda_subsample_forward(struct backend *backend, const struct subsample *options,
                               uint32_t images, const void *x, void *y)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t in = image_values(options->in), out = image_values(options->out);
    uint32_t part = images_per_launch(in > out ? in : out);
    enum rc rc = RC_OK;

    subsample_check(options);
    for (size_t n = 0; rc == RC_OK && n < images; n += part) {
        uint32_t count = images - n < part ? static_cast<uint32_t>(images - n) : part;
        WITH_ACTIVATIONS(cuda,
                         rc = forward(cuda, options, count, as<T>(x) + n * in, as<T>(y) + n * out));
    }
    return rc;
}

enum rc cuda_subsample_backward(struct backend *backend, const struct subsample *options,
                                uint32_t images, const void *dy, void *dx)
{
    struct cuda_backend *cuda = cuda_of(backend);
    size_t in = image_values(options->in), out = image_values(options->out);
    uint32_t part = images_per_launch(in > out ? in : out);
    enum rc rc = RC_OK;

    subsample_check(options);
    for (size_t n = 0; rc == RC_OK && n < images; n += part) {
        uint32_t count = images - n < part ? static_cast<uint32_t>(images - n) : part;
        WITH_ACTIVATIONS(
            cuda, rc = backward(cuda, options, count, as<T>(dy) + n * out, as<T>(dx) + n * in));
    }
    return rc;
}
