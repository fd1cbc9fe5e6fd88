/*
 * Choosing algorithms for the stand-in's convolutions, and gradients of biases: see dnn_conv.cpp.
 */
#include "tests/cuda/virtual/dnn_conv.h"

/* The results of a search, whose structures differ only in the type of `algo`. */
template <typename A, typename P>
static cudnnStatus_t list_algos(const struct conv_shape *shape, enum conv_pass pass, int requested,
                                int *returned, P *results, bool is_timed, size_t workspace_bytes)
{
    struct conv_algo algo;
    int count = 0;

    if (requested < 1 || returned == NULL || results == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "requestedAlgoCount, results");
    }
    for (int works = 1; works >= 0; works--) { /* those that do not work come last */
        for (int rank = 0; conv_algo_at(shape, pass, rank, &algo) && count < requested; rank++) {
            bool does_work = algo.is_supported && algo.workspace_bytes <= workspace_bytes;
            P *result = &results[count];

            if (does_work != (works == 1)) continue;
            memset(result, 0, sizeof(*result));
            result->algo = static_cast<A>(algo.algo);
            result->status = does_work ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
            result->time = is_timed && does_work ? 1.0f + static_cast<float>(rank) : -1.0f;
            result->memory = algo.workspace_bytes;
            result->determinism = algo.determinism;
            result->mathType = shape->conv.math;
            count++;
        }
    }
    *returned = count;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t max_count(cudnnHandle_t handle, int value, int *count)
{
    if (!dnn_is_handle(handle) || count == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!count");
    *count = value;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle,
                                                                     int *count)
{
    return max_count(handle, CUDNN_CONVOLUTION_FWD_ALGO_COUNT, count);
}

extern "C" cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle,
                                                                          int *count)
{
    return max_count(handle, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, count);
}

extern "C" cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle,
                                                                            int *count)
{
    return max_count(handle, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT, count);
}

static cudnnStatus_t begin(cudnnHandle_t handle, struct conv_shape *shape,
                           const struct cudnnTensorStruct *x,
                           const struct cudnnFilterStruct *filter,
                           const struct cudnnConvolutionStruct *conv,
                           const struct cudnnTensorStruct *y)
{
    cudnnStatus_t status = dnn_enter(handle);

    return status == CUDNN_STATUS_SUCCESS ? conv_shape_read(shape, x, filter, conv, y) : status;
}

extern "C" cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t filter,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y, const int requested,
    int *returned, cudnnConvolutionFwdAlgoPerf_t *results)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, x, filter, conv, y);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    return list_algos<cudnnConvolutionFwdAlgo_t>(&shape, PASS_FORWARD, requested, returned, results,
                                                 false, SIZE_MAX);
}

extern "C" cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t filter, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx, const int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, dx, filter, conv, dy);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    return list_algos<cudnnConvolutionBwdDataAlgo_t>(&shape, PASS_DATA, requested, returned,
                                                     results, false, SIZE_MAX);
}

extern "C" cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t filter,
    const int requested, int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, x, filter, conv, dy);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    return list_algos<cudnnConvolutionBwdFilterAlgo_t>(&shape, PASS_FILTER, requested, returned,
                                                       results, false, SIZE_MAX);
}

/* --- searches that try: they wait, and leave anything in the output ----------------------------*/

static cudnnStatus_t try_out(cudnnHandle_t handle, const char *name, const void *const inputs[2],
                             const size_t input_bytes[2], void *output, size_t output_bytes,
                             void *workspace, size_t workspace_bytes)
{
    cudnnStatus_t status = dnn_check_device(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (inputs[0] == NULL || inputs[1] == NULL || output == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor is NULL");
    }
    library_reach(name, "an input", inputs[0], input_bytes[0], handle->device);
    library_reach(name, "an input", inputs[1], input_bytes[1], handle->device);
    library_reach(name, "the output", output, output_bytes, handle->device);
    library_reach(name, "the workspace", workspace, workspace_bytes, handle->device);
    if (virtual_is_capturing(handle->stream)) {
        return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED_CUDART, "it waits, which is not captured");
    }
    if (virtual_queue(handle->stream,
                      [=] {
                          library_scribble(output, output_bytes);
                          library_scribble(workspace, workspace_bytes);
                      }) != cudaSuccess ||
        cudaStreamSynchronize(handle->stream) != cudaSuccess) {
        return dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "launch");
    }
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void *x,
    const cudnnFilterDescriptor_t wDesc, const void *w, const cudnnConvolutionDescriptor_t conv,
    const cudnnTensorDescriptor_t yDesc, void *y, const int requested, int *returned,
    cudnnConvolutionFwdAlgoPerf_t *results, void *workspace, size_t workspace_bytes)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, xDesc, wDesc, conv, yDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    const void *const inputs[] = {x, w};
    const size_t bytes[] = {dnn_tensor_bytes(xDesc), dnn_filter_bytes(wDesc)};
    status = try_out(handle, "cudnnFindConvolutionForwardAlgorithmEx", inputs, bytes, y,
                     dnn_tensor_bytes(yDesc), workspace, workspace_bytes);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return list_algos<cudnnConvolutionFwdAlgo_t>(&shape, PASS_FORWARD, requested, returned, results,
                                                 true, workspace_bytes);
}

extern "C" cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t wDesc, const void *w,
    const cudnnTensorDescriptor_t dyDesc, const void *dy, const cudnnConvolutionDescriptor_t conv,
    const cudnnTensorDescriptor_t dxDesc, void *dx, const int requested, int *returned,
    cudnnConvolutionBwdDataAlgoPerf_t *results, void *workspace, size_t workspace_bytes)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, dxDesc, wDesc, conv, dyDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    const void *const inputs[] = {dy, w};
    const size_t bytes[] = {dnn_tensor_bytes(dyDesc), dnn_filter_bytes(wDesc)};
    status = try_out(handle, "cudnnFindConvolutionBackwardDataAlgorithmEx", inputs, bytes, dx,
                     dnn_tensor_bytes(dxDesc), workspace, workspace_bytes);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return list_algos<cudnnConvolutionBwdDataAlgo_t>(&shape, PASS_DATA, requested, returned,
                                                     results, true, workspace_bytes);
}

extern "C" cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t xDesc, const void *x,
    const cudnnTensorDescriptor_t dyDesc, const void *dy, const cudnnConvolutionDescriptor_t conv,
    const cudnnFilterDescriptor_t dwDesc, void *dw, const int requested, int *returned,
    cudnnConvolutionBwdFilterAlgoPerf_t *results, void *workspace, size_t workspace_bytes)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, xDesc, dwDesc, conv, dyDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    const void *const inputs[] = {x, dy};
    const size_t bytes[] = {dnn_tensor_bytes(xDesc), dnn_tensor_bytes(dyDesc)};
    status = try_out(handle, "cudnnFindConvolutionBackwardFilterAlgorithmEx", inputs, bytes, dw,
                     dnn_filter_bytes(dwDesc), workspace, workspace_bytes);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    return list_algos<cudnnConvolutionBwdFilterAlgo_t>(&shape, PASS_FILTER, requested, returned,
                                                       results, true, workspace_bytes);
}

/* --- workspaces --------------------------------------------------------------------------------*/

static cudnnStatus_t workspace_of(const struct conv_shape *shape, enum conv_pass pass, int algo,
                                  size_t *bytes)
{
    struct conv_algo found;
    cudnnStatus_t status = conv_algo_find(shape, pass, algo, &found);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (bytes == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!sizeInBytes");
    *bytes = found.workspace_bytes;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t filter,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t y,
    cudnnConvolutionFwdAlgo_t algo, size_t *bytes)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, x, filter, conv, y);

    return status == CUDNN_STATUS_SUCCESS ? workspace_of(&shape, PASS_FORWARD, algo, bytes)
                                          : status;
}

extern "C" cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t filter, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t dx,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *bytes)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, dx, filter, conv, dy);

    return status == CUDNN_STATUS_SUCCESS ? workspace_of(&shape, PASS_DATA, algo, bytes) : status;
}

extern "C" cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t dy,
    const cudnnConvolutionDescriptor_t conv, const cudnnFilterDescriptor_t filter,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *bytes)
{
    struct conv_shape shape;
    cudnnStatus_t status = begin(handle, &shape, x, filter, conv, dy);

    return status == CUDNN_STATUS_SUCCESS ? workspace_of(&shape, PASS_FILTER, algo, bytes) : status;
}

/* --- gradients of biases -----------------------------------------------------------------------*/

static void bias_sums(const struct cudnnTensorStruct *dy, const void *from, float alpha, float beta,
                      void *to)
{
    enum value_type type = dnn_value_type(dy->type);

    for (int c = 0; c < dy->sizes[1]; c++) {
        double sum = 0.0;
        float value;

        for (int n = 0; n < dy->sizes[0]; n++) {
            for (int h = 0; h < dy->sizes[2]; h++) {
                for (int w = 0; w < dy->sizes[3]; w++) {
                    size_t at = static_cast<size_t>(n * dy->strides[0] + c * dy->strides[1] +
                                                    h * dy->strides[2] + w * dy->strides[3]);
                    sum += value_get(type, from, at);
                }
            }
        }
        value = alpha * static_cast<float>(sum);
        if (beta != 0.0f) value += beta * value_get(type, to, static_cast<size_t>(c));
        value_put(type, to, static_cast<size_t>(c), value);
    }
}

extern "C" cudnnStatus_t cudnnConvolutionBackwardBias(cudnnHandle_t handle, const void *alpha,
                                                      const cudnnTensorDescriptor_t dyDesc,
                                                      const void *dy, const void *beta,
                                                      const cudnnTensorDescriptor_t dbDesc,
                                                      void *db)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (alpha == NULL || beta == NULL || dyDesc == NULL || dy == NULL || dbDesc == NULL ||
        db == NULL || !dyDesc->is_set || !dbDesc->is_set || dyDesc->count != 4 ||
        dbDesc->count != 4 || dyDesc->type != dbDesc->type || dbDesc->sizes[0] != 1 ||
        dbDesc->sizes[1] != dyDesc->sizes[1] || dbDesc->sizes[2] != 1 || dbDesc->sizes[3] != 1) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "cudnnConvolutionBackwardBias()");
    }
    if (!dnn_is_supported_type(dyDesc->type)) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "cudnnConvolutionBackwardBias()");
    }
    status = dnn_check_device(handle);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    library_reach("cudnnConvolutionBackwardBias", "dy", dy, dnn_tensor_bytes(dyDesc),
                  handle->device);
    library_reach("cudnnConvolutionBackwardBias", "db", db, dnn_tensor_bytes(dbDesc),
                  handle->device);
    struct cudnnTensorStruct gradients = *dyDesc;
    float alpha_value = *static_cast<const float *>(alpha);
    float beta_value = *static_cast<const float *>(beta);
    return virtual_queue(handle->stream,
                         [=] { bias_sums(&gradients, dy, alpha_value, beta_value, db); }) ==
                   cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "launch");
}
