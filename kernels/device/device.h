/*
 * device: what --device means, and the backend for it. The CUDA module is opened only when a GPU
 * may be used and the driver is there, so that a peer on the processor pays nothing for it: no
 * memory, no time.
 */
#ifndef GRAPEVINE_KERNELS_DEVICE_DEVICE_H
#define GRAPEVINE_KERNELS_DEVICE_DEVICE_H

#include "base/fault.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cuda/module.h"

enum device_kind { DEVICE_AUTO, DEVICE_CPU, DEVICE_CUDA };

struct device_choice {
    enum device_kind kind;
    uint32_t devices[CUDA_DEVICES_MAX];
    uint32_t devices_count; /* 0 unless CUDA */
};

struct device_request {
    struct device_choice choice;
    struct cpu_backend_options cpu; /* threads, precision, clock */
};

/** `auto`, `cpu`, `cuda`, `cuda:N`, `cuda:0,1`; NULL is auto. RC_PARSE. */
MUST_USE enum rc device_parse(const char *text, struct device_choice *choice, struct fault *why);
/** The backend. With `auto`, where no GPU can be used, the processor's, and `why` says why, for
 *  people to be told; otherwise `why` stays empty. RC_NOMEM, RC_UNSUPPORTED (no driver, no module,
 *  too old a GPU), RC_NOT_FOUND (no such device), RC_DEVICE. */
MUST_USE enum rc device_open(const struct device_request *request, struct backend **backend,
                             struct fault *why);
/** Whether products are in bfloat16. */
bool device_is_bf16(const struct backend *backend);
/** "cpu", or "cuda:0 (NVIDIA H100 80GB HBM3)". */
void device_describe(const struct device_choice *choice, const struct backend *backend, char *text,
                     size_t cap);
/** The driver and the module, which stay open until the process ends. `path` NULL: where the
 *  module belongs, beside the executable. RC_UNSUPPORTED. */
MUST_USE enum rc device_module_open(const char *path, const struct device_module **module,
                                    struct fault *why);

#endif
