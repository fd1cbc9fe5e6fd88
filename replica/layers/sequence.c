/*
 * Layers on sequences: token embeddings, learned positions, the core of attention between its
 * projections (which are dense stages of their own).
 */
#include "replica/model/stage.h"

#include "base/check.h"

static const float embedding_deviation = 0.02F; /* GPT-2's */

static enum rc embed_create(struct model *model, struct stage *stage, struct fault *why)
{
    const uint32_t shape[] = {stage_symbols(model), stage->layer.count};
    struct init init = {INIT_NORMAL, embedding_deviation};

    if (stage->inputs[0] != 0) return stage_fault(stage, why, "must be the first layer");
    if (stage_input(model) != MODEL_INPUT_TOKENS) {
        return stage_fault(stage, why,
                           "reads text, but a sample of the data is an image or numbers; leave it "
                           "out, or use --data text:FILE");
    }
    stage->out.image.channels = stage->layer.count;
    stage->slice = stage_slice(model, stage->out);
    stage->keeps_input = true;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "weight", shape, 2, init, why);
}

static struct embedding embedding_of(const struct model *model, const struct stage *stage)
{
    return (struct embedding){stage_symbols(model), stage->layer.count};
}

static enum rc embed_forward(struct model *model, struct stage *stage,
                             const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct embedding embedding = embedding_of(model, stage);

    return backend->ops->embedding_forward(backend, &embedding,
                                           pass->samples * shape_rows(stage->out), pass->x[0],
                                           stage_values(model, stage, 0), pass->y);
}

static enum rc embed_backward(struct model *model, struct stage *stage,
                              const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct embedding embedding = embedding_of(model, stage);
    float *dtable = stage_gradient(model, stage, 0);
    size_t values = (size_t)embedding.symbols * embedding.width;
    enum rc rc = RC_OK;

    /* A tied head has written its part before. */
    if (pass->is_first && stage->partner == NO_STAGE) {
        rc = backend->ops->zero(backend, dtable, values * sizeof(float));
    }
    if (rc != RC_OK) return rc;
    return backend->ops->embedding_backward(
        backend, &embedding, pass->samples * shape_rows(stage->out), pass->x[0], pass->dy, dtable);
}

const struct stage_ops stage_embed_ops = {
    .name = "embedding",
    .create = embed_create,
    .forward = embed_forward,
    .backward = embed_backward,
};

static enum rc positions_create(struct model *model, struct stage *stage, struct fault *why)
{
    const uint32_t shape[] = {stage->layer.count, stage->in.image.channels};
    struct init init = {INIT_NORMAL, embedding_deviation};

    uint32_t steps = stage_context(model) > 0 ? stage_context(model) : stage->in.steps;

    if (stage_needs_sequence(stage, why) != RC_OK) return RC_SHAPE;
    if (steps > stage->layer.count) {
        return stage_fault(stage, why,
                           "is too short for sequences of %u steps; use positions:%u, or data of "
                           "shorter ones",
                           steps, steps);
    }
    stage->slice = stage_slice(model, stage->in);
    stage->is_in_place = true;
    stage->is_in_place_back = true;
    return stage_tensor(model, stage, SECTION_PARAMETERS, "weight", shape, 2, init, why);
}

static struct positions positions_of(const struct stage *stage, const struct stage_pass *pass)
{
    return (struct positions){pass->samples, stage->in.steps, stage->in.image.channels};
}

static enum rc positions_forward(struct model *model, struct stage *stage,
                                 const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct positions positions = positions_of(stage, pass);
    const float *table = stage_values(model, stage, 0);

    if (stage_context(model) > 0) { /* samples are steps of one sequence */
        positions = (struct positions){1, pass->samples, positions.width};
        table += (size_t)stage_position(model, pass) * positions.width;
    }
    return backend->ops->positions_forward(backend, &positions, pass->x[0], table, pass->y);
}

static enum rc positions_backward(struct model *model, struct stage *stage,
                                  const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct positions positions = positions_of(stage, pass);
    size_t count = pass->samples * shape_values(stage->in);
    size_t table = (size_t)stage->layer.count * stage->in.image.channels;
    struct copy_rows copy = {1, count, count, count, pass->adds[0]};
    float *dtable = stage_gradient(model, stage, 0);
    enum rc rc = RC_OK;

    if (pass->is_first) rc = backend->ops->zero(backend, dtable, table * sizeof(float));
    if (rc == RC_OK) {
        rc = backend->ops->positions_backward(backend, &positions, pass->dy, dtable);
    }
    if (rc != RC_OK || pass->dx[0] == NULL || pass->dx[0] == pass->dy) return rc;
    return backend->ops->copy_rows(backend, &copy, pass->dy, pass->dx[0]);
}

const struct stage_ops stage_positions_ops = {
    .name = "positions",
    .create = positions_create,
    .forward = positions_forward,
    .backward = positions_backward,
};

static struct attention attention_of(const struct stage *stage, uint32_t samples)
{
    return (struct attention){
        .samples = samples,
        .steps = stage->in.steps,
        .width = stage->out.image.channels,
        .heads = stage->layer.count,
        .is_causal = stage->layer.keys[LAYER_CAUSAL] == 1,
        .is_rotary = stage->layer.keys[LAYER_ROTARY] == 1,
    };
}

static enum rc attention_create(struct model *model, struct stage *stage, struct fault *why)
{
    struct backend *backend = stage_backend(model);
    struct attention attention;
    uint64_t pairs = (uint64_t)stage->in.steps * stage->in.steps;

    CHECK(stage->in.steps > 0 && stage->in.image.channels % 3 == 0);
    stage->out.image.channels = stage->in.image.channels / 3;
    stage->slice = stage_slice(model, stage->out);
    stage->keeps_input = true;
    stage->keeps_output = true;
    stage->saved_bytes = (size_t)stage->in.steps * stage->layer.count * sizeof(float);
    attention = attention_of(stage, stage->slice);
    if (attention.is_rotary && attention.width / attention.heads % 2 != 0) {
        return stage_fault(stage, why,
                           "needs heads of an even width, and they have %u values each; use "
                           "another number of heads",
                           attention.width / attention.heads);
    }
    stage->flops = 4 * pairs * attention.width / (attention.is_causal ? 2 : 1);
    return backend->ops->attention_reserve(backend, &attention);
}

static enum rc attention_forward(struct model *model, struct stage *stage,
                                 const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct attention attention = attention_of(stage, pass->samples);

    return backend->ops->attention_forward(backend, &attention, pass->x[0], pass->y, pass->saved);
}

static enum rc attention_backward(struct model *model, struct stage *stage,
                                  const struct stage_pass *pass)
{
    struct backend *backend = stage_backend(model);
    struct attention attention = attention_of(stage, pass->samples);
    struct attention_backward back = {
        .qkv = pass->x[0],
        .y = pass->y,
        .dy = pass->dy,
        .statistics = pass->saved,
        .dqkv = pass->dx[0],
    };

    CHECK(pass->dx[0] != NULL && !pass->adds[0]); /* the projection has no other reader */
    return backend->ops->attention_backward(backend, &attention, &back);
}

const struct stage_ops stage_attention_ops = {
    .name = "attention",
    .create = attention_create,
    .forward = attention_forward,
    .backward = attention_backward,
};
