/*
 * What others may know of a model: sizes, planes, stages, memory. Any thread, while none trains it.
 */
#include "replica/model/plan.h"

#include "base/check.h"

#include <stdio.h>
#include <string.h>

const struct schema *model_schema(const struct model *model)
{
    return &model->schema;
}

const char *model_spec(const struct model *model)
{
    return model->spec;
}

uint32_t model_classes(const struct model *model)
{
    return model->classes;
}

uint32_t model_batch_max(const struct model *model)
{
    return model->batch_max;
}

uint32_t model_rows(const struct model *model)
{
    return (uint32_t)shape_rows(model->values[model->values_count - 1].shape);
}

uint32_t model_heads(const struct model *model)
{
    return model->heads;
}

void model_set_normalisation(struct model *model, const float *mean, const float *scale)
{
    memcpy(model->mean, mean, model->input.image.channels * sizeof(*mean));
    memcpy(model->scale, scale, model->input.image.channels * sizeof(*scale));
}

void model_keep_normalisation(struct model *model)
{
    model->schema.values[SECTION_INPUT] = 2 * (size_t)model->input.image.channels + INPUT_TAIL;
}

void model_set_meaning(struct model *model, struct digest meaning)
{
    model->schema.meaning = meaning;
}

bool model_set_trunk(struct model *model, uint32_t layers)
{
    return schema_set_trunk(&model->schema, layers);
}

uint32_t model_channels(const struct model *model)
{
    return model->input.image.channels;
}

const float *model_mean(const struct model *model)
{
    return model->mean;
}

const float *model_scale(const struct model *model)
{
    return model->scale;
}

struct backend *model_backend(const struct model *model)
{
    return model->backend;
}

enum rc model_host_plane(struct model *model, enum section section, const float **values)
{
    *values = model->planes[section];
    return model->device == NULL ? RC_OK : model_device_read(model, section, values);
}

enum rc model_set_plane(struct model *model, enum section section, const float *values)
{
    size_t count = model->schema.values[section];

    if (count == 0) return RC_OK;
    return model->backend->ops->upload(model->backend, model_plane(model, section), values,
                                       count * sizeof(float));
}

float *model_plane(struct model *model, enum section section)
{
    CHECK(section < SECTION_COUNT);
    if (section == SECTION_PARAMETERS || section == SECTION_BUFFERS) {
        atomic_fetch_add(&model_owner(model)->version, 1);
    }
    if (section == SECTION_PARAMETERS) atomic_fetch_add(&model_owner(model)->written, 1);
    return model->planes[section];
}

const float *model_values(const struct model *model, enum section section)
{
    CHECK(section < SECTION_COUNT);
    return model->planes[section];
}

const struct parameter_copies *model_copies(const struct model *model)
{
    return model->device == NULL ? NULL : model->device->copies;
}

void model_copies_written(struct model *model)
{
    model->copied = atomic_load(&model_owner(model)->written);
}

uint64_t model_flops(const struct model *model)
{
    uint64_t total = 0;

    for (uint32_t i = 0; i < model->stages_count; i++) {
        total += model->stages[i].flops;
    }
    return total;
}

void model_rewind(struct model *model)
{
    model->position = 0;
}

void model_set_stream(struct model *model, uint64_t stream, uint64_t passes)
{
    model->stream = stream;
    model->passes = passes;
}

uint64_t model_passes(const struct model *model)
{
    return model->passes;
}

enum rc model_reserve_moments(struct model *model, uint32_t planes)
{
    size_t count = model->schema.values[SECTION_PARAMETERS] * planes;

    CHECK(model->planes[SECTION_MOMENTS] == NULL);
    if (count == 0) return RC_OK;
    model->planes[SECTION_MOMENTS] =
        model->backend->ops->alloc(model->backend, count * sizeof(float));
    if (model->planes[SECTION_MOMENTS] == NULL) return RC_NOMEM;
    model->schema.values[SECTION_MOMENTS] = count;
    return RC_OK;
}

void model_set_stop(struct model *model, const atomic_bool *stop)
{
    model->stop = stop;
}

void model_set_profile(struct model *model, const struct model_profile *profile)
{
    model->profile = profile;
}

uint32_t model_stages(const struct model *model)
{
    return model->stages_count;
}

void model_stage(const struct model *model, uint32_t i, struct model_stage *info)
{
    const struct stage *stage = &model->stages[i];
    struct image_shape image = stage->out.image;

    CHECK(i < model->stages_count);
    *info = (struct model_stage){.name = stage->name, .flops = stage->flops};
    layer_format(&stage->layer, info->layer, sizeof(info->layer));
    if (stage->out.steps > 0) {
        snprintf(info->out, sizeof(info->out), "%u steps of %u", stage->out.steps, image.channels);
    } else if (shape_is_flat(stage->out)) {
        snprintf(info->out, sizeof(info->out), "%u", image.channels);
    } else {
        snprintf(info->out, sizeof(info->out), "%ux%ux%u", image.channels, image.height,
                 image.width);
    }
    for (uint32_t t = 0; t < stage->tensors_count; t++) {
        const struct tensor *tensor = &model->schema.tensors[stage->tensors[t]];
        if (tensor->section == SECTION_PARAMETERS) info->parameters += tensor->count;
    }
}

void model_memory(const struct model *model, struct model_memory *memory)
{
    const size_t *values = model->schema.values;

    *memory = (struct model_memory){
        .parameters = values[SECTION_PARAMETERS] * sizeof(float),
        .gradients = model->with_gradients ? values[SECTION_GRADIENT] * sizeof(float) : 0,
        .moments = values[SECTION_MOMENTS] * sizeof(float),
        .buffers = values[SECTION_BUFFERS] * sizeof(float),
        .activations = model->whole_bytes + model->slice_bytes,
        .unshared = model->unshared_bytes,
    };
}

struct backend *stage_backend(const struct model *model)
{
    return model->backend;
}

bool stage_with_gradients(const struct model *model)
{
    return model->with_gradients;
}

uint32_t stage_batch_max(const struct model *model)
{
    return model->batch_max;
}

struct shape stage_input_shape(const struct model *model, const struct stage *stage, uint32_t i)
{
    CHECK(i < stage->inputs_count);
    return model->values[stage->inputs[i]].shape;
}

uint32_t stage_symbols(const struct model *model)
{
    return model->symbols;
}

uint32_t stage_context(const struct model *model)
{
    return model->context;
}

uint32_t stage_position(const struct model *model, const struct stage_pass *pass)
{
    return model->position + pass->first;
}

enum model_input stage_input(const struct model *model)
{
    return model->input_kind;
}

static float *tensor_of(const struct model *model, const struct stage *stage, uint32_t i,
                        enum section section)
{
    const struct tensor *tensor;

    CHECK(i < stage->tensors_count);
    tensor = &model->schema.tensors[stage->tensors[i]];
    if (tensor->section == SECTION_PARAMETERS) return model->planes[section] + tensor->offset;
    return model->planes[tensor->section] + tensor->offset;
}

float *stage_values(const struct model *model, const struct stage *stage, uint32_t i)
{
    return tensor_of(model, stage, i, SECTION_PARAMETERS);
}

float *stage_gradient(const struct model *model, const struct stage *stage, uint32_t i)
{
    return tensor_of(model, stage, i, SECTION_GRADIENT);
}

void stage_meet(const struct model *model, double *values, size_t count)
{
    if (model->meeting != NULL) {
        model->meeting->sum(model->meeting->context, model->lane, values, count);
    }
}

bool stage_has_meeting(const struct model *model)
{
    return model->meeting != NULL;
}

bool stage_is_leader(const struct model *model)
{
    return model->leader == NULL;
}

struct stage *stage_partner(struct model *model, const struct stage *stage)
{
    CHECK(stage->partner < model->stages_count);
    return &model->stages[stage->partner];
}

uint64_t stage_stream(const struct model *model)
{
    return model->stream;
}

uint64_t stage_passes(const struct model *model)
{
    return model->passes;
}

void model_set_statistics_pass(struct model *model, uint64_t pass)
{
    model->statistics_pass = pass;
}

uint64_t stage_statistics_pass(const struct model *model)
{
    return model->statistics_pass;
}
