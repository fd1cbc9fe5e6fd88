/*
 * From the stages of a model to ONNX nodes: one function a kind of stage, those of sequences in
 * export_onnx_sequence.c. Layout stages vanish, for ONNX knows one layout; weight-normalised
 * weights are written as the product uses them. Operators: https://onnx.ai/onnx/operators.
 * Commands.
 */
#include "replica/formats/export_onnx.h"

#include "base/check.h"
#include "base/mem.h"
#include "replica/formats/export_onnx_plan.h"
#include "replica/formats/model_file.h"
#include "replica/formats/packed.h"

#include <math.h>
#include <string.h>

static const float epsilon = 1e-5F; /* of every normalisation */

/* ---- what the others are made of ---- */

static struct onnx_name name_of(const char *text)
{
    struct onnx_name name = {""};

    CHECK(strlen(text) < sizeof name.text);
    memcpy(name.text, text, strlen(text) + 1);
    return name;
}

struct onnx_name export_op(struct export *e, const char *op, const struct onnx_name *inputs,
                           size_t inputs_count, const struct onnx_attribute *attributes,
                           size_t attributes_count)
{
    struct onnx_name output = onnx_fresh(e->onnx);
    const struct onnx_node node = {op, inputs,     inputs_count,    &output,
                                   1,  attributes, attributes_count};

    onnx_add_node(e->onnx, &node);
    return output;
}

struct onnx_name export_unary(struct export *e, const char *op, struct onnx_name x)
{
    return export_op(e, op, &x, 1, NULL, 0);
}

struct onnx_name export_binary(struct export *e, const char *op, struct onnx_name x,
                               struct onnx_name y)
{
    const struct onnx_name inputs[] = {x, y};

    return export_op(e, op, inputs, 2, NULL, 0);
}

struct onnx_name export_transpose(struct export *e, struct onnx_name x, const int64_t *order,
                                  size_t rank)
{
    const struct onnx_attribute perm = {
        .name = "perm", .kind = ONNX_INTS, .integers = order, .count = rank};

    return export_op(e, "Transpose", &x, 1, &perm, 1);
}

struct onnx_name export_integers(struct export *e, const int64_t *values, size_t count)
{
    struct onnx_name name = onnx_fresh(e->onnx);

    onnx_add_i64_copy(e->onnx, name, (struct onnx_shape){1, {(int64_t)count}}, values);
    return name;
}

struct onnx_name export_reshape(struct export *e, struct onnx_name x, const int64_t *extents,
                                size_t rank)
{
    return export_binary(e, "Reshape", x, export_integers(e, extents, rank));
}

struct onnx_name export_constant(struct export *e, const float *values, struct onnx_shape shape)
{
    struct onnx_name name = onnx_fresh(e->onnx);

    onnx_add_f32_copy(e->onnx, name, shape, values);
    return name;
}

struct onnx_name export_number(struct export *e, float value)
{
    return export_constant(e, &value, (struct onnx_shape){0, {0}});
}

void export_int8(struct export *e, struct onnx_name name, struct onnx_shape shape,
                 const int8_t *values, uint32_t axis, const float *scales)
{
    const struct onnx_name inputs[] = {onnx_fresh(e->onnx), onnx_fresh(e->onnx)};
    const struct onnx_attribute along = {.name = "axis", .kind = ONNX_INT, .integer = axis};
    const struct onnx_node node = {"DequantizeLinear", inputs, 2, &name, 1, &along, 1};

    onnx_add_i8_copy(e->onnx, inputs[0], shape, values);
    onnx_add_f32_copy(e->onnx, inputs[1], (struct onnx_shape){1, {shape.extents[axis]}}, scales);
    onnx_add_node(e->onnx, &node);
}

static struct onnx_shape shape_of(const struct tensor *tensor)
{
    struct onnx_shape shape = {tensor->rank, {0}};

    for (uint32_t d = 0; d < tensor->rank; d++) {
        shape.extents[d] = tensor->shape[d];
    }
    return shape;
}

/* Write a tensor that the file has as int8. False: it is none. */
static bool add_int8(struct export *e, const struct tensor *tensor)
{
    const float *scales;

    if (e->file == NULL || !packed_int8(e->file, tensor, e->int8, &scales)) return false;
    export_int8(e, name_of(tensor->name), shape_of(tensor), e->int8, 0, scales);
    return true;
}

struct onnx_name export_tensor(struct export *e, const struct stage *stage, uint32_t i)
{
    CHECK(i < stage->tensors_count);
    uint32_t number = stage->tensors[i];
    const struct tensor *tensor = &e->model->schema.tensors[number];

    if (!e->is_written[number] && !add_int8(e, tensor)) {
        onnx_add_f32(e->onnx, name_of(tensor->name), shape_of(tensor),
                     stage_values(e->model, stage, i));
    }
    e->is_written[number] = true;
    return name_of(tensor->name);
}

struct onnx_name export_input(const struct export *e, const struct stage *stage, uint32_t i)
{
    CHECK(i < stage->inputs_count);
    return e->at[stage->inputs[i]];
}

void export_output(struct export *e, const struct stage *stage, struct onnx_name name)
{
    e->at[stage->output] = name;
}

static struct onnx_attribute integer(const char *name, uint32_t value)
{
    return (struct onnx_attribute){.name = name, .kind = ONNX_INT, .integer = value};
}

static struct onnx_attribute integers(const char *name, const int64_t *values, size_t count)
{
    return (struct onnx_attribute){
        .name = name, .kind = ONNX_INTS, .integers = values, .count = count};
}

static struct onnx_attribute real(const char *name, float value)
{
    return (struct onnx_attribute){.name = name, .kind = ONNX_REAL, .real = value};
}

static bool is_image(struct shape shape)
{
    return shape.steps == 0 && !shape_is_flat(shape);
}

/* What reads images takes one pixel as an image, too. */
static struct onnx_name as_image(struct export *e, struct onnx_name x, struct shape shape)
{
    const int64_t extents[] = {0, shape.image.channels, 1, 1};

    return is_image(shape) ? x : export_reshape(e, x, extents, 4);
}

static struct onnx_name flat(struct export *e, struct onnx_name x)
{
    const struct onnx_attribute axis = integer("axis", 1);

    return export_op(e, "Flatten", &x, 1, &axis, 1);
}

/* The output of what makes images. */
static void put_image(struct export *e, const struct stage *stage, struct onnx_name y)
{
    export_output(e, stage, is_image(stage->out) ? y : flat(e, y));
}

static struct onnx_name activate(struct export *e, struct activation activation, struct onnx_name x)
{
    const struct onnx_attribute slope = real("alpha", activation.slope);
    struct onnx_name y;

    switch (activation.kind) {
    case ACTIVATION_RELU:
        return export_unary(e, "Relu", x);
    case ACTIVATION_LEAKY_RELU:
        return export_op(e, "LeakyRelu", &x, 1, &slope, 1);
    case ACTIVATION_GELU: /* x (1 + erf(x / sqrt 2)) / 2 */
        y = export_binary(e, "Mul", x, export_number(e, 0.70710678F));
        y = export_binary(e, "Add", export_unary(e, "Erf", y), export_number(e, 1.0F));
        y = export_binary(e, "Mul", x, y);
        return export_binary(e, "Mul", y, export_number(e, 0.5F));
    case ACTIVATION_GELU_TANH: /* x sigmoid(x (1.5957691 + 0.07135481 x^2)) */
        y = export_binary(e, "Mul", export_binary(e, "Mul", x, x), export_number(e, 0.07135481F));
        y = export_binary(e, "Add", y, export_number(e, 1.5957691F));
        y = export_unary(e, "Sigmoid", export_binary(e, "Mul", x, y));
        return export_binary(e, "Mul", x, y);
    case ACTIVATION_SILU:
        return export_binary(e, "Mul", x, export_unary(e, "Sigmoid", x));
    case ACTIVATION_SIGMOID:
        return export_unary(e, "Sigmoid", x);
    case ACTIVATION_TANH:
        return export_unary(e, "Tanh", x);
    default:
        CHECK(activation.kind == ACTIVATION_NONE);
        return x;
    }
}

/* ---- dense layers and convolutions ---- */

/* w = g v / |v|, row by row; in the shape of v. */
static enum rc normed_weight(struct export *e, const struct stage *stage, struct onnx_name *name)
{
    const struct tensor *v = &e->model->schema.tensors[stage->tensors[0]];
    const float *from = stage_values(e->model, stage, 0), *g = stage_values(e->model, stage, 1);
    struct onnx_shape shape = {v->rank, {0}};
    size_t rows = v->shape[0], columns = v->count / rows;
    float *weight = mem_array(v->count, sizeof *weight);

    if (weight == NULL) return RC_NOMEM;
    for (size_t r = 0; r < rows; r++) {
        double squares = 0.0;
        for (size_t c = 0; c < columns; c++) {
            squares += (double)from[r * columns + c] * from[r * columns + c];
        }
        for (size_t c = 0; c < columns; c++) {
            weight[r * columns + c] = (float)(g[r] * from[r * columns + c] / sqrt(squares));
        }
    }
    for (uint32_t i = 0; i < v->rank; i++) {
        shape.extents[i] = v->shape[i];
    }
    *name = export_constant(e, weight, shape);
    mem_free(weight);
    return RC_OK;
}

/* Weight and, if there is one, bias of a layer; `count` says how many. */
static enum rc weights_of(struct export *e, const struct stage *stage, struct onnx_name names[2],
                          size_t *count)
{
    bool is_normed = stage->layer.keys[LAYER_WN] == 1;
    uint32_t bias = is_normed ? 2 : 1;
    enum rc rc = RC_OK;

    if (stage->partner != NO_STAGE) {
        names[0] = export_tensor(e, &e->model->stages[stage->partner], 0);
        bias = 0;
    } else if (is_normed) {
        rc = normed_weight(e, stage, &names[0]);
    } else {
        names[0] = export_tensor(e, stage, 0);
    }
    if (stage->has_bias) names[1] = export_tensor(e, stage, bias);
    *count = stage->has_bias ? 2 : 1;
    return rc;
}

static enum rc export_linear(struct export *e, const struct stage *stage)
{
    static const int64_t turned[] = {1, 0};
    struct onnx_name inputs[3], y;
    const struct onnx_attribute by_rows = integer("transB", 1);
    size_t count;
    enum rc rc = weights_of(e, stage, inputs + 1, &count);

    if (rc != RC_OK) return rc;
    inputs[0] = export_input(e, stage, 0);
    if (stage->in.steps > 0) {
        y = export_transpose(e, inputs[1], turned, 2);
        y = export_binary(e, "MatMul", inputs[0], y);
        if (count == 2) y = export_binary(e, "Add", y, inputs[2]);
    } else {
        if (is_image(stage->in)) inputs[0] = flat(e, inputs[0]);
        y = export_op(e, "Gemm", inputs, 1 + count, &by_rows, 1);
    }
    export_output(e, stage, activate(e, stage->activation, y));
    return RC_OK;
}

static enum rc refuse(const struct export *e, const struct stage *stage, const char *reason)
{
    char word[LAYER_BYTES];

    layer_format(&stage->layer, word, sizeof word);
    return fault_set(e->why, RC_UNSUPPORTED, "cannot export layer '%s' (%s) to ONNX: %s", word,
                     stage->name, reason);
}

static enum rc export_conv(struct export *e, const struct stage *stage)
{
    const struct layer *layer = &stage->layer;
    const uint32_t *keys = layer->keys;
    bool has_pad = layer_has(layer, LAYER_PAD);
    int64_t pad_y = has_pad ? keys[LAYER_PAD] : keys[LAYER_DILATION] * (layer->height - 1) / 2;
    int64_t pad_x = has_pad ? keys[LAYER_PAD] : keys[LAYER_DILATION] * (layer->width - 1) / 2;
    const int64_t kernel[] = {layer->height, layer->width}, pads[] = {pad_y, pad_x, pad_y, pad_x};
    const int64_t strides[] = {keys[LAYER_STRIDE], keys[LAYER_STRIDE]};
    const int64_t dilations[] = {keys[LAYER_DILATION], keys[LAYER_DILATION]};
    const struct onnx_attribute attributes[] = {
        integers("kernel_shape", kernel, 2), integers("pads", pads, 4),
        integers("strides", strides, 2), integers("dilations", dilations, 2),
        integer("group", keys[LAYER_GROUPS])};
    struct onnx_name inputs[3], y;
    size_t count;
    enum rc rc;

    if (layer->kind == LAYER_LOCAL) {
        return refuse(e, stage, "it has no operator whose filters differ from pixel to pixel");
    }
    rc = weights_of(e, stage, inputs + 1, &count);
    if (rc != RC_OK) return rc;
    inputs[0] = as_image(e, export_input(e, stage, 0), stage->in);
    y = export_op(e, "Conv", inputs, 1 + count, attributes, ARRAY_COUNT(attributes));
    put_image(e, stage, activate(e, stage->activation, y));
    return RC_OK;
}

/* ---- pooling and shortcuts ---- */

static enum rc export_pool(struct export *e, const struct stage *stage)
{
    const struct layer *layer = &stage->layer;
    bool is_max = layer->kind == LAYER_MAXPOOL;
    int64_t stride = layer_has(layer, LAYER_STRIDE) ? layer->keys[LAYER_STRIDE] : layer->height;
    int64_t pad = layer->keys[LAYER_PAD];
    const int64_t kernel[] = {layer->height, layer->height}, strides[] = {stride, stride};
    const int64_t pads[] = {pad, pad, pad, pad};
    const struct onnx_attribute attributes[] = {
        integers("kernel_shape", kernel, 2), integers("strides", strides, 2),
        integers("pads", pads, 4), integer("count_include_pad", 1)};
    struct onnx_name x = as_image(e, export_input(e, stage, 0), stage->in);

    x = export_op(e, is_max ? "MaxPool" : "AveragePool", &x, 1, attributes, is_max ? 3 : 4);
    put_image(e, stage, activate(e, stage->activation, x)); /* after the pooling: the same */
    return RC_OK;
}

static enum rc export_globalpool(struct export *e, const struct stage *stage)
{
    struct onnx_name x = as_image(e, export_input(e, stage, 0), stage->in);

    export_output(e, stage, flat(e, export_unary(e, "GlobalAveragePool", x)));
    return RC_OK;
}

/* Every stride-th pixel, and channels of zeros behind. */
static enum rc export_shortcut(struct export *e, const struct stage *stage)
{
    struct image_shape in = stage->in.image;
    int64_t stride = stage->layer.keys[LAYER_STRIDE], more = stage->layer.count - in.channels;
    const int64_t starts[] = {0, 0}, ends[] = {in.height, in.width}, axes[] = {2, 3};
    const int64_t steps[] = {stride, stride}, pads[] = {0, 0, 0, 0, 0, more, 0, 0};
    struct onnx_name x = as_image(e, export_input(e, stage, 0), stage->in);

    if (stride > 1) {
        const struct onnx_name inputs[] = {x, export_integers(e, starts, 2),
                                           export_integers(e, ends, 2), export_integers(e, axes, 2),
                                           export_integers(e, steps, 2)};
        x = export_op(e, "Slice", inputs, 5, NULL, 0);
    }
    if (more > 0) x = export_binary(e, "Pad", x, export_integers(e, pads, 8));
    put_image(e, stage, x);
    return RC_OK;
}

/* ---- normalisation ---- */

/* Of rows: the channels come last, so it is one product and one sum. */
static enum rc batch_norm_of_rows(struct export *e, const struct stage *collect, struct onnx_name x,
                                  struct onnx_name *y)
{
    size_t channels = collect->in.image.channels;
    const float *gamma = stage_values(e->model, collect, 0);
    const float *beta = stage_values(e->model, collect, 1);
    const float *mean = stage_values(e->model, collect, 2);
    const float *variance = stage_values(e->model, collect, 3);
    const struct onnx_shape shape = {1, {(int64_t)channels}};
    float *scale = mem_array(2 * channels, sizeof *scale), *shift = scale + channels;

    if (scale == NULL) return RC_NOMEM;
    for (size_t c = 0; c < channels; c++) {
        double factor = gamma[c] / sqrt((double)variance[c] + epsilon);
        scale[c] = (float)factor;
        shift[c] = (float)(beta[c] - factor * mean[c]);
    }
    *y = export_binary(e, "Mul", x, export_constant(e, scale, shape));
    *y = export_binary(e, "Add", *y, export_constant(e, shift, shape));
    mem_free(scale);
    return RC_OK;
}

static enum rc export_batch_norm(struct export *e, const struct stage *stage)
{
    const struct stage *collect = &e->model->stages[stage->partner];
    const struct onnx_attribute small = real("epsilon", epsilon);
    struct onnx_name inputs[5] = {export_input(e, stage, 0)}, y;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; i < 4; i++) {
        inputs[1 + i] = export_tensor(e, collect, i);
    }
    if (stage->in.steps > 0)
        rc = batch_norm_of_rows(e, collect, inputs[0], &y);
    else
        y = export_op(e, "BatchNormalization", inputs, 5, &small, 1);
    if (rc == RC_OK) export_output(e, stage, activate(e, stage->activation, y));
    return rc;
}

/* Instance normalisation of groups read as channels; then gamma and beta of the real ones. */
static enum rc export_group_norm(struct export *e, const struct stage *stage)
{
    struct image_shape image = stage->in.image;
    const struct onnx_attribute small = real("epsilon", epsilon);
    const int64_t grouped[] = {0, stage->layer.count, -1};
    const int64_t whole[] = {0, image.channels, image.height, image.width};
    const int64_t affine[] = {image.channels, 1, 1};
    const struct onnx_shape shape = {1, {stage->layer.count}};
    size_t rank = is_image(stage->in) ? 4 : 2, affine_rank = is_image(stage->in) ? 3 : 1;
    struct onnx_name inputs[3], y;
    float *ones = mem_array(2 * (size_t)stage->layer.count, sizeof *ones);

    if (ones == NULL) return RC_NOMEM;
    for (uint32_t g = 0; g < stage->layer.count; g++) {
        ones[g] = 1.0F;
    }
    inputs[0] = export_reshape(e, export_input(e, stage, 0), grouped, 3);
    inputs[1] = export_constant(e, ones, shape);
    inputs[2] = export_constant(e, ones + stage->layer.count, shape);
    mem_free(ones);
    y = export_op(e, "InstanceNormalization", inputs, 3, &small, 1);
    y = export_reshape(e, y, whole, rank);
    y = export_binary(e, "Mul", y,
                      export_reshape(e, export_tensor(e, stage, 0), affine, affine_rank));
    y = export_binary(e, "Add", y,
                      export_reshape(e, export_tensor(e, stage, 1), affine, affine_rank));
    export_output(e, stage, y);
    return RC_OK;
}

static enum rc export_layer_norm(struct export *e, const struct stage *stage)
{
    const struct onnx_attribute small = real("epsilon", epsilon);
    const struct onnx_name inputs[] = {export_input(e, stage, 0), export_tensor(e, stage, 0),
                                       export_tensor(e, stage, 1)};

    export_output(e, stage, export_op(e, "LayerNormalization", inputs, 3, &small, 1));
    return RC_OK;
}

/* ---- what moves values ---- */

static enum rc export_same(struct export *e, const struct stage *stage)
{
    export_output(e, stage, export_input(e, stage, 0));
    return RC_OK;
}

static enum rc export_activation(struct export *e, const struct stage *stage)
{
    export_output(e, stage, activate(e, stage->activation, export_input(e, stage, 0)));
    return RC_OK;
}

static enum rc export_sum(struct export *e, const struct stage *stage)
{
    struct onnx_name y =
        export_binary(e, "Add", export_input(e, stage, 0), export_input(e, stage, 1));

    export_output(e, stage, activate(e, stage->activation, y));
    return RC_OK;
}

static enum rc export_concat(struct export *e, const struct stage *stage)
{
    const struct onnx_attribute axis = integer("axis", stage->out.steps > 0 ? 2 : 1);
    struct onnx_name inputs[STAGE_INPUTS_MAX];

    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        inputs[i] = export_input(e, stage, i);
    }
    export_output(e, stage, export_op(e, "Concat", inputs, stage->inputs_count, &axis, 1));
    return RC_OK;
}

static enum rc export_rows(struct export *e, const struct stage *stage)
{
    static const int64_t channels_last[] = {0, 2, 3, 1};
    const int64_t extents[] = {0, stage->out.steps, stage->out.image.channels};
    struct onnx_name x = as_image(e, export_input(e, stage, 0), stage->in);

    x = export_transpose(e, x, channels_last, 4);
    export_output(e, stage, export_reshape(e, x, extents, 3));
    return RC_OK;
}

static enum rc export_last(struct export *e, const struct stage *stage)
{
    const struct onnx_attribute axis = integer("axis", 1);
    const int64_t last = (int64_t)stage->in.steps - 1;
    struct onnx_name inputs[] = {export_input(e, stage, 0), onnx_fresh(e->onnx)};

    onnx_add_i64_copy(e->onnx, inputs[1], (struct onnx_shape){0, {0}}, &last);
    export_output(e, stage, export_op(e, "Gather", inputs, 2, &axis, 1));
    return RC_OK;
}

/* ---- the whole ---- */

static const struct {
    const struct stage_ops *ops;
    enum rc (*export)(struct export *e, const struct stage *stage);
} exporters[] = {
    {&stage_conv_ops, export_conv},
    {&stage_linear_ops, export_linear},
    {&stage_pool_ops, export_pool},
    {&stage_globalpool_ops, export_globalpool},
    {&stage_shortcut_ops, export_shortcut},
    {&stage_relayout_ops, export_same},
    {&stage_activation_ops, export_activation},
    {&stage_dropout_ops, export_same},
    {&stage_sum_ops, export_sum},
    {&stage_concat_ops, export_concat},
    {&stage_batch_collect_ops, export_same},
    {&stage_batch_apply_ops, export_batch_norm},
    {&stage_group_norm_ops, export_group_norm},
    {&stage_layer_norm_ops, export_layer_norm},
    {&stage_embed_ops, export_embedding},
    {&stage_positions_ops, export_positions},
    {&stage_attention_ops, export_attention},
    {&stage_recurrent_ops, export_recurrent},
    {&stage_rows_ops, export_rows},
    {&stage_last_ops, export_last},
};

static enum rc export_stage(struct export *e, const struct stage *stage)
{
    for (size_t i = 0; i < ARRAY_COUNT(exporters); i++) {
        if (exporters[i].ops == stage->ops) return exporters[i].export(e, stage);
    }
    return refuse(e, stage, "this version does not know how");
}

/* (x - mean) * scale, channel by channel, unless it does nothing. */
static struct onnx_name normalise(struct export *e, struct onnx_name x)
{
    const struct model *model = e->model;
    const int64_t channels = model->input.image.channels;
    struct onnx_shape shape = {is_image(model->input) ? 3 : 1, {channels, 1, 1}};
    bool is_needed = false;

    for (int64_t c = 0; c < channels; c++) {
        is_needed |= model->mean[c] < 0.0F || model->mean[c] > 0.0F || model->scale[c] < 1.0F ||
                     model->scale[c] > 1.0F;
    }
    if (!is_needed || model->input_kind == MODEL_INPUT_TOKENS) return x;
    x = export_binary(e, "Sub", x, export_constant(e, model->mean, shape));
    return export_binary(e, "Mul", x, export_constant(e, model->scale, shape));
}

static struct onnx_shape ends_shape(struct shape shape)
{
    struct image_shape image = shape.image;

    if (shape.steps > 0) return (struct onnx_shape){3, {ONNX_BATCH, shape.steps, image.channels}};
    if (shape_is_flat(shape)) return (struct onnx_shape){2, {ONNX_BATCH, image.channels}};
    return (struct onnx_shape){4, {ONNX_BATCH, image.channels, image.height, image.width}};
}

static void put_ends(struct export *e)
{
    const struct model *model = e->model;
    struct shape last = model->values[model->values_count - 1].shape;
    const struct onnx_shape tokens = {2, {ONNX_BATCH, model->input.steps}};
    struct onnx_name from = e->at[model->values_count - 1], to = name_of("logits");
    const struct onnx_node same = {"Identity", &from, 1, &to, 1, NULL, 0};

    if (model->input_kind == MODEL_INPUT_TOKENS)
        onnx_add_input(e->onnx, "input", ONNX_INT64, tokens);
    else
        onnx_add_input(e->onnx, "input", ONNX_FLOAT, ends_shape(model->input));
    if (model->heads > 1) {
        from = export_heads(e, from, last);
        last.image.channels = model->classes;
    }
    onnx_add_node(e->onnx, &same);
    onnx_add_output(e->onnx, "logits", ONNX_FLOAT, ends_shape(last));
}

static enum rc make_room(struct export *e)
{
    const struct schema *schema = &e->model->schema;
    size_t largest = 1;

    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        if (schema->tensors[t].count > largest) largest = schema->tensors[t].count;
    }
    e->onnx = onnx_create();
    e->at = mem_array(e->model->values_count, sizeof *e->at);
    e->is_written = mem_array(schema->tensors_count, sizeof *e->is_written);
    if (e->file != NULL) e->int8 = mem_array(largest, sizeof *e->int8);
    if (e->onnx == NULL || e->at == NULL || e->is_written == NULL) return RC_NOMEM;
    return e->file == NULL || e->int8 != NULL ? RC_OK : RC_NOMEM;
}

enum rc export_onnx(struct model *model, const struct model_card *card,
                    const struct tensor_file *file, const char *path, struct fault *why)
{
    struct export e = {.model = model, .file = file, .why = why};
    enum rc rc = make_room(&e);

    CHECK(model->backend->is_host);
    if (rc != RC_OK) goto out;
    e.at[0] = normalise(&e, name_of("input"));
    for (uint32_t i = 0; rc == RC_OK && i < model->stages_count; i++) {
        rc = export_stage(&e, &model->stages[i]);
    }
    if (rc != RC_OK) goto out;
    put_ends(&e);
    onnx_set(e.onnx, "model", card->spec);
    onnx_set(e.onnx, "data", card->data);
    rc = onnx_save(e.onnx, path, why);
out:
    if (rc == RC_NOMEM) fault_set(why, rc, "cannot write %s: out of memory", path);
    onnx_destroy(e.onnx);
    mem_free(e.at);
    mem_free(e.is_written);
    mem_free(e.int8);
    return rc;
}
