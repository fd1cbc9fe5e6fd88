/*
 * image_tile: walking images of any layout in pieces of some columns of one row times some channels
 * of one block. Where the channels of a piece lie side by side a column is one vector; elsewhere
 * the piece is transposed in registers and first-level cache. Inlined, so that each caller's
 * variants for other processors have their own.
 */
#ifndef GRAPEVINE_KERNELS_CPU_IMAGE_IMAGE_TILE_H
#define GRAPEVINE_KERNELS_CPU_IMAGE_IMAGE_TILE_H

#include "kernels/image.h"

#include <string.h>

enum { TILE = 16 };

#define TILE_INLINE static inline __attribute__((always_inline))

struct image_tile {
    uint32_t channel, row, column; /* of its first value */
    uint32_t columns, lanes;       /* each at most TILE; a zeroed tile is before the first */
};

/* Where pixels `step` apart lie in images of a shape. */
struct tile_side {
    struct image_shape shape;
    uint32_t step;
};

TILE_INLINE size_t image_tile_at(const struct image_tile *t, const struct tile_side *side,
                                 uint32_t lane)
{
    struct image_shape s = side->shape;
    uint32_t channel = t->channel + lane;
    size_t line = (size_t)(channel / s.block) * s.height + (size_t)t->row * side->step;

    return (line * s.width + (size_t)t->column * side->step) * s.block + channel % s.block;
}

TILE_INLINE bool image_tile_is_vector(const struct image_tile *t, const struct tile_side *side)
{
    return t->channel % side->shape.block + t->lanes <= side->shape.block;
}

/** values[column][lane] = the tile of an image. */
TILE_INLINE void image_tile_load(const struct image_tile *t, const struct tile_side *side,
                                 const float *image, float (*values)[TILE])
{
    size_t step = (size_t)side->step * side->shape.block;

    if (image_tile_is_vector(t, side)) {
        const float *from = image + image_tile_at(t, side, 0);
        for (uint32_t c = 0; c < t->columns; c++) {
            if (t->lanes == TILE) {
                memcpy(values[c], from + c * step, sizeof(values[c]));
            } else {
                memcpy(values[c], from + c * step, t->lanes * sizeof(float));
            }
        }
        return;
    }
    for (uint32_t l = 0; l < t->lanes; l++) {
        const float *from = image + image_tile_at(t, side, l);
        for (uint32_t c = 0; c < t->columns; c++) {
            values[c][l] = from[c * step];
        }
    }
}

/** The tile of an image = values[column][lane]. */
TILE_INLINE void image_tile_store(const struct image_tile *t, const struct tile_side *side,
                                  float (*values)[TILE], float *image)
{
    size_t step = (size_t)side->step * side->shape.block;

    if (image_tile_is_vector(t, side)) {
        float *to = image + image_tile_at(t, side, 0);
        for (uint32_t c = 0; c < t->columns; c++) {
            if (t->lanes == TILE) {
                memcpy(to + c * step, values[c], sizeof(values[c]));
            } else {
                memcpy(to + c * step, values[c], t->lanes * sizeof(float));
            }
        }
        return;
    }
    for (uint32_t l = 0; l < t->lanes; l++) {
        float *to = image + image_tile_at(t, side, l);
        for (uint32_t c = 0; c < t->columns; c++) {
            to[c * step] = values[c][l];
        }
    }
}

/** To the tile after `t` of an image of `shape`; false after the last. No tile crosses a border of
 *  the shape's blocks. */
static inline bool image_tile_next(struct image_tile *t, struct image_shape shape)
{
    if (t->lanes == 0) {
        t->channel = t->row = t->column = 0;
    } else if (t->column + t->columns < shape.width) {
        t->column += t->columns;
    } else if (t->row + 1 < shape.height) {
        t->column = 0;
        t->row++;
    } else {
        t->column = 0;
        t->row = 0;
        t->channel += t->lanes;
    }
    if (t->channel >= shape.channels) return false;
    t->columns = shape.width - t->column < TILE ? shape.width - t->column : TILE;
    t->lanes = shape.block - t->channel % shape.block;
    if (t->lanes > TILE) t->lanes = TILE;
    return true;
}

#endif
