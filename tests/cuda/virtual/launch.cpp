/* Launches, what kernels may ask for, and why a GPU would not take them. */
#include "tests/cuda/virtual/block.h"
#include "tests/cuda/virtual/state.h"

#include <stdio.h>
#include <stdlib.h>

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    const kernel_facts &facts = kernel_facts_of(kernel);

    if (error != cudaSuccess) return error;
    if (state().options.capability < 80) return fail(cudaErrorNoKernelImageForDevice);
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) return cudaSuccess;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 ||
        static_cast<size_t>(value) + facts.static_bytes > BLOCK_SHARED_BYTES_MAX) {
        return misuse(cudaErrorInvalidValue, "%s: %d bytes of shared memory, and %zu static ones",
                      facts.name.c_str(), value, facts.static_bytes);
    }
    state().shared_allowed[{current_device(), kernel}] = static_cast<size_t>(value);
    return cudaSuccess;
}

static size_t shared_allowed(const void *kernel, const kernel_facts &facts, int device)
{
    auto found = state().shared_allowed.find({device, kernel});
    size_t plain =
        facts.static_bytes < BLOCK_SHARED_BYTES ? BLOCK_SHARED_BYTES - facts.static_bytes : 0;

    return found != state().shared_allowed.end() && found->second > plain ? found->second : plain;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (attributes == NULL) return fail(cudaErrorInvalidValue);
    if (state().options.capability < 80) return fail(cudaErrorNoKernelImageForDevice);
    const kernel_facts &facts = kernel_facts_of(kernel);
    *attributes = {};
    attributes->sharedSizeBytes = facts.static_bytes;
    attributes->maxThreadsPerBlock = BLOCK_THREADS_MAX;
    attributes->numRegs = 32;
    attributes->binaryVersion = attributes->ptxVersion = 90;
    attributes->maxDynamicSharedSizeBytes =
        static_cast<int>(shared_allowed(kernel, facts, current_device()));
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *kernel,
                                                          int threads, size_t shared)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (blocks == NULL || threads < 1 || threads > BLOCK_THREADS_MAX) {
        return fail(cudaErrorInvalidValue);
    }
    size_t used = shared + kernel_facts_of(kernel).static_bytes + 1024;
    size_t by_shared = (BLOCK_SHARED_BYTES_MAX + 1024) / used;
    size_t by_threads = 2048 / static_cast<size_t>((threads + 31) / 32 * 32);
    size_t least = by_shared < by_threads ? by_shared : by_threads;
    *blocks = static_cast<int>(least < 32 ? least : 32);
    return cudaSuccess;
}

/* Why a GPU would not take the launch. */
static cudaError_t launch_check(const virtual_kernel &k, const kernel_facts &facts, int device)
{
    uint64_t threads = static_cast<uint64_t>(k.block.x) * k.block.y * k.block.z;
    size_t allowed = shared_allowed(k.address, facts, device);

    if (threads == 0 || threads > BLOCK_THREADS_MAX || k.block.z > 64 || k.grid.x == 0 ||
        k.grid.y == 0 || k.grid.z == 0 || k.grid.x > 2147483647u || k.grid.y > 65535 ||
        k.grid.z > 65535) {
        return misuse(cudaErrorInvalidConfiguration,
                      "%s: a grid of (%u, %u, %u) blocks of (%u, %u, %u) threads",
                      facts.name.c_str(), k.grid.x, k.grid.y, k.grid.z, k.block.x, k.block.y,
                      k.block.z);
    }
    if (k.shared_bytes > allowed) {
        return misuse(cudaErrorInvalidValue,
                      "%s: %zu bytes of shared memory beside %zu static ones; %zu are allowed",
                      facts.name.c_str(), k.shared_bytes, facts.static_bytes, allowed);
    }
    return cudaSuccess;
}

/* Appended to the file VIRTUAL_DEVICE_LAUNCHES at the end: a line for each kernel, with the most
 * threads and bytes of shared memory that it was launched with. ptxas -v says what it may have. */
static struct launches {
    std::map<std::string, std::pair<unsigned, size_t>> most;

    void add(const std::string &symbol, unsigned threads, size_t bytes)
    {
        static const bool is_wanted = getenv("VIRTUAL_DEVICE_LAUNCHES") != NULL;
        if (!is_wanted) return;
        auto &of_kernel = most[symbol];
        if (of_kernel.first < threads) of_kernel.first = threads;
        if (of_kernel.second < bytes) of_kernel.second = bytes;
    }
    ~launches()
    {
        const char *path = getenv("VIRTUAL_DEVICE_LAUNCHES");
        FILE *file = path != NULL ? fopen(path, "a") : NULL;
        if (file == NULL) return;
        for (const auto &of_kernel : most) {
            fprintf(file, "%s %u %zu\n", of_kernel.first.c_str(), of_kernel.second.first,
                    of_kernel.second.second);
        }
        fclose(file);
    }
} launches;

cudaError_t virtual_launch(virtual_kernel kernel, cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    struct virtual_state &s = state();
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (s.options.capability < 80) return fail(cudaErrorNoKernelImageForDevice);
    struct CUstream_st *stream = stream_of(handle);
    const kernel_facts &facts = kernel_facts_of(kernel.address);
    if (stream->device != current_device()) {
        return misuse(cudaErrorInvalidResourceHandle,
                      "%s: launched on a stream of device %d, with device %d current",
                      facts.name.c_str(), stream->device, current_device());
    }
    error = launch_check(kernel, facts, stream->device);
    if (error != cudaSuccess) return error;
    s.kernels++;
    launches.add(facts.symbol, kernel.block.x * kernel.block.y * kernel.block.z,
                 kernel.shared_bytes + facts.static_bytes);
    uint64_t seed = random_below(UINT64_MAX);
    int device = stream->device;
    auto shared_kernel = std::make_shared<virtual_kernel>(std::move(kernel));
    return fail(queue(lock, stream,
                      {{},
                       [shared_kernel, seed, device, &facts] {
                           for (const virtual_pointer &p : shared_kernel->pointers) {
                               memory_check_pointer(p.at, device, p.is_certain, facts.name.c_str(),
                                                    p.argument);
                           }
                           block_run_grid(*shared_kernel, seed);
                       },
                       false}));
}
