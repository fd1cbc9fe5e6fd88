/*
 * A stand-in for cuBLASLt, after the cuBLAS Library User Guide and the comments of cublasLt.h: here
 * its handles and descriptors, in blas_lt_product.cpp cublasLtMatmul() with its epilogues.
 *
 * Descriptors take any value of the right size, as the real ones do; what does not fit together is
 * found by the heuristic and by the product.
 */
#include "tests/cuda/virtual/blas_lt.h"

#include <stddef.h>

extern "C" cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (handle == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    if (virtual_call() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    *handle = new cublasLtContext();
    (*handle)->magic = BLAS_LT_HANDLE_MAGIC;
    (*handle)->device = virtual_stream_device(NULL);
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    if (handle == NULL || handle->magic != BLAS_LT_HANDLE_MAGIC) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    (void)virtual_call();
    handle->magic = 0;
    delete handle;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- attributes --------------------------------------------------------------------------------*/

struct attribute {
    int name;
    size_t at, bytes;
};

#define ATTRIBUTE(name, type, member)                                                              \
    {                                                                                              \
        name, offsetof(struct type, member), sizeof(type::member)                                  \
    }

static const struct attribute layout_attributes[] = {
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_TYPE, blas_lt_layout, type),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ORDER, blas_lt_layout, order),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_ROWS, blas_lt_layout, rows),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_COLS, blas_lt_layout, columns),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_LD, blas_lt_layout, stride),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, blas_lt_layout, batches),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, blas_lt_layout, batch_stride),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_PLANE_OFFSET, blas_lt_layout, plane),
    ATTRIBUTE(CUBLASLT_MATRIX_LAYOUT_BATCH_MODE, blas_lt_layout, mode),
};

static const struct attribute operation_attributes[] = {
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, blas_lt_operation, compute),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SCALE_TYPE, blas_lt_operation, scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_POINTER_MODE, blas_lt_operation, pointers),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSA, blas_lt_operation, transa),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSB, blas_lt_operation, transb),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_TRANSC, blas_lt_operation, transc),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FILL_MODE, blas_lt_operation, fill),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE, blas_lt_operation, epilogue),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_POINTER, blas_lt_operation, bias),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE, blas_lt_operation, bias_batch_stride),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, blas_lt_operation, aux),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, blas_lt_operation, aux_stride),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE, blas_lt_operation, aux_batch_stride),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_ALPHA_VECTOR_BATCH_STRIDE, blas_lt_operation,
              alpha_batch_stride),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, blas_lt_operation, multiprocessors),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, blas_lt_operation, a_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, blas_lt_operation, b_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_C_SCALE_POINTER, blas_lt_operation, c_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_SCALE_POINTER, blas_lt_operation, d_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_AMAX_D_POINTER, blas_lt_operation, amax),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE, blas_lt_operation, aux_type),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_POINTER, blas_lt_operation, aux_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_AMAX_POINTER, blas_lt_operation, aux_amax),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_FAST_ACCUM, blas_lt_operation, fast_accumulation),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, blas_lt_operation, bias_type),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blas_lt_operation, a_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, blas_lt_operation, b_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_C_SCALE_MODE, blas_lt_operation, c_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_SCALE_MODE, blas_lt_operation, d_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_SCALE_MODE, blas_lt_operation, aux_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_POINTER, blas_lt_operation, d_out_scale),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE, blas_lt_operation, d_out_mode),
    ATTRIBUTE(CUBLASLT_MATMUL_DESC_EMULATION_DESCRIPTOR, blas_lt_operation, emulation),
};

static const struct attribute preference_attributes[] = {
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_SEARCH_MODE, blas_lt_preference, search),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, blas_lt_preference, workspace_bytes),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, blas_lt_preference, reductions),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, blas_lt_preference, a_alignment),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, blas_lt_preference, b_alignment),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, blas_lt_preference, c_alignment),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, blas_lt_preference, d_alignment),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT, blas_lt_preference, waves),
    ATTRIBUTE(CUBLASLT_MATMUL_PREF_IMPL_MASK, blas_lt_preference, implementations),
};

template <size_t N>
static const struct attribute *find(const struct attribute (&attributes)[N], int name)
{
    for (const struct attribute &attribute : attributes) {
        if (attribute.name == name) return &attribute;
    }
    return NULL;
}

static cublasStatus_t set(void *block, const struct attribute *attribute, const void *from,
                          size_t bytes)
{
    if (block == NULL || attribute == NULL || from == NULL || bytes != attribute->bytes) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memcpy(static_cast<char *>(block) + attribute->at, from, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t get(const void *block, const struct attribute *attribute, void *to,
                          size_t bytes, size_t *written)
{
    if (block == NULL || attribute == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    if (bytes == 0) {
        if (written == NULL) return CUBLAS_STATUS_INVALID_VALUE;
        *written = attribute->bytes;
        return CUBLAS_STATUS_SUCCESS;
    }
    if (to == NULL || bytes != attribute->bytes) return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(to, static_cast<const char *>(block) + attribute->at, bytes);
    if (written != NULL) *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
}

/* --- descriptors -------------------------------------------------------------------------------*/

static cublasStatus_t check_room(const void *block, size_t bytes, size_t wanted)
{
    if (block == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    return bytes < wanted ? CUBLAS_STATUS_ALLOC_FAILED : CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t block,
                                                            size_t bytes, cudaDataType type,
                                                            uint64_t rows, uint64_t columns,
                                                            int64_t stride)
{
    cublasStatus_t status = check_room(block, bytes, sizeof(*block));
    struct blas_lt_layout layout = {};

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    layout.type = type;
    layout.rows = rows;
    layout.columns = columns;
    layout.stride = stride;
    layout.batches = 1;
    memcpy(block, &layout, sizeof(layout));
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout,
                                                     cudaDataType type, uint64_t rows,
                                                     uint64_t columns, int64_t stride)
{
    if (layout == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *layout = new cublasLtMatrixLayoutOpaque_t();
    return cublasLtMatrixLayoutInit(*layout, type, rows, columns, stride);
}

extern "C" cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                           cublasLtMatrixLayoutAttribute_t name,
                                                           const void *from, size_t bytes)
{
    return set(layout, find(layout_attributes, name), from, bytes);
}

extern "C" cublasStatus_t cublasLtMatrixLayoutGetAttribute(cublasLtMatrixLayout_t layout,
                                                           cublasLtMatrixLayoutAttribute_t name,
                                                           void *to, size_t bytes, size_t *written)
{
    return get(layout, find(layout_attributes, name), to, bytes, written);
}

extern "C" cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t block, size_t bytes,
                                                          cublasComputeType_t compute,
                                                          cudaDataType_t scale)
{
    cublasStatus_t status = check_room(block, bytes, sizeof(*block));
    struct blas_lt_operation operation = {};

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    operation.compute = compute;
    operation.scale = scale;
    operation.fill = CUBLAS_FILL_MODE_FULL;
    operation.epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    operation.bias_type = -1;
    operation.aux_type = -1;
    memcpy(block, &operation, sizeof(operation));
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *operation,
                                                   cublasComputeType_t compute,
                                                   cudaDataType_t scale)
{
    if (operation == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *operation = new cublasLtMatmulDescOpaque_t();
    return cublasLtMatmulDescInit(*operation, compute, scale);
}

extern "C" cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    delete operation;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                                         cublasLtMatmulDescAttributes_t name,
                                                         const void *from, size_t bytes)
{
    return set(operation, find(operation_attributes, name), from, bytes);
}

extern "C" cublasStatus_t cublasLtMatmulDescGetAttribute(cublasLtMatmulDesc_t operation,
                                                         cublasLtMatmulDescAttributes_t name,
                                                         void *to, size_t bytes, size_t *written)
{
    return get(operation, find(operation_attributes, name), to, bytes, written);
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t block,
                                                                size_t bytes)
{
    cublasStatus_t status = check_room(block, bytes, sizeof(*block));
    struct blas_lt_preference preference = {};

    if (status != CUBLAS_STATUS_SUCCESS) return status;
    preference.implementations = UINT64_MAX;
    preference.reductions = CUBLASLT_REDUCTION_SCHEME_MASK;
    preference.a_alignment = preference.b_alignment = 256;
    preference.c_alignment = preference.d_alignment = 256;
    memcpy(block, &preference, sizeof(preference));
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    if (preference == NULL) return CUBLAS_STATUS_INVALID_VALUE;
    *preference = new cublasLtMatmulPreferenceOpaque_t();
    return cublasLtMatmulPreferenceInit(*preference);
}

extern "C" cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
}

extern "C" cublasStatus_t
cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t name, const void *from,
                                     size_t bytes)
{
    return set(preference, find(preference_attributes, name), from, bytes);
}

extern "C" cublasStatus_t
cublasLtMatmulPreferenceGetAttribute(cublasLtMatmulPreference_t preference,
                                     cublasLtMatmulPreferenceAttributes_t name, void *to,
                                     size_t bytes, size_t *written)
{
    return get(preference, find(preference_attributes, name), to, bytes, written);
}
