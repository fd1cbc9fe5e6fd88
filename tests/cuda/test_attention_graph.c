/*
 * The graph of operations that cuDNN is given for attention, against the library itself but without
 * a GPU: a description of one is enough for the library to say whether it has kernels for the
 * graph, which is what it does or does not recognise. Exit 77 where there is no such library. Where
 * no driver is installed, the toolkit's stub of one makes it load.
 */
#include "tests/check.h"

#include "base/check.h"
#include "kernels/cuda/sequence/attention_graph.h"

#include <dlfcn.h>

/* An H100, in the words of CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION. */
static const char h100[] =
    "{\"deviceVer\":900,\"driverVer\":13000,\"cudaDeviceId\":0,"
    "\"deviceName\":\"NVIDIA H100 80GB HBM3\",\"pciDeviceId\":0,\"isTccDriver\":0,"
    "\"multiProcessorCount\":132,\"warpSize\":32,\"supportCoopLaunch\":1,"
    "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
    "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"maxCtasPerSM\":32,"
    "\"regsPerBlock\":65536,\"maxRegistersPerSM\":65536,\"maxSharedMemoryPerBlock\":49152,"
    "\"maxSharedMemoryPerBlockOptin\":232448,\"reservedSharedMemoryPerBlock\":1024,"
    "\"smClockRateKHz\":1980000,\"memClockRateKHz\":2619000,\"l2CacheSize\":52428800,"
    "\"totalGlobalMem\":85029158912}";

static struct attention_graph_calls library;
static cudnnBackendDescriptor_t device;
static uint32_t graphs_tried;

/* Which is right, as POSIX has dlsym(); ISO C knows no such conversion. */
static bool find(void *module, const char *name, void *function)
{
    void *symbol = dlsym(module, name);

    memcpy(function, &symbol, sizeof(symbol));
    return symbol != NULL;
}

/* NULL, or why there is nothing to be tested. */
static const char *open_library(void)
{
    void *module;

    if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == NULL &&
        dlopen(GRAPEVINE_TEST_CUDA_STUB, RTLD_NOW | RTLD_GLOBAL) == NULL) {
        return "no CUDA driver, and no stub of one";
    }
    module = dlopen(GRAPEVINE_TEST_CUDNN, RTLD_NOW | RTLD_LOCAL);
    if (module == NULL) return "no cuDNN";
    if (!find(module, "cudnnBackendCreateDescriptor", &library.create) ||
        !find(module, "cudnnBackendDestroyDescriptor", &library.destroy) ||
        !find(module, "cudnnBackendSetAttribute", &library.set) ||
        !find(module, "cudnnBackendGetAttribute", &library.get) ||
        !find(module, "cudnnBackendFinalize", &library.finalize) ||
        !find(module, "cudnnBackendExecute", &library.execute)) {
        return "no calls for graphs in cuDNN";
    }
    if (library.create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &device) != CUDNN_STATUS_SUCCESS ||
        library.set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                    (int64_t)sizeof(h100) - 1, h100) != CUDNN_STATUS_SUCCESS ||
        library.finalize(device) != CUDNN_STATUS_SUCCESS) {
        return "cuDNN does not take the description of a device";
    }
    return NULL;
}

static int64_t ways(struct attention_graph_shape shape)
{
    struct attention_graph *graph = attention_graph_create(&library, &shape, NULL, device);
    int64_t count = graph != NULL ? attention_graph_ways(graph) : 0;

    graphs_tried++;
    attention_graph_destroy(graph);
    return count;
}

/* Of qkv side by side, as layers hold them; of queries and keys turned, where rotary. */
static struct attention_graph_shape shape_of(int64_t samples, int64_t heads, int64_t steps,
                                             int64_t head_width)
{
    return (struct attention_graph_shape){
        .samples = samples,
        .heads = heads,
        .steps = steps,
        .head_width = head_width,
        .query_stride = 3 * heads * head_width,
        .value_stride = 3 * heads * head_width,
        .is_causal = true,
    };
}

static void the_library_has_kernels_for_both_passes_of_gpt2(void **state)
{
    struct attention_graph_shape shape = shape_of(8, 12, 1024, 64);

    (void)state;
    for (int i = 0; i < 8; i++) {
        shape.is_backward = i & 1;
        shape.is_causal = !(i & 2);
        shape.query_stride = (i & 4 ? 2 : 3) * shape.heads * shape.head_width;
        assert_true(ways(shape) >= 1);
    }
}

static void and_for_other_widths_and_odd_numbers_of_steps(void **state)
{
    static const int64_t widths[] = {32, 80, 96, 128}, steps[] = {200, 1000, 2048};

    (void)state;
    for (size_t w = 0; w < ARRAY_COUNT(widths); w++) {
        for (size_t s = 0; s < ARRAY_COUNT(steps); s++) {
            struct attention_graph_shape shape = shape_of(4, 6, steps[s], widths[w]);
            assert_true(ways(shape) >= 1);
            shape.is_backward = true;
            assert_true(ways(shape) >= 1);
        }
    }
}

/* What it cannot do, it says: then our own kernels compute. */
static void heads_of_an_odd_width_are_refused(void **state)
{
    struct attention_graph_shape shape = shape_of(2, 2, 128, 33);

    (void)state;
    assert_int_equal(ways(shape), 0);
    shape.is_backward = true;
    assert_int_equal(ways(shape), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_library_has_kernels_for_both_passes_of_gpt2),
        cmocka_unit_test(and_for_other_widths_and_odd_numbers_of_steps),
        cmocka_unit_test(heads_of_an_odd_width_are_refused),
    };
    const char *why = open_library();
    int failures;

    if (why != NULL) {
        printf("attention_graph: skipped: %s\n", why);
        return 77;
    }
    failures = cmocka_run_group_tests(tests, NULL, NULL);
    printf("attention_graph: cuDNN was asked about %u graphs, %d tests failed\n", graphs_tried,
           failures);
    return failures > 0 ? 1 : 0;
}
