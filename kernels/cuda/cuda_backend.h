/*
 * cuda_backend: the backend of NVIDIA GPUs: cuBLAS(Lt) for matrix products, cuDNN for convolutions
 * and recurrent layers, NCCL between GPUs of one machine, our own kernels for the rest. In a module
 * beside the executable; kernels/device/device.h opens it.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_CUDA_BACKEND_H
#define GRAPEVINE_KERNELS_CUDA_CUDA_BACKEND_H

#include "base/fault.h"
#include "kernels/backend.h"

enum { CUDA_DEVICES_MAX = 16 };

struct cuda_backend_options {
    uint32_t devices[CUDA_DEVICES_MAX]; /* numbers, as the driver counts; different ones */
    uint32_t devices_count;             /* at least 1; more: siblings on the others */
    bool is_bf16;                       /* activations and operands of products; else float32 */
};

/** Devices there are. RC_UNSUPPORTED: no driver, or too old a one; RC_NOT_FOUND: no device. */
MUST_USE enum rc cuda_devices(uint32_t *count, struct fault *why);
/** "NVIDIA H100 80GB HBM3, 79.2 GiB, compute capability 9.0" of one. */
MUST_USE enum rc cuda_describe(uint32_t device, char *text, size_t cap, struct fault *why);
/** On the first device. RC_NOMEM, RC_DEVICE, RC_UNSUPPORTED (an architecture the module has no code
 *  for), RC_NOT_FOUND (no such device). */
MUST_USE enum rc cuda_backend_create(const struct cuda_backend_options *options,
                                     struct backend **backend, struct fault *why);

#endif
