/*
 * The CUDA backend itself: devices, memory, copies, the pace of steps, the table of operations.
 * Downloads wait; uploads do not (upload.c).
 */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/internal.h"

#include <stdio.h>
#include <string.h>

#define BLAS_WORKSPACE_BYTES ((size_t)32 << 20) /* what cuBLAS asks for on Hopper */
#define SCRATCH_BYTES        ((size_t)4 << 20)  /* enough for most; layers reserve more */

enum rc cuda_devices(uint32_t *count, struct fault *why)
{
    int devices = 0, driver = 0, runtime = 0;
    cudaError_t error = cudaGetDeviceCount(&devices);

    *count = 0;
    (void)cudaGetLastError();
    if (error == cudaErrorInsufficientDriver) {
        if (cudaDriverGetVersion(&driver) != cudaSuccess || driver == 0) {
            return fault_set(why, RC_UNSUPPORTED, "there is no NVIDIA driver");
        }
        if (cudaRuntimeGetVersion(&runtime) != cudaSuccess) runtime = CUDART_VERSION;
        return fault_set(why, RC_UNSUPPORTED,
                         "the NVIDIA driver is for CUDA %d.%d and too old for CUDA %d.%d; update "
                         "it",
                         driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    }
    if (error == cudaErrorNoDevice || (error == cudaSuccess && devices == 0)) {
        return fault_set(why, RC_NOT_FOUND, "there is an NVIDIA driver, but no GPU");
    }
    if (error != cudaSuccess) {
        return fault_set(why, RC_DEVICE, "GPUs cannot be counted: %s, %s", cudaGetErrorName(error),
                         cudaGetErrorString(error));
    }
    *count = (uint32_t)devices;
    return RC_OK;
}

enum rc cuda_describe(uint32_t device, char *text, size_t cap, struct fault *why)
{
    struct cudaDeviceProp properties;
    cudaError_t error = cudaGetDeviceProperties(&properties, (int)device);

    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return fault_set(why, RC_DEVICE, "GPU %u: %s", device, cudaGetErrorString(error));
    }
    snprintf(text, cap, "%s, %.1f GiB, compute capability %d.%d", properties.name,
             (double)properties.totalGlobalMem / (1 << 30), properties.major, properties.minor);
    return RC_OK;
}

static void cuda_bind_thread(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_of(backend);

    (void)CUDA_CHECK(cuda, cudaSetDevice(cuda->device)); /* comes to light in the next call */
}

static void *cuda_alloc(struct backend *backend, size_t bytes)
{
    struct cuda_backend *cuda = cuda_of(backend);
    void *block = NULL;
    enum rc rc = RC_OK;

    CUDA_TRY(cuda, cudaSetDevice(cuda->device));
    CUDA_TRY(cuda, cudaMalloc(&block, bytes > 0 ? bytes : 1));
    CUDA_TRY(cuda, cudaMemsetAsync(block, 0, bytes > 0 ? bytes : 1, cuda->stream));
    return block;
out:
    if (block != NULL) (void)cudaFree(block);
    return NULL;
}

static void cuda_free(struct backend *backend, void *block)
{
    struct cuda_backend *cuda = cuda_of(backend);

    if (block == NULL) return;
    (void)cudaSetDevice(cuda->device);
    (void)cudaFree(block); /* waits for what still uses it; of a lost device nothing is left */
}

static enum rc cuda_download(struct backend *backend, void *to, const void *from, size_t bytes)
{
    struct cuda_backend *cuda = cuda_of(backend);
    enum rc rc;

    CHECK(!cuda->is_recording);
    CUDA_TRY(cuda, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, cuda->stream));
    CUDA_TRY(cuda, cudaStreamSynchronize(cuda->stream));
out:
    return rc;
}

static enum rc cuda_copy(struct backend *backend, void *to, const void *from, size_t bytes)
{
    struct cuda_backend *cuda = cuda_of(backend);

    return CUDA_CHECK(cuda,
                      cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, cuda->stream));
}

static enum rc cuda_zero(struct backend *backend, void *block, size_t bytes)
{
    struct cuda_backend *cuda = cuda_of(backend);

    return CUDA_CHECK(cuda, cudaMemsetAsync(block, 0, bytes, cuda->stream));
}

static const char *cuda_why(struct backend *backend)
{
    return cuda_of(backend)->why;
}

static enum rc cuda_pace(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_of(backend);
    cudaEvent_t *ends = cuda->paces;
    uint32_t mine = cuda->pace_next;
    enum rc rc;

    CUDA_TRY(cuda, cudaEventRecord(ends[mine], cuda->stream));
    cuda->pace_next = 1 - mine;
    CUDA_TRY(cuda, cudaEventSynchronize(ends[1 - mine]));
out:
    return rc;
}

enum rc cuda_scratch_reserve(struct cuda_backend *cuda, size_t bytes)
{
    void *grown = NULL;
    enum rc rc = RC_OK;

    if (bytes <= cuda->scratch_bytes) return RC_OK;
    CHECK(!cuda->is_recording);
    CUDA_TRY(cuda, cudaMalloc(&grown, bytes));
    if (cuda->scratch != NULL) CUDA_TRY(cuda, cudaFree(cuda->scratch)); /* waits for its users */
    cuda->scratch = grown;
    cuda->scratch_bytes = bytes;
    cuda->scratch_generation++;
    grown = NULL;
out:
    if (grown != NULL) (void)cudaFree(grown);
    return rc;
}

static void cuda_destroy(struct backend *backend)
{
    struct cuda_backend *cuda = cuda_of(backend);

    (void)cudaSetDevice(cuda->device);
    if (cuda->is_lost) cuda_group_abort(cuda); /* or what is queued may wait for ever */
    if (cuda->stream != NULL) (void)cudaStreamSynchronize(cuda->stream);
    cuda_group_leave(cuda);
    cuda_attention_forget(cuda);
    cuda_upload_destroy(cuda);
    cuda_forget_choices(cuda);
    if (cuda->dnn != NULL) (void)cudnnDestroy(cuda->dnn);
    if (cuda->blas_lt != NULL) (void)cublasLtDestroy(cuda->blas_lt);
    if (cuda->blas != NULL) (void)cublasDestroy(cuda->blas);
    (void)cudaFree(cuda->blas_workspace);
    (void)cudaFree(cuda->scratch);
    for (size_t i = 0; i < ARRAY_COUNT(cuda->paces); i++) {
        if (cuda->paces[i] != NULL) (void)cudaEventDestroy(cuda->paces[i]);
    }
    if (cuda->joined != NULL) (void)cudaEventDestroy(cuda->joined);
    if (cuda->forked != NULL) (void)cudaEventDestroy(cuda->forked);
    if (cuda->beside != NULL) (void)cudaStreamDestroy(cuda->beside);
    if (cuda->stream != NULL) (void)cudaStreamDestroy(cuda->stream);
    mem_free(cuda);
}

static const struct backend_ops cuda_ops = {
    .name = "cuda",
    .destroy = cuda_destroy,
    .bind_thread = cuda_bind_thread,
    .sibling = cuda_sibling,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .upload = cuda_upload_bytes,
    .download = cuda_download,
    .copy = cuda_copy,
    .zero = cuda_zero,
    .why = cuda_why,
    .choice = cuda_choice,
    .to_activations = cuda_to_activations,
    .store = cuda_store,
    .clip = cuda_clip,
    .pace = cuda_pace,
    .record_begin = cuda_record_begin,
    .record_end = cuda_record_end,
    .replay = cuda_replay,
    .recording_destroy = cuda_recording_destroy,
    .snapshot_create = cuda_snapshot_create,
    .copies_create = cuda_copies_create,
    .copies_destroy = cuda_copies_destroy,
    .all_reduce = cuda_all_reduce,
    .from_bytes = cuda_from_bytes,
    .axpy = cuda_axpy,
    .scale = cuda_scale,
    .add_difference = cuda_add_difference,
    .squared_norm = cuda_squared_norm,
    .is_finite = cuda_is_finite,
    .gemm = cuda_gemm,
    .linear_create = cuda_linear_create,
    .relu_forward = cuda_relu_forward,
    .relu_backward = cuda_relu_backward,
    .add = cuda_add,
    .activation_forward = cuda_activation_forward,
    .activation_backward = cuda_activation_backward,
    .dropout = cuda_dropout,
    .copy_rows = cuda_copy_rows,
    .conv_create = cuda_conv_create,
    .pool_forward = cuda_pool_forward,
    .pool_backward = cuda_pool_backward,
    .relayout = cuda_relayout,
    .global_average_forward = cuda_global_average_forward,
    .global_average_backward = cuda_global_average_backward,
    .subsample_forward = cuda_subsample_forward,
    .subsample_backward = cuda_subsample_backward,
    .batch_norm_collect = cuda_batch_norm_collect,
    .batch_norm_close = cuda_batch_norm_close,
    .batch_norm_rstd = cuda_batch_norm_rstd,
    .batch_norm_apply = cuda_batch_norm_apply,
    .batch_norm_backward_collect = cuda_batch_norm_backward_collect,
    .batch_norm_backward_close = cuda_batch_norm_backward_close,
    .batch_norm_backward_apply = cuda_batch_norm_backward_apply,
    .group_norm_forward = cuda_group_norm_forward,
    .group_norm_backward = cuda_group_norm_backward,
    .layer_norm_forward = cuda_layer_norm_forward,
    .layer_norm_backward = cuda_layer_norm_backward,
    .weight_norm_forward = cuda_weight_norm_forward,
    .weight_norm_backward = cuda_weight_norm_backward,
    .embedding_forward = cuda_embedding_forward,
    .embedding_backward = cuda_embedding_backward,
    .positions_forward = cuda_positions_forward,
    .positions_backward = cuda_positions_backward,
    .attention_forward = cuda_attention_forward,
    .attention_backward = cuda_attention_backward,
    .attention_reserve = cuda_attention_reserve,
    .recurrent_create = cuda_recurrent_create,
    .cross_entropy = cuda_cross_entropy,
    .squared_error = cuda_squared_error,
    .update = cuda_update,
    .layer_norm_sum_forward = cuda_layer_norm_sum_forward,
    .all_reduce_begin = cuda_all_reduce_begin,
    .all_reduce_end = cuda_all_reduce_end,
    .all_reduce_abort = cuda_all_reduce_abort,
};

static enum rc read_properties(struct cuda_backend *cuda)
{
    int multiprocessors = 0, shared = 0, major = 0, minor = 0;
    enum rc rc;

    CUDA_TRY(cuda, cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount,
                                          cuda->device));
    CUDA_TRY(cuda, cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                          cuda->device));
    CUDA_TRY(cuda, cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, cuda->device));
    CUDA_TRY(cuda, cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, cuda->device));
    cuda->multiprocessors = (uint32_t)multiprocessors;
    cuda->shared_bytes_max = (size_t)shared;
    cuda->capability = 10 * major + minor;
    if (cuda->capability >= 80) return RC_OK;
    rc = cuda_check(cuda, cudaErrorNoKernelImageForDevice, "create()", __FILE__, __LINE__);
out:
    return rc;
}

static enum rc set_up(struct cuda_backend *cuda)
{
    int least = 0, greatest = 0; /* snapshots have the least */
    enum rc rc;

    CUDA_TRY(cuda, cudaSetDevice(cuda->device));
    rc = read_properties(cuda);
    if (rc != RC_OK) goto out;
    CUDA_TRY(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    CUDA_TRY(cuda, cudaStreamCreateWithPriority(&cuda->stream, cudaStreamNonBlocking, greatest));
    for (size_t i = 0; i < ARRAY_COUNT(cuda->paces); i++) {
        CUDA_TRY(cuda, cudaEventCreateWithFlags(&cuda->paces[i], cudaEventDisableTiming));
    }
    rc = cuda_upload_create(cuda);
    if (rc != RC_OK) goto out;
    CUDA_TRY(cuda, cudaMalloc(&cuda->blas_workspace, BLAS_WORKSPACE_BYTES));
    cuda->blas_workspace_bytes = BLAS_WORKSPACE_BYTES;
    BLAS_TRY(cuda, cublasCreate(&cuda->blas));
    BLAS_TRY(cuda, cublasSetStream(cuda->blas, cuda->stream));
    BLAS_TRY(cuda, cublasSetWorkspace(cuda->blas, cuda->blas_workspace, BLAS_WORKSPACE_BYTES));
    /* Parts of a sum are joined in float32, also where the result is bfloat16. */
    BLAS_TRY(cuda, cublasSetMathMode(cuda->blas, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
    BLAS_TRY(cuda, cublasLtCreate(&cuda->blas_lt));
    DNN_TRY(cuda, cudnnCreate(&cuda->dnn));
    DNN_TRY(cuda, cudnnSetStream(cuda->dnn, cuda->stream));
    rc = cuda_scratch_reserve(cuda, SCRATCH_BYTES);
out:
    return rc;
}

enum rc cuda_single_create(uint32_t device, bool is_bf16, struct backend **backend,
                           struct fault *why)
{
    struct cuda_backend *cuda = mem_alloc(sizeof(*cuda));
    enum rc rc;

    if (cuda == NULL) return fault_set(why, RC_NOMEM, "out of memory");
    cuda->base.ops = &cuda_ops;
    cuda->base.threads = 1;
    cuda->base.pixels_per_slice = UINT32_MAX; /* a device is filled by whole batches */
    cuda->base.rows_per_slice = UINT32_MAX;
    cuda->base.value_bytes = is_bf16 ? 2 : sizeof(float);
    cuda->base.joins_gelu = true;
    cuda->device = (int)device;
    cuda->is_bf16 = is_bf16;
    rc = set_up(cuda);
    if (rc != RC_OK) {
        rc = fault_set(why, rc, "%s", cuda->why[0] != '\0' ? cuda->why : rc_text(rc));
        cuda_destroy(&cuda->base);
        return rc;
    }
    *backend = &cuda->base;
    return RC_OK;
}

enum rc cuda_backend_create(const struct cuda_backend_options *options, struct backend **backend,
                            struct fault *why)
{
    uint32_t count = 0;
    enum rc rc = cuda_devices(&count, why);

    CHECK(options->devices_count > 0 && options->devices_count <= CUDA_DEVICES_MAX);
    for (uint32_t i = 0; rc == RC_OK && i < options->devices_count; i++) {
        if (options->devices[i] < count) continue;
        rc = fault_set(why, RC_NOT_FOUND, "there is no GPU %u, only %u (numbered from 0)",
                       options->devices[i], count);
    }
    if (rc != RC_OK) return rc;
    if (options->devices_count > 1) return cuda_group_create(options, backend, why);
    return cuda_single_create(options->devices[0], options->is_bf16, backend, why);
}
