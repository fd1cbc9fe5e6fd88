/*
 * A stand-in for cuDNN 9.19: handles, descriptors, tensors of biases, and the graph API, which is
 * not supported, so that callers fall back. After the cuDNN API reference; what descriptors accept
 * is what the real library accepted when asked on a machine without a GPU. Convolutions:
 * dnn_conv.cpp; recurrent layers: dnn_recurrent.cpp.
 *
 * Values are float32 and bfloat16; other types can be described, but not computed with.
 */
#include "tests/cuda/virtual/dnn.h"

#include <limits.h>
#include <stdio.h>

/* The real library's, too, is kept for each thread. */
static thread_local char last_error[128];

cudnnStatus_t dnn_fail(cudnnStatus_t status, const char *reason)
{
    snprintf(last_error, sizeof(last_error), "%s", reason);
    return status;
}

cudnnStatus_t dnn_enter(cudnnHandle_t handle)
{
    if (handle == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle");
    if (!dnn_is_handle(handle)) return dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "no handle");
    if (virtual_call() == cudaSuccess) return CUDNN_STATUS_SUCCESS;
    return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "the device is lost");
}

cudnnStatus_t dnn_check_device(cudnnHandle_t handle)
{
    if (virtual_stream_device(NULL) != handle->device ||
        virtual_stream_device(handle->stream) != handle->device) {
        return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "another device than the handle's");
    }
    return CUDNN_STATUS_SUCCESS;
}

extern "C" size_t cudnnGetVersion(void)
{
    return CUDNN_VERSION;
}

extern "C" cudnnStatus_t cudnnCreate(cudnnHandle_t *handle)
{
    if (handle == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle");
    if (virtual_call() != cudaSuccess) {
        return dnn_fail(CUDNN_STATUS_NOT_INITIALIZED, "the device is lost");
    }
    *handle = new cudnnContext();
    (*handle)->magic = DNN_HANDLE_MAGIC;
    (*handle)->device = virtual_stream_device(NULL);
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
    if (!dnn_is_handle(handle)) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle");
    (void)virtual_call();
    handle->magic = 0;
    delete handle;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (stream != NULL && virtual_stream_device(stream) != handle->device) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "a stream of another device");
    }
    handle->stream = stream;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream)
{
    if (!dnn_is_handle(handle) || stream == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle || !streamId");
    }
    *stream = handle->stream;
    return CUDNN_STATUS_SUCCESS;
}

#define NAMED(status)                                                                              \
    case status:                                                                                   \
        return #status

extern "C" const char *cudnnGetErrorString(cudnnStatus_t status)
{
    switch (static_cast<int>(status)) {
        NAMED(CUDNN_STATUS_SUCCESS);
        NAMED(CUDNN_STATUS_NOT_INITIALIZED);
        NAMED(CUDNN_STATUS_BAD_PARAM);
        NAMED(CUDNN_STATUS_BAD_PARAM_NULL_POINTER);
        NAMED(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER);
        NAMED(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT);
        NAMED(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH);
        NAMED(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH);
        NAMED(CUDNN_STATUS_NOT_SUPPORTED);
        NAMED(CUDNN_STATUS_NOT_SUPPORTED_SHAPE);
        NAMED(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE);
        NAMED(CUDNN_STATUS_NOT_SUPPORTED_LAYOUT);
        NAMED(CUDNN_STATUS_INTERNAL_ERROR);
        NAMED(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED);
        NAMED(CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED);
        NAMED(CUDNN_STATUS_EXECUTION_FAILED);
        NAMED(CUDNN_STATUS_EXECUTION_FAILED_CUDART);
    default:
        return "CUDNN_UNKNOWN_STATUS";
    }
}

extern "C" void cudnnGetLastErrorString(char *message, size_t max_size)
{
    if (message == NULL || max_size == 0) return;
    snprintf(message, max_size, "%s", last_error);
    last_error[0] = '\0';
}

/* --- tensors -----------------------------------------------------------------------------------*/

static bool is_type(cudnnDataType_t type)
{
    return static_cast<int>(type) >= CUDNN_DATA_FLOAT &&
           static_cast<int>(type) <= CUDNN_DATA_COMPLEX_FP64;
}

static size_t type_bytes(cudnnDataType_t type)
{
    switch (type) {
    case CUDNN_DATA_DOUBLE:
    case CUDNN_DATA_INT64:
        return 8;
    case CUDNN_DATA_HALF:
    case CUDNN_DATA_BFLOAT16:
        return 2;
    case CUDNN_DATA_INT8:
    case CUDNN_DATA_UINT8:
        return 1;
    default:
        return 4;
    }
}

size_t dnn_tensor_bytes(const struct cudnnTensorStruct *tensor)
{
    int64_t last = 0;

    for (int i = 0; i < tensor->count; i++) {
        last += static_cast<int64_t>(tensor->sizes[i] - 1) * tensor->strides[i];
    }
    return static_cast<size_t>(last + 1) * type_bytes(tensor->type);
}

/* The position of dimension `rank` from the innermost outwards. */
static int dimension_at(cudnnTensorFormat_t format, int count, int rank)
{
    if (format != CUDNN_TENSOR_NHWC) return count - 1 - rank;
    if (rank == 0) return 1;
    return rank == count - 1 ? 0 : count - rank;
}

static void pack(cudnnTensorFormat_t format, int count, const int *sizes, int64_t *strides)
{
    int64_t stride = 1;

    for (int rank = 0; rank < count; rank++) {
        int i = dimension_at(format, count, rank);
        strides[i] = stride;
        stride *= sizes[i];
    }
}

bool dnn_is_packed(const struct cudnnTensorStruct *tensor, cudnnTensorFormat_t format)
{
    int64_t strides[CUDNN_DIM_MAX];

    pack(format, tensor->count, tensor->sizes, strides);
    for (int i = 0; i < tensor->count; i++) {
        if (tensor->sizes[i] != 1 && tensor->strides[i] != strides[i]) return false;
    }
    return true;
}

extern "C" cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *tensor)
{
    if (tensor == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!tensorDesc");
    *tensor = new cudnnTensorStruct();
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t tensor)
{
    delete tensor;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetTensorNdDescriptor(cudnnTensorDescriptor_t tensor,
                                                    cudnnDataType_t type, int count,
                                                    const int *sizes, const int *strides)
{
    int64_t last = 0;

    if (tensor == NULL || sizes == NULL || strides == NULL || !is_type(type)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "tensorDesc, dataType, dimA or strideA");
    }
    if (count > CUDNN_DIM_MAX) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "nbDims");
    if (count < 2) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "nbDims < 2");
    for (int i = 0; i < count; i++) {
        if (sizes[i] <= 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "dimA[i] <= 0");
        if (strides[i] == 0 && sizes[i] != 1) {
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "(strideA[i] == 0) && (dimA[i] != 1)");
        }
        last += static_cast<int64_t>(sizes[i] - 1) * strides[i];
    }
    if (last >= INT_MAX) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "more than 2^31 values");
    tensor->is_set = true;
    tensor->type = type;
    tensor->count = count;
    memcpy(tensor->sizes, sizes, static_cast<size_t>(count) * sizeof(*sizes));
    memcpy(tensor->strides, strides, static_cast<size_t>(count) * sizeof(*strides));
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetTensorNdDescriptorEx(cudnnTensorDescriptor_t tensor,
                                                      cudnnTensorFormat_t format,
                                                      cudnnDataType_t type, int count,
                                                      const int *sizes)
{
    int64_t packed[CUDNN_DIM_MAX];
    int strides[CUDNN_DIM_MAX];

    if (sizes == NULL || (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "dimA or format");
    }
    if (count > CUDNN_DIM_MAX) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "nbDims");
    if (count < 2) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "nbDims < 2");
    for (int i = 0; i < count; i++) {
        if (sizes[i] <= 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "dimA[i] <= 0");
    }
    pack(format, count, sizes, packed);
    for (int i = 0; i < count; i++) {
        if (packed[i] * sizes[i] >= INT_MAX) {
            return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "more than 2^31 values");
        }
        strides[i] = static_cast<int>(packed[i]);
    }
    return cudnnSetTensorNdDescriptor(tensor, type, count, sizes, strides);
}

extern "C" cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t tensor,
                                                    cudnnTensorFormat_t format,
                                                    cudnnDataType_t type, int n, int c, int h,
                                                    int w)
{
    const int sizes[4] = {n, c, h, w};

    if (n <= 0 || c <= 0 || h <= 0 || w <= 0) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "(n <= 0) || (c <= 0) || (h <= 0) || (w <= 0)");
    }
    return cudnnSetTensorNdDescriptorEx(tensor, format, type, 4, sizes);
}

extern "C" cudnnStatus_t cudnnSetTensor4dDescriptorEx(cudnnTensorDescriptor_t tensor,
                                                      cudnnDataType_t type, int n, int c, int h,
                                                      int w, int n_stride, int c_stride,
                                                      int h_stride, int w_stride)
{
    const int sizes[4] = {n, c, h, w}, strides[4] = {n_stride, c_stride, h_stride, w_stride};

    return cudnnSetTensorNdDescriptor(tensor, type, 4, sizes, strides);
}

extern "C" cudnnStatus_t cudnnGetTensor4dDescriptor(const cudnnTensorDescriptor_t tensor,
                                                    cudnnDataType_t *type, int *n, int *c, int *h,
                                                    int *w, int *n_stride, int *c_stride,
                                                    int *h_stride, int *w_stride)
{
    int *const sizes[4] = {n, c, h, w}, *const strides[4] = {n_stride, c_stride, h_stride,
                                                             w_stride};

    if (tensor == NULL || !tensor->is_set || tensor->count != 4) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "tensorDesc");
    }
    if (type != NULL) *type = tensor->type;
    for (int i = 0; i < 4; i++) {
        if (sizes[i] != NULL) *sizes[i] = tensor->sizes[i];
        if (strides[i] != NULL) *strides[i] = tensor->strides[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetTensorNdDescriptor(const cudnnTensorDescriptor_t tensor,
                                                    int requested, cudnnDataType_t *type,
                                                    int *count, int *sizes, int *strides)
{
    if (tensor == NULL || type == NULL || count == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "tensorDesc, dataType or nbDims");
    }
    *type = tensor->type;
    *count = tensor->count;
    for (int i = 0; i < requested && i < tensor->count; i++) {
        sizes[i] = tensor->sizes[i];
        strides[i] = tensor->strides[i];
    }
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t tensor,
                                                   size_t *bytes)
{
    if (tensor == NULL || !tensor->is_set || bytes == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "tensorDesc or size");
    }
    *bytes = dnn_tensor_bytes(tensor);
    return CUDNN_STATUS_SUCCESS;
}

/* --- filters, activations, dropout -------------------------------------------------------------*/

size_t dnn_filter_bytes(const struct cudnnFilterStruct *filter)
{
    size_t values = 1;

    for (int i = 0; i < filter->count; i++) {
        values *= static_cast<size_t>(filter->sizes[i]);
    }
    return values * type_bytes(filter->type);
}

extern "C" cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *filter)
{
    if (filter == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!filterDesc");
    *filter = new cudnnFilterStruct();
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t filter)
{
    delete filter;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetFilterNdDescriptor(cudnnFilterDescriptor_t filter,
                                                    cudnnDataType_t type,
                                                    cudnnTensorFormat_t format, int count,
                                                    const int *sizes)
{
    if (filter == NULL || sizes == NULL || !is_type(type) ||
        (format != CUDNN_TENSOR_NCHW && format != CUDNN_TENSOR_NHWC)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "filterDesc, dataType, format or filterDimA");
    }
    if (count < 3 || count > CUDNN_DIM_MAX) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "nbDims");
    }
    for (int i = 0; i < count; i++) {
        if (sizes[i] <= 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "filterDimA[i] <= 0");
    }
    filter->is_set = true;
    filter->type = type;
    filter->format = format;
    filter->count = count;
    memcpy(filter->sizes, sizes, static_cast<size_t>(count) * sizeof(*sizes));
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t filter,
                                                    cudnnDataType_t type,
                                                    cudnnTensorFormat_t format, int k, int c, int h,
                                                    int w)
{
    const int sizes[4] = {k, c, h, w};

    return cudnnSetFilterNdDescriptor(filter, type, format, 4, sizes);
}

extern "C" cudnnStatus_t cudnnGetFilterSizeInBytes(const cudnnFilterDescriptor_t filter,
                                                   size_t *bytes)
{
    if (filter == NULL || !filter->is_set || bytes == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "filterDesc or size");
    }
    *bytes = dnn_filter_bytes(filter);
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *activation)
{
    if (activation == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!activationDesc");
    *activation = new cudnnActivationStruct();
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetActivationDescriptor(cudnnActivationDescriptor_t activation,
                                                      cudnnActivationMode_t mode,
                                                      cudnnNanPropagation_t nan, double coefficient)
{
    if (activation == NULL || static_cast<int>(mode) < CUDNN_ACTIVATION_SIGMOID ||
        static_cast<int>(mode) > CUDNN_ACTIVATION_SWISH ||
        (nan != CUDNN_NOT_PROPAGATE_NAN && nan != CUDNN_PROPAGATE_NAN)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "activationDesc, mode or reluNanOpt");
    }
    activation->is_set = true;
    activation->mode = mode;
    activation->nan = nan;
    activation->coefficient = coefficient;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation)
{
    delete activation;
    return CUDNN_STATUS_SUCCESS;
}

enum { DROPOUT_STATES_BYTES = 4096 };

extern "C" cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *dropout)
{
    if (dropout == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!dropoutDesc");
    *dropout = new cudnnDropoutStruct();
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropout)
{
    delete dropout;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *bytes)
{
    if (!dnn_is_handle(handle) || bytes == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle");
    *bytes = DROPOUT_STATES_BYTES;
    return CUDNN_STATUS_SUCCESS;
}

/* "If states is NULL, the descriptor is only set", for a rate of 0. */
extern "C" cudnnStatus_t cudnnSetDropoutDescriptor(cudnnDropoutDescriptor_t dropout,
                                                   cudnnHandle_t handle, float rate, void *states,
                                                   size_t bytes, unsigned long long seed)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (dropout == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle || !dropoutDesc");
    if (!(rate >= 0.0f && rate <= 1.0f)) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "dropout");
    if (states != NULL && bytes < DROPOUT_STATES_BYTES) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "stateSizeInBytes");
    }
    if (states != NULL) {
        library_reach("cudnnSetDropoutDescriptor", "states", states, bytes, handle->device);
        if (virtual_queue(handle->stream, [=] { memset(states, 0, bytes); }) != cudaSuccess) {
            return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "launch");
        }
    }
    dropout->rate = rate;
    dropout->states = states;
    dropout->seed = seed;
    return CUDNN_STATUS_SUCCESS;
}

enum value_rounding dnn_rounding(cudnnDataType_t type, cudnnMathType_t math)
{
    if (type != CUDNN_DATA_FLOAT || math == CUDNN_FMA_MATH) return ROUND_NOTHING;
    return ROUND_TF32;
}

/* --- adding a bias -----------------------------------------------------------------------------*/

/* Each dimension of `from` is 1 or that of `to`. */
static bool is_broadcast(const struct cudnnTensorStruct *from, const struct cudnnTensorStruct *to)
{
    if (from->count != to->count || from->type != to->type) return false;
    for (int i = 0; i < to->count; i++) {
        if (from->sizes[i] != 1 && from->sizes[i] != to->sizes[i]) return false;
    }
    return true;
}

static void add_tensor(const struct cudnnTensorStruct *a, const void *from, float alpha, float beta,
                       const struct cudnnTensorStruct *c, void *to)
{
    enum value_type type = dnn_value_type(c->type);
    int at[CUDNN_DIM_MAX] = {0};
    int last = 0;

    while (last >= 0) {
        size_t a_at = 0, c_at = 0;
        float value;

        for (int i = 0; i < c->count; i++) {
            a_at += static_cast<size_t>(a->sizes[i] == 1 ? 0 : at[i] * a->strides[i]);
            c_at += static_cast<size_t>(at[i]) * static_cast<size_t>(c->strides[i]);
        }
        value = alpha * value_get(type, from, a_at);
        if (beta != 0.0f) value += beta * value_get(type, to, c_at);
        value_put(type, to, c_at, value);
        for (last = c->count - 1; last >= 0 && ++at[last] == c->sizes[last]; last--) {
            at[last] = 0;
        }
    }
}

extern "C" cudnnStatus_t cudnnAddTensor(cudnnHandle_t handle, const void *alpha,
                                        const cudnnTensorDescriptor_t aDesc, const void *A,
                                        const void *beta, const cudnnTensorDescriptor_t cDesc,
                                        void *C)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (alpha == NULL || beta == NULL || aDesc == NULL || cDesc == NULL || A == NULL || C == NULL ||
        !aDesc->is_set || !cDesc->is_set || !is_broadcast(aDesc, cDesc)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnAddTensor()");
    }
    if (cDesc->count > 5 || !dnn_is_supported_type(cDesc->type)) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "cudnnAddTensor()");
    }
    status = dnn_check_device(handle);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    library_reach("cudnnAddTensor", "A", A, dnn_tensor_bytes(aDesc), handle->device);
    library_reach("cudnnAddTensor", "C", C, dnn_tensor_bytes(cDesc), handle->device);
    library_apart("cudnnAddTensor", C, dnn_tensor_bytes(cDesc), A, dnn_tensor_bytes(aDesc));
    struct cudnnTensorStruct a = *aDesc, c = *cDesc;
    float alpha_value = *static_cast<const float *>(alpha);
    float beta_value = *static_cast<const float *>(beta);
    cudaError_t error =
        virtual_queue(handle->stream, [=] { add_tensor(&a, A, alpha_value, beta_value, &c, C); });
    return error == cudaSuccess ? CUDNN_STATUS_SUCCESS
                                : dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "launch");
}

/* --- the graph API -----------------------------------------------------------------------------*/

static cudnnStatus_t no_graphs(void)
{
    return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "the stand-in has no graph API");
}

extern "C" cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                                      cudnnBackendDescriptor_t *descriptor)
{
    if (descriptor != NULL) *descriptor = NULL;
    return no_graphs();
}

extern "C" cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor)
{
    return no_graphs();
}

extern "C" cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor)
{
    return no_graphs();
}

extern "C" cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor,
                                                  cudnnBackendAttributeName_t name,
                                                  cudnnBackendAttributeType_t type, int64_t count,
                                                  const void *elements)
{
    return no_graphs();
}

extern "C" cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor,
                                                  cudnnBackendAttributeName_t name,
                                                  cudnnBackendAttributeType_t type,
                                                  int64_t requested, int64_t *count, void *elements)
{
    return no_graphs();
}

extern "C" cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                             cudnnBackendDescriptor_t variants)
{
    return no_graphs();
}
