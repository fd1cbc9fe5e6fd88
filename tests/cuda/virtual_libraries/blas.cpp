/* Tests of the stand-in for cuBLAS. */
#include "tests/cuda/virtual_libraries/libraries.h"

#include <cublas_v2.h>

static cublasHandle_t create(void)
{
    cublasHandle_t handle = NULL;

    ok(cublasCreate(&handle));
    return handle;
}

static void destroy(cublasHandle_t handle)
{
    ok(cublasDestroy(handle));
    release_all();
}

/* Sizes of one product; memory is column by column. */
struct shape {
    int m, n, k, lda, ldb, ldc, batches;
    cublasOperation_t a, b;
    size_t a_stride, b_stride, c_stride;
};

static struct shape random_shape(uint64_t *seed)
{
    struct shape s;
    int extra = static_cast<int>(random_below_of(seed, 4));

    s.m = 1 + static_cast<int>(random_below_of(seed, 40));
    s.n = 1 + static_cast<int>(random_below_of(seed, 150));
    s.k = 1 + static_cast<int>(random_below_of(seed, 300));
    s.a = random_below_of(seed, 2) == 0 ? CUBLAS_OP_N : CUBLAS_OP_T;
    s.b = random_below_of(seed, 2) == 0 ? CUBLAS_OP_N : CUBLAS_OP_T;
    s.batches = 1 + static_cast<int>(random_below_of(seed, 3));
    s.lda = (s.a == CUBLAS_OP_N ? s.m : s.k) + extra;
    s.ldb = (s.b == CUBLAS_OP_N ? s.k : s.n) + extra;
    s.ldc = s.m + extra;
    s.a_stride = static_cast<size_t>(s.lda) * static_cast<size_t>(s.a == CUBLAS_OP_N ? s.k : s.m);
    s.b_stride = static_cast<size_t>(s.ldb) * static_cast<size_t>(s.b == CUBLAS_OP_N ? s.n : s.k);
    s.c_stride = static_cast<size_t>(s.ldc) * static_cast<size_t>(s.n);
    return s;
}

static doubles product(const struct shape &s, const floats &a, const floats &b, const floats &c,
                       double alpha, double beta)
{
    doubles result(c.begin(), c.end());

    for (int batch = 0; batch < s.batches; batch++) {
        for (int i = 0; i < s.m; i++) {
            for (int j = 0; j < s.n; j++) {
                double sum = 0.0;
                for (int k = 0; k < s.k; k++) {
                    int a_at = s.a == CUBLAS_OP_N ? k * s.lda + i : i * s.lda + k;
                    int b_at = s.b == CUBLAS_OP_N ? j * s.ldb + k : k * s.ldb + j;
                    sum += static_cast<double>(a[batch * s.a_stride + a_at]) *
                           b[batch * s.b_stride + b_at];
                }
                double &value = result[batch * s.c_stride + j * s.ldc + i];
                value = alpha * sum + (beta != 0.0 ? beta * value : 0.0);
            }
        }
    }
    return result;
}

/* Values between the columns of C belong to the caller and stay. */
static void compare_products(uint64_t first, cudaDataType in, cudaDataType out, bool is_on_device)
{
    enum value_type in_type = in == CUDA_R_16BF ? VALUE_BF16 : VALUE_F32;
    enum value_type out_type = out == CUDA_R_16BF ? VALUE_BF16 : VALUE_F32;
    uint64_t seed = first;
    struct shape s = random_shape(&seed);
    size_t batches = static_cast<size_t>(s.batches);
    floats a = random_values(&seed, s.a_stride * batches, in_type);
    floats b = random_values(&seed, s.b_stride * batches, in_type);
    floats c = random_values(&seed, s.c_stride * batches, out_type);
    float alpha = 0.75f, beta = first % 2 == 0 ? 0.0f : -0.5f;
    void *a_at = put(a, in_type), *b_at = put(b, in_type), *c_at = put(c, out_type);
    void *factors = put({alpha, beta}, VALUE_F32), *workspace = room_bytes(8192);
    const float *alpha_at = is_on_device ? static_cast<float *>(factors) : &alpha;
    const float *beta_at = is_on_device ? static_cast<float *>(factors) + 1 : &beta;
    cublasHandle_t handle = create();

    ok(cublasSetWorkspace(handle, workspace, 8192));
    ok(cublasSetPointerMode(handle,
                            is_on_device ? CUBLAS_POINTER_MODE_DEVICE : CUBLAS_POINTER_MODE_HOST));
    if (s.batches > 1) {
        ok(cublasGemmStridedBatchedEx(handle, s.a, s.b, s.m, s.n, s.k, alpha_at, a_at, in, s.lda,
                                      static_cast<long long>(s.a_stride), b_at, in, s.ldb,
                                      static_cast<long long>(s.b_stride), beta_at, c_at, out, s.ldc,
                                      static_cast<long long>(s.c_stride), s.batches,
                                      CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    } else {
        ok(cublasGemmEx(handle, s.a, s.b, s.m, s.n, s.k, alpha_at, a_at, in, s.lda, b_at, in, s.ldb,
                        beta_at, c_at, out, s.ldc, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    }
    alpha = 100.0f; /* it was read by the call */
    compare("gemm", get(c_at, c.size(), out_type), product(s, a, b, c, 0.75, beta), out_type);
    destroy(handle);
}

static void products_are_those_of_plain_loops(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 12) {
        compare_products(seed, CUDA_R_32F, CUDA_R_32F, false);
        compare_products(seed, CUDA_R_16BF, CUDA_R_16BF, seed % 3 == 0);
        compare_products(seed, CUDA_R_16BF, CUDA_R_32F, false);
    }
}

static void a_product_with_beta_0_does_not_read_c(void **state)
{
    cublasHandle_t handle = create();
    void *a = put({2.0f}, VALUE_F32), *b = put({3.0f}, VALUE_F32), *c = room(1, VALUE_F32);
    float alpha = 1.0f, beta = 0.0f;

    (void)state;
    ok(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, static_cast<float *>(a), 1,
                   static_cast<float *>(b), 1, &beta, static_cast<float *>(c), 1));
    assert_true(get(c, 1, VALUE_F32)[0] == 6.0f);
    destroy(handle);
}

/* 1 + 2^-12 is no TF32 number. */
static void tf32_rounds_what_it_multiplies(void **state)
{
    const float fine = 1.0f + 1.0f / 4096.0f, alpha = 1.0f, beta = 0.0f;
    cublasHandle_t handle = create();
    float *a = static_cast<float *>(put({fine}, VALUE_F32));
    float *b = static_cast<float *>(put({1.0f}, VALUE_F32));
    float *c = static_cast<float *>(room(1, VALUE_F32));

    (void)state;
    ok(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, a, 1, b, 1, &beta, c, 1));
    assert_true(get(c, 1, VALUE_F32)[0] == fine);
    ok(cublasSetMathMode(handle, CUBLAS_TF32_TENSOR_OP_MATH));
    ok(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, a, 1, b, 1, &beta, c, 1));
    assert_true(get(c, 1, VALUE_F32)[0] == 1.0f);
    ok(cublasSetMathMode(handle, CUBLAS_DEFAULT_MATH));
    ok(cublasGemmEx(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, a, CUDA_R_32F, 1, b,
                    CUDA_R_32F, 1, &beta, c, CUDA_R_32F, 1, CUBLAS_COMPUTE_32F_FAST_TF32,
                    CUBLAS_GEMM_DEFAULT));
    assert_true(get(c, 1, VALUE_F32)[0] == 1.0f);
    destroy(handle);
}

static cublasStatus_t gemm_4(cublasHandle_t handle, cudaDataType in, cudaDataType out, int lda,
                             int ldb, int ldc, cublasOperation_t a, cublasComputeType_t compute)
{
    float alpha = 1.0f, beta = 0.0f;
    void *block = room_bytes(4096);
    char *base = static_cast<char *>(block);

    return cublasGemmEx(handle, a, CUBLAS_OP_N, 4, 5, 6, &alpha, base, in, lda, base + 1024, in,
                        ldb, &beta, base + 2048, out, ldc, compute, CUBLAS_GEMM_DEFAULT);
}

static void what_does_not_fit_is_refused(void **state)
{
    const cublasComputeType_t plain = CUBLAS_COMPUTE_32F;
    const cudaDataType f = CUDA_R_32F, h = CUDA_R_16BF;
    cublasHandle_t handle = create();
    float alpha = 1.0f;

    (void)state;
    ok(gemm_4(handle, f, f, 4, 6, 4, CUBLAS_OP_N, plain));
    assert_int_equal(gemm_4(handle, f, f, 3, 6, 4, CUBLAS_OP_N, plain),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(gemm_4(handle, f, f, 4, 6, 4, CUBLAS_OP_T, plain),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(gemm_4(handle, f, f, 4, 5, 4, CUBLAS_OP_N, plain),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(gemm_4(handle, f, f, 4, 6, 3, CUBLAS_OP_N, plain),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(gemm_4(handle, f, f, 4, 6, 4, CUBLAS_OP_CONJG, plain),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(gemm_4(handle, f, h, 4, 6, 4, CUBLAS_OP_N, plain),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(gemm_4(handle, h, h, 4, 6, 4, CUBLAS_OP_N, CUBLAS_COMPUTE_32F_FAST_TF32),
                     CUBLAS_STATUS_NOT_SUPPORTED);
    assert_int_equal(gemm_4(NULL, f, f, 4, 6, 4, CUBLAS_OP_N, plain),
                     CUBLAS_STATUS_NOT_INITIALIZED);
    assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, NULL, 1, NULL,
                                 1, &alpha, NULL, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, NULL, NULL, 1, NULL, 1,
                                 &alpha, NULL, 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(cublasSetWorkspace(handle, static_cast<char *>(room_bytes(1024)) + 16, 512),
                     CUBLAS_STATUS_INVALID_VALUE);
    ok(cudaSetDevice(1));
    assert_int_equal(gemm_4(handle, f, f, 4, 6, 4, CUBLAS_OP_N, plain),
                     CUBLAS_STATUS_EXECUTION_FAILED);
    ok(cudaSetDevice(0));
    destroy(handle);
}

static void multiply_host_memory(void)
{
    float x[4] = {0}, alpha = 1.0f;

    (void)cublasSgemm(create(), CUBLAS_OP_N, CUBLAS_OP_N, 1, 1, 1, &alpha, x, 1, x + 1, 1, &alpha,
                      x + 2, 1);
}

static void multiply_in_place(void)
{
    float *x = static_cast<float *>(room_bytes(64)), alpha = 1.0f;

    (void)cublasSgemm(create(), CUBLAS_OP_N, CUBLAS_OP_N, 2, 2, 2, &alpha, x, 2, x + 8, 2, &alpha,
                      x + 2, 2);
}

static void what_a_gpu_would_not_survive_aborts(void **state)
{
    (void)state;
    aborts(multiply_host_memory, "is not memory of device 0");
    aborts(multiply_in_place, "is memory of an input");
}

struct libraries_tests libraries_blas(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_those_of_plain_loops),
        cmocka_unit_test(a_product_with_beta_0_does_not_read_c),
        cmocka_unit_test(tf32_rounds_what_it_multiplies),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(what_a_gpu_would_not_survive_aborts),
    };

    return {tests, sizeof(tests) / sizeof(*tests)};
}
