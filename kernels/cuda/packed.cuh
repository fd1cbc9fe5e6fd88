/*
 * packed: up to 16 bytes of activations between memory and use, as they lie in memory, so that many
 * loads can be on their way at once in few registers.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_PARCEL_CUH
#define GRAPEVINE_KERNELS_CUDA_PARCEL_CUH

#include "kernels/cuda/each.cuh"

/* N values on their way, as they lie in memory: two bfloat16 of them take one register. */
template <typename T, int N> struct __attribute__((may_alias, aligned(ACCESS_BYTES))) packed {
    uint32_t words[ACCESS_BYTES / sizeof(uint32_t)];
};

template <typename T> struct packed<T, 1> {
    T value;
};

template <int N, typename T> __device__ inline struct packed<T, N> fetch(const T *x) {
    return *reinterpret_cast<const struct packed<T, N> *>(x);
}

template <typename T>
__device__ inline void unpack(const struct packed<T, 1> &from, float *values)
{
    values[0] = load(&from.value);
}

__device__ inline void unpack(const struct packed<float, 4> &from, float *values)
{
    for (int k = 0; k < 4; k++) {
        values[k] = __uint_as_float(from.words[k]);
    }
}

__device__ inline void unpack(const struct packed<bf16, 8> &from, float *values)
{
    for (int k = 0; k < 4; k++) {
        values[2 * k] = __uint_as_float(from.words[k] << 16);
        values[2 * k + 1] = __uint_as_float(from.words[k] & 0xFFFF0000u);
    }
}

#endif
