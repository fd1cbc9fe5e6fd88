/*
 * What convolutions do besides convolving: the bias of each channel, and its gradient, a sum over
 * all pixels. Sums: float32 over runs of up to RUN values, then float64 by blocks through scratch,
 * in a fixed order.
 */
#include "kernels/cuda/channels.cuh"

enum { RUN = 64, ROWS_AT_ONCE = 4 };

static const struct channel_share sum_share = {8, 4}, bias_share = {4, 4};

/* partials[split][channel]. */
template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS)
    sum_channels(struct channel_view view, const T *dy, double *partials)
{
    struct channel_thread thread = channel_thread_of<D>(&view, 0);
    double totals[D] = {0.0};

    channel_totals<T, N, D, RUN, ROWS_AT_ONCE>(&view, &thread, dy, totals);
    channel_team_sum(&view, totals);
    for (int d = 0; d < D && thread.is_writer; d++) {
        partials[blockIdx.y * static_cast<size_t>(view.channels) + thread.channel + d] = totals[d];
    }
}

static __global__ void __launch_bounds__(WARP *WARP)
    close_sums(const double *partials, size_t splits, size_t channels, bool adds, float *sums)
{
    double total = partials_total(partials, splits, channels, PARTIALS_COLUMN);

    if (threadIdx.y > 0 || PARTIALS_COLUMN >= channels) return;
    if (adds) total += static_cast<double>(sums[PARTIALS_COLUMN]);
    sums[PARTIALS_COLUMN] = static_cast<float>(total);
}

size_t cuda_channel_sums_scratch(const struct cuda_backend *cuda, struct image_shape shape,
                                 uint32_t images)
{
    uint32_t splits = 0;

    for (int aligned = 0; aligned < 2 && images > 0; aligned++) {
        struct channel_view view = channel_view_of(cuda, shape, 1, images, aligned == 1, sum_share);
        if (view.splits > splits) splits = view.splits;
    }
    return splits * static_cast<size_t>(shape.channels) * sizeof(double);
}

enum rc cuda_channel_sums(struct cuda_backend *cuda, struct image_shape shape, uint32_t images,
                          const void *dy, bool adds, float *sums)
{
    struct channel_view view = channel_view_of(cuda, shape, 1, images, is_aligned(dy), sum_share);
    double *partials;
    enum rc rc = cuda_scratch_reserve(cuda, cuda_channel_sums_scratch(cuda, shape, images));

    if (rc != RC_OK) return rc;
    partials = static_cast<double *>(cuda->scratch);
    LAUNCH_CHANNELS(cuda, &view, sum_channels, as<T>(dy), partials);
    if (rc != RC_OK) return rc;
    return CUDA_CHECK(cuda, launch(close_sums, partials_blocks(view.channels), dim3(WARP, WARP), 0,
                                   cuda->stream, partials, view.splits, view.channels, adds, sums));
}

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS)
    add_bias(struct channel_view view, const float *bias, bool with_relu, T *y)
{
    struct channel_thread thread = channel_thread_of<D>(&view, 0);
    float shift[D] = {0.0F};

    for (int d = 0; d < D && thread.is_in; d++) {
        shift[d] = bias[thread.channel + d];
    }
    while (thread.image < view.images) {
        struct packed<T, N> in[ROWS_AT_ONCE];
        size_t at[ROWS_AT_ONCE];
        int taken = channel_take(&view, &thread, at);
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            if (u < taken) in[u] = fetch<N>(y + at[u]);
        }
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            float values[N];
            if (u >= taken) continue;
            unpack(in[u], values);
            for (int k = 0; k < N; k++) {
                float value = values[k] + shift[D == 1 ? 0 : k];
                values[k] = with_relu && value < 0.0F ? 0.0F : value; /* a NaN stays */
            }
            store_values<N>(y + at[u], values);
        }
    }
}

enum rc cuda_channel_bias(struct cuda_backend *cuda, struct image_shape shape, uint32_t images,
                          const float *bias, bool with_relu, void *y)
{
    struct channel_view view = channel_view_of(cuda, shape, 1, images, is_aligned(y), bias_share);
    enum rc rc;

    LAUNCH_CHANNELS(cuda, &view, add_bias, bias, with_relu, as<T>(y));
    return rc;
}
