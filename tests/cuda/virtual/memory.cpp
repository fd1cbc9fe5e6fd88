/*
 * Memory of the devices, and copies. Fresh memory is poisoned (0xFF: NaN), freed memory too, and
 * between blocks lie red zones that are checked whenever something has run. It is one reserved
 * range of addresses that is closed to the processor but while work runs. Under AddressSanitizer
 * blocks come from malloc() instead, which then sees every access out of bounds.
 */
#include "tests/cuda/virtual/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
enum { HAS_SANITIZER = 1 };
#else
enum { HAS_SANITIZER = 0 };
#endif
enum { ALIGNMENT = 256, RED_ZONE = 256, CHARGED = 512, PAGE = 4096, POISON = 0xFF };
/* Opened and closed in units of huge pages, which makes that a matter of microseconds. */
static const size_t UNIT = static_cast<size_t>(2) << 20;
static const size_t RANGE_BYTES = static_cast<size_t>(256) << 30;
/* Poisoned are the begin and the end of what is larger; touching all of a workspace takes long. */
static const size_t POISONED_MAX = 2 * UNIT, POISONED_END = static_cast<size_t>(1) << 16;

static struct {
    unsigned char *range;                            /* NULL: not reserved yet */
    size_t cursor, used_max;                         /* offsets: where to look next; ever used */
    std::map<unsigned char *, virtual_block> blocks; /* of devices, by first byte */
    std::map<const unsigned char *, size_t> pinned;  /* page-locked, of the host */
    std::set<const unsigned char *> registered;      /* of those: not ours to free */
    size_t used[DEVICES_MAX];
    int open; /* how often */
} m;

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* --- open and closed ---------------------------------------------------------------------------*/

static void memory_protect(int protection)
{
    if (m.range == NULL || m.used_max == 0) return;
    if (mprotect(m.range, round_up(m.used_max, UNIT), protection) != 0) {
        virtual_fatal("mprotect failed");
    }
}

void memory_open(void)
{
    if (m.open++ == 0 && !HAS_SANITIZER) memory_protect(PROT_READ | PROT_WRITE);
}

void memory_close(void)
{
    if (--m.open == 0 && !HAS_SANITIZER) memory_protect(PROT_NONE);
}

/* --- blocks ------------------------------------------------------------------------------------*/

static void poison(unsigned char *at, size_t bytes)
{
    if (bytes <= POISONED_MAX + POISONED_END) {
        memset(at, POISON, bytes);
    } else {
        memset(at, POISON, POISONED_MAX);
        memset(at + bytes - POISONED_END, POISON, POISONED_END);
    }
}

static void range_reserve(void)
{
    void *range = mmap(NULL, RANGE_BYTES + UNIT, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (range == MAP_FAILED) virtual_fatal("no range of addresses for the device's memory");
    m.range = static_cast<unsigned char *>(range);
    m.range += UNIT - reinterpret_cast<uintptr_t>(range) % UNIT;
    madvise(m.range, RANGE_BYTES, MADV_DONTDUMP);
    madvise(m.range, RANGE_BYTES, MADV_HUGEPAGE);
}

/* First fit behind the last one, so that freed addresses rest for a while; but before the range in
 * use becomes much larger than what is in it, from the start again. */
static unsigned char *range_find(size_t bytes)
{
    size_t wanted = round_up(bytes, ALIGNMENT) + 2 * RED_ZONE, at = m.cursor;
    size_t used = 0, limit;

    if (m.range == NULL) range_reserve();
    for (size_t of_device : m.used) {
        used += of_device;
    }
    limit = 4 * used + 16 * UNIT;
    for (int pass = 0; pass < 2; pass++) {
        auto next = m.blocks.upper_bound(m.range + at);
        for (;; next++) {
            size_t end = next == m.blocks.end()
                             ? (pass == 0 && limit < RANGE_BYTES ? limit : RANGE_BYTES)
                             : static_cast<size_t>(next->first - m.range) - RED_ZONE;
            if (at + wanted <= end) {
                m.cursor = at + wanted;
                if (m.cursor > m.used_max) m.used_max = m.cursor;
                return m.range + at + RED_ZONE;
            }
            if (next == m.blocks.end()) break;
            at = static_cast<size_t>(next->first - m.range) +
                 round_up(next->second.bytes, ALIGNMENT) + RED_ZONE;
        }
        at = 0;
    }
    return NULL;
}

/* Open or closed, what one block lies in. */
static void block_protect(unsigned char *at, size_t bytes, int protection)
{
    size_t first = static_cast<size_t>(at - RED_ZONE - m.range) / UNIT * UNIT;
    size_t end = static_cast<size_t>(at - m.range) + round_up(bytes, ALIGNMENT) + RED_ZONE;

    if (m.open > 0) return;
    if (mprotect(m.range + first, round_up(end - first, UNIT), protection) != 0) {
        virtual_fatal("mprotect failed");
    }
}

static unsigned char *block_take(size_t bytes)
{
    void *block = NULL;

    if (HAS_SANITIZER) {
        if (posix_memalign(&block, ALIGNMENT, bytes) != 0) return NULL;
        poison(static_cast<unsigned char *>(block), bytes);
        return static_cast<unsigned char *>(block);
    }
    unsigned char *at = range_find(bytes);
    if (at == NULL) return NULL;
    block_protect(at, bytes, PROT_READ | PROT_WRITE);
    poison(at - RED_ZONE, round_up(bytes, ALIGNMENT) + 2 * RED_ZONE);
    block_protect(at, bytes, PROT_NONE);
    return at;
}

static void zone_check(const unsigned char *zone, size_t bytes, const char *side, size_t block)
{
    static const struct untouched {
        unsigned char bytes[RED_ZONE + ALIGNMENT];
        untouched()
        {
            memset(bytes, POISON, sizeof(bytes));
        }
    } untouched;

    if (memcmp(zone, untouched.bytes, bytes) == 0) return;
    for (size_t i = 0; i < bytes; i++) {
        if (zone[i] == POISON) continue;
        virtual_fatal("written %s a block of %zu bytes; byte %zu of that margin", side, block, i);
    }
}

static void block_check(const unsigned char *at, size_t bytes)
{
    zone_check(at - RED_ZONE, RED_ZONE, "before", bytes);
    zone_check(at + bytes, round_up(bytes, ALIGNMENT) - bytes + RED_ZONE, "behind", bytes);
}

void memory_check(void)
{
    if (HAS_SANITIZER) return;
    memory_open();
    for (const auto &block : m.blocks) {
        block_check(block.first, block.second.bytes);
    }
    memory_close();
}

static void block_release(std::map<unsigned char *, virtual_block>::iterator found)
{
    unsigned char *at = found->first;
    size_t bytes = found->second.bytes;

    m.used[found->second.device] -= round_up(bytes, CHARGED);
    m.blocks.erase(found);
    if (HAS_SANITIZER) {
        free(at);
        return;
    }
    block_protect(at, bytes, PROT_READ | PROT_WRITE);
    block_check(at, bytes);
    poison(at, bytes);
    if (bytes > 32 * UNIT) { /* give the rest back; it reads as zeros */
        size_t from = round_up(static_cast<size_t>(at - m.range) + POISONED_MAX, UNIT);
        size_t to = static_cast<size_t>(at - m.range) + bytes;
        madvise(m.range + from, (to - from) / UNIT * UNIT, MADV_DONTNEED);
    }
    block_protect(at, bytes, PROT_NONE);
}

void memory_release_all(int device)
{
    for (auto block = m.blocks.begin(); block != m.blocks.end();) {
        auto found = block++;
        if (found->second.device == device) block_release(found);
    }
}

bool memory_find(const void *at, virtual_block *block, const unsigned char **begin)
{
    auto next = m.blocks.upper_bound(static_cast<unsigned char *>(const_cast<void *>(at)));

    if (next == m.blocks.begin()) return false;
    next--;
    if (static_cast<const unsigned char *>(at) > next->first + next->second.bytes) return false;
    *block = next->second;
    *begin = next->first;
    return true;
}

static bool is_memory_of(const void *at, size_t bytes, int device)
{
    virtual_block block;
    const unsigned char *begin;

    return memory_find(at, &block, &begin) &&
           static_cast<const unsigned char *>(at) + bytes <= begin + block.bytes &&
           (device < 0 || device == block.device);
}

bool virtual_is_device_memory(const void *at, size_t bytes, int device)
{
    virtual_lock lock(state().mutex, std::defer_lock);

    if (!in_work()) lock.lock();
    return is_memory_of(at, bytes, device);
}

bool memory_is_pinned(const void *at, size_t bytes)
{
    const unsigned char *from = static_cast<const unsigned char *>(at);
    auto next = m.pinned.upper_bound(from);

    if (next == m.pinned.begin()) return false;
    next--;
    return from + bytes <= next->first + next->second;
}

std::string memory_describe(const void *at)
{
    const unsigned char *byte = static_cast<const unsigned char *>(at);
    auto next = m.blocks.upper_bound(const_cast<unsigned char *>(byte));
    char text[120];

    if (m.range == NULL || byte < m.range || byte >= m.range + RANGE_BYTES) {
        return ", which is no memory of the device";
    }
    if (next == m.blocks.begin()) return ", before all blocks of the device";
    next--;
    snprintf(text, sizeof(text), ", %td bytes from the begin of a block of %zu bytes",
             byte - next->first, next->second.bytes);
    return text;
}

/* Is something there? Without touching it. Programs, heaps and stacks lie high; two small numbers
 * make a low address, where AddressSanitizer has its own memory. */
static bool is_mapped(const void *at)
{
    uintptr_t page = reinterpret_cast<uintptr_t>(at) / PAGE * PAGE;

    if (page >> 40 < 0x50 || page >> 47 != 0) return false;
    return msync(reinterpret_cast<void *>(page), PAGE, MS_ASYNC) == 0;
}

void memory_check_pointer(const void *at, int device, bool is_certain, const char *kernel,
                          unsigned argument)
{
    const unsigned char *byte = static_cast<const unsigned char *>(at), *begin;
    virtual_block block;

    if (at == NULL || memory_is_pinned(at, 0)) return;
    if (memory_find(at, &block, &begin)) {
        if (block.device == device || state().has_peer[device][block.device]) return;
        virtual_fatal("%s: argument %u points to memory of device %d; it runs on device %d", kernel,
                      argument, block.device, device);
    }
    if (m.range != NULL && byte >= m.range && byte < m.range + RANGE_BYTES) {
        virtual_fatal("%s: argument %u points to memory of the device that is not in use (freed?)",
                      kernel, argument);
    }
    if (is_certain || is_mapped(at)) {
        virtual_fatal("%s: argument %u, %p, points to memory of the host or to none", kernel,
                      argument, at);
    }
}

size_t virtual_memory_used(void)
{
    virtual_lock lock(state().mutex);
    size_t sum = 0;

    for (size_t used : m.used) {
        sum += used;
    }
    return sum;
}

/* --- allocation --------------------------------------------------------------------------------*/

static bool allocation_fails(void)
{
    uint64_t &left = state().options.fail_allocation;

    return left > 0 && --left == 0;
}

static cudaError_t take(void **block, size_t bytes)
{
    int device = current_device();
    size_t charged = round_up(bytes, CHARGED);

    if (block == NULL) return fail(cudaErrorInvalidValue);
    *block = NULL;
    if (bytes == 0) return cudaSuccess;
    if (allocation_fails() || charged < bytes ||
        charged > state().options.memory_bytes - m.used[device]) {
        return fail(cudaErrorMemoryAllocation);
    }
    unsigned char *at = block_take(bytes);
    if (at == NULL) return fail(cudaErrorMemoryAllocation);
    m.blocks[at] = {bytes, device};
    m.used[device] += charged;
    *block = at;
    return cudaSuccess;
}

cudaError_t cudaMalloc(void **block, size_t bytes)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error == cudaSuccess) error = capture_forbids(NULL);
    return error != cudaSuccess ? error : take(block, bytes);
}

/* A lost device's memory goes all the same. */
cudaError_t cudaFree(void *block)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error == cudaSuccess) error = capture_forbids(NULL);
    if (error != cudaSuccess && !state().is_lost) return error;
    if (block == NULL) return error;
    auto found = m.blocks.find(static_cast<unsigned char *>(block));
    if (found == m.blocks.end()) {
        return misuse(cudaErrorInvalidValue, "cudaFree(%p): no such block", block);
    }
    if (error == cudaSuccess) error = run_all(lock, found->second.device);
    block_release(m.blocks.find(static_cast<unsigned char *>(block)));
    return fail(error);
}

cudaError_t cudaMallocAsync(void **block, size_t bytes, cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (stream_of(handle)->capture != NULL) return fail(cudaErrorNotSupported);
    return take(block, bytes);
}

cudaError_t cudaFreeAsync(void *block, cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUstream_st *stream = stream_of(handle);
    if (stream->capture != NULL) return fail(cudaErrorNotSupported);
    return fail(queue(lock, stream,
                      {{},
                       [block] {
                           auto found = m.blocks.find(static_cast<unsigned char *>(block));
                           if (found == m.blocks.end())
                               virtual_fatal("cudaFreeAsync(%p): no such block", block);
                           block_release(found);
                       },
                       false}));
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    *total = state().options.memory_bytes;
    *free = *total - m.used[current_device()];
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **block, size_t bytes, unsigned int flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    void *taken = NULL;

    (void)flags;
    if (error == cudaSuccess) error = capture_forbids(NULL);
    if (error != cudaSuccess) return error;
    *block = NULL;
    if (bytes == 0) return cudaSuccess;
    if (allocation_fails() || posix_memalign(&taken, PAGE, bytes) != 0) {
        return fail(cudaErrorMemoryAllocation);
    }
    poison(static_cast<unsigned char *>(taken), bytes);
    m.pinned[static_cast<unsigned char *>(taken)] = bytes;
    *block = taken;
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **block, size_t bytes)
{
    return cudaHostAlloc(block, bytes, cudaHostAllocDefault);
}

static cudaError_t unpin(void *block, bool is_registered)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    const unsigned char *at = static_cast<unsigned char *>(block);

    if (error == cudaSuccess) error = capture_forbids(NULL);
    if (error != cudaSuccess && !state().is_lost) return error;
    if (block == NULL) return error;
    if (m.pinned.count(at) == 0 || (m.registered.count(at) > 0) != is_registered) {
        return misuse(cudaErrorInvalidValue, "%p is no page-locked block of that kind", block);
    }
    if (error == cudaSuccess) error = run_all(lock, -1);
    m.pinned.erase(at);
    m.registered.erase(at);
    if (!is_registered) free(block);
    return fail(error);
}

cudaError_t cudaFreeHost(void *block)
{
    return unpin(block, false);
}

cudaError_t cudaHostUnregister(void *block)
{
    return unpin(block, true);
}

cudaError_t cudaHostRegister(void *block, size_t bytes, unsigned int flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    (void)flags;
    if (error == cudaSuccess) error = capture_forbids(NULL);
    if (error != cudaSuccess) return error;
    if (block == NULL || bytes == 0 || memory_is_pinned(block, 1)) {
        return fail(cudaErrorInvalidValue);
    }
    m.pinned[static_cast<unsigned char *>(block)] = bytes;
    m.registered.insert(static_cast<unsigned char *>(block));
    return cudaSuccess;
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned int flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    (void)flags;
    if (error != cudaSuccess) return error;
    if (device == NULL || !memory_is_pinned(host, 1)) return fail(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *at)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    const unsigned char *begin;
    virtual_block block;

    if (error != cudaSuccess) return error;
    if (attributes == NULL) return fail(cudaErrorInvalidValue);
    *attributes = {};
    attributes->device = -1;
    attributes->type = cudaMemoryTypeUnregistered;
    if (memory_find(at, &block, &begin)) {
        attributes->type = cudaMemoryTypeDevice;
        attributes->device = block.device;
        attributes->devicePointer = const_cast<void *>(at);
    } else if (memory_is_pinned(at, 1)) {
        attributes->type = cudaMemoryTypeHost;
        attributes->device = current_device();
        attributes->devicePointer = attributes->hostPointer = const_cast<void *>(at);
    } else {
        attributes->hostPointer = const_cast<void *>(at);
    }
    return cudaSuccess;
}
