/*
 * The stand-in for cublasLtMatmul() and its heuristic: see blas_lt.cpp.
 *
 * Supported are float32 and bfloat16 as the documented table for CUBLAS_COMPUTE_32F combines them,
 * bias and auxiliary matrices in the output's type, columns first (rows first without an epilogue).
 * An algorithm is bound to the problem, the alignment and the workspace that the heuristic was
 * asked about, and the heuristic needs the pointers of bias and auxiliary memory: cublasLt.h says
 * that it depends on their values.
 */
#include "tests/cuda/virtual/blas_lt.h"

#include <math.h>

static const uint32_t ACCESS_ALIGNMENT = 16; /* of the widest loads */
static const uint32_t WORKSPACE_ALIGNMENT = 256;
static const size_t SPLIT_WORKSPACE = (size_t)1 << 20, WORKSPACE_TOUCHED = 4096;

/* --- what is asked for -------------------------------------------------------------------------*/

struct problem {
    struct blas_lt_operation operation;
    struct blas_lt_layout a, b, c, d;
    uint64_t m, n, k;
};

static enum value_type type_of(uint32_t type)
{
    return type == CUDA_R_16BF ? VALUE_BF16 : VALUE_F32;
}

static bool has(const struct problem *problem, uint32_t bits)
{
    return (problem->operation.epilogue & bits) == bits;
}

enum { EPILOGUE_AUX = 128, EPILOGUE_BGRAD = 16, EPILOGUE_DRELU = 8, EPILOGUE_DGELU = 64 };

static bool has_bias_memory(const struct problem *problem)
{
    return (problem->operation.epilogue & (CUBLASLT_EPILOGUE_BIAS | EPILOGUE_BGRAD |
                                           CUBLASLT_EPILOGUE_BGRADA | CUBLASLT_EPILOGUE_BGRADB)) !=
           0;
}

static bool is_bit_mask(const struct problem *problem)
{
    return has(problem, EPILOGUE_DRELU) || has(problem, CUBLASLT_EPILOGUE_RELU_AUX);
}

static bool is_epilogue(uint32_t epilogue)
{
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return true;
    default:
        return false;
    }
}

/* INVALID_VALUE: it contradicts itself. */
static bool is_layout_valid(const struct blas_lt_layout *layout)
{
    uint64_t least = layout->order == CUBLASLT_ORDER_ROW ? layout->columns : layout->rows;

    return layout->rows > 0 && layout->columns > 0 && layout->batches > 0 && layout->stride > 0 &&
           static_cast<uint64_t>(layout->stride) >= least;
}

static bool is_aux_valid(const struct problem *problem)
{
    const struct blas_lt_operation *operation = &problem->operation;
    int64_t unit = is_bit_mask(problem) ? 128 : 8;

    if (!has(problem, EPILOGUE_AUX)) return true;
    return operation->aux != NULL && operation->aux_stride % unit == 0 &&
           operation->aux_stride >= static_cast<int64_t>(problem->m) &&
           operation->aux_batch_stride % unit == 0;
}

static bool is_valid(const struct problem *problem)
{
    const struct blas_lt_operation *o = &problem->operation;
    const struct blas_lt_layout *a = &problem->a, *b = &problem->b, *c = &problem->c,
                                *d = &problem->d;
    bool is_a_plain = o->transa == CUBLAS_OP_N, is_b_plain = o->transb == CUBLAS_OP_N;

    if (!is_layout_valid(a) || !is_layout_valid(b) || !is_layout_valid(c) || !is_layout_valid(d)) {
        return false;
    }
    if (o->transa < CUBLAS_OP_N || o->transa > CUBLAS_OP_C || o->transb < CUBLAS_OP_N ||
        o->transb > CUBLAS_OP_C) {
        return false;
    }
    if ((is_a_plain ? a->rows : a->columns) != problem->m ||
        (is_a_plain ? a->columns : a->rows) != problem->k ||
        (is_b_plain ? b->rows : b->columns) != problem->k ||
        (is_b_plain ? b->columns : b->rows) != problem->n) {
        return false;
    }
    if (c->rows != d->rows || c->columns != d->columns) return false;
    if (a->batches != d->batches || b->batches != d->batches || c->batches != d->batches) {
        return false;
    }
    if (!is_epilogue(o->epilogue)) return false;
    if (has_bias_memory(problem) && o->bias == NULL) return false;
    return is_aux_valid(problem);
}

/* NOT_SUPPORTED: nothing that implements it. */
static bool are_types_supported(const struct problem *problem)
{
    uint32_t in = problem->a.type, out = problem->d.type;
    int32_t compute = problem->operation.compute;

    if (problem->operation.scale != CUDA_R_32F || problem->b.type != in || problem->c.type != out) {
        return false;
    }
    if (compute == CUBLAS_COMPUTE_32F_FAST_TF32 || compute == CUBLAS_COMPUTE_32F_FAST_16BF ||
        compute == CUBLAS_COMPUTE_32F_FAST_16F) {
        return in == CUDA_R_32F && out == CUDA_R_32F;
    }
    if (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC) return false;
    if (in == CUDA_R_32F) return out == CUDA_R_32F;
    return in == CUDA_R_16BF && (out == CUDA_R_16BF || out == CUDA_R_32F);
}

static bool is_order_supported(const struct blas_lt_layout *layout)
{
    return layout->order == CUBLASLT_ORDER_COL || layout->order == CUBLASLT_ORDER_ROW;
}

static bool is_supported(const struct problem *problem)
{
    const struct blas_lt_operation *o = &problem->operation;
    int32_t out = static_cast<int32_t>(problem->d.type);

    if (!are_types_supported(problem)) return false;
    if (!is_order_supported(&problem->a) || !is_order_supported(&problem->b) ||
        !is_order_supported(&problem->d) || problem->c.order != problem->d.order) {
        return false;
    }
    if (o->epilogue != CUBLASLT_EPILOGUE_DEFAULT && problem->d.order != CUBLASLT_ORDER_COL) {
        return false;
    }
    if (problem->a.plane != 0 || problem->b.plane != 0 || problem->d.plane != 0 ||
        problem->a.mode != 0 || problem->b.mode != 0 || problem->c.mode != 0 ||
        problem->d.mode != 0) {
        return false;
    }
    if (o->transc != CUBLAS_OP_N || o->fill != CUBLAS_FILL_MODE_FULL ||
        (o->pointers != CUBLASLT_POINTER_MODE_HOST &&
         o->pointers != CUBLASLT_POINTER_MODE_DEVICE)) {
        return false;
    }
    if (o->a_scale != NULL || o->b_scale != NULL || o->c_scale != NULL || o->d_scale != NULL ||
        o->aux_scale != NULL || o->d_out_scale != NULL || o->amax != NULL || o->aux_amax != NULL) {
        return false;
    }
    if (has_bias_memory(problem) && o->bias_type != -1 && o->bias_type != out) return false;
    return !has(problem, EPILOGUE_AUX) || is_bit_mask(problem) || o->aux_type == -1 ||
           o->aux_type == out;
}

static cublasStatus_t problem_read(struct problem *problem, cublasLtMatmulDesc_t operation,
                                   cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                   cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d)
{
    if (operation == NULL || a == NULL || b == NULL || c == NULL || d == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    memset(problem, 0, sizeof(*problem));
    memcpy(&problem->operation, operation, sizeof(problem->operation));
    memcpy(&problem->a, a, sizeof(problem->a));
    memcpy(&problem->b, b, sizeof(problem->b));
    memcpy(&problem->c, c, sizeof(problem->c));
    memcpy(&problem->d, d, sizeof(problem->d));
    problem->m = problem->d.rows;
    problem->n = problem->d.columns;
    problem->k = problem->operation.transa == CUBLAS_OP_N ? problem->a.columns : problem->a.rows;
    if (!is_valid(problem)) return CUBLAS_STATUS_INVALID_VALUE;
    return is_supported(problem) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

/* FNV-1a of what an algorithm is chosen for. */
static uint64_t mix(uint64_t hash, const void *block, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        hash = (hash ^ static_cast<const uint8_t *>(block)[i]) * 0x100000001B3u;
    }
    return hash;
}

static uint64_t problem_hash(const struct problem *problem)
{
    const struct blas_lt_operation *o = &problem->operation;
    const int32_t kinds[] = {o->compute, o->scale, o->transa, o->transb,
                             static_cast<int32_t>(o->epilogue)};
    uint64_t hash = mix(0xCBF29CE484222325u, kinds, sizeof(kinds));

    hash = mix(hash, &problem->a, sizeof(problem->a));
    hash = mix(hash, &problem->b, sizeof(problem->b));
    hash = mix(hash, &problem->c, sizeof(problem->c));
    hash = mix(hash, &problem->d, sizeof(problem->d));
    return mix(hash, &o->aux_stride, sizeof(o->aux_stride));
}

extern "C" cublasStatus_t
cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation,
                               cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                               cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d,
                               cublasLtMatmulPreference_t preference, int requested,
                               cublasLtMatmulHeuristicResult_t *results, int *returned)
{
    struct problem problem;
    struct blas_lt_preference wanted;
    struct blas_lt_algo algo = {};
    cublasStatus_t status;

    if (returned != NULL) *returned = 0;
    if (handle == NULL || handle->magic != BLAS_LT_HANDLE_MAGIC) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (preference == NULL || requested < 1 || results == NULL || returned == NULL) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (virtual_call() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    status = problem_read(&problem, operation, a, b, c, d);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    memcpy(&wanted, preference, sizeof(wanted));
    if (wanted.search != CUBLASLT_SEARCH_BEST_FIT) return CUBLAS_STATUS_NOT_SUPPORTED;
    algo.magic = BLAS_LT_ALGO_MAGIC;
    algo.problem = problem_hash(&problem);
    algo.a_alignment = wanted.a_alignment;
    algo.b_alignment = wanted.b_alignment;
    algo.c_alignment = wanted.c_alignment;
    algo.d_alignment = wanted.d_alignment;
    algo.bias_alignment = library_alignment(problem.operation.bias);
    algo.aux_alignment = library_alignment(problem.operation.aux);
    for (uint32_t id = 2; id > 0 && *returned < requested; id--) { /* 2: splits the inner sum */
        cublasLtMatmulHeuristicResult_t *result = &results[*returned];

        algo.id = id;
        algo.workspace_bytes = id == 2 ? SPLIT_WORKSPACE : 0;
        if (algo.workspace_bytes > wanted.workspace_bytes) continue;
        memset(result, 0, sizeof(*result));
        memcpy(&result->algo, &algo, sizeof(algo));
        result->workspaceSize = algo.workspace_bytes;
        result->state = CUBLAS_STATUS_SUCCESS;
        result->wavesCount = 1.0f;
        ++*returned;
    }
    return CUBLAS_STATUS_SUCCESS;
}

/* --- the product -------------------------------------------------------------------------------*/

struct call {
    struct problem problem;
    const void *alpha, *beta, *a, *b, *c;
    void *d;
    bool is_on_host;
    float alpha_value, beta_value;
    void *workspace;
    size_t workspace_bytes;
};

/* Of a batch; `is_flipped`: op() is not the matrix itself. */
static struct matrix matrix_of(const struct blas_lt_layout *layout, const void *at, bool is_flipped,
                               int32_t batch)
{
    bool is_by_rows = layout->order == CUBLASLT_ORDER_ROW;
    size_t stride = static_cast<size_t>(layout->stride);
    size_t row_stride = is_by_rows ? stride : 1, column_stride = is_by_rows ? 1 : stride;
    struct matrix matrix;

    matrix.type = type_of(layout->type);
    matrix.at = static_cast<const char *>(at) +
                batch * layout->batch_stride * static_cast<int64_t>(value_bytes(matrix.type));
    matrix.rows = is_flipped ? layout->columns : layout->rows;
    matrix.columns = is_flipped ? layout->rows : layout->columns;
    matrix.row_stride = is_flipped ? column_stride : row_stride;
    matrix.column_stride = is_flipped ? row_stride : column_stride;
    return matrix;
}

static size_t matrix_bytes(const struct matrix *matrix)
{
    return ((matrix->rows - 1) * matrix->row_stride +
            (matrix->columns - 1) * matrix->column_stride + 1) *
           value_bytes(matrix->type);
}

/* CUBLASLT's GELU is the approximation by tanh. */
static float gelu(float x)
{
    return 0.5f * x * (1.0f + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
}

static float gelu_slope(float x)
{
    float t = tanhf(0.7978845608f * (x + 0.044715f * x * x * x));

    return 0.5f * (1.0f + t) +
           0.5f * x * (1.0f - t * t) * 0.7978845608f * (1.0f + 3.0f * 0.044715f * x * x);
}

/* Bit (row, column) of the mask that a RELU leaves. */
static bool aux_bit(const void *aux, size_t at)
{
    return (static_cast<const uint8_t *>(aux)[at / 8] >> (at % 8) & 1) != 0;
}

static void aux_set_bit(void *aux, size_t at, bool is_set)
{
    uint8_t *byte = static_cast<uint8_t *>(aux) + at / 8;

    *byte = static_cast<uint8_t>((*byte & ~(1u << at % 8)) | (is_set ? 1u << at % 8 : 0u));
}

/* One value on its way to D. */
static float finish(const struct problem *problem, float value, void *aux, size_t aux_at,
                    enum value_type type)
{
    if (has(problem, EPILOGUE_DRELU)) return aux_bit(aux, aux_at) ? value : 0.0f;
    if (has(problem, EPILOGUE_DGELU)) return value * gelu_slope(value_get(type, aux, aux_at));
    if (has(problem, CUBLASLT_EPILOGUE_RELU)) {
        if (has(problem, EPILOGUE_AUX)) aux_set_bit(aux, aux_at, value > 0.0f);
        return value > 0.0f ? value : 0.0f;
    }
    if (has(problem, CUBLASLT_EPILOGUE_GELU)) {
        if (has(problem, EPILOGUE_AUX)) value_put(type, aux, aux_at, value);
        return gelu(value);
    }
    return value;
}

/* Bias gradients of operands: sums over the inner dimension. */
static void put_operand_sums(const struct problem *problem, const std::vector<float> &a,
                             const std::vector<float> &b, enum value_type type, void *bias)
{
    bool is_of_a = problem->operation.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    uint64_t count = is_of_a ? problem->m : problem->n;

    for (uint64_t i = 0; i < count; i++) {
        double sum = 0.0;
        for (uint64_t k = 0; k < problem->k; k++) {
            sum += is_of_a ? a[i * problem->k + k] : b[k * problem->n + i];
        }
        value_put(type, bias, i, static_cast<float>(sum));
    }
}

static void put_outputs(const struct call *call, const std::vector<float> &sums, float alpha,
                        float beta, int32_t batch)
{
    const struct problem *p = &call->problem;
    struct matrix c = matrix_of(&p->c, call->c, false, batch);
    struct matrix d = matrix_of(&p->d, call->d, false, batch);
    size_t bytes = value_bytes(d.type);
    char *bias = static_cast<char *>(const_cast<void *>(p->operation.bias)) +
                 batch * p->operation.bias_batch_stride * static_cast<int64_t>(bytes);
    void *aux = const_cast<void *>(p->operation.aux);
    size_t aux_first = static_cast<size_t>(batch * p->operation.aux_batch_stride);

    for (size_t row = 0; row < d.rows; row++) {
        double bias_sum = 0.0;

        for (size_t column = 0; column < d.columns; column++) {
            size_t at = row * d.row_stride + column * d.column_stride;
            size_t aux_at = aux_first + row + column * static_cast<size_t>(p->operation.aux_stride);
            float value = alpha * sums[row * d.columns + column];

            if (beta != 0.0f) {
                value +=
                    beta * value_get(c.type, c.at, row * c.row_stride + column * c.column_stride);
            }
            if (has(p, CUBLASLT_EPILOGUE_BIAS)) value += value_get(d.type, bias, row);
            value = finish(p, value, aux, aux_at, d.type);
            bias_sum += value;
            value_put(d.type, const_cast<void *>(d.at), at, value);
        }
        if (has(p, EPILOGUE_BGRAD)) value_put(d.type, bias, row, static_cast<float>(bias_sum));
    }
}

static void compute(const struct call *call)
{
    const struct problem *p = &call->problem;
    float alpha = call->is_on_host ? call->alpha_value : *static_cast<const float *>(call->alpha);
    float beta = call->is_on_host ? call->beta_value : *static_cast<const float *>(call->beta);
    enum value_rounding rounding = ROUND_NOTHING;
    enum value_type out = type_of(p->d.type);

    if (p->operation.compute == CUBLAS_COMPUTE_32F_FAST_16BF) rounding = ROUND_BF16;
    if (p->operation.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ||
        p->operation.compute == CUBLAS_COMPUTE_32F_FAST_16F) {
        rounding = ROUND_TF32;
    }
    library_scribble(call->workspace, call->workspace_bytes);
    for (int32_t batch = 0; batch < p->d.batches; batch++) {
        std::vector<float> a = matrix_values(
            matrix_of(&p->a, call->a, p->operation.transa != CUBLAS_OP_N, batch), rounding);
        std::vector<float> b = matrix_values(
            matrix_of(&p->b, call->b, p->operation.transb != CUBLAS_OP_N, batch), rounding);

        if (p->operation.epilogue == CUBLASLT_EPILOGUE_BGRADA ||
            p->operation.epilogue == CUBLASLT_EPILOGUE_BGRADB) {
            put_operand_sums(p, a, b, out,
                             static_cast<char *>(const_cast<void *>(p->operation.bias)) +
                                 batch * p->operation.bias_batch_stride *
                                     static_cast<int64_t>(value_bytes(out)));
        }
        put_outputs(call, matrix_product(a, b, p->m, p->n, p->k), alpha, beta, batch);
    }
}

/* --- checks of a call --------------------------------------------------------------------------*/

static bool is_aligned(const void *block, uint32_t assumed)
{
    uint32_t needed = assumed < ACCESS_ALIGNMENT ? assumed : ACCESS_ALIGNMENT;

    return library_alignment(block) >= needed;
}

static cublasStatus_t check_algo(const struct call *call, const cublasLtMatmulAlgo_t *given)
{
    struct blas_lt_algo algo;

    if (given == NULL) return CUBLAS_STATUS_SUCCESS; /* asks the heuristic about these pointers */
    memcpy(&algo, given, sizeof(algo));
    if (algo.magic != BLAS_LT_ALGO_MAGIC || algo.problem != problem_hash(&call->problem)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    if (algo.workspace_bytes > call->workspace_bytes) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(call->a, algo.a_alignment) || !is_aligned(call->b, algo.b_alignment) ||
        !is_aligned(call->c, algo.c_alignment) || !is_aligned(call->d, algo.d_alignment) ||
        !is_aligned(call->problem.operation.bias, algo.bias_alignment) ||
        !is_aligned(call->problem.operation.aux, algo.aux_alignment)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    return CUBLAS_STATUS_SUCCESS;
}

static void check_epilogue_memory(const struct problem *problem, int device)
{
    const struct blas_lt_operation *o = &problem->operation;
    size_t bytes = value_bytes(type_of(problem->d.type));
    uint64_t count = o->epilogue == CUBLASLT_EPILOGUE_BGRADB ? problem->n : problem->m;
    uint64_t batches = static_cast<uint64_t>(problem->d.batches);

    if (has_bias_memory(problem)) {
        uint64_t others = (batches - 1) * static_cast<uint64_t>(o->bias_batch_stride);
        library_reach("cublasLtMatmul", "the bias", o->bias, (others + count) * bytes, device);
    }
    if (has(problem, EPILOGUE_AUX)) {
        uint64_t values = (batches - 1) * static_cast<uint64_t>(o->aux_batch_stride) +
                          (problem->n - 1) * static_cast<uint64_t>(o->aux_stride) + problem->m;
        library_reach("cublasLtMatmul", "the auxiliary matrix", o->aux,
                      is_bit_mask(problem) ? (values + 7) / 8 : values * bytes, device);
    }
}

static void check_memory(const struct call *call, int device)
{
    const struct problem *p = &call->problem;

    for (int32_t batch = 0; batch < p->d.batches; batch++) {
        struct matrix a = matrix_of(&p->a, call->a, false, batch);
        struct matrix b = matrix_of(&p->b, call->b, false, batch);
        struct matrix c = matrix_of(&p->c, call->c, false, batch);
        struct matrix d = matrix_of(&p->d, call->d, false, batch);
        bool is_in_place = c.at == d.at && memcmp(&p->c, &p->d, sizeof(p->c)) == 0;

        library_reach("cublasLtMatmul", "A", a.at, matrix_bytes(&a), device);
        library_reach("cublasLtMatmul", "B", b.at, matrix_bytes(&b), device);
        library_reach("cublasLtMatmul", "C", c.at, matrix_bytes(&c), device);
        library_reach("cublasLtMatmul", "D", d.at, matrix_bytes(&d), device);
        library_apart("cublasLtMatmul", d.at, matrix_bytes(&d), a.at, matrix_bytes(&a));
        library_apart("cublasLtMatmul", d.at, matrix_bytes(&d), b.at, matrix_bytes(&b));
        if (is_in_place) continue;
        library_apart("cublasLtMatmul", d.at, matrix_bytes(&d), c.at, matrix_bytes(&c));
    }
    check_epilogue_memory(p, device);
    library_reach("cublasLtMatmul", "the workspace", call->workspace, call->workspace_bytes,
                  device);
}

extern "C" cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t operation, const void *alpha, const void *A,
    cublasLtMatrixLayout_t Adesc, const void *B, cublasLtMatrixLayout_t Bdesc, const void *beta,
    const void *C, cublasLtMatrixLayout_t Cdesc, void *D, cublasLtMatrixLayout_t Ddesc,
    const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    struct call call = {};
    cublasStatus_t status;

    if (handle == NULL || handle->magic != BLAS_LT_HANDLE_MAGIC) {
        return CUBLAS_STATUS_NOT_INITIALIZED;
    }
    if (virtual_call() != cudaSuccess) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (alpha == NULL || A == NULL || B == NULL || beta == NULL || C == NULL || D == NULL ||
        (workspace == NULL && workspace_bytes > 0)) {
        return CUBLAS_STATUS_INVALID_VALUE;
    }
    status = problem_read(&call.problem, operation, Adesc, Bdesc, Cdesc, Ddesc);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    call.alpha = alpha;
    call.beta = beta;
    call.a = A;
    call.b = B;
    call.c = C;
    call.d = D;
    call.workspace = workspace;
    call.workspace_bytes = workspace_bytes;
    status = check_algo(&call, algo);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (library_alignment(workspace) < WORKSPACE_ALIGNMENT) return CUBLAS_STATUS_INVALID_VALUE;
    if (virtual_stream_device(NULL) != handle->device ||
        virtual_stream_device(stream) != handle->device) {
        return CUBLAS_STATUS_EXECUTION_FAILED;
    }
    check_memory(&call, handle->device);
    call.is_on_host = call.problem.operation.pointers == CUBLASLT_POINTER_MODE_HOST;
    if (call.is_on_host) {
        call.alpha_value = *static_cast<const float *>(alpha);
        call.beta_value = *static_cast<const float *>(beta);
    }
    if (call.workspace_bytes > WORKSPACE_TOUCHED) call.workspace_bytes = WORKSPACE_TOUCHED;
    return virtual_queue(stream, [call] { compute(&call); }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
