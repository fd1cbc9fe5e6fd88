/*
 * Max pooling with relu folded in, between any two channel layouts, and the rewriting of layouts.
 * max and relu commute, so pooling first leaves a quarter of the values for relu, and the winner's
 * byte says all the gradient needs: neither the input nor the output has to be kept.
 *
 * Work goes by tiles of TILE output columns times TILE channels: on a blocked layout the channels
 * are one vector, and a tile is transposed in registers and first-level cache when the other side
 * is plain.
 */
#include "kernels/cpu/internal.h"

#include "base/check.h"
#include "kernels/cpu/reference.h"

#include <string.h>

enum { TILE = 16 };

/* One tile of one output row: `columns` windows, `lanes` channels from one block on. */
struct tile {
    const struct pool_options *options;
    uint32_t channel, row, column; /* of its first output value */
    uint32_t columns, lanes;
};

/* A whole tile's lanes at once. Written with the compiler's vectors because it does not turn the
 * choice of value and winner into masks by itself. */
typedef float float_lanes __attribute__((vector_size(TILE * 4), aligned(4), may_alias));
typedef int32_t int_lanes __attribute__((vector_size(TILE * 4), aligned(4), may_alias));
typedef uint8_t byte_lanes __attribute__((vector_size(TILE), aligned(1), may_alias));

static inline __attribute__((always_inline)) void
window_lanes(const struct pool_options *o, const float *x, float *best, uint8_t *winner)
{
    size_t step = o->in.block, line = (size_t)o->in.width * step;
    int_lanes value = *(const int_lanes *)x, which = {0};

    for (uint32_t k = 1; k < o->size * o->size; k++) {
        int_lanes next = *(const int_lanes *)(x + k / o->size * line + k % o->size * step);
        int_lanes is_larger = (float_lanes)next > (float_lanes)value;
        value = (is_larger & next) | (~is_larger & value);
        which = (is_larger & (int32_t)k) | (~is_larger & which);
    }
    if (o->with_relu) {
        int_lanes is_positive = (float_lanes)value > 0.0F;
        which = (is_positive & which) | (~is_positive & POOL_NONE);
        value &= ~((float_lanes)value < 0.0F); /* a NaN stays */
    }
    *(int_lanes *)best = value;
    *(byte_lanes *)winner = __builtin_convertvector(which, byte_lanes);
}

/* Fewer lanes, one by one. */
static void window_few(const struct tile *t, const float *x, float *best, uint8_t *winner)
{
    const struct pool_options *o = t->options;
    size_t step = o->in.block, line = (size_t)o->in.width * step;

    for (uint32_t l = 0; l < t->lanes; l++) {
        best[l] = x[l];
        winner[l] = 0;
        for (uint32_t k = 1; k < o->size * o->size; k++) {
            float next = x[k / o->size * line + k % o->size * step + l];
            if (!(next > best[l])) continue;
            best[l] = next;
            winner[l] = (uint8_t)k;
        }
        if (!o->with_relu) continue;
        if (!(best[l] > 0.0F)) winner[l] = POOL_NONE;
        if (best[l] < 0.0F) best[l] = 0.0F;
    }
}

/* Copy a tile between [columns][TILE] and an image in any layout. */
static void tile_store(const struct tile *t, struct image_shape shape, float (*values)[TILE],
                       float *image)
{
    for (uint32_t l = 0; l < t->lanes; l++) {
        float *to = image + reference_index(shape, t->channel + l, t->row, t->column);
        for (uint32_t c = 0; c < t->columns; c++) {
            to[(size_t)c * shape.block] = values[c][l];
        }
    }
}

static void tile_load(const struct tile *t, struct image_shape shape, const float *image,
                      float (*values)[TILE])
{
    for (uint32_t l = 0; l < t->lanes; l++) {
        const float *from = image + reference_index(shape, t->channel + l, t->row, t->column);
        for (uint32_t c = 0; c < t->columns; c++) {
            values[c][l] = from[(size_t)c * shape.block];
        }
    }
}

FOR_EACH_CPU static void tile_forward(const struct tile *t, const float *x, float *y,
                                      uint8_t *winner)
{
    const struct pool_options *o = t->options;
    float best[TILE][TILE];
    struct image_shape winners = o->out;
    size_t from = reference_index(o->in, t->channel, t->row * o->size, t->column * o->size);
    size_t to;

    winners.block = o->in.block;
    to = reference_index(winners, t->channel, t->row, t->column);
    for (uint32_t c = 0; c < t->columns; c++) {
        const float *window = x + from + (size_t)c * o->size * o->in.block;
        uint8_t local[TILE];
        if (t->lanes == TILE) {
            window_lanes(o, window, best[c], local);
        } else {
            window_few(t, window, best[c], local);
        }
        if (winner != NULL) memcpy(winner + to + (size_t)c * o->in.block, local, t->lanes);
    }
    tile_store(t, o->out, best, y);
}

FOR_EACH_CPU static void tile_backward(const struct tile *t, const float *dy, const uint8_t *winner,
                                       float *dx)
{
    const struct pool_options *o = t->options;
    float local[TILE][TILE];
    struct image_shape winners = o->out;
    size_t line = (size_t)o->in.width * o->in.block;

    winners.block = o->in.block;
    tile_load(t, o->out, dy, local);
    for (uint32_t c = 0; c < t->columns; c++) {
        const uint8_t *from = winner + reference_index(winners, t->channel, t->row, t->column + c);
        float *to =
            dx + reference_index(o->in, t->channel, t->row * o->size, (t->column + c) * o->size);
        for (uint32_t k = 0; k < o->size * o->size; k++) {
            float *at = to + k / o->size * line + (size_t)(k % o->size) * o->in.block;
            if (t->lanes == TILE) {
                int_lanes which = __builtin_convertvector(*(const byte_lanes *)from, int_lanes);
                *(int_lanes *)at = (which == (int32_t)k) & *(const int_lanes *)local[c];
                continue;
            }
            for (uint32_t l = 0; l < t->lanes; l++) {
                at[l] = from[l] == k ? local[c][l] : 0.0F;
            }
        }
    }
}

/* The tile after `t` of an image of `shape`; channels in runs that no block border cuts. */
static bool tile_next(struct tile *t, struct image_shape shape, uint32_t block)
{
    if (t->lanes == 0) {
        *t = (struct tile){.options = t->options};
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
    t->lanes = block - t->channel % block;
    if (t->lanes > TILE) t->lanes = TILE;
    return true;
}

static void pool_check(const struct pool_options *o)
{
    CHECK(o->size >= 2 && o->size <= POOL_SIZE_MAX);
    CHECK(o->out.height == o->in.height / o->size && o->out.width == o->in.width / o->size);
    CHECK(o->out.channels == o->in.channels && o->out.height > 0 && o->out.width > 0);
    CHECK(o->in.channels % o->in.block == 0 && o->out.channels % o->out.block == 0);
}

enum rc cpu_pool_forward(struct backend *backend, const struct pool_options *options,
                         uint32_t images, const float *x, float *y, uint8_t *winner)
{
    size_t in = image_values(options->in), out = image_values(options->out);

    pool_check(options);
    if (cpu_of(backend)->options.is_reference) {
        reference_pool_forward(options, images, x, y, winner);
        return RC_OK;
    }
    for (uint32_t n = 0; n < images; n++) {
        struct tile tile = {.options = options};
        while (tile_next(&tile, options->out, options->in.block)) {
            tile_forward(&tile, x + n * in, y + n * out, winner == NULL ? NULL : winner + n * out);
        }
    }
    return RC_OK;
}

enum rc cpu_pool_backward(struct backend *backend, const struct pool_options *options,
                          uint32_t images, const float *dy, const uint8_t *winner, float *dx)
{
    size_t in = image_values(options->in), out = image_values(options->out);
    bool has_border =
        options->in.height % options->size != 0 || options->in.width % options->size != 0;

    pool_check(options);
    if (cpu_of(backend)->options.is_reference) {
        reference_pool_backward(options, images, dy, winner, dx);
        return RC_OK;
    }
    if (has_border) memset(dx, 0, images * in * sizeof(*dx)); /* no window covers it */
    for (uint32_t n = 0; n < images; n++) {
        struct tile tile = {.options = options};
        while (tile_next(&tile, options->out, options->in.block)) {
            tile_backward(&tile, dy + n * out, winner + n * out, dx + n * in);
        }
    }
    return RC_OK;
}

enum rc cpu_relayout(struct backend *backend, struct image_shape from, uint32_t to_block,
                     uint32_t images, const float *x, float *y)
{
    struct image_shape to = from;
    size_t values = image_values(from);

    CHECK(from.channels % from.block == 0 && to_block > 0 && from.channels % to_block == 0);
    if (cpu_of(backend)->options.is_reference) {
        reference_relayout(from, to_block, images, x, y);
        return RC_OK;
    }
    to.block = to_block;
    for (uint32_t n = 0; n < images; n++) {
        struct tile tile = {0};
        while (tile_next(&tile, from, from.block)) {
            float local[TILE][TILE];
            tile_load(&tile, from, x + n * values, local);
            tile_store(&tile, to, local, y + n * values);
        }
    }
    return RC_OK;
}
