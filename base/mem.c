/*
 * The heap. The two counters are the project's only mutable globals: a process has one heap, and
 * counting it anywhere else would miss blocks.
 */
#include "base/mem.h"

#include "base/check.h"

#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LARGE_BYTES ((size_t)256 << 20) /* from here on it is worth asking what there is */
#define PAGE_BYTES  ((size_t)2 << 20)   /* of the large pages; for blocks of several */

static _Atomic uint64_t blocks_alive;
static _Atomic uint64_t allocations_until_failure = UINT64_MAX;

void mem_start(void)
{
    (void)mallopt(M_MMAP_THRESHOLD, 4 << 20);
    (void)mallopt(M_TRIM_THRESHOLD, 16 << 20);
}

static bool must_fail(void)
{
    uint64_t left = atomic_load_explicit(&allocations_until_failure, memory_order_relaxed);

    if (left == UINT64_MAX) return false;
    return atomic_fetch_sub_explicit(&allocations_until_failure, 1, memory_order_relaxed) == 0;
}

static void *counted(void *block)
{
    if (block != NULL) atomic_fetch_add_explicit(&blocks_alive, 1, memory_order_relaxed);
    return block;
}

void *mem_alloc(size_t bytes)
{
    if (must_fail()) return NULL;
    return counted(calloc(1, bytes == 0 ? 1 : bytes));
}

void *mem_raw(size_t bytes)
{
    if (must_fail()) return NULL;
    return counted(malloc(bytes == 0 ? 1 : bytes));
}

void *mem_array(size_t count, size_t bytes)
{
    size_t total;

    if (__builtin_mul_overflow(count, bytes, &total)) return NULL;
    return mem_alloc(total);
}

/* Contents of a small file of the kernel's; "" if there is none. */
static void read_small(const char *path, char *text, size_t cap)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? 0 : read(fd, text, cap - 1);

    text[got > 0 ? got : 0] = '\0';
    if (fd >= 0) close(fd);
}

/* Bytes of a line such as "SwapFree:   17 kB"; 0 without it. */
static uint64_t kilobytes_after(const char *text, const char *name)
{
    const char *line = strstr(text, name);

    return line == NULL ? 0 : strtoull(line + strlen(name), NULL, 10) * 1024;
}

uint64_t mem_available(void)
{
    char text[4096];
    uint64_t there, limit;

    read_small("/proc/meminfo", text, sizeof(text));
    there = kilobytes_after(text, "MemAvailable:") + kilobytes_after(text, "SwapFree:");
    if (there == 0) there = UINT64_MAX;
    read_small("/sys/fs/cgroup/memory.max", text, sizeof(text)); /* of a container */
    limit = strtoull(text, NULL, 10);                            /* "max": 0 */
    return limit > 0 && limit < there ? limit : there;
}

/* Planes are read from end to end, again and again: with small pages the processor spends a good
 * part of that on finding them. What the system makes of the advice is its own affair. */
static void *aligned(size_t bytes)
{
    bool is_plane = bytes >= 2 * PAGE_BYTES;
    void *block;

    if (posix_memalign(&block, is_plane ? PAGE_BYTES : 64, bytes) != 0) return NULL;
#ifdef MADV_HUGEPAGE
    if (is_plane) (void)madvise(block, bytes / PAGE_BYTES * PAGE_BYTES, MADV_HUGEPAGE);
#endif
    return block;
}

void *mem_aligned(size_t bytes)
{
    size_t rounded;
    void *block;

    if (must_fail() || bytes > SIZE_MAX - 64) return NULL;
    if (bytes >= LARGE_BYTES && bytes > mem_available()) return NULL;
    rounded = (bytes + 63) / 64 * 64;
    if (rounded == 0) rounded = 64;
    block = aligned(rounded);
    if (block != NULL) memset(block, 0, rounded);
    return counted(block);
}

void *mem_resize(void *block, size_t bytes)
{
    if (block == NULL) return mem_alloc(bytes);
    if (must_fail()) return NULL;
    return realloc(block, bytes == 0 ? 1 : bytes);
}

char *mem_string(const char *text)
{
    size_t bytes = strlen(text) + 1;
    char *copy = mem_alloc(bytes);

    if (copy != NULL) memcpy(copy, text, bytes);
    return copy;
}

void mem_free(void *block)
{
    if (block == NULL) return;
    CHECK(atomic_load_explicit(&blocks_alive, memory_order_relaxed) > 0);
    atomic_fetch_sub_explicit(&blocks_alive, 1, memory_order_relaxed);
    free(block);
}

uint64_t mem_blocks(void)
{
    return atomic_load_explicit(&blocks_alive, memory_order_relaxed);
}

void mem_fail_after(uint64_t after)
{
    atomic_store_explicit(&allocations_until_failure, after, memory_order_relaxed);
}

void mem_wipe(void *bytes, size_t count)
{
    explicit_bzero(bytes, count);
}

void mem_lock(const void *bytes, size_t count)
{
    int error = errno;

    (void)mlock(bytes, count);
    errno = error;
}
