/*
 * Convolutions, grouped and dilated ones, locally connected layers, weight-normalised filters.
 */
#include "replica/stage.h"

#include "base/check.h"
#include "base/mem.h"

struct conv_state {
    struct conv *conv;
    float *weight; /* weight normalisation: what the convolution uses */
    float *norms;  /* [out] */
    size_t filter; /* values of one output channel's filter */
    size_t dx_values;
};

enum { TENSOR_WEIGHT, TENSOR_BIAS };
enum { TENSOR_V, TENSOR_G, TENSOR_NORMED_BIAS };

static bool is_normed(const struct stage *stage)
{
    return stage->layer.keys[LAYER_WN] == 1;
}

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

static enum rc add_tensors(struct model *model, struct stage *stage,
                           const struct conv_options *options, struct fault *why)
{
    uint32_t in = options->in.channels / options->groups;
    uint32_t plain[] = {options->out_channels, in, options->kernel_height, options->kernel_width};
    uint32_t pixels = stage->out.image.height * stage->out.image.width;
    uint32_t filter = in * options->kernel_height * options->kernel_width;
    uint32_t local[] = {pixels, options->out_channels, filter};
    const uint32_t *shape = options->is_local ? local : plain;
    uint32_t rank = options->is_local ? 3 : 4, bias_rank = options->is_local ? 2 : 1;
    struct init init = init_fan_in(filter);
    enum rc rc;

    if (is_normed(stage)) {
        struct init g = {INIT_CONSTANT, 1.0F}; /* until conv_start() */
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_v", shape, rank, init, why);
        if (rc == RC_OK) {
            rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_g", shape, 1, g, why);
        }
    } else {
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight", shape, rank, init, why);
    }
    if (rc != RC_OK || !stage->has_bias) return rc;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "bias", shape, bias_rank, init, why);
}

static enum rc conv_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct backend *backend = stage_backend(model);
    struct conv_options options = {.groups = 1};
    struct conv_state *state;
    enum rc rc = shape_conv(model, stage, &options, why);

    if (rc == RC_OK) rc = add_tensors(model, stage, &options, why);
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
    state->filter =
        (size_t)options.in.channels / options.groups * options.kernel_height * options.kernel_width;
    state->dx_values = shape_values(stage->in) * stage->slice;
    stage->flops = 2 * (uint64_t)shape_values(stage->out) * state->filter;
    if (is_normed(stage)) {
        state->weight =
            backend->ops->alloc(backend, state->filter * options.out_channels * sizeof(float));
        state->norms = backend->ops->alloc(backend, options.out_channels * sizeof(float));
        if (state->weight == NULL || state->norms == NULL) return RC_NOMEM;
    }
    rc = backend->ops->conv_create(backend, &options, &state->conv);
    if (rc == RC_OK) stage->out.image = state->conv->out;
    return rc;
}

static void conv_destroy(struct model *model, struct stage *stage)
{
    struct conv_state *state = stage->state;
    struct backend *backend = stage_backend(model);

    if (state == NULL) return;
    if (state->conv != NULL) state->conv->ops->destroy(state->conv);
    backend->ops->free(backend, state->weight);
    backend->ops->free(backend, state->norms);
    mem_free(state);
}

static enum rc conv_start(struct model *model, struct stage *stage)
{
    struct conv_state *state = stage->state;

    if (!is_normed(stage)) return RC_OK;
    return stage_start_norm(model, stage, state->filter, state->weight, state->norms);
}

static uint32_t bias_number(const struct stage *stage)
{
    return is_normed(stage) ? TENSOR_NORMED_BIAS : TENSOR_BIAS;
}

static enum rc conv_prepare(struct model *model, struct stage *stage, bool is_training)
{
    struct conv_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    const float *bias = stage->has_bias ? stage_values(model, stage, bias_number(stage)) : NULL;
    const float *weight = stage_values(model, stage, TENSOR_WEIGHT);
    enum rc rc;

    (void)is_training;
    if (is_normed(stage)) {
        rc = backend->ops->weight_norm_forward(
            backend, stage->layer.count, state->filter, stage_values(model, stage, TENSOR_V),
            stage_values(model, stage, TENSOR_G), state->weight, state->norms);
        if (rc != RC_OK) return rc;
        weight = state->weight;
    }
    return state->conv->ops->prepare(state->conv, weight, bias);
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
    float *dbias = stage->has_bias ? stage_gradient(model, stage, bias_number(stage)) : NULL;
    float *to = pass->adds[0] ? pass->scratch : pass->dx[0];
    enum rc rc = RC_OK;

    if (stage->activation.kind == ACTIVATION_RELU) {
        rc = backend->ops->relu_backward(backend, pass->y, pass->dy,
                                         stage->slice * shape_values(stage->out));
    }
    if (rc == RC_OK) {
        rc = state->conv->ops->backward_weights(state->conv, pass->x[0], pass->dy, pass->is_first,
                                                stage_gradient(model, stage, TENSOR_WEIGHT), dbias);
    }
    if (rc != RC_OK || pass->dx[0] == NULL) return rc;
    rc = state->conv->ops->backward_data(state->conv, pass->dy, to);
    if (rc != RC_OK || !pass->adds[0]) return rc;
    return backend->ops->axpy(backend, 1.0F, to, pass->dx[0], state->dx_values);
}

static enum rc conv_close_backward(struct model *model, struct stage *stage,
                                   const struct stage_pass *pass)
{
    struct conv_state *state = stage->state;
    struct weight_norm_backward back;

    (void)pass;
    if (!is_normed(stage)) return RC_OK;
    back = (struct weight_norm_backward){
        .rows = stage->layer.count,
        .columns = state->filter,
        .v = stage_values(model, stage, TENSOR_V),
        .g = stage_values(model, stage, TENSOR_G),
        .norms = state->norms,
        .dw = stage_gradient(model, stage, TENSOR_V),
        .dv = stage_gradient(model, stage, TENSOR_V),
        .dg = stage_gradient(model, stage, TENSOR_G),
    };
    return stage_backend(model)->ops->weight_norm_backward(stage_backend(model), &back);
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
