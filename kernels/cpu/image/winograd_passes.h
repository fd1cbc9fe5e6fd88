/*
 * The transforms and products of winograd.h, for the vectors of the file that includes this one,
 * which defines
 *
 *     LANES                channels in a vector; 8, or WINOGRAD_COLUMNS
 *     TILE_ROWS, ROWS_LEFT rows of a tile of a product, and of the next smaller one
 *     TARGET               the attribute that lets the compiler use the instructions
 *     vec, ints            LANES values of float32 and of int32 side by side
 *     vec_load, vec_store, vec_of (a value in each), vec_fma, vec_max, vec_gather (values `stride`
 * apart) WINOGRAD_TABLE       the name of the table of functions
 *
 * Values of a tile are transformed down its columns into registers or first-level cache and then
 * along its rows. Every channel's sums are taken in the same order whatever LANES is, so that all
 * instruction sets agree to the bit.
 */
#include "kernels/cpu/image/winograd.h"

#include "base/check.h"
#include "base/cpu.h"

#include <string.h>

#define INLINE CPU_LOOP TARGET

enum { OUTS = WINOGRAD_OUTS, INS = WINOGRAD_INS, TAPS = WINOGRAD_TAPS };

INLINE vec times(float factor, vec x)
{
    return vec_of(factor) * x;
}

/* factor x + y */
INLINE vec plus(float factor, vec x, vec y)
{
    return vec_fma(vec_of(factor), x, y);
}

/*
 * The points: 0, P and -P, Q and -Q, and infinity. With 1 and 2 for P and Q, which most papers
 * have, errors are four times as large; these two are in binary what they are here (Barabasz et al.
 * 2020, arXiv:1803.10986, compare points). The matrices follow from them (Lavin, Gray 2015;
 * Toom-Cook): a row of A is 1, a, a^2, a^3 of its point, one of G 1, a, a^2 over the product of a's
 * differences from the other points, and one of B has the coefficients of the polynomial of the
 * others.
 */
#define P       0.625F
#define Q       1.5F
#define P2      (P * P)
#define Q2      (Q * Q)
#define OF_ZERO (1.0F / (P2 * Q2))
#define OF_P    (1.0F / (2.0F * P2 * (P2 - Q2)))
#define OF_Q    (1.0F / (2.0F * Q2 * (Q2 - P2)))

/* even + factor odd, and even - factor odd */
INLINE void both(float factor, vec odd, vec even, vec *v)
{
    v[0] = plus(factor, odd, even);
    v[1] = plus(-factor, odd, even);
}

/* The transforms of images come in pairs of rows, so that all a pair needs of a tile stays in
 * registers on its way: rows `pair` of B^T d ... */
INLINE void inputs_pair(int pair, const vec *d, vec *v)
{
    if (pair == 0) { /* rows 0 and 5 */
        v[0] = plus(-P2 - Q2, d[2], plus(P2 * Q2, d[0], d[4]));
        v[1] = plus(-P2 - Q2, d[3], plus(P2 * Q2, d[1], d[5]));
    } else if (pair == 1) { /* 1 and 2 */
        both(P, plus(-Q2, d[1], d[3]), plus(-Q2, d[2], d[4]), v);
    } else { /* 3 and 4 */
        both(Q, plus(-P2, d[1], d[3]), plus(-P2, d[2], d[4]), v);
    }
}

/* ... of A d ... */
INLINE void gradients_pair(int pair, const vec *d, vec *v)
{
    if (pair == 0) {
        v[0] = d[0];
        v[1] = d[3];
    } else if (pair == 1) {
        both(P, plus(P2, d[3], d[1]), plus(P2, d[2], d[0]), v);
    } else {
        both(Q, plus(Q2, d[3], d[1]), plus(Q2, d[2], d[0]), v);
    }
}

/* Which rows of six points pair `pair` is. */
static inline int pair_row(int pair, int which)
{
    if (pair == 0) return which == 0 ? 0 : INS - 1;
    return 2 * pair - 1 + which;
}

/* ... and of A^T m: rows 0 and 2, or 1 and 3. */
INLINE void outputs_pair(int pair, const vec *m, vec *y)
{
    if (pair == 0) {
        vec a = m[1] + m[2], b = m[3] + m[4];
        y[0] = m[0] + a + b;
        y[1] = plus(Q2, b, times(P2, a));
    } else {
        vec a = m[1] - m[2], b = m[3] - m[4];
        y[0] = plus(Q, b, times(P, a));
        y[1] = plus(Q * Q2, b, plus(P * P2, a, m[5]));
    }
}

/* u = G g */
INLINE void filters_transform(const vec *g, vec *u)
{
    u[0] = times(OF_ZERO, g[0]);
    both(OF_P * P, g[1], times(OF_P, plus(P2, g[2], g[0])), u + 1);
    both(OF_Q * Q, g[1], times(OF_Q, plus(Q2, g[2], g[0])), u + 3);
    u[5] = g[2];
}

/* g = G^T u */
INLINE void filters_transform_back(const vec *u, vec *g)
{
    vec a = times(OF_P, u[1] + u[2]), b = times(OF_P, u[1] - u[2]);
    vec c = times(OF_Q, u[3] + u[4]), d = times(OF_Q, u[3] - u[4]);

    g[0] = plus(OF_ZERO, u[0], a + c);
    g[1] = plus(P, b, times(Q, d));
    g[2] = plus(P2, a, plus(Q2, c, u[5]));
}

/* --- tiles ------------------------------------------------------------------------------------*/

/* Where one tile lies: rows and columns from a first one that may be negative, and which of `size`
 * each way are inside of the image. */
struct place {
    size_t image, down, across;
    int64_t row, column;
    int rows_from, rows_to, columns_from, columns_to;
    bool is_inside; /* all of them */
};

/* At least one is. */
static inline void inside(int64_t at, int size, uint32_t extent, int *from, int *to)
{
    *from = at < 0 ? (int)-at : 0;
    *to = at + size > extent ? (int)(extent - at) : size;
}

static inline void place_set(const struct winograd_grid *g, int size, struct place *p)
{
    p->row = g->top + (int64_t)(p->down * OUTS);
    p->column = g->left + (int64_t)(p->across * OUTS);
    inside(p->row, size, g->shape.height, &p->rows_from, &p->rows_to);
    inside(p->column, size, g->shape.width, &p->columns_from, &p->columns_to);
    p->is_inside = p->rows_to - p->rows_from == size && p->columns_to - p->columns_from == size;
}

static inline struct place place_of(const struct winograd_grid *g, size_t tile, int size)
{
    size_t each = g->down * g->across, of_image = tile % each;
    struct place p = {
        .image = tile / each, .down = of_image / g->across, .across = of_image % g->across};

    place_set(g, size, &p);
    return p;
}

static inline void place_next(const struct winograd_grid *g, int size, struct place *p)
{
    if (++p->across == g->across) {
        p->across = 0;
        if (++p->down == g->down) {
            p->down = 0;
            p->image++;
        }
    }
    place_set(g, size, p);
}

/* The nearest of [from, to) to `i`. */
static inline ptrdiff_t within(int i, int from, int to)
{
    return i < from ? from : i < to ? i : to - 1;
}

INLINE ints mask_of(int i, int from, int to)
{
    return (ints){0} - (i >= from && i < to);
}

/* A tile of LANES channels, where it lies in an image or in a copy. */
struct tile {
    float *values;
    ptrdiff_t row_step, column_step;
};

/* The tile's place in its image; may begin outside. */
static inline struct tile tile_of(const struct winograd_grid *g, const struct place *p, size_t c,
                                  const float *images)
{
    struct image_shape s = g->shape;
    ptrdiff_t step = (ptrdiff_t)s.block, row_step = (ptrdiff_t)s.width * step;
    size_t plane = (p->image * s.channels + c / s.block * s.block) * s.height * s.width;

    return (struct tile){(float *)images + (ptrdiff_t)plane + p->row * row_step + p->column * step +
                             (ptrdiff_t)(c % s.block),
                         row_step, step};
}

/* What hangs over is read from the nearest pixel inside and made 0: no branches. */
INLINE void tile_copy_in(const struct place *p, int size, const struct tile *tile, float *copy)
{
    ptrdiff_t at[INS];
    ints columns[INS];

    for (int j = 0; j < size; j++) {
        at[j] = within(j, p->columns_from, p->columns_to) * tile->column_step;
        columns[j] = mask_of(j, p->columns_from, p->columns_to);
    }
    for (int i = 0; i < size; i++) {
        const float *x = tile->values + within(i, p->rows_from, p->rows_to) * tile->row_step;
        ints row = mask_of(i, p->rows_from, p->rows_to);
        for (int j = 0; j < size; j++) {
            vec pixel = vec_load(x + at[j]);
            vec_store(copy + (i * INS + j) * LANES, (vec)((ints)pixel & row & columns[j]));
        }
    }
}

static void tile_copy_out(const struct place *p, const float *copy, const struct tile *tile)
{
    for (int i = 0; i < p->rows_to; i++) {
        for (int j = 0; j < p->columns_to; j++) {
            memcpy(tile->values + i * tile->row_step + j * tile->column_step,
                   copy + (i * OUTS + j) * LANES, LANES * sizeof(float));
        }
    }
}

/* The flags are constants where these are inlined. */
INLINE void read_pair(const float *x, ptrdiff_t row_step, bool is_gradient, int pair, float *first,
                      float *second, size_t stride)
{
    const int size = is_gradient ? OUTS : INS;
    vec d[INS], v[2], half[2][INS];

    for (int j = 0; j < size; j++) {
        for (int i = 0; i < size; i++) {
            d[i] = vec_load(x + i * row_step + j * LANES);
        }
        if (is_gradient)
            gradients_pair(pair, d, v);
        else
            inputs_pair(pair, d, v);
        half[0][j] = v[0];
        half[1][j] = v[1];
    }
    for (int i = 0; i < 2; i++) {
        float *row = i == 0 ? first : second;
        for (int across = 0; across < INS / 2; across++) {
            if (is_gradient)
                gradients_pair(across, half[i], v);
            else
                inputs_pair(across, half[i], v);
            vec_store(row + (size_t)pair_row(across, 0) * stride, v[0]);
            vec_store(row + (size_t)pair_row(across, 1) * stride, v[1]);
        }
    }
}

INLINE void tile_read(const float *x, ptrdiff_t row_step, bool is_gradient, float *to,
                      size_t stride)
{
    size_t row = INS * stride;

    read_pair(x, row_step, is_gradient, 0, to, to + 5 * row, stride);
    read_pair(x, row_step, is_gradient, 1, to + row, to + 2 * row, stride);
    read_pair(x, row_step, is_gradient, 2, to + 3 * row, to + 4 * row, stride);
}

/* Tiles that hang over are read by way of a copy with zeros around it, and so are those of other
 * layouts. */
INLINE void tiles_read(const struct winograd_grid *g, const float *images, size_t first,
                       size_t count, bool is_gradient, const struct winograd_planes *to)
{
    const int size = is_gradient ? OUTS : INS;
    float copy[INS * INS * LANES];
    struct place p = place_of(g, first, size);

    for (size_t t = 0; t < count; t++, place_next(g, size, &p)) {
        float *values = to->values + t * to->channels;
        for (size_t c = 0; c < to->channels; c += LANES) {
            struct tile tile = tile_of(g, &p, c, images);
            if (!p.is_inside || tile.column_step != LANES) {
                tile_copy_in(&p, size, &tile, copy);
                tile = (struct tile){copy, INS * LANES, LANES};
            }
            tile_read(tile.values, tile.row_step, is_gradient, values + c, to->stride);
        }
    }
}

static TARGET void inputs(const struct winograd_grid *grid, const float *images, size_t first,
                          size_t count, const struct winograd_planes *to)
{
    tiles_read(grid, images, first, count, false, to);
}

static TARGET void gradients(const struct winograd_grid *grid, const float *images, size_t first,
                             size_t count, const struct winograd_planes *to)
{
    tiles_read(grid, images, first, count, true, to);
}

/* Bias and least value of the outputs of LANES channels. */
struct finish {
    vec bias, least;
};

INLINE void write_pair(const float *from, size_t stride, int pair, struct finish finish,
                       float *first, float *second)
{
    vec m[INS], y[2], half[2][INS];

    for (int j = 0; j < INS; j++) {
        for (int i = 0; i < INS; i++) {
            m[i] = vec_load(from + (size_t)(i * INS + j) * stride);
        }
        outputs_pair(pair, m, y);
        half[0][j] = y[0];
        half[1][j] = y[1];
    }
    for (int i = 0; i < 4; i++) {
        float *row = i < 2 ? first : second;
        outputs_pair(i % 2, half[i / 2], y);
        for (int j = 0; j < 2; j++) {
            vec_store(row + (i % 2 + 2 * j) * LANES, vec_max(finish.least, y[j] + finish.bias));
        }
    }
}

INLINE void tile_write(const float *from, size_t stride, struct finish finish, float *y,
                       ptrdiff_t row_step)
{
    write_pair(from, stride, 0, finish, y, y + 2 * row_step);
    write_pair(from, stride, 1, finish, y + row_step, y + 3 * row_step);
}

static TARGET void outputs(const struct winograd_grid *grid, const struct winograd_planes *from,
                           size_t first, size_t count, const float *bias, bool with_relu,
                           float *images)
{
    struct finish finish = {vec_of(0), vec_of(-__builtin_inff())};
    struct place p = place_of(grid, first, OUTS);
    float copy[OUTS * OUTS * LANES];

    if (with_relu) finish.least = vec_of(0);
    for (size_t t = 0; t < count; t++, place_next(grid, OUTS, &p)) {
        for (size_t c = 0; c < from->channels; c += LANES) {
            const float *m = from->values + t * from->channels + c;
            struct tile tile = tile_of(grid, &p, c, images);
            bool is_direct = p.is_inside && tile.column_step == LANES;
            if (bias != NULL) finish.bias = vec_load(bias + c);
            tile_write(m, from->stride, finish, is_direct ? tile.values : copy,
                       is_direct ? tile.row_step : OUTS * LANES);
            if (!is_direct) tile_copy_out(&p, copy, &tile);
        }
    }
}

/* --- filters ----------------------------------------------------------------------------------*/

/* LANES filters that lie `stride` values apart, a register a tap. */
INLINE void filters_load(const float *weight, size_t stride, bool is_turned, vec (*taps)[TAPS])
{
    for (int i = 0; i < TAPS * TAPS; i++) {
        int tap = is_turned ? TAPS * TAPS - 1 - i : i;
        taps[i / TAPS][i % TAPS] = vec_gather(weight + tap, stride);
    }
}

/* Taps are [row][column]; each direction transforms the first index and swaps the two. */
INLINE void filters_to_points(vec (*g)[TAPS], float *to, size_t stride)
{
    vec column[TAPS], u[INS], half[INS][TAPS];

    for (int j = 0; j < TAPS; j++) {
        for (int i = 0; i < TAPS; i++) {
            column[i] = g[i][j];
        }
        filters_transform(column, u);
        for (int i = 0; i < INS; i++) {
            half[i][j] = u[i];
        }
    }
    for (int i = 0; i < INS; i++) {
        filters_transform(half[i], u);
        for (int j = 0; j < INS; j++) {
            vec_store(to + (size_t)(i * INS + j) * stride, u[j]);
        }
    }
}

static TARGET void filters_forward(const struct winograd_filters *f, bool is_turned,
                                   const float *weight, float *to)
{
    const size_t each = TAPS * TAPS, plane = winograd_plane_stride(f->ins, f->outs);
    size_t columns = is_turned ? f->ins : f->outs, inner = is_turned ? f->outs : f->ins;
    size_t column_step = is_turned ? each : f->ins * each;
    size_t inner_step = is_turned ? f->ins * each : each;

    for (size_t row = 0; row < columns / WINOGRAD_COLUMNS * inner; row++) {
        size_t first = row / inner * WINOGRAD_COLUMNS, k = row % inner;
        for (size_t c = 0; c < WINOGRAD_COLUMNS; c += LANES) {
            vec taps[TAPS][TAPS];
            filters_load(weight + (first + c) * column_step + k * inner_step, column_step,
                         is_turned, taps);
            filters_to_points(taps, to + row * WINOGRAD_COLUMNS + c, plane);
        }
    }
}

INLINE void points_to_filters(const float *from, size_t stride, float (*taps)[LANES])
{
    vec column[INS], g[TAPS], half[TAPS][INS];

    for (int j = 0; j < INS; j++) {
        for (int i = 0; i < INS; i++) {
            column[i] = vec_load(from + (size_t)(i * INS + j) * stride);
        }
        filters_transform_back(column, g);
        for (int i = 0; i < TAPS; i++) {
            half[i][j] = g[i];
        }
    }
    for (int i = 0; i < TAPS; i++) {
        filters_transform_back(half[i], g);
        for (int j = 0; j < TAPS; j++) {
            vec_store(taps[i * TAPS + j], g[j]);
        }
    }
}

static TARGET void filters_backward(const struct winograd_filters *f, const float *from,
                                    size_t first, size_t last, bool adds, float *weight)
{
    const size_t each = TAPS * TAPS, plane = winograd_plane_stride(f->ins, f->outs);
    float taps[TAPS * TAPS][LANES];

    for (size_t in = first; in < last; in++) {
        for (size_t out = 0; out < f->outs; out += LANES) {
            points_to_filters(from + in * f->outs + out, plane, taps);
            for (size_t l = 0; l < LANES; l++) {
                float *filter = weight + ((out + l) * f->ins + in) * each;
                for (size_t i = 0; i < each; i++) {
                    filter[i] = adds ? filter[i] + taps[i][l] : taps[i][l];
                }
            }
        }
    }
}

/* A row of an image is added up by itself, so that rounding does not grow with the batch. */
static TARGET void bias(const struct winograd_grid *grid, uint32_t images, const float *values,
                        size_t first, size_t last, bool adds, float *bias)
{
    struct image_shape shape = grid->shape;

    for (size_t c = first; c < last; c += LANES) {
        vec sum = adds ? vec_load(bias + c) : vec_of(0);
        for (size_t row = 0; row < (size_t)images * shape.height; row++) {
            struct place p = {.image = row / shape.height, .row = (int64_t)(row % shape.height)};
            const float *x = tile_of(grid, &p, c, values).values;
            vec of_row = vec_of(0);
            for (uint32_t i = 0; i < shape.width; i++, x += shape.block) {
                of_row = of_row + vec_load(x);
            }
            sum = sum + of_row;
        }
        vec_store(bias + c, sum);
    }
}

/* --- products ---------------------------------------------------------------------------------*/

/* From a vector of B or C to the next in a row: within a panel, or in the next panel. */
INLINE size_t next_vector(const struct winograd_product *p)
{
    return 2 * LANES <= (size_t)WINOGRAD_COLUMNS ? LANES : p->b_panel;
}

/* `rows`, `vectors` and the form of A are constants wherever this is inlined, so that the sums live
 * in registers. */
INLINE void tile_multiply(const struct winograd_product *p, size_t rows, size_t vectors,
                          bool is_transposed, const float *a, const float *b, float *c)
{
    size_t a_row = is_transposed ? 1 : p->a_stride, a_step = is_transposed ? p->a_stride : 1;
    size_t b_step = p->b_stride, across = next_vector(p), c_row = p->c_stride;
    vec sums[TILE_ROWS][2];

    UNROLLED for (size_t r = 0; r < rows; r++)
    {
        UNROLLED for (size_t v = 0; v < vectors; v++)
        {
            sums[r][v] = p->adds ? vec_load(c + r * c_row + v * LANES) : vec_of(0);
        }
    }
    for (size_t k = p->inner; k > 0; k--, a += a_step, b += b_step) {
        vec left = vec_load(b), right = vectors > 1 ? vec_load(b + across) : left;

        UNROLLED for (size_t r = 0; r < rows; r++)
        {
            vec factor = vec_of(a[r * a_row]);
            sums[r][0] = vec_fma(factor, left, sums[r][0]);
            if (vectors > 1) sums[r][1] = vec_fma(factor, right, sums[r][1]);
        }
    }
    UNROLLED for (size_t r = 0; r < rows; r++)
    {
        UNROLLED for (size_t v = 0; v < vectors; v++)
        {
            vec_store(c + r * c_row + v * LANES, sums[r][v]);
        }
    }
}

/* All rows of as many columns as `vectors` have. */
INLINE void columns_multiply(const struct winograd_product *p, size_t vectors, bool is_transposed,
                             const float *b, float *c)
{
    size_t a_row = is_transposed ? 1 : p->a_stride;

    for (size_t row = 0, left = p->rows; left > 0; row = p->rows - left) {
        const float *a = p->a + row * a_row;
        float *to = c + row * p->c_stride;
        if (left >= TILE_ROWS && left != 2 * ROWS_LEFT) {
            tile_multiply(p, TILE_ROWS, vectors, is_transposed, a, b, to);
            left -= TILE_ROWS;
        } else if (left >= ROWS_LEFT) {
            tile_multiply(p, ROWS_LEFT, vectors, is_transposed, a, b, to);
            left -= ROWS_LEFT;
        } else {
            tile_multiply(p, 1, vectors, is_transposed, a, b, to);
            left--;
        }
    }
}

INLINE void product_multiply(const struct winograd_product *p, bool is_transposed)
{
    size_t column = 0;

    for (; column + 2 * LANES <= p->columns; column += 2 * LANES) {
        const float *b = p->b + column / WINOGRAD_COLUMNS * p->b_panel;
        columns_multiply(p, 2, is_transposed, b, p->c + column);
    }
    if (column < p->columns) { /* one panel of one vector */
        const float *b = p->b + column / WINOGRAD_COLUMNS * p->b_panel;
        columns_multiply(p, 1, is_transposed, b, p->c + column);
    }
}

static TARGET void multiply(const struct winograd_product *p)
{
    CHECK(p->columns % WINOGRAD_COLUMNS == 0);
    if (p->is_a_transposed)
        product_multiply(p, true);
    else
        product_multiply(p, false);
}

const struct winograd_ops WINOGRAD_TABLE = {
    .lanes = LANES,
    .inputs = inputs,
    .gradients = gradients,
    .outputs = outputs,
    .filters_forward = filters_forward,
    .filters_backward = filters_backward,
    .bias = bias,
    .multiply = multiply,
};
