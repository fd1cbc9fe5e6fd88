/*
 * Capture of streams into graphs, and their launches. A graph is the list of what was captured in
 * the order of calls, which keeps every dependency; a launch queues it on its stream.
 */
#include "tests/cuda/virtual/state.h"

#include <thread>

/* --- what other files ask ----------------------------------------------------------------------*/

cudaError_t capture_forbids(struct CUstream_st *stream)
{
    if (stream != NULL) {
        if (stream->capture == NULL) return cudaSuccess;
        stream->capture->is_invalid = true;
        return misuse(cudaErrorStreamCaptureUnsupported, "waiting for a captured stream");
    }
    for (virtual_capture *capture : state().captures) {
        bool is_mine = capture->thread == std::this_thread::get_id();
        if (capture->mode == cudaStreamCaptureModeRelaxed) continue;
        if (capture->mode == cudaStreamCaptureModeThreadLocal && !is_mine) continue;
        capture->is_invalid = true;
        return misuse(cudaErrorStreamCaptureUnsupported, "a call that waits, during a capture");
    }
    return cudaSuccess;
}

cudaError_t capture_record(struct CUstream_st *stream, virtual_work work)
{
    virtual_capture *capture = stream->capture;

    if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    capture->graph->nodes.push_back(std::move(work));
    if (stream != capture->origin) capture->apart.insert(stream);
    return cudaSuccess;
}

cudaError_t capture_event(struct CUstream_st *stream, struct CUevent_st *event)
{
    if (stream->capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    event->capture = stream->capture;
    event->captured_in = stream;
    return cudaSuccess;
}

/* A stream that waits for a captured event is captured from here on; and the event's joined. */
cudaError_t capture_wait(struct CUstream_st *stream, struct CUevent_st *event)
{
    virtual_capture *capture = event->capture;

    if (state().captures.count(capture) == 0) return cudaErrorStreamCaptureIsolation;
    if (capture->is_invalid) return cudaErrorStreamCaptureInvalidated;
    if (stream->capture != NULL && stream->capture != capture) {
        capture->is_invalid = stream->capture->is_invalid = true;
        return cudaErrorStreamCaptureMerge;
    }
    if (stream->is_legacy) {
        capture->is_invalid = true;
        return cudaErrorStreamCaptureImplicit;
    }
    if (stream->capture == NULL) {
        stream->capture = capture;
        capture->streams.insert(stream);
        capture->apart.insert(stream);
    }
    if (event->captured_in != stream) capture->apart.erase(event->captured_in);
    return cudaSuccess;
}

/* --- the API -----------------------------------------------------------------------------------*/

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    struct CUstream_st *stream = stream_of(handle);
    if (stream->is_legacy) return fail(cudaErrorStreamCaptureUnsupported);
    if (stream->capture != NULL) return fail(cudaErrorIllegalState);
    virtual_capture *capture = new virtual_capture();
    capture->graph = new CUgraph_st();
    capture->origin = stream;
    capture->streams.insert(stream);
    capture->mode = mode;
    capture->thread = std::this_thread::get_id();
    state().captures.insert(capture);
    stream->capture = capture;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (graph == NULL) return fail(cudaErrorInvalidValue);
    *graph = NULL;
    struct CUstream_st *stream = stream_of(handle);
    virtual_capture *capture = stream->capture;
    if (capture == NULL) return fail(error != cudaSuccess ? error : cudaErrorIllegalState);
    if (capture->origin != stream) return fail(cudaErrorStreamCaptureUnmatched);
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
        return fail(cudaErrorStreamCaptureWrongThread);
    }
    if (error == cudaSuccess && capture->is_invalid) error = cudaErrorStreamCaptureInvalidated;
    if (error == cudaSuccess && !capture->apart.empty()) {
        error = misuse(cudaErrorStreamCaptureUnjoined, "a stream forked in a capture, not joined");
    }
    for (struct CUstream_st *member : capture->streams) {
        if (state().streams.count(member) > 0) member->capture = NULL;
    }
    if (error == cudaSuccess) {
        *graph = capture->graph;
        state().graphs.insert(capture->graph);
    } else {
        delete capture->graph;
    }
    state().captures.erase(capture);
    delete capture;
    return fail(error);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    const virtual_capture *capture = stream_of(handle)->capture;
    if (status == NULL) return fail(cudaErrorInvalidValue);
    *status = capture == NULL       ? cudaStreamCaptureStatusNone
              : capture->is_invalid ? cudaStreamCaptureStatusInvalidated
                                    : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaThreadExchangeStreamCaptureMode(enum cudaStreamCaptureMode *mode)
{
    (void)mode;
    virtual_fatal("cudaThreadExchangeStreamCaptureMode() is not known here");
}

cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t *nodes, size_t *count)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error != cudaSuccess) return error;
    if (state().graphs.count(graph) == 0 || nodes != NULL || count == NULL) {
        return misuse(cudaErrorInvalidValue, "here, nodes of graphs can be counted, no more");
    }
    *count = graph->nodes.size();
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    (void)flags;
    if (error != cudaSuccess) return error;
    if (exec == NULL || state().graphs.count(graph) == 0) return fail(cudaErrorInvalidValue);
    *exec = new CUgraphExec_st();
    (*exec)->nodes = graph->nodes;
    (*exec)->device = current_device();
    state().execs.insert(*exec);
    return cudaSuccess;
}

static cudaError_t exec_check(cudaGraphExec_t exec)
{
    if (state().execs.count(exec) > 0) return cudaSuccess;
    return misuse(cudaErrorInvalidValue, "%p is no graph that can run", static_cast<void *>(exec));
}

cudaError_t cudaGraphUpload(cudaGraphExec_t exec, cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    (void)stream_of(handle);
    return error != cudaSuccess ? error : exec_check(exec);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (error == cudaSuccess) error = exec_check(exec);
    if (error != cudaSuccess) return error;
    struct CUstream_st *stream = stream_of(handle);
    for (size_t i = 0; i < exec->nodes.size() && error == cudaSuccess; i++) {
        error = queue(lock, stream, exec->nodes[i]);
    }
    return fail(error);
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (exec_check(exec) != cudaSuccess) return cudaErrorInvalidValue;
    state().execs.erase(exec);
    delete exec;
    return error;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    virtual_lock lock(state().mutex);
    cudaError_t error = enter(lock);

    if (state().graphs.erase(graph) == 0) return misuse(cudaErrorInvalidValue, "no such graph");
    delete graph;
    return error;
}
