/*
 * What works value by value or only moves values: activations that no other stage took, dropout,
 * sums and concatenations of branches, images as rows, the last step of a sequence.
 */
#include "replica/model/stage.h"

#include "base/check.h"

static enum rc activation_create(struct model *model, struct stage *stage, struct fault *why)
{
    bool needs_input = activation_needs_input(stage->activation.kind);

    (void)why;
    stage->slice = stage_slice(model, stage->in);
    stage->keeps_input = needs_input;
    stage->keeps_output = !needs_input;
    stage->is_in_place = !needs_input;
    stage->is_in_place_back = true;
    return RC_OK;
}

static enum rc activation_forward(struct model *model, struct stage *stage,
                                  const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);

    return backend->ops->activation_forward(backend, stage->activation, pass->x[0], pass->y,
                                            pass->samples * shape_values(stage->in));
}

/* The gradient in dy to the input: it may lie there already. */
static enum rc pass_on(struct model *model, const struct stage *stage,
                       const struct stage_pass *pass, uint32_t i)
{
    struct backend *backend = stage_backend(model);
    size_t count = pass->samples * shape_values(stage->out);
    struct copy_rows copy = {1, count, count, count, pass->adds[i]};

    if (pass->dx[i] == NULL || pass->dx[i] == pass->dy) return RC_OK;
    return backend->ops->copy_rows(backend, &copy, pass->dy, pass->dx[i]);
}

static enum rc activation_backward(struct model *model, struct stage *stage,
                                   const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    bool needs_input = activation_needs_input(stage->activation.kind);
    enum rc rc;

    if (pass->dx[0] == NULL) return RC_OK;
    rc = backend->ops->activation_backward(backend, stage->activation,
                                           needs_input ? pass->x[0] : NULL, pass->y, pass->dy,
                                           pass->dy, pass->samples * shape_values(stage->in));
    return rc == RC_OK ? pass_on(model, stage, pass, 0) : rc;
}

const struct stage_ops stage_activation_ops = {
    .name = "activation",
    .create = activation_create,
    .forward = activation_forward,
    .backward = activation_backward,
};

static enum rc dropout_create(struct model *model, struct stage *stage, struct fault *why)
{
    (void)why;
    stage->slice = stage_slice(model, stage->in);
    stage->is_in_place = true;
    stage->is_in_place_back = true;
    return RC_OK;
}

/* Each layer draws from a stream of its own, the same on every backend; images come in the plain
 * layout (model/build.c), so that a value draws by its place in the image. */
static struct dropout dropout_of(const struct model *model, const struct stage *stage,
                                 const struct stage_pass *pass)
{
    return (struct dropout){
        .key = stage_stream(model) + stage->number,
        .pass = model_device_passes(model) == NULL ? stage_passes(model) : 0,
        .passes = model_device_passes(model),
        .first = ((uint64_t)pass->batch_first + pass->first) * shape_values(stage->in),
        .rate = (float)stage->layer.real,
    };
}

static enum rc dropout_forward(struct model *model, struct stage *stage,
                               const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct dropout dropout = dropout_of(model, stage, pass);
    size_t count = pass->samples * shape_values(stage->in);
    struct copy_rows copy = {1, count, count, count, false};

    if (pass->is_training) {
        return backend->ops->dropout(backend, &dropout, pass->x[0], pass->y, count);
    }
    if (pass->y == pass->x[0]) return RC_OK;
    return backend->ops->copy_rows(backend, &copy, pass->x[0], pass->y);
}

static enum rc dropout_backward(struct model *model, struct stage *stage,
                                const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct dropout dropout = dropout_of(model, stage, pass);
    enum rc rc;

    if (pass->dx[0] == NULL) return RC_OK;
    rc = backend->ops->dropout(backend, &dropout, pass->dy, pass->dy,
                               pass->samples * shape_values(stage->in));
    return rc == RC_OK ? pass_on(model, stage, pass, 0) : rc;
}

const struct stage_ops stage_dropout_ops = {
    .name = "dropout",
    .create = dropout_create,
    .forward = dropout_forward,
    .backward = dropout_backward,
};

/* What would make the branches of a block end in one shape. */
static enum rc sum_fault(const struct stage *stage, struct shape other, struct fault *why)
{
    char one[STAGE_SHAPE_BYTES], two[STAGE_SHAPE_BYTES];
    struct image_shape a = stage->in.image, b = other.image;
    uint32_t stride = (b.height + a.height - 1) / a.height;

    stage_shape_text(stage->in, one);
    stage_shape_text(other, two);
    if (stage->in.steps > 0 || other.steps > 0 || stage->in.is_vector || other.is_vector ||
        b.height < a.height || (b.height - 1) / stride + 1 != a.height ||
        (b.width - 1) / stride + 1 != a.width) {
        return stage_fault(stage, why,
                           "cannot add %s and %s; let all branches end in one shape (an empty "
                           "branch ends in the block's input)",
                           one, two);
    }
    return stage_fault(stage, why,
                       "cannot add %s and %s; end the other branch with '%s:%u,stride=%u'", one,
                       two, b.channels > a.channels ? "conv1x1" : "shortcut", a.channels, stride);
}

static enum rc sum_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct shape other = stage_input_shape(model, stage, 1);

    if (other.image.channels != stage->in.image.channels ||
        other.image.height != stage->in.image.height ||
        other.image.width != stage->in.image.width || other.steps != stage->in.steps) {
        return sum_fault(stage, other, why);
    }
    CHECK(other.image.block == stage->in.image.block);
    stage->slice = stage_slice(model, stage->in);
    stage->is_in_place = true;
    stage->is_in_place_back = true;
    stage->keeps_output = stage->activation.kind == ACTIVATION_RELU;
    return RC_OK;
}

static enum rc sum_forward(struct model *model, struct stage *stage, const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);

    if (stage->is_left) return RC_OK;
    return backend->ops->add(backend, pass->x[0], pass->x[1],
                             stage->activation.kind == ACTIVATION_RELU, pass->y,
                             pass->samples * shape_values(stage->in));
}

static enum rc sum_backward(struct model *model, struct stage *stage, const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    enum rc rc = RC_OK;

    if (stage->activation.kind == ACTIVATION_RELU) {
        rc = backend->ops->relu_backward(backend, pass->y, pass->dy,
                                         pass->samples * shape_values(stage->in));
    }
    if (rc == RC_OK) rc = pass_on(model, stage, pass, 0);
    return rc == RC_OK ? pass_on(model, stage, pass, 1) : rc;
}

const struct stage_ops stage_sum_ops = {
    .name = "sum",
    .create = sum_create,
    .forward = sum_forward,
    .backward = sum_backward,
};

static enum rc concat_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct image_shape *out = &stage->out.image;
    uint64_t channels = 0;

    for (uint32_t i = 0; i < stage->inputs_count; i++) {
        struct shape x = stage_input_shape(model, stage, i);
        if (x.image.height != out->height || x.image.width != out->width ||
            x.steps != stage->in.steps) {
            char one[STAGE_SHAPE_BYTES], two[STAGE_SHAPE_BYTES];
            return stage_fault(stage, why,
                               "cannot join %s and %s: only their channels or values may differ",
                               stage_shape_text(stage->in, one), stage_shape_text(x, two));
        }
        CHECK(x.image.block == stage->in.image.block);
        channels += x.image.channels;
    }
    if (channels > LAYER_WIDTH_MAX) {
        return stage_fault(stage, why, "has more than %d channels", LAYER_WIDTH_MAX);
    }
    out->channels = (uint32_t)channels;
    stage->slice = stage_slice(model, stage->in);
    return RC_OK;
}

static enum rc concat_forward(struct model *model, struct stage *stage,
                              const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    size_t stride = image_values(stage->out.image), at = 0;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < stage->inputs_count; i++) {
        size_t count = image_values(stage_input_shape(model, stage, i).image);
        struct copy_rows copy = {pass->samples * shape_rows(stage->in), count, count, stride,
                                 false};
        rc = backend->ops->copy_rows(backend, &copy, pass->x[i], backend_at(backend, pass->y, at));
        at += count;
    }
    return rc;
}

static enum rc concat_backward(struct model *model, struct stage *stage,
                               const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    size_t stride = image_values(stage->out.image), at = 0;
    enum rc rc = RC_OK;

    for (uint32_t i = 0; rc == RC_OK && i < stage->inputs_count; i++) {
        size_t count = image_values(stage_input_shape(model, stage, i).image);
        struct copy_rows copy = {pass->samples * shape_rows(stage->in), count, stride, count,
                                 pass->adds[i]};
        if (pass->dx[i] != NULL) {
            rc = backend->ops->copy_rows(backend, &copy, backend_at(backend, pass->dy, at),
                                         pass->dx[i]);
        }
        at += count;
    }
    return rc;
}

const struct stage_ops stage_concat_ops = {
    .name = "concat",
    .create = concat_create,
    .forward = concat_forward,
    .backward = concat_backward,
};

/* Images, channels last by now, read as a sequence of their rows. */
static enum rc rows_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct image_shape in = stage->in.image;
    enum rc rc = stage_needs_image(stage, why);

    if (rc != RC_OK) return rc;
    CHECK(in.block == in.channels);
    if ((uint64_t)in.width * in.channels > LAYER_WIDTH_MAX) {
        return stage_fault(stage, why, "makes rows of more than %d values; use pooling first",
                           LAYER_WIDTH_MAX);
    }
    stage->out = (struct shape){{in.width * in.channels, 1, 1, 1}, in.height, true};
    stage->slice = stage_slice(model, stage->in);
    stage->is_identity = true;
    stage->is_in_place_back = true;
    return RC_OK;
}

static enum rc rows_forward(struct model *model, struct stage *stage, const struct stage_pass *pass)
{
    (void)model;
    (void)stage;
    (void)pass;
    return RC_OK;
}

static enum rc rows_backward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    return pass_on(model, stage, pass, 0);
}

const struct stage_ops stage_rows_ops = {
    .name = "rows",
    .create = rows_create,
    .forward = rows_forward,
    .backward = rows_backward,
};

static enum rc last_create(struct model *model, struct stage *stage, struct fault *why)
{
    stage->out.steps = 0;
    stage->slice = stage_slice(model, stage->in);
    if (stage_context(model) > 0) {
        return stage_fault(stage, why, "gives one answer a sequence, and no step has one");
    }
    return stage_needs_sequence(stage, why);
}

static enum rc last_forward(struct model *model, struct stage *stage, const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    size_t width = stage->in.image.channels;
    struct copy_rows copy = {pass->samples, width, width * stage->in.steps, width, false};

    return backend->ops->copy_rows(
        backend, &copy, backend_at(backend, pass->x[0], width * (stage->in.steps - 1)), pass->y);
}

static enum rc last_backward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    size_t width = stage->in.image.channels, values = shape_values(stage->in);
    struct copy_rows copy = {pass->samples, width, width, values, true};
    enum rc rc = RC_OK;

    if (pass->dx[0] == NULL) return RC_OK;
    if (!pass->adds[0]) {
        rc =
            backend->ops->zero(backend, pass->dx[0], pass->samples * values * backend->value_bytes);
    }
    if (rc != RC_OK) return rc;
    return backend->ops->copy_rows(backend, &copy, pass->dy,
                                   backend_at(backend, pass->dx[0], width * (stage->in.steps - 1)));
}

const struct stage_ops stage_last_ops = {
    .name = "last",
    .create = last_create,
    .forward = last_forward,
    .backward = last_backward,
};
