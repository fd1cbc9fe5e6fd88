/*
 * From a layer list to stages. Some layers join the one before them: an activation joins a dense
 * layer, a relu a convolution, a batch normalisation or a sum; a relu between a convolution and a
 * maximum pooling joins the pooling, because the two commute and the pooled image is smaller. A
 * bias in front of a batch normalisation would be subtracted again, so there is none unless asked
 * for. Thread: the training lane's.
 */
#include "replica/model/plan.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

enum { BLOCKS_MAX = 8 };

/* A block whose branches are being built. */
struct block {
    const struct layer *open;
    uint32_t input;
    uint32_t outputs[STAGE_INPUTS_MAX];
    uint32_t count;
};

struct builder {
    struct model *model;
    struct fault *why;
    uint32_t at;      /* layer */
    uint32_t current; /* value */
    struct block blocks[BLOCKS_MAX];
    uint32_t blocks_count;
};

static enum rc check_output(const struct model *model, const struct stage *stage, struct fault *why)
{
    uint64_t values = (uint64_t)stage->out.image.channels * stage->out.image.height;

    if (values < STAGE_VALUES_MAX) values *= stage->out.image.width;
    if (values < STAGE_VALUES_MAX) values *= shape_rows(stage->out);
    if (values < STAGE_VALUES_MAX) values *= model->batch_max;
    if (values < STAGE_VALUES_MAX) return RC_OK;
    stage_fault(stage, why,
                "gives more than 2^32 values in a batch of %u; use smaller numbers or a smaller "
                "--batch",
                model->batch_max);
    return RC_LIMIT;
}

/* Append a stage like `seed` (layer, name, inputs, and what else the builder knows); on success
 * *output is its value. */
static enum rc append_stage(struct model *model, const struct stage *seed, uint32_t *output,
                            struct fault *why)
{
    struct stage *stage = &model->stages[model->stages_count];
    struct value *value = &model->values[model->values_count];
    uint32_t number = model->stages_count;
    enum rc rc;

    if (number == STAGES_MAX) {
        return fault_set(why, RC_LIMIT, "--model: more than %d steps of computing", STAGES_MAX);
    }
    CHECK(seed->inputs_count > 0 && seed->inputs_count <= STAGE_INPUTS_MAX);
    *stage = *seed;
    stage->in = model->values[stage->inputs[0]].shape;
    stage->out = stage->in;
    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        stage->has_input_gradient |= model->values[stage->inputs[i]].has_gradient;
    }
    model->stages_count++; /* from here on model_release() destroys what create() made */
    rc = stage->ops->create(model, stage, why);
    if (rc == RC_OK) rc = check_output(model, stage, why);
    if (rc != RC_OK) {
        if (rc == RC_NOMEM || rc == RC_UNSUPPORTED) {
            fault_set(why, rc, "cannot set up the model: %s; try a smaller --batch or --model",
                      rc_text(rc));
        }
        return rc;
    }
    CHECK(stage->slice > 0 && stage->slice <= model->batch_max);
    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        model->values[stage->inputs[i]].consumers++;
        model->values[stage->inputs[i]].last_consumer = number;
    }
    stage->output = model->values_count++;
    *value = (struct value){.shape = stage->out, .producer = number};
    value->has_gradient = model->with_gradients &&
                          (stage->has_input_gradient || stage->tensors_count > 0 ||
                           stage->partner != NO_STAGE); /* a tied layer's are its embedding's */
    *output = stage->output;
    return RC_OK;
}

static const struct layer *layer_at(const struct builder *b, uint32_t ahead)
{
    uint32_t at = b->at + ahead;

    return at < b->model->layers.count ? &b->model->layers.layers[at] : NULL;
}

static bool is_kind(const struct layer *layer, enum layer_kind kind)
{
    return layer != NULL && layer->kind == kind;
}

static bool is_relu(const struct layer *layer)
{
    return is_kind(layer, LAYER_ACTIVATION) && layer->variant == ACTIVATION_RELU;
}

/* Let the stage take the activation behind it. */
static void absorb_activation(struct builder *b, struct stage *seed)
{
    const struct layer *next = layer_at(b, 1);

    seed->activation.kind = (enum activation_kind)next->variant;
    seed->activation.slope = (float)next->real;
    b->at++;
}

/* `conv1`, `bn2`: numbered among layers of its kind. */
static void name_stage(const struct builder *b, const struct layer *layer, struct stage *seed)
{
    char word[LAYER_BYTES];
    uint32_t number = 1;

    for (const struct layer *l = b->model->layers.layers; l < layer; l++) {
        number += l->kind == layer->kind && l->variant == layer->variant;
    }
    seed->number = number;
    layer_format(layer, word, sizeof(word));
    snprintf(seed->name, sizeof(seed->name), "%.*s%u", (int)strcspn(word, "0123456789:,"),
             layer->kind == LAYER_LINEAR ? "dense:" : word, number);
    if (layer->kind == LAYER_LINEAR) {
        snprintf(seed->name, sizeof(seed->name), "dense%u", number);
    }
}

static struct stage seed_of(const struct builder *b, const struct stage_ops *ops,
                            const struct layer *layer)
{
    struct stage seed = {
        .ops = ops, .layer = *layer, .inputs_count = 1, .partner = NO_STAGE, .joins = NO_STAGE};

    seed.inputs[0] = b->current;
    seed.has_bias = layer->keys[LAYER_BIAS] == 1;
    name_stage(b, layer, &seed);
    return seed;
}

static enum rc append(struct builder *b, const struct stage *seed)
{
    return append_stage(b->model, seed, &b->current, b->why);
}

static struct shape current_shape(const struct builder *b)
{
    return b->model->values[b->current].shape;
}

/* Rewrite the current images to another block size. */
static enum rc relayout(struct builder *b, const struct layer *layer, uint32_t block)
{
    struct stage seed = seed_of(b, &stage_relayout_ops, layer);
    struct shape shape = current_shape(b);
    struct value *value = &b->model->values[b->current];

    if (shape.steps > 0 || shape.image.block == block) return RC_OK;
    if (shape.image.channels % block != 0) return RC_OK; /* shapes clash, as the stage will say */
    if (shape_is_flat(shape)) {                          /* the same in any layout */
        value->shape.image.block = block;
        return RC_OK;
    }
    if (value->producer != NO_STAGE && value->consumers == 0 &&
        b->model->stages[value->producer].ops == &stage_pool_ops) { /* pooling writes any block */
        b->model->stages[value->producer].out.image.block = block;
        value->shape.image.block = block;
        return RC_OK;
    }
    seed.layer.count = block;
    return append(b, &seed);
}

/* Convolutions, local or not. */
static enum rc build_conv(struct builder *b, const struct layer *layer)
{
    struct stage seed = seed_of(b, &stage_conv_ops, layer);

    if (is_kind(layer_at(b, 1), LAYER_BATCH_NORM) && !layer_has(layer, LAYER_BIAS)) {
        seed.has_bias = false;
    }
    if (is_relu(layer_at(b, 1)) && !is_kind(layer_at(b, 2), LAYER_MAXPOOL)) {
        absorb_activation(b, &seed);
    }
    return append(b, &seed);
}

static enum rc build_activation(struct builder *b, const struct layer *layer)
{
    struct stage seed = seed_of(b, &stage_activation_ops, layer);
    const struct layer *next = layer_at(b, 1);

    if (is_relu(layer) && is_kind(next, LAYER_MAXPOOL) && current_shape(b).steps == 0) {
        seed = seed_of(b, &stage_pool_ops, next);
        seed.activation.kind = ACTIVATION_RELU;
        b->at++;
        return append(b, &seed);
    }
    seed.activation.kind = (enum activation_kind)layer->variant;
    seed.activation.slope = (float)layer->real;
    return append(b, &seed);
}

static enum rc build_batch_norm(struct builder *b, const struct layer *layer)
{
    struct stage seed = seed_of(b, &stage_batch_collect_ops, layer);
    enum rc rc;

    seed.activation.kind = ACTIVATION_NONE;
    rc = append(b, &seed);
    if (rc != RC_OK) return rc;
    seed = seed_of(b, &stage_batch_apply_ops, layer);
    seed.partner = b->model->stages_count - 1;
    if (is_relu(layer_at(b, 1))) absorb_activation(b, &seed);
    return append(b, &seed);
}

/* The stage of the first `embed` layer; NO_STAGE: there is none. */
static uint32_t find_embedding(const struct model *model)
{
    for (uint32_t i = 0; i < model->stages_count; i++) {
        if (model->stages[i].ops == &stage_embed_ops) return i;
    }
    return NO_STAGE;
}

static enum rc build_linear(struct builder *b, const struct layer *layer)
{
    struct stage seed = seed_of(b, &stage_linear_ops, layer);
    enum rc rc;

    if (is_kind(layer_at(b, 1), LAYER_BATCH_NORM) && !layer_has(layer, LAYER_BIAS)) {
        seed.has_bias = false;
    }
    if (layer->keys[LAYER_TIED] == 1) {
        seed.partner = find_embedding(b->model);
        if (seed.partner == NO_STAGE) {
            return stage_fault(&seed, b->why, "has no embedding to be tied to; begin with embed:N");
        }
        if (b->model->stages[seed.partner].partner != NO_STAGE) {
            return stage_fault(&seed, b->why, "is the second to be tied to the embedding");
        }
    }
    seed.is_last = layer_at(b, 1) == NULL;
    if (is_kind(layer_at(b, 1), LAYER_ACTIVATION)) absorb_activation(b, &seed);
    rc = relayout(b, layer, 1);
    seed.inputs[0] = b->current;
    if (rc == RC_OK) rc = append(b, &seed);
    if (rc == RC_OK && seed.partner != NO_STAGE) { /* each knows the other */
        b->model->stages[seed.partner].partner = b->model->stages_count - 1;
    }
    return rc;
}

/* Projection to queries, keys and values; attention; projection of what was found. */
static enum rc build_attention(struct builder *b, const struct layer *layer)
{
    const bool is_stepwise = b->model->context > 0;
    struct stage core =
        seed_of(b, is_stepwise ? &stage_attention_steps_ops : &stage_attention_ops, layer);
    struct stage projection = seed_of(b, &stage_linear_ops, layer);
    uint32_t width = current_shape(b).image.channels;
    enum rc rc;

    core.in = current_shape(b);
    rc = stage_needs_sequence(&core, b->why);
    if (rc != RC_OK) return rc;
    if (width % layer->count != 0) {
        return stage_fault(&core, b->why,
                           "cannot share a width of %u between %u heads; use a number of heads "
                           "that divides the width",
                           width, layer->count);
    }
    if (width > LAYER_WIDTH_MAX / 4) {
        return stage_fault(&core, b->why, "gets a width of %u, and takes up to %d", width,
                           LAYER_WIDTH_MAX / 4);
    }
    snprintf(projection.name, sizeof(projection.name), "%.20s.qkv", core.name);
    projection.layer.count = 3 * width;
    projection.layer.keys[LAYER_WN] = 0;
    rc = append(b, &projection);
    if (rc != RC_OK) return rc;
    core.inputs[0] = b->current;
    rc = append(b, &core);
    if (rc != RC_OK) return rc;
    snprintf(projection.name, sizeof(projection.name), "%.20s.output", core.name);
    projection.layer.count = width;
    projection.inputs[0] = b->current;
    return append(b, &projection);
}

static enum rc build_rows(struct builder *b, const struct layer *layer)
{
    struct stage seed = seed_of(b, &stage_rows_ops, layer);
    enum rc rc = relayout(b, layer, current_shape(b).image.channels);

    seed.inputs[0] = b->current;
    return rc == RC_OK ? append(b, &seed) : rc;
}

/* What is dropped must not hang on the layout, which is the processor's choice: values of images
 * draw in the plain one. */
static enum rc build_dropout(struct builder *b, const struct layer *layer)
{
    struct stage seed = seed_of(b, &stage_dropout_ops, layer);
    enum rc rc = relayout(b, layer, 1);

    seed.inputs[0] = b->current;
    return rc == RC_OK ? append(b, &seed) : rc;
}

static enum rc open_block(struct builder *b, const struct layer *layer)
{
    CHECK(b->blocks_count < BLOCKS_MAX); /* the parser nests no deeper */
    b->blocks[b->blocks_count++] = (struct block){.open = layer, .input = b->current};
    return RC_OK;
}

static enum rc end_branch(struct builder *b, const struct layer *layer)
{
    struct block *block = &b->blocks[b->blocks_count - 1];
    struct stage seed = seed_of(b, &stage_sum_ops, layer);

    if (block->count == STAGE_INPUTS_MAX) {
        stage_fault(&seed, b->why, "is one branch too many: a block has at most %d",
                    STAGE_INPUTS_MAX);
        return RC_LIMIT;
    }
    block->outputs[block->count++] = b->current;
    b->current = block->input;
    return RC_OK;
}

/* All branches in the layout of the first. */
static enum rc agree_on_layout(struct builder *b, const struct layer *layer, struct block *block,
                               uint32_t wanted)
{
    for (uint32_t i = 0; i < block->count; i++) {
        enum rc rc;
        b->current = block->outputs[i];
        rc = relayout(b, layer, wanted);
        if (rc != RC_OK) return rc;
        block->outputs[i] = b->current;
    }
    return RC_OK;
}

static enum rc close_sum(struct builder *b, const struct layer *layer, struct block *block)
{
    enum rc rc;

    if (block->count == 1) block->outputs[block->count++] = block->input; /* the identity */
    rc = agree_on_layout(b, layer, block, b->model->values[block->outputs[0]].shape.image.block);
    b->current = block->outputs[0];
    for (uint32_t i = 1; rc == RC_OK && i < block->count; i++) {
        struct stage seed = seed_of(b, &stage_sum_ops, layer);
        seed.inputs[1] = block->outputs[i];
        seed.inputs_count = 2;
        if (i + 1 == block->count && is_relu(layer_at(b, 1))) absorb_activation(b, &seed);
        rc = append(b, &seed);
    }
    return rc;
}

/* Each head must be a model of its own. */
static enum rc check_heads(struct builder *b, const struct layer *layer, const struct block *block)
{
    struct stage seed = seed_of(b, &stage_concat_ops, layer);
    char text[STAGE_SHAPE_BYTES];

    if (b->at + 1 < b->model->layers.count) {
        return stage_fault(&seed, b->why, "must be the end of the list");
    }
    b->model->heads = block->count;
    for (uint32_t i = 0; i < block->count; i++) {
        struct shape shape = b->model->values[block->outputs[i]].shape;
        if (shape_is_flat(shape) && shape.image.channels == b->model->classes) continue;
        return stage_fault(&seed, b->why,
                           "ends in a head (number %u) that gives %s, but the data asks for %u "
                           "values; end each head with linear:classes",
                           i + 1, stage_shape_text(shape, text), b->model->classes);
    }
    return RC_OK;
}

static enum rc close_concat(struct builder *b, const struct layer *layer, struct block *block)
{
    struct stage seed = seed_of(b, &stage_concat_ops, layer);
    uint32_t common = b->model->values[block->outputs[0]].shape.image.block;
    enum rc rc;

    rc = layer->kind == LAYER_HEADS ? check_heads(b, layer, block) : RC_OK;
    if (rc != RC_OK) return rc;
    for (uint32_t i = 0; i < block->count; i++) {
        struct image_shape image = b->model->values[block->outputs[i]].shape.image;
        if (image.channels % common != 0) common = 1;
    }
    rc = agree_on_layout(b, layer, block, common);
    memcpy(seed.inputs, block->outputs, sizeof(seed.inputs));
    seed.inputs_count = block->count;
    return rc == RC_OK ? append(b, &seed) : rc;
}

static enum rc close_block(struct builder *b, const struct layer *layer)
{
    struct block *block = &b->blocks[b->blocks_count - 1];
    enum rc rc = end_branch(b, layer);

    if (rc != RC_OK) return rc;
    b->blocks_count--;
    return layer->kind == LAYER_SUM ? close_sum(b, layer, block) : close_concat(b, layer, block);
}

/* Layers that are one stage as they stand. */
static const struct stage_ops *simple_ops(const struct model *model, enum layer_kind kind)
{
    switch (kind) {
    case LAYER_MAXPOOL:
    case LAYER_AVGPOOL:
        return &stage_pool_ops;
    case LAYER_GLOBALPOOL:
        return &stage_globalpool_ops;
    case LAYER_SHORTCUT:
        return &stage_shortcut_ops;
    case LAYER_GROUP_NORM:
        return &stage_group_norm_ops;
    case LAYER_LAYER_NORM:
        return &stage_layer_norm_ops;
    case LAYER_EMBED:
        return &stage_embed_ops;
    case LAYER_POSITIONS:
        return &stage_positions_ops;
    case LAYER_RECURRENT:
        return model->context > 0 ? &stage_recurrent_steps_ops : &stage_recurrent_ops;
    case LAYER_LAST:
        return &stage_last_ops;
    default:
        CHECK(false); /* the others have a builder of their own */
        return NULL;
    }
}

static enum rc build_layer(struct builder *b, const struct layer *layer)
{
    struct stage seed;

    switch (layer->kind) {
    case LAYER_CONV:
    case LAYER_LOCAL:
        return build_conv(b, layer);
    case LAYER_LINEAR:
        return build_linear(b, layer);
    case LAYER_ACTIVATION:
        return build_activation(b, layer);
    case LAYER_BATCH_NORM:
        return build_batch_norm(b, layer);
    case LAYER_ATTENTION:
        return build_attention(b, layer);
    case LAYER_ROWS:
        return build_rows(b, layer);
    case LAYER_DROPOUT:
        return build_dropout(b, layer);
    case LAYER_OPEN:
        return open_block(b, layer);
    case LAYER_BRANCH:
        return end_branch(b, layer);
    case LAYER_SUM:
    case LAYER_CONCAT:
    case LAYER_HEADS:
        return close_block(b, layer);
    default:
        seed = seed_of(b, simple_ops(b->model, layer->kind), layer);
        return append(b, &seed);
    }
}

/* A dense layer whose input is the gelu of another, which nobody else reads, goes back through it
 * in the product that it makes anyway. */
static void join_gelus(struct model *model)
{
    for (uint32_t s = 0; model->backend->joins_gelu && s < model->stages_count; s++) {
        struct stage *stage = &model->stages[s], *maker;
        const struct value *x = &model->values[stage->inputs[0]];

        if (stage->ops != &stage_linear_ops || x->producer == NO_STAGE || x->consumers > 1)
            continue;
        maker = &model->stages[x->producer];
        if (maker->ops != &stage_linear_ops || maker->activation.kind != ACTIVATION_GELU_TANH) {
            continue;
        }
        stage->joins = x->producer;
        maker->is_joined = true;
    }
}

/* A layer norm right behind the sum of a residual block adds up on its way, if both run on the same
 * samples. */
static void leave_sums(struct model *model)
{
    for (uint32_t s = 1; s < model->stages_count; s++) {
        struct stage *norm = &model->stages[s], *sum = &model->stages[s - 1];

        if (model->backend->ops->layer_norm_sum_forward == NULL) return;
        if (norm->ops != &stage_layer_norm_ops || sum->ops != &stage_sum_ops) continue;
        if (norm->inputs[0] != sum->output || sum->activation.kind != ACTIVATION_NONE) continue;
        if (norm->slice != sum->slice || sum->ends_segment) continue;
        sum->is_left = true;
        norm->adds_up = true;
    }
}

static enum rc check_end(const struct model *model, struct fault *why)
{
    struct shape last = model->values[model->values_count - 1].shape;
    char text[STAGE_SHAPE_BYTES];

    if (shape_is_flat(last) && last.image.channels == model->heads * model->classes) return RC_OK;
    return fault_set(why, RC_SHAPE,
                     "--model: the last layer gives %s, but the data asks for %u values; end with "
                     "linear:classes",
                     stage_shape_text(last, text), model->classes);
}

enum rc model_build(struct model *model, struct fault *why)
{
    struct builder b = {.model = model, .why = why};
    enum rc rc = RC_OK;

    model->heads = 1;
    model->values[0] = (struct value){.shape = model->input, .producer = NO_STAGE};
    model->values_count = 1;
    for (b.at = 0; rc == RC_OK && b.at < model->layers.count; b.at++) {
        rc = build_layer(&b, &model->layers.layers[b.at]);
    }
    if (rc != RC_OK) return rc;
    model->schema.values[SECTION_GRADIENT] = model->schema.values[SECTION_PARAMETERS];
    join_gelus(model);
    leave_sums(model);
    return check_end(model, why);
}
