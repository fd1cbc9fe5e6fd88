/*
 * Dense layers: `linear:N` on vectors and on each row of a sequence, weight-normalised ones, ones
 * tied to the embedding, and the projections of attention.
 */
#include "replica/layers/weights.h"

#include "base/check.h"
#include "base/mem.h"

struct linear_state {
    struct linear *linear;
    struct stage_weights weights;
};

static enum rc check_tied(struct model *model, struct stage *stage, uint32_t in, uint32_t out,
                          struct fault *why)
{
    const struct stage *embed = stage_partner(model, stage);

    if (stage_is_normed(stage))
        return stage_fault(stage, why, "cannot be both tied and normalised");
    if (embed->out.image.channels == in && stage_symbols(model) == out) return RC_OK;
    return stage_fault(stage, why,
                       "cannot be tied to an embedding of %u symbols in %u values: it makes %u of "
                       "%u; put linear:%u before it",
                       stage_symbols(model), embed->out.image.channels, out, in,
                       embed->out.image.channels);
}

/* Tensor cores want rows of bfloat16 to begin at multiples of 16 bytes, and long ones of 128. Only
 * the last layer's need help: a vocabulary has as many words as it has. */
static uint32_t output_stride(const struct model *model, const struct stage *stage, uint32_t out)
{
    uint32_t unit = out < 64 ? 8 : 64;

    if (!stage->is_last || stage_backend(model)->value_bytes != 2 || out % unit == 0) return 0;
    return out + unit - out % unit;
}

static enum rc linear_create(struct model *model, struct stage *stage, struct fault *why)
{
    size_t in = shape_values(stage->in) / shape_rows(stage->in);
    uint32_t out = stage->layer.count;
    struct backend *backend = stage_backend(model);
    struct linear_state *state;
    struct stage_weights_shape shape;
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
    stage->out_stride = output_stride(model, stage, out);
    options.y_stride = stage->out_stride;
    options.rows_max = stage->slice * shape_rows(stage->out);
    stage->keeps_input = true;
    stage->leaves_dy = stage->activation.kind == ACTIVATION_NONE;
    if (activation_needs_input(stage->activation.kind)) {
        stage->saved_bytes = shape_values(stage->out) * sizeof(float);
    } else {
        stage->keeps_output = stage->activation.kind != ACTIVATION_NONE;
    }
    stage->flops = 2 * (uint64_t)in * shape_values(stage->out);
    if (in > UINT32_MAX) return stage_fault(stage, why, "has too many inputs");
    rc = stage_is_tied(stage) ? check_tied(model, stage, (uint32_t)in, out, why) : RC_OK;
    if (rc != RC_OK) return rc;
    state = mem_alloc(sizeof(*state));
    if (state == NULL) return RC_NOMEM;
    stage->state = state;
    stage->is_late = stage_is_normed(stage);
    shape = (struct stage_weights_shape){{out, (uint32_t)in}, 2, 1, (uint32_t)in};
    rc = stage_weights_create(model, stage, &shape, &state->weights, why);
    if (rc != RC_OK) return rc;
    return backend->ops->linear_create(backend, &options, &state->linear);
}

static void linear_destroy(struct model *model, struct stage *stage)
{
    struct linear_state *state = stage->state;

    if (state == NULL) return;
    if (state->linear != NULL) state->linear->ops->destroy(state->linear);
    stage_weights_deinit(model, &state->weights);
    mem_free(state);
}

static enum rc linear_start(struct model *model, struct stage *stage)
{
    struct linear_state *state = stage->state;

    return stage_weights_start(model, stage, &state->weights);
}

static enum rc linear_prepare(struct model *model, struct stage *stage, bool is_training)
{
    struct linear_state *state = stage->state;
    const float *weight, *bias;
    enum rc rc = stage_weights_take(model, stage, &state->weights, &weight, &bias);

    (void)is_training;
    return rc == RC_OK ? state->linear->ops->prepare(state->linear, weight, bias) : rc;
}

/* Weights that are made of parameters first are no copies. */
static uint32_t linear_copies(struct model *model, struct stage *stage,
                              struct parameter_copy copies[STAGE_COPIES_MAX])
{
    struct linear_state *state = stage->state;
    const float *weight, *bias;

    if (state->linear->ops->copies == NULL || stage_is_normed(stage)) return 0;
    if (stage_weights_take(model, stage, &state->weights, &weight, &bias) != RC_OK) return 0;
    return state->linear->ops->copies(state->linear, weight, bias, copies);
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
        .is_joined = stage->is_joined,
        .x_pre = pass->joined,
        .dx = pass->dx[0],
        .adds_to_dx = pass->adds[0],
        .is_first = pass->is_first,
    };

    stage_weights_gradients(model, stage, &state->weights, &back.dweight, &back.dbias);
    return state->linear->ops->backward(state->linear, &back);
}

static enum rc linear_close_backward(struct model *model, struct stage *stage,
                                     const struct stage_pass *pass)
{
    struct linear_state *state = stage->state;

    (void)pass;
    return stage_weights_close(model, stage, &state->weights);
}

const struct stage_ops stage_linear_ops = {
    .name = "linear",
    .create = linear_create,
    .destroy = linear_destroy,
    .start = linear_start,
    .prepare = linear_prepare,
    .copies = linear_copies,
    .forward = linear_forward,
    .backward = linear_backward,
    .close_backward = linear_close_backward,
};
