/* Warps: shuffles, votes, matrix fragments, asynchronous copies. */
#include "tests/cuda/virtual_itself/itself.h"

#include <functional>

static const unsigned FULL = 0xFFFFFFFFu;

/* --- shuffles, against their definition --------------------------------------------------------*/

enum shuffle { FROM, UP, DOWN, ACROSS };

template <typename T> static __global__ void shuffle(T *x, int kind, int by, int width)
{
    T value = x[threadIdx.x], got = value;

    if (kind == FROM) got = __shfl_sync(FULL, value, by, width);
    if (kind == UP) got = __shfl_up_sync(FULL, value, static_cast<unsigned>(by), width);
    if (kind == DOWN) got = __shfl_down_sync(FULL, value, static_cast<unsigned>(by), width);
    if (kind == ACROSS) got = __shfl_xor_sync(FULL, value, by, width);
    x[threadIdx.x] = got;
}

/* PTX ISA, shfl.sync: a lane that would reach beyond its segment gets its own value. */
static int shuffle_source(int kind, int lane, int by, int width)
{
    int first = lane / width * width, last = first + width - 1;

    switch (kind) {
    case FROM:
        return first + by % width;
    case UP:
        return lane - by < first ? lane : lane - by;
    case DOWN:
        return lane + by > last ? lane : lane + by;
    default:
        return (lane ^ by) > last ? lane : lane ^ by;
    }
}

template <typename T> static void check_shuffles(uint64_t seed)
{
    T x[64], got[64];

    itself_begin(seed);
    T *on_device = static_cast<T *>(itself_take(sizeof(x)));
    for (int i = 0; i < 64; i++) {
        x[i] = static_cast<T>(1000 + i);
    }
    for (int kind = FROM; kind <= ACROSS; kind++) {
        for (int width = 1; width <= 32; width *= 2) {
            int by = static_cast<int>(seed * 7 % 31);
            ok(cudaMemcpy(on_device, x, sizeof(x), cudaMemcpyHostToDevice));
            ok(launch(shuffle<T>, 1, 64, 0, NULL, on_device, kind, by, width));
            itself_get(got, on_device, sizeof(got));
            for (int i = 0; i < 64; i++) {
                int from = i / 32 * 32 + shuffle_source(kind, i % 32, by, width);
                check_seed(seed, got[i] == x[from]);
            }
        }
    }
    ok(cudaFree(on_device));
    itself_end();
}

static void shuffles_follow_their_definition(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 6) {
        check_shuffles<float>(seed);
        check_shuffles<double>(seed);
        check_shuffles<int>(seed);
        check_shuffles<unsigned long long>(seed);
    }
}

/* --- votes and parts of a warp -----------------------------------------------------------------*/

static __global__ void vote(unsigned *x)
{
    unsigned lane = threadIdx.x % 32, half = lane < 16 ? 0x0000FFFFu : 0xFFFF0000u;
    unsigned result = __ballot_sync(FULL, lane % 3 == 0);

    result ^= static_cast<unsigned>(__any_sync(FULL, lane == 31)) << 1;
    result ^= static_cast<unsigned>(__all_sync(FULL, lane < 32)) << 2;
    result ^= static_cast<unsigned>(__all_sync(half, lane < 16)) << 4; /* halves on their own */
    __syncwarp();
    if (lane < 16) { /* the other half never comes */
        result += __shfl_xor_sync(half, lane, 1);
    }
    x[threadIdx.x] = result;
}

static void votes_are_those_of_the_mask(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 5) {
        unsigned got[96];
        itself_begin(seed);
        unsigned *x = static_cast<unsigned *>(itself_take(sizeof(got)));
        ok(launch(vote, 1, 96, 0, NULL, x));
        itself_get(got, x, sizeof(got));
        for (unsigned i = 0; i < 96; i++) {
            unsigned wanted = 0x49249249u ^ 1u << 1 ^ 1u << 2;
            if (i % 32 < 16) wanted = (wanted ^ 1u << 4) + (i % 32 ^ 1u);
            check_seed(seed, got[i] == wanted);
        }
        ok(cudaFree(x));
        itself_end();
    }
}

static __global__ void lanes_end(int *x)
{
    if (threadIdx.x == 5) return;
    x[threadIdx.x] = __shfl_xor_sync(FULL, static_cast<int>(threadIdx.x), 1);
}

static __global__ void lane_left_out(int *x)
{
    x[threadIdx.x] = __shfl_xor_sync(0x0000FFFFu, static_cast<int>(threadIdx.x), 1);
}

static __global__ void lanes_differ(int *x)
{
    if (threadIdx.x % 32 < 16) {
        x[threadIdx.x] = __shfl_sync(FULL, 1, 0);
    } else {
        x[threadIdx.x] = static_cast<int>(__ballot_sync(FULL, 1));
    }
}

template <void (*kernel)(int *), unsigned threads> static void run_alone(void)
{
    itself_begin(1);
    (void)launch(kernel, 1, threads, 0, NULL, static_cast<int *>(itself_take(64 * sizeof(int))));
    (void)cudaDeviceSynchronize();
}

static __global__ void half_a_warp(int *x)
{
    x[threadIdx.x] = __any_sync(FULL, 1);
}

static void lanes_that_cannot_meet_are_an_abort(void **test_state)
{
    (void)test_state;
    itself_aborts((run_alone<lanes_end, 64>), "ended");
    itself_aborts((run_alone<lane_left_out, 64>), "leaves out lane");
    itself_aborts((run_alone<lanes_differ, 64>), "different intrinsics");
    itself_aborts((run_alone<half_a_warp, 48>), "never were");
}

/* --- matrices ----------------------------------------------------------------------------------*/

static __global__ void multiply(const __nv_bfloat16 *a, const __nv_bfloat16 *b, float *c)
{
    __shared__ __align__(16) __nv_bfloat16 of_a[16 * 16], of_b[16 * 8];
    unsigned lane = threadIdx.x, half = lane / 8, row = lane % 8;
    uint32_t ra[4], rb[4];
    float sums[4] = {1.0f, 1.0f, 1.0f, 1.0f};

    for (unsigned i = lane; i < 16 * 16; i += 32) {
        of_a[i] = a[i];
    }
    for (unsigned i = lane; i < 16 * 8; i += 32) {
        of_b[i] = b[i];
    }
    __syncthreads();
    /* a: quadrants top left, bottom left, top right, bottom right; b: rows 0 to 7, 8 to 15 */
    load_matrices(ra, &of_a[(row + half % 2 * 8) * 16 + half / 2 * 8]);
    load_matrices_transposed(rb, &of_b[(row + half % 2 * 8) * 8]);
    mma_bf16(sums, ra, rb);
    for (unsigned i = 0; i < 4; i++) {
        c[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = sums[i];
    }
}

static void tensor_cores_multiply_matrices(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 5) {
        __nv_bfloat16 a[16 * 16], b[16 * 8];
        float got[16 * 8];
        itself_begin(seed);
        for (int i = 0; i < 16 * 16; i++) {
            a[i] = __float2bfloat16_rn(static_cast<float>((i * 37 + static_cast<int>(seed)) % 19));
            if (i < 16 * 8) b[i] = __float2bfloat16_rn(static_cast<float>((i * 53) % 23 - 11));
        }
        __nv_bfloat16 *on_a = static_cast<__nv_bfloat16 *>(itself_take(sizeof(a)));
        __nv_bfloat16 *on_b = static_cast<__nv_bfloat16 *>(itself_take(sizeof(b)));
        float *on_c = static_cast<float *>(itself_take(sizeof(got)));
        ok(cudaMemcpy(on_a, a, sizeof(a), cudaMemcpyHostToDevice));
        ok(cudaMemcpy(on_b, b, sizeof(b), cudaMemcpyHostToDevice));
        ok(launch(multiply, 1, 32, 0, NULL, on_a, on_b, on_c));
        itself_get(got, on_c, sizeof(got));
        for (int i = 0; i < 16 * 8; i++) { /* small integers: exact */
            float wanted = 1.0f;
            for (int k = 0; k < 16; k++) {
                wanted += __bfloat162float(a[i / 8 * 16 + k]) * __bfloat162float(b[k * 8 + i % 8]);
            }
            check_seed(seed, got[i] == wanted);
        }
        ok(cudaFree(on_a));
        ok(cudaFree(on_b));
        ok(cudaFree(on_c));
        itself_end();
    }
}

/* Registers as the tables of the PTX ISA list them, for lane 13 (group 3, thread 1 of it). */
static __global__ void fragments(uint32_t *out)
{
    __shared__ __align__(16) uint16_t matrices[4][8][8]; /* value: matrix, row, column in octal */
    uint32_t plain[4], transposed[4];

    for (unsigned i = threadIdx.x; i < 4 * 64; i += 32) {
        matrices[i / 64][i / 8 % 8][i % 8] = static_cast<uint16_t>(i);
    }
    __syncthreads();
    load_matrices(plain, matrices[threadIdx.x / 8][threadIdx.x % 8]);
    load_matrices_transposed(transposed, matrices[threadIdx.x / 8][threadIdx.x % 8]);
    if (threadIdx.x != 13) return;
    for (int i = 0; i < 4; i++) {
        out[i] = plain[i];
        out[4 + i] = transposed[i];
    }
}

static void lanes_get_the_fragments_of_the_ptx_isa(void **test_state)
{
    uint32_t got[8];

    (void)test_state;
    itself_begin(1);
    uint32_t *out = static_cast<uint32_t *>(itself_take(sizeof(got)));
    ok(launch(fragments, 1, 32, 0, NULL, out));
    itself_get(got, out, sizeof(got));
    for (unsigned m = 0; m < 4; m++) { /* row 3, columns 2 and 3; rows 2 and 3 of column 3 */
        assert_int_equal(got[m], (0100 * m + 032) | (0100 * m + 033) << 16);
        assert_int_equal(got[4 + m], (0100 * m + 023) | (0100 * m + 033) << 16);
    }
    ok(cudaFree(out));
    itself_end();
}

/* --- asynchronous copies -----------------------------------------------------------------------*/

static __global__ void copy_in(const float *from, float *to)
{
    __shared__ __align__(16) float tile[3][128];
    unsigned i = threadIdx.x;

    for (int stage = 0; stage < 3; stage++) {
        copy_async(&tile[stage][4 * i], from + 128 * stage + 4 * i, stage < 2 || i < 16);
        copy_async_commit();
    }
    to[i] = tile[0][4 * i]; /* too early */
    copy_async_wait<1>();
    to[32 + i] = tile[1][4 * i + 3];
    to[64 + i] = tile[2][4 * i]; /* too early */
    copy_async_wait<0>();
    __syncthreads();
    to[96 + i] = tile[2][4 * (31 - i) + 1];
}

static void copies_land_when_they_are_waited_for(void **test_state)
{
    (void)test_state;
    FOR_EACH_SEED (seed, 5) {
        float from[384], got[128];
        itself_begin(seed);
        for (int i = 0; i < 384; i++) {
            from[i] = static_cast<float>(i);
        }
        float *on_from = static_cast<float *>(itself_take(sizeof(from)));
        float *on_to = static_cast<float *>(itself_take(sizeof(got)));
        ok(cudaMemcpy(on_from, from, sizeof(from), cudaMemcpyHostToDevice));
        ok(launch(copy_in, 1, 32, 0, NULL, on_from, on_to));
        itself_get(got, on_to, sizeof(got));
        for (int i = 0; i < 32; i++) {
            check_seed(seed, isnan(got[i]) && isnan(got[64 + i]));
            check_seed(seed, got[32 + i] == static_cast<float>(128 + 4 * i + 3));
            int other = 31 - i;
            check_seed(seed, got[96 + i] ==
                                 (other < 16 ? static_cast<float>(256 + 4 * other + 1) : 0.0f));
        }
        ok(cudaFree(on_from));
        ok(cudaFree(on_to));
        itself_end();
    }
}

struct itself_tests itself_warps(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(shuffles_follow_their_definition),
        cmocka_unit_test(votes_are_those_of_the_mask),
        cmocka_unit_test(lanes_that_cannot_meet_are_an_abort),
        cmocka_unit_test(tensor_cores_multiply_matrices),
        cmocka_unit_test(lanes_get_the_fragments_of_the_ptx_isa),
        cmocka_unit_test(copies_land_when_they_are_waited_for),
    };

    return {tests, sizeof(tests) / sizeof(tests[0])};
}
