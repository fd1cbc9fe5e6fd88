/* Memory, and devices that fail. */
#include "tests/cuda/virtual_itself/itself.h"

static __global__ void put(float *x, size_t at, float value)
{
    x[at] = value;
}

/* --- memory ------------------------------------------------------------------------------------*/

static void fresh_memory_reads_as_nan(void **test_state)
{
    float got[3];

    (void)test_state;
    itself_begin(1);
    float *x = static_cast<float *>(itself_take(sizeof(got)));
    assert_int_equal(reinterpret_cast<uintptr_t>(x) % 256, 0);
    itself_get(got, x, sizeof(got));
    assert_true(isnan(got[0]) && isnan(got[2]));
    assert_true(virtual_is_device_memory(x, 12, 0) && !virtual_is_device_memory(x, 13, 0));
    ok(cudaFree(x));
    itself_end();
}

static void memory_runs_out(void **test_state)
{
    struct virtual_options options = {};
    void *a, *b;
    size_t left, all;

    (void)test_state;
    options.devices = 1;
    options.memory_bytes = 1 << 20;
    options.capability = 90;
    itself_begin_with(options);
    ok(cudaMalloc(&a, 600000));
    assert_int_equal(cudaMalloc(&b, 600000), cudaErrorMemoryAllocation);
    assert_null(b);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    ok(cudaMemGetInfo(&left, &all));
    assert_true(all == 1 << 20 && left < all - 600000 && left > all - 601000);
    ok(cudaFree(a));
    options.fail_allocation = 2;
    itself_begin_with(options);
    ok(cudaMalloc(&a, 16));
    assert_int_equal(cudaMalloc(&b, 16), cudaErrorMemoryAllocation);
    ok(cudaMalloc(&b, 16));
    ok(cudaFree(a));
    ok(cudaFree(b));
    (void)cudaGetLastError();
    itself_end();
}

static void freed_addresses_are_used_again_in_the_end(void **test_state)
{
    (void)test_state;
    itself_begin(1);
    void *kept[8];
    for (int i = 0; i < 8; i++) {
        kept[i] = itself_take(1000);
    }
    for (int i = 0; i < 3000; i++) {
        void *block = itself_take(static_cast<size_t>(1) << 16);
        ok(cudaFree(block));
    }
    for (void *block : kept) {
        ok(cudaFree(block));
    }
    itself_end();
}

static float *misused; /* by the child */

template <size_t at, bool is_before> static void run_put(void)
{
    itself_begin(1);
    misused = static_cast<float *>(itself_take(100 * sizeof(float)));
    (void)launch(put, 1, 1, 0, NULL, misused, is_before ? static_cast<size_t>(-1) : at, 1.0f);
    (void)cudaDeviceSynchronize();
}

#if !defined(__SANITIZE_ADDRESS__)
static void run_host_read(void)
{
    itself_begin(1);
    misused = static_cast<float *>(itself_take(100 * sizeof(float)));
    ok(cudaMemset(misused, 0, 100 * sizeof(float)));
    ok(cudaDeviceSynchronize());
    fprintf(stderr, "%g", static_cast<double>(*static_cast<volatile float *>(misused)));
}
#endif

static void run_freed(void)
{
    itself_begin(1);
    misused = static_cast<float *>(itself_take(100 * sizeof(float)));
    ok(cudaFree(misused));
    (void)launch(put, 1, 1, 0, NULL, misused, static_cast<size_t>(0), 1.0f);
    (void)cudaDeviceSynchronize();
}

static void run_host_pointer(void)
{
    float here[4] = {0};

    itself_begin(1);
    (void)launch(put, 1, 1, 0, NULL, here, static_cast<size_t>(0), 1.0f);
    (void)cudaDeviceSynchronize();
}

struct holder {
    size_t count;
    float *x;
};

static __global__ void put_held(struct holder holder)
{
    holder.x[0] = 1.0f;
}

static void run_host_pointer_held(void)
{
    std::vector<float> here(4);
    struct holder holder = {1, here.data()};

    itself_begin(1);
    (void)launch(put_held, 1, 1, 0, NULL, holder);
    (void)cudaDeviceSynchronize();
}

struct padded {
    float *x;
    bool adds;
    float *y;
    unsigned numbers[2]; /* as one word: an address in AddressSanitizer's shadow */
};

static __global__ void put_padded(struct padded padded)
{
    padded.x[0] = padded.adds ? 1.0f : 2.0f;
}

static void padding_and_numbers_are_no_pointers(void **test_state)
{
    std::vector<float> here(1000);
    struct padded padded;
    float got;

    (void)test_state;
    itself_begin(1);
    const float *stale = here.data() - reinterpret_cast<uintptr_t>(here.data()) % 256 / 4 + 64;
    for (size_t at = 0; at + sizeof(stale) <= sizeof(padded); at += sizeof(stale)) {
        memcpy(reinterpret_cast<char *>(&padded) + at, &stale, sizeof(stale));
    }
    padded.x = padded.y = static_cast<float *>(itself_take(4));
    padded.adds = false;
    padded.numbers[0] = 0x80;
    padded.numbers[1] = 0x10;
    ok(launch(put_padded, 1, 1, 0, NULL, padded));
    itself_get(&got, padded.x, sizeof(got));
    assert_true(got == 2.0f);
    ok(cudaFree(padded.x));
    itself_end();
}

static void wrong_accesses_end_the_program(void **test_state)
{
    (void)test_state;
#if !defined(__SANITIZE_ADDRESS__) /* which reports in its own words */
    itself_aborts((run_put<100, false>), "behind a block of 400 bytes");
    itself_aborts((run_put<0, true>), "before a block of 400 bytes");
    itself_aborts((run_put<static_cast<size_t>(1) << 29, false>), "put, block (0, 0, 0)");
    itself_crashes(run_host_read);
    itself_aborts(run_freed, "not in use");
#endif
    itself_crashes((run_put<100, false>));
    itself_crashes((run_put<0, true>));
    itself_crashes(run_freed);
    itself_aborts(run_host_pointer, "memory of the host");
    itself_aborts(run_host_pointer_held, "memory of the host");
}

static void wrong_copies_fail(void **test_state)
{
    const cudaError_t bad = cudaErrorInvalidValue;
    float here[100];

    (void)test_state;
    itself_begin(1);
    float *x = static_cast<float *>(itself_take(sizeof(here)));
    assert_int_equal(cudaMemcpy(x, here, 401, cudaMemcpyHostToDevice), bad);
    assert_int_equal(cudaMemcpy(x, here, 400, cudaMemcpyDeviceToHost), bad);
    assert_int_equal(cudaMemcpy(x, x, 400, cudaMemcpyHostToDevice), bad);
    assert_int_equal(cudaMemcpy(here, here + 1, 4, cudaMemcpyDeviceToDevice), bad);
    assert_int_equal(cudaMemset(x + 1, 0, 400), bad);
    assert_int_equal(cudaMemset(here, 0, 4), bad);
    ok(cudaMemcpy(x, here, 400, cudaMemcpyDefault));
    ok(cudaMemcpy(here, x, 0, cudaMemcpyHostToDevice));
    ok(cudaFree(x));
    assert_int_equal(cudaFree(x), bad);
    assert_int_equal(cudaFreeHost(here), bad);
    ok(cudaFree(NULL));
    (void)cudaGetLastError();
    itself_end();
}

/* --- devices that fail -------------------------------------------------------------------------*/

static void a_lost_device_fails_every_call_from_then_on(void **test_state)
{
    struct virtual_options options = {};

    (void)test_state;
    for (uint64_t after = 1; after <= 12; after++) {
        void *block = NULL;
        cudaStream_t stream = NULL;
        uint64_t passed = 0;
        options.devices = 1;
        options.memory_bytes = 1 << 20;
        options.capability = 90;
        options.lost_after = after;
        itself_begin_with(options);
        passed += cudaStreamCreate(&stream) == cudaSuccess;
        passed += cudaMalloc(&block, 64) == cudaSuccess;
        for (float value = 0; value < 5 && block != NULL; value++) {
            passed += launch(put, 1, 1, 0, stream, static_cast<float *>(block),
                             static_cast<size_t>(0), value) == cudaSuccess;
            passed += cudaStreamSynchronize(stream) == cudaSuccess;
        }
        assert_int_equal(passed, after);
        assert_int_equal(virtual_is_lost(), after < 12);
        if (after == 12) assert_int_equal(virtual_call(), cudaErrorECCUncorrectable);
        assert_int_equal(cudaGetLastError(), cudaErrorECCUncorrectable);
        assert_int_equal(cudaGetLastError(), cudaErrorECCUncorrectable);
        assert_int_equal(cudaFree(block), cudaErrorECCUncorrectable); /* and frees */
        if (stream != NULL) (void)cudaStreamDestroy(stream);
        options.lost_after = 0;
        itself_begin_with(options);
        itself_end();
    }
}

static void machines_without_a_device_say_so(void **test_state)
{
    struct virtual_options options = {};
    int count = -1, version = -1;
    void *block;

    (void)test_state;
    options.memory_bytes = 1 << 20;
    itself_begin_with(options);
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorNoDevice);
    assert_int_equal(count, 0);
    assert_int_equal(cudaSetDevice(0), cudaErrorNoDevice);
    options.has_no_driver = true;
    itself_begin_with(options);
    assert_int_equal(cudaGetDeviceCount(&count), cudaErrorInsufficientDriver);
    ok(cudaDriverGetVersion(&version));
    assert_int_equal(version, 0);
    assert_int_equal(cudaMalloc(&block, 4), cudaErrorInsufficientDriver);
    assert_string_equal(cudaGetErrorName(cudaErrorInsufficientDriver),
                        "cudaErrorInsufficientDriver");
    itself_begin(1);
    ok(cudaDriverGetVersion(&version));
    assert_int_equal(version, CUDART_VERSION);
}

static void old_devices_have_no_kernels(void **test_state)
{
    struct virtual_options options = {};
    struct cudaDeviceProp properties;

    (void)test_state;
    options.devices = 1;
    options.memory_bytes = 1 << 20;
    options.capability = 70;
    itself_begin_with(options);
    ok(cudaGetDeviceProperties(&properties, 0));
    assert_int_equal(10 * properties.major + properties.minor, 70);
    float *x = static_cast<float *>(itself_take(4));
    assert_int_equal(launch(put, 1, 1, 0, NULL, x, static_cast<size_t>(0), 1.0f),
                     cudaErrorNoKernelImageForDevice);
    (void)cudaGetLastError();
    ok(cudaFree(x));
    itself_end();
}

struct itself_tests itself_failures(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(fresh_memory_reads_as_nan),
        cmocka_unit_test(memory_runs_out),
        cmocka_unit_test(freed_addresses_are_used_again_in_the_end),
        cmocka_unit_test(wrong_accesses_end_the_program),
        cmocka_unit_test(padding_and_numbers_are_no_pointers),
        cmocka_unit_test(wrong_copies_fail),
        cmocka_unit_test(a_lost_device_fails_every_call_from_then_on),
        cmocka_unit_test(machines_without_a_device_say_so),
        cmocka_unit_test(old_devices_have_no_kernels),
    };

    return {tests, sizeof(tests) / sizeof(tests[0])};
}
