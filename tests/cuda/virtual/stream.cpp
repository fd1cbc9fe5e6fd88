/*
 * Streams and events of the stand-in for libcudart. Work waits in its stream; whoever waits for
 * something runs what is ready, of any stream, in a random order, until it has come. A stream's
 * work is ready in order, after the events it waits for; the legacy stream's after all that was
 * queued before on the device's blocking streams, and the other way round.
 */
#include "tests/cuda/virtual/state.h"

#include <chrono>
#include <stdio.h>

enum { QUEUED_MAX = 10000, PATIENCE_SECONDS = 60, PACE_CALLS_MAX = 200 };

struct CUstream_st *stream_of(cudaStream_t stream)
{
    struct virtual_state &s = state();

    if (stream == NULL || stream == cudaStreamLegacy) {
        struct CUstream_st *&legacy = s.legacy[current_device()];
        if (legacy == NULL) {
            legacy = new CUstream_st();
            legacy->device = current_device();
            legacy->is_legacy = true;
            s.streams.insert(legacy);
        }
        return legacy;
    }
    if (s.streams.count(stream) == 0 || stream->is_released) {
        virtual_fatal("%p is no stream", static_cast<void *>(stream));
    }
    return stream;
}

/* --- what runs next ----------------------------------------------------------------------------*/

static bool is_runnable(struct CUstream_st *stream)
{
    if (stream->items.empty() || stream->is_busy) return false;
    const virtual_item &front = stream->items.front();
    for (const struct CUstream_st *other : state().streams) {
        if (other == stream || other->device != stream->device) continue;
        if (stream->is_legacy == other->is_legacy) continue;
        if (((stream->flags | other->flags) & cudaStreamNonBlocking) != 0) continue;
        if (other->is_busy && stream->is_legacy) return false;
        if (!other->items.empty() && other->items.front().ticket < front.ticket) return false;
    }
    return !front.work.is_ready || front.work.is_ready();
}

/* `mood` is 0: `wanted` first, 1: any, 2: `wanted` last. */
static struct CUstream_st *choose(struct CUstream_st *wanted, uint64_t mood)
{
    struct CUstream_st *chosen = NULL;
    uint64_t seen = 0;

    if (wanted != NULL && mood == 0 && is_runnable(wanted)) return wanted;
    for (struct CUstream_st *stream : state().streams) {
        if ((stream == wanted && mood == 2) || !is_runnable(stream)) continue;
        if (random_below(++seen) == 0) chosen = stream;
    }
    if (chosen == NULL && wanted != NULL && is_runnable(wanted)) chosen = wanted;
    return chosen;
}

static void run_one(virtual_lock &lock, struct CUstream_st *stream)
{
    virtual_work work = std::move(stream->items.front().work);

    stream->items.pop_front();
    state().queued--;
    stream->is_busy = true;
    if (work.is_host) {
        memory_close();
        lock.unlock();
        work.run();
        lock.lock();
        memory_open();
    } else {
        in_work() = true;
        work.run();
        in_work() = false;
    }
    stream->is_busy = false;
    if (stream->is_released && stream->items.empty()) {
        state().streams.erase(stream);
        delete stream;
    }
    state().changed.notify_all();
}

static void report_stuck(void)
{
    fprintf(stderr, "virtual device: nothing can run, and nothing was queued for %d s:\n",
            PATIENCE_SECONDS);
    for (struct CUstream_st *stream : state().streams) {
        if (stream->items.empty()) continue;
        fprintf(stderr, "    a stream of device %d: %zu calls wait%s\n", stream->device,
                stream->items.size(),
                stream->items.front().work.is_ready ? ", the first for an event or a peer" : "");
    }
    virtual_fatal("deadlock");
}

cudaError_t run_until(virtual_lock &lock, const std::function<bool()> &is_done,
                      struct CUstream_st *wanted)
{
    uint64_t mood = random_below(3);
    bool has_run = false;

    if (is_done() && !state().is_lost) return cudaSuccess;
    memory_open();
    crash_watch();
    while (!state().is_lost && !is_done()) {
        struct CUstream_st *stream = choose(wanted, mood);
        if (stream != NULL) {
            run_one(lock, stream);
            has_run = true;
            continue;
        }
        crash_unwatch();
        memory_close();
        std::cv_status status =
            state().changed.wait_for(lock, std::chrono::seconds(PATIENCE_SECONDS));
        memory_open();
        crash_watch();
        if (status == std::cv_status::timeout && choose(wanted, mood) == NULL && !is_done()) {
            report_stuck();
        }
    }
    if (has_run) memory_check();
    crash_unwatch();
    memory_close();
    return state().is_lost ? cudaErrorECCUncorrectable : cudaSuccess;
}

cudaError_t run_all(virtual_lock &lock, int device)
{
    auto is_done = [device] {
        for (const struct CUstream_st *stream : state().streams) {
            if (device >= 0 && stream->device != device) continue;
            if (!stream->items.empty() || stream->is_busy) return false;
        }
        return true;
    };

    return run_until(lock, is_done, NULL);
}

void drop_all(void)
{
    std::vector<struct CUstream_st *> gone;

    for (struct CUstream_st *stream : state().streams) {
        stream->items.clear();
        if (stream->is_released && !stream->is_busy) gone.push_back(stream);
    }
    for (struct CUstream_st *stream : gone) {
        state().streams.erase(stream);
        delete stream;
    }
    state().queued = 0;
}

/* Up to `count` steps ahead of the need, as far as that goes. */
static void run_ahead(virtual_lock &lock, uint64_t count)
{
    struct CUstream_st *stream;

    if (state().queued == 0) return;
    memory_open();
    crash_watch();
    while (count-- > 0 && (stream = choose(NULL, 1)) != NULL) {
        run_one(lock, stream);
    }
    memory_check();
    crash_unwatch();
    memory_close();
}

static void keep_pace(virtual_lock &lock)
{
    struct virtual_state &s = state();

    if (s.options.pace == VIRTUAL_MIXED && s.lazy_left-- == 0) {
        s.lazy_left = random_below(PACE_CALLS_MAX);
        s.is_eager = random_below(4) == 0;
    }
    if (s.is_eager) {
        run_ahead(lock, s.options.pace == VIRTUAL_EAGER ? UINT64_MAX : random_below(4));
    } else if (s.queued > QUEUED_MAX) {
        run_ahead(lock, QUEUED_MAX / 2);
    }
}

cudaError_t queue(virtual_lock &lock, struct CUstream_st *stream, virtual_work work)
{
    struct virtual_state &s = state();

    if (stream->capture != NULL) return capture_record(stream, std::move(work));
    if (stream->is_legacy) {
        for (virtual_capture *capture : s.captures) {
            if (capture->origin->device != stream->device) continue;
            if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
            capture->is_invalid = true;
            return misuse(cudaErrorStreamCaptureImplicit, "the legacy stream during a capture");
        }
    }
    stream->items.push_back({std::move(work), ++s.tickets});
    s.queued++;
    s.changed.notify_all();
    keep_pace(lock);
    return cudaSuccess;
}

cudaError_t virtual_queue_when(cudaStream_t handle, std::function<bool()> is_ready,
                               std::function<void()> work)
{
    if (in_work()) virtual_fatal("work that queues work");
    virtual_lock lock(state().mutex);

    if (state().is_lost) return cudaErrorECCUncorrectable;
    return queue(lock, stream_of(handle), {std::move(is_ready), std::move(work), false});
}

cudaError_t virtual_queue(cudaStream_t handle, std::function<void()> work)
{
    return virtual_queue_when(handle, {}, std::move(work));
}

int virtual_stream_device(cudaStream_t handle)
{
    virtual_lock lock(state().mutex);

    return stream_of(handle)->device;
}

bool virtual_is_capturing(cudaStream_t handle)
{
    virtual_lock lock(state().mutex);

    return stream_of(handle)->capture != NULL;
}

/* --- streams -----------------------------------------------------------------------------------*/

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned int flags, int priority)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (stream == NULL || (flags & ~static_cast<unsigned>(cudaStreamNonBlocking)) != 0) {
        return fail(cudaErrorInvalidValue);
    }
    struct CUstream_st *created = new CUstream_st();
    created->device = current_device();
    created->flags = flags;
    created->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority;
    state().streams.insert(created);
    *stream = created;
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags)
{
    return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *stream)
{
    return cudaStreamCreateWithPriority(stream, cudaStreamDefault, 0);
}

cudaError_t cudaStreamGetPriority(cudaStream_t handle, int *priority)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    *priority = stream_of(handle)->priority;
    return cudaSuccess;
}

cudaError_t cudaStreamGetFlags(cudaStream_t handle, unsigned int *flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    *flags = stream_of(handle)->flags;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    cudaError_t error = virtual_call();

    if (error != cudaSuccess) return error;
    if (least != NULL) *least = 0;
    if (greatest != NULL) *greatest = -5;
    return cudaSuccess;
}

/* Returns at once; what is queued is still run. */
cudaError_t cudaStreamDestroy(cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (handle == NULL || handle == cudaStreamLegacy) return fail(cudaErrorInvalidResourceHandle);
    struct CUstream_st *stream = stream_of(handle);
    if (stream->capture != NULL) stream->capture->is_invalid = true;
    stream->is_released = true;
    if (stream->items.empty() && !stream->is_busy) {
        state().streams.erase(stream);
        delete stream;
    }
    return error;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUstream_st *stream = stream_of(handle);
    error = capture_forbids(stream);
    if (error != cudaSuccess) return error;
    return fail(run_until(
        lock, [stream] { return stream->items.empty() && !stream->is_busy; }, stream));
}

cudaError_t cudaStreamQuery(cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUstream_st *stream = stream_of(handle);
    error = capture_forbids(stream);
    if (error != cudaSuccess) return error;
    run_ahead(lock, 1); /* so that polling ends */
    return stream->items.empty() && !stream->is_busy ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *context)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    return fail(
        queue(lock, stream_of(handle), {{}, [function, context] { function(context); }, true}));
}

/* --- events ------------------------------------------------------------------------------------*/

static double now_ms(void)
{
    return std::chrono::duration<double, std::milli>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

static struct CUevent_st *event_of(cudaEvent_t event)
{
    if (state().events.count(event) == 0) {
        virtual_fatal("%p is no event", static_cast<void *>(event));
    }
    return event;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned int flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (event == NULL || flags > 7) return fail(cudaErrorInvalidValue);
    *event = new CUevent_st();
    (*event)->device = current_device();
    (*event)->flags = flags;
    (*event)->state = std::make_shared<virtual_event>();
    state().events.insert(*event);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event)
{
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (handle == NULL) return fail(cudaErrorInvalidResourceHandle);
    struct CUevent_st *event = event_of(handle);
    state().events.erase(event);
    delete event;
    return error;
}

cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUevent_st *event = event_of(handle);
    struct CUstream_st *stream = stream_of(stream_handle);
    if (event->device != stream->device) {
        return misuse(cudaErrorInvalidResourceHandle, "an event of device %d on a stream of %d",
                      event->device, stream->device);
    }
    if (stream->capture != NULL) return fail(capture_event(stream, event));
    event->capture = NULL;
    std::shared_ptr<virtual_event> kept = event->state;
    uint64_t ticket = ++kept->recorded;
    return fail(queue(lock, stream,
                      {{},
                       [kept, ticket] {
                           if (kept->finished < ticket) kept->finished = ticket;
                           kept->time_ms = now_ms();
                       },
                       false}));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream_handle, cudaEvent_t handle, unsigned int flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUevent_st *event = event_of(handle);
    struct CUstream_st *stream = stream_of(stream_handle);
    if (flags != cudaEventWaitDefault) return fail(cudaErrorInvalidValue);
    if (event->capture != NULL) return fail(capture_wait(stream, event));
    if (stream->capture != NULL) {
        stream->capture->is_invalid = true;
        return misuse(cudaErrorStreamCaptureIsolation,
                      "a captured stream waits for an event of outside");
    }
    std::shared_ptr<virtual_event> kept = event->state;
    uint64_t ticket = kept->recorded;
    return fail(
        queue(lock, stream, {[kept, ticket] { return kept->finished >= ticket; }, [] {}, false}));
}

cudaError_t cudaEventSynchronize(cudaEvent_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUevent_st *event = event_of(handle);
    if (event->capture != NULL) return fail(cudaErrorCapturedEvent);
    std::shared_ptr<virtual_event> kept = event->state;
    uint64_t ticket = kept->recorded;
    return fail(run_until(
        lock, [kept, ticket] { return kept->finished >= ticket; }, NULL));
}

cudaError_t cudaEventQuery(cudaEvent_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUevent_st *event = event_of(handle);
    if (event->capture != NULL) return fail(cudaErrorCapturedEvent);
    run_ahead(lock, 1); /* so that polling ends */
    return event->state->finished >= event->state->recorded ? cudaSuccess : fail(cudaErrorNotReady);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t start, cudaEvent_t end)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    const struct CUevent_st *from = event_of(start), *to = event_of(end);
    if (ms == NULL) return fail(cudaErrorInvalidValue);
    if (((from->flags | to->flags) & cudaEventDisableTiming) != 0 || from->state->recorded == 0 ||
        to->state->recorded == 0) {
        return fail(cudaErrorInvalidResourceHandle);
    }
    if (from->state->finished < from->state->recorded ||
        to->state->finished < to->state->recorded) {
        return fail(cudaErrorNotReady);
    }
    *ms = static_cast<float>(to->state->time_ms - from->state->time_ms);
    return cudaSuccess;
}
