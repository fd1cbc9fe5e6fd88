/* Blocks: threads, barriers, shared memory, atomics, limits of launches. */
#include "tests/cuda/virtual_itself/itself.h"

/* --- every thread runs once --------------------------------------------------------------------*/

static __global__ void count_threads(unsigned *counts, unsigned many)
{
    unsigned block = (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
    unsigned thread = (threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x;
    unsigned at = block * (blockDim.x * blockDim.y * blockDim.z) + thread;

    if (at < many) atomicAdd(&counts[at], 1u);
}

static void every_thread_of_every_block_runs_once(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 10) {
        itself_begin(seed);
        dim3 grid(static_cast<unsigned>(1 + seed), 3, 2), block(5, static_cast<unsigned>(seed), 7);
        unsigned many = grid.x * grid.y * grid.z * block.x * block.y * block.z;
        unsigned *counts = static_cast<unsigned *>(itself_take((many + 1) * sizeof(unsigned)));
        std::vector<unsigned> got(many + 1);
        ok(cudaMemset(counts, 0, (many + 1) * sizeof(unsigned)));
        ok(launch(count_threads, grid, block, 0, NULL, counts, many));
        itself_get(got.data(), counts, (many + 1) * sizeof(unsigned));
        for (unsigned i = 0; i < many; i++) {
            check_seed(seed, got[i] == 1);
        }
        check_seed(seed, got[many] == 0);
        ok(cudaFree(counts));
        itself_end();
    }
}

/* --- barriers ----------------------------------------------------------------------------------*/

static __global__ void reverse(float *x, bool has_barrier)
{
    __shared__ float tile[96];
    SHARED_MEMORY(float, other);
    unsigned i = threadIdx.x, base = blockIdx.x * 96;

    tile[i] = x[base + i];
    other[i] = 2.0f * tile[i];
    if (has_barrier) __syncthreads();
    x[base + i] = tile[95 - i] + other[(i + 1) % 96];
}

/* How many of 4 x 96 values are wrong. */
static int reverse_errors(uint64_t seed, bool has_barrier)
{
    float x[384], got[384];
    int errors = 0;

    itself_begin(seed);
    float *on_device = static_cast<float *>(itself_take(sizeof(x)));
    for (int i = 0; i < 384; i++) {
        x[i] = static_cast<float>(i);
    }
    ok(cudaMemcpy(on_device, x, sizeof(x), cudaMemcpyHostToDevice));
    ok(launch(reverse, 4, 96, 96 * sizeof(float), NULL, on_device, has_barrier));
    itself_get(got, on_device, sizeof(got));
    for (int i = 0; i < 384; i++) {
        int base = i / 96 * 96, inner = i % 96;
        float wanted = x[base + 95 - inner] + 2.0f * x[base + (inner + 1) % 96];
        errors += !(got[i] == wanted);
    }
    ok(cudaFree(on_device));
    itself_end();
    return errors;
}

static void what_is_written_before_a_barrier_is_read_behind_it(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 20) {
        check_seed(seed, reverse_errors(seed, true) == 0);
    }
}

static void a_missing_barrier_shows_up(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 20) {
        check_seed(seed, reverse_errors(seed, false) > 0);
    }
}

static __global__ void votes(int *results)
{
    int odd = threadIdx.x % 2;

    if (threadIdx.x >= 90) return; /* who has ended is not waited for */
    int count = __syncthreads_count(odd);
    int any = __syncthreads_or(threadIdx.x == 77), all = __syncthreads_and(threadIdx.x < 90);
    int none = __syncthreads_or(0), some = __syncthreads_and(odd);
    results[threadIdx.x] = count + 100 * any + 1000 * all + 10000 * none + 20000 * some;
}

static void barriers_count_the_votes_of_those_that_have_not_ended(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 5) {
        int got[90];
        itself_begin(seed);
        int *results = static_cast<int *>(itself_take(sizeof(got)));
        ok(launch(votes, 1, 128, 0, NULL, results));
        itself_get(got, results, sizeof(got));
        for (int value : got) {
            check_seed(seed, value == 45 + 100 + 1000);
        }
        ok(cudaFree(results));
        itself_end();
    }
}

static __global__ void two_barriers(int *x)
{
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        x[0] = 1;
        __syncthreads();
    }
}

static __global__ void barrier_and_warp(int *x)
{
    if (threadIdx.x < 16) {
        __syncthreads();
    } else {
        x[0] = __shfl_sync(0xFFFFFFFFu, 1, 0);
    }
}

template <void (*kernel)(int *)> static void run_alone(void)
{
    itself_begin(1);
    (void)launch(kernel, 1, 64, 0, NULL, static_cast<int *>(itself_take(64 * sizeof(int))));
    (void)cudaDeviceSynchronize();
}

static void threads_that_cannot_meet_are_an_abort(void **test_state)
{
    (void)test_state;
    itself_aborts(run_alone<two_barriers>, "different barriers");
    itself_aborts(run_alone<barrier_and_warp>, "wait for others that never come");
}

/* --- shared memory -----------------------------------------------------------------------------*/

static __global__ void read_unwritten(float *x, bool writes)
{
    __shared__ float of_block[32];
    SHARED_MEMORY(float, of_launch);

    x[blockIdx.x * 64 + threadIdx.x] = of_block[threadIdx.x];
    x[blockIdx.x * 64 + 32 + threadIdx.x] = of_launch[threadIdx.x];
    if (writes) of_block[threadIdx.x] = of_launch[threadIdx.x] = 1.0f;
}

static void unwritten_shared_memory_reads_as_nan_in_every_block(void **test_state)
{
    float got[4 * 64];

    (void)test_state;
    itself_begin(1);
    float *x = static_cast<float *>(itself_take(sizeof(got)));
    ok(launch(read_unwritten, 4, 32, 32 * sizeof(float), NULL, x, true));
    itself_get(got, x, sizeof(got));
    for (float value : got) {
        assert_true(isnan(value));
    }
    ok(cudaFree(x));
    itself_end();
}

static __global__ void overrun(int *x)
{
    SHARED_MEMORY(int, values);

    values[threadIdx.x + 1] = static_cast<int>(threadIdx.x);
    x[0] = 0;
}

static __global__ void misaligned(int *x)
{
    *reinterpret_cast<int4 *>(x + 1) = make_int4(1, 2, 3, 4);
}

static __global__ void beyond_array(int *x)
{
    __shared__ int values[64];

    values[threadIdx.x + 1 + static_cast<unsigned>(x[0] & 0)] = 1;
    x[1] = values[0];
}

static void run_overrun(void)
{
    itself_begin(1);
    (void)launch(overrun, 1, 64, 64 * sizeof(int), NULL, static_cast<int *>(itself_take(64)));
    (void)cudaDeviceSynchronize();
}

static void accesses_that_a_gpu_faults_or_forgives_are_aborts(void **test_state)
{
    (void)test_state;
#if !defined(__SANITIZE_ADDRESS__) /* which reports in its own words */
    itself_aborts(run_overrun, "shared memory");
    itself_aborts(run_alone<misaligned>, "misaligned");
    itself_aborts(run_alone<beyond_array>, "index beyond");
#endif
    itself_crashes(run_overrun);
    itself_crashes(run_alone<misaligned>);
    itself_crashes(run_alone<beyond_array>);
}

/* --- limits of launches ------------------------------------------------------------------------*/

static __global__ void touch(int *x)
{
    SHARED_MEMORY(int, values);

    values[threadIdx.x] = 1;
    x[0] = values[threadIdx.x];
}

static __global__ void touch_much(int *x)
{
    __shared__ int values[8192];

    values[threadIdx.x] = 1;
    __syncthreads();
    x[0] = values[(threadIdx.x + 1) % blockDim.x];
}

static void launches_beyond_the_limits_fail(void **test_state)
{
    (void)test_state;
    itself_begin(1);
    int *x = static_cast<int *>(itself_take(4));
    const cudaError_t bad_shape = cudaErrorInvalidConfiguration, bad_value = cudaErrorInvalidValue;
    ok(launch(touch, 1, 1024, 4096, NULL, x));
    assert_int_equal(launch(touch, 1, 1025, 8192, NULL, x), bad_shape);
    assert_int_equal(launch(touch, 1, dim3(1, 1, 65), 8192, NULL, x), bad_shape);
    assert_int_equal(launch(touch, 1, 0, 8192, NULL, x), bad_shape);
    assert_int_equal(launch(touch, 0, 32, 8192, NULL, x), bad_shape);
    assert_int_equal(launch(touch, dim3(1, 65536), 32, 8192, NULL, x), bad_shape);
    assert_int_equal(cudaGetLastError(), bad_shape);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    ok(launch(touch, 1, 32, 49152, NULL, x));
    assert_int_equal(launch(touch, 1, 32, 49153, NULL, x), bad_value);
    ok(launch_allow_shared(touch, 100000));
    ok(launch(touch, 1, 32, 100000, NULL, x));
    assert_int_equal(launch(touch, 1, 32, 100001, NULL, x), bad_value);
    ok(launch_allow_shared(touch, 227 * 1024));
    assert_int_equal(launch_allow_shared(touch, 227 * 1024 + 1), bad_value);
    ok(launch(touch_much, 1, 32, 16384, NULL, x)); /* 32 KiB are static */
    assert_int_equal(launch(touch_much, 1, 32, 16385, NULL, x), bad_value);
    assert_int_equal(launch_allow_shared(touch_much, 196 * 1024), bad_value);
    (void)cudaGetLastError();
    ok(cudaFree(x));
    itself_end();
}

/* --- atomics and arithmetic --------------------------------------------------------------------*/

struct tally {
    int sum, most, least;
    unsigned bits, exchanged, swapped;
    unsigned long long count;
    float real;
    double exact;
};

static __global__ void tally_up(struct tally *t)
{
    int i = static_cast<int>(threadIdx.x);

    atomicAdd(&t->sum, i);
    atomicMax(&t->most, i);
    atomicMin(&t->least, -i);
    atomicOr(&t->bits, 1u << (i % 32));
    atomicExch(&t->exchanged, 7u);
    atomicCAS(&t->swapped, static_cast<unsigned>(i), static_cast<unsigned>(i) + 1);
    atomicAdd(&t->count, 1ull << 33);
    atomicAdd(&t->real, 0.5f);
    atomicAdd(&t->exact, 0.25);
}

static void atomics_lose_nothing(void **test_state)
{
    struct tally got, none = {};

    (void)test_state;
    itself_begin(3);
    struct tally *t = static_cast<struct tally *>(itself_take(sizeof(*t)));
    ok(cudaMemcpy(t, &none, sizeof(none), cudaMemcpyHostToDevice));
    ok(launch(tally_up, 2, 256, 0, NULL, t));
    itself_get(&got, t, sizeof(got));
    assert_int_equal(got.sum, 2 * 255 * 128);
    assert_int_equal(got.most, 255);
    assert_int_equal(got.least, -255);
    assert_int_equal(got.bits, 0xFFFFFFFFu);
    assert_int_equal(got.exchanged, 7);
    assert_true(got.swapped >= 1 && got.swapped <= 256);
    assert_true(got.count == 512ull << 33);
    assert_true(got.real == 256.0f && got.exact == 128.0);
    ok(cudaFree(t));
    itself_end();
}

static void intrinsics_compute_what_they_say(void **test_state)
{
    (void)test_state;
    assert_int_equal(__umulhi(0xD2511F53u, 0xFFFFFFFFu), 0xD2511F52u);
    assert_int_equal(__mulhi(-2, 3), -1);
    assert_true(__umul64hi(1ull << 63, 6) == 3);
    assert_int_equal(__popc(0xF0F0u), 8);
    assert_int_equal(__clz(1), 31);
    assert_int_equal(__clz(0), 32);
    assert_int_equal(__ffs(8), 4);
    assert_int_equal(__ffs(0), 0);
    assert_int_equal(__brev(1u), 0x80000000u);
    assert_int_equal(__byte_perm(0x33221100u, 0x77665544u, 0x7531u), 0x77553311u);
    assert_int_equal(__funnelshift_l(0x80000000u, 1u, 1), 3u);
    assert_int_equal(__funnelshift_r(0x80000000u, 1u, 31), 3u);
    assert_int_equal(__float2int_rn(2.5f), 2);
    assert_int_equal(__float2int_rz(-2.5f), -2);
    assert_int_equal(__float2int_rd(-2.5f), -3);
    assert_int_equal(__float2int_ru(2.1f), 3);
    assert_int_equal(__float2uint_rn(-1.0f), 0);
    assert_int_equal(__float2int_rn(NAN), 0);
    assert_true(__float2ull_rn(1e30f) == UINT64_MAX);
    assert_true(min(NAN, 1.0f) == 1.0f && max(2.0f, NAN) == 2.0f && max(1, 2u) == 2u);
    assert_true(__float_as_uint(1.0f) == 0x3F800000u && __uint_as_float(0x40000000u) == 2.0f);
    assert_true(rsqrtf(4.0f) == 0.5f && __frcp_rn(4.0f) == 0.25f && __saturatef(NAN) == 0.0f);
    assert_true(__bfloat162float(__float2bfloat16_rn(1.00390625f)) == 1.0f); /* ties to even */
    assert_true(__bfloat162float(__hfma(__float2bfloat16_rn(2.0f), __float2bfloat16_rn(3.0f),
                                        __float2bfloat16_rn(1.0f))) == 7.0f);
}

struct itself_tests itself_blocks(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_thread_of_every_block_runs_once),
        cmocka_unit_test(what_is_written_before_a_barrier_is_read_behind_it),
        cmocka_unit_test(a_missing_barrier_shows_up),
        cmocka_unit_test(barriers_count_the_votes_of_those_that_have_not_ended),
        cmocka_unit_test(threads_that_cannot_meet_are_an_abort),
        cmocka_unit_test(unwritten_shared_memory_reads_as_nan_in_every_block),
        cmocka_unit_test(accesses_that_a_gpu_faults_or_forgives_are_aborts),
        cmocka_unit_test(launches_beyond_the_limits_fail),
        cmocka_unit_test(atomics_lose_nothing),
        cmocka_unit_test(intrinsics_compute_what_they_say),
    };

    return {tests, sizeof(tests) / sizeof(tests[0])};
}
