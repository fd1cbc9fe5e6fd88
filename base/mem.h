/*
 * mem: the only door to the heap. It counts what is in use, and tests can make the n-th allocation
 * fail. Thread safe.
 */
#ifndef GRAPEVINE_BASE_MEM_H
#define GRAPEVINE_BASE_MEM_H

#include <stddef.h>
#include <stdint.h>

/** Once per process, before anything else: blocks the size of network frames are kept for the next
 *  frame instead of being given back to the system, which hands out fresh pages slowly. Up to 16
 * MiB are held back; planes of models are not. Without this call everything works as well. */
void mem_start(void);
/** `bytes` zeroed bytes, or NULL when out of memory. A size of 0 gives a valid pointer. */
void *mem_alloc(size_t bytes) __attribute__((malloc));
/** Like mem_alloc() but not zeroed: for large buffers that are written whole at once. */
void *mem_raw(size_t bytes) __attribute__((malloc));
/** `count * bytes` zeroed bytes; NULL also when the product overflows. */
void *mem_array(size_t count, size_t bytes) __attribute__((malloc));
/** Zeroed and aligned to 64 bytes, for vectors; release with mem_free(). NULL also where the
 *  machine has less than that left, see mem_available(). */
void *mem_aligned(size_t bytes) __attribute__((malloc));
/** Grow or shrink; new bytes are not zeroed. On NULL the old block is untouched. Not for aligned
 *  blocks. */
void *mem_resize(void *block, size_t bytes);
char *mem_string(const char *text) __attribute__((malloc));
/** NULL is fine. */
void mem_free(void *block);

/** Bytes that can be had now, swap included: an estimate, for asking before a lot is taken, because
 *  the kernel hands out more than it has. UINT64_MAX: not known. */
uint64_t mem_available(void);

/** Zero what was secret; unlike memset() it is not left out by the compiler where nobody reads it
 *  again. */
void mem_wipe(void *bytes, size_t count);
/** Keep what is secret out of swap, as far as this process may (RLIMIT_MEMLOCK): no error where it
 *  may not. The pages stay locked until they are unmapped. */
void mem_lock(const void *bytes, size_t count);

/** Blocks alive now, for leak tests. */
uint64_t mem_blocks(void);
/** Tests: let `after` further allocations succeed and fail the next one, once. UINT64_MAX: never.
 */
void mem_fail_after(uint64_t after);

#endif
