/*
 * Attention as a graph of cuDNN's backend operations: products, pointwise operations, reductions.
 * The library recognises the whole as attention and offers engines that compute it tile by tile, as
 * long as the graph has the form it knows; this form is that of the open source cudnn-frontend
 * (nodes SDPANode, SDPABackwardNode):
 *     forward   S = Q K' scale, where a key is behind the query the lowest number instead;
 *               M = max S; E = exp(S - M); L = sum E; statistics = M + log L; Y = (E / L) V
 *     backward  D = sum(dY Y); P = exp(S - statistics); dV = P' dY; dP = dY V';
 *               dS = (dP - D) P scale; dK = dS' Q; dQ = dS K
 * with dQ straight from its product: not by way of a sum in memory that blocks add to in any order.
 * Matrices are [samples][heads][rows][columns] with strides, so that nothing has to be moved.
 *
 * The first call that fails is kept in `status`, and none is made after it.
 */
#include "kernels/cuda/sequence/attention_graph.h"

#include "base/check.h"
#include "base/mem.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum {
    DIMENSIONS = 4,
    MADE_MAX = 160,
    OPERATIONS_MAX = 24,
    CONFIGS_MAX = 16,
    ALIGNMENT = 16,
    /* names of tensors: operands, numbers, and what only exists within the graph */
    FIRST_NUMBER = GRAPH_OPERANDS,
    NUMBER_SCALE = FIRST_NUMBER,
    NUMBER_LOWEST,
    NUMBER_ONE,
    FIRST_WITHIN,
    NUMBERS = FIRST_WITHIN - FIRST_NUMBER
};

struct attention_graph {
    const struct attention_graph_calls *calls;
    struct attention_graph_shape shape;
    cudnnHandle_t handle;            /* NULL: */
    cudnnBackendDescriptor_t device; /* this one */
    cudnnStatus_t status;
    cudnnBackendDescriptor_t made[MADE_MAX]; /* in order; destroyed the other way round */
    size_t made_count;
    cudnnBackendDescriptor_t operations[OPERATIONS_MAX];
    int64_t operations_count;
    cudnnBackendDescriptor_t configs[CONFIGS_MAX]; /* best first */
    int64_t configs_count;
    cudnnBackendDescriptor_t plan;
    int64_t workspace_bytes;
    int64_t names;          /* given to tensors within */
    float numbers[NUMBERS]; /* handed over by value */
};

struct tensor {
    cudnnBackendDescriptor_t descriptor;
    int64_t dimensions[DIMENSIONS], strides[DIMENSIONS];
};

/* --- descriptors ------------------------------------------------------------------------------*/

static cudnnBackendDescriptor_t make(struct attention_graph *g, cudnnBackendDescriptorType_t type)
{
    cudnnBackendDescriptor_t made = NULL;

    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    CHECK(g->made_count < MADE_MAX);
    g->status = g->calls->create(type, &made);
    if (g->status != CUDNN_STATUS_SUCCESS) return NULL;
    g->made[g->made_count++] = made;
    return made;
}

static void set_all(struct attention_graph *g, cudnnBackendDescriptor_t descriptor,
                    cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                    int64_t count, const void *values)
{
    if (g->status != CUDNN_STATUS_SUCCESS) return;
    g->status = g->calls->set(descriptor, name, type, count, values);
}

static void set(struct attention_graph *g, cudnnBackendDescriptor_t descriptor,
                cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                const void *value)
{
    set_all(g, descriptor, name, type, 1, value);
}

static void set_tensor(struct attention_graph *g, cudnnBackendDescriptor_t descriptor,
                       cudnnBackendAttributeName_t name, const struct tensor *tensor)
{
    if (tensor != NULL) {
        set(g, descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, &tensor->descriptor);
    }
}

static void finish(struct attention_graph *g, cudnnBackendDescriptor_t descriptor)
{
    if (g->status == CUDNN_STATUS_SUCCESS) g->status = g->calls->finalize(descriptor);
}

static void finish_operation(struct attention_graph *g, cudnnBackendDescriptor_t operation)
{
    CHECK(g->operations_count < OPERATIONS_MAX);
    finish(g, operation);
    g->operations[g->operations_count++] = operation;
}

/* --- tensors ----------------------------------------------------------------------------------*/

static struct tensor tensor_of(struct attention_graph *g, int64_t name, cudnnDataType_t type,
                               const int64_t dimensions[DIMENSIONS],
                               const int64_t strides[DIMENSIONS])
{
    const int64_t alignment = ALIGNMENT;
    bool is_within = name >= FIRST_WITHIN, is_number = !is_within && name >= FIRST_NUMBER;
    struct tensor tensor;

    memcpy(tensor.dimensions, dimensions, sizeof(tensor.dimensions));
    memcpy(tensor.strides, strides, sizeof(tensor.strides));
    name++; /* 0 is none */
    tensor.descriptor = make(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(g, tensor.descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    set_all(g, tensor.descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DIMENSIONS,
            dimensions);
    set_all(g, tensor.descriptor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DIMENSIONS, strides);
    set(g, tensor.descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, &name);
    set(g, tensor.descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, &alignment);
    set(g, tensor.descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, &is_within);
    if (is_number) {
        set(g, tensor.descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, &is_number);
    }
    finish(g, tensor.descriptor);
    return tensor;
}

/* [samples][heads][steps][head_width], or, `transposed`, with the last two exchanged. */
static struct tensor matrix(struct attention_graph *g, int64_t name, int64_t stride,
                            bool transposed)
{
    int64_t steps = g->shape.steps, width = g->shape.head_width;
    const int64_t plain[2][DIMENSIONS] = {
        {g->shape.samples, g->shape.heads, steps, width},
        {steps * stride, width, stride, 1},
    };
    const int64_t swapped[2][DIMENSIONS] = {
        {g->shape.samples, g->shape.heads, width, steps},
        {steps * stride, width, 1, stride},
    };
    const int64_t(*both)[DIMENSIONS] = transposed ? swapped : plain;

    return tensor_of(g, name, CUDNN_DATA_BFLOAT16, both[0], both[1]);
}

static struct tensor number(struct attention_graph *g, int64_t name)
{
    static const int64_t one[DIMENSIONS] = {1, 1, 1, 1};

    return tensor_of(g, name, CUDNN_DATA_FLOAT, one, one);
}

/* A value a query. */
static struct tensor column(struct attention_graph *g, int64_t name)
{
    const int64_t dimensions[] = {g->shape.samples, g->shape.heads, g->shape.steps, 1};
    const int64_t strides[] = {g->shape.heads * g->shape.steps, g->shape.steps, 1, 1};

    return tensor_of(g, name, CUDNN_DATA_FLOAT, dimensions, strides);
}

static int64_t within(struct attention_graph *g)
{
    return FIRST_WITHIN + g->names++;
}

/* A value for every query and key; `transposed`: key and query. */
static struct tensor square(struct attention_graph *g, cudnnDataType_t type, bool transposed)
{
    int64_t steps = g->shape.steps, all = steps * steps;
    const int64_t dimensions[] = {g->shape.samples, g->shape.heads, steps, steps};
    const int64_t plain[] = {g->shape.heads * all, all, steps, 1};
    const int64_t swapped[] = {g->shape.heads * all, all, 1, steps};

    return tensor_of(g, within(g), type, dimensions, transposed ? swapped : plain);
}

/* --- operations -------------------------------------------------------------------------------*/

struct pointwise {
    cudnnPointwiseMode_t mode;
    cudnnDataType_t type; /* computed in */
    const struct tensor *x, *b, *t;
    int64_t axis; /* of indices; 0: they are none */
};

static void pointwise(struct attention_graph *g, const struct pointwise *p, const struct tensor *y)
{
    cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    cudnnBackendDescriptor_t operation;

    set(g, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, &p->mode);
    set(g, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, &p->type);
    if (p->axis > 0) set(g, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, &p->axis);
    finish(g, how);
    operation = make(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    set(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, CUDNN_TYPE_BACKEND_DESCRIPTOR,
        &how);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, p->x);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, p->b);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, p->t);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    finish_operation(g, operation);
}

/* y = mode(x, b) in float32; b NULL: mode(x). */
static void apply(struct attention_graph *g, cudnnPointwiseMode_t mode, const struct tensor *x,
                  const struct tensor *b, const struct tensor *y)
{
    pointwise(g, &(struct pointwise){.mode = mode, .type = CUDNN_DATA_FLOAT, .x = x, .b = b}, y);
}

static void multiply(struct attention_graph *g, const struct tensor *a, const struct tensor *b,
                     const struct tensor *c)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR), operation;

    set(g, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    finish(g, how);
    operation = make(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    set(g, operation, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &how);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    finish_operation(g, operation);
}

static void reduce(struct attention_graph *g, cudnnReduceTensorOp_t mode, const struct tensor *x,
                   const struct tensor *y)
{
    const cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnBackendDescriptor_t how = make(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR), operation;

    set(g, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, &mode);
    set(g, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, &type);
    finish(g, how);
    operation = make(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    set(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, &how);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    finish_operation(g, operation);
}

/* y: x with rows for columns. */
static void transpose(struct attention_graph *g, const struct tensor *x, const struct tensor *y)
{
    cudnnBackendDescriptor_t operation = make(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);

    set_tensor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    set_tensor(g, operation, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    finish_operation(g, operation);
}

/* --- the two graphs ---------------------------------------------------------------------------*/

/* The scaled scores, masked. */
static struct tensor scores_of(struct attention_graph *g, const struct tensor *queries,
                               const struct tensor *keys, const struct tensor *scale)
{
    struct tensor products = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor scores = square(g, CUDNN_DATA_FLOAT, false), query, key, sees, lowest, masked;

    multiply(g, queries, keys, &products);
    apply(g, CUDNN_POINTWISE_MUL, &products, scale, &scores);
    if (!g->shape.is_causal) return scores;
    query = square(g, CUDNN_DATA_INT32, false);
    key = square(g, CUDNN_DATA_INT32, false);
    sees = square(g, CUDNN_DATA_BOOLEAN, false);
    lowest = number(g, NUMBER_LOWEST);
    masked = square(g, CUDNN_DATA_FLOAT, false);
    pointwise(
        g,
        &(struct pointwise){
            .mode = CUDNN_POINTWISE_GEN_INDEX, .type = CUDNN_DATA_INT32, .x = &scores, .axis = 2},
        &query);
    pointwise(
        g,
        &(struct pointwise){
            .mode = CUDNN_POINTWISE_GEN_INDEX, .type = CUDNN_DATA_INT32, .x = &scores, .axis = 3},
        &key);
    pointwise(
        g,
        &(struct pointwise){
            .mode = CUDNN_POINTWISE_CMP_GE, .type = CUDNN_DATA_BOOLEAN, .x = &query, .b = &key},
        &sees);
    pointwise(g,
              &(struct pointwise){.mode = CUDNN_POINTWISE_BINARY_SELECT,
                                  .type = CUDNN_DATA_FLOAT,
                                  .x = &scores,
                                  .b = &lowest,
                                  .t = &sees},
              &masked);
    return masked;
}

static void build_forward(struct attention_graph *g)
{
    int64_t width = g->shape.heads * g->shape.head_width;
    struct tensor queries = matrix(g, GRAPH_QUERIES, g->shape.query_stride, false);
    struct tensor keys = matrix(g, GRAPH_KEYS, g->shape.query_stride, true);
    struct tensor values = matrix(g, GRAPH_VALUES, g->shape.value_stride, false);
    struct tensor y = matrix(g, GRAPH_Y, width, false);
    struct tensor statistics = column(g, GRAPH_STATISTICS), scale = number(g, NUMBER_SCALE);
    struct tensor scores = scores_of(g, &queries, &keys, &scale);
    struct tensor max = column(g, within(g)), total = column(g, within(g));
    struct tensor logarithm = column(g, within(g));
    struct tensor below = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor powers = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor weights = square(g, CUDNN_DATA_BFLOAT16, false);

    reduce(g, CUDNN_REDUCE_TENSOR_MAX, &scores, &max);
    apply(g, CUDNN_POINTWISE_SUB, &scores, &max, &below);
    apply(g, CUDNN_POINTWISE_EXP, &below, NULL, &powers);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &powers, &total);
    apply(g, CUDNN_POINTWISE_LOG, &total, NULL, &logarithm);
    apply(g, CUDNN_POINTWISE_ADD, &max, &logarithm, &statistics);
    apply(g, CUDNN_POINTWISE_DIV, &powers, &total, &weights);
    multiply(g, &weights, &values, &y);
}

/* D of the head comment; the product by one is part of the form that the library knows. */
static struct tensor means_of(struct attention_graph *g, const struct tensor *dy,
                              const struct tensor *one)
{
    int64_t steps = g->shape.steps, width = g->shape.head_width, heads = g->shape.heads;
    const int64_t dimensions[] = {g->shape.samples, heads, steps, width};
    const int64_t strides[] = {heads * steps * width, steps * width, width, 1};
    struct tensor y = matrix(g, GRAPH_Y, heads * width, false);
    struct tensor products = tensor_of(g, within(g), CUDNN_DATA_FLOAT, dimensions, strides);
    struct tensor sums = column(g, within(g)), means = column(g, within(g));

    apply(g, CUDNN_POINTWISE_MUL, dy, &y, &products);
    reduce(g, CUDNN_REDUCE_TENSOR_ADD, &products, &sums);
    apply(g, CUDNN_POINTWISE_MUL, &sums, one, &means);
    return means;
}

/* dS of the head comment. */
static struct tensor dscores_of(struct attention_graph *g, const struct tensor *dy,
                                const struct tensor *weights, const struct tensor *means,
                                const struct tensor *one, const struct tensor *scale)
{
    struct tensor values = matrix(g, GRAPH_VALUES, g->shape.value_stride, true);
    struct tensor dweights = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor same = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor differences = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor products = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor dscores = square(g, CUDNN_DATA_BFLOAT16, false);

    multiply(g, dy, &values, &dweights);
    apply(g, CUDNN_POINTWISE_MUL, &dweights, one, &same);
    apply(g, CUDNN_POINTWISE_SUB, &same, means, &differences);
    apply(g, CUDNN_POINTWISE_MUL, &differences, weights, &products);
    apply(g, CUDNN_POINTWISE_MUL, &products, scale, &dscores);
    return dscores;
}

static void build_backward(struct attention_graph *g)
{
    int64_t width = g->shape.heads * g->shape.head_width;
    struct tensor dy = matrix(g, GRAPH_DY, width, false), one = number(g, NUMBER_ONE);
    struct tensor means = means_of(g, &dy, &one);
    struct tensor queries = matrix(g, GRAPH_QUERIES, g->shape.query_stride, false);
    struct tensor keys = matrix(g, GRAPH_KEYS, g->shape.query_stride, true);
    struct tensor keys_back = matrix(g, within(g), g->shape.query_stride, false);
    struct tensor statistics = column(g, GRAPH_STATISTICS), scale = number(g, NUMBER_SCALE);
    struct tensor scores = scores_of(g, &queries, &keys, &scale), dscores;
    struct tensor logarithms = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor weights = square(g, CUDNN_DATA_FLOAT, false);
    struct tensor weights_transposed = square(g, CUDNN_DATA_BFLOAT16, true);
    struct tensor dscores_transposed = square(g, CUDNN_DATA_BFLOAT16, true);
    struct tensor dqueries = matrix(g, GRAPH_DQUERIES, 3 * width, false);
    struct tensor dkeys = matrix(g, GRAPH_DKEYS, 3 * width, false);
    struct tensor dvalues = matrix(g, GRAPH_DVALUES, 3 * width, false);

    apply(g, CUDNN_POINTWISE_SUB, &scores, &statistics, &logarithms);
    apply(g, CUDNN_POINTWISE_EXP, &logarithms, NULL, &weights);
    transpose(g, &weights, &weights_transposed);
    multiply(g, &weights_transposed, &dy, &dvalues);
    dscores = dscores_of(g, &dy, &weights, &means, &one, &scale);
    transpose(g, &dscores, &dscores_transposed);
    multiply(g, &dscores_transposed, &queries, &dkeys);
    transpose(g, &keys, &keys_back);
    multiply(g, &dscores, &keys_back, &dqueries);
}

/* --- configurations and plan ------------------------------------------------------------------*/

static void find_configs(struct attention_graph *g)
{
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    cudnnBackendDescriptor_t all = make(g, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR), heuristic;
    cudnnBackendDescriptor_t configs[CONFIGS_MAX];

    set_all(g, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            g->operations_count, g->operations);
    if (g->handle != NULL) {
        set(g, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, &g->handle);
    }
    finish(g, all);
    heuristic = make(g, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, &all);
    set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, &mode);
    if (g->handle == NULL) {
        set(g, heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR,
            &g->device);
    }
    finish(g, heuristic);
    for (size_t i = 0; i < CONFIGS_MAX; i++) {
        configs[i] = make(g, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    }
    if (g->status != CUDNN_STATUS_SUCCESS) return;
    g->status =
        g->calls->get(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                      CONFIGS_MAX, &g->configs_count, configs);
    memcpy(g->configs, configs, sizeof(configs));
    if (g->configs_count > CONFIGS_MAX) g->configs_count = CONFIGS_MAX;
}

struct attention_graph *attention_graph_create(const struct attention_graph_calls *calls,
                                               const struct attention_graph_shape *shape,
                                               cudnnHandle_t handle,
                                               cudnnBackendDescriptor_t device)
{
    struct attention_graph *g = mem_alloc(sizeof(*g));

    CHECK((handle != NULL) != (device != NULL));
    if (g == NULL) return NULL;
    g->calls = calls;
    g->shape = *shape;
    g->handle = handle;
    g->device = device;
    g->status = CUDNN_STATUS_SUCCESS;
    g->numbers[NUMBER_SCALE - FIRST_NUMBER] = 1.0F / sqrtf((float)shape->head_width);
    g->numbers[NUMBER_LOWEST - FIRST_NUMBER] = -FLT_MAX;
    g->numbers[NUMBER_ONE - FIRST_NUMBER] = 1.0F;
    if (shape->is_backward) {
        build_backward(g);
    } else {
        build_forward(g);
    }
    find_configs(g);
    if (g->status == CUDNN_STATUS_SUCCESS && g->configs_count > 0) return g;
    attention_graph_destroy(g);
    return NULL;
}

void attention_graph_destroy(struct attention_graph *g)
{
    if (g == NULL) return;
    if (g->plan != NULL) (void)g->calls->destroy(g->plan);
    for (size_t i = g->made_count; i > 0; i--) {
        (void)g->calls->destroy(g->made[i - 1]);
    }
    mem_free(g);
}

int64_t attention_graph_ways(const struct attention_graph *g)
{
    return g->configs_count;
}

/* NULL: it cannot be used. */
static cudnnBackendDescriptor_t plan_of(struct attention_graph *g, cudnnBackendDescriptor_t config,
                                        int64_t *workspace_bytes)
{
    cudnnBackendDescriptor_t plan = NULL;
    int64_t got = 0;
    cudnnStatus_t status = g->calls->create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan);

    if (status != CUDNN_STATUS_SUCCESS) return NULL;
    status = g->calls->set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                           CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (status == CUDNN_STATUS_SUCCESS) {
        status =
            g->calls->set(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    }
    if (status == CUDNN_STATUS_SUCCESS) status = g->calls->finalize(plan);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = g->calls->get(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                               &got, workspace_bytes);
    }
    if (status == CUDNN_STATUS_SUCCESS) return plan;
    (void)g->calls->destroy(plan);
    return NULL;
}

bool attention_graph_plan(struct attention_graph *g, size_t workspace_bytes_max)
{
    CHECK(g->handle != NULL && g->plan == NULL);
    for (int64_t i = 0; i < g->configs_count; i++) {
        int64_t bytes = 0;
        cudnnBackendDescriptor_t plan = plan_of(g, g->configs[i], &bytes);

        if (plan == NULL) continue;
        if (bytes >= 0 && (uint64_t)bytes <= workspace_bytes_max) {
            g->plan = plan;
            g->workspace_bytes = bytes;
            return true;
        }
        (void)g->calls->destroy(plan);
    }
    return false;
}

size_t attention_graph_workspace(const struct attention_graph *g)
{
    return (size_t)g->workspace_bytes;
}

cudnnStatus_t attention_graph_run(struct attention_graph *g, void *const operands[GRAPH_OPERANDS],
                                  void *workspace)
{
    void *pointers[FIRST_WITHIN];
    int64_t names[FIRST_WITHIN], count = 0;
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status;

    CHECK(g->plan != NULL);
    for (int64_t i = 0; i < FIRST_WITHIN; i++) {
        bool is_number = i >= FIRST_NUMBER;
        if (!g->shape.is_backward && ((i >= GRAPH_DY && !is_number) || i == NUMBER_ONE)) continue;
        if (!g->shape.is_causal && i == NUMBER_LOWEST) continue;
        names[count] = i + 1;
        pointers[count++] = is_number ? (void *)&g->numbers[i - FIRST_NUMBER] : operands[i];
    }
    status = g->calls->create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) return status;
    status =
        g->calls->set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, names);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = g->calls->set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR,
                               count, pointers);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = g->calls->set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                               &workspace);
    }
    if (status == CUDNN_STATUS_SUCCESS) status = g->calls->finalize(pack);
    if (status == CUDNN_STATUS_SUCCESS) status = g->calls->execute(g->handle, g->plan, pack);
    (void)g->calls->destroy(pack);
    return status;
}
