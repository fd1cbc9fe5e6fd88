/*
 * Opening devices: see device.h. First the driver, which only machines with an NVIDIA GPU have,
 * then the module, and only then the module's own libraries come in with it. Any thread, one at a
 * time; peers do it once, at their start.
 */
#include "kernels/device/device.h"

#include "base/check.h"
#include "kernels/cpu/address_space.h"
#include "version.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MODULE_PATH_BYTES = 4096, CLAIMED_MAX = 64 };

static enum rc parse_numbers(const char *text, struct device_choice *choice)
{
    for (const char *at = text;;) {
        char *end = NULL;
        unsigned long number;

        if (*at < '0' || *at > '9') return RC_PARSE;
        number = strtoul(at, &end, 10);
        if (number > 1023 || choice->devices_count == CUDA_DEVICES_MAX) return RC_PARSE;
        for (uint32_t i = 0; i < choice->devices_count; i++) {
            if (choice->devices[i] == number) return RC_PARSE;
        }
        choice->devices[choice->devices_count++] = (uint32_t)number;
        if (*end == '\0') return RC_OK;
        if (*end != ',') return RC_PARSE;
        at = end + 1;
    }
}

enum rc device_parse(const char *text, struct device_choice *choice, struct fault *why)
{
    static const char cuda[] = "cuda:";

    *choice = (struct device_choice){.kind = DEVICE_AUTO};
    if (text == NULL || strcmp(text, "auto") == 0) return RC_OK;
    if (strcmp(text, "cpu") == 0) {
        choice->kind = DEVICE_CPU;
        return RC_OK;
    }
    choice->kind = DEVICE_CUDA;
    if (strcmp(text, "cuda") == 0) {
        choice->devices_count = 1;
        return RC_OK;
    }
    if (strncmp(text, cuda, strlen(cuda)) == 0 &&
        parse_numbers(text + strlen(cuda), choice) == RC_OK) {
        return RC_OK;
    }
    return fault_set(why, RC_PARSE,
                     "--device %s: it is auto, cpu, cuda, cuda:N, or cuda:0,1 with different "
                     "numbers, at most %d",
                     text, CUDA_DEVICES_MAX);
}

static enum rc check_module(const struct device_module *module, const char *path, struct fault *why)
{
    if (module != NULL && module->version == DEVICE_MODULE_VERSION &&
        module->ops_bytes == sizeof(struct backend_ops) &&
        strcmp(module->revision, GRAPEVINE_VERSION) == 0) {
        return RC_OK;
    }
    return fault_set(why, RC_UNSUPPORTED,
                     "%s is of another build; build it together with grapevine", path);
}

/* Of an executable in BUILD or in PREFIX/bin. */
static void *open_beside(char path[MODULE_PATH_BYTES])
{
    static const char *const folders[] = {".", GRAPEVINE_MODULE_FOLDER};
    char folder[MODULE_PATH_BYTES / 2];
    ssize_t length = readlink("/proc/self/exe", folder, sizeof(folder) - 1);
    char *slash;

    folder[length < 0 ? 0 : length] = '\0';
    slash = strrchr(folder, '/');
    if (slash == NULL) return NULL;
    *slash = '\0';
    for (size_t i = 0; i < ARRAY_COUNT(folders); i++) {
        void *handle = NULL;
        snprintf(path, MODULE_PATH_BYTES, "%s/%s/grapevine-cuda.so", folder, folders[i]);
        if (access(path, R_OK) == 0) handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (handle != NULL || access(path, R_OK) == 0) return handle;
    }
    path[0] = '\0';
    return NULL;
}

enum rc device_module_open(const char *path, const struct device_module **module, struct fault *why)
{
    char beside[MODULE_PATH_BYTES] = "";
    void *handle;

    if (dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL) == NULL) {
        return fault_set(why, RC_UNSUPPORTED, "no NVIDIA driver: libcuda.so.1 cannot be opened");
    }
    /* One size of workspace: with several, cuBLAS within cuDNN's recurrent layers takes now this
     * one and now that, and sums in other orders. */
    (void)setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", 0);
    if (path == NULL) {
        handle = open_beside(beside);
        path = beside;
    } else {
        handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    }
    if (handle == NULL && path[0] == '\0') {
        return fault_set(why, RC_UNSUPPORTED,
                         "this build has no CUDA module (grapevine-cuda.so beside the executable); "
                         "build it where the CUDA toolkit is installed");
    }
    if (handle == NULL) {
        const char *reason = dlerror();
        return fault_set(why, RC_UNSUPPORTED, "the CUDA module cannot be opened: %s",
                         reason == NULL ? path : reason);
    }
    *module = dlsym(handle, DEVICE_MODULE_SYMBOL);
    return check_module(*module, path, why);
}

static enum rc open_cuda(const struct device_request *request, struct backend **backend,
                         struct fault *why)
{
    struct cuda_backend_options options = {
        .is_bf16 = request->cpu.precision == PRECISION_BF16,
        .devices_count = request->choice.devices_count,
    };
    const struct device_module *module = NULL;
    enum rc rc = device_module_open(NULL, &module, why);

    if (rc != RC_OK) return rc;
    memcpy(options.devices, request->choice.devices, sizeof(options.devices));
    if (options.devices_count == 0) options.devices_count = 1; /* auto: the first */
    return module->create(&options, backend, why);
}

/* Where the address space is limited OpenBLAS takes its buffers now: other memory, which can fail
 * in order, would take their place. The library keeps what was freed for the next who asks. Its
 * functions for that are not in its header, and a build may hide them: then nothing is claimed. */
static void claim_buffers(unsigned threads)
{
    void *(*take)(int) = NULL;
    void (*give)(void *) = NULL;
    void *buffers[CLAIMED_MAX];

    if (address_space_limit_mib() == 0) return;
    *(void **)&take = dlsym(RTLD_DEFAULT, "blas_memory_alloc");
    *(void **)&give = dlsym(RTLD_DEFAULT, "blas_memory_free");
    if (take == NULL || give == NULL) return;
    if (threads > CLAIMED_MAX) threads = CLAIMED_MAX;
    for (unsigned i = 0; i < threads; i++) {
        buffers[i] = take(0);
    }
    for (unsigned i = 0; i < threads; i++) {
        give(buffers[i]);
    }
}

#define ROOM_BYTES (UINT64_C(192) << 20) /* threads, a small model and its data, beside BLAS */

enum rc device_open(const struct device_request *request, struct backend **backend,
                    struct fault *why)
{
    uint32_t threads = request->cpu.threads > 1 ? request->cpu.threads : 1;
    uint64_t room = threads * BLAS_BUFFER_BYTES + ROOM_BYTES;
    struct fault reason = {0};
    enum rc rc;

    if (request->choice.kind != DEVICE_CPU) {
        rc = open_cuda(request, backend, &reason);
        if (rc == RC_OK) return RC_OK;
        if (request->choice.kind == DEVICE_CUDA) {
            return fault_set(why, rc, "--device cuda: %s; leave it out to use the CPU",
                             reason.text);
        }
        fault_set(why, RC_OK, "%s", reason.text);
    }
    if (!address_space_has(room)) {
        return fault_set(why, RC_NOMEM,
                         "device cpu: %llu MiB more of address space are needed for %u %s, and it "
                         "is limited to %llu MiB (ulimit -v); raise that",
                         (unsigned long long)(room >> 20), threads,
                         threads == 1 ? "thread" : "threads",
                         (unsigned long long)address_space_limit_mib());
    }
    claim_buffers(threads);
    *backend = cpu_backend_create(&request->cpu);
    if (*backend != NULL) return RC_OK;
    return fault_set(why, RC_NOMEM, "device cpu: out of memory");
}

bool device_is_bf16(const struct backend *backend)
{
    return backend->is_host ? cpu_backend_is_bf16(backend) : backend->value_bytes == 2;
}

void device_describe(const struct device_choice *choice, const struct backend *backend, char *text,
                     size_t cap)
{
    const struct device_module *module = NULL;
    struct fault why = {0};
    char card[128] = "";

    if (backend->is_host) {
        snprintf(text, cap, "cpu");
        return;
    }
    if (device_module_open(NULL, &module, &why) == RC_OK) {
        enum rc rc = module->describe(choice->devices[0], card, sizeof(card), &why);
        if (rc != RC_OK) card[0] = '\0';
    }
    snprintf(text, cap, "cuda:%u%s%s%s%s", choice->devices[0],
             choice->devices_count > 1 ? " and others" : "", card[0] == '\0' ? "" : " (", card,
             card[0] == '\0' ? "" : ")");
}
