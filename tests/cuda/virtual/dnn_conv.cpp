/*
 * A stand-in for cuDNN's convolutions, after the cudnn_cnn library of the cuDNN API reference.
 *
 * Checked: that descriptors fit together (BAD_PARAM), that tensors and filters are packed in one
 * and the same format, NCHW or NHWC, and all of one type, with compute type float32 (otherwise
 * NOT_SUPPORTED), that the algorithm does take the shape, and has its workspace. The heuristics
 * list algorithms that do not work, with a status that says so, and for gradients put first one
 * that is not deterministic, and it is not: callers that want equal bits must look. Inputs in
 * float32 are rounded to TF32 unless the math type is CUDNN_FMA_MATH.
 */
#include "tests/cuda/virtual/dnn_conv.h"

#include <atomic>
#include <limits.h>

extern "C" cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *conv)
{
    if (conv == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!convDesc");
    *conv = new cudnnConvolutionStruct();
    (*conv)->groups = 1;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t conv)
{
    delete conv;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t conv,
                                                     cudnnMathType_t math)
{
    if (conv == NULL || math < CUDNN_DEFAULT_MATH || math > CUDNN_FMA_MATH) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!isValidMathType(mathType)");
    }
    conv->math = math;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetConvolutionMathType(cudnnConvolutionDescriptor_t conv,
                                                     cudnnMathType_t *math)
{
    if (conv == NULL || math == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!convDesc");
    *math = conv->math;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv,
                                                       int groups)
{
    if (conv == NULL || groups < 1) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "groupCount < 1");
    conv->groups = groups;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnGetConvolutionGroupCount(cudnnConvolutionDescriptor_t conv,
                                                       int *groups)
{
    if (conv == NULL || groups == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!convDesc");
    *groups = conv->groups;
    return CUDNN_STATUS_SUCCESS;
}

/* Math type and groups stay as they were. */
extern "C" cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t conv,
                                                         int pad_h, int pad_w, int u, int v,
                                                         int dilation_h, int dilation_w,
                                                         cudnnConvolutionMode_t mode,
                                                         cudnnDataType_t compute)
{
    if (conv == NULL || (mode != CUDNN_CONVOLUTION && mode != CUDNN_CROSS_CORRELATION)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "convDesc or mode");
    }
    if (pad_h < 0 || pad_w < 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "padA[i] < 0");
    if (u <= 0 || v <= 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "strideA[i] <= 0");
    if (dilation_h <= 0 || dilation_w <= 0) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "dilationA[i] <= 0");
    }
    if (compute != CUDNN_DATA_FLOAT && compute != CUDNN_DATA_DOUBLE && compute != CUDNN_DATA_HALF &&
        compute != CUDNN_DATA_INT32 && compute != CUDNN_DATA_FAST_FLOAT_FOR_FP8) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "computeType");
    }
    conv->is_set = true;
    conv->padding[0] = pad_h;
    conv->padding[1] = pad_w;
    conv->stride[0] = u;
    conv->stride[1] = v;
    conv->dilation[0] = dilation_h;
    conv->dilation[1] = dilation_w;
    conv->mode = mode;
    conv->compute = compute;
    return CUDNN_STATUS_SUCCESS;
}

/* --- shapes ------------------------------------------------------------------------------------*/

static int64_t out_size(int in, int kernel, const struct cudnnConvolutionStruct *conv, int i)
{
    int64_t window = 1 + static_cast<int64_t>(kernel - 1) * conv->dilation[i];
    int64_t room = static_cast<int64_t>(in) + 2 * conv->padding[i] - window;

    return room < 0 ? 0 : room / conv->stride[i] + 1;
}

extern "C" cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(
    const cudnnConvolutionDescriptor_t conv, const cudnnTensorDescriptor_t x,
    const cudnnFilterDescriptor_t filter, int *n, int *c, int *h, int *w)
{
    if (conv == NULL || x == NULL || filter == NULL || n == NULL || c == NULL || h == NULL ||
        w == NULL || !conv->is_set || !x->is_set || !filter->is_set || x->count != 4 ||
        filter->count != 4) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "descriptors");
    }
    if (static_cast<int64_t>(conv->groups) * filter->sizes[1] != x->sizes[1]) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "channels of the input and of the filters");
    }
    *n = x->sizes[0];
    *c = filter->sizes[0];
    *h = static_cast<int>(out_size(x->sizes[2], filter->sizes[2], conv, 0));
    *w = static_cast<int>(out_size(x->sizes[3], filter->sizes[3], conv, 1));
    if (*h > 0 && *w > 0) return CUDNN_STATUS_SUCCESS;
    return dnn_fail(CUDNN_STATUS_BAD_PARAM, "the output is empty");
}

static cudnnStatus_t check_fit(struct cudnnTensorStruct *x, struct cudnnFilterStruct *filter,
                               struct cudnnConvolutionStruct *conv,
                               const struct cudnnTensorStruct *y)
{
    int n, c, h, w;
    cudnnStatus_t status = cudnnGetConvolution2dForwardOutputDim(conv, x, filter, &n, &c, &h, &w);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (!y->is_set || y->count != 4 || y->sizes[0] != n || y->sizes[1] != c || y->sizes[2] != h ||
        y->sizes[3] != w) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "sizes of the output");
    }
    if (filter->sizes[0] % conv->groups != 0) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "groups do not divide the output's channels");
    }
    if (x->type != filter->type || x->type != y->type) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "types differ");
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t conv_shape_read(struct conv_shape *shape, const struct cudnnTensorStruct *x,
                              const struct cudnnFilterStruct *filter,
                              const struct cudnnConvolutionStruct *conv,
                              const struct cudnnTensorStruct *y)
{
    cudnnStatus_t status;
    size_t in, height, width;

    if (x == NULL || filter == NULL || conv == NULL || y == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "a descriptor is NULL");
    }
    shape->x = *x;
    shape->y = *y;
    shape->filter = *filter;
    shape->conv = *conv;
    status = check_fit(&shape->x, &shape->filter, &shape->conv, y);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (!dnn_is_supported_type(x->type) || conv->compute != CUDNN_DATA_FLOAT) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "types");
    }
    if (!dnn_is_packed(x, filter->format) || !dnn_is_packed(y, filter->format)) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "tensors are not as the filters are");
    }
    in = static_cast<size_t>(filter->sizes[1]);
    height = static_cast<size_t>(filter->sizes[2]);
    width = static_cast<size_t>(filter->sizes[3]);
    shape->taps = height * width;
    shape->pixels = static_cast<size_t>(y->sizes[2]) * static_cast<size_t>(y->sizes[3]);
    shape->group_in = in;
    shape->group_out = static_cast<size_t>(filter->sizes[0] / conv->groups);
    shape->filter_strides[0] = in * shape->taps;
    if (filter->format == CUDNN_TENSOR_NHWC) {
        shape->filter_strides[1] = 1;
        shape->filter_strides[2] = width * in;
        shape->filter_strides[3] = in;
    } else {
        shape->filter_strides[1] = shape->taps;
        shape->filter_strides[2] = width;
        shape->filter_strides[3] = 1;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* --- algorithms --------------------------------------------------------------------------------*/

enum algo_workspace { TAKES_NOTHING, TAKES_INDICES, TAKES_COLUMNS };

struct algo_rule {
    int algo;
    cudnnDeterminism_t determinism;
    enum algo_workspace workspace;
    bool is_for_nchw_only, is_supported;
};

static const struct algo_rule forward_rules[] = {
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM, CUDNN_DETERMINISTIC, TAKES_INDICES, false,
     true},
    {CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM, CUDNN_DETERMINISTIC, TAKES_NOTHING, false, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_GEMM, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, true},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD, CUDNN_DETERMINISTIC, TAKES_NOTHING, true, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_FWD_ALGO_DIRECT, CUDNN_DETERMINISTIC, TAKES_NOTHING, true, false},
};

static const struct algo_rule data_rules[] = {
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_0, CUDNN_NON_DETERMINISTIC, TAKES_NOTHING, false, true},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_1, CUDNN_DETERMINISTIC, TAKES_INDICES, false, true},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD, CUDNN_DETERMINISTIC, TAKES_NOTHING, true, false},
    {CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true,
     false},
};

static const struct algo_rule filter_rules[] = {
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0, CUDNN_NON_DETERMINISTIC, TAKES_NOTHING, false, true},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3, CUDNN_NON_DETERMINISTIC, TAKES_INDICES, true, true},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1, CUDNN_DETERMINISTIC, TAKES_COLUMNS, false, true},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true, false},
    {CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED, CUDNN_DETERMINISTIC, TAKES_COLUMNS, true,
     false},
};

static const struct algo_rule *rule_at(enum conv_pass pass, int rank)
{
    static const struct {
        const struct algo_rule *rules;
        size_t count;
    } passes[] = {
        {forward_rules, sizeof(forward_rules) / sizeof(*forward_rules)},
        {data_rules, sizeof(data_rules) / sizeof(*data_rules)},
        {filter_rules, sizeof(filter_rules) / sizeof(*filter_rules)},
    };

    return static_cast<size_t>(rank) < passes[pass].count ? &passes[pass].rules[rank] : NULL;
}

bool conv_algo_at(const struct conv_shape *shape, enum conv_pass pass, int rank,
                  struct conv_algo *algo)
{
    const struct algo_rule *rule = rule_at(pass, rank);

    if (rule == NULL) return false;
    algo->algo = rule->algo;
    algo->determinism = rule->determinism;
    algo->is_supported = rule->is_supported &&
                         !(rule->is_for_nchw_only && shape->filter.format != CUDNN_TENSOR_NCHW);
    algo->workspace_bytes = 0;
    if (algo->is_supported && rule->workspace == TAKES_INDICES) {
        algo->workspace_bytes = 4 * (shape->pixels + shape->taps) + 1;
    } else if (algo->is_supported && rule->workspace == TAKES_COLUMNS) {
        algo->workspace_bytes = 4 * shape->pixels * shape->taps * shape->group_in;
    }
    return true;
}

cudnnStatus_t conv_algo_find(const struct conv_shape *shape, enum conv_pass pass, int algo,
                             struct conv_algo *found)
{
    for (int rank = 0; conv_algo_at(shape, pass, rank, found); rank++) {
        if (found->algo != algo) continue;
        return found->is_supported ? CUDNN_STATUS_SUCCESS
                                   : dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "algo, for this shape");
    }
    return dnn_fail(CUDNN_STATUS_BAD_PARAM, "no such algo");
}

/* --- calls -------------------------------------------------------------------------------------*/

struct conv_call {
    const char *name;
    enum conv_pass pass;
    struct conv_shape shape;
    struct conv_algo algo;
    const void *x, *filter, *y; /* or their gradients; one is the output */
    struct conv_finish finish;
    float alpha, beta;
    void *workspace;
    bool is_backwards;
};

static void conv_run(const struct conv_call *call)
{
    const struct conv_shape *shape = &call->shape;

    library_scribble(call->workspace, call->algo.workspace_bytes);
    if (call->pass == PASS_FORWARD) {
        conv_forward(shape, call->x, call->filter, call->alpha, call->beta, &call->finish,
                     const_cast<void *>(call->y));
    } else if (call->pass == PASS_DATA) {
        conv_data(shape, call->filter, call->y, call->alpha, call->beta, call->is_backwards,
                  const_cast<void *>(call->x));
    } else {
        conv_filter(shape, call->x, call->y, call->alpha, call->beta, call->is_backwards,
                    const_cast<void *>(call->filter));
    }
}

static void check_memory(const struct conv_call *call, size_t workspace_bytes, int device)
{
    struct {
        const char *what;
        const void *at;
        size_t bytes;
    } ranges[] = {{"y", call->y, dnn_tensor_bytes(&call->shape.y)},
                  {"x", call->x, dnn_tensor_bytes(&call->shape.x)},
                  {"the filters", call->filter, dnn_filter_bytes(&call->shape.filter)},
                  {"the workspace", call->workspace, workspace_bytes}};
    int output = call->pass; /* in the order of enum conv_pass */

    for (int i = 0; i < 4; i++) {
        library_reach(call->name, ranges[i].what, ranges[i].at, ranges[i].bytes, device);
        if (i == output) continue;
        library_apart(call->name, ranges[output].at, ranges[output].bytes, ranges[i].at,
                      ranges[i].bytes);
    }
}

/* Queues it, after all checks that its descriptors did not need. */
static cudnnStatus_t conv_queue(cudnnHandle_t handle, struct conv_call *call, int algo,
                                size_t workspace_bytes)
{
    static std::atomic<unsigned> calls;
    cudnnStatus_t status = conv_algo_find(&call->shape, call->pass, algo, &call->algo);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (call->x == NULL || call->filter == NULL || call->y == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "a tensor is NULL");
    }
    if (workspace_bytes < call->algo.workspace_bytes ||
        (call->workspace == NULL && call->algo.workspace_bytes > 0)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "the workspace is too small");
    }
    status = dnn_check_device(handle);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    check_memory(call, workspace_bytes, handle->device);
    call->is_backwards = call->algo.determinism == CUDNN_NON_DETERMINISTIC && calls++ % 2 == 1;
    struct conv_call copy = *call;
    return virtual_queue(handle->stream, [copy] { conv_run(&copy); }) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "launch");
}

/* What all calls begin with. */
static cudnnStatus_t conv_begin(cudnnHandle_t handle, struct conv_call *call, const void *alpha,
                                const void *beta, const struct cudnnTensorStruct *x,
                                const struct cudnnFilterStruct *filter,
                                const struct cudnnConvolutionStruct *conv,
                                const struct cudnnTensorStruct *y)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (alpha == NULL || beta == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "alpha or beta");
    call->alpha = *static_cast<const float *>(alpha);
    call->beta = *static_cast<const float *>(beta);
    return conv_shape_read(&call->shape, x, filter, conv, y);
}

extern "C" cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t handle, const void *alpha,
                                                 const cudnnTensorDescriptor_t xDesc, const void *x,
                                                 const cudnnFilterDescriptor_t wDesc, const void *w,
                                                 const cudnnConvolutionDescriptor_t convDesc,
                                                 cudnnConvolutionFwdAlgo_t algo, void *workSpace,
                                                 size_t workSpaceSizeInBytes, const void *beta,
                                                 const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct conv_call call = {};
    cudnnStatus_t status = conv_begin(handle, &call, alpha, beta, xDesc, wDesc, convDesc, yDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    call.name = "cudnnConvolutionForward";
    call.pass = PASS_FORWARD;
    call.x = x;
    call.filter = w;
    call.y = y;
    call.workspace = workSpace;
    return conv_queue(handle, &call, algo, workSpaceSizeInBytes);
}

extern "C" cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t wDesc, const void *w,
    const cudnnTensorDescriptor_t dyDesc, const void *dy,
    const cudnnConvolutionDescriptor_t convDesc, cudnnConvolutionBwdDataAlgo_t algo,
    void *workSpace, size_t workSpaceSizeInBytes, const void *beta,
    const cudnnTensorDescriptor_t dxDesc, void *dx)
{
    struct conv_call call = {};
    cudnnStatus_t status = conv_begin(handle, &call, alpha, beta, dxDesc, wDesc, convDesc, dyDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    call.name = "cudnnConvolutionBackwardData";
    call.pass = PASS_DATA;
    call.x = dx;
    call.filter = w;
    call.y = dy;
    call.workspace = workSpace;
    return conv_queue(handle, &call, algo, workSpaceSizeInBytes);
}

extern "C" cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t xDesc, const void *x,
    const cudnnTensorDescriptor_t dyDesc, const void *dy,
    const cudnnConvolutionDescriptor_t convDesc, cudnnConvolutionBwdFilterAlgo_t algo,
    void *workSpace, size_t workSpaceSizeInBytes, const void *beta,
    const cudnnFilterDescriptor_t dwDesc, void *dw)
{
    struct conv_call call = {};
    cudnnStatus_t status = conv_begin(handle, &call, alpha, beta, xDesc, dwDesc, convDesc, dyDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    call.name = "cudnnConvolutionBackwardFilter";
    call.pass = PASS_FILTER;
    call.x = x;
    call.filter = dw;
    call.y = dy;
    call.workspace = workSpace;
    return conv_queue(handle, &call, algo, workSpaceSizeInBytes);
}

/* The documented conditions of the fused call. z is asked for even where alpha2 is 0. */
static cudnnStatus_t check_fused(const struct conv_shape *shape, const struct cudnnTensorStruct *z,
                                 const struct cudnnTensorStruct *bias,
                                 const struct cudnnActivationStruct *activation, int algo)
{
    if (memcmp(z->sizes, shape->y.sizes, sizeof(int) * 4) != 0 ||
        memcmp(z->strides, shape->y.strides, sizeof(int) * 4) != 0 || z->type != shape->y.type) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "zDesc and yDesc differ");
    }
    if (bias->count != 4 || bias->sizes[0] != 1 || bias->sizes[1] != shape->y.sizes[1] ||
        bias->sizes[2] != 1 || bias->sizes[3] != 1 || bias->strides[1] != 1 ||
        bias->type != shape->y.type) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "biasDesc");
    }
    if ((activation->mode != CUDNN_ACTIVATION_RELU &&
         activation->mode != CUDNN_ACTIVATION_IDENTITY) ||
        activation->nan != CUDNN_NOT_PROPAGATE_NAN) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "activationDesc");
    }
    if (activation->mode == CUDNN_ACTIVATION_IDENTITY &&
        algo != CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "identity needs IMPLICIT_PRECOMP_GEMM");
    }
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1, const cudnnTensorDescriptor_t xDesc, const void *x,
    const cudnnFilterDescriptor_t wDesc, const void *w, const cudnnConvolutionDescriptor_t convDesc,
    cudnnConvolutionFwdAlgo_t algo, void *workSpace, size_t workSpaceSizeInBytes,
    const void *alpha2, const cudnnTensorDescriptor_t zDesc, const void *z,
    const cudnnTensorDescriptor_t biasDesc, const void *bias,
    const cudnnActivationDescriptor_t activationDesc, const cudnnTensorDescriptor_t yDesc, void *y)
{
    struct conv_call call = {};
    cudnnStatus_t status = conv_begin(handle, &call, alpha1, alpha2, xDesc, wDesc, convDesc, yDesc);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (zDesc == NULL || z == NULL || biasDesc == NULL || bias == NULL || activationDesc == NULL ||
        !zDesc->is_set || !biasDesc->is_set || !activationDesc->is_set) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "z, bias or activationDesc");
    }
    status = check_fused(&call.shape, zDesc, biasDesc, activationDesc, algo);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    call.name = "cudnnConvolutionBiasActivationForward";
    call.pass = PASS_FORWARD;
    call.x = x;
    call.filter = w;
    call.y = y;
    call.workspace = workSpace;
    library_reach(call.name, "bias", bias, dnn_tensor_bytes(biasDesc), handle->device);
    library_apart(call.name, y, dnn_tensor_bytes(yDesc), bias, dnn_tensor_bytes(biasDesc));
    library_reach(call.name, "z", z, dnn_tensor_bytes(zDesc), handle->device);
    if (z != y) library_apart(call.name, y, dnn_tensor_bytes(yDesc), z, dnn_tensor_bytes(zDesc));
    call.finish.other = z;
    call.finish.other_alpha = call.beta;
    call.finish.bias = bias;
    call.finish.has_relu = activationDesc->mode == CUDNN_ACTIVATION_RELU;
    call.beta = 0.0f;
    return conv_queue(handle, &call, algo, workSpaceSizeInBytes);
}
