/*
 * Normalisation. Batch normalisation is two stages, because its statistics need all slices before
 * the first value can be written: `collect` sits in the segment of whoever makes the values, adds
 * up as they pass by, and is the last of that segment; `apply` begins the next. On the way back
 * `apply` collects what the gradient needs, and `collect` turns it into the input's. `bn:32` keeps
 * statistics of each 32 samples of the batch (ghost batches: Hoffer, Hubara, Soudry 2017,
 * arXiv:1705.08741).
 */
#include "replica/model/stage.h"

#include "base/check.h"
#include "base/mem.h"

#include <string.h>

static const float epsilon = 1e-5F, momentum = 0.1F;

enum { TENSOR_GAMMA, TENSOR_BETA, TENSOR_MEAN, TENSOR_VARIANCE };

/* Statistics of one ghost batch after the other; all on the backend. */
struct batch_state {
    struct batch_norm norm;
    uint32_t ghost;           /* samples of a ghost batch */
    size_t rows;              /* images the kernel sees per sample */
    double *sums, *back_sums; /* [ghosts][2][channels] */
    float *mean, *rstd;       /* [ghosts][channels] */
    float *running_rstd;      /* [channels], in evaluation */
    bool is_training;
    /* The one ghost batch is the whole batch, of which other lanes of a team may have parts: sums
     * and, behind them, the count are added up with theirs. */
    bool meets;
    uint64_t count; /* values per channel behind the sums then */
};

static uint32_t ghosts(const struct model *model, const struct batch_state *state)
{
    return (stage_batch_max(model) - 1) / state->ghost + 1;
}

static enum rc add_affine(struct model *model, struct stage *stage, struct fault *why)
{
    const uint32_t shape[] = {stage->in.image.channels};
    struct init one = {INIT_CONSTANT, 1.0F}, zero = {INIT_CONSTANT, 0.0F};
    enum rc rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight", shape, 1, one, why);

    if (rc != RC_OK) return rc;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "bias", shape, 1, zero, why);
}

static enum rc take_statistics(struct model *model, struct batch_state *state)
{
    struct backend *backend = stage_backend(model);
    size_t channels = state->norm.shape.channels, count = ghosts(model, state) * channels;

    state->running_rstd = backend->ops->alloc(backend, channels * sizeof(float));
    if (state->running_rstd == NULL) return RC_NOMEM;
    if (!stage_with_gradients(model)) return RC_OK;
    state->sums = backend->ops->alloc(backend, (2 * count + 1) * sizeof(double));
    state->back_sums = backend->ops->alloc(backend, 2 * count * sizeof(double));
    state->mean = backend->ops->alloc(backend, count * sizeof(float));
    state->rstd = backend->ops->alloc(backend, count * sizeof(float));
    if (state->sums == NULL || state->back_sums == NULL || state->mean == NULL ||
        state->rstd == NULL) {
        return RC_NOMEM;
    }
    return RC_OK;
}

static enum rc collect_create(struct model *model, struct stage *stage, struct fault *why)
{
    const uint32_t shape[] = {stage->in.image.channels};
    struct init one = {INIT_CONSTANT, 1.0F}, zero = {INIT_CONSTANT, 0.0F};
    struct batch_state *state;
    enum rc rc = add_affine(model, stage, why);

    if (rc == RC_OK) {
        rc = stage_tensor(model, stage, SECTION_BUFFERS, "running_mean", shape, 1, zero, why);
    }
    if (rc == RC_OK) {
        rc = stage_tensor(model, stage, SECTION_BUFFERS, "running_variance", shape, 1, one, why);
    }
    if (rc != RC_OK) return rc;
    stage->slice = stage_slice(model, stage->in);
    stage->keeps_input = true;
    stage->is_identity = true;
    stage->is_in_place_back = true;
    stage->ends_segment = true;
    state = mem_alloc(sizeof(*state));
    if (state == NULL) return RC_NOMEM;
    stage->state = state;
    state->norm = (struct batch_norm){stage->in.image, epsilon, momentum, false};
    state->rows = shape_rows(stage->in);
    state->ghost = stage_batch_max(model);
    state->meets = stage->layer.count == 0;
    if (stage->layer.count > 0 && stage->layer.count < state->ghost) {
        state->ghost = stage->layer.count;
    }
    return take_statistics(model, state);
}

static void collect_destroy(struct model *model, struct stage *stage)
{
    struct batch_state *state = stage->state;
    struct backend *backend = stage_backend(model);

    if (state == NULL) return;
    backend->ops->free(backend, state->sums);
    backend->ops->free(backend, state->back_sums);
    backend->ops->free(backend, state->mean);
    backend->ops->free(backend, state->rstd);
    backend->ops->free(backend, state->running_rstd);
    mem_free(state);
}

static enum rc collect_prepare(struct model *model, struct stage *stage, bool is_training)
{
    struct batch_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    size_t bytes = 2 * (size_t)ghosts(model, state) * state->norm.shape.channels * sizeof(double);
    enum rc rc;

    state->is_training = is_training;
    if (!is_training) {
        return backend->ops->batch_norm_rstd(backend, &state->norm,
                                             stage_values(model, stage, TENSOR_VARIANCE),
                                             state->running_rstd);
    }
    rc = backend->ops->zero(backend, state->sums, bytes);
    return rc == RC_OK ? backend->ops->zero(backend, state->back_sums, bytes) : rc;
}

/* The part of a slice that lies in one ghost batch. */
struct part {
    uint32_t ghost;
    uint32_t samples;
    uint32_t at; /* first sample, within the slice */
};

static struct part next_part(const struct batch_state *state, const struct stage_pass *pass,
                             uint32_t at)
{
    uint32_t sample = pass->first + at, ghost = sample / state->ghost;
    uint32_t rest = (ghost + 1) * state->ghost - sample;

    if (rest > pass->samples - at) rest = pass->samples - at;
    return (struct part){ghost, rest, at};
}

/* Samples that ghost batch `ghost` has in this pass. */
static uint64_t ghost_values(const struct batch_state *state, const struct stage_pass *pass,
                             uint32_t ghost)
{
    uint32_t begin = ghost * state->ghost, rest = pass->batch - begin;
    uint64_t samples = rest < state->ghost ? rest : state->ghost;
    struct image_shape shape = state->norm.shape;

    return samples * state->rows * shape.height * shape.width;
}

static enum rc collect_forward(struct model *model, struct stage *stage,
                               const struct stage_pass *pass)
{
    struct batch_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    size_t each = shape_values(stage->in), channels = state->norm.shape.channels;
    enum rc rc = RC_OK;

    if (!pass->is_training) return RC_OK;
    for (uint32_t at = 0; rc == RC_OK && at < pass->samples;) {
        struct part part = next_part(state, pass, at);
        rc = backend->ops->batch_norm_collect(
            backend, &state->norm, (uint32_t)(part.samples * state->rows),
            backend_at(backend, pass->x[0], at * each), state->sums + 2 * part.ghost * channels);
        at += part.samples;
    }
    return rc;
}

/* Add up with the other lanes, the count, too. */
static void meet_forward(struct model *model, struct batch_state *state, uint64_t count)
{
    double *behind = state->sums + 2 * (size_t)state->norm.shape.channels;

    *behind = (double)count;
    stage_meet(model, state->sums, 2 * (size_t)state->norm.shape.channels + 1);
    state->count = (uint64_t)*behind;
}

static void collect_attend(struct model *model, struct stage *stage, bool is_backward)
{
    struct batch_state *state = stage->state;

    if (is_backward || !state->meets) return;
    memset(state->sums, 0, 2 * (size_t)state->norm.shape.channels * sizeof(*state->sums));
    meet_forward(model, state, 0);
}

/* Share of ghost batch `ghost` of this pass in the running statistics. */
static float share_of(const struct model *model, const struct batch_state *state,
                      const struct stage_pass *pass, uint32_t ghost)
{
    uint64_t number = stage_statistics_pass(model);
    uint64_t each = (pass->batch - 1) / state->ghost + 1;

    return number == 0 ? momentum : 1.0F / (float)((number - 1) * each + ghost + 1);
}

static enum rc collect_close(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct batch_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    size_t channels = state->norm.shape.channels;
    bool is_leader = stage_is_leader(model);
    enum rc rc = RC_OK;

    if (!pass->is_training) return RC_OK;
    state->count = ghost_values(state, pass, 0);
    if (state->meets && stage_has_meeting(model)) meet_forward(model, state, state->count);
    for (uint32_t g = 0; rc == RC_OK && g * state->ghost < pass->batch; g++) {
        struct batch_norm_close close = {
            .count = state->meets ? state->count : ghost_values(state, pass, g),
            .sums = state->sums + 2 * g * channels,
            .mean = state->mean + g * channels,
            .rstd = state->rstd + g * channels,
            .running_mean = is_leader ? stage_values(model, stage, TENSOR_MEAN) : NULL,
            .running_variance = is_leader ? stage_values(model, stage, TENSOR_VARIANCE) : NULL,
        };
        struct batch_norm norm = state->norm;
        norm.momentum = share_of(model, state, pass, g);
        rc = backend->ops->batch_norm_close(backend, &norm, &close);
    }
    return rc;
}

/* The gradient of one part of a slice, to the input or only into the sums. */
static struct batch_norm_backward back_of(struct model *model, const struct stage *stage,
                                          const struct stage_pass *pass, struct part part)
{
    const struct batch_state *state = stage->state;
    const struct backend *backend = stage_backend(model);
    size_t channels = state->norm.shape.channels, at = part.at * shape_values(stage->in);

    return (struct batch_norm_backward){
        .x = backend_at(backend, pass->x[0], at),
        .dy = backend_at(backend, pass->dy, at),
        .dx = pass->dx[0] == NULL ? NULL : backend_at(backend, pass->dx[0], at),
        .adds_to_dx = pass->adds[0],
        .mean = state->mean + part.ghost * channels,
        .rstd = state->rstd + part.ghost * channels,
        .gamma = stage_values(model, stage, TENSOR_GAMMA),
        .sums = state->back_sums + 2 * part.ghost * channels,
        .count = state->meets ? state->count : ghost_values(state, pass, part.ghost),
    };
}

static enum rc collect_backward(struct model *model, struct stage *stage,
                                const struct stage_pass *pass)
{
    struct batch_state *state = stage->state;
    struct backend *backend = stage_backend(model);
    enum rc rc = RC_OK;

    if (pass->dx[0] == NULL) return RC_OK;
    for (uint32_t at = 0; rc == RC_OK && at < pass->samples;) {
        struct part part = next_part(state, pass, at);
        struct batch_norm_backward back = back_of(model, stage, pass, part);
        rc = backend->ops->batch_norm_backward_apply(backend, &state->norm,
                                                     (uint32_t)(part.samples * state->rows), &back);
        at += part.samples;
    }
    return rc;
}

const struct stage_ops stage_batch_collect_ops = {
    .name = "statistics",
    .create = collect_create,
    .destroy = collect_destroy,
    .prepare = collect_prepare,
    .forward = collect_forward,
    .close = collect_close,
    .backward = collect_backward,
    .attend = collect_attend,
};

static enum rc apply_create(struct model *model, struct stage *stage, struct fault *why)
{
    (void)why;
    stage->slice = stage_slice(model, stage->in);
    stage->keeps_input = true;
    stage->keeps_output = stage->activation.kind == ACTIVATION_RELU;
    stage->is_in_place = true; /* in evaluation: training keeps the input */
    stage->is_in_place_back = true;
    return RC_OK;
}

static enum rc apply_forward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct stage *collect = stage_partner(model, stage);
    struct batch_state *state = collect->state;
    struct batch_norm norm = state->norm;
    struct backend *backend = stage_backend(model);
    size_t each = shape_values(stage->in), channels = norm.shape.channels;
    enum rc rc = RC_OK;

    norm.with_relu = stage->activation.kind == ACTIVATION_RELU;
    for (uint32_t at = 0; rc == RC_OK && at < pass->samples;) {
        struct part part = next_part(state, pass, at);
        struct channel_affine affine = {
            .mean = stage_values(model, collect, TENSOR_MEAN),
            .rstd = state->running_rstd,
            .gamma = stage_values(model, collect, TENSOR_GAMMA),
            .beta = stage_values(model, collect, TENSOR_BETA),
        };
        if (pass->is_training) {
            affine.mean = state->mean + part.ghost * channels;
            affine.rstd = state->rstd + part.ghost * channels;
        }
        rc = backend->ops->batch_norm_apply(backend, &norm, (uint32_t)(part.samples * state->rows),
                                            backend_at(backend, pass->x[0], at * each), &affine,
                                            backend_at(backend, pass->y, at * each));
        at += part.samples;
    }
    return rc;
}

static enum rc apply_backward(struct model *model, struct stage *stage,
                              const struct stage_pass *pass)
{
    struct stage *collect = stage_partner(model, stage);
    struct batch_state *state = collect->state;
    struct batch_norm norm = state->norm;
    struct backend *backend = stage_backend(model);
    enum rc rc = RC_OK;

    CHECK(pass->dx[0] == pass->dy); /* the other half has no other reader */
    norm.with_relu = stage->activation.kind == ACTIVATION_RELU;
    for (uint32_t at = 0; rc == RC_OK && at < pass->samples;) {
        struct part part = next_part(state, pass, at);
        struct batch_norm_backward back = back_of(model, collect, pass, part);
        back.y = backend_at(backend, pass->y, at * shape_values(stage->in));
        rc = backend->ops->batch_norm_backward_collect(
            backend, &norm, (uint32_t)(part.samples * state->rows), &back);
        at += part.samples;
    }
    return rc;
}

static void apply_attend(struct model *model, struct stage *stage, bool is_backward)
{
    struct batch_state *state = stage_partner(model, stage)->state;
    size_t count = 2 * (size_t)state->norm.shape.channels;

    if (!is_backward || !state->meets) return;
    memset(state->back_sums, 0, count * sizeof(*state->back_sums));
    stage_meet(model, state->back_sums, count);
}

/* What all lanes have together is one lane's to give: the gradients of lanes are added up. */
static enum rc give_nothing(struct model *model, const struct stage *collect)
{
    struct backend *backend = stage_backend(model);
    const struct batch_state *state = collect->state;
    size_t bytes = state->norm.shape.channels * sizeof(float);
    enum rc rc = backend->ops->zero(backend, stage_gradient(model, collect, TENSOR_GAMMA), bytes);

    if (rc != RC_OK) return rc;
    return backend->ops->zero(backend, stage_gradient(model, collect, TENSOR_BETA), bytes);
}

static enum rc apply_close_backward(struct model *model, struct stage *stage,
                                    const struct stage_pass *pass)
{
    struct stage *collect = stage_partner(model, stage);
    struct batch_state *state = collect->state;
    struct backend *backend = stage_backend(model);
    enum rc rc = RC_OK;

    if (state->meets && stage_has_meeting(model)) {
        stage_meet(model, state->back_sums, 2 * (size_t)state->norm.shape.channels);
        if (!stage_is_leader(model)) return give_nothing(model, collect);
    }
    for (uint32_t g = 0; rc == RC_OK && g * state->ghost < pass->batch; g++) {
        rc = backend->ops->batch_norm_backward_close(
            backend, &state->norm, state->back_sums + 2 * g * state->norm.shape.channels,
            pass->is_first && g == 0, stage_gradient(model, collect, TENSOR_GAMMA),
            stage_gradient(model, collect, TENSOR_BETA));
    }
    return rc;
}

const struct stage_ops stage_batch_apply_ops = {
    .name = "batch norm",
    .create = apply_create,
    .forward = apply_forward,
    .backward = apply_backward,
    .close_backward = apply_close_backward,
    .attend = apply_attend,
};

static enum rc group_create(struct model *model, struct stage *stage, struct fault *why)
{
    if (stage->in.steps > 0) return stage_fault(stage, why, "needs an image; sequences take 'ln'");
    if (stage->layer.count > GROUP_NORM_GROUPS_MAX) {
        return stage_fault(stage, why, "has more than %d groups", GROUP_NORM_GROUPS_MAX);
    }
    if (stage->in.image.channels % stage->layer.count != 0) {
        return stage_fault(stage, why,
                           "cannot share %u channels between %u groups; groups must divide them",
                           stage->in.image.channels, stage->layer.count);
    }
    stage->slice = stage_slice(model, stage->in);
    stage->keeps_input = true;
    stage->is_in_place_back = true;
    stage->saved_bytes = 2 * (size_t)stage->layer.count * sizeof(float);
    stage->state =
        stage_backend(model)->ops->alloc(stage_backend(model), stage->slice * stage->saved_bytes);
    if (stage->state == NULL) return RC_NOMEM;
    return add_affine(model, stage, why);
}

/* Statistics of a slice: for the way back, or where evaluation may drop them. */
static float *statistics_of(const struct stage *stage, const struct stage_pass *pass)
{
    return pass->saved != NULL ? pass->saved : stage->state;
}

static void norm_destroy(struct model *model, struct stage *stage)
{
    stage_backend(model)->ops->free(stage_backend(model), stage->state);
}

static enum rc group_forward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct group_norm norm = {stage->in.image, stage->layer.count, epsilon};
    float *mean = statistics_of(stage, pass);

    return backend->ops->group_norm_forward(backend, &norm, pass->samples, pass->x[0],
                                            stage_values(model, stage, TENSOR_GAMMA),
                                            stage_values(model, stage, TENSOR_BETA), pass->y, mean,
                                            mean + (size_t)pass->samples * stage->layer.count);
}

static struct norm_backward norm_back_of(struct model *model, const struct stage *stage,
                                         const struct stage_pass *pass, size_t statistics)
{
    const float *mean = pass->saved;

    return (struct norm_backward){
        .x = pass->x[0],
        .mean = mean,
        .rstd = mean + statistics,
        .gamma = stage_values(model, stage, TENSOR_GAMMA),
        .dy = pass->dy,
        .dx = pass->dx[0],
        .adds_to_dx = pass->adds[0],
        .is_first = pass->is_first,
        .dgamma = stage_gradient(model, stage, TENSOR_GAMMA),
        .dbeta = stage_gradient(model, stage, TENSOR_BETA),
    };
}

static enum rc group_backward(struct model *model, struct stage *stage,
                              const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct group_norm norm = {stage->in.image, stage->layer.count, epsilon};
    struct norm_backward back =
        norm_back_of(model, stage, pass, (size_t)pass->samples * stage->layer.count);

    return backend->ops->group_norm_backward(backend, &norm, pass->samples, &back);
}

const struct stage_ops stage_group_norm_ops = {
    .name = "group norm",
    .create = group_create,
    .destroy = norm_destroy,
    .forward = group_forward,
    .backward = group_backward,
};

static enum rc layer_create(struct model *model, struct stage *stage, struct fault *why)
{
    if (!shape_is_flat(stage->in)) {
        char text[STAGE_SHAPE_BYTES];
        return stage_fault(stage, why, "needs rows or a vector, but gets %s; images take 'gn:1'",
                           stage_shape_text(stage->in, text));
    }
    stage->slice = stage_slice(model, stage->in);
    stage->keeps_input = true;
    stage->is_in_place_back = true;
    stage->saved_bytes = 2 * shape_rows(stage->in) * sizeof(float);
    stage->state =
        stage_backend(model)->ops->alloc(stage_backend(model), stage->slice * stage->saved_bytes);
    if (stage->state == NULL) return RC_NOMEM;
    return add_affine(model, stage, why);
}

static struct layer_norm layer_norm_of(const struct stage *stage, const struct stage_pass *pass)
{
    return (struct layer_norm){pass->samples * shape_rows(stage->in), stage->in.image.channels,
                               epsilon};
}

static enum rc layer_forward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct layer_norm norm = layer_norm_of(stage, pass);
    float *mean = statistics_of(stage, pass);
    const struct layer_norm_sum sum = {
        .a = pass->terms[0],
        .b = pass->terms[1],
        .x = (void *)(uintptr_t)pass->x[0],
        .gamma = stage_values(model, stage, TENSOR_GAMMA),
        .beta = stage_values(model, stage, TENSOR_BETA),
        .y = pass->y,
        .mean = mean,
        .rstd = mean + norm.rows,
    };

    if (stage->adds_up) return backend->ops->layer_norm_sum_forward(backend, &norm, &sum);
    return backend->ops->layer_norm_forward(
        backend, &norm, pass->x[0], stage_values(model, stage, TENSOR_GAMMA),
        stage_values(model, stage, TENSOR_BETA), pass->y, mean, mean + norm.rows);
}

static enum rc layer_backward(struct model *model, struct stage *stage,
                              const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct layer_norm norm = layer_norm_of(stage, pass);
    struct norm_backward back = norm_back_of(model, stage, pass, norm.rows);

    return backend->ops->layer_norm_backward(backend, &norm, &back);
}

const struct stage_ops stage_layer_norm_ops = {
    .name = "layer norm",
    .create = layer_create,
    .destroy = norm_destroy,
    .forward = layer_forward,
    .backward = layer_backward,
};
