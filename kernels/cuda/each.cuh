/*
 * each: kernels that work value by value. An operation is a plain struct with its pointers and
 *
 *     template <int N> __device__ void at(size_t i) const;
 *
 * which does the values i to i + N - 1. Where all pointers are aligned, threads take as many values
 * at a time as 16 bytes hold; what is left over, and memory that is not aligned, goes one by one.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_EACH_CUH
#define GRAPEVINE_KERNELS_CUDA_EACH_CUH

#include "kernels/cuda/value.cuh"

enum { ACCESS_BYTES = 16 }; /* the widest that a thread reads or writes at once */

/* Values of T in one access. */
template <typename T> constexpr int access_values(void)
{
    return ACCESS_BYTES / static_cast<int>(sizeof(T));
}

constexpr size_t access_alignment(size_t bytes)
{
    return bytes > ACCESS_BYTES ? static_cast<size_t>(ACCESS_BYTES) : bytes;
}

template <typename T, int N> struct alignas(access_alignment(sizeof(T) * N)) access {
    T values[N];
};

/* N values, a power of two; from N > 1 on, x is aligned to as many, or to ACCESS_BYTES. */
template <int N, typename T> __device__ inline void load_values(const T *x, float *values)
{
    access<T, N> from = *reinterpret_cast<const access<T, N> *>(x);

#pragma unroll
    for (int i = 0; i < N; i++) {
        values[i] = load(&from.values[i]);
    }
}

template <int N, typename T> __device__ inline void store_values(T *y, const float *values)
{
    access<T, N> to;

#pragma unroll
    for (int i = 0; i < N; i++) {
        store(&to.values[i], values[i]);
    }
    *reinterpret_cast<access<T, N> *>(y) = to;
}

static inline bool is_aligned(const void *x)
{
    return reinterpret_cast<uintptr_t>(x) % ACCESS_BYTES == 0;
}

template <int N, typename F> __global__ void each_kernel(F operation, size_t n, size_t wide)
{
    GRID_STRIDE(i, wide)
    {
        operation.template at<N>(i * N);
    }
    GRID_STRIDE(i, n - wide * N)
    {
        operation.template at<1>(wide * N + i);
    }
}

/* On n values, N at a time if `are_aligned`. */
template <int N, typename F>
static enum rc for_each_value(struct cuda_backend *cuda, F operation, size_t n, bool are_aligned)
{
    size_t wide = are_aligned ? n / N : 0, left = n - wide * N;

    if (n == 0) return RC_OK;
    return CUDA_CHECK(cuda, launch(each_kernel<N, F>, blocks_for(cuda, wide > left ? wide : left),
                                   THREADS, 0, cuda->stream, operation, n, wide));
}

#endif
