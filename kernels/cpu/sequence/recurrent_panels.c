/*
 * Products of few rows with one and the same matrix, time step after time step. A library's sgemm
 * rewrites ("packs") the matrix at each call, and with 32 rows that costs as much as half of the
 * arithmetic; here it is packed once a training step. The rest is the usual register tile (Goto,
 * van de Geijn 2008, ACM TOMS 34(3)): 8 rows x 32 columns with AVX-512, 4 x 16 with AVX2, both with
 * fused multiply-add over the inner index in ascending order, so they agree to the bit. Anywhere
 * else OpenBLAS multiplies. Any thread.
 */
#include "kernels/cpu/sequence/recurrent.h"

#include "base/check.h"
#include "base/cpu.h"
#include "base/mem.h"

#include <limits.h>
#include <string.h>

#include <cblas.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { TILE_ROWS = 8, TILE_ROWS_AVX2 = 4, HALF = PANEL_COLUMNS / 2 };

/* The operands of one tile: rows of A against one panel. */
struct tile {
    size_t inner;
    const float *a, *panel;
    size_t a_stride;
    float *c;
    size_t c_stride;
    bool adds;
};

enum panels_form panels_best_form(void)
{
#if defined(__x86_64__)
    if (cpu_has(CPU_AVX512)) return PANELS_AVX512;
    if (cpu_has(CPU_AVX2)) return PANELS_AVX2;
#endif
    return PANELS_PLAIN;
}

enum rc panels_init(struct panels *panels, enum panels_form form, size_t inner, size_t columns)
{
    size_t width = form == PANELS_PLAIN ? columns : PANEL_COLUMNS;

    CHECK(inner > 0 && columns > 0 && inner <= INT_MAX && columns <= INT_MAX);
    CHECK(form <= panels_best_form());
    *panels =
        (struct panels){.form = form, .inner = inner, .columns = columns, .panel_columns = width};
    panels->values = mem_aligned((columns + width - 1) / width * width * inner * sizeof(float));
    return panels->values != NULL ? RC_OK : RC_NOMEM;
}

void panels_deinit(struct panels *panels)
{
    mem_free(panels->values);
    *panels = (struct panels){0};
}

static void pack_transposed(float *panel, size_t panel_columns, size_t inner, size_t width,
                            const float *b, size_t stride)
{
    for (size_t c = 0; c < width; c++) {
        for (size_t k = 0; k < inner; k++) {
            panel[k * panel_columns + c] = b[c * stride + k];
        }
    }
}

void panels_pack(struct panels *panels, const struct panels_source *source)
{
    size_t inner = panels->inner, most = panels->panel_columns;

    for (size_t first = 0; first < panels->columns; first += most) {
        float *panel = panels->values + first * inner;
        size_t left = panels->columns - first, width = left < most ? left : most;

        if (source->is_transposed) {
            pack_transposed(panel, most, inner, width, source->b + first * source->stride,
                            source->stride);
            continue;
        }
        for (size_t k = 0; k < inner; k++) {
            const float *row = source->b + (k + source->rotation) % inner * source->stride;
            memcpy(panel + k * most, row + first, width * sizeof(float));
        }
    }
}

#if defined(__x86_64__)

#define INLINE static inline __attribute__((always_inline))

/* `rows` is a constant wherever this is inlined, so that the sums live in registers. */
INLINE __attribute__((target("avx512f"))) void tile_avx512(const struct tile *t, size_t rows)
{
    const float *a = t->a, *b = t->panel;
    size_t a_stride = t->a_stride;
    __m512 sums[TILE_ROWS][2];

    for (size_t r = 0; r < rows; r++) {
        sums[r][0] = t->adds ? _mm512_loadu_ps(t->c + r * t->c_stride) : _mm512_setzero_ps();
        sums[r][1] = t->adds ? _mm512_loadu_ps(t->c + r * t->c_stride + HALF) : _mm512_setzero_ps();
    }
    for (size_t k = 0; k < t->inner; k++, b += PANEL_COLUMNS) {
        __m512 left = _mm512_loadu_ps(b), right = _mm512_loadu_ps(b + HALF);

        for (size_t r = 0; r < rows; r++) {
            __m512 factor = _mm512_set1_ps(a[r * a_stride + k]);
            sums[r][0] = _mm512_fmadd_ps(factor, left, sums[r][0]);
            sums[r][1] = _mm512_fmadd_ps(factor, right, sums[r][1]);
        }
    }
    for (size_t r = 0; r < rows; r++) {
        _mm512_storeu_ps(t->c + r * t->c_stride, sums[r][0]);
        _mm512_storeu_ps(t->c + r * t->c_stride + HALF, sums[r][1]);
    }
}

__attribute__((target("avx512f"))) static size_t rows_avx512(const struct tile *t, size_t rows)
{
    if (rows >= TILE_ROWS) {
        tile_avx512(t, TILE_ROWS);
        return TILE_ROWS;
    }
    if (rows >= 4) {
        tile_avx512(t, 4);
        return 4;
    }
    tile_avx512(t, 1);
    return 1;
}

INLINE __attribute__((target("avx2,fma"))) void tile_avx2(const struct tile *t, size_t first,
                                                          size_t rows)
{
    enum { LANES = 8 };
    const float *a = t->a, *b = t->panel + first;
    size_t a_stride = t->a_stride;
    float *c = t->c + first;
    __m256 sums[TILE_ROWS_AVX2][2];

    for (size_t r = 0; r < rows; r++) {
        sums[r][0] = t->adds ? _mm256_loadu_ps(c + r * t->c_stride) : _mm256_setzero_ps();
        sums[r][1] = t->adds ? _mm256_loadu_ps(c + r * t->c_stride + LANES) : _mm256_setzero_ps();
    }
    for (size_t k = 0; k < t->inner; k++, b += PANEL_COLUMNS) {
        __m256 left = _mm256_loadu_ps(b), right = _mm256_loadu_ps(b + LANES);

        for (size_t r = 0; r < rows; r++) {
            __m256 factor = _mm256_set1_ps(a[r * a_stride + k]);
            sums[r][0] = _mm256_fmadd_ps(factor, left, sums[r][0]);
            sums[r][1] = _mm256_fmadd_ps(factor, right, sums[r][1]);
        }
    }
    for (size_t r = 0; r < rows; r++) {
        _mm256_storeu_ps(c + r * t->c_stride, sums[r][0]);
        _mm256_storeu_ps(c + r * t->c_stride + LANES, sums[r][1]);
    }
}

__attribute__((target("avx2,fma"))) static size_t rows_avx2(const struct tile *t, size_t rows)
{
    if (rows >= TILE_ROWS_AVX2) {
        tile_avx2(t, 0, TILE_ROWS_AVX2);
        tile_avx2(t, HALF, TILE_ROWS_AVX2);
        return TILE_ROWS_AVX2;
    }
    tile_avx2(t, 0, 1);
    tile_avx2(t, HALF, 1);
    return 1;
}

static size_t tile_rows(const struct panels *panels, const struct tile *t, size_t rows)
{
    return panels->form == PANELS_AVX512 ? rows_avx512(t, rows) : rows_avx2(t, rows);
}

/* Whole panels are multiplied straight into C. */
static void multiply_panel(const struct panels *panels, const struct panels_product *p,
                           size_t first)
{
    for (size_t row = 0; row < p->rows;) {
        struct tile t = {
            .inner = panels->inner,
            .a = p->a + row * p->a_stride,
            .a_stride = p->a_stride,
            .panel = panels->values + first * panels->inner,
            .c = p->c + row * p->c_stride + first,
            .c_stride = p->c_stride,
            .adds = p->adds,
        };

        row += tile_rows(panels, &t, p->rows - row);
    }
}

/* Under the last panel C may have fewer columns than the panel: by way of a copy. */
static void multiply_edge(const struct panels *panels, const struct panels_product *p, size_t first)
{
    float edge[TILE_ROWS * PANEL_COLUMNS] = {0};
    size_t bytes = (panels->columns - first) * sizeof(float);

    for (size_t row = 0; row < p->rows;) {
        size_t left = p->rows - row, done;
        float *c = p->c + row * p->c_stride + first;
        struct tile t = {
            .inner = panels->inner,
            .a = p->a + row * p->a_stride,
            .a_stride = p->a_stride,
            .panel = panels->values + first * panels->inner,
            .c = edge,
            .c_stride = PANEL_COLUMNS,
            .adds = p->adds,
        };

        for (size_t r = 0; p->adds && r < TILE_ROWS && r < left; r++) {
            memcpy(edge + r * PANEL_COLUMNS, c + r * p->c_stride, bytes);
        }
        done = tile_rows(panels, &t, left);
        for (size_t r = 0; r < done; r++) {
            memcpy(c + r * p->c_stride, edge + r * PANEL_COLUMNS, bytes);
        }
        row += done;
    }
}

static void multiply_tiles(const struct panels *panels, const struct panels_product *p)
{
    size_t whole = panels->columns - panels->columns % PANEL_COLUMNS;

    for (size_t first = 0; first < whole; first += PANEL_COLUMNS) {
        multiply_panel(panels, p, first);
    }
    if (whole < panels->columns) multiply_edge(panels, p, whole);
}

#endif

void panels_multiply(const struct panels *panels, const struct panels_product *p)
{
    CHECK(p->rows <= INT_MAX && p->a_stride <= INT_MAX && p->c_stride <= INT_MAX);
    if (p->rows == 0) return;
#if defined(__x86_64__)
    if (panels->form != PANELS_PLAIN) {
        multiply_tiles(panels, p);
        return;
    }
#endif
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)p->rows, (int)panels->columns,
                (int)panels->inner, 1.0F, p->a, (int)p->a_stride, panels->values,
                (int)panels->panel_columns, p->adds ? 1.0F : 0.0F, p->c, (int)p->c_stride);
}
