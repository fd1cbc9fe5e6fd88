/*
 * norm_internal: what the normalisations of the CPU share: images cut into tiles of up to LANES
 * channels, and the four loops over such a tile that everything else is made of. Any thread.
 */
#ifndef GRAPEVINE_KERNELS_CPU_NORM_INTERNAL_H
#define GRAPEVINE_KERNELS_CPU_NORM_INTERNAL_H

#include "kernels/cpu/internal.h"

enum { NORM_LANES = 16 };

/* Lanes are two vectors of AVX2, which others take in parts and get the same bits. Not one of
 * AVX-512: gcc, for less, compares the values of such one by one and keeps sums in memory. */
enum { NORM_HALF = NORM_LANES / 2 };
typedef float norm_half_lanes __attribute__((vector_size(NORM_LANES * 2), aligned(4), may_alias));
typedef int32_t norm_half_masks __attribute__((vector_size(NORM_LANES * 2), aligned(4), may_alias));
typedef float norm_quarter_lanes __attribute__((vector_size(NORM_LANES), aligned(4), may_alias));
typedef double norm_wide_lanes __attribute__((vector_size(NORM_LANES * 2), aligned(8), may_alias));

/* Images as [planes][rows][columns], a column being a channel. */
struct norm_view {
    size_t planes, rows;
    uint32_t columns, channels;
};

/* The part of a plane that belongs to `period` channels: `vectors` vectors of LANES values,
 * `stride` values apart, then `rest` rows of `rest_lanes` values. Lane l holds channel + l %
 * period. Where `is_whole` is false the vectors overlap what belongs to others: they may be read,
 * not written. */
struct norm_tile {
    size_t plane, at, vectors, stride, rest;
    uint32_t column, channel, period, rest_lanes;
    bool is_whole;
};

/* Below, entry l is that of the tile's channel l; only the first `period` count. */

/* Sums of x and x^2, or of dy and dy (x - mean). */
struct norm_sums {
    double first[NORM_LANES], second[NORM_LANES];
};

/* What goes into the sums of dy and dy (x - mean). */
struct norm_products {
    float mean[NORM_LANES];
    const float *x, *dy;
    const float *y; /* NULL: no mask; otherwise dy counts as 0 where y is not above 0, */
    float *masked;  /* and is stored here; may be dy */
};

/* y = (x - mean) scale + shift. */
struct norm_affine {
    float mean[NORM_LANES], scale[NORM_LANES], shift[NORM_LANES];
    bool with_relu;
};

/* dx = dy dy_scale + (x - mean) x_scale + shift. */
struct norm_gradient {
    float mean[NORM_LANES], dy_scale[NORM_LANES], x_scale[NORM_LANES], shift[NORM_LANES];
    bool adds;
};

struct norm_view norm_view_of(struct image_shape shape, uint32_t images);
/** The first tile of a zeroed `tile`, then the next; within a plane channels come in order. */
bool norm_tile_next(const struct norm_view *view, struct norm_tile *tile);
void norm_tile_collect(const struct norm_tile *tile, const float *x, struct norm_sums *sums);
void norm_tile_apply(const struct norm_tile *tile, const struct norm_affine *affine, const float *x,
                     float *y);
void norm_tile_backward_collect(const struct norm_tile *tile, const struct norm_products *products,
                                struct norm_sums *sums);
void norm_tile_backward_apply(const struct norm_tile *tile, const struct norm_gradient *gradient,
                              const float *x, const float *dy, float *dx);

static inline __attribute__((always_inline)) norm_half_lanes *norm_half_at(float *x, size_t half)
{
    return (norm_half_lanes *)(x + half * NORM_HALF);
}

static inline __attribute__((always_inline)) const norm_half_lanes *norm_half_of(const float *x,
                                                                                 size_t half)
{
    return (const norm_half_lanes *)(x + half * NORM_HALF);
}

/* Sum of the lanes, always in the same order. */
static inline __attribute__((always_inline)) float norm_lanes_sum(const norm_half_lanes lanes[2])
{
    norm_half_lanes half = lanes[0] + lanes[1];
    const norm_quarter_lanes *quarters = (const norm_quarter_lanes *)&half;
    norm_quarter_lanes quarter = quarters[0] + quarters[1];

    return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* to[l] += lanes[l]; a quarter at a time, as compilers do not find the instruction otherwise. */
static inline __attribute__((always_inline)) void norm_lanes_add(const norm_half_lanes lanes[2],
                                                                 double *to)
{
    norm_wide_lanes *wide = (norm_wide_lanes *)to;

    for (size_t h = 0; h < 2; h++) {
        norm_half_lanes half = lanes[h];
        const norm_quarter_lanes *quarters = (const norm_quarter_lanes *)&half;
        wide[2 * h] += __builtin_convertvector(quarters[0], norm_wide_lanes);
        wide[2 * h + 1] += __builtin_convertvector(quarters[1], norm_wide_lanes);
    }
}

/* batch.c */
enum rc cpu_batch_norm_collect(struct backend *backend, const struct batch_norm *norm,
                               uint32_t images, const void *x, double *sums);
enum rc cpu_batch_norm_close(struct backend *backend, const struct batch_norm *norm,
                             const struct batch_norm_close *close);
enum rc cpu_batch_norm_rstd(struct backend *backend, const struct batch_norm *norm,
                            const float *variance, float *rstd);
enum rc cpu_batch_norm_apply(struct backend *backend, const struct batch_norm *norm,
                             uint32_t images, const void *x, const struct channel_affine *affine,
                             void *y);
enum rc cpu_batch_norm_backward_collect(struct backend *backend, const struct batch_norm *norm,
                                        uint32_t images, const struct batch_norm_backward *pass);
enum rc cpu_batch_norm_backward_close(struct backend *backend, const struct batch_norm *norm,
                                      const double *sums, bool is_first, float *dgamma,
                                      float *dbeta);
enum rc cpu_batch_norm_backward_apply(struct backend *backend, const struct batch_norm *norm,
                                      uint32_t images, const struct batch_norm_backward *pass);

/* group.c */
enum rc cpu_group_norm_forward(struct backend *backend, const struct group_norm *norm,
                               uint32_t images, const void *x, const float *gamma,
                               const float *beta, void *y, float *mean, float *rstd);
enum rc cpu_group_norm_backward(struct backend *backend, const struct group_norm *norm,
                                uint32_t images, const struct norm_backward *pass);

/* layer.c */
enum rc cpu_layer_norm_forward(struct backend *backend, const struct layer_norm *norm,
                               const void *x, const float *gamma, const float *beta, void *y,
                               float *mean, float *rstd);
enum rc cpu_layer_norm_backward(struct backend *backend, const struct layer_norm *norm,
                                const struct norm_backward *pass);

/* weight.c */
enum rc cpu_weight_norm_forward(struct backend *backend, size_t rows, size_t columns,
                                const float *v, const float *g, float *w, float *norms);
enum rc cpu_weight_norm_backward(struct backend *backend, const struct weight_norm_backward *pass);

#endif
