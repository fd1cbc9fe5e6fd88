/*
 * Weight normalisation (Salimans, Kingma 2016): a block for each row, which finds the row in the
 * caches when it passes over it again. Sums in float64, in a fixed order. Twin:
 * kernels/cpu/norm/weight.c.
 */
#include "kernels/cuda/value.cuh"

/* Sum of a[i] b[i] over the block's row; every thread gets it. */
__device__ static inline double row_product(const float *a, const float *b, size_t columns)
{
    __shared__ double partial[THREADS / WARP];
    double sum = 0.0;

    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    }
    return block_sum(sum, partial);
}

static __global__ void __launch_bounds__(THREADS)
    forward_row(size_t columns, const float *v, const float *g, float *w, float *norms)
{
    const float *from = v + blockIdx.x * columns;
    float *to = w + blockIdx.x * columns;
    double norm = sqrt(row_product(from, from, columns));
    float factor = static_cast<float>(static_cast<double>(g[blockIdx.x]) / norm);

    if (threadIdx.x == 0) norms[blockIdx.x] = static_cast<float>(norm);
    for (size_t i = threadIdx.x; i < columns; i += THREADS) {
        to[i] = from[i] * factor;
    }
}

/* Equation 3 of the paper; dv may be dw. */
static __global__ void __launch_bounds__(THREADS) backward_row(struct weight_norm_backward pass)
{
    const float *v = pass.v + blockIdx.x * pass.columns, *dw = pass.dw + blockIdx.x * pass.columns;
    float *dv = pass.dv + blockIdx.x * pass.columns;
    double norm = static_cast<double>(pass.norms[blockIdx.x]);
    double scale = static_cast<double>(pass.g[blockIdx.x]) / norm;
    double dg = row_product(v, dw, pass.columns) / norm;
    float a = static_cast<float>(scale), b = static_cast<float>(-scale * dg / norm);

    if (threadIdx.x == 0) pass.dg[blockIdx.x] = static_cast<float>(dg);
    for (size_t i = threadIdx.x; i < pass.columns; i += THREADS) {
        dv[i] = dw[i] * a + v[i] * b;
    }
}

enum rc cuda_weight_norm_forward(struct backend *backend, size_t rows, size_t columns,
                                 const float *v, const float *g, float *w, float *norms)
{
    struct cuda_backend *cuda = cuda_of(backend);

    if (rows == 0) return RC_OK;
    return CUDA_CHECK(cuda, launch(forward_row, static_cast<unsigned>(rows), THREADS, 0,
                                   cuda->stream, columns, v, g, w, norms));
}

enum rc cuda_weight_norm_backward(struct backend *backend, const struct weight_norm_backward *pass)
{
    struct cuda_backend *cuda = cuda_of(backend);

    if (pass->rows == 0) return RC_OK;
    return CUDA_CHECK(cuda, launch(backward_row, static_cast<unsigned>(pass->rows), THREADS, 0,
                                   cuda->stream, *pass));
}
