/*
 * The four passes of batch and group normalisation over their images. Each reads its inputs once;
 * what a thread needs of its channels it keeps in registers.
 *
 * Sums  are float32 over runs of up to RUN values, then float64, through scratch in a fixed order.
 *       Forward they are of x - k and (x - k)^2, k being the run's first value, and put together as
 *           sum x = n k + s,    sum x^2 = n k^2 + 2 k s + q
 *       in float64, so that large means keep small variances (Chan, Golub, LeVeque 1983,
 *       "Algorithms for computing the sample variance"). Twin: kernels/cpu/norm/tile.c.
 */
#include "kernels/cuda/norm/norm.cuh"

enum { RUN = 64, ROWS_AT_ONCE = 4, ROWS_OF_PRODUCTS = 2 };

/* Which of D channels value k of N belongs to. */
template <int D> __device__ static inline constexpr int channel_of(int k)
{
    return D == 1 ? 0 : k;
}

template <int D>
__device__ static inline void put_partials(const struct channel_view *view, size_t segment,
                                           const struct channel_thread *thread,
                                           const double (&totals)[2 * D], double *partials)
{
    double *to = partials + 2 * (segment * view->splits + blockIdx.y) * view->channels;

    for (int d = 0; d < D && thread->is_writer; d++) {
        to[thread->channel + d] = totals[d];
        to[view->channels + thread->channel + d] = totals[D + d];
    }
}

/* One run: totals += sums of x, of x^2. */
template <typename T, int N, int D>
__device__ static inline void add_moments(const struct channel_view *view,
                                          struct channel_thread *thread, const T *x,
                                          double (&totals)[2 * D])
{
    float pilot[D], sums[D] = {0.0F}, squares[D] = {0.0F};
    int n = 0;

    unpack(fetch<D>(x + thread->base + thread->image * view->image_values +
                    static_cast<size_t>(thread->row) * view->row_values),
           pilot);
#pragma unroll 1
    while (n < RUN && thread->image < view->images) {
        struct packed<T, N> in[ROWS_AT_ONCE];
        size_t at[ROWS_AT_ONCE];
        int taken = channel_take(view, thread, at);
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            if (u < taken) in[u] = fetch<N>(x + at[u]);
        }
        for (int u = 0; u < ROWS_AT_ONCE; u++) {
            float values[N];
            if (u >= taken) continue;
            unpack(in[u], values);
            for (int k = 0; k < N; k++) {
                float value = values[k] - pilot[channel_of<D>(k)];
                sums[channel_of<D>(k)] += value;
                squares[channel_of<D>(k)] += value * value;
            }
        }
        n += taken * (N / D);
    }
    for (int d = 0; d < D; d++) {
        double k = static_cast<double>(pilot[d]), sum = static_cast<double>(sums[d]);
        totals[d] += k * n + sum;
        totals[D + d] += k * k * n + (2.0 * k * sum + static_cast<double>(squares[d]));
    }
}

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS, 2)
    collect(struct channel_view view, const T *x, double *partials)
{
    EACH_SEGMENT(segment, view)
    {
        struct channel_thread thread = channel_thread_of<D>(&view, segment);
        double totals[2 * D] = {0.0};

        while (thread.image < view.images) {
            add_moments<T, N, D>(&view, &thread, x, totals);
        }
        channel_team_sum(&view, totals);
        put_partials<D>(&view, segment, &thread, totals, partials);
    }
}

/* Where a channel's statistics are. */
__device__ static inline size_t statistic_at(const struct norm_statistics *s, size_t segment,
                                             uint32_t channel)
{
    return segment * s->groups + channel / s->per;
}

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS, 2)
    apply(struct channel_view view, struct norm_affine affine, const T *x, T *y)
{
    EACH_SEGMENT(segment, view)
    {
        struct channel_thread thread = channel_thread_of<D>(&view, segment);
        float mean[D] = {0.0F}, scale[D] = {0.0F}, shift[D] = {0.0F};

        for (int d = 0; d < D && thread.is_in; d++) {
            uint32_t c = thread.channel + d;
            size_t at = statistic_at(&affine.statistics, segment, c);
            mean[d] = affine.statistics.mean[at];
            scale[d] = affine.statistics.rstd[at] * affine.gamma[c];
            shift[d] = affine.beta[c];
        }
        while (thread.image < view.images) {
            struct packed<T, N> in[ROWS_AT_ONCE];
            size_t at[ROWS_AT_ONCE];
            int taken = channel_take(&view, &thread, at);
            for (int u = 0; u < ROWS_AT_ONCE; u++) {
                if (u < taken) in[u] = fetch<N>(x + at[u]);
            }
            for (int u = 0; u < ROWS_AT_ONCE; u++) {
                float values[N];
                if (u >= taken) continue;
                unpack(in[u], values);
                for (int k = 0; k < N; k++) {
                    int d = channel_of<D>(k);
                    float value = (values[k] - mean[d]) * scale[d] + shift[d];
                    /* not `> 0 ?`: a NaN has to stay one until somebody notices */
                    values[k] = affine.with_relu && value < 0.0F ? 0.0F : value;
                }
                store_values<N>(y + at[u], values);
            }
        }
    }
}

/* One run: totals += sums of dy, of dy (x - mean). */
template <typename T, int N, int D>
__device__ static inline void
add_products(const struct channel_view *view, struct channel_thread *thread, const float (&mean)[D],
             bool masks, const T *x, const T *y, T *dy, double (&totals)[2 * D])
{
    float sums[D] = {0.0F}, products[D] = {0.0F};

#pragma unroll 1
    for (int n = 0; n < RUN && thread->image < view->images; n += ROWS_OF_PRODUCTS * N / D) {
        struct packed<T, N> in[ROWS_OF_PRODUCTS], out[ROWS_OF_PRODUCTS], back[ROWS_OF_PRODUCTS];
        size_t at[ROWS_OF_PRODUCTS];
        int taken = channel_take(view, thread, at);
        for (int u = 0; u < ROWS_OF_PRODUCTS; u++) {
            if (u >= taken) continue;
            in[u] = fetch<N>(x + at[u]);
            back[u] = fetch<N>(dy + at[u]);
            if (masks) out[u] = fetch<N>(y + at[u]);
        }
        for (int u = 0; u < ROWS_OF_PRODUCTS; u++) {
            float values[N], gradient[N];
            if (u >= taken) continue;
            unpack(back[u], gradient);
            if (masks) {
                unpack(out[u], values);
                for (int k = 0; k < N; k++) {
                    if (!(values[k] > 0.0F)) gradient[k] = 0.0F;
                }
                store_values<N>(dy + at[u], gradient);
            }
            unpack(in[u], values);
            for (int k = 0; k < N; k++) {
                sums[channel_of<D>(k)] += gradient[k];
                products[channel_of<D>(k)] += gradient[k] * (values[k] - mean[channel_of<D>(k)]);
            }
        }
    }
    for (int d = 0; d < D; d++) {
        totals[d] += static_cast<double>(sums[d]);
        totals[D + d] += static_cast<double>(products[d]);
    }
}

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS, 2)
    backward_collect(struct channel_view view, struct norm_products products, const T *x,
                     const T *y, T *dy, double *partials)
{
    EACH_SEGMENT(segment, view)
    {
        struct channel_thread thread = channel_thread_of<D>(&view, segment);
        double totals[2 * D] = {0.0};
        float mean[D] = {0.0F};

        for (int d = 0; d < D && thread.is_in; d++) {
            mean[d] = products.statistics
                          .mean[statistic_at(&products.statistics, segment, thread.channel + d)];
        }
        while (thread.image < view.images) {
            add_products<T, N, D>(&view, &thread, mean, products.masks, x, y, dy, totals);
        }
        channel_team_sum(&view, totals);
        put_partials<D>(&view, segment, &thread, totals, partials);
    }
}

/* dx = dy dy_scale + (x - mean) x_scale + shift, of D channels. */
template <int D> struct channel_slopes {
    float mean[D], dy_scale[D], x_scale[D], shift[D];
};

template <int D>
__device__ static inline struct channel_slopes<D>
channel_slopes_of(const struct norm_gradient *g, size_t segment,
                  const struct channel_thread *thread) {
    struct channel_slopes<D> s = {
    };

    for (int d = 0; d < D && thread->is_in; d++) {
        uint32_t c = thread->channel + d, groups = g->statistics.groups;
        uint32_t group = c / g->statistics.per;
        size_t at = segment * groups + group;
        const double *sums = g->sums + 2 * segment * groups + group;
        double rstd = static_cast<double>(g->statistics.rstd[at]), scale = rstd / g->count;
        if (g->is_batch) scale *= static_cast<double>(g->gamma[c]);
        s.mean[d] = g->statistics.mean[at];
        s.dy_scale[d] = g->gamma[c] * g->statistics.rstd[at];
        s.x_scale[d] = static_cast<float>(-scale * rstd * sums[groups]);
        s.shift[d] = static_cast<float>(-scale * sums[0]);
    }
    return s;
}

template <typename T, int N, int D>
static __global__ void __launch_bounds__(THREADS, 2)
    backward_apply(struct channel_view view, struct norm_gradient gradient, const T *x, const T *dy,
                   T *dx)
{
    EACH_SEGMENT(segment, view)
    {
        struct channel_thread thread = channel_thread_of<D>(&view, segment);
        struct channel_slopes<D> s = channel_slopes_of<D>(&gradient, segment, &thread);

        while (thread.image < view.images) {
            struct packed<T, N> in[ROWS_OF_PRODUCTS], back[ROWS_OF_PRODUCTS],
                before[ROWS_OF_PRODUCTS];
            size_t at[ROWS_OF_PRODUCTS];
            int taken = channel_take(&view, &thread, at);
            for (int u = 0; u < ROWS_OF_PRODUCTS; u++) {
                if (u >= taken) continue;
                in[u] = fetch<N>(x + at[u]);
                back[u] = fetch<N>(dy + at[u]);
                if (gradient.adds) before[u] = fetch<N>(dx + at[u]);
            }
            for (int u = 0; u < ROWS_OF_PRODUCTS; u++) {
                float to[N], values[N];
                if (u >= taken) continue;
                unpack(in[u], to);
                unpack(back[u], values);
                for (int k = 0; k < N; k++) {
                    int d = channel_of<D>(k);
                    to[k] = (to[k] - s.mean[d]) * s.x_scale[d] + s.shift[d];
                    to[k] += values[k] * s.dy_scale[d];
                }
                if (gradient.adds) {
                    unpack(before[u], values);
                    for (int k = 0; k < N; k++) {
                        to[k] += values[k];
                    }
                }
                store_values<N>(dx + at[u], to);
            }
        }
    }
}

enum rc cuda_norm_collect(struct cuda_backend *cuda, const struct channel_view *view, const void *x,
                          double *partials)
{
    enum rc rc;

    LAUNCH_CHANNELS(cuda, view, collect, as<T>(x), partials);
    return rc;
}

enum rc cuda_norm_apply(struct cuda_backend *cuda, const struct channel_view *view,
                        const struct norm_affine *affine, const void *x, void *y)
{
    enum rc rc;

    LAUNCH_CHANNELS(cuda, view, apply, *affine, as<T>(x), as<T>(y));
    return rc;
}

enum rc cuda_norm_backward_collect(struct cuda_backend *cuda, const struct channel_view *view,
                                   const struct norm_products *products, const void *x,
                                   const void *y, void *dy, double *partials)
{
    enum rc rc;

    LAUNCH_CHANNELS(cuda, view, backward_collect, *products, as<T>(x), as<T>(y), as<T>(dy),
                    partials);
    return rc;
}

enum rc cuda_norm_backward_apply(struct cuda_backend *cuda, const struct channel_view *view,
                                 const struct norm_gradient *gradient, const void *x,
                                 const void *dy, void *dx)
{
    enum rc rc;

    LAUNCH_CHANNELS(cuda, view, backward_apply, *gradient, as<T>(x), as<T>(dy), as<T>(dx));
    return rc;
}
