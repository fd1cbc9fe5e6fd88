/* itself: what the tests of the virtual device itself share. */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_ITSELF_ITSELF_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_ITSELF_ITSELF_H

#include "tests/cuda/virtual/device.h"
#include "tests/cuda/virtual/runtime.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

extern "C" { /* cmocka.h does not say it */
#include "tests/check.h"
}

#define ok(call) assert_int_equal((call), cudaSuccess)

/* Each is a list of tests for main(). */
struct itself_tests {
    const struct CMUnitTest *tests;
    size_t count;
};
struct itself_tests itself_blocks(void);
struct itself_tests itself_warps(void);
struct itself_tests itself_streams(void);
struct itself_tests itself_failures(void);

/** One device, lazy, with this seed. */
void itself_begin(uint64_t seed);
void itself_begin_with(struct virtual_options options);
/** Nothing was left behind. */
void itself_end(void);
/** Running it in a child ends with a message that holds `text`, and with abort(). */
void itself_aborts(void (*run)(void), const char *text);
/** It ends by a signal, whatever it prints. */
void itself_crashes(void (*run)(void));

static inline void *itself_take(size_t bytes)
{
    void *block = NULL;

    ok(cudaMalloc(&block, bytes));
    return block;
}

/** What is there, once all that was queued is done. */
static inline void itself_get(void *to, const void *from, size_t bytes)
{
    ok(cudaDeviceSynchronize());
    ok(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}

#endif
