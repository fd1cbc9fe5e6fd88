/*
 * Tiles of images for the normalisations: which values belong to which channels, in any layout, and
 * the four loops over them.
 *
 * Layouts whose block divides LANES are runs of contiguous values (a vector then holds several
 * pixels); in wider ones and in rows a tile is LANES columns of a matrix.
 *
 * Sums are taken in float32 over CHUNK vectors per lane, then in float64. Forward sums are of x - k
 * and (x - k)^2, k being the lane's first value of the chunk, and put together as
 *     sum x = n k + s,    sum x^2 = n k^2 + 2 k s + q
 * in float64, so that large means keep small variances (Chan, Golub, LeVeque 1983, "Algorithms for
 * computing the sample variance", the shifted form): an error of s moves both sums alike and
 * cancels in the variance, and one of q is about 1e-7 of it, at most 1e-5 when k is far from all
 * others.
 */
#include "kernels/cpu/norm_internal.h"

#include "base/check.h"

#include <string.h>

enum { CHUNK = 64 };

#define ALWAYS_INLINE inline __attribute__((always_inline))

struct norm_view norm_view_of(struct image_shape shape, uint32_t images)
{
    size_t pixels = (size_t)shape.height * shape.width;
    struct norm_view view = {.channels = shape.channels};

    CHECK(shape.block > 0 && shape.channels > 0 && shape.channels % shape.block == 0);
    CHECK(pixels > 0);
    if (pixels == 1 || shape.block == shape.channels) {
        view.planes = images == 0 ? 0 : 1;
        view.rows = images * pixels;
        view.columns = shape.channels;
    } else {
        view.planes = (size_t)images * (shape.channels / shape.block);
        view.rows = pixels;
        view.columns = shape.block;
    }
    return view;
}

bool norm_tile_next(const struct norm_view *view, struct norm_tile *tile)
{
    size_t values = view->rows * view->columns;

    if (tile->period > 0) {
        tile->channel += tile->period;
        tile->column += tile->period;
        if (tile->channel == view->channels) tile->channel = 0;
        if (tile->column == view->columns) {
            tile->column = 0;
            tile->plane++;
        }
    }
    if (tile->plane >= view->planes) return false;
    tile->at = tile->plane * values + tile->column;
    if (NORM_LANES % view->columns == 0) {
        tile->period = view->columns;
        tile->stride = NORM_LANES;
        tile->vectors = values / NORM_LANES;
        tile->rest_lanes = (uint32_t)(values % NORM_LANES);
        tile->rest = tile->rest_lanes > 0 ? 1 : 0;
        tile->is_whole = true;
        return true;
    }
    tile->period = view->columns - tile->column;
    if (tile->period > NORM_LANES) tile->period = NORM_LANES;
    tile->stride = view->columns;
    tile->rest_lanes = tile->period;
    tile->is_whole = tile->period == NORM_LANES;
    values -= tile->column; /* from here to the end of the plane */
    tile->vectors = values < NORM_LANES ? 0 : (values - NORM_LANES) / tile->stride + 1;
    tile->rest = view->rows - tile->vectors;
    return true;
}

void norm_tile_spread(const struct norm_tile *tile, float *values)
{
    if (!tile->is_whole) return;
    for (size_t n = tile->period; n < NORM_LANES; n *= 2) {
        memcpy(values + n, values, n * sizeof(*values));
    }
}

/* Add up the lanes of one channel. */
static ALWAYS_INLINE void sums_fold(const struct norm_tile *t, struct norm_sums *sums)
{
    if (!t->is_whole) return; /* lanes beyond the period are others' */
    for (size_t n = NORM_LANES / 2; n >= t->period; n /= 2) {
        for (size_t l = 0; l < n; l++) {
            sums->first[l] += sums->first[l + n];
            sums->second[l] += sums->second[l + n];
        }
    }
}

/* Two sets of sums: the additions of one wait for each other. */
static ALWAYS_INLINE void collect_chunk(const float *x, size_t vectors, size_t stride,
                                        struct norm_sums *sums)
{
    norm_lanes k = *(const norm_lanes *)x;
    norm_lanes s[2] = {{0.0F}}, q[2] = {{0.0F}};
    size_t i = 0;
    double n = (double)vectors;

    for (; i + 2 <= vectors; i += 2) {
        norm_lanes even = *(const norm_lanes *)(x + i * stride) - k;
        norm_lanes odd = *(const norm_lanes *)(x + (i + 1) * stride) - k;
        s[0] += even;
        s[1] += odd;
        q[0] += even * even;
        q[1] += odd * odd;
    }
    if (i < vectors) {
        norm_lanes last = *(const norm_lanes *)(x + i * stride) - k;
        s[0] += last;
        q[0] += last * last;
    }
    s[0] += s[1];
    q[0] += q[1];
    for (size_t l = 0; l < NORM_LANES / 4; l++) { /* a quarter of the lanes */
        norm_wide_lanes *first = (norm_wide_lanes *)sums->first + l;
        norm_wide_lanes *second = (norm_wide_lanes *)sums->second + l;
        norm_wide_lanes to =
            __builtin_convertvector(((const norm_quarter_lanes *)&k)[l], norm_wide_lanes);
        norm_wide_lanes sum =
            __builtin_convertvector(((const norm_quarter_lanes *)&s[0])[l], norm_wide_lanes);
        norm_wide_lanes square =
            __builtin_convertvector(((const norm_quarter_lanes *)&q[0])[l], norm_wide_lanes);
        *first += to * n + sum;
        *second += (to * to) * n + (to * sum) * 2.0 + square;
    }
}

FOR_EACH_CPU void norm_tile_collect(const struct norm_tile *t, const float *x,
                                    struct norm_sums *sums)
{
    const float *rest = x + t->at + t->vectors * t->stride;

    memset(sums, 0, sizeof(*sums));
    for (size_t i = 0; i < t->vectors; i += CHUNK) {
        size_t n = t->vectors - i < CHUNK ? t->vectors - i : CHUNK;
        collect_chunk(x + t->at + i * t->stride, n, t->stride, sums);
    }
    for (size_t r = 0; r < t->rest; r++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            double value = (double)rest[r * t->stride + l];
            sums->first[l] += value;
            sums->second[l] += value * value;
        }
    }
    sums_fold(t, sums);
}

static ALWAYS_INLINE void apply_vectors(const struct norm_tile *t, const struct norm_affine *a,
                                        const float *x, float *y, bool with_relu)
{
    norm_lanes mean = *(const norm_lanes *)a->mean, scale = *(const norm_lanes *)a->scale;
    norm_lanes shift = *(const norm_lanes *)a->shift;

    for (size_t i = 0; i < t->vectors; i++) {
        size_t at = t->at + i * t->stride;
        norm_lanes value = (*(const norm_lanes *)(x + at) - mean) * scale + shift;
        /* Not where it is above 0: a NaN has to stay one until somebody notices. */
        if (with_relu) value = (norm_lanes)((norm_masks)value & ~(value < 0.0F));
        *(norm_lanes *)(y + at) = value;
    }
}

FOR_EACH_CPU void norm_tile_apply(const struct norm_tile *t, const struct norm_affine *a,
                                  const float *x, float *y)
{
    size_t from = t->is_whole ? t->vectors : 0;

    if (t->is_whole && a->with_relu) apply_vectors(t, a, x, y, true);
    if (t->is_whole && !a->with_relu) apply_vectors(t, a, x, y, false);
    for (size_t i = from; i < t->vectors + t->rest; i++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            size_t at = t->at + i * t->stride + l;
            float value = (x[at] - a->mean[l]) * a->scale[l] + a->shift[l];
            y[at] = a->with_relu && value < 0.0F ? 0.0F : value;
        }
    }
}

/* The vector at `at`, into both sums. */
static ALWAYS_INLINE void backward_step(const struct norm_products *p, size_t at, bool is_masked,
                                        norm_lanes *s, norm_lanes *q)
{
    norm_lanes value = *(const norm_lanes *)(p->dy + at);

    if (is_masked) {
        norm_masks is_on = *(const norm_lanes *)(p->y + at) > 0.0F;
        value = (norm_lanes)((norm_masks)value & is_on);
        *(norm_lanes *)(p->masked + at) = value;
    }
    *s += value;
    *q += value * (*(const norm_lanes *)(p->x + at) - *(const norm_lanes *)p->mean);
}

static ALWAYS_INLINE void backward_chunk(const struct norm_products *given, size_t at,
                                         size_t vectors, size_t stride, bool is_masked,
                                         struct norm_sums *sums)
{
    const struct norm_products p = *given; /* no store can change it */
    norm_lanes s[2] = {{0.0F}}, q[2] = {{0.0F}};
    size_t i = 0;

    for (; i + 2 <= vectors; i += 2) {
        backward_step(&p, at + i * stride, is_masked, &s[0], &q[0]);
        backward_step(&p, at + (i + 1) * stride, is_masked, &s[1], &q[1]);
    }
    if (i < vectors) backward_step(&p, at + i * stride, is_masked, &s[0], &q[0]);
    s[0] += s[1];
    q[0] += q[1];
    norm_lanes_add(&s[0], sums->first);
    norm_lanes_add(&q[0], sums->second);
}

FOR_EACH_CPU void norm_tile_backward_collect(const struct norm_tile *t,
                                             const struct norm_products *p, struct norm_sums *sums)
{
    bool by_vectors = t->is_whole || p->y == NULL;
    size_t from = by_vectors ? t->vectors : 0;

    memset(sums, 0, sizeof(*sums));
    for (size_t i = 0; i < from; i += CHUNK) {
        size_t n = from - i < CHUNK ? from - i : CHUNK;
        size_t at = t->at + i * t->stride;
        if (p->y != NULL) {
            backward_chunk(p, at, n, t->stride, true, sums);
        } else {
            backward_chunk(p, at, n, t->stride, false, sums);
        }
    }
    for (size_t i = from; i < t->vectors + t->rest; i++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            size_t at = t->at + i * t->stride + l;
            float dy = p->y == NULL || p->y[at] > 0.0F ? p->dy[at] : 0.0F;
            if (p->y != NULL) p->masked[at] = dy;
            sums->first[l] += (double)dy;
            sums->second[l] += (double)(dy * (p->x[at] - p->mean[l]));
        }
    }
    sums_fold(t, sums);
}

static ALWAYS_INLINE void gradient_vectors(const struct norm_tile *t, const struct norm_gradient *g,
                                           const float *x, const float *dy, float *dx, bool adds)
{
    norm_lanes mean = *(const norm_lanes *)g->mean, dy_scale = *(const norm_lanes *)g->dy_scale;
    norm_lanes x_scale = *(const norm_lanes *)g->x_scale, shift = *(const norm_lanes *)g->shift;

    for (size_t i = 0; i < t->vectors; i++) {
        size_t at = t->at + i * t->stride;
        norm_lanes value = (*(const norm_lanes *)(x + at) - mean) * x_scale + shift;
        value += *(const norm_lanes *)(dy + at) * dy_scale;
        if (adds) value += *(const norm_lanes *)(dx + at);
        *(norm_lanes *)(dx + at) = value;
    }
}

FOR_EACH_CPU void norm_tile_backward_apply(const struct norm_tile *t, const struct norm_gradient *g,
                                           const float *x, const float *dy, float *dx)
{
    size_t from = t->is_whole ? t->vectors : 0;

    if (t->is_whole && g->adds) gradient_vectors(t, g, x, dy, dx, true);
    if (t->is_whole && !g->adds) gradient_vectors(t, g, x, dy, dx, false);
    for (size_t i = from; i < t->vectors + t->rest; i++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            size_t at = t->at + i * t->stride + l;
            float value = (x[at] - g->mean[l]) * g->x_scale[l] + g->shift[l];
            value += dy[at] * g->dy_scale[l];
            dx[at] = g->adds ? dx[at] + value : value;
        }
    }
}
