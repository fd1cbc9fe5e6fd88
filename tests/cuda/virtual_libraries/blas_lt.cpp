/* Tests of the stand-in for cuBLASLt. */
#include "tests/cuda/virtual_libraries/libraries.h"

#include <cublasLt.h>
#include <math.h>

/* D [m][n] by columns = alpha A B + beta C and an epilogue; its descriptors and memory. */
struct lt {
    cublasLtHandle_t handle;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c, d;
    cublasLtMatmulPreference_t preference;
    enum value_type in, out;
    uint64_t m, n, k;
    bool is_a_turned, is_b_turned;
    floats a_values, b_values, c_values, bias_values, aux_values;
    void *a_at, *b_at, *c_at, *d_at, *bias_at, *aux_at, *workspace;
    int64_t aux_stride;
};

static cudaDataType type_of(enum value_type type)
{
    return type == VALUE_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

template <typename T> static void set(struct lt *lt, cublasLtMatmulDescAttributes_t name, T value)
{
    ok(cublasLtMatmulDescSetAttribute(lt->operation, name, &value, sizeof(value)));
}

static struct lt begin(uint64_t seed, enum value_type in, enum value_type out, uint32_t epilogue)
{
    const uint64_t workspace_bytes = 4 << 20;
    struct lt lt = {};

    lt.in = in;
    lt.out = out;
    lt.m = 8 + random_below_of(&seed, 20);
    lt.n = 1 + random_below_of(&seed, 20);
    lt.k = 1 + random_below_of(&seed, 40);
    lt.is_a_turned = random_below_of(&seed, 2) == 0;
    lt.is_b_turned = random_below_of(&seed, 2) == 0;
    lt.aux_stride = epilogue & (CUBLASLT_EPILOGUE_RELU | 8) ? 128 : 32;
    lt.a_values = random_values(&seed, lt.m * lt.k, in);
    lt.b_values = random_values(&seed, lt.k * lt.n, in);
    lt.c_values = random_values(&seed, lt.m * lt.n, out);
    lt.bias_values = random_values(&seed, lt.m + lt.n, out);
    lt.aux_values = random_values(&seed, static_cast<size_t>(lt.aux_stride) * lt.n, out);
    lt.a_at = put(lt.a_values, in);
    lt.b_at = put(lt.b_values, in);
    lt.c_at = put(lt.c_values, out);
    lt.d_at = room(lt.m * lt.n, out);
    lt.bias_at = put(lt.bias_values, out);
    lt.aux_at = put(lt.aux_values, out);
    lt.workspace = room_bytes(workspace_bytes);
    ok(cublasLtCreate(&lt.handle));
    ok(cublasLtMatmulDescCreate(&lt.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(&lt, CUBLASLT_MATMUL_DESC_TRANSA, lt.is_a_turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(&lt, CUBLASLT_MATMUL_DESC_TRANSB, lt.is_b_turned ? CUBLAS_OP_T : CUBLAS_OP_N);
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue);
    set(&lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, lt.bias_at);
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, lt.aux_at);
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, lt.aux_stride);
    ok(cublasLtMatrixLayoutCreate(&lt.a, type_of(in), lt.is_a_turned ? lt.k : lt.m,
                                  lt.is_a_turned ? lt.m : lt.k,
                                  static_cast<int64_t>(lt.is_a_turned ? lt.k : lt.m)));
    ok(cublasLtMatrixLayoutCreate(&lt.b, type_of(in), lt.is_b_turned ? lt.n : lt.k,
                                  lt.is_b_turned ? lt.k : lt.n,
                                  static_cast<int64_t>(lt.is_b_turned ? lt.n : lt.k)));
    ok(cublasLtMatrixLayoutCreate(&lt.c, type_of(out), lt.m, lt.n, static_cast<int64_t>(lt.m)));
    ok(cublasLtMatrixLayoutCreate(&lt.d, type_of(out), lt.m, lt.n, static_cast<int64_t>(lt.m)));
    ok(cublasLtMatmulPreferenceCreate(&lt.preference));
    ok(cublasLtMatmulPreferenceSetAttribute(lt.preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                            &workspace_bytes, sizeof(workspace_bytes)));
    return lt;
}

static void end(struct lt *lt)
{
    ok(cublasLtMatmulPreferenceDestroy(lt->preference));
    for (cublasLtMatrixLayout_t layout : {lt->a, lt->b, lt->c, lt->d}) {
        ok(cublasLtMatrixLayoutDestroy(layout));
    }
    ok(cublasLtMatmulDescDestroy(lt->operation));
    ok(cublasLtDestroy(lt->handle));
    release_all();
}

static cublasStatus_t ask(struct lt *lt, cublasLtMatmulHeuristicResult_t *result)
{
    int count = 0;
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        lt->handle, lt->operation, lt->a, lt->b, lt->c, lt->d, lt->preference, 1, result, &count);

    assert_int_equal(count, status == CUBLAS_STATUS_SUCCESS ? 1 : 0);
    return status;
}

static cublasStatus_t multiply(struct lt *lt, const cublasLtMatmulAlgo_t *algo, size_t workspace)
{
    const float alpha = 0.5f, beta = 2.0f;

    return cublasLtMatmul(lt->handle, lt->operation, &alpha, lt->a_at, lt->a, lt->b_at, lt->b,
                          &beta, lt->c_at, lt->c, lt->d_at, lt->d, algo, lt->workspace, workspace,
                          NULL);
}

/* --- what they compute -------------------------------------------------------------------------*/

static double gelu(double x)
{
    return 0.5 * x * (1.0 + tanh(sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

static double a_of(const struct lt &lt, size_t i, size_t k)
{
    return lt.a_values[lt.is_a_turned ? i * lt.k + k : k * lt.m + i];
}

static double b_of(const struct lt &lt, size_t k, size_t j)
{
    return lt.b_values[lt.is_b_turned ? k * lt.n + j : j * lt.k + k];
}

/* alpha A B + beta C, and the bias where there is one. */
static doubles before(const struct lt &lt, uint32_t epilogue)
{
    doubles d(lt.m * lt.n);

    for (size_t j = 0; j < lt.n; j++) {
        for (size_t i = 0; i < lt.m; i++) {
            double sum = 0.0;
            for (size_t k = 0; k < lt.k; k++) {
                sum += a_of(lt, i, k) * b_of(lt, k, j);
            }
            d[j * lt.m + i] = 0.5 * sum + 2.0 * lt.c_values[j * lt.m + i] +
                              (epilogue & CUBLASLT_EPILOGUE_BIAS ? lt.bias_values[i] : 0.0);
        }
    }
    return d;
}

static void check_forward(uint64_t seed, enum value_type in, enum value_type out, uint32_t epilogue)
{
    struct lt lt = begin(seed, in, out, epilogue);
    cublasLtMatmulHeuristicResult_t result;
    doubles wanted = before(lt, epilogue), plain = wanted;

    for (double &value : wanted) {
        if (epilogue & CUBLASLT_EPILOGUE_RELU) value = value > 0.0 ? value : 0.0;
        if (epilogue & CUBLASLT_EPILOGUE_GELU) value = gelu(value);
    }
    ok(ask(&lt, &result));
    ok(multiply(&lt, seed % 2 == 0 ? &result.algo : NULL, result.workspaceSize));
    compare("D", get(lt.d_at, lt.m * lt.n, out), wanted, out);
    if (epilogue == CUBLASLT_EPILOGUE_GELU_AUX_BIAS) {
        floats aux = get(lt.aux_at, lt.aux_values.size(), out), kept(lt.m * lt.n);
        for (size_t i = 0; i < kept.size(); i++) {
            kept[i] = aux[i / lt.m * static_cast<size_t>(lt.aux_stride) + i % lt.m];
        }
        compare("aux", kept, plain, out);
    }
    end(&lt);
}

static void epilogues_are_those_of_plain_loops(void **state)
{
    const uint32_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT,   CUBLASLT_EPILOGUE_BIAS,
                                  CUBLASLT_EPILOGUE_RELU,      CUBLASLT_EPILOGUE_RELU_BIAS,
                                  CUBLASLT_EPILOGUE_GELU_BIAS, CUBLASLT_EPILOGUE_GELU_AUX_BIAS};

    (void)state;
    FOR_EACH_SEED (seed, 4) {
        for (uint32_t epilogue : epilogues) {
            check_forward(seed, VALUE_F32, VALUE_F32, epilogue);
            check_forward(seed, VALUE_BF16, VALUE_BF16, epilogue);
            check_forward(seed, VALUE_BF16, VALUE_F32, epilogue);
        }
    }
}

static void gradients_of_biases_are_sums_of_operands(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        for (uint32_t epilogue : {CUBLASLT_EPILOGUE_BGRADA, CUBLASLT_EPILOGUE_BGRADB}) {
            struct lt lt = begin(seed, VALUE_BF16, VALUE_F32, epilogue);
            bool is_of_a = epilogue == CUBLASLT_EPILOGUE_BGRADA;
            doubles sums(is_of_a ? lt.m : lt.n);

            for (size_t i = 0; i < sums.size(); i++) {
                for (size_t k = 0; k < lt.k; k++) {
                    sums[i] += is_of_a ? a_of(lt, i, k) : b_of(lt, k, i);
                }
            }
            ok(multiply(&lt, NULL, 0));
            compare("D", get(lt.d_at, lt.m * lt.n, VALUE_F32), before(lt, epilogue), VALUE_F32);
            compare("sums", get(lt.bias_at, sums.size(), VALUE_F32), sums, VALUE_F32);
            end(&lt);
        }
    }
}

static void the_way_back_through_gelu_is_its_slope(void **state)
{
    (void)state;
    FOR_EACH_SEED (seed, 4) {
        struct lt lt = begin(seed, VALUE_F32, VALUE_F32, CUBLASLT_EPILOGUE_DGELU_BGRAD);
        doubles wanted = before(lt, CUBLASLT_EPILOGUE_DGELU_BGRAD), sums(lt.m);

        for (size_t i = 0; i < wanted.size(); i++) {
            double x = lt.aux_values[i / lt.m * static_cast<size_t>(lt.aux_stride) + i % lt.m];
            wanted[i] *= (gelu(x + 1e-5) - gelu(x - 1e-5)) / 2e-5;
            sums[i % lt.m] += wanted[i];
        }
        ok(multiply(&lt, NULL, 0));
        compare("D", get(lt.d_at, lt.m * lt.n, VALUE_F32), wanted, VALUE_F32);
        compare("sums", get(lt.bias_at, lt.m, VALUE_F32), sums, VALUE_F32);
        end(&lt);
    }
}

static void the_mask_of_relu_brings_its_gradient_back(void **state)
{
    struct lt lt = begin(1, VALUE_F32, VALUE_F32, CUBLASLT_EPILOGUE_RELU_AUX_BIAS);
    doubles plain = before(lt, CUBLASLT_EPILOGUE_BIAS), wanted = before(lt, 0);

    (void)state;
    ok(multiply(&lt, NULL, 0));
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_DRELU));
    ok(multiply(&lt, NULL, 0));
    for (size_t i = 0; i < wanted.size(); i++) {
        if (!(plain[i] > 0.0)) wanted[i] = 0.0;
    }
    compare("D", get(lt.d_at, lt.m * lt.n, VALUE_F32), wanted, VALUE_F32);
    end(&lt);
}

/* --- what they refuse --------------------------------------------------------------------------*/

static void what_no_algorithm_does_is_not_supported(void **state)
{
    cublasLtMatmulHeuristicResult_t result;
    struct lt lt = begin(1, VALUE_BF16, VALUE_BF16, CUBLASLT_EPILOGUE_BIAS);

    (void)state;
    ok(ask(&lt, &result));
    set(&lt, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F); /* D is bfloat16 */
    assert_int_equal(ask(&lt, &result), CUBLAS_STATUS_NOT_SUPPORTED);
    set(&lt, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_16BF);
    ok(ask(&lt, &result));
    set(&lt, CUBLASLT_MATMUL_DESC_COMPUTE_TYPE, CUBLAS_COMPUTE_32F_FAST_TF32);
    assert_int_equal(ask(&lt, &result), CUBLAS_STATUS_NOT_SUPPORTED);
    end(&lt);
}

static void what_contradicts_itself_is_invalid(void **state)
{
    cublasLtMatmulHeuristicResult_t result;
    struct lt lt = begin(2, VALUE_F32, VALUE_F32, CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
    uint64_t rows = lt.m + 1;
    int64_t stride = 31, least = static_cast<int64_t>(lt.m) - 1;

    (void)state;
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, stride); /* no multiple of 8 */
    assert_int_equal(ask(&lt, &result), CUBLAS_STATUS_INVALID_VALUE);
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, lt.aux_stride);
    set<void *>(&lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, NULL);
    assert_int_equal(ask(&lt, &result), CUBLAS_STATUS_INVALID_VALUE);
    set(&lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, lt.bias_at);
    ok(cublasLtMatrixLayoutSetAttribute(lt.c, CUBLASLT_MATRIX_LAYOUT_LD, &least, sizeof(least)));
    assert_int_equal(ask(&lt, &result), CUBLAS_STATUS_INVALID_VALUE);
    least++;
    ok(cublasLtMatrixLayoutSetAttribute(lt.c, CUBLASLT_MATRIX_LAYOUT_LD, &least, sizeof(least)));
    ok(ask(&lt, &result));
    ok(cublasLtMatrixLayoutSetAttribute(lt.d, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(rows)));
    assert_int_equal(ask(&lt, &result), CUBLAS_STATUS_INVALID_VALUE);
    assert_int_equal(
        cublasLtMatrixLayoutSetAttribute(lt.d, CUBLASLT_MATRIX_LAYOUT_ROWS, &rows, sizeof(int)),
        CUBLAS_STATUS_INVALID_VALUE);
    end(&lt);
}

static void an_algorithm_serves_what_it_was_chosen_for(void **state)
{
    cublasLtMatmulHeuristicResult_t result;
    struct lt lt = begin(3, VALUE_F32, VALUE_F32, CUBLASLT_EPILOGUE_BIAS);
    void *aligned = lt.workspace, *bias = lt.bias_at;

    (void)state;
    ok(ask(&lt, &result));
    assert_true(result.workspaceSize > 0);
    ok(multiply(&lt, &result.algo, result.workspaceSize));
    assert_int_equal(multiply(&lt, &result.algo, result.workspaceSize - 1),
                     CUBLAS_STATUS_INVALID_VALUE);
    lt.workspace = static_cast<char *>(aligned) + 64;
    assert_int_equal(multiply(&lt, &result.algo, result.workspaceSize),
                     CUBLAS_STATUS_INVALID_VALUE);
    lt.workspace = aligned;
    set(&lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, static_cast<void *>(static_cast<char *>(bias) + 4));
    assert_int_equal(multiply(&lt, &result.algo, result.workspaceSize),
                     CUBLAS_STATUS_INVALID_VALUE);
    set(&lt, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
    set(&lt, CUBLASLT_MATMUL_DESC_EPILOGUE, static_cast<uint32_t>(CUBLASLT_EPILOGUE_DEFAULT));
    assert_int_equal(multiply(&lt, &result.algo, result.workspaceSize),
                     CUBLAS_STATUS_INVALID_VALUE);
    end(&lt);
}

struct libraries_tests libraries_blas_lt(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(epilogues_are_those_of_plain_loops),
        cmocka_unit_test(gradients_of_biases_are_sums_of_operands),
        cmocka_unit_test(the_way_back_through_gelu_is_its_slope),
        cmocka_unit_test(the_mask_of_relu_brings_its_gradient_back),
        cmocka_unit_test(what_no_algorithm_does_is_not_supported),
        cmocka_unit_test(what_contradicts_itself_is_invalid),
        cmocka_unit_test(an_algorithm_serves_what_it_was_chosen_for),
    };

    return {tests, sizeof(tests) / sizeof(*tests)};
}
