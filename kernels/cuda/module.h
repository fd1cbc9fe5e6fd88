/*
 * module: what a device module exports, and what the executable asks of it. Both are built from the
 * same sources: a module of another build is refused.
 */
#ifndef GRAPEVINE_KERNELS_CUDA_MODULE_H
#define GRAPEVINE_KERNELS_CUDA_MODULE_H

#include "kernels/cuda/cuda_backend.h"

#define DEVICE_MODULE_SYMBOL "grapevine_device_module"

enum { DEVICE_MODULE_VERSION = 1 };

struct device_module {
    uint32_t version;      /* DEVICE_MODULE_VERSION */
    size_t ops_bytes;      /* of struct backend_ops */
    const char *revision;  /* of the sources: GRAPEVINE_VERSION */
    const char *libraries; /* "CUDA 13.0, cuDNN 9.19, ..." for people */
    /* As in kernels/cuda/cuda_backend.h. */
    enum rc (*devices)(uint32_t *count, struct fault *why);
    enum rc (*describe)(uint32_t device, char *text, size_t cap, struct fault *why);
    enum rc (*create)(const struct cuda_backend_options *options, struct backend **backend,
                      struct fault *why);
};

#endif
