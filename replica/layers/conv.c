/*
 * Convolutions, grouped and dilated ones, locally connected layers, weight-normalised filters.
 */
#include "replica/layers/weights.h"

#include "base/check.h"
#include "base/mem.h"

struct conv_state {
    struct conv *conv;
    struct stage_weights weights;
    size_t dx_values;
};

static uint32_t out_extent(uint32_t in, uint32_t kernel, uint32_t pad, const struct layer *layer)
{
    uint32_t span = layer->keys[LAYER_DILATION] * (kernel - 1) + 1;

    if (in + 2 * pad < span) return 0;
    return (in + 2 * pad - span) / layer->keys[LAYER_STRIDE] + 1;
}

static enum rc shape_conv(struct model *model, struct stage *stage, struct conv_options *options,
                          struct fault *why)
{
    const struct layer *layer = &stage->layer;
    struct image_shape in = stage->in.image;
    uint32_t dilation = layer->keys[LAYER_DILATION], groups = layer->keys[LAYER_GROUPS];
    bool has_pad = layer_has(layer, LAYER_PAD);

    if (stage_needs_image(stage, why) != RC_OK) return RC_SHAPE;
    if (in.channels % groups != 0 || layer->count % groups != 0) {
        return stage_fault(stage, why,
                           "cannot share %u channels in and %u out between %u groups; groups must "
                           "divide both",
                           in.channels, layer->count, groups);
    }
    *options = (struct conv_options){
        .in = in,
        .out_channels = layer->count,
        .kernel_height = layer->height,
        .kernel_width = layer->width,
        .padding_height = has_pad ? layer->keys[LAYER_PAD] : dilation * (layer->height - 1) / 2,
        .padding_width = has_pad ? layer->keys[LAYER_PAD] : dilation * (layer->width - 1) / 2,
        .stride = layer->keys[LAYER_STRIDE],
        .dilation = dilation,
        .groups = groups,
        .is_local = layer->kind == LAYER_LOCAL,
        .with_bias = stage->has_bias,
        .with_relu = stage->activation.kind == ACTIVATION_RELU,
        .with_gradients = stage_with_gradients(model),
        .with_input_gradient = stage_with_gradients(model) && stage->has_input_gradient,
    };
    stage->out.image = (struct image_shape){
        layer->count, out_extent(in.height, layer->height, options->padding_height, layer),
        out_extent(in.width, layer->width, options->padding_width, layer), 1};
    if (stage->out.image.height > 0 && stage->out.image.width > 0) return RC_OK;
    return stage_fault(stage, why,
                       "does not fit an image of %ux%u; use a smaller filter or a larger pad",
                       in.height, in.width);
}

/* The filters, as one tensor: [out][in / groups][height][width], local ones for each pixel. */
static struct stage_weights_shape weights_of(const struct stage *stage,
                                             const struct conv_options *options)
{
    uint32_t in = options->in.channels / options->groups;
    uint32_t filter = in * options->kernel_height * options->kernel_width;
    uint32_t pixels = stage->out.image.height * stage->out.image.width;

    if (options->is_local) {
        return (struct stage_weights_shape){{pixels, options->out_channels, filter}, 3, 2, filter};
    }
    return (struct stage_weights_shape){
        {options->out_channels, in, options->kernel_height, options->kernel_width}, 4, 1, filter};
}

static enum rc conv_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct backend *backend = stage_backend(model);
    struct conv_options options = {.groups = 1};
    struct stage_weights_shape shape;
    struct conv_state *state;
    enum rc rc = shape_conv(model, stage, &options, why);

    if (rc != RC_OK) return rc;
    stage->slice = stage_slice(model, stage->in);
    options.images = stage->slice;
    stage->keeps_input = true;
    stage->keeps_output = options.with_relu;
    stage->is_padded = true;
    stage->uses_scratch = true;
    state = mem_alloc(sizeof(*state));
    if (state == NULL) return RC_NOMEM;
    stage->state = state;
    stage->is_late = stage_is_normed(stage);
    state->dx_values = shape_values(stage->in) * stage->slice;
    shape = weights_of(stage, &options);
    stage->flops = 2 * (uint64_t)shape_values(stage->out) * shape.columns;
    rc = stage_weights_create(model, stage, &shape, &state->weights, why);
    if (rc != RC_OK) return rc;
    rc = backend->ops->conv_create(backend, &options, &state->conv);
    if (rc == RC_OK) stage->out.image = state->conv->out;
    return rc;
}

static void conv_destroy(struct model *model, struct stage *stage)
{
    struct conv_state *state = stage->state;

    if (state == NULL) return;
    if (state->conv != NULL) state->conv->ops->destroy(state->conv);
    stage_weights_deinit(model, &state->weights);
    mem_free(state);
}

static enum rc conv_start(struct model *model, struct stage *stage)
{
    struct conv_state *state = stage->state;

    return stage_weights_start(model, stage, &state->weights);
}

static enum rc conv_prepare(struct model *model, struct stage *stage, bool is_training)
{
    struct conv_state *state = stage->state;
    const float *weight, *bias;
    enum rc rc = stage_weights_take(model, stage, &state->weights, &weight, &bias);

    (void)is_training;
    return rc == RC_OK ? state->conv->ops->prepare(state->conv, weight, bias) : rc;
}

static enum rc conv_forward(struct model *model, struct stage *stage, const struct stage_pass *pass)
{
    struct conv_state *state = stage->state;

    (void)model;
    return state->conv->ops->forward(state->conv, pass->x[0], pass->y);
}

static enum rc conv_backward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct conv_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    float *dweight, *dbias;
    float *to = pass->adds[0] ? pass->scratch : pass->dx[0];
    enum rc rc = RC_OK;

    stage_weights_gradients(model, stage, &state->weights, &dweight, &dbias);
    if (stage->activation.kind == ACTIVATION_RELU) {
        rc = backend->ops->relu_backward(backend, pass->y, pass->dy,
                                         stage->slice * shape_values(stage->out));
    }
    if (rc == RC_OK) {
        rc = state->conv->ops->backward_weights(state->conv, pass->x[0], pass->dy, pass->is_first,
                                                dweight, dbias);
    }
    if (rc != RC_OK || pass->dx[0] == NULL) return rc;
    rc = state->conv->ops->backward_data(state->conv, pass->dy, to);
    if (rc != RC_OK || !pass->adds[0]) return rc;
    return backend->ops->add(backend, pass->dx[0], to, false, pass->dx[0], state->dx_values);
}

static enum rc conv_close_backward(struct model *model, struct stage *stage,
                                   const struct stage_pass *pass)
{
    struct conv_state *state = stage->state;

    (void)pass;
    return stage_weights_close(model, stage, &state->weights);
}

const struct stage_ops stage_conv_ops = {
    .name = "conv",
    .create = conv_create,
    .destroy = conv_destroy,
    .start = conv_start,
    .prepare = conv_prepare,
    .forward = conv_forward,
    .backward = conv_backward,
    .close_backward = conv_close_backward,
};
