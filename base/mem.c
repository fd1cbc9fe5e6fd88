/*
 * The heap. The two counters are the project's only mutable globals: a process has one heap, and
 * counting it anywhere else would miss blocks.
 */
#include "base/mem.h"

#include "base/check.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static _Atomic uint64_t blocks_alive;
static _Atomic uint64_t allocations_until_failure = UINT64_MAX;

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

void *mem_aligned(size_t bytes)
{
    size_t rounded;
    void *block;

    if (must_fail() || bytes > SIZE_MAX - 64) return NULL;
    rounded = (bytes + 63) / 64 * 64;
    if (rounded == 0) rounded = 64;
    block = aligned_alloc(64, rounded);
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
