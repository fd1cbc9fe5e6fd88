/*
 * The ONNX export of layers on sequences. Attention is written out (products, mask, softmax), as
 * opset 17 has no operator for it; recurrent layers are ONNX's own, whose gates lie in another
 * order: LSTM i, o, f, c where ours are i, f, g, o, and GRU z, r, h where ours are r, z, n.
 * Commands.
 */
#include "base/check.h"
#include "base/mem.h"
#include "kernels/sequence.h"
#include "replica/formats/export_onnx_plan.h"
#include "replica/formats/packed.h"

#include <math.h>
#include <string.h>

enum rc export_embedding(struct export *e, const struct stage *stage)
{
    export_output(
        e, stage,
        export_binary(e, "Gather", export_tensor(e, stage, 0), export_input(e, stage, 0)));
    return RC_OK;
}

/* Sequences may be shorter than the table. */
enum rc export_positions(struct export *e, const struct stage *stage)
{
    struct onnx_name table = export_tensor(e, stage, 0);
    const struct onnx_shape shape = {2, {stage->in.steps, stage->in.image.channels}};

    if (stage->in.steps < stage->layer.count) {
        table = export_constant(e, stage_values(e->model, stage, 0), shape);
    }
    export_output(e, stage, export_binary(e, "Add", export_input(e, stage, 0), table));
    return RC_OK;
}

/* ---- attention ---- */

static struct onnx_name slice_of_last(struct export *e, struct onnx_name x, int64_t from,
                                      int64_t to, int64_t axis)
{
    const struct onnx_name inputs[] = {x, export_integers(e, &from, 1), export_integers(e, &to, 1),
                                       export_integers(e, &axis, 1)};

    return export_op(e, "Slice", inputs, 4, NULL, 0);
}

/* Cosine or sine of step times frequency, [steps][1][half]. */
static enum rc angles_of(struct export *e, uint32_t steps, uint32_t half,
                         double (*function)(double), struct onnx_name *name)
{
    const struct onnx_shape shape = {3, {steps, 1, half}};
    float *values = mem_array((size_t)steps * half, sizeof *values);

    if (values == NULL) return RC_NOMEM;
    for (size_t t = 0; t < steps; t++) {
        for (size_t i = 0; i < half; i++) {
            double angle = (double)t * pow(10000.0, -(double)i / half);
            values[t * half + i] = (float)function(angle);
        }
    }
    *name = export_constant(e, values, shape);
    mem_free(values);
    return RC_OK;
}

/* Rotary positions: pairs (i, i + half) of x [batch][steps][heads][2 half] turn. */
static enum rc turn(struct export *e, uint32_t steps, uint32_t half, struct onnx_name *x)
{
    const struct onnx_attribute axis = {.name = "axis", .kind = ONNX_INT, .integer = 3};
    struct onnx_name first = slice_of_last(e, *x, 0, half, 3);
    struct onnx_name second = slice_of_last(e, *x, half, 2 * (int64_t)half, 3);
    struct onnx_name cosine, sine, turned[2];
    enum rc rc = angles_of(e, steps, half, cos, &cosine);

    if (rc == RC_OK) rc = angles_of(e, steps, half, sin, &sine);
    if (rc != RC_OK) return rc;
    turned[0] = export_binary(e, "Sub", export_binary(e, "Mul", first, cosine),
                              export_binary(e, "Mul", second, sine));
    turned[1] = export_binary(e, "Add", export_binary(e, "Mul", first, sine),
                              export_binary(e, "Mul", second, cosine));
    *x = export_op(e, "Concat", turned, 2, &axis, 1);
    return RC_OK;
}

/* What is added to the scores: nothing up to the query's own step, and enough to vanish beyond. */
static enum rc need_mask(struct export *e, uint32_t steps)
{
    const struct onnx_shape shape = {2, {steps, steps}};
    float *values;

    if (e->mask.text[0] != '\0' && e->masked_steps == steps) return RC_OK;
    values = mem_array((size_t)steps * steps, sizeof *values);
    if (values == NULL) return RC_NOMEM;
    for (size_t query = 0; query < steps; query++) {
        for (size_t key = query + 1; key < steps; key++) {
            values[query * steps + key] = -1e9F;
        }
    }
    e->mask = export_constant(e, values, shape);
    e->masked_steps = steps;
    mem_free(values);
    return RC_OK;
}

/* Queries (0), keys (1) or values (2) as matrices of heads. */
static enum rc part_of(struct export *e, const struct stage *stage, uint32_t part,
                       struct onnx_name *x)
{
    static const int64_t by_heads[] = {0, 2, 1, 3}, turned[] = {0, 2, 3, 1};
    uint32_t steps = stage->in.steps, width = stage->out.image.channels;
    uint32_t heads = stage->layer.count;
    const int64_t extents[] = {0, steps, heads, width / heads};
    enum rc rc = RC_OK;

    *x = slice_of_last(e, export_input(e, stage, 0), part * (int64_t)width,
                       (part + 1) * (int64_t)width, 2);
    *x = export_reshape(e, *x, extents, 4);
    if (stage->layer.keys[LAYER_ROTARY] == 1 && part < 2) {
        rc = turn(e, steps, width / heads / 2, x);
    }
    if (rc == RC_OK) *x = export_transpose(e, *x, part == 1 ? turned : by_heads, 4);
    return rc;
}

enum rc export_attention(struct export *e, const struct stage *stage)
{
    static const int64_t by_steps[] = {0, 2, 1, 3};
    const struct onnx_attribute axis = {.name = "axis", .kind = ONNX_INT, .integer = -1};
    const int64_t extents[] = {0, stage->in.steps, stage->out.image.channels};
    double head_width = (double)stage->out.image.channels / stage->layer.count;
    struct onnx_name parts[3], y;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < 3; i++) {
        rc = part_of(e, stage, i, &parts[i]);
    }
    if (rc == RC_OK && stage->layer.keys[LAYER_CAUSAL] == 1) rc = need_mask(e, stage->in.steps);
    if (rc != RC_OK) return rc;
    y = export_binary(e, "MatMul", parts[0], parts[1]);
    y = export_binary(e, "Mul", y, export_number(e, (float)(1.0 / sqrt(head_width))));
    if (stage->layer.keys[LAYER_CAUSAL] == 1) y = export_binary(e, "Add", y, e->mask);
    y = export_op(e, "Softmax", &y, 1, &axis, 1);
    y = export_binary(e, "MatMul", y, parts[2]);
    y = export_transpose(e, y, by_steps, 4);
    export_output(e, stage, export_reshape(e, y, extents, 3));
    return RC_OK;
}

/* ---- recurrent layers ---- */

/* Blocks of `block` bytes from our order of gates to ONNX's. */
static void order_gates(enum recurrent_kind kind, size_t block, const void *from, void *to)
{
    static const uint32_t orders[3][4] = {
        [RECURRENT_RNN] = {0}, [RECURRENT_GRU] = {1, 0, 2}, [RECURRENT_LSTM] = {0, 3, 1, 2}};

    for (uint32_t g = 0; g < recurrent_gates(kind); g++) {
        memcpy((uint8_t *)to + g * block, (const uint8_t *)from + orders[kind][g] * block, block);
    }
}

/* The same of a weight that the file has as int8: *is_int8 says whether it has. */
static enum rc int8_gates_of(struct export *e, const struct stage *stage,
                             const struct tensor *tensor, bool *is_int8, struct onnx_name *name)
{
    enum recurrent_kind kind = (enum recurrent_kind)stage->layer.variant;
    const size_t hidden = stage->layer.count, rows = tensor->shape[0], count = tensor->count;
    const struct onnx_shape shape = {3, {1, (int64_t)rows, (int64_t)(count / rows)}};
    int8_t *values = mem_array(count, sizeof *values);
    float *scales = mem_array(rows, sizeof *scales);
    const float *from;
    enum rc rc = values == NULL || scales == NULL ? RC_NOMEM : RC_OK;

    *is_int8 = rc == RC_OK && packed_int8(e->file, tensor, e->int8, &from);
    if (*is_int8) {
        order_gates(kind, hidden * (count / rows), e->int8, values);
        order_gates(kind, hidden * sizeof *scales, from, scales);
        *name = onnx_fresh(e->onnx);
        export_int8(e, *name, shape, values, 1, scales);
    }
    mem_free(values);
    mem_free(scales);
    return rc;
}

/* Tensor `i` with its gates in order; both biases make one. */
static enum rc gates_of(struct export *e, const struct stage *stage, uint32_t i,
                        struct onnx_name *name)
{
    enum recurrent_kind kind = (enum recurrent_kind)stage->layer.variant;
    const struct tensor *tensor = &e->model->schema.tensors[stage->tensors[i]];
    size_t hidden = stage->layer.count, rows = tensor->shape[0], columns = tensor->count / rows;
    bool is_bias = tensor->rank == 1, is_int8 = false;
    struct onnx_shape shape = {3, {1, (int64_t)rows, (int64_t)columns}};
    enum rc rc = RC_OK;
    float *values;

    if (e->file != NULL) rc = int8_gates_of(e, stage, tensor, &is_int8, name);
    if (rc != RC_OK || is_int8) return rc;
    values = mem_array(2 * tensor->count, sizeof *values);
    if (values == NULL) return RC_NOMEM;
    order_gates(kind, hidden * columns * sizeof *values, stage_values(e->model, stage, i), values);
    if (is_bias) {
        order_gates(kind, hidden * sizeof *values, stage_values(e->model, stage, i + 1),
                    values + rows);
        shape = (struct onnx_shape){2, {1, 2 * (int64_t)rows}};
    }
    *name = export_constant(e, values, shape);
    mem_free(values);
    return RC_OK;
}

enum rc export_recurrent(struct export *e, const struct stage *stage)
{
    static const int64_t swapped[] = {1, 0, 2};
    static const char *const names[] = {
        [RECURRENT_RNN] = "RNN", [RECURRENT_GRU] = "GRU", [RECURRENT_LSTM] = "LSTM"};
    enum recurrent_kind kind = (enum recurrent_kind)stage->layer.variant;
    const struct onnx_attribute attributes[] = {
        {.name = "hidden_size", .kind = ONNX_INT, .integer = stage->layer.count},
        {.name = "linear_before_reset", .kind = ONNX_INT, .integer = 1}};
    const int64_t direction = 1;
    struct onnx_name inputs[4], y;
    enum rc rc = RC_OK;

    inputs[0] = export_transpose(e, export_input(e, stage, 0), swapped, 3); /* steps first */
    for (uint32_t i = 0; rc == RC_OK && i < 3; i++) {
        rc = gates_of(e, stage, i, &inputs[1 + i]);
    }
    if (rc != RC_OK) return rc;
    y = export_op(e, names[kind], inputs, 4, attributes, kind == RECURRENT_GRU ? 2 : 1);
    y = export_binary(e, "Squeeze", y, export_integers(e, &direction, 1));
    export_output(e, stage, export_transpose(e, y, swapped, 3));
    return RC_OK;
}

/* ---- heads ---- */

struct onnx_name export_heads(struct export *e, struct onnx_name x, struct shape shape)
{
    const int64_t heads = e->model->heads, classes = e->model->classes, over = -2;
    const int64_t of_vector[] = {0, heads, classes}, of_rows[] = {0, shape.steps, heads, classes};
    const struct onnx_attribute axis = {.name = "axis", .kind = ONNX_INT, .integer = -1};
    const struct onnx_attribute mean[] = {
        {.name = "axes", .kind = ONNX_INTS, .integers = &over, .count = 1},
        {.name = "keepdims", .kind = ONNX_INT, .integer = 0}};

    x = shape.steps > 0 ? export_reshape(e, x, of_rows, 4) : export_reshape(e, x, of_vector, 3);
    x = export_op(e, "Softmax", &x, 1, &axis, 1);
    x = export_op(e, "ReduceMean", &x, 1, mean, 2);
    return export_unary(e, "Log", x);
}
