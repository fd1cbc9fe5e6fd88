/*
 * A stand-in for cuDNN's recurrent layers (version 8 of their API), after the cudnn_adv library of
 * the cuDNN API reference: one unidirectional layer of CUDNN_RNN_TANH, CUDNN_LSTM or CUDNN_GRU with
 * a linear input and two biases, in the layouts that are not packed. Arithmetic:
 * dnn_recurrent_compute.cpp.
 *
 * The weight space has an order of its own, with gaps, so that callers must ask
 * cudnnGetRNNWeightParams(). The reserve space remembers what was done with it: gradients of
 * weights without those of data before them abort.
 */
#include "tests/cuda/virtual/dnn_recurrent.h"

extern "C" cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *rnn)
{
    if (rnn == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!rnnDesc");
    *rnn = new cudnnRNNStruct();
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn)
{
    delete rnn;
    return CUDNN_STATUS_SUCCESS;
}

static bool is_math_supported(cudnnDataType_t type, cudnnDataType_t math)
{
    if (type == CUDNN_DATA_HALF) return math == CUDNN_DATA_HALF || math == CUDNN_DATA_FLOAT;
    if (type == CUDNN_DATA_DOUBLE) return math == CUDNN_DATA_DOUBLE;
    return dnn_is_supported_type(type) && math == CUDNN_DATA_FLOAT;
}

extern "C" cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algo, cudnnRNNMode_t cell, cudnnRNNBiasMode_t bias,
    cudnnDirectionMode_t direction, cudnnRNNInputMode_t input, cudnnDataType_t type,
    cudnnDataType_t precision, cudnnMathType_t math, int32_t input_size, int32_t hidden_size,
    int32_t projected_size, int32_t layers, cudnnDropoutDescriptor_t dropout, uint32_t flags)
{
    if (rnn == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!rnnDesc");
    if (input_size < 1 || hidden_size < 1 || layers < 1) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "inputSize < 1 || hiddenSize < 1 || numLayers < 1");
    }
    if (projected_size <= 0) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "projSize <= 0");
    if ((flags & ~CUDNN_RNN_PADDED_IO_ENABLED) != 0) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "auxFlags");
    }
    if (algo < CUDNN_RNN_ALGO_STANDARD || algo >= CUDNN_RNN_ALGO_COUNT || cell < CUDNN_RNN_RELU ||
        cell > CUDNN_GRU || bias < CUDNN_RNN_NO_BIAS || bias > CUDNN_RNN_SINGLE_REC_BIAS ||
        math < CUDNN_DEFAULT_MATH || math > CUDNN_FMA_MATH) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "a mode");
    }
    if (!is_math_supported(type, precision)) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "dataType, mathPrec");
    }
    if (projected_size > hidden_size || (projected_size < hidden_size && cell != CUDNN_LSTM)) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "projSize");
    }
    rnn->is_set = true;
    rnn->algo = algo;
    rnn->cell = cell;
    rnn->bias = bias;
    rnn->direction = direction;
    rnn->input_mode = input;
    rnn->type = type;
    rnn->math = math;
    rnn->input = static_cast<size_t>(input_size);
    rnn->hidden = static_cast<size_t>(hidden_size);
    rnn->projected = static_cast<size_t>(projected_size);
    rnn->layers = layers;
    rnn->rate = dropout != NULL ? dropout->rate : 0.0f;
    rnn->is_padded = (flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0;
    return CUDNN_STATUS_SUCCESS;
}

/* What the stand-in can compute with. */
static bool is_supported(const struct cudnnRNNStruct *rnn)
{
    return rnn->algo == CUDNN_RNN_ALGO_STANDARD && rnn->cell != CUDNN_RNN_RELU &&
           rnn->bias == CUDNN_RNN_DOUBLE_BIAS && rnn->direction == CUDNN_UNIDIRECTIONAL &&
           rnn->input_mode == CUDNN_LINEAR_INPUT && dnn_is_supported_type(rnn->type) &&
           rnn->projected == rnn->hidden && rnn->layers == 1;
}

/* --- data --------------------------------------------------------------------------------------*/

extern "C" cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *data)
{
    if (data == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!rnnDataDesc");
    *data = new cudnnRNNDataStruct();
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t data)
{
    delete data;
    return CUDNN_STATUS_SUCCESS;
}

extern "C" cudnnStatus_t cudnnSetRNNDataDescriptor(cudnnRNNDataDescriptor_t data,
                                                   cudnnDataType_t type,
                                                   cudnnRNNDataLayout_t layout, int steps,
                                                   int samples, int width, const int *lengths,
                                                   void *fill)
{
    bool is_packed = layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;

    if (data == NULL || lengths == NULL || steps <= 0 || samples <= 0 || width <= 0) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM,
                        "maxSeqLength <= 0 || batchSize <= 0 || vectorSize <= 0 || NULL");
    }
    if (layout < CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED ||
        layout > CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "layout");
    }
    if (type != CUDNN_DATA_HALF && type != CUDNN_DATA_DOUBLE && !dnn_is_supported_type(type)) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "dataType");
    }
    for (int i = 0; i < samples; i++) {
        if (lengths[i] < 0 || lengths[i] > steps) {
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "currentSeqLength");
        }
        if (is_packed && i > 0 && lengths[i] > lengths[i - 1]) {
            return dnn_fail(CUDNN_STATUS_BAD_PARAM, "isSortedSequences == false");
        }
    }
    data->is_set = true;
    data->type = type;
    data->layout = layout;
    data->steps = static_cast<size_t>(steps);
    data->samples = static_cast<size_t>(samples);
    data->width = static_cast<size_t>(width);
    data->lengths.assign(lengths, lengths + samples);
    data->has_fill = fill != NULL;
    data->fill =
        fill != NULL && dnn_is_supported_type(type) ? value_get(dnn_value_type(type), fill, 0) : 0;
    return CUDNN_STATUS_SUCCESS;
}

/* --- weights -----------------------------------------------------------------------------------*/

static const size_t WEIGHT_ALIGNMENT = 128, WEIGHT_GAP = 64;

static size_t padded(size_t bytes)
{
    return (bytes + WEIGHT_GAP + WEIGHT_ALIGNMENT - 1) / WEIGHT_ALIGNMENT * WEIGHT_ALIGNMENT;
}

/* Biases lie in front of matrices, both from the last to the first, with gaps. */
void rnn_find(const struct cudnnRNNStruct *rnn, size_t linear, struct rnn_place *place)
{
    size_t linears = 2 * rnn_gates(rnn), bytes = value_bytes(dnn_value_type(rnn->type));
    size_t at = WEIGHT_ALIGNMENT;

    for (size_t i = linears; i-- > 0;) {
        if (i == linear) place->bias = at;
        at += padded(rnn->hidden * bytes);
    }
    for (size_t i = linears; i-- > 0;) {
        if (i == linear) place->matrix = at;
        at += padded(rnn->hidden * rnn_columns(rnn, i) * bytes);
    }
    place->end = at;
}

extern "C" cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                                    size_t *bytes)
{
    struct rnn_place place;
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (rnn == NULL || bytes == NULL || !rnn->is_set) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "!handle || !rnnDesc || !weightSpaceSize");
    }
    if (!is_supported(rnn)) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "rnnDesc");
    rnn_find(rnn, 0, &place);
    *bytes = place.end;
    return CUDNN_STATUS_SUCCESS;
}

/* A projection that there is not: "dimensions are zero, the address is NULL". */
static void set_nothing(cudnnTensorDescriptor_t tensor, void **at)
{
    tensor->is_set = true;
    tensor->count = 3;
    memset(tensor->sizes, 0, sizeof(tensor->sizes));
    memset(tensor->strides, 0, sizeof(tensor->strides));
    *at = NULL;
}

extern "C" cudnnStatus_t cudnnGetRNNWeightParams(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                                 int32_t layer, size_t weight_bytes,
                                                 const void *weights, int32_t linear,
                                                 cudnnTensorDescriptor_t matrix, void **matrix_at,
                                                 cudnnTensorDescriptor_t bias, void **bias_at)
{
    struct rnn_place place;
    cudnnStatus_t status = dnn_enter(handle);
    char *base = static_cast<char *>(const_cast<void *>(weights));

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (rnn == NULL || !rnn->is_set || weights == NULL || matrix == NULL || matrix_at == NULL ||
        bias == NULL || bias_at == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "an argument is NULL");
    }
    if (!is_supported(rnn)) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "rnnDesc");
    if (layer < 0 || layer >= rnn->layers) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "pseudoLayer");
    if (rnn->cell == CUDNN_LSTM && linear == 8) {
        set_nothing(matrix, matrix_at);
        set_nothing(bias, bias_at);
        return CUDNN_STATUS_SUCCESS;
    }
    if (linear < 0 || static_cast<size_t>(linear) >= 2 * rnn_gates(rnn)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "linLayerID");
    }
    rnn_find(rnn, static_cast<size_t>(linear), &place);
    if (weight_bytes < place.end) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "weightSpaceSize");
    int hidden = static_cast<int>(rnn->hidden);
    int columns = static_cast<int>(rnn_columns(rnn, static_cast<size_t>(linear)));
    const int matrix_sizes[] = {1, hidden, columns}, bias_sizes[] = {1, hidden, 1};
    const int matrix_strides[] = {hidden * columns, columns, 1}, bias_strides[] = {hidden, 1, 1};

    (void)cudnnSetTensorNdDescriptor(matrix, rnn->type, 3, matrix_sizes, matrix_strides);
    (void)cudnnSetTensorNdDescriptor(bias, rnn->type, 3, bias_sizes, bias_strides);
    *matrix_at = base + place.matrix;
    *bias_at = base + place.bias;
    return CUDNN_STATUS_SUCCESS;
}

/* --- temporary memory --------------------------------------------------------------------------*/

static const size_t WORKSPACE_BYTES = 4096;

static size_t reserve_bytes(const struct cudnnRNNStruct *rnn, const struct cudnnRNNDataStruct *x)
{
    return sizeof(struct rnn_reserve) +
           rnn_saved_values(rnn) * x->steps * x->samples * sizeof(float);
}

extern "C" cudnnStatus_t cudnnGetRNNTempSpaceSizes(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn,
                                                   cudnnForwardMode_t mode,
                                                   cudnnRNNDataDescriptor_t x,
                                                   size_t *workspace_bytes, size_t *bytes)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (rnn == NULL || x == NULL || !rnn->is_set || !x->is_set ||
        (mode != CUDNN_FWD_MODE_INFERENCE && mode != CUDNN_FWD_MODE_TRAINING) ||
        rnn->type != x->type || x->width != rnn->input) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "rnnDesc, fwdMode or xDesc");
    }
    if (!is_supported(rnn)) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "rnnDesc");
    if (workspace_bytes != NULL) *workspace_bytes = WORKSPACE_BYTES;
    if (bytes != NULL) *bytes = mode == CUDNN_FWD_MODE_TRAINING ? reserve_bytes(rnn, x) : 0;
    return CUDNN_STATUS_SUCCESS;
}

/* --- passes ------------------------------------------------------------------------------------*/

/* x, y and states fit the layer and each other. */
static cudnnStatus_t check_data(const struct cudnnRNNStruct *rnn,
                                const struct cudnnRNNDataStruct *x,
                                const struct cudnnRNNDataStruct *y)
{
    if (rnn == NULL || x == NULL || y == NULL || !rnn->is_set || !x->is_set || !y->is_set) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "rnnDesc, xDesc or yDesc");
    }
    if (!is_supported(rnn)) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "rnnDesc");
    if (x->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED) {
        return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "packed layouts");
    }
    if (!rnn->is_padded) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "this layout needs CUDNN_RNN_PADDED_IO_ENABLED");
    }
    if (x->type != rnn->type || y->type != rnn->type || x->width != rnn->input ||
        y->width != rnn->projected || x->layout != y->layout || x->steps != y->steps ||
        x->samples != y->samples || x->lengths != y->lengths) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "xDesc and yDesc");
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_state(const struct cudnnRNNStruct *rnn,
                                 const struct cudnnRNNDataStruct *x,
                                 const struct cudnnTensorStruct *state)
{
    int samples = static_cast<int>(x->samples), hidden = static_cast<int>(rnn->hidden);

    if (state == NULL || !state->is_set || state->count != 3 || state->type != rnn->type ||
        state->sizes[0] != rnn->layers || state->sizes[1] != samples || state->sizes[2] != hidden ||
        state->strides[1] != hidden || state->strides[2] != 1) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "hDesc or cDesc");
    }
    return CUDNN_STATUS_SUCCESS;
}

static void fill_call(struct rnn_call *call, const struct cudnnRNNStruct *rnn,
                      const struct cudnnRNNDataStruct *x)
{
    call->rnn = *rnn;
    call->data = *x;
}

static size_t data_bytes(const struct cudnnRNNDataStruct *data)
{
    return data->steps * data->samples * data->width * value_bytes(dnn_value_type(data->type));
}

static void reach_state(const struct rnn_call *call, const char *what, const void *state,
                        int device)
{
    size_t bytes =
        call->data.samples * call->rnn.hidden * value_bytes(dnn_value_type(call->rnn.type));

    if (state != NULL) library_reach(call->name, what, state, bytes, device);
}

/* Weights, workspace, reserve space. */
static cudnnStatus_t check_spaces(const struct rnn_call *call, size_t weight_bytes,
                                  size_t workspace_bytes, size_t reserved_bytes, bool is_training,
                                  int device)
{
    struct rnn_place place;
    size_t reserve = is_training ? reserve_bytes(&call->rnn, &call->data) : 0;

    rnn_find(&call->rnn, 0, &place);
    if (weight_bytes < place.end || call->weights == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "weightSpace");
    }
    if (workspace_bytes < WORKSPACE_BYTES || call->workspace == NULL) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "workSpace");
    }
    if (reserved_bytes < reserve || (call->reserve == NULL && reserve > 0)) {
        return dnn_fail(CUDNN_STATUS_BAD_PARAM, "reserveSpace");
    }
    library_reach(call->name, "weightSpace", call->weights, place.end, device);
    library_reach(call->name, "workSpace", call->workspace, WORKSPACE_BYTES, device);
    library_reach(call->name, "reserveSpace", call->reserve, reserve, device);
    library_apart(call->name, call->workspace, WORKSPACE_BYTES, call->reserve, reserve);
    library_apart(call->name, call->workspace, WORKSPACE_BYTES, call->weights, place.end);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t queue(cudnnHandle_t handle, const struct rnn_call *call,
                           void (*pass)(const struct rnn_call *))
{
    struct rnn_call copy = *call;
    auto work = [copy, pass] {
        library_scribble(copy.workspace, WORKSPACE_BYTES);
        pass(&copy);
    };

    return virtual_queue(handle->stream, work) == cudaSuccess
               ? CUDNN_STATUS_SUCCESS
               : dnn_fail(CUDNN_STATUS_EXECUTION_FAILED, "launch");
}

/* Entry of the passes: descriptors, device. hDesc and cDesc count where states are given. */
static cudnnStatus_t begin(cudnnHandle_t handle, struct rnn_call *call, cudnnRNNDescriptor_t rnn,
                           cudnnRNNDataDescriptor_t x, cudnnRNNDataDescriptor_t y,
                           cudnnTensorDescriptor_t h, bool has_h, cudnnTensorDescriptor_t c,
                           bool has_c)
{
    cudnnStatus_t status = dnn_enter(handle);

    if (status == CUDNN_STATUS_SUCCESS) status = check_data(rnn, x, y);
    if (status == CUDNN_STATUS_SUCCESS && has_h) status = check_state(rnn, x, h);
    if (status == CUDNN_STATUS_SUCCESS && has_c && rnn->cell == CUDNN_LSTM) {
        status = check_state(rnn, x, c);
    }
    if (status == CUDNN_STATUS_SUCCESS) status = dnn_check_device(handle);
    if (status == CUDNN_STATUS_SUCCESS) fill_call(call, rnn, x);
    return status;
}

/* devSeqLengths has not been looked at since version 8.9.1. */
extern "C" cudnnStatus_t
cudnnRNNForward(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, cudnnForwardMode_t fwdMode,
                const int32_t *devSeqLengths, cudnnRNNDataDescriptor_t xDesc, const void *x,
                cudnnRNNDataDescriptor_t yDesc, void *y, cudnnTensorDescriptor_t hDesc,
                const void *hx, void *hy, cudnnTensorDescriptor_t cDesc, const void *cx, void *cy,
                size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize,
                void *workSpace, size_t reserveSpaceSize, void *reserveSpace)
{
    struct rnn_call call = {};
    bool is_training = fwdMode == CUDNN_FWD_MODE_TRAINING;
    cudnnStatus_t status = begin(handle, &call, rnnDesc, xDesc, yDesc, hDesc,
                                 hx != NULL || hy != NULL, cDesc, cx != NULL || cy != NULL);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (x == NULL || y == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "x or y");
    call.name = "cudnnRNNForward";
    call.x = x;
    call.y = y;
    call.hx = hx;
    call.hy = hy;
    call.cx = rnnDesc->cell == CUDNN_LSTM ? cx : NULL;
    call.cy = rnnDesc->cell == CUDNN_LSTM ? cy : NULL;
    call.weights = const_cast<void *>(weightSpace);
    call.workspace = workSpace;
    call.reserve = is_training ? reserveSpace : NULL;
    status = check_spaces(&call, weightSpaceSize, workSpaceSize, reserveSpaceSize, is_training,
                          handle->device);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    library_reach(call.name, "x", x, data_bytes(xDesc), handle->device);
    library_reach(call.name, "y", y, data_bytes(yDesc), handle->device);
    library_apart(call.name, y, data_bytes(yDesc), x, data_bytes(xDesc));
    reach_state(&call, "hx", hx, handle->device);
    reach_state(&call, "hy", hy, handle->device);
    reach_state(&call, "cx", call.cx, handle->device);
    reach_state(&call, "cy", call.cy, handle->device);
    return queue(handle, &call, rnn_forward);
}

extern "C" cudnnStatus_t
cudnnRNNBackwardData_v8(cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc,
                        const int32_t *devSeqLengths, cudnnRNNDataDescriptor_t yDesc, const void *y,
                        const void *dy, cudnnRNNDataDescriptor_t xDesc, void *dx,
                        cudnnTensorDescriptor_t hDesc, const void *hx, const void *dhy, void *dhx,
                        cudnnTensorDescriptor_t cDesc, const void *cx, const void *dcy, void *dcx,
                        size_t weightSpaceSize, const void *weightSpace, size_t workSpaceSize,
                        void *workSpace, size_t reserveSpaceSize, void *reserveSpace)
{
    struct rnn_call call = {};
    cudnnStatus_t status =
        begin(handle, &call, rnnDesc, xDesc, yDesc, hDesc, hx != NULL || dhy != NULL || dhx != NULL,
              cDesc, cx != NULL || dcy != NULL || dcx != NULL);
    bool is_lstm;

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (y == NULL || dy == NULL || dx == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "y, dy, dx");
    is_lstm = rnnDesc->cell == CUDNN_LSTM;
    call.name = "cudnnRNNBackwardData_v8";
    call.y = const_cast<void *>(y);
    call.dy = dy;
    call.dx = dx;
    call.hx = hx;
    call.dhy = dhy;
    call.dhx = dhx;
    call.cx = is_lstm ? cx : NULL;
    call.dcy = is_lstm ? dcy : NULL;
    call.dcx = is_lstm ? dcx : NULL;
    call.weights = const_cast<void *>(weightSpace);
    call.workspace = workSpace;
    call.reserve = reserveSpace;
    status =
        check_spaces(&call, weightSpaceSize, workSpaceSize, reserveSpaceSize, true, handle->device);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    library_reach(call.name, "y", y, data_bytes(yDesc), handle->device);
    library_reach(call.name, "dy", dy, data_bytes(yDesc), handle->device);
    library_reach(call.name, "dx", dx, data_bytes(xDesc), handle->device);
    library_apart(call.name, dx, data_bytes(xDesc), dy, data_bytes(yDesc));
    library_apart(call.name, dx, data_bytes(xDesc), y, data_bytes(yDesc));
    reach_state(&call, "hx", hx, handle->device);
    reach_state(&call, "dhy", dhy, handle->device);
    reach_state(&call, "dhx", dhx, handle->device);
    reach_state(&call, "cx", call.cx, handle->device);
    reach_state(&call, "dcy", call.dcy, handle->device);
    reach_state(&call, "dcx", call.dcx, handle->device);
    return queue(handle, &call, rnn_backward_data);
}

/* "Currently, only the CUDNN_WGRAD_MODE_ADD mode is supported." */
extern "C" cudnnStatus_t cudnnRNNBackwardWeights_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnnDesc, cudnnWgradMode_t addGrad,
    const int32_t *devSeqLengths, cudnnRNNDataDescriptor_t xDesc, const void *x,
    cudnnTensorDescriptor_t hDesc, const void *hx, cudnnRNNDataDescriptor_t yDesc, const void *y,
    size_t weightSpaceSize, void *dweightSpace, size_t workSpaceSize, void *workSpace,
    size_t reserveSpaceSize, void *reserveSpace)
{
    struct rnn_call call = {};
    cudnnStatus_t status =
        begin(handle, &call, rnnDesc, xDesc, yDesc, hDesc, hx != NULL, NULL, false);

    if (status != CUDNN_STATUS_SUCCESS) return status;
    if (addGrad != CUDNN_WGRAD_MODE_ADD) return dnn_fail(CUDNN_STATUS_NOT_SUPPORTED, "addGrad");
    if (x == NULL || y == NULL) return dnn_fail(CUDNN_STATUS_BAD_PARAM, "x or y");
    call.name = "cudnnRNNBackwardWeights_v8";
    call.x = x;
    call.y = const_cast<void *>(y);
    call.hx = hx;
    call.weights = dweightSpace;
    call.workspace = workSpace;
    call.reserve = reserveSpace;
    status =
        check_spaces(&call, weightSpaceSize, workSpaceSize, reserveSpaceSize, true, handle->device);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    library_reach(call.name, "x", x, data_bytes(xDesc), handle->device);
    library_reach(call.name, "y", y, data_bytes(yDesc), handle->device);
    reach_state(&call, "hx", hx, handle->device);
    return queue(handle, &call, rnn_backward_weights);
}
