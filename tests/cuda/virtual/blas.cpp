/*
 * A stand-in for cuBLAS: handles and products of matrices, after the cuBLAS Library User Guide.
 *
 * Checked: dimensions and leading dimensions (CUBLAS_STATUS_INVALID_VALUE), the tables of types of
 * cublasGemmEx() and cublasGemmStridedBatchedEx() (NOT_SUPPORTED), that the calling thread's device
 * and the stream's are the handle's (EXECUTION_FAILED, as a launch would), that operands are memory
 * of that device (abort). float16, complex and integer types are NOT_SUPPORTED here.
 */
#include "tests/cuda/virtual/library.h"

#include <cublas_v2.h>

enum { HANDLE_MAGIC = 0x424C4153, WORKSPACE_ALIGNMENT = 256 };
static const size_t WORKSPACE_TOUCHED = 4096;

struct cublasContext {
    uint32_t magic;
    int device;
    cudaStream_t stream;
    cublasPointerMode_t pointers;
    cublasAtomicsMode_t atomics;
    unsigned math;
    void *workspace; /* the user's; NULL: the library's own */
    size_t workspace_bytes;
};

struct operand {
    const void *at;
    cudaDataType type;
    int64_t stride; /* leading dimension */
    int64_t batch_stride;
    cublasOperation_t operation;
};

struct gemm_call {
    const char *name;
    int64_t m, n, k;
    struct operand a, b, c; /* c: in and out */
    const void *alpha, *beta;
    cublasComputeType_t compute;
    int64_t batches;
};

static bool is_handle(cublasHandle_t handle)
{
    return handle != NULL && handle->magic == HANDLE_MAGIC;
}

/* Entry of each call with a handle. */
static cublasStatus_t enter(cublasHandle_t handle)
{
    if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    return virtual_call() == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

extern "C" cublasStatus_t cublasCreate_v2(cublasHandle_t *handle)
{
    if (handle == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    if (virtual_call() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasContext();
    (*handle)->magic = HANDLE_MAGIC;
    (*handle)->device = virtual_stream_device(NULL);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasDestroy_v2(cublasHandle_t handle)
{
    if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    (void)virtual_call();
    handle->magic = 0;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version)
{
    if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (version == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *version = CUBLAS_VERSION;
    return CUBLAS_STATUS_SUCCESS;
}

/* "Unconditionally resets the workspace back to the default workspace pool." */
extern "C" cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream)
{
    cublasStatus_t status = enter(handle);

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    handle->stream = stream;
    handle->workspace = NULL;
    handle->workspace_bytes = 0;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream)
{
    if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (stream == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *stream = handle->stream;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace,
                                                size_t bytes)
{
    cublasStatus_t status = enter(handle);

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (workspace == NULL && bytes > 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (library_alignment(workspace) < WORKSPACE_ALIGNMENT) return CUBLAS_STATUS_INVALID_VALUE;
    library_reach("cublasSetWorkspace", "the workspace", workspace, bytes, handle->device);
    handle->workspace = workspace;
    handle->workspace_bytes = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode)
{
    cublasStatus_t status = enter(handle);

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (mode != CUBLAS_POINTER_MODE_HOST && mode != CUBLAS_POINTER_MODE_DEVICE) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->pointers = mode;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode)
{
    if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (mode == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *mode = handle->pointers;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode)
{
    cublasStatus_t status = enter(handle);

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    handle->atomics = mode;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode)
{
    unsigned basic =
        mode & ~static_cast<unsigned>(CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION);
    cublasStatus_t status = enter(handle);

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (basic > CUBLAS_TF32_TENSOR_OP_MATH && basic != CUBLAS_FP32_EMULATED_BF16X9_MATH &&
        basic != CUBLAS_FP64_EMULATED_FIXEDPOINT_MATH) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    handle->math = mode;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode)
{
    if (!is_handle(handle)) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (mode == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *mode = static_cast<cublasMath_t>(handle->math);
    return CUBLAS_STATUS_SUCCESS;
}

static const struct {
    cublasStatus_t status;
    const char *name, *text;
} statuses[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED",
     "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE",
     "an unsupported value or parameter was passed to the function"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH",
     "the function requires an architectural feature absent from the device"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR",
     "an access to GPU memory space failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED",
     "the function failed to launch on the GPU"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED",
     "the requested functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license check failed"},
};

extern "C" const char *cublasGetStatusName(cublasStatus_t status)
{
    for (const auto &known : statuses) {
        if (known.status == status) return known.name;
    }
    return "unrecognized status";
}

extern "C" const char *cublasGetStatusString(cublasStatus_t status)
{
    for (const auto &known : statuses) {
        if (known.status == status) return known.text;
    }
    return "unrecognized status";
}

/* --- products ----------------------------------------------------------------------------------*/

static bool is_operation(cublasOperation_t operation)
{
    return operation == CUBLAS_OP_N || operation == CUBLAS_OP_T || operation == CUBLAS_OP_C;
}

static bool is_fast(cublasComputeType_t compute)
{
    return compute == CUBLAS_COMPUTE_32F_FAST_16F || compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
           compute == CUBLAS_COMPUTE_32F_FAST_TF32 || compute == CUBLAS_COMPUTE_32F_EMULATED_16BFX9;
}

/* The rows of the documented table with real types of 16 (bfloat) and 32 bits. */
static bool are_types_supported(const struct gemm_call *call)
{
    if (call->a.type != call->b.type) return false;
    if (is_fast(call->compute)) return call->a.type == CUDA_R_32F && call->c.type == CUDA_R_32F;
    if (call->compute != CUBLAS_COMPUTE_32F && call->compute != CUBLAS_COMPUTE_32F_PEDANTIC) {
        return false;
    }
    if (call->a.type == CUDA_R_32F) return call->c.type == CUDA_R_32F;
    return call->a.type == CUDA_R_16BF &&
           (call->c.type == CUDA_R_16BF || call->c.type == CUDA_R_32F);
}

static bool are_dimensions_valid(const struct gemm_call *call)
{
    int64_t a_rows = call->a.operation == CUBLAS_OP_N ? call->m : call->k;
    int64_t b_rows = call->b.operation == CUBLAS_OP_N ? call->k : call->n;

    return call->m >= 0 && call->n >= 0 && call->k >= 0 && call->batches >= 0 &&
           call->a.stride >= (a_rows > 1 ? a_rows : 1) &&
           call->b.stride >= (b_rows > 1 ? b_rows : 1) &&
           call->c.stride >= (call->m > 1 ? call->m : 1);
}

static enum value_type type_of(cudaDataType type)
{
    return type == CUDA_R_16BF ? VALUE_BF16 : VALUE_F32;
}

/* Operand `operand` of one batch as op(.), which is [rows][columns]; memory is column by column. */
static struct matrix matrix_of(const struct operand *operand, int64_t rows, int64_t columns,
                               int64_t batch)
{
    enum value_type type = type_of(operand->type);
    size_t stride = static_cast<size_t>(operand->stride);
    bool is_plain = operand->operation == CUBLAS_OP_N;
    struct matrix matrix;

    matrix.type = type;
    matrix.at = static_cast<const char *>(operand->at) +
                batch * operand->batch_stride * static_cast<int64_t>(value_bytes(type));
    matrix.rows = static_cast<size_t>(rows);
    matrix.columns = static_cast<size_t>(columns);
    matrix.row_stride = is_plain ? 1 : stride;
    matrix.column_stride = is_plain ? stride : 1;
    return matrix;
}

static size_t matrix_bytes(const struct matrix *matrix)
{
    if (matrix->rows == 0 || matrix->columns == 0) return 0;
    return ((matrix->rows - 1) * matrix->row_stride +
            (matrix->columns - 1) * matrix->column_stride + 1) *
           value_bytes(matrix->type);
}

static void check_memory(const struct gemm_call *call, int device)
{
    if (call->batches > 1 && call->c.batch_stride == 0) {
        virtual_fatal("%s: the batches write to the same matrix", call->name);
    }
    for (int64_t batch = 0; batch < call->batches; batch++) {
        struct matrix a = matrix_of(&call->a, call->m, call->k, batch);
        struct matrix b = matrix_of(&call->b, call->k, call->n, batch);
        struct matrix c = matrix_of(&call->c, call->m, call->n, batch);

        library_reach(call->name, "A", a.at, matrix_bytes(&a), device);
        library_reach(call->name, "B", b.at, matrix_bytes(&b), device);
        library_reach(call->name, "C", c.at, matrix_bytes(&c), device);
        library_apart(call->name, c.at, matrix_bytes(&c), a.at, matrix_bytes(&a));
        library_apart(call->name, c.at, matrix_bytes(&c), b.at, matrix_bytes(&b));
    }
}

static void compute_batch(const struct gemm_call *call, enum value_rounding rounding, float alpha,
                          float beta, int64_t batch)
{
    struct matrix a = matrix_of(&call->a, call->m, call->k, batch);
    struct matrix b = matrix_of(&call->b, call->k, call->n, batch);
    struct matrix c = matrix_of(&call->c, call->m, call->n, batch);
    std::vector<float> sums = matrix_product(matrix_values(a, rounding), matrix_values(b, rounding),
                                             a.rows, b.columns, a.columns);

    for (size_t row = 0; row < c.rows; row++) {
        for (size_t column = 0; column < c.columns; column++) {
            size_t at = row * c.row_stride + column * c.column_stride;
            float value = alpha != 0.0f ? alpha * sums[row * c.columns + column] : 0.0f;
            if (beta != 0.0f) value += beta * value_get(c.type, c.at, at);
            value_put(c.type, const_cast<void *>(c.at), at, value);
        }
    }
}

static enum value_rounding rounding_of(cublasHandle_t handle, const struct gemm_call *call)
{
    if (call->a.type != CUDA_R_32F) return ROUND_NOTHING;
    if (call->compute == CUBLAS_COMPUTE_32F_FAST_16BF) return ROUND_BF16;
    if (call->compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
        call->compute == CUBLAS_COMPUTE_32F_FAST_16F) {
        return ROUND_TF32;
    }
    if (call->compute != CUBLAS_COMPUTE_32F) return ROUND_NOTHING;
    return handle->math == CUBLAS_TF32_TENSOR_OP_MATH || handle->math == CUBLAS_TENSOR_OP_MATH
               ? ROUND_TF32
               : ROUND_NOTHING;
}

static cublasStatus_t gemm(cublasHandle_t handle, struct gemm_call call, cublasGemmAlgo_t algo)
{
    cublasStatus_t status = enter(handle);
    bool is_on_host;

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (!is_operation(call.a.operation) || !is_operation(call.b.operation) ||
        !are_dimensions_valid(&call) || call.alpha == NULL || call.beta == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (algo < CUBLAS_GEMM_DEFAULT || algo > CUBLAS_GEMM_AUTOTUNE || !are_types_supported(&call)) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    if (call.m == 0 || call.n == 0 || call.batches == 0) return CUBLAS_STATUS_SUCCESS;
    if (call.c.at == NULL || (call.k > 0 && (call.a.at == NULL || call.b.at == NULL))) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (virtual_stream_device(NULL) != handle->device ||
        virtual_stream_device(handle->stream) != handle->device) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    check_memory(&call, handle->device);
    is_on_host = handle->pointers == CUBLAS_POINTER_MODE_HOST;
    if (!is_on_host) {
        library_reach(call.name, "alpha", call.alpha, sizeof(float), handle->device);
        library_reach(call.name, "beta", call.beta, sizeof(float), handle->device);
    }
    float alpha = is_on_host ? *static_cast<const float *>(call.alpha) : 0.0f;
    float beta = is_on_host ? *static_cast<const float *>(call.beta) : 0.0f;
    enum value_rounding rounding = rounding_of(handle, &call);
    void *workspace = handle->workspace;
    size_t touched =
        handle->workspace_bytes < WORKSPACE_TOUCHED ? handle->workspace_bytes : WORKSPACE_TOUCHED;
    cudaError_t error = virtual_queue(handle->stream, [=] {
        float a = is_on_host ? alpha : *static_cast<const float *>(call.alpha);
        float b = is_on_host ? beta : *static_cast<const float *>(call.beta);

        library_scribble(workspace, touched);
        for (int64_t batch = 0; batch < call.batches; batch++) {
            compute_batch(&call, rounding, a, b, batch);
        }
    });
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

extern "C" cublasStatus_t cublasSgemm_v2(cublasHandle_t handle, cublasOperation_t transa,
                                         cublasOperation_t transb, int m, int n, int k,
                                         const float *alpha, const float *A, int lda,
                                         const float *B, int ldb, const float *beta, float *C,
                                         int ldc)
{
    struct gemm_call call = {"cublasSgemm",
                             m,
                             n,
                             k,
                             {A, CUDA_R_32F, lda, 0, transa},
                             {B, CUDA_R_32F, ldb, 0, transb},
                             {C, CUDA_R_32F, ldc, 0, CUBLAS_OP_N},
                             alpha,
                             beta,
                             CUBLAS_COMPUTE_32F,
                             1};

    return gemm(handle, call, CUBLAS_GEMM_DEFAULT);
}

extern "C" cublasStatus_t cublasSgemmStridedBatched(cublasHandle_t handle, cublasOperation_t transa,
                                                    cublasOperation_t transb, int m, int n, int k,
                                                    const float *alpha, const float *A, int lda,
                                                    long long int strideA, const float *B, int ldb,
                                                    long long int strideB, const float *beta,
                                                    float *C, int ldc, long long int strideC,
                                                    int batchCount)
{
    struct gemm_call call = {"cublasSgemmStridedBatched",
                             m,
                             n,
                             k,
                             {A, CUDA_R_32F, lda, strideA, transa},
                             {B, CUDA_R_32F, ldb, strideB, transb},
                             {C, CUDA_R_32F, ldc, strideC, CUBLAS_OP_N},
                             alpha,
                             beta,
                             CUBLAS_COMPUTE_32F,
                             batchCount};

    return gemm(handle, call, CUBLAS_GEMM_DEFAULT);
}

extern "C" cublasStatus_t cublasGemmEx(cublasHandle_t handle, cublasOperation_t transa,
                                       cublasOperation_t transb, int m, int n, int k,
                                       const void *alpha, const void *A, cudaDataType Atype,
                                       int lda, const void *B, cudaDataType Btype, int ldb,
                                       const void *beta, void *C, cudaDataType Ctype, int ldc,
                                       cublasComputeType_t computeType, cublasGemmAlgo_t algo)
{
    struct gemm_call call = {"cublasGemmEx",
                             m,
                             n,
                             k,
                             {A, Atype, lda, 0, transa},
                             {B, Btype, ldb, 0, transb},
                             {C, Ctype, ldc, 0, CUBLAS_OP_N},
                             alpha,
                             beta,
                             computeType,
                             1};

    return gemm(handle, call, algo);
}

extern "C" cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k,
    const void *alpha, const void *A, cudaDataType Atype, int lda, long long int strideA,
    const void *B, cudaDataType Btype, int ldb, long long int strideB, const void *beta, void *C,
    cudaDataType Ctype, int ldc, long long int strideC, int batchCount,
    cublasComputeType_t computeType, cublasGemmAlgo_t algo)
{
    struct gemm_call call = {"cublasGemmStridedBatchedEx",
                             m,
                             n,
                             k,
                             {A, Atype, lda, strideA, transa},
                             {B, Btype, ldb, strideB, transb},
                             {C, Ctype, ldc, strideC, CUBLAS_OP_N},
                             alpha,
                             beta,
                             computeType,
                             batchCount};

    return gemm(handle, call, algo);
}
