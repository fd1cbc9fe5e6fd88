/*
 * winograd: the transforms and products of F(4x4, 3x3), Winograd's minimal filtering for 3x3
 * windows one pixel apart (Lavin, Gray 2015, arXiv:1509.09308): 4x4 outputs from 6x6 inputs by 36
 * multiplications a channel instead of 144. With the paper's matrices
 *
 *     Y  = A^T [ (G g G^T) . (B^T d B) ] A        outputs of one tile, summed over input channels
 *     dg = G^T [ (A dY A^T) . (B^T d B) ] G       the gradient of the filter, summed over tiles
 *
 * where . is the product point by point. Transformed values of a number of tiles lie in 36 planes,
 * one a point, each a matrix [tiles][channels], so that . and the sum are 36 products of matrices.
 * Transforms take a register of channels at a time: eight with AVX2 and FMA, sixteen with AVX-512.
 */
#ifndef GRAPEVINE_KERNELS_CPU_IMAGE_WINOGRAD_H
#define GRAPEVINE_KERNELS_CPU_IMAGE_WINOGRAD_H

#include "kernels/image.h"

enum {
    WINOGRAD_TAPS = 3,    /* of a filter, each way */
    WINOGRAD_OUTS = 4,    /* of a tile, each way */
    WINOGRAD_INS = 6,     /* and what it reads */
    WINOGRAD_POINTS = 36, /* planes */
    WINOGRAD_COLUMNS = 16 /* of a panel of transformed filters */
};

/* Tiles of the images of a batch, row by row, image by image. */
struct winograd_grid {
    struct image_shape shape; /* block: a multiple of the lanes */
    int64_t top, left;        /* of the first tile of an image; may lie outside, as may the last */
    size_t down, across;      /* tiles of an image, WINOGRAD_OUTS pixels apart */
};

struct winograd_planes {
    float *values;
    size_t stride;   /* from a plane to the next */
    size_t channels; /* of a row, which is one tile */
};

/** Values from a plane of `rows` x `channels` to the next: planes lie so that their beginnings do
 * not share sets of the cache. */
static inline size_t winograd_plane_stride(size_t rows, size_t channels)
{
    enum { LINE = 16 }; /* of the cache */

    return ((rows * channels + LINE - 1) / LINE | 1) * LINE;
}

/* Plain filters: [out][in][3][3]. */
struct winograd_filters {
    uint32_t ins, outs; /* multiples of WINOGRAD_COLUMNS */
};

/* C[rows][columns] (+)= A B, with fused multiply-add over the inner index in ascending order. */
struct winograd_product {
    size_t rows, inner, columns; /* columns: of whole panels */
    const float *a;
    size_t a_stride;
    bool is_a_transposed; /* [inner][rows] */
    const float *b;
    size_t b_stride, b_panel; /* from a row to the next, and from a panel to the next */
    float *c;
    size_t c_stride;
    bool adds;
};

/* What each instruction set has of its own; all give the same bits. */
struct winograd_ops {
    size_t lanes; /* channels that a transform takes; they lie side by side in an image */
    /** to = B^T d B of `count` tiles from `first`; outside of an image is 0. */
    void (*inputs)(const struct winograd_grid *grid, const float *images, size_t first,
                   size_t count, const struct winograd_planes *to);
    /** to = A dY A^T. */
    void (*gradients)(const struct winograd_grid *grid, const float *images, size_t first,
                      size_t count, const struct winograd_planes *to);
    /** Images = A^T from A + bias, then max(0, .) if wanted; what hangs over is left out. bias:
     *  NULL without. */
    void (*outputs)(const struct winograd_grid *grid, const struct winograd_planes *from,
                    size_t first, size_t count, const float *bias, bool with_relu, float *images);
    /** Planes of panels [outs / 16][ins][16] of G g G^T; turned, for the gradients of inputs:
     *  panels [ins / 16][outs][16] of filters turned by half a turn. */
    void (*filters_forward)(const struct winograd_filters *filters, bool is_turned,
                            const float *weight, float *to);
    /** weight (+)= G^T from G of planes [ins][outs], for inputs [first, last). */
    void (*filters_backward)(const struct winograd_filters *filters, const float *from,
                             size_t first, size_t last, bool adds, float *weight);
    /** bias (+)= sums of channels [first, last) over all pixels of `images` images. */
    void (*bias)(const struct winograd_grid *grid, uint32_t images, const float *values,
                 size_t first, size_t last, bool adds, float *bias);
    void (*multiply)(const struct winograd_product *product);
};

extern const struct winograd_ops winograd_avx2, winograd_avx512;

#endif
