/* dnn: the descriptors of the stand-in for cuDNN, which its files share: see dnn.cpp. */
#ifndef GRAPEVINE_TESTS_CUDA_VIRTUAL_DNN_H
#define GRAPEVINE_TESTS_CUDA_VIRTUAL_DNN_H

#include "tests/cuda/virtual/library.h"

#include <cudnn.h>

enum { DNN_HANDLE_MAGIC = 0x444E4E48 };

struct cudnnContext {
    uint32_t magic;
    int device;
    cudaStream_t stream;
};

struct cudnnTensorStruct {
    bool is_set;
    cudnnDataType_t type;
    int count; /* dimensions */
    int sizes[CUDNN_DIM_MAX], strides[CUDNN_DIM_MAX];
};

struct cudnnFilterStruct {
    bool is_set;
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    int count;
    int sizes[CUDNN_DIM_MAX];
};

struct cudnnConvolutionStruct {
    bool is_set;
    int padding[2], stride[2], dilation[2]; /* height, width */
    cudnnConvolutionMode_t mode;
    cudnnDataType_t compute;
    cudnnMathType_t math;
    int groups;
};

struct cudnnActivationStruct {
    bool is_set;
    cudnnActivationMode_t mode;
    cudnnNanPropagation_t nan;
    double coefficient;
};

struct cudnnDropoutStruct {
    float rate;
    void *states;
    unsigned long long seed;
};

static inline bool dnn_is_handle(cudnnHandle_t handle)
{
    return handle != NULL && handle->magic == DNN_HANDLE_MAGIC;
}

/** Returns `status`, and keeps what cudnnGetLastErrorString() tells the calling thread. */
cudnnStatus_t dnn_fail(cudnnStatus_t status, const char *reason);
/** Entry of a call: NULL and destroyed handles, a lost device. */
cudnnStatus_t dnn_enter(cudnnHandle_t handle);
/** Before work is queued: the thread's device and the stream's must be the handle's. */
cudnnStatus_t dnn_check_device(cudnnHandle_t handle);
static inline bool dnn_is_supported_type(cudnnDataType_t type)
{
    return type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_BFLOAT16;
}
static inline enum value_type dnn_value_type(cudnnDataType_t type)
{
    return type == CUDNN_DATA_BFLOAT16 ? VALUE_BF16 : VALUE_F32;
}
/** From the first to the last value. */
size_t dnn_tensor_bytes(const struct cudnnTensorStruct *tensor);
size_t dnn_filter_bytes(const struct cudnnFilterStruct *filter);
/** Do 4 dimensions lie densely in this format? Strides of dimensions of 1 do not matter. */
bool dnn_is_packed(const struct cudnnTensorStruct *tensor, cudnnTensorFormat_t format);
/** How inputs of products are rounded: TF32 unless CUDNN_FMA_MATH forbids it. */
enum value_rounding dnn_rounding(cudnnDataType_t type, cudnnMathType_t math);

#endif
