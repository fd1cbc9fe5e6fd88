/*
 * Layers for kernels_device.c, forward and backward, in the shapes of a step of gpt2-small
 * (16 sequences of 1,024), of resnet18 (256 images of 32 x 32) and of lstm (32 sequences of 64).
 * Runs on the calling thread.
 */
#include "peer/bench/ground.h"

#include "base/check.h"

#include <stdio.h>

/* --- dense layers: rows, in, out, with gelu-tanh (1) or without --------------------------------*/

static enum rc begin_linear(struct ground *g, const uint32_t *n)
{
    bool has_gelu = n[3] == 1;
    const struct linear_options options = {
        .rows_max = ground_less(g, n[0]),
        .in = n[1],
        .out = n[2],
        .with_bias = true,
        .activation = {.kind = has_gelu ? ACTIVATION_GELU_TANH : ACTIVATION_NONE},
        .with_gradients = true,
        .with_input_gradient = true,
    };
    enum rc rc = g->backend->ops->linear_create(g->backend, &options, &g->linear);

    if (rc != RC_OK) return rc;
    g->n = options.rows_max;
    g->x = ground_activations(g, g->n * n[1]);
    g->dx = ground_activations(g, g->n * n[1]);
    g->y = ground_activations(g, g->n * n[2]);
    g->dy = ground_activations(g, g->n * n[2]);
    if (has_gelu) g->pre = ground_activations(g, g->n * n[2]);
    g->weight = ground_values(g, (size_t)n[1] * n[2]);
    g->dweight = ground_values(g, (size_t)n[1] * n[2]);
    g->bias = ground_values(g, n[2]);
    g->dbias = ground_values(g, n[2]);
    g->work = 2e-9 * (double)g->n * n[1] * n[2];
    g->by = g->linear->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%zux%u->%u%s", g->n, n[1], n[2], has_gelu ? " gelu" : "");
    if (g->is_short) return RC_NOMEM;
    return g->linear->ops->prepare(g->linear, g->weight, g->bias);
}

static enum rc run_linear_forward(struct ground *g)
{
    return g->linear->ops->forward(g->linear, g->n, g->x, g->pre, g->y);
}

static enum rc begin_linear_backward(struct ground *g, const uint32_t *n)
{
    enum rc rc = begin_linear(g, n);

    g->work *= 2.0;
    return rc;
}

static enum rc run_linear_backward(struct ground *g)
{
    const struct linear_backward pass = {
        .rows = g->n,
        .x = g->x,
        .pre = g->pre,
        .y = g->y,
        .dy = g->dy,
        .dx = g->dx,
        .is_first = true,
        .dweight = g->dweight,
        .dbias = g->dbias,
    };

    return g->linear->ops->backward(g->linear, &pass);
}

/* --- convolutions, 3x3: in, out, side, stride; 256 images --------------------------------------*/

static enum rc begin_conv(struct ground *g, const uint32_t *n)
{
    struct conv_options options = {
        .in = {n[0], n[2], n[2], n[0]}, /* channels last */
        .out_channels = n[1],
        .kernel_height = 3,
        .kernel_width = 3,
        .padding_height = 1,
        .padding_width = 1,
        .stride = n[3],
        .dilation = 1,
        .groups = 1,
        .images = ground_less(g, 256),
        .with_gradients = true,
        .with_input_gradient = true,
    };
    enum rc rc = g->backend->ops->conv_create(g->backend, &options, &g->conv);

    if (rc != RC_OK) return rc;
    g->x = ground_activations(g, options.images * image_values(options.in));
    g->y = ground_activations(g, options.images * image_values(g->conv->out));
    g->weight = ground_values(g, conv_weight_values(&options));
    g->dweight = ground_values(g, conv_weight_values(&options));
    g->work = 2e-9 * options.images * (double)image_values(g->conv->out) *
              (double)conv_filter_values(&options);
    g->by = g->conv->ops->name;
    snprintf(g->shape, sizeof(g->shape), "3x3%s %u->%u %ux%u n%u", n[3] == 2 ? "/2" : "", n[0],
             n[1], n[2], n[2], options.images);
    if (g->is_short) return RC_NOMEM;
    return g->conv->ops->prepare(g->conv, g->weight, NULL);
}

/* --- attention: samples, steps, width, heads ---------------------------------------------------*/

static enum rc begin_attention(struct ground *g, const uint32_t *n)
{
    size_t rows;

    g->attention = (struct attention){
        .samples = ground_less(g, n[0]),
        .steps = ground_less(g, n[1]),
        .width = n[2],
        .heads = n[3],
        .is_causal = true,
    };
    rows = (size_t)g->attention.samples * g->attention.steps;
    g->x = ground_activations(g, rows * 3 * n[2]);
    g->dx = ground_activations(g, rows * 3 * n[2]);
    g->y = ground_activations(g, rows * n[2]);
    g->dy = ground_activations(g, rows * n[2]);
    g->statistics = ground_values(g, attention_statistics(&g->attention));
    g->work =
        1e-9 * 2.0 * (double)rows * g->attention.steps * n[2]; /* two products, half of each */
    g->by = g->backend->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%ux%ux%u/%u causal", g->attention.samples,
             g->attention.steps, n[2], n[3]);
    if (g->is_short) return RC_NOMEM;
    return g->backend->ops->attention_reserve(g->backend, &g->attention);
}

static enum rc run_attention_forward(struct ground *g)
{
    return g->backend->ops->attention_forward(g->backend, &g->attention, g->x, g->y, g->statistics);
}

static enum rc begin_attention_backward(struct ground *g, const uint32_t *n)
{
    enum rc rc = begin_attention(g, n);

    g->work *= 2.5; /* five products */
    return rc == RC_OK ? run_attention_forward(g) : rc;
}

static enum rc run_attention_backward(struct ground *g)
{
    const struct attention_backward pass = {g->x, g->y, g->dy, g->statistics, g->dx};

    return g->backend->ops->attention_backward(g->backend, &g->attention, &pass);
}

/* --- normalisation: rows, columns; images, channels, side --------------------------------------*/

static enum rc begin_layer_norm(struct ground *g, const uint32_t *n)
{
    size_t count;

    g->layer_norm = (struct layer_norm){ground_less(g, n[0]), n[1], 1e-5F};
    count = g->layer_norm.rows * n[1];
    g->x = ground_activations(g, count);
    g->y = ground_activations(g, count);
    g->dx = ground_activations(g, count);
    g->statistics = ground_values(g, 2 * g->layer_norm.rows);
    g->weight = ground_values(g, 2 * (size_t)n[1]);
    g->dweight = ground_values(g, 2 * (size_t)n[1]);
    g->work = ground_giga(g, 2.0 * (double)count);
    g->by = g->backend->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%zux%u", g->layer_norm.rows, n[1]);
    return g->is_short ? RC_NOMEM : RC_OK;
}

static enum rc run_layer_norm_forward(struct ground *g)
{
    return g->backend->ops->layer_norm_forward(g->backend, &g->layer_norm, g->x, g->weight,
                                               g->weight + g->layer_norm.columns, g->y,
                                               g->statistics, g->statistics + g->layer_norm.rows);
}

static enum rc begin_layer_norm_backward(struct ground *g, const uint32_t *n)
{
    enum rc rc = begin_layer_norm(g, n);

    g->work *= 1.5;
    return rc == RC_OK ? run_layer_norm_forward(g) : rc;
}

static enum rc run_layer_norm_backward(struct ground *g)
{
    const struct norm_backward pass = {
        .x = g->x,
        .mean = g->statistics,
        .rstd = g->statistics + g->layer_norm.rows,
        .gamma = g->weight,
        .dy = g->y,
        .dx = g->dx,
        .is_first = true,
        .dgamma = g->dweight,
        .dbeta = g->dweight + g->layer_norm.columns,
    };

    return g->backend->ops->layer_norm_backward(g->backend, &g->layer_norm, &pass);
}

static enum rc begin_batch_norm(struct ground *g, const uint32_t *n)
{
    size_t count;

    g->batch_norm = (struct batch_norm){
        .shape = {n[1], n[2], n[2], n[1]}, .epsilon = 1e-5F, .momentum = 0.1F, .with_relu = true};
    g->n = ground_less(g, n[0]);
    count = g->n * image_values(g->batch_norm.shape);
    g->x = ground_activations(g, count);
    g->y = ground_activations(g, count);
    g->dy = ground_activations(g, count);
    g->dx = ground_activations(g, count);
    g->statistics = ground_values(g, 2 * (size_t)n[1]);
    g->weight = ground_values(g, 2 * (size_t)n[1]);
    g->dweight = ground_values(g, 2 * (size_t)n[1]);
    g->sums = ground_block(g, 2 * (size_t)n[1] * sizeof(double));
    g->work = ground_giga(g, 3.0 * (double)count); /* read, read again, write */
    g->by = g->backend->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%ux%ux%u n%zu relu", n[1], n[2], n[2], g->n);
    return g->is_short ? RC_NOMEM : RC_OK;
}

static enum rc run_batch_norm_forward(struct ground *g)
{
    const struct backend_ops *ops = g->backend->ops;
    const struct batch_norm *norm = &g->batch_norm;
    uint32_t channels = norm->shape.channels, images = (uint32_t)g->n;
    const struct batch_norm_close close = {
        .count = g->n * norm->shape.height * norm->shape.width,
        .sums = g->sums,
        .mean = g->statistics,
        .rstd = g->statistics + channels,
    };
    const struct channel_affine affine = {close.mean, close.rstd, g->weight, g->weight + channels};
    enum rc rc = ops->batch_norm_collect(g->backend, norm, images, g->x, g->sums);

    if (rc == RC_OK) rc = ops->batch_norm_close(g->backend, norm, &close);
    if (rc == RC_OK) rc = ops->batch_norm_apply(g->backend, norm, images, g->x, &affine, g->y);
    return rc;
}

static enum rc begin_batch_norm_backward(struct ground *g, const uint32_t *n)
{
    enum rc rc = begin_batch_norm(g, n);

    g->work *= 2.0; /* x, y and dy, then x and dy, and dx */
    return rc == RC_OK ? run_batch_norm_forward(g) : rc;
}

static enum rc run_batch_norm_backward(struct ground *g)
{
    const struct backend_ops *ops = g->backend->ops;
    const struct batch_norm *norm = &g->batch_norm;
    uint32_t channels = norm->shape.channels, images = (uint32_t)g->n;
    const struct batch_norm_backward pass = {
        .x = g->x,
        .y = g->y,
        .dy = g->dy,
        .dx = g->dx,
        .mean = g->statistics,
        .rstd = g->statistics + channels,
        .gamma = g->weight,
        .sums = g->sums,
        .count = g->n * norm->shape.height * norm->shape.width,
    };
    enum rc rc = ops->zero(g->backend, g->sums, 2 * channels * sizeof(double));

    if (rc == RC_OK) rc = ops->batch_norm_backward_collect(g->backend, norm, images, &pass);
    if (rc == RC_OK) {
        rc = ops->batch_norm_backward_close(g->backend, norm, g->sums, true, g->dweight,
                                            g->dweight + channels);
    }
    if (rc == RC_OK) rc = ops->batch_norm_backward_apply(g->backend, norm, images, &pass);
    return rc == RC_OK ? ops->zero(g->backend, g->sums, 2 * channels * sizeof(double)) : rc;
}

/* --- recurrent layers: samples, steps, width; lstm ---------------------------------------------*/

static enum rc begin_lstm(struct ground *g, const uint32_t *n)
{
    const struct recurrent_options options = {
        .kind = RECURRENT_LSTM,
        .in = n[2],
        .hidden = n[2],
        .steps = n[1],
        .samples_max = ground_less(g, n[0]),
        .with_gradients = true,
        .with_input_gradient = true,
    };
    size_t matrix = 4 * (size_t)n[2] * n[2], rows;
    struct recurrent_weights weights;
    enum rc rc = g->backend->ops->recurrent_create(g->backend, &options, &g->recurrent);

    if (rc != RC_OK) return rc;
    g->n = options.samples_max;
    rows = g->n * n[1];
    g->x = ground_activations(g, rows * n[2]);
    g->y = ground_activations(g, rows * n[2]);
    g->dy = ground_activations(g, rows * n[2]);
    g->dx = ground_activations(g, rows * n[2]);
    g->weight = ground_values(g, 2 * matrix);
    g->dweight = ground_values(g, 2 * matrix);
    g->bias = ground_values(g, 8 * (size_t)n[2]);
    g->dbias = ground_values(g, 8 * (size_t)n[2]);
    g->statistics = ground_values(g, g->n * g->recurrent->saved_values + 1);
    g->work = 2e-9 * (double)rows * 2.0 * (double)matrix;
    g->by = g->recurrent->ops->name;
    snprintf(g->shape, sizeof(g->shape), "%zux%ux%u", g->n, n[1], n[2]);
    if (g->is_short) return RC_NOMEM;
    weights = (struct recurrent_weights){g->weight, g->weight + matrix, g->bias,
                                         g->bias + 4 * (size_t)n[2]};
    return g->recurrent->ops->prepare(g->recurrent, &weights);
}

static enum rc run_lstm_forward(struct ground *g)
{
    return g->recurrent->ops->forward(g->recurrent, (uint32_t)g->n, g->x, g->y, g->statistics);
}

static enum rc begin_lstm_both(struct ground *g, const uint32_t *n)
{
    enum rc rc = begin_lstm(g, n);

    g->work *= 3.0;
    g->layer_norm.columns = n[2]; /* the hidden width, for the pass */
    return rc;
}

/* A way back uses up what the way forward saved. */
static enum rc run_lstm_both(struct ground *g)
{
    size_t hidden = g->layer_norm.columns, matrix = 4 * hidden * hidden;
    const struct recurrent_backward pass = {
        .samples = (uint32_t)g->n,
        .x = g->x,
        .y = g->y,
        .saved = g->statistics,
        .dy = g->dy,
        .dx = g->dx,
        .is_first = true,
        .dinput = g->dweight,
        .dhidden = g->dweight + matrix,
        .dbias_input = g->dbias,
        .dbias_hidden = g->dbias + 4 * hidden,
    };
    enum rc rc = run_lstm_forward(g);

    return rc == RC_OK ? g->recurrent->ops->backward(g->recurrent, &pass) : rc;
}

static const struct device_bench benches[] = {
    {"linear forward", "GFLOP", {16384, 768, 3072, 1}, begin_linear, run_linear_forward},
    {"linear forward", "GFLOP", {16384, 3072, 768, 0}, begin_linear, run_linear_forward},
    {"linear forward", "GFLOP", {64, 784, 256, 0}, begin_linear, run_linear_forward},
    {"linear backward", "GFLOP", {16384, 768, 3072, 1}, begin_linear_backward, run_linear_backward},
    {"linear backward", "GFLOP", {16384, 3072, 768, 0}, begin_linear_backward, run_linear_backward},
    {"conv forward", "GFLOP", {64, 64, 32, 1}, begin_conv, ground_conv_forward},
    {"conv data", "GFLOP", {64, 64, 32, 1}, begin_conv, ground_conv_data},
    {"conv weights", "GFLOP", {64, 64, 32, 1}, begin_conv, ground_conv_weights},
    {"conv forward", "GFLOP", {128, 256, 16, 2}, begin_conv, ground_conv_forward},
    {"conv data", "GFLOP", {128, 256, 16, 2}, begin_conv, ground_conv_data},
    {"conv weights", "GFLOP", {128, 256, 16, 2}, begin_conv, ground_conv_weights},
    {"conv forward", "GFLOP", {512, 512, 4, 1}, begin_conv, ground_conv_forward},
    {"conv data", "GFLOP", {512, 512, 4, 1}, begin_conv, ground_conv_data},
    {"conv weights", "GFLOP", {512, 512, 4, 1}, begin_conv, ground_conv_weights},
    {"attention forward", "GFLOP", {16, 1024, 768, 12}, begin_attention, run_attention_forward},
    {"attention backward",
     "GFLOP",
     {16, 1024, 768, 12},
     begin_attention_backward,
     run_attention_backward},
    {"layer norm forward", "GB", {32768, 768}, begin_layer_norm, run_layer_norm_forward},
    {"layer norm backward", "GB", {32768, 768}, begin_layer_norm_backward, run_layer_norm_backward},
    {"batch norm forward", "GB", {256, 64, 32}, begin_batch_norm, run_batch_norm_forward},
    {"batch norm backward",
     "GB",
     {256, 64, 32},
     begin_batch_norm_backward,
     run_batch_norm_backward},
    {"lstm forward", "GFLOP", {32, 64, 256}, begin_lstm, run_lstm_forward},
    {"lstm forward and backward", "GFLOP", {32, 64, 256}, begin_lstm_both, run_lstm_both},
};

const struct device_bench *bench_layers(size_t *count)
{
    *count = ARRAY_COUNT(benches);
    return benches;
}
