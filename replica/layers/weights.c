/* See weights.h. Weight normalisation: Salimans, Kingma 2016, arXiv:1602.07868. */
#include "replica/layers/weights.h"

#include "base/check.h"

/* In order of stage_tensor(); a tied layer has at most a bias of its own. */
enum { TENSOR_WEIGHT, TENSOR_BIAS };
enum { TENSOR_V, TENSOR_G, TENSOR_NORMED_BIAS };

bool stage_is_normed(const struct stage *stage)
{
    return stage->layer.keys[LAYER_WN] == 1;
}

bool stage_is_tied(const struct stage *stage)
{
    return stage->partner != NO_STAGE;
}

static enum rc add_tensors(struct model *model, struct stage *stage,
                           const struct stage_weights_shape *shape, struct fault *why)
{
    const uint32_t *weight = shape->weight;
    struct init init = init_fan_in(shape->columns), one = {INIT_CONSTANT, 1.0F};
    enum rc rc = RC_OK;

    if (stage_is_normed(stage)) {
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_v", weight, shape->rank, init,
                          why);
        if (rc == RC_OK) { /* 1 until the start */
            rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight_g", weight, 1, one, why);
        }
    } else if (!stage_is_tied(stage)) {
        rc = stage_tensor(model, stage, SECTION_PARAMETERS, "weight", weight, shape->rank, init,
                          why);
    }
    if (rc != RC_OK || !stage->has_bias) return rc;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "bias", weight, shape->bias_rank, init,
                        why);
}

enum rc stage_weights_create(struct model *model, struct stage *stage,
                             const struct stage_weights_shape *shape, struct stage_weights *weights,
                             struct fault *why)
{
    struct backend *backend = stage_backend(model);
    enum rc rc = add_tensors(model, stage, shape, why);

    if (rc != RC_OK || !stage_is_normed(stage)) return rc;
    weights->rows = shape->weight[0];
    weights->columns = shape->columns;
    weights->norms = backend->ops->alloc(backend, weights->rows * sizeof(float));
    weights->effective =
        backend->ops->alloc(backend, weights->rows * weights->columns * sizeof(float));
    if (weights->norms == NULL || weights->effective == NULL) return RC_NOMEM;
    if (!stage_with_gradients(model)) return RC_OK;
    weights->gradient =
        backend->ops->alloc(backend, weights->rows * weights->columns * sizeof(float));
    return weights->gradient != NULL ? RC_OK : RC_NOMEM;
}

void stage_weights_deinit(struct model *model, struct stage_weights *weights)
{
    struct backend *backend = stage_backend(model);

    backend->ops->free(backend, weights->gradient);
    backend->ops->free(backend, weights->effective);
    backend->ops->free(backend, weights->norms);
    *weights = (struct stage_weights){0};
}

static enum rc normalise(struct model *model, struct stage *stage, struct stage_weights *weights)
{
    struct backend *backend = stage_backend(model);

    return backend->ops->weight_norm_forward(
        backend, weights->rows, weights->columns, stage_values(model, stage, TENSOR_V),
        stage_values(model, stage, TENSOR_G), weights->effective, weights->norms);
}

enum rc stage_weights_start(struct model *model, struct stage *stage, struct stage_weights *weights)
{
    struct backend *backend = stage_backend(model);
    enum rc rc;

    if (!stage_is_normed(stage)) return RC_OK;
    rc = normalise(model, stage, weights);
    if (rc != RC_OK) return rc;
    return backend->ops->copy(backend, stage_values(model, stage, TENSOR_G), weights->norms,
                              weights->rows * sizeof(float));
}

static uint32_t bias_number(const struct stage *stage)
{
    if (stage_is_tied(stage)) return 0;
    return stage_is_normed(stage) ? TENSOR_NORMED_BIAS : TENSOR_BIAS;
}

enum rc stage_weights_take(struct model *model, struct stage *stage, struct stage_weights *weights,
                           const float **weight, const float **bias)
{
    enum rc rc = RC_OK;

    *bias = stage->has_bias ? stage_values(model, stage, bias_number(stage)) : NULL;
    if (stage_is_tied(stage)) {
        *weight = stage_values(model, stage_partner(model, stage), 0);
    } else if (stage_is_normed(stage)) {
        rc = normalise(model, stage, weights);
        *weight = weights->effective;
    } else {
        *weight = stage_values(model, stage, TENSOR_WEIGHT);
    }
    return rc;
}

void stage_weights_gradients(struct model *model, struct stage *stage,
                             const struct stage_weights *weights, float **weight, float **bias)
{
    *bias = stage->has_bias ? stage_gradient(model, stage, bias_number(stage)) : NULL;
    if (stage_is_normed(stage)) {
        *weight = weights->gradient;
    } else if (stage_is_tied(stage)) {
        *weight = stage_gradient(model, stage_partner(model, stage), 0);
    } else {
        *weight = stage_gradient(model, stage, TENSOR_WEIGHT);
    }
}

enum rc stage_weights_close(struct model *model, struct stage *stage, struct stage_weights *weights)
{
    struct weight_norm_backward back;

    if (!stage_is_normed(stage)) return RC_OK;
    back = (struct weight_norm_backward){
        .rows = weights->rows,
        .columns = weights->columns,
        .v = stage_values(model, stage, TENSOR_V),
        .g = stage_values(model, stage, TENSOR_G),
        .norms = weights->norms,
        .dw = weights->gradient,
        .dv = stage_gradient(model, stage, TENSOR_V),
        .dg = stage_gradient(model, stage, TENSOR_G),
    };
    return stage_backend(model)->ops->weight_norm_backward(stage_backend(model), &back);
}
