/* Devices, errors and options of the stand-in for libcudart: see runtime.h. */
#include "tests/cuda/virtual/block.h"
#include "tests/cuda/virtual/state.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MULTIPROCESSORS = 132, MEMORY_DEFAULT_GIB = 4 };

struct virtual_state &state(void)
{
    static struct virtual_state *the = new virtual_state(); /* outlives static destructors */

    return *the;
}

int &current_device(void)
{
    static thread_local int device;

    return device;
}

bool &in_work(void)
{
    static thread_local bool is_inside;

    return is_inside;
}

static cudaError_t &last_error(void)
{
    static thread_local cudaError_t error;

    return error;
}

/* --- options -----------------------------------------------------------------------------------*/

static uint64_t environment(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);

    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

struct virtual_options virtual_options_default(void)
{
    struct virtual_options o = {};
    const char *pace = getenv("VIRTUAL_DEVICE_PACE");

    o.devices = static_cast<int>(environment("VIRTUAL_DEVICE_COUNT", 1));
    o.memory_bytes =
        environment("VIRTUAL_DEVICE_MEMORY", static_cast<uint64_t>(MEMORY_DEFAULT_GIB) << 30);
    o.lost_after = environment("VIRTUAL_DEVICE_LOST_AFTER", 0);
    o.has_no_driver = environment("VIRTUAL_DEVICE_NO_DRIVER", 0) != 0;
    o.capability = static_cast<int>(environment("VIRTUAL_DEVICE_CAPABILITY", 90));
    o.seed = environment("VIRTUAL_DEVICE_SEED", 1);
    o.pace = pace == NULL                 ? VIRTUAL_MIXED
             : strcmp(pace, "lazy") == 0  ? VIRTUAL_LAZY
             : strcmp(pace, "eager") == 0 ? VIRTUAL_EAGER
                                          : VIRTUAL_MIXED;
    if (environment("CUDA_LAUNCH_BLOCKING", 0) != 0) o.pace = VIRTUAL_EAGER;
    if (o.devices > DEVICES_MAX) virtual_fatal("at most %d devices", DEVICES_MAX);
    return o;
}

static void configure(const struct virtual_options *options)
{
    struct virtual_state &s = state();

    s.options = *options;
    s.is_configured = true;
    s.is_lost = false;
    s.calls_at_configure = s.calls;
    s.random = options->seed;
    s.lazy_left = 0;
    s.is_eager = options->pace == VIRTUAL_EAGER;
}

void virtual_configure(const struct virtual_options *options)
{
    virtual_lock lock(state().mutex);

    if (state().queued > 0) virtual_fatal("virtual_configure() while work is queued");
    configure(options);
    last_error() = cudaSuccess;
    current_device() = 0;
}

uint64_t random_below(uint64_t bound) /* splitmix64 */
{
    uint64_t z = state().random += 0x9E3779B97F4A7C15u;

    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return (z ^ z >> 31) % bound;
}

/* --- errors ------------------------------------------------------------------------------------*/

void virtual_fatal(const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fflush(stdout);
    fputs("virtual device: ", stderr);
    vfprintf(stderr, format, list);
    fputs("\n", stderr);
    fflush(stderr);
    va_end(list);
    abort();
}

cudaError_t fail(cudaError_t error)
{
    if (error != cudaSuccess) last_error() = error;
    return error;
}

cudaError_t misuse(cudaError_t error, const char *format, ...)
{
    va_list list;

    va_start(list, format);
    fprintf(stderr, "virtual device: %s: ", cudaGetErrorName(error));
    vfprintf(stderr, format, list);
    fputs("\n", stderr);
    va_end(list);
    return fail(error);
}

cudaError_t enter(virtual_lock &lock)
{
    struct virtual_state &s = state();

    (void)lock;
    if (!s.is_configured) {
        struct virtual_options options = virtual_options_default();
        configure(&options);
    }
    s.calls++;
    if (s.options.has_no_driver) return fail(cudaErrorInsufficientDriver);
    if (s.options.devices == 0) return fail(cudaErrorNoDevice);
    if (s.options.lost_after > 0 && s.calls - s.calls_at_configure > s.options.lost_after) {
        if (!s.is_lost) drop_all();
        s.is_lost = true;
        s.changed.notify_all();
    }
    return s.is_lost ? fail(cudaErrorECCUncorrectable) : cudaSuccess;
}

cudaError_t virtual_call(void)
{
    virtual_lock lock(state().mutex);

    return enter(lock);
}

bool virtual_is_lost(void)
{
    virtual_lock lock(state().mutex, std::defer_lock);

    if (!in_work()) lock.lock();
    return state().is_lost;
}

uint64_t virtual_calls(void)
{
    virtual_lock lock(state().mutex);

    return state().calls;
}

uint64_t virtual_kernels(void)
{
    virtual_lock lock(state().mutex);

    return state().kernels;
}

struct error_text {
    cudaError_t error;
    const char *name, *text;
};
#define ERROR_TEXT(error, text)                                                                    \
    {                                                                                              \
        error, #error, text                                                                        \
    }
static const error_text error_texts[] = {
    ERROR_TEXT(cudaSuccess, "no error"),
    ERROR_TEXT(cudaErrorInvalidValue, "invalid argument"),
    ERROR_TEXT(cudaErrorMemoryAllocation, "out of memory"),
    ERROR_TEXT(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR_TEXT(cudaErrorInsufficientDriver,
               "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR_TEXT(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR_TEXT(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR_TEXT(cudaErrorNoKernelImageForDevice,
               "no kernel image is available for execution on the device"),
    ERROR_TEXT(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered"),
    ERROR_TEXT(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR_TEXT(cudaErrorNotReady, "device not ready"),
    ERROR_TEXT(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR_TEXT(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ERROR_TEXT(cudaErrorNotSupported, "operation not supported"),
    ERROR_TEXT(cudaErrorStreamCaptureUnsupported,
               "operation not permitted when stream is capturing"),
    ERROR_TEXT(cudaErrorStreamCaptureInvalidated,
               "operation failed due to a previous error during capture"),
    ERROR_TEXT(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    ERROR_TEXT(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR_TEXT(cudaErrorStreamCaptureImplicit,
               "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR_TEXT(cudaErrorStreamCaptureIsolation,
               "dependency created on uncaptured work in another stream"),
    ERROR_TEXT(cudaErrorStreamCaptureWrongThread,
               "attempt to terminate a thread-local capture sequence from another thread"),
    ERROR_TEXT(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate "
                                            "capture sequences"),
    ERROR_TEXT(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a "
                                       "capturing stream"),
};

const char *cudaGetErrorName(cudaError_t error)
{
    for (const error_text &e : error_texts) {
        if (e.error == error) return e.name;
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error)
{
    for (const error_text &e : error_texts) {
        if (e.error == error) return e.text;
    }
    return "unrecognized error code";
}

cudaError_t cudaGetLastError(void)
{
    cudaError_t error = last_error();

    last_error() = virtual_is_lost() ? cudaErrorECCUncorrectable : cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void)
{
    return last_error();
}

/* --- devices -----------------------------------------------------------------------------------*/

cudaError_t cudaDriverGetVersion(int *version)
{
    virtual_lock lock(state().mutex);

    (void)enter(lock);
    if (version == NULL) return fail(cudaErrorInvalidValue);
    *version = state().options.has_no_driver ? 0 : CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    if (version == NULL) return fail(cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (count == NULL) return fail(cudaErrorInvalidValue);
    *count = 0;
    if (error != cudaSuccess) return error;
    *count = state().options.devices;
    return cudaSuccess;
}

static bool is_device(int device)
{
    return device >= 0 && device < state().options.devices;
}

cudaError_t cudaSetDevice(int device)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    current_device() = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (device == NULL) return fail(cudaErrorInvalidValue);
    *device = current_device();
    return cudaSuccess;
}

cudaError_t cudaInitDevice(int device, unsigned int device_flags, unsigned int flags)
{
    (void)device_flags;
    (void)flags;
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    return is_device(device) ? cudaSuccess : fail(cudaErrorInvalidDevice);
}

cudaError_t cudaSetDeviceFlags(unsigned int flags)
{
    (void)flags;
    return virtual_call();
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (prop == NULL) return fail(cudaErrorInvalidValue);
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    *prop = {};
    snprintf(prop->name, sizeof(prop->name), "virtual device, after the H100");
    prop->totalGlobalMem = state().options.memory_bytes;
    prop->sharedMemPerBlock = BLOCK_SHARED_BYTES;
    prop->sharedMemPerBlockOptin = BLOCK_SHARED_BYTES_MAX;
    prop->sharedMemPerMultiprocessor = BLOCK_SHARED_BYTES_MAX + 1024;
    prop->reservedSharedMemPerBlock = 1024;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->maxThreadsPerBlock = BLOCK_THREADS_MAX;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxBlocksPerMultiProcessor = 32;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = BLOCK_THREADS_MAX;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->totalConstMem = 65536;
    prop->major = state().options.capability / 10;
    prop->minor = state().options.capability % 10;
    prop->multiProcessorCount = MULTIPROCESSORS;
    prop->l2CacheSize = 50 << 20;
    prop->memoryBusWidth = 5120;
    prop->asyncEngineCount = 3;
    prop->unifiedAddressing = prop->canMapHostMemory = prop->concurrentKernels = 1;
    prop->ECCEnabled = prop->memoryPoolsSupported = prop->cooperativeLaunch = 1;
    prop->streamPrioritiesSupported = 1;
    prop->pciBusID = device + 1;
    return cudaSuccess;
}

/* What a launch may ask for. */
static int limit_of(enum cudaDeviceAttr attribute)
{
    switch (static_cast<int>(attribute)) {
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
    case cudaDevAttrMaxBlockDimY:
        return BLOCK_THREADS_MAX;
    case cudaDevAttrMaxBlockDimZ:
        return 64;
    case cudaDevAttrMaxGridDimX:
        return 2147483647;
    case cudaDevAttrMaxGridDimY:
    case cudaDevAttrMaxGridDimZ:
        return 65535;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        return BLOCK_SHARED_BYTES;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        return BLOCK_SHARED_BYTES_MAX;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        return BLOCK_SHARED_BYTES_MAX + 1024;
    case cudaDevAttrReservedSharedMemoryPerBlock:
        return 1024;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
        return 65536;
    case cudaDevAttrWarpSize:
        return 32;
    default:
        return -1;
    }
}

static int attribute_of(enum cudaDeviceAttr attribute, int device)
{
    switch (static_cast<int>(attribute)) {
    case cudaDevAttrClockRate:
        return 1980000;
    case cudaDevAttrMultiProcessorCount:
        return MULTIPROCESSORS;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        return 2048;
    case cudaDevAttrMaxBlocksPerMultiprocessor:
        return 32;
    case cudaDevAttrMemoryClockRate:
        return 2619000;
    case cudaDevAttrGlobalMemoryBusWidth:
        return 5120;
    case cudaDevAttrL2CacheSize:
        return 50 << 20;
    case cudaDevAttrComputeCapabilityMajor:
        return state().options.capability / 10;
    case cudaDevAttrComputeCapabilityMinor:
        return state().options.capability % 10;
    case cudaDevAttrPciBusId:
        return device + 1;
    case cudaDevAttrAsyncEngineCount:
        return 3;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrEccEnabled:
        return 1;
    case cudaDevAttrIntegrated:
    case cudaDevAttrKernelExecTimeout:
    case cudaDevAttrComputeMode:
    case cudaDevAttrPciDeviceId:
    case cudaDevAttrPciDomainId:
        return 0;
    default:
        return limit_of(attribute);
    }
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    int found;

    if (error != cudaSuccess) return error;
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    found = attribute_of(attribute, device);
    if (value == NULL || found < 0) {
        return misuse(cudaErrorInvalidValue, "attribute %d is not known here",
                      static_cast<int>(attribute));
    }
    *value = found;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int bytes, int device)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (!is_device(device)) return fail(cudaErrorInvalidDevice);
    if (text == NULL || bytes < 13) return fail(cudaErrorInvalidValue);
    snprintf(text, static_cast<size_t>(bytes), "0000:%02X:00.0", static_cast<unsigned>(device) + 1);
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (can == NULL) return fail(cudaErrorInvalidValue);
    if (!is_device(device) || !is_device(peer)) return fail(cudaErrorInvalidDevice);
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    int me = current_device();

    if (error != cudaSuccess) return error;
    if (flags != 0) return fail(cudaErrorInvalidValue);
    if (!is_device(peer) || peer == me) return fail(cudaErrorInvalidDevice);
    if (state().has_peer[me][peer]) return fail(cudaErrorPeerAccessAlreadyEnabled);
    state().has_peer[me][peer] = true;
    return cudaSuccess;
}

cudaError_t cudaDeviceDisablePeerAccess(int peer)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    int me = current_device();

    if (error != cudaSuccess) return error;
    if (!is_device(peer)) return fail(cudaErrorInvalidDevice);
    if (!state().has_peer[me][peer]) return fail(cudaErrorPeerAccessNotEnabled);
    state().has_peer[me][peer] = false;
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error == cudaSuccess) error = capture_forbids(NULL);
    if (error == cudaSuccess) error = run_all(lock, current_device());
    return fail(error);
}

cudaError_t cudaDeviceReset(void)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error == cudaSuccess) error = run_all(lock, current_device());
    memory_release_all(current_device());
    return fail(error);
}
