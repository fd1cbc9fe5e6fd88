/*
 * A model: forward and backward passes over the stages of model_plan.h, on one backend. Rows that a
 * batch does not fill are zeros and take part in nothing. Thread: one at a time, the training
 * lane's.
 */
#include "replica/model_plan.h"

#include "base/check.h"
#include "base/mem.h"
#include "base/rng.h"

#include <math.h>
#include <string.h>

enum { RNG_PURPOSE_WEIGHTS = 0x77656967 }; /* + number of the tensor */

/* U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases, each tensor from its own stream. */
static enum rc initialise(struct model *model)
{
    float values[1024];
    const struct schema *schema = &model->schema;

    for (uint32_t t = 0; t < schema->tensors_count; t++) {
        const struct tensor *weight = &schema->tensors[t - t % 2]; /* weight, bias, weight, ... */
        const struct tensor *tensor = &schema->tensors[t];
        float bound = (float)(1.0 / sqrt((double)(weight->count / weight->shape[0])));
        struct rng rng;

        rng_init(&rng, model->seed, (uint64_t)RNG_PURPOSE_WEIGHTS + t);
        for (size_t i = 0; i < tensor->count; i += ARRAY_COUNT(values)) {
            size_t count = tensor->count - i;
            enum rc rc;
            if (count > ARRAY_COUNT(values)) count = ARRAY_COUNT(values);
            for (size_t k = 0; k < count; k++) {
                values[k] = bound * (float)(2.0 * rng_unit(&rng) - 1.0);
            }
            rc = model->backend->ops->upload(model->backend,
                                             model->planes[SECTION_PARAMETERS] + tensor->offset + i,
                                             values, count * sizeof(float));
            if (rc != RC_OK) return rc;
        }
    }
    return RC_OK;
}

static enum rc check_options(const struct model_options *options, struct fault *why)
{
    uint64_t values = (uint64_t)options->channels * options->height;

    if (options->classes == 0 || options->classes > 256) {
        return fault_set(why, RC_SHAPE, "a model needs 1 to 256 classes, the data has %u",
                         options->classes);
    }
    if (values == 0 || options->width == 0 || values > UINT32_MAX / options->width) {
        return fault_set(why, RC_SHAPE, "a model cannot read samples of %ux%ux%u values",
                         options->channels, options->height, options->width);
    }
    if (options->batch_max == 0 || options->batch_max > 1u << 20) {
        return fault_set(why, RC_USAGE, "--batch must be from 1 to %u, not %u", 1u << 20,
                         options->batch_max);
    }
    return RC_OK;
}

enum rc model_create(struct backend *backend, const struct model_options *options,
                     struct model **model, struct fault *why)
{
    struct model *m;
    enum rc rc = check_options(options, why);

    if (rc != RC_OK) return rc;
    m = mem_alloc(sizeof(*m));
    if (m == NULL) return fault_set(why, RC_NOMEM, "cannot set up the model: out of memory");
    backend_bind_thread(backend);
    schema_init(&m->schema);
    m->backend = backend;
    m->input = (struct image_shape){options->channels, options->height, options->width, 1};
    m->classes = options->classes;
    m->batch_max = options->batch_max;
    m->seed = options->seed;
    m->with_gradients = options->with_gradients;
    rc = layers_parse(options->spec, options->classes, &m->layers, why);
    if (rc == RC_OK) {
        rc = layers_format(&m->layers, m->spec, sizeof(m->spec));
        if (rc != RC_OK)
            fault_set(why, rc, "--model: written out it is longer than %zu letters",
                      sizeof(m->spec) - 1);
    }
    if (rc == RC_OK) rc = plan_stages(m, why);
    if (rc == RC_OK) rc = plan_memory(m, why);
    if (rc == RC_OK) {
        rc = initialise(m);
        if (rc != RC_OK) fault_set(why, rc, "cannot write the initial weights: %s", rc_text(rc));
    }
    if (rc != RC_OK) {
        model_destroy(m);
        return rc;
    }
    *model = m;
    return RC_OK;
}

void model_destroy(struct model *model)
{
    if (model == NULL) return;
    plan_release(model);
    mem_free(model);
}

const struct schema *model_schema(const struct model *model)
{
    return &model->schema;
}

const char *model_spec(const struct model *model)
{
    return model->spec;
}

uint32_t model_classes(const struct model *model)
{
    return model->classes;
}

uint32_t model_batch_max(const struct model *model)
{
    return model->batch_max;
}

struct backend *model_backend(const struct model *model)
{
    return model->backend;
}

float *model_plane(struct model *model, enum section section)
{
    CHECK(section < SECTION_COUNT);
    return model->planes[section];
}

uint64_t model_flops(const struct model *model)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < model->stages_count; i++) {
        const struct stage *stage = &model->stages[i];
        uint64_t taps = (uint64_t)stage->size * stage->size;
        if (stage->kind == STAGE_LINEAR) taps = 1;
        if (stage->kind == STAGE_LINEAR || stage->kind == STAGE_CONV) {
            total += 2 * image_values(stage->out) * stage->in.channels * taps;
        }
    }
    return total;
}

enum rc model_reserve_moments(struct model *model, uint32_t planes)
{
    size_t count = model->schema.values[SECTION_PARAMETERS] * planes;

    CHECK(model->planes[SECTION_MOMENTS] == NULL);
    if (count == 0) return RC_OK;
    model->planes[SECTION_MOMENTS] =
        model->backend->ops->alloc(model->backend, count * sizeof(float));
    if (model->planes[SECTION_MOMENTS] == NULL) return RC_NOMEM;
    model->schema.values[SECTION_MOMENTS] = count;
    return RC_OK;
}

static struct pool_options pool_of(const struct stage *stage)
{
    return (struct pool_options){stage->in, stage->out, stage->size, stage->with_relu};
}

/* The output of image stage `i` for one slice. */
static float *output_of(struct model *model, uint32_t i, uint32_t slice)
{
    struct stage *stage = &model->stages[i];

    if (stage->kept == NULL) return model->slice_buffers[i % 2];
    return stage->kept + (size_t)slice * model->slice * image_values(stage->out);
}

/* The input of a slice: in place, or padded with zeros where the batch does not fill it. */
static enum rc input_of(struct model *model, const float *input, uint32_t batch, uint32_t slice,
                        const float **values)
{
    const struct backend_ops *ops = model->backend->ops;
    size_t each = image_values(model->input);
    uint32_t first = slice * model->slice, rows = batch - first;
    enum rc rc;

    *values = input + first * each;
    if (rows >= model->slice) return RC_OK;
    rc = ops->zero(model->backend, model->tail, model->slice * each * sizeof(float));
    if (rc != RC_OK) return rc;
    *values = model->tail;
    return ops->upload(model->backend, model->tail, input + first * each,
                       rows * each * sizeof(float));
}

static enum rc image_forward(struct model *model, uint32_t i, uint32_t slice, const float *x)
{
    struct stage *stage = &model->stages[i];
    const struct backend_ops *ops = model->backend->ops;
    struct pool_options pool = pool_of(stage);
    float *y = output_of(model, i, slice);
    uint8_t *winner = stage->winner;

    switch (stage->kind) {
    case STAGE_CONV:
        return stage->conv->ops->forward(stage->conv, x, y);
    case STAGE_POOL:
        if (winner != NULL) winner += (size_t)slice * model->slice * image_values(stage->out);
        return ops->pool_forward(model->backend, &pool, model->slice, x, y, winner);
    case STAGE_RELAYOUT:
        return ops->relayout(model->backend, stage->in, stage->out.block, model->slice, x, y);
    case STAGE_LINEAR:
    default:
        CHECK(false); /* an image stage */
    }
    return RC_DEVICE;
}

static enum rc images_forward(struct model *model, const float *input, uint32_t batch)
{
    const float *parameters = model->planes[SECTION_PARAMETERS];
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < model->images_count; i++) {
        struct stage *stage = &model->stages[i];
        if (stage->kind != STAGE_CONV) continue;
        rc = stage->conv->ops->prepare(stage->conv, parameters + stage->weight,
                                       parameters + stage->bias);
    }
    for (uint32_t s = 0; rc == RC_OK && s * model->slice < batch; s++) {
        const float *x;
        rc = input_of(model, input, batch, s, &x);
        for (uint32_t i = 0; rc == RC_OK && i < model->images_count; i++) {
            rc = image_forward(model, i, s, x);
            x = output_of(model, i, s);
        }
    }
    return rc;
}

/* The input of dense stage `i`. */
static const float *dense_input(const struct model *model, uint32_t i, const float *input)
{
    return i == 0 ? input : model->stages[i - 1].kept;
}

enum rc model_forward(struct model *model, const float *input, uint32_t batch, bool is_training,
                      float *logits)
{
    const struct backend_ops *ops = model->backend->ops;
    const float *parameters = model->planes[SECTION_PARAMETERS];
    enum rc rc = RC_OK;

    CHECK(batch > 0 && batch <= model->batch_max);
    CHECK(!is_training || model->with_gradients);
    backend_bind_thread(model->backend);
    model->batch = 0;
    if (model->images_count > 0) rc = images_forward(model, input, batch);
    for (uint32_t i = model->images_count; rc == RC_OK && i < model->stages_count; i++) {
        struct stage *stage = &model->stages[i];
        struct linear_shape shape = {batch, stage->in.channels, stage->out.channels,
                                     stage->with_relu};
        rc = ops->linear_forward(model->backend, &shape, dense_input(model, i, input),
                                 parameters + stage->weight, parameters + stage->bias, stage->kept);
    }
    if (rc == RC_OK) {
        rc = ops->download(model->backend, logits, model->stages[model->stages_count - 1].kept,
                           (size_t)batch * model->classes * sizeof(float));
    }
    if (rc != RC_OK || !is_training) return rc;
    model->batch = batch;
    model->input_values = input;
    return RC_OK;
}

static enum rc dense_backward(struct model *model, uint32_t i)
{
    struct stage *stage = &model->stages[i];
    const float *parameters = model->planes[SECTION_PARAMETERS];
    float *gradients = model->planes[SECTION_GRADIENT];
    struct linear_shape shape = {model->batch, stage->in.channels, stage->out.channels,
                                 stage->with_relu};
    struct linear_backward pass = {
        .x = dense_input(model, i, model->input_values),
        .weight = parameters + stage->weight,
        .y = stage->kept,
        .dy = model->dense_gradients[i % 2],
        .dx = i == 0 ? NULL : model->dense_gradients[(i + 1) % 2],
        .dweight = gradients + stage->weight,
        .dbias = gradients + stage->bias,
    };

    if (i > 0 && i == model->images_count) pass.dx = model->image_gradient;
    return model->backend->ops->linear_backward(model->backend, &shape, &pass);
}

/* d(loss)/d(output of image stage i) for one slice. */
static float *gradient_of(struct model *model, uint32_t i, uint32_t slice)
{
    struct stage *stage = &model->stages[i];

    if (i + 1 < model->images_count) return model->slice_buffers[i % 2];
    return model->image_gradient + (size_t)slice * model->slice * image_values(stage->out);
}

static enum rc conv_backward(struct model *model, uint32_t i, uint32_t slice, const float *x)
{
    struct stage *stage = &model->stages[i];
    const struct backend_ops *ops = model->backend->ops;
    float *gradients = model->planes[SECTION_GRADIENT];
    float *dy = gradient_of(model, i, slice);
    enum rc rc = RC_OK;

    if (stage->with_relu) {
        rc = ops->relu_backward(model->backend, output_of(model, i, slice), dy,
                                model->slice * image_values(stage->out));
    }
    if (rc == RC_OK) {
        rc = stage->conv->ops->backward_weights(stage->conv, x, dy, slice == 0,
                                                gradients + stage->weight, gradients + stage->bias);
    }
    if (rc != RC_OK || i == 0) return rc;
    return stage->conv->ops->backward_data(stage->conv, dy, gradient_of(model, i - 1, slice));
}

static enum rc image_backward(struct model *model, uint32_t i, uint32_t slice)
{
    struct stage *stage = &model->stages[i];
    const struct backend_ops *ops = model->backend->ops;
    struct pool_options pool = pool_of(stage);
    float *dy = gradient_of(model, i, slice);
    const float *x = NULL;
    enum rc rc = RC_OK;

    switch (stage->kind) {
    case STAGE_CONV:
        if (i == 0) {
            rc = input_of(model, model->input_values, model->batch, slice, &x);
        } else {
            x = output_of(model, i - 1, slice);
        }
        return rc == RC_OK ? conv_backward(model, i, slice, x) : rc;
    case STAGE_POOL:
        if (i == 0) return RC_OK;
        return ops->pool_backward(model->backend, &pool, model->slice, dy,
                                  stage->winner +
                                      (size_t)slice * model->slice * image_values(stage->out),
                                  gradient_of(model, i - 1, slice));
    case STAGE_RELAYOUT:
        return ops->relayout(model->backend, stage->out, stage->in.block, model->slice, dy,
                             gradient_of(model, i - 1, slice));
    case STAGE_LINEAR:
    default:
        CHECK(false); /* an image stage */
    }
    return RC_DEVICE;
}

/* Rows that padded the last slice have no gradient. */
static enum rc clear_padding(struct model *model)
{
    size_t each = image_values(model->stages[model->images_count - 1].out);
    uint32_t slices = (model->batch - 1) / model->slice + 1;
    size_t rows = (size_t)slices * model->slice - model->batch;

    if (rows == 0) return RC_OK;
    return model->backend->ops->zero(model->backend, model->image_gradient + model->batch * each,
                                     rows * each * sizeof(float));
}

enum rc model_backward(struct model *model, const float *logits_gradient)
{
    const struct backend_ops *ops = model->backend->ops;
    uint32_t last = model->stages_count - 1;
    enum rc rc;

    CHECK(model->batch > 0);
    backend_bind_thread(model->backend);
    rc = ops->upload(model->backend, model->dense_gradients[last % 2], logits_gradient,
                     (size_t)model->batch * model->classes * sizeof(float));
    for (uint32_t i = model->stages_count; rc == RC_OK && i-- > model->images_count;) {
        rc = dense_backward(model, i);
    }
    if (rc == RC_OK && model->images_count > 0) rc = clear_padding(model);
    for (uint32_t s = 0; rc == RC_OK && s * model->slice < model->batch; s++) {
        for (uint32_t i = model->images_count; rc == RC_OK && i-- > 0;) {
            rc = image_backward(model, i, s);
        }
    }
    model->batch = 0; /* activations are partly overwritten now */
    return rc;
}
