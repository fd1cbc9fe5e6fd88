/*
 * Recurrent layers: `rnn:N`, `gru:N`, `lstm:N`, with `truncate=K` for truncated back-propagation
 * through time. Every sequence begins with a zero state.
 */
#include "replica/model/stage.h"

#include "base/check.h"

enum { TENSOR_INPUT, TENSOR_HIDDEN, TENSOR_BIAS_INPUT, TENSOR_BIAS_HIDDEN };

static enum rc add_tensors(struct model *model, struct stage *stage,
                           const struct recurrent_options *options, struct fault *why)
{
    uint32_t gates = recurrent_gates(options->kind) * options->hidden;
    const uint32_t input[] = {gates, options->in}, hidden[] = {gates, options->hidden};
    struct init init = init_fan_in(options->hidden);
    enum rc rc =
        stage_tensor(model, stage, SECTION_PARAMETERS, "weight_input", input, 2, init, why);

    if (rc == RC_OK) {
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_hidden", hidden, 2, init, why);
    }
    if (rc == RC_OK) {
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "bias_input", input, 1, init, why);
    }
    if (rc != RC_OK) return rc;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "bias_hidden", hidden, 1, init, why);
}

static enum rc recurrent_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct backend *backend = stage_backend(model);
    struct recurrent_options options = {
        .kind = (enum recurrent_kind)stage->layer.variant,
        .in = stage->in.image.channels,
        .hidden = stage->layer.count,
        .steps = stage->in.steps,
        .samples_max = stage_batch_max(model),
        .truncate = stage->layer.keys[LAYER_TRUNCATE],
        .with_gradients = stage_with_gradients(model),
        .with_input_gradient = stage_with_gradients(model) && stage->has_input_gradient,
    };
    struct recurrent *recurrent = NULL;
    enum rc rc;

    if (stage_needs_sequence(stage, why) != RC_OK) return RC_SHAPE;
    if (options.hidden > LAYER_WIDTH_MAX / 4) {
        return stage_fault(stage, why, "is wider than %d values", LAYER_WIDTH_MAX / 4);
    }
    stage->out.image.channels = options.hidden;
    stage->slice = stage_batch_max(model); /* a step of all samples is one product */
    stage->keeps_input = true;
    stage->keeps_output = true;
    stage->flops = 2 * (uint64_t)options.steps * recurrent_gates(options.kind) * options.hidden *
                   (options.in + options.hidden);
    rc = add_tensors(model, stage, &options, why);
    if (rc == RC_OK) rc = backend->ops->recurrent_create(backend, &options, &recurrent);
    if (rc != RC_OK) return rc;
    stage->state = recurrent;
    stage->saved_bytes = recurrent->saved_values * sizeof(float);
    return RC_OK;
}

static void recurrent_destroy(struct model *model, struct stage *stage)
{
    struct recurrent *recurrent = stage->state;

    (void)model;
    if (recurrent != NULL) recurrent->ops->destroy(recurrent);
}

static enum rc recurrent_prepare(struct model *model, struct stage *stage, bool is_training)
{
    struct recurrent *recurrent = stage->state;
    struct recurrent_weights weights = {
        .input = stage_values(model, stage, TENSOR_INPUT),
        .hidden = stage_values(model, stage, TENSOR_HIDDEN),
        .bias_input = stage_values(model, stage, TENSOR_BIAS_INPUT),
        .bias_hidden = stage_values(model, stage, TENSOR_BIAS_HIDDEN),
    };

    (void)is_training;
    return recurrent->ops->prepare(recurrent, &weights);
}

static enum rc recurrent_forward(struct model *model, struct stage *stage,
                                 const struct stage_pass *pass)
{
    struct recurrent *recurrent = stage->state;

    (void)model;
    return recurrent->ops->forward(recurrent, pass->samples, pass->x[0], pass->y, pass->saved);
}

static enum rc recurrent_backward(struct model *model, struct stage *stage,
                                  const struct stage_pass *pass)
{
    struct recurrent *recurrent = stage->state;
    struct recurrent_backward back = {
        .samples = pass->samples,
        .x = pass->x[0],
        .y = pass->y,
        .saved = pass->saved,
        .dy = pass->dy,
        .dx = pass->dx[0],
        .adds_to_dx = pass->adds[0],
        .is_first = pass->is_first,
        .dinput = stage_gradient(model, stage, TENSOR_INPUT),
        .dhidden = stage_gradient(model, stage, TENSOR_HIDDEN),
        .dbias_input = stage_gradient(model, stage, TENSOR_BIAS_INPUT),
        .dbias_hidden = stage_gradient(model, stage, TENSOR_BIAS_HIDDEN),
    };

    return recurrent->ops->backward(recurrent, &back);
}

const struct stage_ops stage_recurrent_ops = {
    .name = "recurrent",
    .create = recurrent_create,
    .destroy = recurrent_destroy,
    .prepare = recurrent_prepare,
    .forward = recurrent_forward,
    .backward = recurrent_backward,
};
