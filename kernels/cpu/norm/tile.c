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
#include "kernels/cpu/norm/internal.h"

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

/* Which of the tile's channels lane l belongs to; a whole tile's period is a power of two. */
static ALWAYS_INLINE size_t channel_of(const struct norm_tile *t, size_t l)
{
    return t->is_whole ? l & (t->period - 1) : l;
}

/* One value per channel, repeated over the lanes. */
static ALWAYS_INLINE void spread(const struct norm_tile *t, const float *values,
                                 norm_half_lanes lanes[2])
{
    float repeated[NORM_LANES];

    if (t->period == 1) {
        norm_half_lanes one = values[0] - (norm_half_lanes){0.0F};

        lanes[0] = one;
        lanes[1] = one;
        return;
    }
    if (t->period != NORM_LANES && t->is_whole) {
        for (size_t l = 0; l < NORM_LANES; l++) {
            repeated[l] = values[channel_of(t, l)];
        }
        values = repeated;
    }
    lanes[0] = *norm_half_of(values, 0);
    lanes[1] = *norm_half_of(values, 1);
}

/* Add up the lanes of one channel, in quarters as they were stored: a processor waits for stores
 * to end before it loads from two of them at once. */
static ALWAYS_INLINE void fold(const struct norm_tile *t, double *sums)
{
    norm_wide_lanes *wide = (norm_wide_lanes *)sums;

    if (!t->is_whole) return; /* lanes beyond the period are others' */
    if (t->period <= 8) {
        wide[0] += wide[2];
        wide[1] += wide[3];
    }
    if (t->period <= 4) wide[0] += wide[1];
    if (t->period <= 2) {
        sums[0] += sums[2];
        sums[1] += sums[3];
    }
    if (t->period == 1) sums[0] += sums[1];
}

/* Half h of `vectors` vectors into the sums. Two sets: the additions of one wait for each other. */
static ALWAYS_INLINE void collect_half(const float *x, size_t vectors, size_t stride, size_t h,
                                       struct norm_sums *sums)
{
    norm_half_lanes k = *norm_half_of(x, h);
    norm_half_lanes s[2] = {{0.0F}}, q[2] = {{0.0F}};
    size_t i = 0;

    for (; i + 2 <= vectors; i += 2) {
        norm_half_lanes even = *norm_half_of(x + i * stride, h) - k;
        norm_half_lanes odd = *norm_half_of(x + (i + 1) * stride, h) - k;
        s[0] += even;
        s[1] += odd;
        q[0] += even * even;
        q[1] += odd * odd;
    }
    if (i < vectors) {
        norm_half_lanes last = *norm_half_of(x + i * stride, h) - k;
        s[0] += last;
        q[0] += last * last;
    }
    s[0] += s[1];
    q[0] += q[1];
    for (size_t l = 0; l < 2; l++) { /* a quarter of the lanes */
        norm_wide_lanes *first = (norm_wide_lanes *)sums->first + 2 * h + l;
        norm_wide_lanes *second = (norm_wide_lanes *)sums->second + 2 * h + l;
        norm_wide_lanes to =
            __builtin_convertvector(((const norm_quarter_lanes *)&k)[l], norm_wide_lanes);
        norm_wide_lanes sum =
            __builtin_convertvector(((const norm_quarter_lanes *)&s[0])[l], norm_wide_lanes);
        norm_wide_lanes square =
            __builtin_convertvector(((const norm_quarter_lanes *)&q[0])[l], norm_wide_lanes);
        *first += to * (double)vectors + sum;
        *second += (to * to) * (double)vectors + (to * sum) * 2.0 + square;
    }
}

FOR_EACH_CPU(extern, void, norm_tile_collect,
             (const struct norm_tile *t, const float *x, struct norm_sums *sums), (t, x, sums))
{
    const float *rest = x + t->at + t->vectors * t->stride;

    memset(sums, 0, sizeof(*sums));
    for (size_t i = 0; i < t->vectors; i += CHUNK) {
        size_t n = t->vectors - i < CHUNK ? t->vectors - i : CHUNK;
        collect_half(x + t->at + i * t->stride, n, t->stride, 0, sums);
        collect_half(x + t->at + i * t->stride, n, t->stride, 1, sums);
    }
    for (size_t r = 0; r < t->rest; r++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            double value = (double)rest[r * t->stride + l];
            sums->first[l] += value;
            sums->second[l] += value * value;
        }
    }
    fold(t, sums->first);
    fold(t, sums->second);
}

static ALWAYS_INLINE void apply_vectors(const struct norm_tile *t, const struct norm_affine *a,
                                        const float *x, float *y, bool with_relu)
{
    norm_half_lanes mean[2], scale[2], shift[2];
    size_t at = t->at, end = at + t->vectors * t->stride, stride = t->stride;

    spread(t, a->mean, mean);
    spread(t, a->scale, scale);
    spread(t, a->shift, shift);
    for (; at < end; at += stride) {
        for (size_t h = 0; h < 2; h++) {
            norm_half_lanes value = (*norm_half_of(x + at, h) - mean[h]) * scale[h] + shift[h];
            /* Not where it is above 0: a NaN has to stay one until somebody notices. */
            if (with_relu) value = (norm_half_lanes)((norm_half_masks)value & ~(value < 0.0F));
            *norm_half_at(y + at, h) = value;
        }
    }
}

FOR_EACH_CPU(extern, void, norm_tile_apply,
             (const struct norm_tile *t, const struct norm_affine *a, const float *x, float *y),
             (t, a, x, y))
{
    size_t from = t->is_whole ? t->vectors : 0;

    if (t->is_whole && a->with_relu) apply_vectors(t, a, x, y, true);
    if (t->is_whole && !a->with_relu) apply_vectors(t, a, x, y, false);
    for (size_t i = from; i < t->vectors + t->rest; i++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            size_t at = t->at + i * t->stride + l;
            size_t c = channel_of(t, l);
            float value = (x[at] - a->mean[c]) * a->scale[c] + a->shift[c];
            y[at] = a->with_relu && value < 0.0F ? 0.0F : value;
        }
    }
}

/* Half h of the vector at `at`, into both sums. */
static ALWAYS_INLINE void backward_step(const struct norm_products *p, size_t at, size_t h,
                                        bool is_masked, const norm_half_lanes mean[2],
                                        norm_half_lanes s[2], norm_half_lanes q[2])
{
    norm_half_lanes value = *norm_half_of(p->dy + at, h);

    if (is_masked) {
        norm_half_masks is_on = *norm_half_of(p->y + at, h) > 0.0F;
        value = (norm_half_lanes)((norm_half_masks)value & is_on);
        *norm_half_at(p->masked + at, h) = value;
    }
    s[h] += value;
    q[h] += value * (*norm_half_of(p->x + at, h) - mean[h]);
}

/* `vectors` vectors of the tile, from `first` on. */
static ALWAYS_INLINE void backward_chunk(const struct norm_tile *t,
                                         const struct norm_products *given, size_t first,
                                         size_t vectors, bool is_masked, struct norm_sums *sums)
{
    const struct norm_products p = *given; /* no store can change it */
    norm_half_lanes mean[2], s[2] = {{0.0F}}, q[2] = {{0.0F}};
    norm_half_lanes odd_s[2] = {{0.0F}}, odd_q[2] = {{0.0F}};
    size_t i = 0, stride = t->stride, at = t->at + first * stride;

    spread(t, given->mean, mean);
    for (; i + 2 <= vectors; i += 2) {
        for (size_t h = 0; h < 2; h++) {
            backward_step(&p, at + i * stride, h, is_masked, mean, s, q);
            backward_step(&p, at + (i + 1) * stride, h, is_masked, mean, odd_s, odd_q);
        }
    }
    for (size_t h = 0; h < 2; h++) {
        if (i < vectors) backward_step(&p, at + i * stride, h, is_masked, mean, s, q);
        s[h] += odd_s[h];
        q[h] += odd_q[h];
    }
    norm_lanes_add(s, sums->first);
    norm_lanes_add(q, sums->second);
}

FOR_EACH_CPU(extern, void, norm_tile_backward_collect,
             (const struct norm_tile *t, const struct norm_products *p, struct norm_sums *sums),
             (t, p, sums))
{
    bool by_vectors = t->is_whole || p->y == NULL;
    size_t from = by_vectors ? t->vectors : 0;

    memset(sums, 0, sizeof(*sums));
    for (size_t i = 0; i < from; i += CHUNK) {
        size_t n = from - i < CHUNK ? from - i : CHUNK;
        if (p->y != NULL) {
            backward_chunk(t, p, i, n, true, sums);
        } else {
            backward_chunk(t, p, i, n, false, sums);
        }
    }
    for (size_t i = from; i < t->vectors + t->rest; i++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            size_t at = t->at + i * t->stride + l;
            float dy = p->y == NULL || p->y[at] > 0.0F ? p->dy[at] : 0.0F;
            if (p->y != NULL) p->masked[at] = dy;
            sums->first[l] += (double)dy;
            sums->second[l] += (double)(dy * (p->x[at] - p->mean[channel_of(t, l)]));
        }
    }
    fold(t, sums->first);
    fold(t, sums->second);
}

static ALWAYS_INLINE void gradient_vectors(const struct norm_tile *t, const struct norm_gradient *g,
                                           const float *x, const float *dy, float *dx, bool adds)
{
    norm_half_lanes mean[2], dy_scale[2], x_scale[2], shift[2];
    size_t at = t->at, end = at + t->vectors * t->stride, stride = t->stride;

    spread(t, g->mean, mean);
    spread(t, g->dy_scale, dy_scale);
    spread(t, g->x_scale, x_scale);
    spread(t, g->shift, shift);
    for (; at < end; at += stride) {
        for (size_t h = 0; h < 2; h++) {
            norm_half_lanes value = (*norm_half_of(x + at, h) - mean[h]) * x_scale[h] + shift[h];
            value += *norm_half_of(dy + at, h) * dy_scale[h];
            if (adds) value += *norm_half_of(dx + at, h);
            *norm_half_at(dx + at, h) = value;
        }
    }
}

FOR_EACH_CPU(extern, void, norm_tile_backward_apply,
             (const struct norm_tile *t, const struct norm_gradient *g, const float *x,
              const float *dy, float *dx),
             (t, g, x, dy, dx))
{
    size_t from = t->is_whole ? t->vectors : 0;

    if (t->is_whole && g->adds) gradient_vectors(t, g, x, dy, dx, true);
    if (t->is_whole && !g->adds) gradient_vectors(t, g, x, dy, dx, false);
    for (size_t i = from; i < t->vectors + t->rest; i++) {
        for (size_t l = 0; l < t->rest_lanes; l++) {
            size_t at = t->at + i * t->stride + l;
            size_t c = channel_of(t, l);
            float value = (x[at] - g->mean[c]) * g->x_scale[c] + g->shift[c];
            value += dy[at] * g->dy_scale[c];
            dx[at] = g->adds ? dx[at] + value : value;
        }
    }
}
