/*
 * From a layer list to stages and memory. A relu joins the layer before it; one between a
 * convolution and a pooling joins the pooling, because max and relu commute and the pooled image is
 * smaller. Thread: the training lane's.
 */
#include "replica/model_plan.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

#define VALUES_MAX (UINT64_C(1) << 32) /* parameters, or values of one activation of a batch */

static struct fault *at_column(const struct layer *layer, struct fault *why, char *place,
                               size_t cap)
{
    char word[32];

    layer_format(layer, word, sizeof(word));
    if (layer->column > 0) {
        snprintf(place, cap, "--model, column %u: '%s'", layer->column, word);
    } else {
        snprintf(place, cap, "--model: '%s'", word);
    }
    return why;
}

static enum rc misfit(const struct layer *layer, const struct stage *before, struct fault *why)
{
    char place[96];

    at_column(layer, why, place, sizeof(place));
    if (before != NULL && !stage_is_image(before)) {
        return fault_set(
            why, RC_SHAPE,
            "%s needs an image, but the layer before gives a flat vector of %u; put it "
            "before the first linear layer",
            place, before->out.channels);
    }
    return fault_set(why, RC_SHAPE,
                     "%s does not fit an image of %ux%u; use fewer or smaller "
                     "windows",
                     place, before->out.height, before->out.width);
}

/* A relu layer: becomes a flag of the stage before it. */
static enum rc absorb_relu(struct model *model, const struct layer *layer, struct fault *why)
{
    char place[96];

    at_column(layer, why, place, sizeof(place));
    if (model->stages_count == 0) {
        return fault_set(why, RC_SHAPE, "%s must follow another layer", place);
    }
    model->stages[model->stages_count - 1].with_relu = true;
    return RC_OK;
}

static enum rc shape_stage(struct stage *stage, const struct layer *layer,
                           const struct stage *before, struct fault *why)
{
    stage->column = layer->column;
    stage->size = layer->size;
    stage->width = layer->width;
    stage->out = stage->in;
    stage->out.block = 1;
    switch (layer->kind) {
    case LAYER_CONV:
        stage->kind = STAGE_CONV;
        stage->out.channels = layer->width;
        return before != NULL && !stage_is_image(before) ? misfit(layer, before, why) : RC_OK;
    case LAYER_MAXPOOL:
        stage->kind = STAGE_POOL;
        stage->out.height /= layer->size;
        stage->out.width /= layer->size;
        if (stage->out.height == 0 || stage->out.width == 0 ||
            (before != NULL && !stage_is_image(before))) {
            struct stage input = {.kind = STAGE_RELAYOUT, .out = stage->in};
            return misfit(layer, before != NULL ? before : &input, why);
        }
        return RC_OK;
    case LAYER_LINEAR:
        stage->kind = STAGE_LINEAR;
        stage->in = (struct image_shape){(uint32_t)image_values(stage->in), 1, 1, 1};
        stage->out = (struct image_shape){layer->width, 1, 1, 1};
        return RC_OK;
    case LAYER_RELU:
    default:
        CHECK(false); /* relu is absorbed, not shaped */
    }
    return RC_OK;
}

static enum rc check_limits(const struct model *model, const struct stage *stage,
                            const struct layer *layer, struct fault *why)
{
    uint64_t filter = stage->kind == STAGE_CONV ? (uint64_t)stage->size * stage->size : 1;
    uint64_t weights =
        stage->kind == STAGE_POOL ? 0 : (uint64_t)stage->in.channels * stage->out.channels * filter;
    uint64_t values = (uint64_t)image_values(stage->out) * model->batch_max;
    char place[96];

    if (weights < VALUES_MAX && values < VALUES_MAX &&
        model->schema.values[SECTION_PARAMETERS] + weights < VALUES_MAX) {
        return RC_OK;
    }
    at_column(layer, why, place, sizeof(place));
    return fault_set(why, RC_LIMIT, "%s makes the model larger than 2^32 values", place);
}

/* Tensors of a stage: `conv1.weight` [out, in, k, k], `dense1.bias` [out], numbered by kind. */
static enum rc add_tensors(struct model *model, struct stage *stage)
{
    struct schema *schema = &model->schema;
    uint32_t number = 1;
    uint32_t shape[TENSOR_RANK_MAX] = {stage->out.channels, stage->in.channels, stage->size,
                                       stage->size};
    const char *kind = stage->kind == STAGE_CONV ? "conv" : "dense";
    char name[TENSOR_NAME_BYTES];
    enum rc rc;

    if (stage->kind == STAGE_POOL) return RC_OK;
    for (const struct stage *s = model->stages; s < stage; s++) {
        number += s->kind == stage->kind;
    }
    stage->weight = schema->values[SECTION_PARAMETERS];
    snprintf(name, sizeof(name), "%s%u.weight", kind, number);
    rc = schema_add(schema, name, SECTION_PARAMETERS, shape, stage->kind == STAGE_CONV ? 4 : 2);
    if (rc != RC_OK) return rc;
    stage->bias = schema->values[SECTION_PARAMETERS];
    snprintf(name, sizeof(name), "%s%u.bias", kind, number);
    return schema_add(schema, name, SECTION_PARAMETERS, shape, 1);
}

static enum rc check_end(const struct model *model, struct fault *why)
{
    const struct stage *last =
        model->stages_count > 0 ? &model->stages[model->stages_count - 1] : NULL;

    if (last != NULL && last->kind == STAGE_LINEAR && last->out.channels == model->classes) {
        return RC_OK;
    }
    if (last != NULL && last->kind == STAGE_LINEAR) {
        return fault_set(
            why, RC_SHAPE,
            "--model: the last layer gives %u values, but the data has %u classes; end "
            "with linear:classes",
            last->out.channels, model->classes);
    }
    return fault_set(why, RC_SHAPE, "--model: the list must end with linear:classes");
}

enum rc plan_stages(struct model *model, struct fault *why)
{
    for (uint32_t i = 0; i < model->layers.count; i++) {
        const struct layer *layer = &model->layers.layers[i];
        struct stage *stage = &model->stages[model->stages_count];
        struct stage *before = model->stages_count > 0 ? stage - 1 : NULL;
        enum rc rc;

        if (layer->kind == LAYER_RELU) {
            rc = absorb_relu(model, layer, why);
            if (rc != RC_OK) return rc;
            continue;
        }
        stage->in = before != NULL ? before->out : model->input;
        rc = shape_stage(stage, layer, before, why);
        if (rc == RC_OK) rc = check_limits(model, stage, layer, why);
        if (rc != RC_OK) return rc;
        rc = add_tensors(model, stage);
        if (rc != RC_OK) return fault_set(why, rc, "--model: %s", rc_text(rc));
        if (stage->kind == STAGE_POOL && before != NULL && before->with_relu) {
            before->with_relu = false;
            stage->with_relu = true;
        }
        model->stages_count++;
    }
    model->schema.values[SECTION_GRADIENT] = model->schema.values[SECTION_PARAMETERS];
    return check_end(model, why);
}

/* Images that a flat layer reads must be plain: add the rewriting stage where they are not. */
static void insert_relayout(struct model *model, uint32_t at)
{
    struct stage *stage = &model->stages[at];

    memmove(stage + 1, stage, (model->stages_count - at) * sizeof(*stage));
    *stage =
        (struct stage){.kind = STAGE_RELAYOUT, .in = (stage - 1)->out, .out = (stage - 1)->out};
    stage->out.block = 1;
    model->stages_count++;
}

static enum rc create_conv(struct model *model, struct stage *stage)
{
    struct conv_options options = {
        .in = stage->in,
        .out_channels = stage->width,
        .kernel_height = stage->size,
        .kernel_width = stage->size,
        .padding_height = stage->size / 2,
        .padding_width = stage->size / 2,
        .stride = 1,
        .dilation = 1,
        .groups = 1,
        .with_bias = true,
        .images = model->slice,
        .with_relu = stage->with_relu,
        .with_gradients = model->with_gradients,
        .with_input_gradient = stage > model->stages,
    };
    enum rc rc = model->backend->ops->conv_create(model->backend, &options, &stage->conv);

    if (rc == RC_OK) stage->out = stage->conv->out;
    return rc;
}

/* Bind image stages in order, so that each takes the layout the one before it gives. */
static enum rc bind_images(struct model *model)
{
    uint32_t i = 0;

    while (i < model->stages_count && stage_is_image(&model->stages[i])) {
        struct stage *stage = &model->stages[i];
        bool is_last = !stage_is_image(stage + 1); /* the list ends with a linear layer */
        enum rc rc = RC_OK;

        if (i > 0) stage->in = (stage - 1)->out;
        if (stage->kind == STAGE_CONV) rc = create_conv(model, stage);
        if (stage->kind == STAGE_POOL) stage->out.block = is_last ? 1 : stage->in.block;
        if (rc != RC_OK) return rc;
        if (is_last && stage->out.block != 1) insert_relayout(model, i + 1);
        i++;
    }
    model->images_count = i;
    return RC_OK;
}

static float *take(struct model *model, size_t values)
{
    return model->backend->ops->alloc(model->backend, values * sizeof(float));
}

/* Whether the backward pass, or the dense part, reads this image stage's whole output. */
static bool is_kept(const struct model *model, uint32_t i)
{
    const struct stage *stage = &model->stages[i];

    if (i + 1 == model->images_count) return true;
    if (!model->with_gradients) return false;
    return stage[1].kind == STAGE_CONV || (stage->kind == STAGE_CONV && stage->with_relu);
}

static enum rc take_images(struct model *model)
{
    size_t images = (size_t)model->slice * model->slices;
    size_t slice_values[2] = {0, 0};

    for (uint32_t i = 0; i < model->images_count; i++) {
        struct stage *stage = &model->stages[i];
        size_t values = image_values(stage->out);
        bool is_last = i + 1 == model->images_count;
        bool is_kept_whole = is_kept(model, i);

        if (is_kept_whole && (stage->kept = take(model, images * values)) == NULL) return RC_NOMEM;
        if (stage->kind == STAGE_POOL && model->with_gradients) {
            stage->winner = model->backend->ops->alloc(model->backend, images * values);
            if (stage->winner == NULL) return RC_NOMEM;
        }
        stage->is_released = stage->kind != STAGE_CONV;
        if (!is_kept_whole || (model->with_gradients && !is_last)) {
            size_t needed = values * model->slice;
            if (needed > slice_values[i % 2]) slice_values[i % 2] = needed;
        }
    }
    for (int p = 0; p < 2; p++) {
        if (slice_values[p] == 0) continue;
        model->slice_buffers[p] = take(model, slice_values[p]);
        if (model->slice_buffers[p] == NULL) return RC_NOMEM;
    }
    if (model->images_count == 0) return RC_OK;
    model->tail = take(model, image_values(model->input) * model->slice);
    if (model->tail == NULL) return RC_NOMEM;
    if (!model->with_gradients) return RC_OK;
    if (model->stages[model->images_count - 1].is_released) {
        model->image_gradient = model->stages[model->images_count - 1].kept;
    } else {
        struct image_shape last = model->stages[model->images_count - 1].out;
        model->image_gradient = take(model, images * image_values(last));
    }
    return model->image_gradient == NULL ? RC_NOMEM : RC_OK;
}

static enum rc take_dense(struct model *model)
{
    size_t values[2] = {0, 0};

    for (uint32_t i = model->images_count; i < model->stages_count; i++) {
        struct stage *stage = &model->stages[i];
        stage->kept = take(model, (size_t)model->batch_max * stage->out.channels);
        if (stage->kept == NULL) return RC_NOMEM;
        if (stage->out.channels > values[i % 2]) values[i % 2] = stage->out.channels;
    }
    for (int p = 0; p < 2 && model->with_gradients; p++) {
        model->dense_gradients[p] = take(model, model->batch_max * values[p]);
        if (model->dense_gradients[p] == NULL) return RC_NOMEM;
    }
    return RC_OK;
}

enum rc plan_memory(struct model *model, struct fault *why)
{
    uint32_t at_once = model->backend->images_per_slice;
    size_t parameters = model->schema.values[SECTION_PARAMETERS];
    enum rc rc;

    model->slices = (model->batch_max - 1) / at_once + 1;
    model->slice = (model->batch_max - 1) / model->slices + 1;
    rc = bind_images(model);
    if (rc == RC_OK) rc = take_images(model);
    if (rc == RC_OK) rc = take_dense(model);
    if (rc == RC_OK) {
        model->planes[SECTION_PARAMETERS] = take(model, parameters);
        if (model->planes[SECTION_PARAMETERS] == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK && model->with_gradients) {
        model->planes[SECTION_GRADIENT] = take(model, parameters);
        if (model->planes[SECTION_GRADIENT] == NULL) rc = RC_NOMEM;
    }
    if (rc == RC_OK) return RC_OK;
    return fault_set(why, rc, "cannot set up the model: %s; try a smaller --batch or --model",
                     rc_text(rc));
}

void plan_release(struct model *model)
{
    struct backend *backend = model->backend;

    if (model->images_count > 0 && model->image_gradient != NULL &&
        model->image_gradient != model->stages[model->images_count - 1].kept) {
        backend->ops->free(backend, model->image_gradient);
    }
    for (uint32_t i = 0; i < model->stages_count; i++) {
        struct stage *stage = &model->stages[i];
        if (stage->conv != NULL) stage->conv->ops->destroy(stage->conv);
        backend->ops->free(backend, stage->kept);
        backend->ops->free(backend, stage->winner);
    }
    for (int p = 0; p < 2; p++) {
        backend->ops->free(backend, model->slice_buffers[p]);
        backend->ops->free(backend, model->dense_gradients[p]);
    }
    backend->ops->free(backend, model->tail);
    for (size_t s = 0; s < SECTION_COUNT; s++) {
        backend->ops->free(backend, model->planes[s]);
    }
    schema_deinit(&model->schema);
}
