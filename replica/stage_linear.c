/*
 * Dense layers: `linear:N` on vectors and on each row of a sequence, weight-normalised ones, ones
 * tied to the embedding, and the projections of attention.
 */
#include "replica/stage.h"

#include "base/check.h"
#include "base/mem.h"

struct linear_state {
    struct linear *linear;
    float *weight; /* weight normalisation: [out][in] what the product uses */
    float *norms;  /* [out] */
    size_t in, out;
};

enum { TENSOR_WEIGHT, TENSOR_BIAS };             /* plain */
enum { TENSOR_V, TENSOR_G, TENSOR_NORMED_BIAS }; /* weight-normalised */

static bool is_tied(const struct stage *stage)
{
    return stage->partner != UINT32_MAX;
}

static bool is_normed(const struct stage *stage)
{
    return stage->layer.keys[LAYER_WN] == 1;
}

static enum rc add_tensors(struct model *model, struct stage *stage, uint32_t in, uint32_t out,
                           struct fault *why)
{
    uint32_t shape[] = {out, in};
    struct init init = init_fan_in(in);
    enum rc rc = RC_OK;

    if (is_normed(stage)) {
        struct init g = {INIT_CONSTANT, 1.0F}; /* until linear_start() */
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_v", shape, 2, init, why);
        if (rc == RC_OK) {
            rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_g", shape, 1, g, why);
        }
    } else if (!is_tied(stage)) {
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight", shape, 2, init, why);
    }
    if (rc != RC_OK || !stage->has_bias) return rc;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "bias", shape, 1, init, why);
}

static enum rc check_tied(struct model *model, struct stage *stage, uint32_t in, uint32_t out,
                          struct fault *why)
{
    const struct stage *embed = stage_partner(model, stage);

    if (is_normed(stage)) return stage_fault(stage, why, "cannot be both tied and normalised");
    if (embed->out.image.channels == in && stage_symbols(model) == out) return RC_OK;
    return stage_fault(stage, why,
                       "cannot be tied to an embedding of %u symbols in %u values: it makes %u of "
                       "%u; put linear:%u before it",
                       stage_symbols(model), embed->out.image.channels, out, in,
                       embed->out.image.channels);
}

static enum rc linear_create(struct model *model, struct stage *stage, struct fault *why)
{
    size_t in = shape_values(stage->in) / shape_rows(stage->in);
    uint32_t out = stage->layer.count;
    struct backend *backend = stage_backend(model);
    struct linear_state *state;
    struct linear_options options = {
        .in = in,
        .out = out,
        .with_bias = stage->has_bias,
        .activation = stage->activation,
        .with_gradients = stage_with_gradients(model),
        .with_input_gradient = stage_with_gradients(model) && stage->has_input_gradient,
    };
    enum rc rc;

    stage->out = (struct shape){{out, 1, 1, 1}, stage->in.steps, true};
    stage->slice = stage_slice(model, stage->out);
    options.rows_max = stage->slice * shape_rows(stage->out);
    stage->keeps_input = true;
    if (activation_needs_input(stage->activation.kind)) {
        stage->saved_bytes = shape_values(stage->out) * sizeof(float);
    } else {
        stage->keeps_output = stage->activation.kind != ACTIVATION_NONE;
    }
    stage->flops = 2 * (uint64_t)in * shape_values(stage->out);
    if (in > UINT32_MAX) return stage_fault(stage, why, "has too many inputs");
    rc = is_tied(stage) ? check_tied(model, stage, (uint32_t)in, out, why) : RC_OK;
    if (rc == RC_OK) rc = add_tensors(model, stage, (uint32_t)in, out, why);
    if (rc != RC_OK) return rc;
    state = mem_alloc(sizeof(*state));
    if (state == NULL) return RC_NOMEM;
    stage->state = state;
    state->in = in;
    state->out = out;
    if (is_normed(stage)) {
        state->weight = backend->ops->alloc(backend, in * out * sizeof(float));
        state->norms = backend->ops->alloc(backend, out * sizeof(float));
        if (state->weight == NULL || state->norms == NULL) return RC_NOMEM;
    }
    return backend->ops->linear_create(backend, &options, &state->linear);
}

static void linear_destroy(struct model *model, struct stage *stage)
{
    struct linear_state *state = stage->state;
    struct backend *backend = stage_backend(model);

    if (state == NULL) return;
    if (state->linear != NULL) state->linear->ops->destroy(state->linear);
    backend->ops->free(backend, state->weight);
    backend->ops->free(backend, state->norms);
    mem_free(state);
}

static enum rc linear_start(struct model *model, struct stage *stage)
{
    struct linear_state *state = stage->state;

    if (!is_normed(stage)) return RC_OK;
    return stage_start_norm(model, stage, state->in, state->weight, state->norms);
}

static uint32_t bias_number(const struct stage *stage)
{
    if (is_tied(stage)) return 0;
    return is_normed(stage) ? TENSOR_NORMED_BIAS : TENSOR_BIAS;
}

static enum rc linear_prepare(struct model *model, struct stage *stage, bool is_training)
{
    struct linear_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    const float *bias = stage->has_bias ? stage_values(model, stage, bias_number(stage)) : NULL;
    const float *weight;
    enum rc rc;

    (void)is_training;
    if (is_tied(stage)) {
        weight = stage_values(model, stage_partner(model, stage), 0);
    } else if (is_normed(stage)) {
        rc = backend->ops->weight_norm_forward(
            backend, state->out, state->in, stage_values(model, stage, TENSOR_V),
            stage_values(model, stage, TENSOR_G), state->weight, state->norms);
        if (rc != RC_OK) return rc;
        weight = state->weight;
    } else {
        weight = stage_values(model, stage, TENSOR_WEIGHT);
    }
    return state->linear->ops->prepare(state->linear, weight, bias);
}

static enum rc linear_forward(struct model *model, struct stage *stage,
                              const struct stage_pass *pass)
{
    struct linear_state *state = stage->state;

    (void)model;
    return state->linear->ops->forward(state->linear, pass->samples * shape_rows(stage->out),
                                       pass->x[0], pass->saved, pass->y);
}

static enum rc linear_backward(struct model *model, struct stage *stage,
                               const struct stage_pass *pass)
{
    struct linear_state *state = stage->state;
    struct linear_backward back = {
        .rows = pass->samples * shape_rows(stage->out),
        .x = pass->x[0],
        .pre = pass->saved,
        .y = pass->y,
        .dy = pass->dy,
        .dx = pass->dx[0],
        .adds_to_dx = pass->adds[0],
        .is_first = pass->is_first,
    };

    if (is_tied(stage)) {
        back.dweight = stage_gradient(model, stage_partner(model, stage), 0);
    } else {
        back.dweight = stage_gradient(model, stage, TENSOR_WEIGHT); /* or v, for a while */
    }
    if (stage->has_bias) back.dbias = stage_gradient(model, stage, bias_number(stage));
    return state->linear->ops->backward(state->linear, &back);
}

/* The gradient that the slices gathered in v's place becomes those of v and g. */
static enum rc linear_close_backward(struct model *model, struct stage *stage,
                                     const struct stage_pass *pass)
{
    struct linear_state *state = stage->state;
    struct weight_norm_backward back;

    (void)pass;
    if (!is_normed(stage)) return RC_OK;
    back = (struct weight_norm_backward){
        .rows = state->out,
        .columns = state->in,
        .v = stage_values(model, stage, TENSOR_V),
        .g = stage_values(model, stage, TENSOR_G),
        .norms = state->norms,
        .dw = stage_gradient(model, stage, TENSOR_V),
        .dv = stage_gradient(model, stage, TENSOR_V),
        .dg = stage_gradient(model, stage, TENSOR_G),
    };
    return stage_backend(model)->ops->weight_norm_backward(stage_backend(model), &back);
}

const struct stage_ops stage_linear_ops = {
    .name = "linear",
    .create = linear_create,
    .destroy = linear_destroy,
    .start = linear_start,
    .prepare = linear_prepare,
    .forward = linear_forward,
    .backward = linear_backward,
    .close_backward = linear_close_backward,
};
