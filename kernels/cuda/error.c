/*
 * What a backend tells people. What failed calls mean: the first failure's text is kept; most
 * errors of a GPU are sticky (the context is gone), so after one the backend counts as lost and
 * fails at once. And who computes what: algorithms that were chosen among several.
 */
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <stdio.h>
#include <string.h>

static const char *file_name(const char *file)
{
    const char *slash = strrchr(file, '/');

    return slash == NULL ? file : slash + 1;
}

/* The call without its arguments. */
static int name_length(const char *call)
{
    return (int)strcspn(call, "(");
}

/* While calls are recorded nothing runs: what fails then is the recording, and the calls are made
 * without one. A device that is really gone says so in the next call. */
static enum rc keep(struct cuda_backend *cuda, enum rc rc, bool is_lost, const char *call,
                    const char *file, int line, const char *reason)
{
    if (cuda->is_recording) return RC_UNSUPPORTED;
    /* What was refused or short before is not why the device is lost. */
    if (cuda->why[0] == '\0' || (is_lost && !cuda->is_lost)) {
        snprintf(cuda->why, sizeof(cuda->why), "GPU %d: %s (%.*s, %s:%d)", cuda->device, reason,
                 name_length(call), call, file_name(file), line);
    }
    if (is_lost) {
        cuda->is_lost = true;
        cuda_group_abort(cuda); /* the others would wait for this one for ever */
    }
    return rc;
}

static enum rc out_of_memory(struct cuda_backend *cuda, const char *call, const char *file,
                             int line)
{
    size_t free_bytes = 0, bytes = 0;
    char reason[128];

    if (!cuda->is_lost) cuda->why[0] = '\0'; /* a shortage is not the end: each has its own text */
    if (cudaMemGetInfo(&free_bytes, &bytes) == cudaSuccess) {
        snprintf(reason, sizeof(reason), "out of memory, %zu MiB of %zu MiB are free",
                 free_bytes >> 20, bytes >> 20);
    } else {
        snprintf(reason, sizeof(reason), "out of memory");
    }
    return keep(cuda, RC_NOMEM, false, call, file, line, reason);
}

static bool is_of_capture(cudaError_t error)
{
    return error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
}

enum rc cuda_check(struct cuda_backend *cuda, cudaError_t error, const char *call, const char *file,
                   int line)
{
    char reason[256];

    if (error == cudaSuccess) return cuda->is_lost ? RC_DEVICE : RC_OK;
    (void)cudaGetLastError(); /* what is not sticky must not turn up again later */
    if (error == cudaErrorMemoryAllocation) return out_of_memory(cuda, call, file, line);
    if (is_of_capture(error) || error == cudaErrorStreamCaptureWrongThread) return RC_UNSUPPORTED;
    if (error == cudaErrorNoKernelImageForDevice || error == cudaErrorUnsupportedPtxVersion) {
        return keep(cuda, RC_UNSUPPORTED, true, call, file, line,
                    "this module has no code for its architecture, it needs compute capability 8.0 "
                    "or later");
    }
    snprintf(reason, sizeof(reason), "%s, %s", cudaGetErrorName(error), cudaGetErrorString(error));
    return keep(cuda, RC_DEVICE, true, call, file, line, reason);
}

enum rc cuda_check_blas(struct cuda_backend *cuda, cublasStatus_t status, const char *call,
                        const char *file, int line)
{
    if (status == CUBLAS_STATUS_SUCCESS) return cuda->is_lost ? RC_DEVICE : RC_OK;
    if (status == CUBLAS_STATUS_ALLOC_FAILED) return out_of_memory(cuda, call, file, line);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) {
        return keep(cuda, RC_UNSUPPORTED, false, call, file, line, cublasGetStatusString(status));
    }
    return keep(cuda, RC_DEVICE, true, call, file, line, cublasGetStatusString(status));
}

enum rc cuda_check_dnn(struct cuda_backend *cuda, cudnnStatus_t status, const char *call,
                       const char *file, int line)
{
    if (status == CUDNN_STATUS_SUCCESS) return cuda->is_lost ? RC_DEVICE : RC_OK;
    if (status == CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED ||
        status == CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED) {
        return out_of_memory(cuda, call, file, line);
    }
    /* It refuses shapes in either way; the device has not even heard of them. */
    if (CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_NOT_SUPPORTED ||
        CUDNN_STATUS_CATEGORY(status) == CUDNN_STATUS_BAD_PARAM) {
        return keep(cuda, RC_UNSUPPORTED, false, call, file, line, cudnnGetErrorString(status));
    }
    return keep(cuda, RC_DEVICE, true, call, file, line, cudnnGetErrorString(status));
}

enum rc cuda_check_text(struct cuda_backend *cuda, const char *text, const char *call,
                        const char *file, int line)
{
    if (text == NULL) return cuda->is_lost ? RC_DEVICE : RC_OK;
    return keep(cuda, RC_DEVICE, true, call, file, line, text);
}

/* --- choices -----------------------------------------------------------------------------------*/

struct cuda_choice {
    struct cuda_choice *next;
    uint32_t times;
    char text[320];
};

/* For want of memory something may stay untold. */
void cuda_tell(struct cuda_backend *cuda, const char *text)
{
    struct cuda_choice **at = &cuda->choices;

    while (*at != NULL && strcmp((*at)->text, text) != 0) {
        at = &(*at)->next;
    }
    if (*at == NULL) *at = mem_alloc(sizeof(**at));
    if (*at == NULL) return;
    snprintf((*at)->text, sizeof((*at)->text), "%s", text);
    (*at)->times++;
}

const char *cuda_choice(struct backend *backend, uint32_t i, uint32_t *times)
{
    const struct cuda_choice *choice = cuda_of(backend)->choices;

    while (choice != NULL && i-- > 0) {
        choice = choice->next;
    }
    if (choice == NULL) return NULL;
    *times = choice->times;
    return choice->text;
}

void cuda_forget_choices(struct cuda_backend *cuda)
{
    while (cuda->choices != NULL) {
        struct cuda_choice *choice = cuda->choices;

        cuda->choices = choice->next;
        mem_free(choice);
    }
}
