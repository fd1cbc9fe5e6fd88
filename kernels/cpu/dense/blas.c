/*
 * OpenBLAS is asked for products of one thread only, and what is worth several is cut here: its
 * OpenMP flavour runs on one thread where a parallel region calls it, the flavour with threads of
 * its own is told to (its number is the process's, and a call waits for those of others), and the
 * serial flavour knows nothing else. So they are equal in speed and in bits, and none has threads
 * that compete with the pool.
 */
#include "kernels/cpu/dense/blas.h"

#include "kernels/cpu/split.h"

#include <cblas.h>

enum { CUT_MIN = 32 /* rows or columns for a thread */ };

void blas_begin(void)
{
    if (openblas_get_parallel() == OPENBLAS_THREAD) openblas_set_num_threads(1);
}

static void multiply(const struct gemm *g)
{
    cblas_sgemm(CblasRowMajor, g->is_a_transposed ? CblasTrans : CblasNoTrans,
                g->is_b_transposed ? CblasTrans : CblasNoTrans, (int)g->rows, (int)g->columns,
                (int)g->inner, g->alpha, g->a, (int)g->a_stride, g->b, (int)g->b_stride, g->beta,
                g->c, (int)g->c_stride);
}

static void multiply_rows(void *data, size_t part, size_t from, size_t to)
{
    struct gemm g = *(const struct gemm *)data;

    (void)part;
    g.a += from * (g.is_a_transposed ? 1 : g.a_stride);
    g.c += from * g.c_stride;
    g.rows = to - from;
    multiply(&g);
}

static void multiply_columns(void *data, size_t part, size_t from, size_t to)
{
    struct gemm g = *(const struct gemm *)data;

    (void)part;
    g.b += from * (g.is_b_transposed ? g.b_stride : 1);
    g.c += from;
    g.columns = to - from;
    multiply(&g);
}

void blas_multiply(const struct backend *backend, const struct gemm *gemm, bool is_alone)
{
    struct gemm g = *gemm;

    if (is_alone) {
        multiply(&g);
    } else if (g.rows >= g.columns) {
        cpu_split(backend, g.rows, CUT_MIN, multiply_rows, &g);
    } else {
        cpu_split(backend, g.columns, CUT_MIN, multiply_columns, &g);
    }
}
