/*
 * Pooling by windows and over whole images, the parameter-free shortcut of residual nets, and the
 * rewriting of images from one layout to another.
 */
#include "replica/model/stage.h"

#include "base/check.h"

/* These kernels overwrite; where the gradient has to be added, they wrote to scratch. */
static enum rc give(struct model *model, const struct stage *stage, const struct stage_pass *pass,
                    enum rc rc)
{
    struct backend *backend = stage_backend(model);

    if (rc != RC_OK || !pass->adds[0]) return rc;
    return backend->ops->add(backend, pass->dx[0], pass->scratch, false, pass->dx[0],
                             pass->samples * shape_values(stage->in));
}

static float *target_of(const struct stage_pass *pass)
{
    return pass->adds[0] ? pass->scratch : pass->dx[0];
}

static struct pool_options pool_of(const struct stage *stage)
{
    bool is_max = stage->layer.kind == LAYER_MAXPOOL;

    return (struct pool_options){
        .kind = is_max ? POOL_MAX : POOL_AVERAGE,
        .in = stage->in.image,
        .out = stage->out.image,
        .size = stage->layer.height,
        .stride = layer_has(&stage->layer, LAYER_STRIDE) ? stage->layer.keys[LAYER_STRIDE]
                                                         : stage->layer.height,
        .padding = stage->layer.keys[LAYER_PAD],
        .with_relu = stage->activation.kind == ACTIVATION_RELU,
    };
}

static enum rc pool_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct pool_options options = pool_of(stage);
    struct image_shape in = stage->in.image;
    enum rc rc = stage_needs_image(stage, why);

    if (rc != RC_OK) return rc;
    if (options.padding > options.size / 2) {
        return stage_fault(stage, why, "can pad by at most half of its window: pad=%u",
                           options.size / 2);
    }
    if (in.height + 2 * options.padding < options.size ||
        in.width + 2 * options.padding < options.size) {
        return stage_fault(stage, why,
                           "does not fit an image of %ux%u; use fewer or smaller windows, or pad=N",
                           in.height, in.width);
    }
    stage->out.image.height = (in.height + 2 * options.padding - options.size) / options.stride + 1;
    stage->out.image.width = (in.width + 2 * options.padding - options.size) / options.stride + 1;
    stage->slice = stage_slice(model, stage->in);
    stage->uses_scratch = true;
    if (options.kind == POOL_MAX) {
        stage->saved_bytes = (shape_values(stage->out) + sizeof(float) - 1) / sizeof(float) *
                             sizeof(float); /* which input won */
    }
    return RC_OK;
}

static enum rc pool_forward(struct model *model, struct stage *stage, const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct pool_options options = pool_of(stage);

    return backend->ops->pool_forward(backend, &options, pass->samples, pass->x[0], pass->y,
                                      pass->saved);
}

static enum rc pool_backward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct pool_options options = pool_of(stage);

    if (pass->dx[0] == NULL) return RC_OK;
    return give(model, stage, pass,
                backend->ops->pool_backward(backend, &options, pass->samples, pass->dy, pass->saved,
                                            target_of(pass)));
}

const struct stage_ops stage_pool_ops = {
    .name = "pool",
    .create = pool_create,
    .forward = pool_forward,
    .backward = pool_backward,
};

static enum rc globalpool_create(struct model *model, struct stage *stage, struct fault *why)
{
    enum rc rc = stage_needs_image(stage, why);

    stage->out = (struct shape){{stage->in.image.channels, 1, 1, 1}, 0, true};
    stage->slice = stage_slice(model, stage->in);
    stage->uses_scratch = true;
    return rc;
}

static enum rc globalpool_forward(struct model *model, struct stage *stage,
                                  const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);

    return backend->ops->global_average_forward(backend, stage->in.image, pass->samples, pass->x[0],
                                                pass->y);
}

static enum rc globalpool_backward(struct model *model, struct stage *stage,
                                   const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);

    if (pass->dx[0] == NULL) return RC_OK;
    return give(model, stage, pass,
                backend->ops->global_average_backward(backend, stage->in.image, pass->samples,
                                                      pass->dy, target_of(pass)));
}

const struct stage_ops stage_globalpool_ops = {
    .name = "globalpool",
    .create = globalpool_create,
    .forward = globalpool_forward,
    .backward = globalpool_backward,
};

static struct subsample subsample_of(const struct stage *stage)
{
    return (struct subsample){stage->in.image, stage->out.image, stage->layer.keys[LAYER_STRIDE]};
}

static enum rc shortcut_create(struct model *model, struct stage *stage, struct fault *why)
{
    uint32_t stride = stage->layer.keys[LAYER_STRIDE];
    struct image_shape in = stage->in.image;
    enum rc rc = stage_needs_image(stage, why);

    if (rc != RC_OK) return rc;
    if (stage->layer.count < in.channels) {
        return stage_fault(stage, why, "cannot drop channels: it gets %u; use conv1x1:%u",
                           in.channels, stage->layer.count);
    }
    stage->out.image.channels = stage->layer.count;
    stage->out.image.height = (in.height - 1) / stride + 1;
    stage->out.image.width = (in.width - 1) / stride + 1;
    if (stage->layer.count % in.block != 0) stage->out.image.block = 1;
    stage->slice = stage_slice(model, stage->in);
    stage->uses_scratch = true;
    return RC_OK;
}

static enum rc shortcut_forward(struct model *model, struct stage *stage,
                                const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct subsample options = subsample_of(stage);

    return backend->ops->subsample_forward(backend, &options, pass->samples, pass->x[0], pass->y);
}

static enum rc shortcut_backward(struct model *model, struct stage *stage,
                                 const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct subsample options = subsample_of(stage);

    if (pass->dx[0] == NULL) return RC_OK;
    return give(model, stage, pass,
                backend->ops->subsample_backward(backend, &options, pass->samples, pass->dy,
                                                 target_of(pass)));
}

const struct stage_ops stage_shortcut_ops = {
    .name = "shortcut",
    .create = shortcut_create,
    .forward = shortcut_forward,
    .backward = shortcut_backward,
};

static enum rc relayout_create(struct model *model, struct stage *stage, struct fault *why)
{
    (void)why;
    CHECK(stage->in.image.channels % stage->layer.count == 0);
    stage->out.image.block = stage->layer.count; /* the builder's choice */
    stage->slice = stage_slice(model, stage->in);
    stage->uses_scratch = true;
    return RC_OK;
}

static enum rc relayout_forward(struct model *model, struct stage *stage,
                                const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);

    return backend->ops->relayout(backend, stage->in.image, stage->out.image.block, pass->samples,
                                  pass->x[0], pass->y);
}

static enum rc relayout_backward(struct model *model, struct stage *stage,
                                 const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);

    if (pass->dx[0] == NULL) return RC_OK;
    return give(model, stage, pass,
                backend->ops->relayout(backend, stage->out.image, stage->in.image.block,
                                       pass->samples, pass->dy, target_of(pass)));
}

const struct stage_ops stage_relayout_ops = {
    .name = "relayout",
    .create = relayout_create,
    .forward = relayout_forward,
    .backward = relayout_backward,
};
