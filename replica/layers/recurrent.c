/*
 * Recurrent layers: `rnn:N`, `gru:N`, `lstm:N`, with `truncate=K` for truncated back-propagation
 * through time. Every sequence begins with a zero state. A stepwise model keeps the state from pass
 * to pass, and computes it here, as the kernels begin anew with each call.
 */
#include "replica/model/stage.h"

#include "base/check.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

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

static enum rc check_sequence(const struct stage *stage, struct fault *why)
{
    if (stage_needs_sequence(stage, why) != RC_OK) return RC_SHAPE;
    if (stage->layer.count <= LAYER_WIDTH_MAX / 4) return RC_OK;
    return stage_fault(stage, why, "is wider than %d values", LAYER_WIDTH_MAX / 4);
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

    rc = check_sequence(stage, why);
    if (rc != RC_OK) return rc;
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

/* --- step by step -------------------------------------------------------------------------------
 */

struct recurrent_steps {
    float *state;          /* hidden values, then an LSTM's cells */
    float *inputs, *inner; /* [slice][gates], [gates]: products with the input, with the state */
};

static enum rc steps_create(struct model *model, struct stage *stage, struct fault *why)
{
    const struct recurrent_options options = {.kind = (enum recurrent_kind)stage->layer.variant,
                                              .in = stage->in.image.channels,
                                              .hidden = stage->layer.count};
    const size_t gates = (size_t)recurrent_gates(options.kind) * options.hidden;
    struct recurrent_steps *steps;
    enum rc rc = check_sequence(stage, why);

    if (rc != RC_OK) return rc;
    stage->out.image.channels = options.hidden;
    stage->slice = stage_slice(model, stage->out);
    stage->flops = 2 * gates * (options.in + options.hidden);
    rc = add_tensors(model, stage, &options, why);
    if (rc != RC_OK) return rc;
    if (!stage_backend(model)->is_host) return RC_UNSUPPORTED;
    stage->state = steps = mem_alloc(sizeof(*steps));
    if (steps == NULL) return RC_NOMEM;
    steps->state = mem_array(2 * (size_t)options.hidden, sizeof(float));
    steps->inputs = mem_array(stage->slice * gates, sizeof(float));
    steps->inner = mem_array(gates, sizeof(float));
    return steps->state != NULL && steps->inputs != NULL && steps->inner != NULL ? RC_OK : RC_NOMEM;
}

static void steps_destroy(struct model *model, struct stage *stage)
{
    struct recurrent_steps *steps = stage->state;

    (void)model;
    if (steps == NULL) return;
    mem_free(steps->state);
    mem_free(steps->inputs);
    mem_free(steps->inner);
    mem_free(steps);
}

/* c[rows][gates] = a[rows][inner] W^T. */
static enum rc multiply(struct backend *backend, const float *a, size_t rows, size_t inner,
                        const float *weight, size_t gates, float *c)
{
    const struct gemm gemm = {.is_b_transposed = true,
                              .rows = rows,
                              .columns = gates,
                              .inner = inner,
                              .alpha = 1.0F,
                              .a = a,
                              .a_stride = inner,
                              .b = weight,
                              .b_stride = inner,
                              .c = c,
                              .c_stride = gates};

    return backend->ops->gemm(backend, &gemm);
}

static float sigmoid(float x)
{
    return 1.0F / (1.0F + expf(-x));
}

/* The next state from both products, with their biases; `n` hidden values. */
static void advance(enum recurrent_kind kind, size_t n, const float *x, const float *h,
                    float *state)
{
    for (size_t i = 0; i < n; i++) {
        if (kind == RECURRENT_RNN) {
            state[i] = tanhf(x[i] + h[i]);
        } else if (kind == RECURRENT_GRU) {
            float reset = sigmoid(x[i] + h[i]), keep = sigmoid(x[n + i] + h[n + i]);
            float candidate = tanhf(x[2 * n + i] + reset * h[2 * n + i]);
            state[i] = (1.0F - keep) * candidate + keep * state[i];
        } else {
            float in = sigmoid(x[i] + h[i]), forget = sigmoid(x[n + i] + h[n + i]);
            float cell = tanhf(x[2 * n + i] + h[2 * n + i]);
            state[n + i] = forget * state[n + i] + in * cell;
            state[i] = sigmoid(x[3 * n + i] + h[3 * n + i]) * tanhf(state[n + i]);
        }
    }
}

static enum rc steps_forward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct recurrent_steps *steps = stage->state;
    struct backend *backend = stage_backend(model);
    const enum recurrent_kind kind = (enum recurrent_kind)stage->layer.variant;
    const size_t n = stage->layer.count, gates = recurrent_gates(kind) * n;
    const float *bias_input = stage_values(model, stage, TENSOR_BIAS_INPUT);
    const float *bias_hidden = stage_values(model, stage, TENSOR_BIAS_HIDDEN);
    enum rc rc = multiply(backend, pass->x[0], pass->samples, stage->in.image.channels,
                          stage_values(model, stage, TENSOR_INPUT), gates, steps->inputs);

    if (stage_position(model, pass) == 0) memset(steps->state, 0, 2 * n * sizeof(float));
    for (uint32_t s = 0; rc == RC_OK && s < pass->samples; s++) {
        float *x = steps->inputs + s * gates;
        rc = multiply(backend, steps->state, 1, n, stage_values(model, stage, TENSOR_HIDDEN), gates,
                      steps->inner);
        for (size_t i = 0; i < gates; i++) {
            x[i] += bias_input[i];
            steps->inner[i] += bias_hidden[i];
        }
        advance(kind, n, x, steps->inner, steps->state);
        memcpy(pass->y + s * n, steps->state, n * sizeof(float));
    }
    return rc;
}

const struct stage_ops stage_recurrent_steps_ops = {
    .name = "recurrent steps",
    .create = steps_create,
    .destroy = steps_destroy,
    .forward = steps_forward,
};
