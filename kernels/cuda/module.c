/* What the module exports: see kernels/cuda/module.h. */
#include "kernels/cuda/module.h"

#include "version.h"

#include <cublas_v2.h>
#include <cudnn.h>
#include <nccl.h>

#define TEXT_(x) #x
#define TEXT(x)  TEXT_(x)

extern const struct device_module grapevine_device_module;

__attribute__((visibility("default"))) const struct device_module grapevine_device_module = {
    .version = DEVICE_MODULE_VERSION,
    .ops_bytes = sizeof(struct backend_ops),
    .revision = GRAPEVINE_VERSION,
    .libraries = "cuBLAS " TEXT(CUBLAS_VER_MAJOR) "." TEXT(CUBLAS_VER_MINOR) ", cuDNN " TEXT(
        CUDNN_MAJOR) "." TEXT(CUDNN_MINOR) ", NCCL " TEXT(NCCL_MAJOR) "." TEXT(NCCL_MINOR),
    .devices = cuda_devices,
    .describe = cuda_describe,
    .create = cuda_backend_create,
};
