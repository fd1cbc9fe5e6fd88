/*
 * Dense layers and matrix products by cuBLASLt and cuBLAS. The libraries' matrices are
 * column-major: what is [rows][columns] here is a matrix of `columns` rows there, so that
 *
 *     y  [rows][out] = x W^T    is there  y^T  (out x rows) = (W^T)^T x^T
 *     dx [rows][in]  = dy W               dx^T (in x rows)  = W^T dy^T
 *     dW [out][in]   = dy^T x             dW^T (in x out)   = x^T (dy^T)^T
 *
 * float32 operands are multiplied as such (never as TF32); bfloat16 ones are summed in float32 and
 * rounded once, and gradients of weights stay float32. Sums that are cut into parts are joined in
 * float32. The bias rides on the forward product, and gelu by tanh, which leaves what it is of as
 * well; other activation functions follow it: relu too, since the library's makes 0 of a NaN, which
 * then nobody would notice. Back through such a gelu goes the product dx of the layer behind it;
 * and dbias, the sums of dy, comes with the product dW, which reads all of dy.
 *
 * Padding A vocabulary is rarely a multiple of 8 (50257), and rows of logits that begin anywhere
 * keep the tensor cores' loads out. So the rows of y may be further apart (y_stride): the copy of
 * weights and bias has zeros for the values between, and the products go over them.
 * Plans   The library is asked once for each shape of a product, and where its matrices are aligned
 *         otherwise; the answer is kept. It depends on nothing else, so equal calls give equal
 *         bits. What cuBLASLt has no algorithm for, and layers of one input or output, where its
 *         epilogues are not to be trusted, cuBLAS multiplies, which takes everything.
 * dbias   of float32 layers, and where the library has no product with it, is a kernel's of ours.
 *         The library wants an aligned vector and overwrites it, so there is one beside the plane
 *         of gradients, where they lie side by side. Its DGELU_BGRAD would make the sums of the
 *         layer before in the type of dx, bfloat16; those of dW are float32.
 */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/cuda/internal.h"

#include <limits.h>

enum { PLANS = 16, ALIGNMENT_MAX = 256 };

enum product { PRODUCT_FORWARD, PRODUCT_INPUT, PRODUCT_WEIGHT };

/* c (m x n) = op(a) (m x k) op(b) (k x n), as the library counts. */
struct form {
    size_t m, n, k, a_stride, b_stride, c_stride;
    cublasOperation_t a_form, b_form;
    cudaDataType type, c_type;
};

struct operands {
    const void *a, *b;
    void *c;
    void *bias; /* forward: the bias; dW: gets the sums of b; NULL: there is none */
    const void
        *pre; /* what gelu is of: forward it is written, for dx it is read; NULL: not wanted */
    bool adds;
    bool with_gelu;
};

struct plan {
    enum product product;
    size_t rows;
    uint32_t alignments[3]; /* of a, b, c; 0: the plan is not made */
    bool adds;
    bool with_bias, with_gelu, with_pre;
    bool is_refused; /* by cuBLASLt */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

struct linear_cuda {
    struct linear base;
    struct cuda_backend *cuda;
    struct linear_options options;
    void *weight_bf16;   /* bfloat16: the weights; NULL: operands are float32 */
    void *bias_here;     /* as the epilogue wants it: of the type of y, and aligned; NULL: none */
    float *bias_sums;    /* its gradient as the epilogue makes it, aligned; NULL: it does not */
    const float *weight; /* borrowed from prepare() */
    uint32_t next;       /* plan to give up when a new one is wanted */
    struct plan plans[PLANS];
};

static struct linear_cuda *linear_of(struct linear *linear)
{
    return (struct linear_cuda *)linear;
}

static struct form form_of(const struct linear_cuda *l, enum product product, size_t rows)
{
    size_t in = l->options.in, out = l->options.y_stride;
    cudaDataType type = l->cuda->is_bf16 ? CUDA_R_16BF : CUDA_R_32F;
    struct form form = {.a_stride = in, .type = type, .c_type = type};

    switch (product) {
    case PRODUCT_FORWARD:
        form.m = out, form.n = rows, form.k = in;
        form.b_stride = in, form.c_stride = out;
        form.a_form = CUBLAS_OP_T, form.b_form = CUBLAS_OP_N;
        break;
    case PRODUCT_INPUT:
        form.m = in, form.n = rows, form.k = out;
        form.b_stride = out, form.c_stride = in;
        form.a_form = CUBLAS_OP_N, form.b_form = CUBLAS_OP_N;
        break;
    case PRODUCT_WEIGHT:
        form.m = in, form.n = l->options.out, form.k = rows;
        form.b_stride = out, form.c_stride = in;
        form.a_form = CUBLAS_OP_N, form.b_form = CUBLAS_OP_T;
        form.c_type = CUDA_R_32F;
        break;
    }
    return form;
}

/* --- plans -------------------------------------------------------------------------------------*/

static void plan_clear(struct plan *plan)
{
    if (plan->c != NULL) (void)cublasLtMatrixLayoutDestroy(plan->c);
    if (plan->b != NULL) (void)cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->a != NULL) (void)cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->operation != NULL) (void)cublasLtMatmulDescDestroy(plan->operation);
    *plan = (struct plan){0};
}

static enum rc describe_matrix(struct cuda_backend *cuda, cudaDataType type,
                               cublasOperation_t matrix_form, size_t rows, size_t columns,
                               size_t stride, cublasLtMatrixLayout_t *layout)
{
    bool is_plain = matrix_form == CUBLAS_OP_N;
    enum rc rc;

    BLAS_TRY(cuda, cublasLtMatrixLayoutCreate(layout, type, is_plain ? rows : columns,
                                              is_plain ? columns : rows, (int64_t)stride));
out:
    return rc;
}

static uint32_t epilogue_of(const struct plan *plan)
{
    if (plan->product == PRODUCT_WEIGHT) {
        return plan->with_bias ? CUBLASLT_EPILOGUE_BGRADB : CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (plan->product == PRODUCT_INPUT) {
        return plan->with_pre ? CUBLASLT_EPILOGUE_DGELU : CUBLASLT_EPILOGUE_DEFAULT;
    }
    if (plan->with_pre) {
        return plan->with_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
    }
    if (plan->with_gelu) {
        return plan->with_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
    }
    return plan->with_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

static enum rc describe_epilogue(const struct linear_cuda *l, const struct form *form,
                                 const struct plan *plan)
{
    int64_t stride = (int64_t)form->m;
    uint32_t epilogue = epilogue_of(plan);
    enum rc rc;

    BLAS_TRY(l->cuda, cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                     &epilogue, sizeof(epilogue)));
    if (!plan->with_pre) return RC_OK;
    BLAS_TRY(l->cuda,
             cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                            &stride, sizeof(stride)));
out:
    return rc;
}

/* Where the epilogue reads and writes. */
static enum rc point_to(const struct linear_cuda *l, const struct plan *plan,
                        const struct operands *operands)
{
    enum rc rc = RC_OK;

    if (plan->operation == NULL) return RC_OK;
    if (plan->with_bias) {
        BLAS_TRY(l->cuda,
                 cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                                &operands->bias, sizeof(operands->bias)));
    }
    if (plan->with_pre) {
        BLAS_TRY(l->cuda, cublasLtMatmulDescSetAttribute(plan->operation,
                                                         CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
                                                         &operands->pre, sizeof(operands->pre)));
    }
out:
    return rc;
}

static enum rc describe(const struct linear_cuda *l, const struct form *form, struct plan *plan)
{
    struct cuda_backend *cuda = l->cuda;
    enum rc rc;

    BLAS_TRY(cuda, cublasLtMatmulDescCreate(&plan->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    BLAS_TRY(cuda, cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA,
                                                  &form->a_form, sizeof(form->a_form)));
    BLAS_TRY(cuda, cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB,
                                                  &form->b_form, sizeof(form->b_form)));
    rc =
        describe_matrix(cuda, form->type, form->a_form, form->m, form->k, form->a_stride, &plan->a);
    if (rc != RC_OK) goto out;
    rc =
        describe_matrix(cuda, form->type, form->b_form, form->k, form->n, form->b_stride, &plan->b);
    if (rc != RC_OK) goto out;
    rc = describe_matrix(cuda, form->c_type, CUBLAS_OP_N, form->m, form->n, form->c_stride,
                         &plan->c);
    if (rc == RC_OK) rc = describe_epilogue(l, form, plan);
out:
    return rc;
}

static enum rc prefer(struct cuda_backend *cuda, const struct plan *plan,
                      cublasLtMatmulPreference_t preference)
{
    const uint32_t *alignments = plan->alignments;
    uint64_t workspace = cuda->blas_workspace_bytes;
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_NONE | CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof(workspace)},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof(reductions)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &alignments[0], sizeof(alignments[0])},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &alignments[1], sizeof(alignments[1])},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &alignments[2], sizeof(alignments[2])},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &alignments[2], sizeof(alignments[2])},
    };
    enum rc rc = RC_OK;

    for (size_t i = 0; i < ARRAY_COUNT(wishes); i++) {
        BLAS_TRY(cuda, cublasLtMatmulPreferenceSetAttribute(preference, wishes[i].attribute,
                                                            wishes[i].value, wishes[i].bytes));
    }
out:
    return rc;
}

/* plan->is_refused if the library has no algorithm. */
static enum rc choose(struct cuda_backend *cuda, struct plan *plan)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasLtMatmulHeuristicResult_t result = {.state = CUBLAS_STATUS_NOT_SUPPORTED};
    int results = 0;
    cublasStatus_t status;
    enum rc rc;

    BLAS_TRY(cuda, cublasLtMatmulPreferenceCreate(&preference));
    rc = prefer(cuda, plan, preference);
    if (rc != RC_OK) goto out;
    status = cublasLtMatmulAlgoGetHeuristic(cuda->blas_lt, plan->operation, plan->a, plan->b,
                                            plan->c, plan->c, preference, 1, &result, &results);
    plan->is_refused = status != CUBLAS_STATUS_SUCCESS || results < 1 ||
                       result.state != CUBLAS_STATUS_SUCCESS ||
                       result.workspaceSize > cuda->blas_workspace_bytes;
    plan->algorithm = result.algo;
out:
    if (preference != NULL) (void)cublasLtMatmulPreferenceDestroy(preference);
    return rc;
}

static enum rc plan_make(struct linear_cuda *l, const struct form *form,
                         const struct operands *operands, struct plan *plan)
{
    enum rc rc = RC_OK;

    plan->is_refused = l->options.in == 1 || l->options.out == 1;
    if (!plan->is_refused) rc = describe(l, form, plan);
    if (rc == RC_OK) rc = point_to(l, plan, operands);
    if (rc == RC_OK && !plan->is_refused) rc = choose(l->cuda, plan);
    if (rc != RC_OK) plan_clear(plan);
    return rc;
}

static uint32_t alignment_of(const void *block)
{
    uintptr_t address = (uintptr_t)block | ALIGNMENT_MAX;

    return (uint32_t)(address & (~address + 1));
}

static bool plan_is_for(const struct plan *plan, const struct plan *wanted)
{
    return plan->product == wanted->product && plan->rows == wanted->rows &&
           plan->adds == wanted->adds && plan->with_bias == wanted->with_bias &&
           plan->with_gelu == wanted->with_gelu && plan->with_pre == wanted->with_pre &&
           plan->alignments[0] == wanted->alignments[0] &&
           plan->alignments[1] == wanted->alignments[1] &&
           plan->alignments[2] == wanted->alignments[2];
}

static enum rc plan_find(struct linear_cuda *l, enum product product, size_t rows,
                         const struct operands *operands, struct plan **found)
{
    struct plan wanted = {
        .product = product,
        .rows = rows,
        .alignments = {alignment_of(operands->a), alignment_of(operands->b),
                       alignment_of(operands->c)},
        .adds = operands->adds,
        .with_bias = operands->bias != NULL,
        .with_gelu = operands->with_gelu,
        .with_pre = operands->pre != NULL,
    };
    struct form form = form_of(l, product, rows);
    struct plan *plan;
    enum rc rc;

    for (size_t i = 0; i < PLANS; i++) {
        *found = &l->plans[i];
        if (plan_is_for(*found, &wanted)) return point_to(l, *found, operands);
    }
    plan = &l->plans[l->next];
    plan_clear(plan);
    *plan = wanted;
    rc = plan_make(l, &form, operands, plan);
    if (rc != RC_OK) return rc;
    l->next = (l->next + 1) % PLANS;
    *found = plan;
    return RC_OK;
}

/* --- products ----------------------------------------------------------------------------------*/

static enum rc multiply_plainly(struct cuda_backend *cuda, const struct form *form, float alpha,
                                float beta, const struct operands *operands)
{
    enum rc rc;

    BLAS_TRY(cuda, cublasGemmEx(cuda->blas, form->a_form, form->b_form, (int)form->m, (int)form->n,
                                (int)form->k, &alpha, operands->a, form->type, (int)form->a_stride,
                                operands->b, form->type, (int)form->b_stride, &beta, operands->c,
                                form->c_type, (int)form->c_stride, CUBLAS_COMPUTE_32F,
                                CUBLAS_GEMM_DEFAULT));
out:
    return rc;
}

/* `is_finished`: what was asked for beside the product is done: bias and gelu. */
static enum rc multiply(struct linear_cuda *l, enum product product, size_t rows,
                        const struct operands *operands, bool *is_finished)
{
    struct cuda_backend *cuda = l->cuda;
    const float one = 1.0F, beta = operands->adds ? 1.0F : 0.0F;
    struct form form = form_of(l, product, rows);
    struct plan *plan = NULL;
    enum rc rc = plan_find(l, product, rows, operands, &plan);

    *is_finished = false;
    if (rc != RC_OK) return rc;
    if (!plan->is_refused) {
        cublasStatus_t status = cublasLtMatmul(
            cuda->blas_lt, plan->operation, &one, operands->a, plan->a, operands->b, plan->b, &beta,
            operands->c, plan->c, operands->c, plan->c, &plan->algorithm, cuda->blas_workspace,
            cuda->blas_workspace_bytes, cuda->stream);
        *is_finished = true;
        if (status != CUBLAS_STATUS_NOT_SUPPORTED) {
            return cuda_check_blas(cuda, status, "cublasLtMatmul", __FILE__, __LINE__);
        }
        plan->is_refused = true; /* it found out late */
        *is_finished = false;
    }
    return multiply_plainly(cuda, &form, one, beta, operands);
}

enum rc cuda_gemm(struct backend *backend, const struct gemm *g)
{
    const struct form form = {
        .m = g->columns,
        .n = g->rows,
        .k = g->inner,
        .a_stride = g->b_stride,
        .b_stride = g->a_stride,
        .c_stride = g->c_stride,
        .a_form = g->is_b_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        .b_form = g->is_a_transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
        .type = CUDA_R_32F,
        .c_type = CUDA_R_32F,
    };
    const struct operands operands = {.a = g->b, .b = g->a, .c = g->c};

    CHECK(g->rows <= INT_MAX && g->columns <= INT_MAX && g->inner <= INT_MAX);
    CHECK(g->a_stride <= INT_MAX && g->b_stride <= INT_MAX && g->c_stride <= INT_MAX);
    if (g->rows == 0 || g->columns == 0) return RC_OK;
    return multiply_plainly(cuda_of(backend), &form, g->alpha, g->beta, &operands);
}

/* --- the layer ---------------------------------------------------------------------------------*/

static void linear_destroy(struct linear *linear)
{
    struct linear_cuda *l = linear_of(linear);
    struct backend *backend = &l->cuda->base;

    for (size_t i = 0; i < PLANS; i++) {
        plan_clear(&l->plans[i]);
    }
    backend->ops->free(backend, l->bias_sums);
    backend->ops->free(backend, l->bias_here);
    backend->ops->free(backend, l->weight_bf16);
    mem_free(l);
}

static enum rc linear_prepare(struct linear *linear, const float *weight, const float *bias)
{
    struct linear_cuda *l = linear_of(linear);
    struct cuda_backend *cuda = l->cuda;
    enum rc rc = RC_OK;

    CHECK((bias != NULL) == l->options.with_bias);
    l->weight = weight;
    if (cuda->is_bf16) {
        rc = cuda_to_bf16(cuda, weight, l->weight_bf16, l->options.in * l->options.out);
    }
    if (rc == RC_OK && bias != NULL) {
        rc = cuda_to_activations(&cuda->base, bias, l->bias_here, l->options.out);
    }
    return rc;
}

static uint32_t linear_copies(const struct linear *linear, const float *weight, const float *bias,
                              struct parameter_copy copies[LINEAR_COPIES_MAX])
{
    const struct linear_cuda *l = (const struct linear_cuda *)linear;
    const struct linear_options *o = &l->options;

    copies[0] = (struct parameter_copy){weight, o->in * o->out, l->weight_bf16};
    if (bias == NULL) return 1;
    copies[1] = (struct parameter_copy){bias, o->out, l->bias_here};
    return 2;
}

static const void *weight_of(const struct linear_cuda *l)
{
    return l->cuda->is_bf16 ? l->weight_bf16 : l->weight;
}

/* Gelu by tanh of rows of so many values is the library's too, where what it is of is, or can be
 * left, in rows of 16 bytes. */
static bool has_gelu(const struct linear_cuda *l, size_t columns, const void *pre)
{
    return l->cuda->is_bf16 && columns % 8 == 0 && (pre == NULL || alignment_of(pre) >= 16);
}

static enum rc linear_forward(struct linear *linear, size_t rows, const void *x, void *pre, void *y)
{
    struct linear_cuda *l = linear_of(linear);
    const struct linear_options *o = &l->options;
    bool with_gelu = o->activation.kind == ACTIVATION_GELU_TANH && has_gelu(l, o->out, pre);
    bool is_finished;
    void *to = pre != NULL && !with_gelu ? pre : y;
    const struct operands operands = {.a = weight_of(l),
                                      .b = x,
                                      .c = to,
                                      .bias = l->bias_here,
                                      .pre = with_gelu ? pre : NULL,
                                      .with_gelu = with_gelu};
    enum rc rc;

    CHECK(rows > 0 && rows <= o->rows_max && l->weight != NULL);
    CHECK(pre == NULL || activation_needs_input(o->activation.kind));
    rc = multiply(l, PRODUCT_FORWARD, rows, &operands, &is_finished);
    if (rc != RC_OK) return rc;
    if (!is_finished && (o->with_bias || o->activation.kind != ACTIVATION_NONE)) {
        return cuda_bias_activation(l->cuda, o->activation, rows, o->y_stride, to, l->bias_here,
                                    pre, y);
    }
    if (o->activation.kind == ACTIVATION_NONE || with_gelu) return RC_OK;
    return cuda_activation_forward(&l->cuda->base, o->activation, to, y, rows * o->out);
}

/* dW, and dbias: with it, where the library does both. */
static enum rc backward_weights(struct linear_cuda *l, const struct linear_backward *pass)
{
    struct cuda_backend *cuda = l->cuda;
    const struct linear_options *o = &l->options;
    bool is_there = pass->is_first && alignment_of(pass->dbias) >= 16, is_finished;
    float *sums = is_there && l->bias_sums != NULL ? pass->dbias : l->bias_sums;
    const struct operands operands = {
        .a = pass->x, .b = pass->dy, .c = pass->dweight, .bias = sums, .adds = !pass->is_first};
    enum rc rc = multiply(l, PRODUCT_WEIGHT, pass->rows, &operands, &is_finished);

    if (rc != RC_OK || pass->dbias == NULL) return rc;
    if (!is_finished || sums == NULL) {
        return cuda_column_sums(cuda, pass->dy, pass->rows, o->out, o->y_stride, !pass->is_first,
                                pass->dbias);
    }
    if (sums == pass->dbias) return RC_OK;
    if (!pass->is_first) return cuda_axpy(&cuda->base, 1.0F, sums, pass->dbias, o->out);
    return cuda->base.ops->copy(&cuda->base, pass->dbias, sums, o->out * sizeof(float));
}

/* dx, and back through the gelu that made x. */
static enum rc backward_input(struct linear_cuda *l, const struct linear_backward *pass)
{
    static const struct activation gelu = {ACTIVATION_GELU_TANH, 0.0F};
    bool with_gelu = pass->x_pre != NULL && has_gelu(l, l->options.in, pass->x_pre), is_finished;
    const struct operands operands = {.a = weight_of(l),
                                      .b = pass->dy,
                                      .c = pass->dx,
                                      .pre = with_gelu ? pass->x_pre : NULL,
                                      .adds = pass->adds_to_dx,
                                      .with_gelu = with_gelu};
    enum rc rc = multiply(l, PRODUCT_INPUT, pass->rows, &operands, &is_finished);

    if (rc != RC_OK || pass->x_pre == NULL || (with_gelu && is_finished)) return rc;
    return cuda_activation_backward(&l->cuda->base, gelu, pass->x_pre, NULL, pass->dx, pass->dx,
                                    pass->rows * l->options.in);
}

static enum rc linear_backward(struct linear *linear, const struct linear_backward *pass)
{
    struct linear_cuda *l = linear_of(linear);
    const struct linear_options *o = &l->options;
    enum rc rc = RC_OK;

    CHECK(pass->rows > 0 && pass->rows <= o->rows_max && o->with_gradients);
    CHECK((pass->dbias != NULL) == o->with_bias);
    CHECK(pass->dx == NULL || o->with_input_gradient);
    CHECK(pass->x_pre == NULL || !pass->adds_to_dx);
    if (o->activation.kind != ACTIVATION_NONE && !pass->is_joined) {
        rc = cuda_activation_backward(&l->cuda->base, o->activation, pass->pre, pass->y, pass->dy,
                                      pass->dy, pass->rows * o->out);
    }
    if (rc == RC_OK) rc = backward_weights(l, pass);
    if (rc != RC_OK || pass->dx == NULL) return rc;
    return backward_input(l, pass); /* last: dx may be x */
}

static const struct linear_ops linear_ops = {
    .name = "cublas",
    .destroy = linear_destroy,
    .prepare = linear_prepare,
    .forward = linear_forward,
    .backward = linear_backward,
};

static const struct linear_ops linear_ops_bf16 = {
    .name = "cublas",
    .destroy = linear_destroy,
    .prepare = linear_prepare,
    .copies = linear_copies,
    .forward = linear_forward,
    .backward = linear_backward,
};

enum rc cuda_linear_create(struct backend *backend, const struct linear_options *options,
                           struct linear **linear)
{
    struct cuda_backend *cuda = cuda_of(backend);
    struct linear_cuda *l;
    enum rc rc = RC_NOMEM;

    CHECK(options->in > 0 && options->out > 0 && options->rows_max > 0);
    CHECK(options->activation.kind < ACTIVATION_COUNT);
    CHECK(options->y_stride == 0 || options->y_stride >= options->out);
    CHECK(options->y_stride <= options->out ||
          (cuda->is_bf16 && options->activation.kind == ACTIVATION_NONE));
    if (options->in > INT_MAX || options->out > INT_MAX || options->rows_max > INT_MAX) {
        return RC_UNSUPPORTED;
    }
    l = mem_alloc(sizeof(*l));
    if (l == NULL) return RC_NOMEM;
    l->base.ops = cuda->is_bf16 ? &linear_ops_bf16 : &linear_ops;
    l->cuda = cuda;
    l->options = *options;
    if (options->y_stride == 0) l->options.y_stride = options->out;
    if (cuda->is_bf16) {
        l->weight_bf16 = backend->ops->alloc(backend, options->in * l->options.y_stride * 2);
        if (l->weight_bf16 == NULL) goto out;
    }
    if (options->with_bias) {
        l->bias_here = backend->ops->alloc(backend, l->options.y_stride * backend->value_bytes);
        if (l->bias_here == NULL) goto out;
    }
    if (cuda->is_bf16 && options->with_bias && options->with_gradients) {
        l->bias_sums = backend->ops->alloc(backend, options->out * sizeof(float));
        if (l->bias_sums == NULL) goto out;
    }
    rc =
        cuda_scratch_reserve(cuda, cuda_column_sums_scratch(cuda, options->rows_max, options->out));
out:
    if (rc != RC_OK) {
        linear_destroy(&l->base);
        return rc;
    }
    *linear = &l->base;
    return RC_OK;
}
