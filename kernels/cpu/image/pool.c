/*
 * Pooling between any two channel layouts, maxima with relu folded in, and the rewriting of
 * layouts. max and relu commute, so pooling first leaves a fraction of the values for relu, and the
 * winner's byte says all the gradient needs: neither the input nor the output has to be kept.
 *
 * Work goes by the tiles of image_tile.h: the channels of a tile are one vector. Windows that
 * overlap add their gradients in the order of the windows; the others write them.
 */
#include "kernels/cpu/image/image_tile.h"

#include "base/check.h"
#include "kernels/cpu/internal.h"
#include "kernels/cpu/reference/reference.h"

/* Half a tile's lanes at once, by address: as arguments they would depend on the processor. Written
 * with the compiler's vectors because it does not turn the choice of value and winner into masks by
 * itself, and in those of AVX2 because gcc takes a choice between wider ones than the processor's
 * apart into single values. */
enum { LANES = TILE / 2 };
typedef float float_lanes __attribute__((vector_size(LANES * 4)));
typedef int32_t int_lanes __attribute__((vector_size(LANES * 4)));
typedef uint8_t byte_lanes __attribute__((vector_size(LANES)));

/* Which of a window's positions lie in the image, and where the first of them is. */
struct window {
    uint32_t first_row, end_row, first_column, end_column;
    size_t at;
};

static inline void clip(uint32_t window, uint32_t in, const struct pool_options *o, uint32_t *first,
                        uint32_t *end)
{
    int64_t begin = (int64_t)window * o->stride - o->padding;

    *first = begin < 0 ? (uint32_t)-begin : 0;
    *end = begin + o->size > in ? (uint32_t)(in - begin) : o->size;
}

static inline struct window window_of(const struct pool_options *o, const struct image_tile *t,
                                      uint32_t column)
{
    struct image_shape in = o->in;
    struct window w;
    uint32_t left = (t->column + column) * o->stride;

    clip(t->row, in.height, o, &w.first_row, &w.end_row);
    clip(t->column + column, in.width, o, &w.first_column, &w.end_column);
    w.at =
        (size_t)(t->channel / in.block) * in.height + t->row * o->stride + w.first_row - o->padding;
    w.at =
        (w.at * in.width + left + w.first_column - o->padding) * in.block + t->channel % in.block;
    return w;
}

#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define HAS_SHUFFLE 1
#endif
#endif

/* The part of `lanes` that a piece from `first` on has; constants wherever it pays. */
TILE_INLINE uint32_t piece_lanes(uint32_t lanes, uint32_t first)
{
    return lanes - first < LANES ? lanes - first : LANES;
}

TILE_INLINE void lanes_load(const float *x, uint32_t lanes, int_lanes *values)
{
    *values = (int_lanes){0};
    memcpy(values, x, lanes * sizeof(float));
}

/* The lowest byte of each; gcc converts them one by one. */
TILE_INLINE void lanes_narrow(const int_lanes *values, byte_lanes *bytes)
{
#ifdef HAS_SHUFFLE
    typedef uint8_t all_bytes __attribute__((vector_size(LANES * 4), may_alias));
    all_bytes all = *(const all_bytes *)values;

    *bytes = __builtin_shufflevector(all, all, 0, 4, 8, 12, 16, 20, 24, 28);
#else
    *bytes = __builtin_convertvector(*values, byte_lanes);
#endif
}

/* The better of two values and its position; a NaN that is the first stays. By pointer, as clang
 * passes no such vector by value where a function may be compiled for less. */
TILE_INLINE void take_larger(const int_lanes *next, int32_t position, int_lanes *value,
                             int_lanes *which)
{
    int_lanes is_larger = (float_lanes)*next > (float_lanes)*value;

    *value = (is_larger & *next) | (~is_larger & *value);
    *which = (is_larger & position) | (~is_larger & *which);
}

TILE_INLINE void largest_store(bool with_relu, const int_lanes *of, const int_lanes *at,
                               uint32_t lanes, float *best, uint8_t *winner)
{
    int_lanes value = *of, which = *at;
    byte_lanes bytes;

    if (with_relu) {
        int_lanes is_positive = (float_lanes)value > 0.0F;
        which = (is_positive & which) | (~is_positive & POOL_NONE);
        value &= ~((float_lanes)value < 0.0F); /* a NaN stays */
    }
    memcpy(best, &value, sizeof(value));
    lanes_narrow(&which, &bytes);
    if (winner != NULL) memcpy(winner, &bytes, lanes);
}

TILE_INLINE void largest(const struct pool_options *o, const struct window *w, const float *x,
                         uint32_t lanes, float *best, uint8_t *winner)
{
    size_t step = o->in.block, line = (size_t)o->in.width * step;
    int_lanes value, which = (int_lanes){0} + (int32_t)(w->first_row * o->size + w->first_column);

    lanes_load(x + w->at, lanes, &value);
    for (uint32_t row = w->first_row; row < w->end_row; row++) {
        const float *from = x + w->at + (row - w->first_row) * line;
        for (uint32_t column = w->first_column; column < w->end_column; column++) {
            int_lanes next;
            lanes_load(from + (column - w->first_column) * step, lanes, &next);
            take_larger(&next, (int32_t)(row * o->size + column), &value, &which);
        }
    }
    largest_store(o->with_relu, &value, &which, lanes, best, winner);
}

/* Windows of 2x2 beside each other, whole, of a whole block: the usual case, and one that waits for
 * memory. What a convolution streamed past the caches is asked for two lines ahead. */
TILE_INLINE void largest_of_fours(const struct pool_options *o, const struct image_tile *t,
                                  const float *x, float (*values)[TILE], uint8_t *winner)
{
    const size_t line = (size_t)o->in.width * TILE;
    const float *from = x + window_of(o, t, 0).at;

    for (uint32_t c = 0; c < t->columns; c++, from += 2 * TILE) {
        __builtin_prefetch(from + 2 * line);
        __builtin_prefetch(from + 2 * line + TILE);
        __builtin_prefetch(from + 3 * line);
        __builtin_prefetch(from + 3 * line + TILE);
        for (uint32_t l = 0; l < TILE; l += LANES) {
            int_lanes value, next, which = {0};
            lanes_load(from + l, LANES, &value);
            lanes_load(from + l + TILE, LANES, &next);
            take_larger(&next, 1, &value, &which);
            lanes_load(from + l + line, LANES, &next);
            take_larger(&next, 2, &value, &which);
            lanes_load(from + l + line + TILE, LANES, &next);
            take_larger(&next, 3, &value, &which);
            largest_store(o->with_relu, &value, &which, LANES, values[c] + l,
                          winner == NULL ? NULL : winner + (size_t)c * TILE + l);
        }
    }
}

TILE_INLINE void mean(const struct pool_options *o, const struct window *w, const float *x,
                      uint32_t lanes, float *result)
{
    size_t step = o->in.block, line = (size_t)o->in.width * step;
    float_lanes sum = {0};

    for (uint32_t row = w->first_row; row < w->end_row; row++) {
        const float *from = x + w->at + (row - w->first_row) * line;
        for (uint32_t column = w->first_column; column < w->end_column; column++) {
            int_lanes next;
            lanes_load(from + (column - w->first_column) * step, lanes, &next);
            sum += (float_lanes)next;
        }
    }
    sum *= 1.0F / (float)(o->size * o->size);
    memcpy(result, &sum, sizeof(sum));
}

TILE_INLINE void tile_forward(const struct pool_options *o, const struct image_tile *t,
                              const float *x, uint32_t lanes, float (*values)[TILE],
                              uint8_t *winner)
{
    const bool is_fours = o->size == 2 && o->stride == 2 && o->padding == 0 && o->kind == POOL_MAX;

    if (is_fours && lanes == TILE && o->in.block == TILE) {
        largest_of_fours(o, t, x, values, winner);
        return;
    }
    for (uint32_t c = 0; c < t->columns; c++) {
        struct window w = window_of(o, t, c);
        for (uint32_t l = 0; l < lanes; l += LANES) {
            uint8_t *at = winner == NULL ? NULL : winner + (size_t)c * o->in.block + l;
            if (o->kind == POOL_AVERAGE) {
                mean(o, &w, x + l, piece_lanes(lanes, l), values[c] + l);
            } else {
                largest(o, &w, x + l, piece_lanes(lanes, l), values[c] + l, at);
            }
        }
    }
}

/* Winners lie in the order of the input's channels. */
static struct tile_side winners_of(const struct pool_options *o)
{
    struct tile_side side = {o->out, 1};

    side.shape.block = o->in.block;
    return side;
}

FOR_EACH_CPU(static, void, image_forward,
             (const struct pool_options *o, const float *x, float *y, uint8_t *winner),
             (o, x, y, winner))
{
    struct tile_side to = {o->out, 1}, winners = winners_of(o);
    struct image_tile tile = {0};

    while (image_tile_next(&tile, winners.shape)) {
        float values[TILE][TILE];
        uint8_t *at = winner == NULL ? NULL : winner + image_tile_at(&tile, &winners, 0);
        if (tile.lanes == TILE) {
            tile_forward(o, &tile, x, TILE, values, at);
        } else if (tile.lanes == TILE / 2) {
            tile_forward(o, &tile, x, TILE / 2, values, at);
        } else if (tile.lanes == 1) {
            tile_forward(o, &tile, x, 1, values, at);
        } else {
            tile_forward(o, &tile, x, tile.lanes, values, at);
        }
        image_tile_store(&tile, &to, values, y);
    }
}

/* Give one window's gradient to its positions. */
TILE_INLINE void spread(const struct pool_options *o, const struct window *w, const float *value,
                        const uint8_t *winner, uint32_t lanes, float *dx)
{
    size_t step = o->in.block, line = (size_t)o->in.width * step;
    bool adds = o->stride < o->size, is_average = o->kind == POOL_AVERAGE;
    int_lanes dy, which = {0}, before;
    byte_lanes bytes = {0};

    lanes_load(value, LANES, &dy);
    if (is_average) {
        dy = (int_lanes)((float_lanes)dy * (1.0F / (float)(o->size * o->size)));
    } else {
        memcpy(&bytes, winner, lanes);
        which = __builtin_convertvector(bytes, int_lanes);
    }
    for (uint32_t row = w->first_row; row < w->end_row; row++) {
        float *to = dx + w->at + (row - w->first_row) * line;
        for (uint32_t column = w->first_column; column < w->end_column; column++) {
            float *at = to + (column - w->first_column) * step;
            int_lanes share = dy;
            if (!is_average) share &= which == (int32_t)(row * o->size + column);
            if (adds) {
                lanes_load(at, lanes, &before);
                share = (int_lanes)((float_lanes)share + (float_lanes)before);
            }
            memcpy(at, &share, lanes * sizeof(float));
        }
    }
}

TILE_INLINE void tile_backward(const struct pool_options *o, const struct image_tile *t,
                               float (*values)[TILE], const uint8_t *winner, uint32_t lanes,
                               float *dx)
{
    for (uint32_t c = 0; c < t->columns; c++) {
        struct window w = window_of(o, t, c);
        for (uint32_t l = 0; l < lanes; l += LANES) {
            const uint8_t *at = winner == NULL ? NULL : winner + (size_t)c * o->in.block + l;
            spread(o, &w, values[c] + l, at, piece_lanes(lanes, l), dx + l);
        }
    }
}

FOR_EACH_CPU(static, void, image_backward,
             (const struct pool_options *o, const float *dy, const uint8_t *winner, float *dx),
             (o, dy, winner, dx))
{
    struct tile_side from = {o->out, 1}, winners = winners_of(o);
    struct image_tile tile = {0};

    while (image_tile_next(&tile, winners.shape)) {
        float values[TILE][TILE];
        const uint8_t *at = winner == NULL ? NULL : winner + image_tile_at(&tile, &winners, 0);
        image_tile_load(&tile, &from, dy, values);
        if (tile.lanes == TILE) {
            tile_backward(o, &tile, values, at, TILE, dx);
        } else if (tile.lanes == TILE / 2) {
            tile_backward(o, &tile, values, at, TILE / 2, dx);
        } else if (tile.lanes == 1) {
            tile_backward(o, &tile, values, at, 1, dx);
        } else {
            tile_backward(o, &tile, values, at, tile.lanes, dx);
        }
    }
}

static void pool_check(const struct pool_options *o)
{
    CHECK(o->size >= 2 && o->size <= POOL_SIZE_MAX && o->stride > 0 && o->padding <= o->size / 2);
    CHECK(o->out.height == windows_fit(o->in.height, o->size, o->padding, o->stride, 1));
    CHECK(o->out.width == windows_fit(o->in.width, o->size, o->padding, o->stride, 1));
    CHECK(o->out.channels == o->in.channels && o->out.height > 0 && o->out.width > 0);
    CHECK(o->in.channels % o->in.block == 0 && o->out.channels % o->out.block == 0);
    CHECK(o->kind == POOL_MAX || !o->with_relu);
}

enum rc cpu_pool_forward(struct backend *backend, const struct pool_options *options,
                         uint32_t images, const void *x, void *y, uint8_t *winner)
{
    size_t in = image_values(options->in), out = image_values(options->out);

    pool_check(options);
    if (cpu_of(backend)->options.is_reference) {
        reference_pool_forward(options, images, x, y, winner);
        return RC_OK;
    }
    if (options->kind == POOL_AVERAGE) winner = NULL;
    for (uint32_t n = 0; n < images; n++) {
        image_forward(options, (const float *)x + n * in, (float *)y + n * out,
                      winner == NULL ? NULL : winner + n * out);
    }
    return RC_OK;
}

/* Whether each input value is in exactly one window, which then writes its gradient. */
static bool is_partition(const struct pool_options *o)
{
    return o->stride == o->size && o->out.height * o->size >= o->in.height + o->padding &&
           o->out.width * o->size >= o->in.width + o->padding;
}

enum rc cpu_pool_backward(struct backend *backend, const struct pool_options *options,
                          uint32_t images, const void *dy, const uint8_t *winner, void *dx)
{
    size_t in = image_values(options->in), out = image_values(options->out);

    pool_check(options);
    CHECK(winner != NULL || options->kind == POOL_AVERAGE);
    if (cpu_of(backend)->options.is_reference) {
        reference_pool_backward(options, images, dy, winner, dx);
        return RC_OK;
    }
    if (options->kind == POOL_AVERAGE) winner = NULL;
    if (!is_partition(options)) memset(dx, 0, images * in * sizeof(float));
    for (uint32_t n = 0; n < images; n++) {
        image_backward(options, (const float *)dy + n * out,
                       winner == NULL ? NULL : winner + n * out, (float *)dx + n * in);
    }
    return RC_OK;
}

FOR_EACH_CPU(static, void, image_relayout,
             (const struct tile_side *from, const struct tile_side *to, const float *x, float *y),
             (from, to, x, y))
{
    struct image_tile tile = {0};

    while (image_tile_next(&tile, from->shape)) {
        float values[TILE][TILE];
        image_tile_load(&tile, from, x, values);
        image_tile_store(&tile, to, values, y);
    }
}

enum rc cpu_relayout(struct backend *backend, struct image_shape from, uint32_t to_block,
                     uint32_t images, const void *x, void *y)
{
    struct tile_side in = {from, 1}, out = {from, 1};
    size_t values = image_values(from);

    CHECK(from.channels % from.block == 0 && to_block > 0 && from.channels % to_block == 0);
    if (cpu_of(backend)->options.is_reference) {
        reference_relayout(from, to_block, images, x, y);
        return RC_OK;
    }
    out.shape.block = to_block;
    for (uint32_t n = 0; n < images; n++) {
        image_relayout(&in, &out, (const float *)x + n * values, (float *)y + n * values);
    }
    return RC_OK;
}
