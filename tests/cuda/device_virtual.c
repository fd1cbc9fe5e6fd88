/* The parity suite's device: the virtual one, linked in. */
#include "tests/cuda/parity.h"

#include "kernels/cuda/cuda_backend.h"

struct backend *parity_device(uint32_t count, bool is_bf16, struct fault *why)
{
    struct cuda_backend_options options = {.devices_count = count, .is_bf16 = is_bf16};
    struct backend *backend = NULL;

    for (uint32_t i = 0; i < count; i++) {
        options.devices[i] = i;
    }
    return cuda_backend_create(&options, &backend, why) == RC_OK ? backend : NULL;
}

const char *parity_device_name(void)
{
    return "the virtual device";
}
