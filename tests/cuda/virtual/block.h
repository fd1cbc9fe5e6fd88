/*
 * block: runs the threads of a kernel, block after block. What runs it is runtime's: one at a time,
 * with the device's memory open.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_BLOCK_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_BLOCK_H

#include "tests/cuda/virtual/device.h"

#include <string>

enum {
    BLOCK_THREADS_MAX = 1024,
    BLOCK_SHARED_BYTES = 48 * 1024,      /* without being asked */
    BLOCK_SHARED_BYTES_MAX = 227 * 1024, /* of compute capability 9.0; static ones included */
};

/* All of it, now. `seed`: of the order of blocks and threads. */
void block_run_grid(const virtual_kernel &kernel, uint64_t seed);
/* "attention_forward<float>, block (0, 1, 0), thread (7, 0, 0)"; "" outside a kernel. */
std::string block_where(void);
/* Is it shared memory of the running kernel, as far as that is known? */
bool block_is_shared(const void *address, size_t bytes);

/* kernels.cpp: what the executable's symbols say of a kernel. */
struct kernel_region {
    unsigned char *at;
    size_t bytes;
};
struct kernel_facts {
    std::string symbol, name;           /* mangled, and for people */
    std::vector<kernel_region> statics; /* its static shared memory, but not its callees' */
    size_t static_bytes;
};
const kernel_facts &kernel_facts_of(const void *address);

#endif
