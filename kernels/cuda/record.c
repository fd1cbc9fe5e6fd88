/*
 * Recordings: a stretch of calls as one CUDA graph, so that a training step is one launch. Streams
 * are captured in thread-local mode: other threads may allocate and copy meanwhile.
 */
#include "base/mem.h"
#include "kernels/cuda/internal.h"

struct recording {
    cudaGraphExec_t exec;
    uint32_t scratch_generation; /* its nodes hold the scratch memory's address */
};

enum rc cuda_record_begin(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc =
        CUDA_CHECK(cuda, cudaStreamBeginCapture(cuda->stream, cudaStreamCaptureModeThreadLocal));

    cuda->is_recording = rc == RC_OK;
    return rc;
}

enum rc cuda_record_end(struct backend *backend, struct recording **recording)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct recording *made = NULL;
    cudaGraph_t graph = NULL;
    cudaError_t error = cudaStreamEndCapture(cuda->stream, &graph);
    enum rc rc = RC_OK;

    cuda->is_recording = false;
    CUDA_TRY(cuda, error);
    if (recording == NULL) goto out;
    made = mem_alloc(sizeof(*made));
    rc = made != NULL ? RC_OK : RC_NOMEM;
    if (rc != RC_OK) goto out;
    CUDA_TRY(cuda, cudaGraphInstantiate(&made->exec, graph, 0));
    CUDA_TRY(cuda, cudaGraphUpload(made->exec, cuda->stream));
    made->scratch_generation = cuda->scratch_generation;
    *recording = made;
    made = NULL;
out:
    if (made != NULL) cuda_recording_destroy(backend, made);
    if (graph != NULL) (void)cudaGraphDestroy(graph);
    return rc;
}

enum rc cuda_replay(struct backend *backend, struct recording *recording)
{
    struct cuda_backend *cuda = cuda_of(backend);

    if (recording->scratch_generation != cuda->scratch_generation) return RC_STALE;
    return CUDA_CHECK(cuda, cudaGraphLaunch(recording->exec, cuda->stream));
}

/* Destroying what still runs is legal: the graph goes when it has run. */
void cuda_recording_destroy(struct backend *backend, struct recording *recording)
{
    (void)backend;
    if (recording == NULL) return;
    if (recording->exec != NULL) (void)cudaGraphExecDestroy(recording->exec);
    mem_free(recording);
}
