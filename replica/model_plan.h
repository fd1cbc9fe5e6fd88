/*
 * model_plan: a layer list bound to shapes: the stages a batch goes through, who runs them, where
 * their parameters and activations are. Internal to model*.c.
 *
 * Image stages run slice by slice (backend->images_per_slice), so that what lies between two of
 * them stays in the cache and need not exist for the whole batch. What the backward pass reads is
 * kept whole; everything else shares two slice buffers, one for even stages and one for odd ones,
 * first for outputs, then for gradients. Dense stages run on the whole batch.
 */
#ifndef GRAPEVINE_REPLICA_MODEL_PLAN_H
#define GRAPEVINE_REPLICA_MODEL_PLAN_H

#include "kernels/backend.h"
#include "replica/layers.h"
#include "replica/model.h"

enum stage_kind { STAGE_CONV, STAGE_POOL, STAGE_RELAYOUT, STAGE_LINEAR };

struct stage {
    enum stage_kind kind;
    bool with_relu;
    uint32_t column;            /* of its layer in the spec, for messages */
    uint32_t size, width;       /* as in struct layer */
    struct image_shape in, out; /* dense stages: channels = values, 1 x 1 */
    struct conv *conv;
    size_t weight, bias; /* offsets in the parameters: conv and linear */
    float *kept;         /* output of the whole batch; NULL: in a slice buffer */
    uint8_t *winner;     /* pool, with gradients */
    bool is_released;    /* the backward pass may write over `kept` */
};

struct model {
    struct backend *backend;
    struct schema schema;
    struct layer_list layers;
    char spec[LAYERS_TEXT_BYTES];
    struct image_shape input;
    uint32_t classes, batch_max;
    uint64_t seed;
    bool with_gradients;

    struct stage stages[LAYERS_MAX + 1];
    uint32_t stages_count;
    uint32_t images_count;        /* how many of them are image stages; they come first */
    uint32_t slice, slices;       /* images in a slice, slices in batch_max */
    float *slice_buffers[2];      /* by parity of the stage */
    float *dense_gradients[2];    /* by parity of the stage: d(loss)/d(its output) */
    float *image_gradient;        /* d(loss)/d(last image stage); may be its `kept` */
    float *tail;                  /* last slice's input, padded with zeros */
    float *planes[SECTION_COUNT]; /* on the backend */

    const float *input_values; /* of the last training pass, borrowed */
    uint32_t batch;            /* of the last training pass; 0: none to go back from */
};

/** Stages from layers: order, shapes, fusions, tensors in the schema. RC_SHAPE, RC_LIMIT. */
MUST_USE enum rc plan_stages(struct model *model, struct fault *why);
/** Convolutions, activations, gradients, planes. RC_NOMEM, RC_UNSUPPORTED. */
MUST_USE enum rc plan_memory(struct model *model, struct fault *why);
void plan_release(struct model *model);

static inline bool stage_is_image(const struct stage *stage)
{
    return stage->kind != STAGE_LINEAR;
}

#endif
