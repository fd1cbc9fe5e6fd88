/*
 * Copies and fills of the stand-in for libcudart. Memory of the host that is not page-locked is
 * read when the call is made, and written before it returns, as cudaMemcpyAsync() promises; memory
 * that is, when the copy's turn comes.
 */
#include "tests/cuda/virtual/state.h"

#include <string.h>

struct copy {
    unsigned char *to;
    const unsigned char *from;
    size_t to_pitch, from_pitch, width, height;
};

enum place { ON_DEVICE, PINNED, PAGEABLE };

static size_t extent(size_t pitch, size_t width, size_t height)
{
    return height == 0 || width == 0 ? 0 : (height - 1) * pitch + width;
}

/* False: the range leaves its block. */
static bool place_of(const void *at, size_t bytes, enum place *place)
{
    const unsigned char *begin;
    virtual_block block;

    if (memory_find(at, &block, &begin)) {
        *place = ON_DEVICE;
        return static_cast<const unsigned char *>(at) + bytes <= begin + block.bytes;
    }
    *place = memory_is_pinned(at, 1) ? PINNED : PAGEABLE;
    return *place == PAGEABLE || memory_is_pinned(at, bytes);
}

static bool kind_fits(enum cudaMemcpyKind kind, enum place to, enum place from)
{
    switch (kind) {
    case cudaMemcpyHostToHost:
        return to != ON_DEVICE && from != ON_DEVICE;
    case cudaMemcpyHostToDevice:
        return to == ON_DEVICE && from != ON_DEVICE;
    case cudaMemcpyDeviceToHost:
        return to != ON_DEVICE && from == ON_DEVICE;
    case cudaMemcpyDeviceToDevice:
        return to == ON_DEVICE && from == ON_DEVICE;
    default:
        return kind == cudaMemcpyDefault;
    }
}

static void copy_now(const struct copy &c)
{
    for (size_t row = 0; row < c.height; row++) {
        unsigned char *to = c.to + row * c.to_pitch;
        const unsigned char *from = c.from + row * c.from_pitch;
        if (to < from + c.width && from < to + c.width) {
            virtual_fatal("a copy of %zu bytes overlaps itself", c.width);
        }
        memcpy(to, from, c.width);
    }
}

static cudaError_t copy_queue(virtual_lock &lock, struct copy c, enum cudaMemcpyKind kind,
                              struct CUstream_st *stream, bool waits)
{
    size_t from_bytes = extent(c.from_pitch, c.width, c.height);
    size_t to_bytes = extent(c.to_pitch, c.width, c.height);
    enum place to, from;

    if (to_bytes == 0) return cudaSuccess;
    if (!place_of(c.to, to_bytes, &to) || !place_of(c.from, from_bytes, &from) ||
        !kind_fits(kind, to, from)) {
        return misuse(cudaErrorInvalidValue,
                      "a copy of %zu bytes (kind %d) from %p to %p: not within blocks of that kind",
                      to_bytes, static_cast<int>(kind), static_cast<const void *>(c.from),
                      static_cast<void *>(c.to));
    }
    if (stream->capture != NULL && (waits || to == PAGEABLE || from == PAGEABLE)) {
        stream->capture->is_invalid = true;
        return misuse(cudaErrorStreamCaptureUnsupported, "a captured copy of pageable memory");
    }
    cudaError_t error;
    if (from == PAGEABLE) {
        auto staged = std::make_shared<std::vector<unsigned char>>(c.from, c.from + from_bytes);
        error = queue(lock, stream,
                      {{},
                       [c, staged] {
                           struct copy mine = c;
                           mine.from = staged->data();
                           copy_now(mine);
                       },
                       false});
    } else {
        error = queue(lock, stream, {{}, [c] { copy_now(c); }, false});
    }
    if (error != cudaSuccess) return fail(error);
    if (!waits && to != PAGEABLE) return cudaSuccess;
    return fail(run_until(
        lock, [stream] { return stream->items.empty() && !stream->is_busy; }, stream));
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    struct copy c = {
        static_cast<unsigned char *>(to), static_cast<const unsigned char *>(from), 0, 0, bytes, 1};

    return error != cudaSuccess ? error : copy_queue(lock, c, kind, stream_of(handle), false);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    struct copy c = {
        static_cast<unsigned char *>(to), static_cast<const unsigned char *>(from), 0, 0, bytes, 1};

    if (error == cudaSuccess) error = capture_forbids(NULL);
    return error != cudaSuccess ? error : copy_queue(lock, c, kind, stream_of(NULL), true);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    struct copy c = {static_cast<unsigned char *>(to),
                     static_cast<const unsigned char *>(from),
                     to_pitch,
                     from_pitch,
                     width,
                     height};

    if (error != cudaSuccess) return error;
    if (width > to_pitch || width > from_pitch) return fail(cudaErrorInvalidPitchValue);
    return copy_queue(lock, c, kind, stream_of(handle), false);
}

cudaError_t cudaMemcpy2D(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                         size_t width, size_t height, enum cudaMemcpyKind kind)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);
    struct copy c = {static_cast<unsigned char *>(to),
                     static_cast<const unsigned char *>(from),
                     to_pitch,
                     from_pitch,
                     width,
                     height};

    if (error == cudaSuccess) error = capture_forbids(NULL);
    if (error != cudaSuccess) return error;
    if (width > to_pitch || width > from_pitch) return fail(cudaErrorInvalidPitchValue);
    return copy_queue(lock, c, kind, stream_of(NULL), true);
}

cudaError_t cudaMemcpyPeerAsync(void *to, int to_device, const void *from, int from_device,
                                size_t bytes, cudaStream_t stream)
{
    if (bytes > 0 && (!virtual_is_device_memory(to, bytes, to_device) ||
                      !virtual_is_device_memory(from, bytes, from_device))) {
        return misuse(cudaErrorInvalidValue, "a copy between devices of memory that is not theirs");
    }
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

static cudaError_t fill_queue(virtual_lock &lock, void *block, int value, size_t bytes,
                              struct CUstream_st *stream)
{
    enum place place;

    if (bytes == 0) return cudaSuccess;
    if (!place_of(block, bytes, &place) || place == PAGEABLE) {
        return misuse(cudaErrorInvalidValue, "a fill of %zu bytes at %p: not within a block", bytes,
                      block);
    }
    if (stream->device != current_device()) {
        return misuse(cudaErrorInvalidResourceHandle,
                      "a fill on a stream of device %d, with device %d current", stream->device,
                      current_device());
    }
    return fail(
        queue(lock, stream, {{}, [block, value, bytes] { memset(block, value, bytes); }, false}));
}

cudaError_t cudaMemsetAsync(void *block, int value, size_t bytes, cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    return error != cudaSuccess ? error : fill_queue(lock, block, value, bytes, stream_of(handle));
}

cudaError_t cudaMemset(void *block, int value, size_t bytes)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error == cudaSuccess) error = capture_forbids(NULL);
    return error != cudaSuccess ? error : fill_queue(lock, block, value, bytes, stream_of(NULL));
}
