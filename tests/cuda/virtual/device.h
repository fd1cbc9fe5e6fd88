/*
 * device: force-included before each .cu file when g++ compiles it for the virtual device: the
 * language of kernels (indices, barriers, warp intrinsics, shared memory, atomics) and all that
 * kernels/cuda/launch.h offers, which it takes the place of.
 *
 * Threads of a block are fibers, switched at barriers and warp intrinsics only (block.cpp); blocks
 * run one at a time, so static variables do for shared memory. README.md says what that proves.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_DEVICE_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_DEVICE_H

#define GRAPEVINE_KERNELS_CUDA_LAUNCH_H /* launch.h stays out */

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <functional>
#include <math.h>
#include <stdint.h>
#include <string.h>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

/* Set at every switch of fibers; one kernel runs at a time. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
extern unsigned char *virtual_shared_memory; /* of the running block */

enum { warpSize = 32 };

#define SHARED_MEMORY(type, name) type *name = reinterpret_cast<type *>(virtual_shared_memory)

#include "tests/cuda/virtual/collective.h"
#include "tests/cuda/virtual/intrinsics.h"

/* --- launches ----------------------------------------------------------------------------------*/

/* A pointer that a kernel gets: itself an argument, or a word of a structure that may be one. */
struct virtual_pointer {
    const void *at;
    unsigned argument;
    bool is_certain;
};

struct virtual_kernel {
    const void *address;
    dim3 grid, block;
    size_t shared_bytes;
    std::function<void()> thread; /* runs the calling fiber's thread from begin to end */
    std::vector<virtual_pointer> pointers;
};

/** Queues it on the stream, or says why a GPU would not take it. */
cudaError_t virtual_launch(virtual_kernel kernel, cudaStream_t stream);

template <typename P>
void virtual_list_pointers(const P &value, unsigned argument, std::vector<virtual_pointer> &to)
{
    if constexpr (std::is_pointer_v<P>) {
        to.push_back({reinterpret_cast<const void *>(value), argument, true});
    } else if constexpr (std::is_class_v<P> && sizeof(P) >= sizeof(void *)) {
#if __has_builtin(__builtin_clear_padding) /* where stale pointers may lie */
        P copy = value;

        __builtin_clear_padding(&copy);
        for (size_t at = 0; at + sizeof(void *) <= sizeof(P); at += sizeof(void *)) {
            const void *word;
            memcpy(&word, reinterpret_cast<const char *>(&copy) + at, sizeof(word));
            to.push_back({word, argument, false});
        }
#endif
    }
}

/** Kernels take at least one argument, by value: numbers, pointers, plain structs. */
template <typename... P, typename... A>
cudaError_t launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                   A... arguments)
{
    static_assert(sizeof...(P) == sizeof...(A) && sizeof...(P) > 0, "arguments of the kernel");
    static_assert((std::is_trivially_copyable_v<P> && ...), "arguments are plain values");
    static_assert((sizeof(P) + ...) <= 4096, "arguments that a launch can carry");
    std::tuple<P...> values(static_cast<P>(arguments)...);
    virtual_kernel work = {reinterpret_cast<const void *>(kernel), grid, block, shared, {}, {}};
    unsigned argument = 0;

    std::apply(
        [&](const P &...value) { (virtual_list_pointers(value, argument++, work.pointers), ...); },
        values);
    work.thread = [kernel, values] { std::apply(kernel, values); };
    return virtual_launch(std::move(work), stream);
}

/** Kernels that want more than 48 KiB of SHARED_MEMORY say so once, at creation time. */
template <typename... P> cudaError_t launch_allow_shared(void (*kernel)(P...), size_t bytes)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel),
                                cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(bytes));
}

#endif
