/*
 * attention_product: the matrix product of attention's tiles, and how rows lie in scratch memory.
 * Tiles are small (48 x 48 x 32), lie packed in the cache and are often cut by the diagonal:
 * a library's packing and call cost as much as such a product. Only attention*.c includes it.
 */
#ifndef GRAPEVINE_KERNELS_CPU_SEQUENCE_ATTENTION_PRODUCT_H
#define GRAPEVINE_KERNELS_CPU_SEQUENCE_ATTENTION_PRODUCT_H

#include "kernels/cpu/internal.h"

/* Values side by side, rows at once: what registers hold. A block of queries or keys is whole both
 * ways. */
enum { LANES = 16, ROWS = 6, SIDE = 48 };

_Static_assert(SIDE % LANES == 0 && SIDE % ROWS == 0, "blocks are made of panels and of tiles");

/* C[rows][columns] = (adds ? C : 0) + A B; rows a multiple of ROWS, columns of LANES. Element
 * (i, k) of A is a[i * a_row + k * a_inner]. */
struct tile_product {
    size_t rows, columns, inner;
    const float *a;
    size_t a_row, a_inner;
    const float *b;
    size_t b_stride;
    float *c;
    size_t c_stride;
    bool adds;
};

void tile_product(const struct tile_product *product);
/* Scores [rows][SIDE] of the keys from `first` on, of the panel of LANES queries from `query` on:
 * of keys behind their query they become minus infinity. */
void mask_scores(float *scores, size_t rows, size_t first, size_t query);

/* One head of one sample, and where its rows of queries, keys or values come from. */
struct head_rows {
    const float *from; /* the first row of the sample, at this head */
    size_t stride, steps, width;
    size_t padded;         /* values of a row in scratch memory: a multiple of LANES */
    const float *rotation; /* [steps][width]: cosines, then sines; NULL: rows are not rotated */
};

/* Rows [first, first + count) to `to`, rotated and scaled; rows past the end and what pads a row
 * are zeros. */
void head_pack(const struct head_rows *rows, size_t first, size_t count, float scale, float *to);
/* The gradient's way back: `count` packed rows to rows of the stride, rotated back and scaled. */
void head_unpack(const struct head_rows *rows, size_t first, size_t count, float scale,
                 const float *packed, float *to);
/* to[padded][LANES] from LANES packed rows. */
void head_transpose(const float *packed, size_t padded, float *to);
/* dots[r] = the products of rows first + r of a and b, added up. */
void head_dot(const struct head_rows *a, const struct head_rows *b, size_t first, size_t count,
              float *dots);
/* The table that `rotation` points to. */
void head_rotation(size_t steps, size_t width, float *table);

/* attention.c, attention_backward.c */
void attention_check(const struct attention *attention);
size_t attention_backward_scratch(const struct attention *attention);

static inline size_t round_up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* Where the mask begins, a panel at `query` has weights for so many keys: those that its last query
 * sees, and, as zeros, those that others in that one's register tile see. */
static inline size_t panel_keys(size_t query)
{
    return round_up(query + LANES, ROWS);
}

/* Room for `count` values in scratch memory, which begin at *at; both in float32 values. */
static inline size_t scratch_take(size_t *at, size_t count)
{
    size_t here = *at;

    *at += round_up(count, LANES);
    return here;
}

#endif
