/*
 * Matrix products in float32, and who multiplies. Small products stay on one thread: waking another
 * takes as long as they do. Equal calls give equal bits.
 */
#include "kernels/cpu/dense/linear_internal.h"

#include "base/check.h"
#include "base/mem.h"
#include "kernels/cpu/dense/blas.h"
#include "kernels/cpu/dense/dots.h"
#include "kernels/cpu/dense/panels.h"
#include "kernels/cpu/reference/reference.h"
#include "kernels/cpu/split.h"

#include <limits.h>

#include <omp.h>

enum {
    NARROW = 16,
    OWN_COLUMNS_MIN = 8,
    SPLIT_OPERATIONS = 12 << 20, /* multiplications and additions of a product, in all */
    DOTS_VALUES = 1 << 17,       /* of B that a thread reads at the least */
};

/* Whether products are those of panels.h and dots.h. AMD Zen 3, one thread, of 101 GFLOP/s:
 * weights' gradients of 512 rows 70 to 90, oneDNN 2.6.3's sgemm 37 to 81, OpenBLAS 75 to 88;
 * forward with packed weights 93 to 96 (87 to 96, 76 to 90); 64 rows of mlp's first layer 83 to 89
 * (75 to 85, 68 to 81). Up to three rows are dots.h's: one by weights of 768 x 3,072 0.19 ms,
 * OpenBLAS 1.08. Not measured on AVX-512, where the libraries' are known. */
static const bool is_own[CPU_SETS] = {[CPU_AVX2] = true};

bool gemm_is_own(void)
{
    return is_own[cpu_used];
}

/* oneDNN's sgemm is 3 to 12 % ahead of OpenBLAS 0.3.21 on the shapes of a training step (64 x 256 x
 * 784 and the like, AVX-512), OpenBLAS up to twice as fast where one side is narrow. */
static bool is_narrow(const struct gemm *g)
{
    return g->rows < NARROW || g->columns < NARROW || g->inner < NARROW;
}

static void multiply(const struct cpu_backend *cpu, const struct gemm *g, bool is_alone)
{
    if (cpu->onednn != NULL && !is_narrow(g) && onednn_gemm(g) == RC_OK) return;
    blas_multiply(&cpu->base, g, is_alone);
}

bool gemm_is_small(size_t rows, size_t columns, size_t inner)
{
    return 2.0 * (double)rows * (double)columns * (double)inner < (double)SPLIT_OPERATIONS;
}

/* Values of a thread's room to pack in. */
static size_t room_values(void)
{
    return panels_once_values(panels_best_form(), SIZE_MAX, SIZE_MAX);
}

enum rc cpu_gemm_reserve(struct cpu_backend *cpu)
{
    if (!is_own[cpu_used]) return RC_OK;
    cpu->room = mem_aligned(cpu->base.threads * room_values() * sizeof(float));
    return cpu->room != NULL ? RC_OK : RC_NOMEM;
}

struct own_gemm {
    const struct gemm *gemm;
    float *room;
    size_t row_unit, column_unit; /* of a share; one of them is all */
};

static void own_part(void *data, size_t part, size_t from, size_t to)
{
    const struct own_gemm *own = data;
    const struct gemm *g = own->gemm;
    struct panels_source b = {g->b, g->b_stride, g->is_b_transposed, .rotation = 0};
    struct panels_product product = {
        .rows = g->rows,
        .a = g->a,
        .a_stride = g->a_stride,
        .is_a_transposed = g->is_a_transposed,
        .c = g->c,
        .c_stride = g->c_stride,
        .adds = g->beta != 0.0F,
    };
    size_t columns = g->columns;

    if (own->row_unit != 0) {
        size_t row = from * own->row_unit, end = to * own->row_unit;

        product.rows = (end < g->rows ? end : g->rows) - row;
        product.a += g->is_a_transposed ? row : row * g->a_stride;
        product.c += row * g->c_stride;
    } else {
        size_t column = from * own->column_unit, end = to * own->column_unit;

        columns = (end < g->columns ? end : g->columns) - column;
        b.b += g->is_b_transposed ? column * g->b_stride : column;
        product.c += column;
    }
    panels_multiply_once(panels_best_form(), &b, g->inner, columns, &product,
                         own->room + part * room_values());
}

/* Threads share what there is more of, rows or columns. */
static void multiply_own(struct cpu_backend *cpu, const struct gemm *g)
{
    size_t columns_unit = panels_values(panels_best_form(), 1, 1); /* a panel's width */
    bool by_rows = g->rows > g->columns;
    struct own_gemm own = {g, cpu->room, by_rows ? GEMM_ROWS_UNIT : 0, by_rows ? 0 : columns_unit};
    size_t units = by_rows ? (g->rows + GEMM_ROWS_UNIT - 1) / GEMM_ROWS_UNIT
                           : (g->columns + columns_unit - 1) / columns_unit;

    cpu_split(&cpu->base, units, gemm_is_small(g->rows, g->columns, g->inner) ? units : 1, own_part,
              &own);
}

static bool is_for_own(const struct cpu_backend *cpu, const struct gemm *g)
{
    return cpu->room != NULL && g->rows >= GEMM_OWN_ROWS_MIN && g->columns >= OWN_COLUMNS_MIN &&
           g->inner > 0 && g->alpha == 1.0F && (g->beta == 0.0F || g->beta == 1.0F);
}

static void dots_part(void *data, size_t part, size_t from, size_t to)
{
    const struct gemm *g = data;

    (void)part;
    dots_multiply(g, from, to);
}

/* A thread's share is worth waking it. */
static void multiply_dots(struct cpu_backend *cpu, const struct gemm *g)
{
    struct gemm all = *g;

    cpu_split(&cpu->base, g->columns, DOTS_VALUES / (g->inner + 1) + 1, dots_part, &all);
}

enum rc cpu_gemm(struct backend *backend, const struct gemm *g)
{
    struct cpu_backend *cpu = cpu_of(backend);

    CHECK(g->rows <= INT_MAX && g->columns <= INT_MAX && g->inner <= INT_MAX);
    CHECK(g->a_stride <= INT_MAX && g->b_stride <= INT_MAX && g->c_stride <= INT_MAX);
    if (g->rows == 0 || g->columns == 0) return RC_OK;
    if (cpu->options.is_reference) {
        reference_gemm(g);
    } else if (is_own[cpu_used] && dots_serve(g)) {
        multiply_dots(cpu, g);
    } else if (is_for_own(cpu, g)) {
        multiply_own(cpu, g);
    } else if (backend->threads > 1 && gemm_is_small(g->rows, g->columns, g->inner)) {
        omp_set_num_threads(1);
        multiply(cpu, g, true);
        omp_set_num_threads((int)backend->threads);
    } else {
        multiply(cpu, g, false);
    }
    return RC_OK;
}
