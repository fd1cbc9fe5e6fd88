/* The parity suite's device: a real GPU, through the module named by GRAPEVINE_TEST_MODULE. */
#include "tests/cuda/parity.h"

#include "kernels/device/device.h"

static const char *path_of_module(void)
{
    const char *path = getenv("GRAPEVINE_TEST_MODULE");

    return path != NULL ? path : "grapevine-cuda.so";
}

struct backend *parity_device(uint32_t count, bool is_bf16, struct fault *why)
{
    struct cuda_backend_options options = {.devices_count = count, .is_bf16 = is_bf16};
    const struct device_module *module = NULL;
    struct backend *backend = NULL;

    for (uint32_t i = 0; i < count; i++) {
        options.devices[i] = i;
    }
    if (device_module_open(path_of_module(), &module, why) != RC_OK) return NULL;
    return module->create(&options, &backend, why) == RC_OK ? backend : NULL;
}

const char *parity_device_name(void)
{
    static char text[160];
    const struct device_module *module = NULL;
    struct fault why;

    if (text[0] == '\0' && device_module_open(path_of_module(), &module, &why) == RC_OK &&
        module->describe(0, text, sizeof(text), &why) != RC_OK) {
        text[0] = '\0';
    }
    return text[0] == '\0' ? "a GPU" : text;
}
