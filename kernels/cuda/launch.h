/*
 * launch: a kernel launch as a checked call, with arguments converted to the kernel's parameters.
 * And what kernels are written with where a plain CUDA spelling would not do for the virtual device
 * of the tests (tests/cuda/virtual), which runs the same kernels on the processor.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_LAUNCH_H
#define GRAPEVINE_KERNELS_CUDA_LAUNCH_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdint.h>
#include <tuple>
#include <utility>

/* `extern __shared__` memory of a launch, 16-byte aligned: SHARED_MEMORY(unsigned char, raw); */
#define SHARED_MEMORY(type, name)                                                                  \
    extern __shared__ __align__(16) unsigned char grapevine_shared_memory[];                       \
    type *name = reinterpret_cast<type *>(grapevine_shared_memory)

template <typename... P, size_t... I>
cudaError_t launch_packed(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
                          cudaStream_t stream, std::tuple<P...> &values, std::index_sequence<I...>)
{
    void *arguments[] = {static_cast<void *>(&std::get<I>(values))...};

    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, arguments, shared,
                            stream);
}

/** Kernels take at least one argument, by value: numbers, pointers, plain structs. */
template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                   A... arguments)
{
    std::tuple<P...> values(static_cast<P>(arguments)...);

    return launch_packed(kernel, grid, block, shared, stream, values,
                         std::index_sequence_for<P...>{});
}

/** Kernels that want more than 48 KiB of SHARED_MEMORY say so once, at creation time. */
template <typename... P> cudaError_t launch_allow_shared(void (*kernel)(P...), size_t bytes)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
}

#ifdef __CUDACC__
/* Tensor cores: c[16][8] += a[16][16] b[16][8], bfloat16 operands, float32 sums; fragments as PTX
 * ISA, mma.sync.m16n8k16 has them. All lanes of a warp call it. */
__device__ inline void mma_bf16(float c[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Four 8 x 8 matrices of 16-bit values from shared memory (PTX ISA, ldmatrix): lane l passes the
 * address of row l % 8 of matrix l / 8, 16-byte aligned. */
__device__ inline void load_matrices(uint32_t r[4], const void *row)
{
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* The same, each matrix transposed. */
__device__ inline void load_matrices_transposed(uint32_t r[4], const void *row)
{
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(row));

    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
}

/* 16 bytes from global to shared memory, on their own; zeros if not `wanted`. */
__device__ inline void copy_async(void *to, const void *from, bool wanted)
{
    uint32_t address = static_cast<uint32_t>(__cvta_generic_to_shared(to));

    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(address), "l"(from), "r"(wanted ? 16 : 0)
                 : "memory");
}

__device__ inline void copy_async_commit(void)
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

/** Until no more than `n` committed groups are on their way. */
template <int n> __device__ inline void copy_async_wait(void)
{
    asm volatile("cp.async.wait_group %0;" : : "n"(n) : "memory");
}
#endif

#endif
