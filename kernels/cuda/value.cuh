/* value: activations in either form, read and written as float32; and what most kernels need. */
#ifndef GRAPEVINE_KERNELS_CUDA_VALUE_CUH
#define GRAPEVINE_KERNELS_CUDA_VALUE_CUH

#include "kernels/cuda/internal.h"
#include "kernels/cuda/launch.h"

typedef __nv_bfloat16 bf16;

__device__ inline float load(const float *x)
{
    return *x;
}

__device__ inline float load(const bf16 *x)
{
    return __bfloat162float(*x);
}

__device__ inline void store(float *y, float value)
{
    *y = value;
}

__device__ inline void store(bf16 *y, float value)
{
    *y = __float2bfloat16_rn(value);
}

/* Run `statement` with T as the backend's type of activations. */
#define WITH_ACTIVATIONS(cuda, statement)                                                          \
    do {                                                                                           \
        if ((cuda)->is_bf16) {                                                                     \
            typedef bf16 T;                                                                        \
            statement;                                                                             \
        } else {                                                                                   \
            typedef float T;                                                                       \
            statement;                                                                             \
        }                                                                                          \
    } while (0)

template <typename T> const T *as(const void *x)
{
    return static_cast<const T *>(x);
}

template <typename T> T *as(void *x)
{
    return static_cast<T *>(x);
}

enum { THREADS = 256, WARP = 32 };

/* Blocks of THREADS for a grid-stride loop over n values: enough to fill the device, no more. */
static inline unsigned blocks_for(const struct cuda_backend *cuda, size_t n)
{
    size_t wanted = (n + THREADS - 1) / THREADS, most = 16 * (size_t)cuda->multiprocessors;

    return (unsigned)(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

#define GRID_STRIDE(i, n)                                                                          \
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < (n);                        \
         i += (size_t)gridDim.x * blockDim.x)

/* Over the lanes of a warp; every lane gets the result. */
template <typename S> __device__ inline S warp_sum(S value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        value += __shfl_xor_sync(0xFFFFFFFFu, value, offset);
    }
    return value;
}

__device__ inline float warp_max(float value)
{
    for (int offset = WARP / 2; offset > 0; offset /= 2) {
        value = fmaxf(value, __shfl_xor_sync(0xFFFFFFFFu, value, offset));
    }
    return value;
}

/* Over a block of up to 1024 threads, a multiple of WARP; every thread gets the result, and all
 * must call it. `partial`: shared memory for one value a warp; may be used again after
 * __syncthreads().
 */
template <typename S> __device__ inline S block_sum(S value, S *partial)
{
    unsigned warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    S sum = S(0);

    value = warp_sum(value);
    if (lane == 0) partial[warp] = value;
    __syncthreads();
    for (unsigned w = 0; w < (blockDim.x + WARP - 1) / WARP; w++) {
        sum += partial[w]; /* in one order: equal bits */
    }
    __syncthreads();
    return sum;
}

#endif
