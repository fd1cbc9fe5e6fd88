/*
 * Products with a packed factor, see panels.h: the usual blocks and register tiles (Goto, van de
 * Geijn 2008, ACM TOMS 34(3)). A tile is up to 8 rows x 32 columns with AVX-512, 6 x 16 with AVX2;
 * its sums stay in registers over a block of the inner index, whose part of a panel stays in the
 * first cache while the tiles below each other pass, and the rows of A are taken in blocks that
 * stay in the second. Each sum is one chain of fused multiply-adds over the inner index in
 * ascending order, put down between blocks: so tiles of any size and instruction set agree to the
 * bit. Anywhere else OpenBLAS multiplies.
 */
#include "kernels/cpu/dense/panels.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <limits.h>
#include <string.h>

#include <cblas.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum {
    ROWS_AVX512 = 8, /* of a tile, at the most */
    ROWS_AVX2 = 6,
    WIDTH_AVX512 = 32, /* columns: two vectors */
    WIDTH_AVX2 = 16,
    INNER_BLOCK = 384,
    ROWS_BLOCK = 96,
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

static void pack_transposed(float *panel, size_t panel_width, size_t inner, size_t columns,
                            const float *b, size_t stride)
{
    for (size_t c = 0; c < columns; c++) {
        for (size_t k = 0; k < inner; k++) {
            panel[k * panel_width + c] = b[c * stride + k];
        }
    }
}

void panels_pack(const struct panels *panels, const struct panels_source *source, size_t from,
                 size_t to)
{
    size_t inner = panels->inner, width = panels->width;

    CHECK(from <= to && to <= panels_count(panels));
    for (size_t first = from * width; from < to; from++, first += width) {
        float *panel = panels->values + first * inner;
        size_t columns = smaller(panels->columns - first, width);

        if (source->is_transposed) {
            pack_transposed(panel, width, inner, columns, source->b + first * source->stride,
                            source->stride);
            continue;
        }
        for (size_t k = 0; k < inner; k++) {
            const float *row = source->b + (k + source->rotation) % inner * source->stride;
            memcpy(panel + k * width, row + first, columns * sizeof(float));
        }
    }
}

void panels_pack_all(const struct panels *panels, const struct panels_source *source)
{
    panels_pack(panels, source, 0, panels_count(panels));
}

#if defined(__x86_64__)

#define INLINE static inline __attribute__((always_inline))

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

/* `rows` and `is_transposed` are constants wherever this is inlined, so that the sums live in
 * registers. */
INLINE __attribute__((target("avx512f"))) void tile_avx512(const struct tile *t, size_t rows,
                                                           bool is_transposed)
{
    enum { HALF = WIDTH_AVX512 / 2 };
    const float *a = t->a, *b = t->panel;
    size_t row_step = is_transposed ? 1 : t->a_stride, step = is_transposed ? t->a_stride : 1;
    __m512 sums[ROWS_AVX512][2], zero = _mm512_setzero_ps();

    for (size_t r = 0; r < rows; r++) {
        const float *start = t->adds ? t->c + r * t->c_stride : t->bias;

        sums[r][0] = start != NULL ? _mm512_loadu_ps(start) : zero;
        sums[r][1] = start != NULL ? _mm512_loadu_ps(start + HALF) : zero;
    }
    for (size_t k = 0; k < t->inner; k++, a += step, b += WIDTH_AVX512) {
        __m512 left = _mm512_loadu_ps(b), right = _mm512_loadu_ps(b + HALF);

        for (size_t r = 0; r < rows; r++) {
            __m512 factor = _mm512_set1_ps(a[r * row_step]);
            sums[r][0] = _mm512_fmadd_ps(factor, left, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(factor, right, sums[r][1]);
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t half = 0; half < 2; half++) {
            /* The second operand is what a NaN comes out as. */
            __m512 sum = t->with_relu ? _mm512_max_ps(zero, sums[r][half]) : sums[r][half];
            _mm512_storeu_ps(t->c + r * t->c_stride + half * HALF, sum);
        }
    }
}

INLINE __attribute__((target("avx2,fma"))) void tile_avx2(const struct tile *t, size_t rows,
                                                          bool is_transposed)
{
    enum { HALF = WIDTH_AVX2 / 2 };
    const float *a = t->a, *b = t->panel;
    size_t row_step = is_transposed ? 1 : t->a_stride, step = is_transposed ? t->a_stride : 1;
    __m256 sums[ROWS_AVX2][2], zero = _mm256_setzero_ps();

    for (size_t r = 0; r < rows; r++) {
        const float *start = t->adds ? t->c + r * t->c_stride : t->bias;

        sums[r][0] = start != NULL ? _mm256_loadu_ps(start) : zero;
        sums[r][1] = start != NULL ? _mm256_loadu_ps(start + HALF) : zero;
    }
    for (size_t k = 0; k < t->inner; k++, a += step, b += WIDTH_AVX2) {
        __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + HALF);

        for (size_t r = 0; r < rows; r++) {
            __m256 factor = _mm256_set1_ps(a[r * row_step]);
            sums[r][0] = _mm256_fmadd_ps(factor, left, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(factor, right, sums[r][1]);
        }
    }
    for (size_t r = 0; r < rows; r++) {
        for (size_t half = 0; half < 2; half++) {
            __m256 sum = t->with_relu ? _mm256_max_ps(zero, sums[r][half]) : sums[r][half];
            _mm256_storeu_ps(t->c + r * t->c_stride + half * HALF, sum);
        }
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

__attribute__((target("avx512f"))) static void run_avx512(const struct tile *t, size_t rows)
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

__attribute__((target("avx2,fma"))) static void run_avx2(const struct tile *t, size_t rows)
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

/* Whole panels are multiplied straight into C; under the last one C may have fewer columns than the
 * panel: by way of a copy. */
static void run_tile(enum panels_form form, const struct tile *t, size_t rows, size_t columns)
{
    float edge[ROWS_AVX512 * WIDTH_AVX512] = {0}, bias[WIDTH_AVX512] = {0};
    size_t width = width_of(form, columns);
    struct tile to_edge = *t;

    if (columns == width) {
        if (form == PANELS_AVX512) {
            run_avx512(t, rows);
        } else {
            run_avx2(t, rows);
        }
        return;
    }
    to_edge.c = edge;
    to_edge.c_stride = width;
    if (t->bias != NULL) to_edge.bias = memcpy(bias, t->bias, columns * sizeof(float));
    for (size_t r = 0; t->adds && r < rows; r++) {
        memcpy(edge + r * width, t->c + r * t->c_stride, columns * sizeof(float));
    }
    run_tile(form, &to_edge, rows, width);
    for (size_t r = 0; r < rows; r++) {
        memcpy(t->c + r * t->c_stride, edge + r * width, columns * sizeof(float));
    }
}

/* A block of the product: rows [row, row + rows), steps [k, k + inner) of the inner index. */
struct block {
    size_t row, rows, k, inner;
};

/* One panel; the tiles are as equal as can be, as those of few rows are slow. */
static void multiply_panel(const struct panels *panels, const struct panels_product *p,
                           const struct block *block, size_t panel)
{
    size_t most = panels->form == PANELS_AVX512 ? ROWS_AVX512 : ROWS_AVX2;
    size_t first = panel * panels->width, columns = smaller(panels->columns - first, panels->width);
    struct tile t = {
        .inner = block->inner,
        .panel = panels->values + first * panels->inner + block->k * panels->width,
        .a_stride = p->a_stride,
        .is_a_transposed = p->is_a_transposed,
        .c_stride = p->c_stride,
        .bias = p->bias != NULL && block->k == 0 ? p->bias + first : NULL,
        .adds = p->adds || block->k > 0,
        .with_relu = p->with_relu && block->k + block->inner == panels->inner,
    };

    for (size_t tiles = pieces(block->rows, most), left = block->rows; left > 0; tiles--) {
        size_t rows = pieces(left, tiles), row = block->row + block->rows - left;

        t.a = p->a +
              (p->is_a_transposed ? block->k * p->a_stride + row : row * p->a_stride + block->k);
        t.c = p->c + row * p->c_stride + first;
        run_tile(panels->form, &t, rows, columns);
        left -= rows;
    }
}

static void multiply_tiles(const struct panels *panels, const struct panels_product *p, size_t from,
                           size_t to)
{
    size_t inner = pieces(panels->inner, pieces(panels->inner, INNER_BLOCK));
    size_t rows = pieces(p->rows, pieces(p->rows, ROWS_BLOCK));
    struct block block;

    for (block.k = 0; block.k < panels->inner; block.k += inner) {
        block.inner = smaller(panels->inner - block.k, inner);
        for (block.row = 0; block.row < p->rows; block.row += rows) {
            block.rows = smaller(p->rows - block.row, rows);
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
