/*
 * Products with a packed factor, see panels.h: the usual blocks and register tiles (Goto, van de
 * Geijn 2008, ACM TOMS 34(3)). A tile is up to 8 rows x 32 columns with AVX-512, 6 x 16 with AVX2;
 * its sums stay in registers over a block of the inner index, whose part of a panel stays in the
 * first cache while the tiles below each other pass, and the rows of A are taken in blocks that
 * stay in the second. Each sum is one chain of fused multiply-adds over the inner index of a block
 * in ascending order, and the blocks' sums are added in theirs: so tiles of any size and
 * instruction set agree to the bit. Anywhere else OpenBLAS multiplies.
 */
#include "kernels/cpu/dense/panels.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"
#include "kernels/cpu/transpose.h"

#include <limits.h>
#include <string.h>

#include <cblas.h>

enum {
    ROWS_AVX512 = 8, /* of a tile, at the most */
    ROWS_AVX2 = 6,
    WIDTH_AVX512 = 32, /* columns: two vectors */
    WIDTH_AVX2 = 16,
    INNER_BLOCK = 256,
    ROWS_BLOCK = 96,
    LINE_VALUES = 16, /* of the cache */
    STEPS_AHEAD = 8,
    PACKED_ROWS = 8,
    COLUMNS_BLOCK = 512, /* of a B that is packed for one product */
};

enum panels_form panels_best_form(void)
{
#if defined(__x86_64__)
    if (cpu_has(CPU_AVX512)) return PANELS_AVX512;
    if (cpu_has(CPU_AVX2)) return PANELS_AVX2;
#endif
    return PANELS_PLAIN;
}

static size_t pieces(size_t count, size_t most)
{
    return (count + most - 1) / most;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t width_of(enum panels_form form, size_t columns)
{
    static const size_t widths[PANELS_FORMS] = {0, WIDTH_AVX2, WIDTH_AVX512};

    return form == PANELS_PLAIN ? columns : widths[form];
}

size_t panels_values(enum panels_form form, size_t inner, size_t columns)
{
    size_t width = width_of(form, columns);

    return pieces(columns, width) * width * inner;
}

struct panels panels_in(enum panels_form form, size_t inner, size_t columns, float *values)
{
    CHECK(inner > 0 && columns > 0 && inner <= INT_MAX && columns <= INT_MAX);
    CHECK(form <= panels_best_form());
    return (struct panels){form, inner, columns, width_of(form, columns), values};
}

enum rc panels_init(struct panels *panels, enum panels_form form, size_t inner, size_t columns)
{
    *panels = panels_in(form, inner, columns, NULL);
    panels->values = mem_aligned(panels_values(form, inner, columns) * sizeof(float));
    return panels->values != NULL ? RC_OK : RC_NOMEM;
}

void panels_deinit(struct panels *panels)
{
    mem_free(panels->values);
    *panels = (struct panels){0};
}

size_t panels_count(const struct panels *panels)
{
    return pieces(panels->columns, panels->width);
}

/* Columns [from, to) of a panel, which are stored as rows, for the steps [k, inner). */
static void pack_columns(const struct panels *panels, const float *b, size_t stride, size_t k,
                         size_t from, size_t to, float *panel)
{
    for (size_t c = from; c < to; c++) {
        for (size_t i = k; i < panels->inner; i++) {
            panel[i * panels->width + c] = b[c * stride + i];
        }
    }
}

#if defined(__x86_64__)

AVX2 static void pack_transposed(const struct panels *panels, const float *b, size_t stride,
                                 size_t columns, float *panel)
{
    size_t whole = columns - columns % LANES_AVX2, k = 0;

    for (; k + LANES_AVX2 <= panels->inner; k += LANES_AVX2) {
        for (size_t c = 0; c < whole; c += LANES_AVX2) {
            __m256 square[LANES_AVX2];

            UNROLLED for (size_t i = 0; i < LANES_AVX2; i++)
            {
                square[i] = _mm256_loadu_ps(b + (c + i) * stride + k);
            }
            transpose_square_avx2(square);
            UNROLLED for (size_t i = 0; i < LANES_AVX2; i++)
            {
                _mm256_storeu_ps(panel + (k + i) * panels->width + c, square[i]);
            }
        }
    }
    pack_columns(panels, b, stride, k, 0, whole, panel);
    pack_columns(panels, b, stride, 0, whole, columns, panel);
}

#endif

/* `rows` rows of `columns` values, `stride` apart, to rows of `width`. */
static void pack_some(const float *b, size_t stride, size_t rows, size_t columns, size_t width,
                      float *panel)
{
    for (size_t k = 0; k < rows; k++) {
        memcpy(panel + k * width, b + k * stride, columns * sizeof(float));
    }
}

#if defined(__x86_64__)

/* Of whole panels; `vectors` is a constant wherever this is inlined. */
INLINE AVX2 void pack_vectors(const float *b, size_t stride, size_t rows, size_t vectors,
                              float *panel)
{
    for (size_t k = 0; k < rows; k++, b += stride) {
        UNROLLED for (size_t v = 0; v < vectors; v++, panel += LANES_AVX2)
        {
            _mm256_storeu_ps(panel, _mm256_loadu_ps(b + v * LANES_AVX2));
        }
    }
}

AVX2 static void pack_whole(const float *b, size_t stride, size_t rows, size_t width, float *panel)
{
    if (width == WIDTH_AVX2) {
        pack_vectors(b, stride, rows, WIDTH_AVX2 / LANES_AVX2, panel);
    } else {
        pack_vectors(b, stride, rows, WIDTH_AVX512 / LANES_AVX2, panel);
    }
}

#endif

/* Panels [from, to), a few rows of B at a time: these are read from their beginning to their end,
 * and each panel is written some lines at a time. */
static void pack_rows(const struct panels *panels, const struct panels_source *source, size_t from,
                      size_t to)
{
    size_t width = panels->width, inner = panels->inner, rows;

    for (size_t k = 0; k < inner; k += rows) {
        size_t row =
            k + source->rotation < inner ? k + source->rotation : k + source->rotation - inner;

        rows = smaller(PACKED_ROWS, inner - (k > row ? k : row));
        for (size_t i = from; i < to; i++) {
            const float *b = source->b + row * source->stride + i * width;
            float *panel = panels->values + (i * inner + k) * width;
            size_t columns = smaller(panels->columns - i * width, width);

#if defined(__x86_64__)
            if (columns == width && panels->form != PANELS_PLAIN) {
                pack_whole(b, source->stride, rows, width, panel);
                continue;
            }
#endif
            pack_some(b, source->stride, rows, columns, width, panel);
        }
    }
}

void panels_pack(const struct panels *panels, const struct panels_source *source, size_t from,
                 size_t to)
{
    CHECK(from <= to && to <= panels_count(panels));
    CHECK(source->is_transposed || source->rotation < panels->inner);
    if (!source->is_transposed) {
        pack_rows(panels, source, from, to);
        return;
    }
    for (; from < to; from++) {
        size_t first = from * panels->width;
        size_t columns = smaller(panels->columns - first, panels->width);
        const float *b = source->b + first * source->stride;
        float *panel = panels->values + first * panels->inner;

#if defined(__x86_64__)
        if (panels->form != PANELS_PLAIN) {
            pack_transposed(panels, b, source->stride, columns, panel);
            continue;
        }
#endif
        pack_columns(panels, b, source->stride, 0, 0, columns, panel);
    }
}

void panels_pack_all(const struct panels *panels, const struct panels_source *source)
{
    panels_pack(panels, source, 0, panels_count(panels));
}

#if defined(__x86_64__)

#define STEPS_UNROLLED _Pragma("GCC unroll 4")

/* The operands of one tile: rows of A against a block of one panel. */
struct tile {
    size_t inner;
    const float *a, *panel;
    size_t a_stride; /* between its rows; is_a_transposed: between steps of the inner index */
    bool is_a_transposed;
    float *c;
    size_t c_stride;
    const float *bias; /* NULL: none */
    bool adds, with_relu;
};

/* `rows` and `is_transposed` are constants wherever this is inlined, and loops over rows unrolled,
 * so that the sums live in registers. */
INLINE AVX512 void tile_avx512(const struct tile *t, size_t rows, bool is_transposed)
{
    enum { HALF = WIDTH_AVX512 / 2 };
    const float *a = t->a, *b = t->panel;
    size_t row_step = is_transposed ? 1 : t->a_stride, step = is_transposed ? t->a_stride : 1;
    __m512 sums[ROWS_AVX512][2], zero = _mm512_setzero_ps();

    UNROLLED for (size_t r = 0; r < rows; r++)
    {
        sums[r][0] = sums[r][1] = zero;
    }
    STEPS_UNROLLED for (size_t k = 0; k < t->inner; k++, a += step, b += WIDTH_AVX512)
    {
        __m512 left = _mm512_loadu_ps(b), right = _mm512_loadu_ps(b + HALF);

        UNROLLED for (size_t r = 0; r < rows; r++)
        {
            __m512 factor = _mm512_set1_ps(a[r * row_step]);
            sums[r][0] = _mm512_fmadd_ps(factor, left, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(factor, right, sums[r][1]);
        }
    }
    UNROLLED for (size_t r = 0; r < rows; r++)
    {
        float *c = t->c + r * t->c_stride;
        const float *more = t->adds ? c : t->bias;

        if (more != NULL) {
            sums[r][0] = _mm512_add_ps(sums[r][0], _mm512_loadu_ps(more));
            sums[r][1] = _mm512_add_ps(sums[r][1], _mm512_loadu_ps(more + HALF));
        }
        if (t->with_relu) { /* the second operand is what a NaN comes out as */
            sums[r][0] = _mm512_max_ps(zero, sums[r][0]);
            sums[r][1] = _mm512_max_ps(zero, sums[r][1]);
        }
        _mm512_storeu_ps(c, sums[r][0]);
        _mm512_storeu_ps(c + HALF, sums[r][1]);
    }
}

INLINE AVX2 void tile_avx2(const struct tile *t, size_t rows, bool is_transposed)
{
    enum { HALF = WIDTH_AVX2 / 2 };
    const float *a = t->a, *b = t->panel;
    size_t row_step = is_transposed ? 1 : t->a_stride, step = is_transposed ? t->a_stride : 1;
    __m256 sums[ROWS_AVX2][2], zero = _mm256_setzero_ps();

    UNROLLED for (size_t r = 0; r < rows; r++)
    {
        sums[r][0] = sums[r][1] = zero;
    }
    STEPS_UNROLLED for (size_t k = 0; k < t->inner; k++, a += step, b += WIDTH_AVX2)
    {
        __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + HALF);

        UNROLLED for (size_t r = 0; r < rows; r++)
        {
            __m256 factor = _mm256_set1_ps(a[r * row_step]);
            sums[r][0] = _mm256_fmadd_ps(factor, left, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(factor, right, sums[r][1]);
        }
    }
    UNROLLED for (size_t r = 0; r < rows; r++)
    {
        float *c = t->c + r * t->c_stride;
        const float *more = t->adds ? c : t->bias;

        if (more != NULL) {
            sums[r][0] = _mm256_add_ps(sums[r][0], _mm256_loadu_ps(more));
            sums[r][1] = _mm256_add_ps(sums[r][1], _mm256_loadu_ps(more + HALF));
        }
        if (t->with_relu) { /* the second operand is what a NaN comes out as */
            sums[r][0] = _mm256_max_ps(zero, sums[r][0]);
            sums[r][1] = _mm256_max_ps(zero, sums[r][1]);
        }
        _mm256_storeu_ps(c, sums[r][0]);
        _mm256_storeu_ps(c + HALF, sums[r][1]);
    }
}

#define FOR_ROWS(rows, tile)                                                                       \
    case rows:                                                                                     \
        if (t->is_a_transposed) {                                                                  \
            tile(t, rows, true);                                                                   \
        } else {                                                                                   \
            tile(t, rows, false);                                                                  \
        }                                                                                          \
        return

AVX512 static void run_avx512(const struct tile *t, size_t rows)
{
    switch (rows) {
        FOR_ROWS(8, tile_avx512);
        FOR_ROWS(7, tile_avx512);
        FOR_ROWS(6, tile_avx512);
        FOR_ROWS(5, tile_avx512);
        FOR_ROWS(4, tile_avx512);
        FOR_ROWS(3, tile_avx512);
        FOR_ROWS(2, tile_avx512);
        FOR_ROWS(1, tile_avx512);
    }
}

AVX2 static void run_avx2(const struct tile *t, size_t rows)
{
    switch (rows) {
        FOR_ROWS(6, tile_avx2);
        FOR_ROWS(5, tile_avx2);
        FOR_ROWS(4, tile_avx2);
        FOR_ROWS(3, tile_avx2);
        FOR_ROWS(2, tile_avx2);
        FOR_ROWS(1, tile_avx2);
    }
}

static void run_whole(enum panels_form form, const struct tile *t, size_t rows)
{
    if (form == PANELS_AVX512) {
        run_avx512(t, rows);
    } else {
        run_avx2(t, rows);
    }
}

/* Under the last panel C may have fewer columns than the panel: by way of a copy. */
static void run_edge(enum panels_form form, const struct tile *t, size_t rows, size_t columns)
{
    float edge[ROWS_AVX512 * WIDTH_AVX512];
    struct tile bare = *t;

    bare.c = edge;
    bare.c_stride = width_of(form, columns);
    bare.bias = NULL;
    bare.adds = bare.with_relu = false;
    run_whole(form, &bare, rows);
    for (size_t r = 0; r < rows; r++) {
        float *c = t->c + r * t->c_stride;
        const float *from = edge + r * bare.c_stride, *more = t->adds ? c : t->bias;

        for (size_t i = 0; i < columns; i++) {
            float sum = more != NULL ? from[i] + more[i] : from[i];
            c[i] = t->with_relu && sum < 0.0F ? 0.0F : sum;
        }
    }
}

/* A block of the product: rows [row, row + rows), steps [k, k + inner) of the inner index. Its
 * tiles are as high as each other, but for one row that the first `more` have more: tiles of few
 * rows are slow. */
struct block {
    size_t row, rows, k, inner;
    size_t tiles, least, more;
    const float *a; /* of its first row and step; packed where A is transposed */
};

static size_t tile_rows(const struct block *block, size_t tile)
{
    return block->least + (tile < block->more ? 1 : 0);
}

/* `rows` values each of `tiles` tiles that follow each other, at one step: the vectors' values past
 * a tile's are those of its next step, which is written later. */
AVX2 static const float *pack_step(const float *from, size_t rows, size_t tiles, size_t tile_values,
                                   float *to)
{
    size_t end = tiles * rows;

    if (rows <= 6) {
        for (size_t i = 0; i < end; i += rows, to += tile_values) {
            _mm_storeu_ps(to, _mm_loadu_ps(from + i));
            _mm_storel_pi((__m64 *)(to + 4),
                          _mm_loadl_pi(_mm_setzero_ps(), (const __m64 *)(from + i + 4)));
        }
    } else {
        for (size_t i = 0; i < end; i += rows, to += tile_values) {
            _mm256_storeu_ps(to, _mm256_loadu_ps(from + i));
        }
    }
    return from + end;
}

static const float *pack_step_exactly(const float *from, size_t rows, size_t tiles,
                                      size_t tile_values, float *to)
{
    for (size_t i = 0; i < tiles; i++, from += rows, to += tile_values) {
        for (size_t r = 0; r < rows; r++) {
            to[r] = from[r];
        }
    }
    return from;
}

static size_t packed_tile_values(const struct block *block, size_t rows)
{
    return rows * block->inner + LINE_VALUES;
}

/* A's block [inner][rows] as [tiles][inner][rows of the tile], with a line between tiles, as
 * without it their beginnings would share a few sets of the cache. */
static void pack_block(const struct block *block, const struct panels_product *p, float *to)
{
    size_t high = block->least + 1, low = block->least, rest = block->tiles - block->more;
    float *lower = to + block->more * packed_tile_values(block, high);

    for (size_t k = 0; k < block->inner; k++) {
        const float *from = p->a + (block->k + k) * p->a_stride + block->row;
        bool is_exact = k + 1 == block->inner || low < LANES_AVX2 / 2;

        /* The processor looks ahead within a page only, and wide rows have one each. */
        for (size_t r = 0; r < block->rows; r += LINE_VALUES) {
            __builtin_prefetch(from + STEPS_AHEAD * p->a_stride + r);
        }
        if (is_exact) {
            from = pack_step_exactly(from, high, block->more, packed_tile_values(block, high),
                                     to + k * high);
            pack_step_exactly(from, low, rest, packed_tile_values(block, low), lower + k * low);
        } else {
            from =
                pack_step(from, high, block->more, packed_tile_values(block, high), to + k * high);
            pack_step(from, low, rest, packed_tile_values(block, low), lower + k * low);
        }
    }
}

static void multiply_panel(const struct panels *panels, const struct panels_product *p,
                           const struct block *block, size_t panel)
{
    size_t first = panel * panels->width, columns = smaller(panels->columns - first, panels->width);
    struct tile t = {
        .inner = block->inner,
        .a = block->a,
        .a_stride = p->a_stride,
        .is_a_transposed = p->is_a_transposed,
        .panel = panels->values + first * panels->inner + block->k * panels->width,
        .c = p->c + block->row * p->c_stride + first,
        .c_stride = p->c_stride,
        .bias = p->bias != NULL && block->k == 0 ? p->bias + first : NULL,
        .adds = p->adds || block->k > 0,
        .with_relu = p->with_relu && block->k + block->inner == panels->inner,
    };

    for (size_t i = 0; i < block->tiles; i++) {
        size_t rows = tile_rows(block, i);

        if (p->is_a_transposed) t.a_stride = rows;
        if (columns == panels->width) {
            run_whole(panels->form, &t, rows);
        } else {
            run_edge(panels->form, &t, rows, columns);
        }
        t.a += p->is_a_transposed ? packed_tile_values(block, rows) : rows * p->a_stride;
        t.c += rows * p->c_stride;
    }
}

static void multiply_tiles(const struct panels *panels, const struct panels_product *p, size_t from,
                           size_t to)
{
    _Alignas(64) float packed[ROWS_BLOCK * (INNER_BLOCK + LINE_VALUES)];
    size_t most = panels->form == PANELS_AVX512 ? ROWS_AVX512 : ROWS_AVX2;
    size_t inner = pieces(panels->inner, pieces(panels->inner, INNER_BLOCK));
    struct block block;

    for (block.k = 0; block.k < panels->inner; block.k += inner) {
        block.inner = smaller(panels->inner - block.k, inner);
        for (block.row = 0; block.row < p->rows; block.row += ROWS_BLOCK) {
            block.rows = smaller(p->rows - block.row, ROWS_BLOCK);
            block.tiles = pieces(block.rows, most);
            block.least = block.rows / block.tiles;
            block.more = block.rows % block.tiles;
            block.a = p->a + block.row * p->a_stride + block.k;
            if (p->is_a_transposed) {
                pack_block(&block, p, packed);
                block.a = packed;
            }
            for (size_t panel = from; panel < to; panel++) {
                multiply_panel(panels, p, &block, panel);
            }
        }
    }
}

#endif

/* The only panel is B as it is. */
static void multiply_plain(const struct panels *panels, const struct panels_product *p)
{
    bool adds = p->adds || p->bias != NULL;

    for (size_t r = 0; p->bias != NULL && r < p->rows; r++) {
        memcpy(p->c + r * p->c_stride, p->bias, panels->columns * sizeof(float));
    }
    cblas_sgemm(CblasRowMajor, p->is_a_transposed ? CblasTrans : CblasNoTrans, CblasNoTrans,
                (int)p->rows, (int)panels->columns, (int)panels->inner, 1.0F, p->a,
                (int)p->a_stride, panels->values, (int)panels->width, adds ? 1.0F : 0.0F, p->c,
                (int)p->c_stride);
    for (size_t r = 0; p->with_relu && r < p->rows; r++) {
        float *c = p->c + r * p->c_stride;

        for (size_t i = 0; i < panels->columns; i++) {
            c[i] = c[i] < 0.0F ? 0.0F : c[i];
        }
    }
}

void panels_multiply(const struct panels *panels, const struct panels_product *p, size_t from,
                     size_t to)
{
    CHECK(p->rows <= INT_MAX && p->a_stride <= INT_MAX && p->c_stride <= INT_MAX);
    CHECK(from <= to && to <= panels_count(panels) && !(p->adds && p->bias != NULL));
    if (p->rows == 0 || from == to) return;
#if defined(__x86_64__)
    if (panels->form != PANELS_PLAIN) {
        multiply_tiles(panels, p, from, to);
        return;
    }
#endif
    multiply_plain(panels, p);
}

void panels_multiply_all(const struct panels *panels, const struct panels_product *p)
{
    panels_multiply(panels, p, 0, panels_count(panels));
}

size_t panels_once_values(enum panels_form form, size_t inner, size_t columns)
{
    return panels_values(form, smaller(inner, INNER_BLOCK), smaller(columns, COLUMNS_BLOCK));
}

/* All steps of the inner index for at most COLUMNS_BLOCK columns. */
static void multiply_columns(enum panels_form form, const struct panels_source *b, size_t inner,
                             size_t columns, const struct panels_product *product, float *scratch)
{
    size_t step = pieces(inner, pieces(inner, INNER_BLOCK));

    for (size_t k = 0; k < inner; k += step) {
        size_t steps = smaller(inner - k, step);
        struct panels panels = panels_in(form, steps, columns, scratch);
        struct panels_source source = *b;
        struct panels_product p = *product;

        source.b += b->is_transposed ? k : k * b->stride;
        p.a += p.is_a_transposed ? k * p.a_stride : k;
        p.adds = product->adds || k > 0;
        if (k > 0) p.bias = NULL;
        p.with_relu = product->with_relu && k + steps == inner;
        panels_pack_all(&panels, &source);
        panels_multiply_all(&panels, &p);
    }
}

void panels_multiply_once(enum panels_form form, const struct panels_source *b, size_t inner,
                          size_t columns, const struct panels_product *product, float *scratch)
{
    size_t unit = form == PANELS_PLAIN ? 1 : width_of(form, columns);
    size_t blocks = pieces(columns, COLUMNS_BLOCK), width;

    CHECK(b->rotation == 0 && inner > 0 && columns > 0);
    width = pieces(pieces(columns, blocks), unit) * unit;
    for (size_t first = 0; first < columns; first += width) {
        struct panels_source source = *b;
        struct panels_product p = *product;

        source.b += b->is_transposed ? first * b->stride : first;
        p.c += first;
        if (p.bias != NULL) p.bias += first;
        multiply_columns(form, &source, inner, smaller(columns - first, width), &p, scratch);
    }
}
