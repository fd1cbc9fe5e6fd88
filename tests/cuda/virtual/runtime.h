/*
 * runtime: the stand-in for libcudart, as the stand-ins for other libraries and the tests use it;
 * the API itself is that of cuda_runtime_api.h.
 *
 * Streams are lazy: work waits until the host synchronises, then streams are run in a random
 * interleaving that keeps the order within each and what events ask for. Work is only run with the
 * device's memory open to the processor; otherwise touching it is a crash.
 */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_RUNTIME_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_RUNTIME_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
#include <functional>

/* --- for other libraries' stand-ins ------------------------------------------------------------*/

/** Queue `work` on the stream, or record it while the stream is captured. It runs later, perhaps
 *  several times (graphs), perhaps on another host thread, and may then read and write memory of
 *  the device; it must not call the API. What it captures, it captures by value. */
cudaError_t virtual_queue(cudaStream_t stream, std::function<void()> work);

/** The same, and it runs only once `is_ready` says yes, which is asked again and again, and which
 *  may depend on what other host threads have yet to queue. */
cudaError_t virtual_queue_when(cudaStream_t stream, std::function<bool()> is_ready,
                               std::function<void()> work);

extern "C" {
#endif

/** At the entry of every call of a library: counts it, and fails if the device is lost by now. */
cudaError_t virtual_call(void);
bool virtual_is_lost(void);
/** The device that the stream belongs to; of NULL, the calling thread's. */
int virtual_stream_device(cudaStream_t stream);
bool virtual_is_capturing(cudaStream_t stream);
/** Is the whole range memory of `device` (or, -1, of any)? Libraries take no other pointers. */
bool virtual_is_device_memory(const void *block, size_t bytes, int device);
/** Prints and aborts: for what on a GPU would be undefined. */
void virtual_fatal(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* --- for tests ---------------------------------------------------------------------------------*/

enum virtual_pace {
    VIRTUAL_MIXED, /* lags behind the host most of the time, and sometimes does not */
    VIRTUAL_LAZY,  /* nothing runs before it must */
    VIRTUAL_EAGER, /* everything runs at once */
};

struct virtual_options {
    int devices;              /* VIRTUAL_DEVICE_COUNT */
    size_t memory_bytes;      /* VIRTUAL_DEVICE_MEMORY: of each device */
    uint64_t lost_after;      /* VIRTUAL_DEVICE_LOST_AFTER: so many more calls succeed; 0: all do */
    bool has_no_driver;       /* VIRTUAL_DEVICE_NO_DRIVER */
    int capability;           /* VIRTUAL_DEVICE_CAPABILITY: below 80 there is no code for it */
    uint64_t seed;            /* VIRTUAL_DEVICE_SEED: of everything random */
    enum virtual_pace pace;   /* VIRTUAL_DEVICE_PACE: mixed, lazy, eager */
    uint64_t fail_allocation; /* the n-th cudaMalloc from now on fails; 0: none */
};

/** What the environment says. */
struct virtual_options virtual_options_default(void);
/** From now on; a lost device is found again. Nothing may be queued. */
void virtual_configure(const struct virtual_options *options);
/** Bytes of memory of the device in use, over all devices: 0 once everything was freed. */
size_t virtual_memory_used(void);
/** API calls, kernels and blocks of threads so far. */
uint64_t virtual_calls(void);
uint64_t virtual_kernels(void);

/** Called by a thread within ncclAllReduce(); NULL: nothing is. */
extern void (*virtual_nccl_inside)(void);

#ifdef __cplusplus
}
#endif

#endif
